//! Requests that have ended and are to be told of: a queue with a bound, which nobody waits for.

use std::{collections::VecDeque, mem, sync::Arc};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::timeout};

use super::{settings::QueueBounds, spans::Ended};

/// What waits to be sent.
pub(super) struct Queue {
    bounds: QueueBounds,
    waiting: Mutex<Waiting>,
    /// There is something, or nothing more will come.
    news: Notify,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Ended>,
    spans: usize,
    is_closed: bool,
}

/// Why spans are not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dropped {
    /// Too many wait already.
    QueueFull,
    /// The collector does not take them.
    Refused,
    /// The collector could not be reached in time.
    Unreachable,
}

impl Dropped {
    /// All reasons.
    pub(super) const ALL: [Self; 3] = [Self::QueueFull, Self::Refused, Self::Unreachable];

    /// Counts spans that are not sent.
    pub(super) fn count(self, spans: usize) {
        let reason = match self {
            Self::QueueFull => "queue_full",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
        };
        metrics::counter!("tito:trace_spans_dropped_total", "reason" => reason).increment(spans as u64);
    }
}

impl Queue {
    pub(super) fn new(bounds: QueueBounds) -> Arc<Self> {
        Arc::new(Self { bounds, waiting: Mutex::default(), news: Notify::new() })
    }

    /// Adds a request, or drops it if there is no room.
    pub(super) fn add(&self, ended: Ended) {
        let spans = ended.count();
        let mut waiting = self.waiting.lock();
        if waiting.is_closed || waiting.spans + spans > self.bounds.waiting {
            drop(waiting);
            Dropped::QueueFull.count(spans);
            return;
        }
        waiting.spans += spans;
        waiting.requests.push_back(ended);
        drop(waiting);
        self.news.notify_one();
    }

    /// Takes no more requests. What waits is given out without delay.
    pub(super) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.news.notify_one();
    }

    /// Whether it takes no more.
    pub(super) fn is_closed(&self) -> bool {
        self.waiting.lock().is_closed
    }

    /// Resolves once it takes no more.
    pub(super) async fn closed(&self) {
        while !self.is_closed() {
            self.news.notified().await;
        }
    }

    /// The requests of the next batch, which has as many spans as it may have, or whose first request has waited for as long
    /// as it may; one request alone may have more spans. `None` once the queue is closed and empty.
    pub(super) async fn batch(&self) -> Option<Vec<Ended>> {
        while self.waiting.lock().requests.is_empty() {
            if self.is_closed() {
                return None;
            }
            self.news.notified().await;
        }
        let full = async {
            while !self.is_ready() {
                self.news.notified().await;
            }
        };
        // Whether it is full or was waited for: what is there goes out.
        let _ = timeout(self.bounds.delay, full).await;
        Some(self.take())
    }

    fn is_ready(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.is_closed || waiting.spans >= self.bounds.batch
    }

    fn take(&self) -> Vec<Ended> {
        let mut waiting = self.waiting.lock();
        let (mut batch, mut spans) = (Vec::new(), 0);
        while let Some(next) = waiting.requests.front() {
            let more = next.count();
            if !batch.is_empty() && spans + more > self.bounds.batch {
                break;
            }
            spans += more;
            batch.extend(waiting.requests.pop_front());
        }
        waiting.spans -= spans;
        batch
    }

    /// Gives up all that waits, and says how many spans that were.
    pub(super) fn clear(&self) -> usize {
        let mut waiting = self.waiting.lock();
        waiting.requests.clear();
        mem::take(&mut waiting.spans)
    }

    /// Whether nothing waits.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.lock().requests.is_empty()
    }
}
