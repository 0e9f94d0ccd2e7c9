//! Open connections, and the time limits for slow clients.
//!
//! A connection is closed after a time if its client does not read, or begins a request and does not go on. A
//! connection without a request stays open. vLLM closes such connections, sometimes just as the client asks again. Only
//! if there is no room for new clients, the connections that were silent for longest are closed. One whose client may have
//! sent a request that nobody has read yet is not silent: new clients wait instead.

use std::{
    collections::HashMap,
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{Instant, Sleep, sleep, sleep_until, timeout},
};

use crate::reader::Reader;

/// Connections that make room at a time, and which part of all, if that is less.
const CLOSED_AT_ONCE: usize = 64;
const PART_CLOSED_AT_ONCE: usize = 8;
/// How often the log says at most that there is no room.
const BETWEEN_WARNINGS: Duration = Duration::from_mins(1);
/// How long to wait where no connection can make room.
const NO_ROOM: Duration = Duration::from_millis(100);
/// What every HTTP/2 connection begins with.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// All open connections.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    open: Arc<Mutex<Open>>,
    /// Told of each that ended.
    ended: Arc<Notify>,
    /// With as many, silent ones make room before there is another.
    most: usize,
    patience: Patience,
}

/// How long a client may let the server wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// How long a client may take from the first byte of a request to the end of its head.
    pub(super) head: Duration,
    /// How long a client may take to read what is written to it; without a bound, it may take for ever.
    pub(super) stall: Option<Duration>,
    /// How long nothing may come of a connection without a request before it may make room: what a client sent at once
    /// takes its time on the way.
    pub(super) silence: Duration,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// When the log said last that there is no room.
    warned: Option<Instant>,
    by_number: HashMap<u64, Arc<Connection>>,
}

/// One connection, as far as others may know it.
#[derive(Debug)]
pub(super) struct Connection {
    number: u64,
    peer: String,
    state: Mutex<ConnectionState>,
}

#[derive(Debug)]
struct ConnectionState {
    /// Requests whose answers are not handed over yet.
    requests: usize,
    /// Bytes wait until the client reads.
    writing: bool,
    /// When something was read or written last.
    used: Instant,
    /// When the system took bytes for the client last.
    took: Instant,
    /// When a request began of which nothing is known yet.
    head_since: Option<Instant>,
    /// How many of its first bytes are those that HTTP/2 begins with; `None` once one was not.
    http2_bytes: Option<usize>,
    /// It was silent and is to end, unless something comes before it does.
    closed: bool,
    /// Set once its task has read the socket and found nothing, until something comes.
    reader: Option<Waker>,
}

impl Connections {
    /// No connections yet, and room for `most`.
    pub(super) fn new(most: usize, patience: Patience) -> Self {
        Self { open: Arc::default(), ended: Arc::default(), most, patience }
    }

    /// Waits until there is room for one more connection: silent ones make it, and else the first that ends.
    pub(super) async fn room(&self) {
        let mut waited = false;
        while self.len() >= self.most {
            // Those that were closed let go of their descriptors once their tasks run.
            if waited || !self.is_closing() {
                let closed = self.close_longest_silent();
                if self.may_warn() {
                    tracing::warn!(
                        most = self.most,
                        closed,
                        "there are as many connections as the limit of open files allows: those that were silent for \
                         longest are closed, and new ones wait"
                    );
                }
            }
            waited = timeout(NO_ROOM, self.ended.notified()).await.is_err();
        }
    }

    /// How long a client that said nothing keeps its place where others need it.
    pub(super) fn silence(&self) -> Duration {
        self.patience.silence
    }

    /// Takes a connection in.
    pub(super) fn opened<Io>(&self, io: Io, peer: String) -> Patient<Io> {
        let mut open = self.open.lock();
        let number = open.next;
        open.next += 1;
        let now = Instant::now();
        let state = ConnectionState {
            requests: 0,
            writing: false,
            used: now,
            took: now,
            head_since: None,
            http2_bytes: Some(0),
            closed: false,
            reader: None,
        };
        let connection = Arc::new(Connection { number, peer, state: Mutex::new(state) });
        open.by_number.insert(number, Arc::clone(&connection));
        drop(open);
        Patient { io, connection, connections: self.clone(), head: None, stall: None, flushing: false }
    }

    /// Makes room where the system has none for one more connection.
    pub(super) async fn make_room(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
            return;
        }
        let closed = self.close_longest_silent();
        if self.may_warn() {
            tracing::warn!(%error, closed, "there is no room for one more connection: silent ones are closed");
        }
        // Connections that were closed let go of their descriptors once their tasks run.
        sleep(if closed == 0 { NO_ROOM } else { Duration::from_millis(1) }).await;
    }

    /// Closes connections without a request, those first that were silent for longest, and returns how many it closed.
    fn close_longest_silent(&self) -> usize {
        let open: Vec<Arc<Connection>> = self.open.lock().by_number.values().cloned().collect();
        let silence = self.patience.silence;
        let since = |one: &Arc<Connection>| one.state.lock().silent_since(silence);
        let mut silent: Vec<_> = open.iter().filter_map(|one| Some((since(one)?, one))).collect();
        silent.sort_by_key(|(since, _)| *since);
        let most = self.most.div_ceil(PART_CLOSED_AT_ONCE).min(CLOSED_AT_ONCE);
        silent.iter().take(most).filter(|(_, connection)| connection.close(silence)).count()
    }

    /// Whether the log has not said for a while that there is no room; it is taken to say so now.
    fn may_warn(&self) -> bool {
        let (mut open, now) = (self.open.lock(), Instant::now());
        let may = open.warned.is_none_or(|warned| now - warned >= BETWEEN_WARNINGS);
        if may {
            open.warned = Some(now);
        }
        may
    }

    /// Whether one was closed and has not ended yet.
    fn is_closing(&self) -> bool {
        self.open.lock().by_number.values().any(|connection| connection.state.lock().closed)
    }

    fn len(&self) -> usize {
        self.open.lock().by_number.len()
    }
}

