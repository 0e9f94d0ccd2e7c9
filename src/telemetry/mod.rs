//! Logs and metrics of the process.
//!
//! Owns what is said about every metric. Refuses to count anything itself.

mod families;

use std::{io::IsTerminal, time::Duration};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use tracing_subscriber::EnvFilter;

use crate::engine::EngineLoad;
use families::Family;

/// Log lines go to standard error: the program's own at `info`, dependencies' at `warn`, unless `filter` says more.
pub fn init_logging(filter: Option<&str>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter.unwrap_or("warn,tito=info"))?;
    let terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal).init();
    Ok(())
}

/// What `/metrics` shows.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
    model_name: String,
}

const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

impl Metrics {
    /// Installs the process's recorder; once a process.
    pub fn install(model_name: impl Into<String>) -> anyhow::Result<Self> {
        let model_name = model_name.into();
        let recorder = recorder(&model_name)?;
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder)?;
        Ok(Self { handle, model_name })
    }

    /// A recorder that records nothing, for tests that share a process.
    pub fn detached(model_name: impl Into<String>) -> anyhow::Result<Self> {
        let model_name = model_name.into();
        Ok(Self { handle: recorder(&model_name)?.handle(), model_name })
    }

    /// Moves recorded times into their buckets now and then, for ever: until then each one takes memory.
    pub async fn upkeep(self) {
        let mut interval = tokio::time::interval(UPKEEP_INTERVAL);
        loop {
            interval.tick().await;
            self.handle.run_upkeep();
        }
    }

    /// Prometheus text.
    pub fn render(&self, load: EngineLoad) -> String {
        let mut text = self.handle.render();
        let label = self.model_name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        #[expect(clippy::cast_precision_loss, reason = "no engine has 2^52 sequences")]
        let gauges = [
            ("num_requests_running", "Number of requests in model execution batches.", load.running as f64),
            ("num_requests_waiting", "Number of requests waiting to be processed.", load.waiting as f64),
            ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", load.kv_cache_usage),
        ];
        for (name, help, value) in gauges {
            let name = format!("vllm:{name}");
            let about = format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
            let sample = format!("{name}{{model_name=\"{label}\",engine=\"0\"}} {value}\n");
            text.push_str(&about);
            text.push_str(&sample);
        }
        text
    }
}

/// A recorder that knows every family: its buckets, and what it is about.
fn recorder(model_name: &str) -> anyhow::Result<PrometheusRecorder> {
    // vLLM's labels; its `engine` is the index of a data-parallel rank.
    let mut builder =
        PrometheusBuilder::new().add_global_label("model_name", model_name).add_global_label("engine", "0");
    for Family { name, buckets, .. } in families::HISTOGRAMS {
        builder = builder.set_buckets_for_metric(Matcher::Full((*name).to_owned()), buckets)?;
    }
    let recorder = builder.build_recorder();
    metrics::with_local_recorder(&recorder, families::describe);
    Ok(recorder)
}
