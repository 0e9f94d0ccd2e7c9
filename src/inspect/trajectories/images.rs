//! The files of captured images.

use axum::{
    extract::{FromRequestParts, Path, rejection::PathRejection},
    http::{
        header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
        request::Parts,
    },
    response::{IntoResponse, Response},
};

use super::{OwnTrajectories, not_found, tokens::made};
use crate::{
    trajectory::{Owner, Trajectories},
    wire::{
        error::{ApiError, ErrorBody},
        trajectories::pictures::media_type,
    },
};

/// What is in the path: a turn, and the identity of an image that its sequence has.
pub(super) struct ImagePath {
    trajectory: String,
    turn: String,
    identity: String,
}

impl<S: Send + Sync> FromRequestParts<S> for ImagePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let malformed = |error: PathRejection| ApiError::malformed(Some("path".into()), error.body_text());
        let Path((trajectory, turn, identity)) = Path::from_request_parts(parts, state).await.map_err(malformed)?;
        Ok(Self { trajectory, turn, identity })
    }
}

/// The file of an image, as the client sent it, for a turn of the caller whose prompt has it.
#[utoipa::path(
    get,
    path = "/v1/trajectories/{trajectory_id}/turns/{turn_id}/images/{identity}",
    tag = "trajectories",
    params(("trajectory_id" = String, Path), ("turn_id" = String, Path), ("identity" = String, Path)),
    responses(
        (status = 200, description = "A PNG, JPEG, WebP or GIF file", content_type = "image/png", body = Vec<u8>),
        (status = 404, description = "There is no such turn, it has no such image, or the file was not kept", body = ErrorBody),
    )
)]
pub(super) async fn get_image(own: OwnTrajectories, path: ImagePath) -> Result<Response, ApiError> {
    let (vocab_size, ImagePath { trajectory, turn, identity }) = (own.vocab_size, path);
    let wanted = identity.clone();
    let work = move |trajectories: &Trajectories, owner: &Owner| {
        let Some((_, sequence)) = made(trajectories, owner, (&trajectory, &turn), vocab_size)? else { return Ok(None) };
        match sequence.images.iter().find(|image| *image.identity == *wanted) {
            Some(image) => trajectories.image_file(image),
            None => Ok(None),
        }
    };
    let file = own.with(work).await?.ok_or_else(|| not_found("identity", "captured file of an image", &identity))?;
    // Whatever a client sent is only ever an image.
    let headers = [
        (CONTENT_TYPE, media_type(&file)),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox; frame-ancestors 'none'"),
        (CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, file.to_vec()).into_response())
}
