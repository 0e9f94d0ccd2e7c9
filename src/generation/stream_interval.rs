//! `stream_interval`: several tokens to a chunk (vLLM `v1/engine/output_processor.py`).

use futures::{Stream, StreamExt, TryStreamExt, stream};

use super::{Delta, Event};

/// The events of one choice of a stream that are held back.
#[derive(Default)]
struct Batch {
    started: bool,
    held: Delta,
}

impl Batch {
    /// Returns what goes out with the next event: the first token and the end at once, and the rest `interval` tokens
    /// at a time. What is held goes out before something that could not be added without a change of the order.
    fn push(&mut self, event: Event, interval: usize) -> Vec<Event> {
        let Event::Delta(delta) = event else { return vec![event] };
        let mut due = Vec::new();
        if !self.held.is_followed_by(&delta) {
            due.push(self.take());
        }
        self.held.push(delta);
        if self.held.finish.is_some() || !self.started || self.held.tokens.len() >= interval {
            due.push(self.take());
        }
        self.started = true;
        due
    }

    fn take(&mut self) -> Event {
        Event::Delta(std::mem::take(&mut self.held))
    }
}

/// Passes on the events of `choices` choices so that each of them holds `interval` tokens.
pub fn batched<E>(
    events: impl Stream<Item = Result<(usize, Event), E>>,
    interval: usize,
    choices: usize,
) -> impl Stream<Item = Result<(usize, Event), E>> {
    let mut batches: Vec<Batch> = std::iter::repeat_with(Batch::default).take(choices).collect();
    let due = move |(index, event): (usize, Event)| {
        let due = batches[index].push(event, interval);
        stream::iter(due).map(move |event| Ok((index, event)))
    };
    events.map_ok(due).try_flatten()
}
