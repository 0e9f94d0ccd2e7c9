//! Logs and metrics of the process.
//!
//! Owns the names and descriptions of all metrics, and the page that shows them. Refuses to count anything itself.

mod exposition;
mod families;
mod process;
mod registry;
mod statistics;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::engine::{AdapterLimits, AdapterLoad, EngineLoad};
pub(crate) use exposition::CONTENT_TYPE;
use registry::Registry;

/// Log lines go to standard error, those that `filter` lets through.
pub fn init_logging(filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)?;
    let terminal = std::io::stderr().is_terminal();
    // A line that cannot be written, as on a disk that is full, is lost. Told of it on standard error, where it cannot be
    // written either, whatever logged it would panic.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    log.with_ansi(terminal).init();
    Ok(())
}

/// What `/metrics` shows.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// Installs the process's recorder; once a process. The buckets that count tokens end at the longest sequence.
    pub fn install(model_name: &str, max_model_len: usize) -> anyhow::Result<Self> {
        let metrics = Self::new(model_name, max_model_len);
        metrics::set_global_recorder(metrics.registry.clone())?;
        Ok(metrics)
    }

    /// A recorder that records nothing, for tests that share a process.
    #[cfg(any(test, feature = "internals"))]
    pub fn detached(model_name: &str) -> Self {
        Self::new(model_name, 4096)
    }

    /// Prometheus text; `weight_version` is what the weights are called that sample now, and `adapters` are those that
    /// requests ask for, where any are served.
    pub fn render(
        &self,
        load: EngineLoad,
        weight_version: &str,
        adapters: Option<(AdapterLimits, &AdapterLoad)>,
    ) -> String {
        self.measure(load, adapters.map_or(0, |(_, adapters)| adapters.deferred));
        let mut text = String::new();
        process::write(&mut text);
        text.push_str(&exposition::write(&self.registry));
        exposition::write_weight_version(&mut text, weight_version);
        if let Some((limits, load)) = adapters {
            exposition::write_adapters(&mut text, limits, load);
        }
        text
    }

    fn new(model_name: &str, max_model_len: usize) -> Self {
        let registry = Registry::new(model_name, max_model_len);
        // Until it is told to sleep.
        registry.set("vllm:engine_sleep_state", &[("sleep_state", "awake")], 1.0);
        Self { registry }
    }

    #[expect(clippy::cast_precision_loss, reason = "no engine has 2^52 sequences")]
    fn measure(&self, load: EngineLoad, deferred: usize) {
        let (running, waiting) = (load.running as f64, load.waiting as f64);
        self.registry.set("vllm:num_requests_running", &[], running);
        self.registry.set("vllm:num_requests_waiting", &[], waiting);
        self.registry.set("tito:num_requests_paused", &[], load.paused as f64);
        // The two are read one after the other.
        let deferred = deferred.min(load.waiting);
        for (reason, count) in [("capacity", load.waiting - deferred), ("deferred", deferred)] {
            self.registry.set("vllm:num_requests_waiting_by_reason", &[("reason", reason)], count as f64);
        }
        self.registry.set("vllm:kv_cache_usage_perc", &[], load.kv_cache_usage);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::{EngineMeters, RequestTimes};

    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }

    #[test]
    fn what_an_engine_reports_is_exposed_under_vllms_names() {
        let metrics = Metrics::detached("tiny");
        metrics::with_local_recorder(&metrics.registry, || {
            let meters = EngineMeters::of_recorder();
            meters.prefix_cache(10, 4);
            meters.prefix_cache(5, 0);
            meters.preempted();
            meters.iteration(7);
            let seconds = Duration::from_secs;
            meters.finished(RequestTimes { queued: seconds(1), prefill: seconds(2), decode: seconds(3) }, 4);
            EngineMeters::cache_config(16, 10, 2.5);
        });
        let text =
            metrics.render(EngineLoad { running: 3, waiting: 2, paused: 1, kv_cache_usage: 0.25 }, "default", None);
        let labels = "engine=\"0\",model_name=\"tiny\"";
        for (name, value) in [
            ("prefix_cache_queries_total", "15.0"),
            ("gpu_prefix_cache_queries_total", "15.0"),
            ("prefix_cache_hits_total", "4.0"),
            ("num_preemptions_total", "1.0"),
            ("iteration_tokens_total_sum", "7.0"),
            ("request_queue_time_seconds_sum", "1.0"),
            ("request_prefill_time_seconds_sum", "2.0"),
            ("request_decode_time_seconds_sum", "3.0"),
            ("request_inference_time_seconds_sum", "5.0"),
            ("request_num_preemptions_sum", "4.0"),
            ("num_requests_running", "3.0"),
            ("num_requests_waiting", "2.0"),
            ("kv_cache_usage_perc", "0.25"),
            ("gpu_cache_usage_perc", "0.25"),
        ] {
            has(&text, &format!("vllm:{name}{{{labels}}} {value}"));
        }
        has(&text, &format!("tito:num_requests_paused{{{labels}}} 1.0"));
        has(&text, "vllm:iteration_tokens_total_bucket{engine=\"0\",le=\"1.0\",model_name=\"tiny\"} 0.0");
        has(&text, "vllm:iteration_tokens_total_bucket{engine=\"0\",le=\"8.0\",model_name=\"tiny\"} 1.0");
        has(&text, "# TYPE vllm:cache_config_info gauge");
        let info = text.lines().find(|line| line.starts_with("vllm:cache_config_info{")).unwrap();
        for label in ["block_size=\"16\"", "num_gpu_blocks=\"10\"", "kv_cache_max_concurrency=\"2.5\""] {
            assert!(info.contains(label), "{info}");
        }
        has(&text, "vllm:request_success_total{engine=\"0\",finished_reason=\"error\",model_name=\"tiny\"} 0.0");
    }

    #[test]
    fn adapters_are_one_series_as_vllm_names_it() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
        let load = AdapterLoad { running: names(&["a", "b"]), waiting: names(&["c"]), deferred: 3 };
        let limits = AdapterLimits { max_loras: 2, max_lora_rank: 8 };
        let metrics = Metrics::detached("tiny");
        let engine = EngineLoad { waiting: 5, ..EngineLoad::default() };
        let text = metrics.render(engine, "default", Some((limits, &load)));
        let labels = "max_lora=\"2\",waiting_lora_adapters=\"c\",running_lora_adapters=\"a,b\"";
        let series: Vec<&str> = text.lines().filter(|line| line.starts_with("vllm:lora_requests_info")).collect();
        assert_eq!(series.len(), 1, "{series:?}");
        let value = series[0].strip_prefix(&format!("vllm:lora_requests_info{{{labels}}} ")).expect(series[0]);
        assert!(value.parse::<f64>().unwrap() > 1.7e9, "{value}");
        has(&text, "# TYPE vllm:lora_requests_info gauge");
        for (reason, count) in [("capacity", "2.0"), ("deferred", "3.0")] {
            let labels = format!("engine=\"0\",model_name=\"tiny\",reason=\"{reason}\"");
            has(&text, &format!("vllm:num_requests_waiting_by_reason{{{labels}}} {count}"));
        }
        assert!(!metrics.render(EngineLoad::default(), "default", None).contains("lora"));
    }

    #[test]
    fn a_counter_that_no_table_knows_is_shown_too() {
        let metrics = Metrics::detached("tiny");
        metrics::with_local_recorder(&metrics.registry, || metrics::counter!("other_total").increment(2));
        let text = metrics.render(EngineLoad::default(), "default", None);
        has(&text, "other_total{engine=\"0\",model_name=\"tiny\"} 2.0");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_is_measured() {
        let text = Metrics::detached("tiny").render(EngineLoad::default(), "default", None);
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
            line.parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e5, "{text}");
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"), "{text}");
        assert!(value("process_start_time_seconds") > 1e9, "{text}");
        assert!(value("process_open_fds") >= 1.0 && value("process_max_fds") >= value("process_open_fds"), "{text}");
    }
}
