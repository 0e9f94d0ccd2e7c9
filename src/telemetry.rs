//! Logs and metrics of the process.

use std::{io::IsTerminal, time::Duration};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::engine::EngineLoad;

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

/// vLLM's buckets (`v1/metrics/buckets.py`), in seconds.
const REQUEST_SECONDS: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
const FIRST_TOKEN_SECONDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const TOKEN_SECONDS: [f64; 18] =
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 80.0];
const TOKENS: [f64; 19] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6];
/// Of the HTTP layer.
const RESPONSE_SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 480.0];

impl Metrics {
    /// Installs the process's recorder; once a process.
    pub fn install(model_name: impl Into<String>) -> anyhow::Result<Self> {
        let model_name = model_name.into();
        Ok(Self { handle: builder(&model_name)?.install_recorder()?, model_name })
    }

    /// A recorder that records nothing, for tests that share a process.
    pub fn detached(model_name: impl Into<String>) -> anyhow::Result<Self> {
        let model_name = model_name.into();
        Ok(Self { handle: builder(&model_name)?.build_recorder().handle(), model_name })
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
        for (name, value) in [("running", load.running), ("waiting", load.waiting)] {
            let name = format!("vllm:num_requests_{name}");
            let sample = format!("# TYPE {name} gauge\n{name}{{model_name=\"{label}\",engine=\"0\"}} {value}\n");
            text.push_str(&sample);
        }
        text
    }
}

fn builder(model_name: &str) -> anyhow::Result<PrometheusBuilder> {
    let buckets: [(&str, &[f64]); 6] = [
        ("http_request_duration_seconds", &RESPONSE_SECONDS),
        ("vllm:e2e_request_latency_seconds", &REQUEST_SECONDS),
        ("vllm:inter_token_latency_seconds", &TOKEN_SECONDS),
        ("vllm:request_generation_tokens", &TOKENS),
        ("vllm:request_prompt_tokens", &TOKENS),
        ("vllm:time_to_first_token_seconds", &FIRST_TOKEN_SECONDS),
    ];
    // vLLM's labels; its `engine` is the index of a data-parallel rank.
    let mut builder =
        PrometheusBuilder::new().add_global_label("model_name", model_name).add_global_label("engine", "0");
    for (name, buckets) in buckets {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)?;
    }
    Ok(builder)
}
