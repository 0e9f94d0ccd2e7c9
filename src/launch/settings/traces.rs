//! Where traces of requests are sent.

use crate::{
    config::{ServeArgs, otel_variables},
    otlp::OtlpSettings,
};

/// Where they are sent, if they are. Fails with one sentence where OpenTelemetry's variables ask for what tito cannot do.
pub(super) fn settings(args: &ServeArgs) -> anyhow::Result<Option<OtlpSettings>> {
    let Some(endpoint) = args.logs.collector_of_traces() else { return Ok(None) };
    let settings = otel_variables().and_then(|variables| OtlpSettings::new(endpoint, &variables));
    settings.map_err(anyhow::Error::msg)
}
