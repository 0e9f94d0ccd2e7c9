//! Long answers in one piece that nobody reads, on HTTP/2.
//!
//! On HTTP/1, a socket that takes nothing tells that its client does not read. On HTTP/2, a client may read the connection
//! and leave a single answer unread. So a long one is handed over in pieces, and what is left of it is dropped when
//! nobody took the next one for too long.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::Request,
    http::Version,
};
use futures::FutureExt;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use super::next::{Answering, Next};

/// Bytes that are handed over at a time; shorter answers are handed over as they are.
const PIECE: usize = 64 << 10;

/// Hands long answers over in pieces, each of which may wait for as long as `patience`, if that has an end.
pub(super) fn apply(patience: Option<Duration>, request: Request, next: impl Next) -> impl Answering {
    let is_http2 = request.version() == Version::HTTP_2;
    next(request).map(move |response| match (patience, response.body().size_hint().exact()) {
        (Some(patience), Some(length)) if is_http2 && length > PIECE as u64 => {
            response.map(|body| Body::new(Pieces::new(body, length, patience)))
        }
        _ => response,
    })
}

/// An answer in pieces.
struct Pieces {
    rest: Arc<Mutex<Rest>>,
    left: u64,
    watch: JoinHandle<()>,
}

/// What was not taken yet.
struct Rest {
    /// `None` once it was dropped.
    body: Option<Body>,
    bytes: Bytes,
    taken: Instant,
}

impl Pieces {
    fn new(body: Body, left: u64, patience: Duration) -> Self {
        let rest = Rest { body: Some(body), bytes: Bytes::new(), taken: Instant::now() };
        let rest = Arc::new(Mutex::new(rest));
        let watch = tokio::spawn(watch(Arc::downgrade(&rest), patience));
        Self { rest, left, watch }
    }
}

impl Rest {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.taken = Instant::now();
        if self.bytes.is_empty() {
            let Some(body) = &mut self.body else {
                let unread = std::io::Error::from(std::io::ErrorKind::TimedOut);
                return Poll::Ready(Some(Err(axum::Error::new(unread))));
            };
            match ready!(Pin::new(body).poll_frame(context)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(bytes))) => self.bytes = bytes,
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let length = self.bytes.len().min(PIECE);
        // The piece is copied, since a part of the whole would keep all of it in memory.
        let piece = Bytes::copy_from_slice(&self.bytes.split_to(length));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// Drops what is left if nobody took the next piece for as long as `patience`, and says whether it did.
    fn give_up(&mut self, patience: Duration) -> bool {
        let gives_up = self.taken.elapsed() >= patience;
        if gives_up {
            self.body = None;
            self.bytes = Bytes::new();
        }
        gives_up
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = self.rest.lock().poll_piece(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let taken = frame.data_ref().map_or(0, Bytes::len);
            self.left = self.left.saturating_sub(taken as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

async fn watch(rest: Weak<Mutex<Rest>>, patience: Duration) {
    loop {
        let Some(taken) = rest.upgrade().map(|rest| rest.lock().taken) else { return };
        sleep_until(taken + patience).await;
        let Some(rest) = rest.upgrade() else { return };
        if rest.lock().give_up(patience) {
            metrics::counter!("tito:stalled_total", "what" => "answer").increment(1);
            tracing::warn!(seconds = patience.as_secs(), "nobody reads an answer: what is left of it is dropped");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn pieces(patience: Duration) -> (Vec<u8>, Pieces) {
        let bytes: Vec<u8> = (0..=250).cycle().take(PIECE * 5 / 2).collect();
        let length = bytes.len() as u64;
        (bytes.clone(), Pieces::new(Body::from(bytes), length, patience))
    }

    #[tokio::test]
    async fn the_pieces_of_an_answer_are_the_answer() {
        let (bytes, mut pieces) = pieces(Duration::from_hours(1));
        let mut read = Vec::new();
        while let Some(frame) = pieces.frame().await {
            read.extend_from_slice(frame.unwrap().data_ref().unwrap());
            assert_eq!(pieces.size_hint().exact(), Some((bytes.len() - read.len()) as u64));
        }
        assert!(read == bytes && pieces.is_end_stream());
    }

    #[tokio::test]
    async fn what_nobody_reads_of_an_answer_is_dropped_and_its_rest_is_an_error() {
        let (_, mut pieces) = pieces(Duration::from_millis(1));
        assert_eq!(pieces.frame().await.unwrap().unwrap().data_ref().unwrap().len(), PIECE);
        (&mut pieces.watch).await.unwrap();
        assert!(pieces.rest.lock().bytes.is_empty());
        assert!(pieces.frame().await.unwrap().is_err());
    }
}
