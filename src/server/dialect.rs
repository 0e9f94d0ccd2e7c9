//! Errors of layers that know no dialect, in the one of the path that was asked.

use axum::extract::Request;
use futures::{FutureExt, future::Either};

use super::next::{Answering, Next};
use crate::api::{in_dialect, is_messages_path};

/// Puts every error on the paths of Anthropic's dialect into its shape: also those of the guard of keys, of the limits of
/// bodies and of routing.
pub(super) fn apply(request: Request, next: impl Next) -> impl Answering {
    let is_messages = is_messages_path(request.uri().path());
    next(request).then(move |response| {
        if is_messages {
            Either::Left(Box::pin(in_dialect(response)))
        } else {
            Either::Right(std::future::ready(response))
        }
    })
}