impl Connection {
    /// Takes note of a request, which is over when the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        let mut state = self.state.lock();
        state.requests += 1;
        state.head_since = None;
        state.closed = false;
        drop(state);
        InFlight(Arc::clone(self))
    }

    /// Lets the connection end as if its client had ended it, if it is still silent; says whether it is.
    fn close(&self, silence: Duration) -> bool {
        let mut state = self.state.lock();
        if state.silent_since(silence).is_none() {
            return false;
        }
        state.closed = true;
        if let Some(reader) = state.reader.take() {
            drop(state);
            reader.wake();
        }
        true
    }
}

impl ConnectionState {
    /// Since when there is nothing to do for its client, if that is as long as `silence` and its task has looked: it said nothing,
    /// or began a request and did not come to the end of its head, however much of it comes.
    fn silent_since(&self, silence: Duration) -> Option<Instant> {
        let since = self.head_since.unwrap_or(self.used);
        let rests = self.requests == 0 && !self.writing && !self.closed;
        (rests && self.reader.is_some() && since.elapsed() >= silence).then_some(since)
    }
}

impl Reader for Connection {
    fn took(&self) -> Instant {
        self.state.lock().took
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.peer)
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Connection>);

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests -= 1;
        state.used = Instant::now();
    }
}

/// A connection whose client has to do its part.
pub(super) struct Patient<Io> {
    io: Io,
    connection: Arc<Connection>,
    connections: Connections,
    head: Option<Pin<Box<Sleep>>>,
    stall: Option<Pin<Box<Sleep>>>,
    /// A flush waits until the client reads.
    flushing: bool,
}

impl<Io> Patient<Io> {
    /// What others may know of it.
    pub(super) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    /// Takes note of bytes that came.
    fn came(&mut self, bytes: &[u8]) {
        let mut state = self.connection.state.lock();
        let now = Instant::now();
        state.reader = None;
        if let Some(matched) = state.http2_bytes.filter(|matched| *matched < HTTP2.len()) {
            let expected = &HTTP2[matched..];
            let known = bytes.len().min(expected.len());
            state.http2_bytes = (bytes[..known] == expected[..known]).then_some(matched + known);
        }
        // HTTP/2 sends more than requests.
        let is_http2 = state.http2_bytes == Some(HTTP2.len());
        // Empty lines before a request are none of it (RFC 9112, section 2.2).
        let is_empty = state.head_since.is_none() && bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        // Neither empty lines nor pings keep the place of a client that asks for nothing.
        if state.requests > 0 || !(is_http2 || is_empty) {
            state.used = now;
        }
        // Whoever found it silent did not know of these. One whose head took too long stays closed, or it could go on for ever.
        state.closed &= state.head_since.is_some() || is_empty;
        if is_http2 {
            state.head_since = None;
        } else if state.requests == 0 && !is_empty {
            state.head_since.get_or_insert(now);
        }
    }

    /// Whether nothing more is to be read. If there is more, the task is woken when that changes.
    fn ends(&mut self, context: &mut Context<'_>) -> bool {
        let mut state = self.connection.state.lock();
        if state.closed {
            return true;
        }
        state.reader = Some(context.waker().clone());
        let Some(since) = state.head_since else {
            self.head = None;
            return false;
        };
        drop(state);
        let end = since + self.connections.patience.head;
        let head = self.head.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if head.deadline() != end {
            head.as_mut().reset(end);
        }
        if head.as_mut().poll(context).is_pending() {
            return false;
        }
        metrics::counter!("tito:stalled_total", "what" => "head").increment(1);
        tracing::debug!(peer = %self.connection, "the head of a request did not come to its end");
        true
    }

    /// Takes note of what became of writing, and makes an error of it if the client has not read for too long.
    fn written<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let waits = written.is_pending();
        {
            let mut state = self.connection.state.lock();
            state.writing = waits;
            if !waits {
                let now = Instant::now();
                (state.used, state.took) = (now, now);
            }
        }
        if !waits {
            self.stall = None;
            return written;
        }
        let Some(timeout) = self.connections.patience.stall else { return written };
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(timeout)));
        if stall.as_mut().poll(context).is_pending() {
            return written;
        }
        metrics::counter!("tito:stalled_total", "what" => "connection").increment(1);
        tracing::warn!(peer = %self.connection, seconds = timeout.as_secs(), "a client does not read: it is hung up on");
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<Io> Drop for Patient<Io> {
    fn drop(&mut self) {
        self.connections.open.lock().by_number.remove(&self.connection.number);
        self.connections.ended.notify_one();
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Patient<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        if read.is_pending() {
            return if self.ends(context) { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        if buffer.filled().len() > before {
            self.came(&buffer.filled()[before..]);
        }
        read
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Patient<Io> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.io).poll_flush(context) {
            // Nothing was left to flush, so the client has made no progress.
            Poll::Ready(flushed) if !self.flushing => Poll::Ready(flushed),
            // TLS writes here what it took before.
            flushed => {
                self.flushing = flushed.is_pending();
                self.written(context, flushed)
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
