//! Logs and metrics of the process.

use std::io::IsTerminal;

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

/// vLLM's buckets for durations of requests, in seconds.
const REQUEST_SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 480.0];

impl Metrics {
    /// Installs the process's recorder; once a process.
    pub fn install(model_name: impl Into<String>) -> anyhow::Result<Self> {
        let handle = builder()?.install_recorder()?;
        Ok(Self { handle, model_name: model_name.into() })
    }

    /// A recorder that records nothing, for tests that share a process.
    pub fn detached(model_name: impl Into<String>) -> anyhow::Result<Self> {
        let handle = builder()?.build_recorder().handle();
        Ok(Self { handle, model_name: model_name.into() })
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

fn builder() -> anyhow::Result<PrometheusBuilder> {
    let matcher = Matcher::Suffix("_seconds".to_owned());
    Ok(PrometheusBuilder::new().set_buckets_for_metric(matcher, &REQUEST_SECONDS)?)
}
