//! Bodies of answers that hold something until they are sent or dropped, or are made amid something.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};

/// What a body gives when it is asked for its next frame.
pub(crate) type Polled = Poll<Option<Result<Frame<Bytes>, axum::Error>>>;

/// The same body, which holds `held` until it is sent or dropped.
pub(crate) fn holding<T: Send + Unpin + 'static>(body: Body, held: T) -> Body {
    polled_by(body, move |body, context| {
        let _held = &held;
        body.poll_frame(context)
    })
}

/// The same body, of which `poll` asks for each frame. Its length is told on: layers around it measure it, and hand long
/// answers over in pieces.
pub(crate) fn polled_by<P>(body: Body, poll: P) -> Body
where
    P: FnMut(Pin<&mut Body>, &mut Context<'_>) -> Polled + Send + Unpin + 'static,
{
    Body::new(PolledBy { body, poll })
}

struct PolledBy<P> {
    body: Body,
    poll: P,
}

impl<P: FnMut(Pin<&mut Body>, &mut Context<'_>) -> Polled + Unpin> HttpBody for PolledBy<P> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let Self { body, poll } = &mut *self;
        poll(Pin::new(body), context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_body_that_holds_something_has_its_length_and_lets_go_in_the_end() {
        let held = Arc::new(());
        let body = holding(Body::from("hello"), Arc::clone(&held));
        assert_eq!((body.size_hint().exact(), Arc::strong_count(&held)), (Some(5), 2));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
