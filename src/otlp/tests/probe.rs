//! What a tracer tells, in place of a collector.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use serde_json::{Value as Json, json};

use crate::otlp::{
    Tracer,
    protobuf::{KeyValue, Span, SpanEnd, SpanKind, Value},
    queue::Queue,
    sampler::Sampler,
    settings::QueueBounds,
};

/// Takes requests as they end.
pub(crate) struct Probe(Arc<Queue>);

/// A span, with its ids in hexadecimal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeenSpan {
    pub(crate) name: String,
    pub(crate) trace_id: String,
    pub(crate) span_id: String,
    /// Empty for none.
    pub(crate) parent_id: String,
    pub(crate) state: String,
    pub(crate) is_server: bool,
    pub(crate) is_error: bool,
    /// Nanoseconds since 1970.
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) attributes: BTreeMap<String, Json>,
}

impl Probe {
    /// A tracer of all requests but those whose parents are not recorded, and what it tells.
    pub(crate) fn new() -> (Tracer, Self) {
        let queue = Queue::new(QueueBounds { waiting: 100_000, batch: 1, delay: Duration::ZERO });
        (Tracer::new(Sampler::default(), Arc::clone(&queue)), Self(queue))
    }

    /// The spans of the next request that ends.
    pub(crate) async fn request(&self) -> Vec<SeenSpan> {
        let batch = self.0.batch().await.expect("the queue is open");
        assert_eq!(batch.len(), 1);
        let spans = batch[0].spans("the-model");
        assert_eq!(spans.len(), batch[0].count(), "they are counted before they are made");
        spans.iter().map(seen).collect()
    }

    /// Whether no request has ended that was not taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What is said of a span.
pub(super) fn seen(span: &Span) -> SeenSpan {
    let value = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::String(text)) => json!(text),
        Some(Value::Int(number)) => json!(number),
        Some(Value::Double(number)) => json!(number),
        None => Json::Null,
    };
    let attributes: BTreeMap<_, _> =
        span.attributes.iter().map(|attribute| (attribute.key.clone(), value(attribute))).collect();
    assert_eq!(attributes.len(), span.attributes.len(), "an attribute is there twice: {:?}", span.attributes);
    SeenSpan {
        name: span.name.clone(),
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent_id: hex(&span.parent_span_id),
        state: span.trace_state.clone(),
        is_server: span.kind == i32::from(SpanKind::Server),
        is_error: span.status.as_ref().is_some_and(|status| status.code == i32::from(SpanEnd::Error)),
        started: span.start_time_unix_nano,
        ended: span.end_time_unix_nano,
        attributes,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
