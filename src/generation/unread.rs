//! Streams that nobody reads any more: they end.
//!
//! Owns the clock of a stream's reader. While the reader waits for the model, the clock stands still: it runs from an
//! event that was taken to the next time that one is asked for. It starts anew whenever the reader's connection took bytes,
//! where that tells: much is on its way to a slow reader before the next event is asked for.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, StreamExt, stream::BoxStream};
use parking_lot::Mutex;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use crate::{
    engine::EngineError,
    reader::{self, Reader},
};

/// The same events. If nobody asks for the next one for as long as `patience`, the generations that they come from are
/// aborted, and whoever asks after that learns why.
pub(super) fn ended_unless_read<T: Send + 'static>(
    events: BoxStream<'static, Result<T, EngineError>>,
    patience: Option<Duration>,
) -> BoxStream<'static, Result<T, EngineError>> {
    match patience {
        Some(patience) => Watched { reading: Reading::new(events), patience, watch: None }.boxed(),
        None => events,
    }
}

struct Watched<T> {
    reading: Arc<Mutex<Reading<T>>>,
    patience: Duration,
    /// Started with the first event, since the reader waits before that.
    watch: Option<JoinHandle<()>>,
}

struct Reading<T> {
    /// `None` once they were ended.
    events: Option<BoxStream<'static, Result<T, EngineError>>>,
    /// Since when an event is to be asked for; `None` while the reader waits for one.
    idle_since: Option<Instant>,
    told: bool,
    /// Who reads, if that is known.
    reader: Option<Arc<dyn Reader>>,
}

impl<T> Reading<T> {
    fn new(events: BoxStream<'static, Result<T, EngineError>>) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { events: Some(events), idle_since: None, told: false, reader: reader::current() }))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, EngineError>>> {
        let Some(events) = &mut self.events else {
            let error = (!std::mem::replace(&mut self.told, true)).then_some(Err(EngineError::Unread));
            return Poll::Ready(error);
        };
        self.idle_since = None;
        let polled = events.poll_next_unpin(context);
        if let Poll::Ready(Some(_)) = polled {
            self.idle_since = Some(Instant::now());
        }
        polled
    }

    /// Since when the reader takes nothing; `None` while it waits for an event.
    fn unread_since(&self) -> Option<Instant> {
        let idle_since = self.idle_since?;
        Some(self.reader.as_ref().map_or(idle_since, |reader| idle_since.max(reader.took())))
    }

    /// Gives up the events if nobody has asked for them in as long as `patience`.
    fn give_up(&mut self, patience: Duration) -> Option<BoxStream<'static, Result<T, EngineError>>> {
        let idle = self.unread_since().is_some_and(|since| since.elapsed() >= patience);
        if idle { self.events.take() } else { None }
    }
}

impl<T: Send + 'static> Stream for Watched<T> {
    type Item = Result<T, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.reading.lock().poll(context);
        if self.watch.is_none() && matches!(polled, Poll::Ready(Some(_))) {
            self.watch = Some(tokio::spawn(watch(Arc::downgrade(&self.reading), self.patience)));
        }
        polled
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

/// Ends the events when nobody asked for them for as long as `patience`.
async fn watch<T>(reading: Weak<Mutex<Reading<T>>>, patience: Duration) {
    loop {
        let Some(since) = reading.upgrade().map(|reading| reading.lock().unread_since()) else { return };
        sleep_until(since.unwrap_or_else(Instant::now) + patience).await;
        let Some(given_up) = reading.upgrade().map(|reading| reading.lock().give_up(patience)) else { return };
        if given_up.is_some() {
            metrics::counter!("tito:stalled_total", "what" => "stream").increment(1);
            tracing::warn!(seconds = patience.as_secs(), "nobody reads a stream: its generations are ended");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::UnboundedReceiverStream;

    use super::*;

    type Events = BoxStream<'static, Result<u32, EngineError>>;

    /// Some events, and what knows whether they were ended.
    #[expect(clippy::disallowed_methods, reason = "as many as the test sends")]
    fn events(count: u32) -> (mpsc::UnboundedSender<Result<u32, EngineError>>, Events) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (0..count).for_each(|number| sender.send(Ok(number)).unwrap());
        (sender, UnboundedReceiverStream::new(receiver).boxed())
    }

    #[tokio::test]
    async fn a_stream_that_is_not_read_ends_and_says_why_to_who_comes_back() {
        let (sender, events) = events(3);
        let mut events = ended_unless_read(events, Some(Duration::from_millis(1)));
        assert_eq!(events.next().await, Some(Ok(0)));
        sender.closed().await;
        assert_eq!(events.next().await, Some(Err(EngineError::Unread)));
        assert_eq!(events.next().await, None);
    }

    #[tokio::test]
    async fn a_reader_that_is_in_time_misses_nothing() {
        for patience in [None, Some(Duration::from_hours(1))] {
            let (sender, events) = events(9);
            drop(sender);
            let events = ended_unless_read(events, patience);
            assert_eq!(events.collect::<Vec<_>>().await, (0..9).map(Ok).collect::<Vec<_>>());
        }
    }

    struct Slow(Mutex<Instant>);

    impl Reader for Slow {
        fn took(&self) -> Instant {
            *self.0.lock()
        }
    }

    #[tokio::test]
    async fn a_reader_whose_connection_takes_bytes_reads_though_it_asks_for_no_event() {
        let reader = Arc::new(Slow(Mutex::new(Instant::now() + Duration::from_hours(1))));
        let (_sender, events) = events(1);
        let known = Arc::<Slow>::clone(&reader);
        let reading = reader::within(known, async { Reading::new(events) }).await;
        let context = &mut Context::from_waker(std::task::Waker::noop());
        let mut reading = reading.lock();
        assert_eq!(reading.poll(context), Poll::Ready(Some(Ok(0))));
        assert!(reading.give_up(Duration::from_nanos(1)).is_none(), "it took bytes after the event");
        *reader.0.lock() = Instant::now();
        assert!(reading.give_up(Duration::ZERO).is_some());
    }

    #[test]
    fn the_clock_runs_from_an_event_to_the_next_question_and_not_while_the_reader_waits() {
        let (sender, events) = events(1);
        let reading = Reading::new(events);
        let context = &mut Context::from_waker(std::task::Waker::noop());
        let mut reading = reading.lock();
        assert!(reading.give_up(Duration::ZERO).is_none(), "nobody has asked yet");
        assert_eq!(reading.poll(context), Poll::Ready(Some(Ok(0))));
        assert!(reading.give_up(Duration::from_hours(1)).is_none());
        assert_eq!(reading.poll(context), Poll::Pending);
        assert!(reading.give_up(Duration::ZERO).is_none(), "the reader waits");
        sender.send(Ok(1)).unwrap();
        assert_eq!(reading.poll(context), Poll::Ready(Some(Ok(1))));
        assert!(reading.give_up(Duration::ZERO).is_some());
        assert_eq!(reading.poll(context), Poll::Ready(Some(Err(EngineError::Unread))));
    }
}
