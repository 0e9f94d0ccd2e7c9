//! Which generations run under which ids, so that somebody other than their client can end them.
//!
//! Owns the registry and the early end. Refuses to know what an id means: the API chooses it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{
    StreamExt,
    stream::{self, AbortHandle, Abortable},
};
use parking_lot::Mutex;

use crate::engine::{EngineError, EngineOutput, FinishReason, TokenStream};

type Ids = Arc<[Arc<str>]>;

/// The generations that have ids, while they run or wait. Clones are the same registry.
#[derive(Debug, Clone, Default)]
pub struct RunningRequests {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// An id may be in use more than once: clients choose them, and one request may be several generations.
    by_id: Mutex<HashMap<Arc<str>, Vec<Entry>>>,
    tickets: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    ticket: u64,
    abort: AbortHandle,
}

/// Takes the generation out of the registry when it ends or is dropped.
struct Registration {
    shared: Arc<Shared>,
    ids: Ids,
    ticket: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut by_id = self.shared.by_id.lock();
        for id in &*self.ids {
            if let Some(entries) = by_id.get_mut(id) {
                entries.retain(|entry| entry.ticket != self.ticket);
                if entries.is_empty() {
                    by_id.remove(id);
                }
            }
        }
    }
}

impl RunningRequests {
    /// Ends the generations of `ids` with what they have, and says how many there were. Unknown ids are none.
    pub fn abort<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> usize {
        let by_id = self.shared.by_id.lock();
        ended(ids.into_iter().filter_map(|id| by_id.get(id)).flatten())
    }

    /// Ends all generations that have ids, and says how many there were.
    pub fn abort_all(&self) -> usize {
        ended(self.shared.by_id.lock().values().flatten())
    }

    /// Lets a generation be ended by any of `ids`.
    pub(super) fn register(&self, ids: &Ids, outputs: TokenStream) -> TokenStream {
        if ids.is_empty() {
            return outputs;
        }
        let (abort, registered) = AbortHandle::new_pair();
        let ticket = self.shared.tickets.fetch_add(1, Ordering::Relaxed);
        let mut by_id = self.shared.by_id.lock();
        for id in &**ids {
            by_id.entry(Arc::clone(id)).or_default().push(Entry { ticket, abort: abort.clone() });
        }
        drop(by_id);
        let registration = Registration { shared: Arc::clone(&self.shared), ids: Arc::clone(ids), ticket };
        let end = stream::once(async move {
            // An engine that stops without a reason is not excused by this one.
            if abort.is_aborted() {
                Ok(EngineOutput::Finished(FinishReason::Abort))
            } else {
                Err(EngineError::Failed("the generation ended without a reason".to_owned()))
            }
        });
        // The engine's stream is dropped, and so aborted, before the end is said.
        let outputs = Abortable::new(outputs, registered).chain(end);
        outputs.inspect(move |_| _ = &registration).boxed()
    }
}

/// Counts each generation once, whatever ids name it.
fn ended<'a>(entries: impl Iterator<Item = &'a Entry>) -> usize {
    let mut tickets: Vec<u64> = entries
        .map(|entry| {
            entry.abort.abort();
            entry.ticket
        })
        .collect();
    tickets.sort_unstable();
    tickets.dedup();
    tickets.len()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::engine::SampledToken;

    fn ids(ids: &[&str]) -> Ids {
        ids.iter().map(|&id| Arc::from(id)).collect()
    }

    /// One token, then silence.
    fn stuck() -> TokenStream {
        let token = SampledToken { id: 1, logprob: 0.0, rank: 1, top_logprobs: Vec::new() };
        stream::iter([Ok(EngineOutput::Token(token))]).chain(stream::pending()).boxed()
    }

    fn next(outputs: &mut TokenStream) -> Option<EngineOutput> {
        outputs.next().now_or_never().flatten().map(|output| output.expect("a stream without errors"))
    }

    #[test]
    fn an_aborted_generation_ends_with_what_it_has() {
        let running = RunningRequests::default();
        let mut outputs = running.register(&ids(&["a"]), stuck());
        assert!(matches!(next(&mut outputs), Some(EngineOutput::Token(_))));
        assert_eq!(next(&mut outputs), None);
        assert_eq!(running.abort(["a"]), 1);
        assert_eq!(next(&mut outputs), Some(EngineOutput::Finished(FinishReason::Abort)));
    }

    #[test]
    fn every_generation_counts_once_and_only_those_that_are_named_end() {
        let running = RunningRequests::default();
        let mut first = running.register(&ids(&["a", "a-0"]), stuck());
        let mut second = running.register(&ids(&["a", "a-1"]), stuck());
        let mut other = running.register(&ids(&["b"]), stuck());
        for outputs in [&mut first, &mut second, &mut other] {
            next(outputs);
        }
        assert_eq!(running.abort(["a", "a-0", "unknown"]), 2);
        assert!(next(&mut first).is_some() && next(&mut second).is_some());
        assert_eq!(next(&mut other), None);
        assert_eq!(running.abort_all(), 3);
    }

    #[test]
    fn a_generation_that_is_dropped_is_forgotten() {
        let running = RunningRequests::default();
        let kept = running.register(&ids(&["a"]), stuck());
        drop(running.register(&ids(&["a"]), stuck()));
        assert_eq!(running.abort(["a"]), 1);
        drop(kept);
        assert_eq!(running.abort_all(), 0);
        assert!(running.shared.by_id.lock().is_empty());
    }

    #[test]
    fn an_engine_that_stops_without_a_reason_is_at_fault() {
        let running = RunningRequests::default();
        let mut outputs = running.register(&ids(&["a"]), stream::empty().boxed());
        assert!(matches!(outputs.next().now_or_never(), Some(Some(Err(EngineError::Failed(_))))));
    }
}
