//! What happened to requests, as spans for a collector of OpenTelemetry: OTLP over gRPC, or over HTTP.
//!
//! Owns `OTEL_…` settings, W3C's trace context, sampling, the shape of spans and the names of their attributes, which are
//! vLLM's where vLLM has one (`vllm/tracing`, `v1/engine/output_processor.py`), and how spans are sent. Refuses to know what
//! happens to a request: its notes say so.
//!
//! No request ever waits: notes go to a queue with a bound, and what does not fit is dropped and counted. One task sends. What
//! it is made of, and why not of the SDK: `docs/decisions/traces-without-an-sdk.md`.

mod collector;
mod context;
mod exporter;
mod ids;
mod protobuf;
mod queue;
mod sampler;
mod settings;
mod spans;
#[cfg(test)]
mod tests;
mod tracer;

pub(crate) use context::{TRACEPARENT, TRACESTATE};
pub(crate) use exporter::Prepared;
pub(crate) use settings::OtlpSettings;
#[cfg(test)]
pub(crate) use tests::probe::{Probe, SeenSpan};
pub(crate) use tracer::Tracer;
