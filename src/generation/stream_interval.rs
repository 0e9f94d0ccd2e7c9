//! `stream_interval`: several tokens to a chunk (vLLM `v1/engine/output_processor.py`).

use std::future::ready;

use futures::{Stream, TryStreamExt};

use super::{Delta, Event};

/// The events of one choice of a stream that are held back.
#[derive(Default)]
struct Batch {
    started: bool,
    held: Delta,
}

impl Batch {
    /// Returns what goes out with the next event: the first token and the end at once, and the rest `interval` tokens
    /// at a time.
    fn push(&mut self, event: Event, interval: usize) -> Option<Event> {
        let Event::Delta(delta) = event else { return Some(event) };
        self.held.push(delta);
        let due = self.held.finish.is_some() || !self.started || self.held.tokens.len() >= interval;
        self.started = true;
        due.then(|| Event::Delta(std::mem::take(&mut self.held)))
    }
}

/// Passes on the events of `choices` choices so that each of them holds `interval` tokens.
pub fn batched<E>(
    events: impl Stream<Item = Result<(usize, Event), E>>,
    interval: usize,
    choices: usize,
) -> impl Stream<Item = Result<(usize, Event), E>> {
    let mut batches: Vec<Batch> = std::iter::repeat_with(Batch::default).take(choices).collect();
    events.try_filter_map(move |(index, event)| {
        let due = batches[index].push(event, interval);
        ready(Ok(due.map(|event| (index, event))))
    })
}
