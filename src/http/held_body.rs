//! Bodies of answers that hold something until they are sent or dropped.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};

/// The same body, which holds `held` until it is sent or dropped. Its length is told on: layers around it measure it, and
/// hand long answers over in pieces.
pub(crate) fn holding<T: Send + Unpin + 'static>(body: Body, held: T) -> Body {
    Body::new(Held { body, _held: held })
}

struct Held<T> {
    body: Body,
    _held: T,
}

impl<T: Unpin> HttpBody for Held<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
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
