//! Begins the traces of requests.

use std::{fmt, sync::Arc};

use super::{context::Parent, ids::new_trace, queue::Queue, sampler::Sampler, spans::Ended};
use crate::request_trace::RequestTrace;

/// Traces requests; clones are the same tracer.
#[derive(Clone)]
pub struct Tracer {
    sampler: Sampler,
    queue: Arc<Queue>,
}

impl Tracer {
    pub(super) fn new(sampler: Sampler, queue: Arc<Queue>) -> Self {
        Self { sampler, queue }
    }

    /// A request to `route` comes, with these headers `traceparent` and `tracestate`. `None` if it is not traced.
    pub(crate) fn begin(&self, route: &str, parents: &[&[u8]], states: &[&[u8]]) -> Option<Arc<RequestTrace>> {
        let parent = Parent::of_headers(parents, states);
        let trace_id = parent.as_ref().map_or_else(new_trace, |parent| parent.trace_id);
        if !self.sampler.traces(trace_id, parent.as_ref()) {
            return None;
        }
        let queue = Arc::clone(&self.queue);
        Some(RequestTrace::new(route.into(), move |record| queue.add(Ended { trace_id, parent, record })))
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tracer").field("sampler", &self.sampler).finish_non_exhaustive()
    }
}
