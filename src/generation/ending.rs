//! How the generations of one prompt are ended by somebody other than their reader.
//!
//! Owns the engine's streams of those that have started, and the places of those that have not, so that an end gives both
//! back at once: a client that does not read its answer keeps no sequence in the engine. Refuses to know who ends them.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::engine::{Reservation, Ticket, TokenStream};

/// The engine's stream of a generation; `None` once it was ended.
type Slot = Mutex<Option<TokenStream>>;

/// The early end of the generations of one prompt.
#[derive(Debug)]
pub(super) struct Ending {
    begun: watch::Sender<bool>,
    /// How many generations have not ended yet, whether or not they have started.
    left: AtomicUsize,
    held: Mutex<Held>,
}

/// What the generations have of the engine.
struct Held {
    /// The places of those that did not start; `None` once they were ended.
    places: Option<Reservation>,
    streams: Vec<Weak<Slot>>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Held").field("places", &self.places).finish_non_exhaustive()
    }
}

/// One of the generations, until it ends or is dropped.
pub(super) struct Unended(Arc<Ending>);

impl Unended {
    pub(super) fn new(ending: &Arc<Ending>) -> Self {
        Self(Arc::clone(ending))
    }
}

impl Drop for Unended {
    fn drop(&mut self) {
        self.0.left.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Ending {
    /// The end of the generations that have these places.
    pub(super) fn new(places: Reservation) -> Self {
        let left = AtomicUsize::new(places.unstarted());
        let held = Mutex::new(Held { places: Some(places), streams: Vec::new() });
        Self { begun: watch::Sender::new(false), left, held }
    }

    /// Ends the generations; says how many there were, or `None` where they were ended before.
    pub(super) fn begin(&self) -> Option<usize> {
        let left = self.left.load(Ordering::Acquire);
        let is_first = self.begun.send_if_modified(|begun| !std::mem::replace(begun, true));
        is_first.then_some(left)
    }

    /// Whether they were ended.
    pub(super) fn is_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Waits until they are.
    pub(super) async fn ended(&self) {
        // The sender is there as long as this.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// Gives back to the engine what the generations have of it, without waiting for their readers. Nothing starts after it.
    pub(super) fn give_back(&self) {
        let (places, streams) = {
            let mut held = self.held.lock();
            (held.places.take(), std::mem::take(&mut held.streams))
        };
        drop(places);
        for slot in streams.iter().filter_map(Weak::upgrade) {
            // The engine learns of it while nobody holds the lock.
            let stream = slot.lock().take();
            drop(stream);
        }
    }

    /// Starts the next generation in its place; the stream is empty where the generations were ended.
    pub(super) fn start(&self, start: impl FnOnce(Ticket) -> TokenStream) -> TokenStream {
        let mut held = self.held.lock();
        let place = held.places.as_mut().and_then(Reservation::take);
        let slot = Arc::new(Mutex::new(place.map(start)));
        held.streams.retain(|slot| slot.strong_count() > 0);
        held.streams.push(Arc::downgrade(&slot));
        drop(held);
        let outputs = stream::poll_fn(move |context| match &mut *slot.lock() {
            Some(stream) => stream.poll_next_unpin(context),
            None => Poll::Ready(None),
        });
        outputs.boxed()
    }
}
