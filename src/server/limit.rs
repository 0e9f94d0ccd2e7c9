//! The longest body: a longer one is refused with 413, whether or not it says its length.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    body::{Body, HttpBody},
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::StreamExt;

use crate::api::ApiError;

/// Refuses longer bodies.
pub(super) async fn apply(State(most): State<usize>, request: Request, next: Next) -> Response {
    let hint = request.body().size_hint();
    if hint.lower() > most as u64 {
        return ApiError::body_too_large(most).into_response();
    }
    if hint.upper().is_some() {
        return next.run(request).await;
    }
    let exceeded = Arc::new(AtomicBool::new(false));
    let noticed = Arc::clone(&exceeded);
    let request = request.map(|body| {
        let mut seen = 0;
        Body::from_stream(body.into_data_stream().map(move |frame| {
            let frame = frame.map_err(std::io::Error::other)?;
            seen += frame.len();
            if seen > most {
                noticed.store(true, Ordering::Relaxed);
                return Err(std::io::Error::other("the body is too long"));
            }
            Ok(frame)
        }))
    });
    let response = next.run(request).await;
    if exceeded.load(Ordering::Relaxed) { ApiError::body_too_large(most).into_response() } else { response }
}
