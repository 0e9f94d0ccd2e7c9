//! The files of captured images.

use axum::{
    http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    response::{IntoResponse, Response},
};

use super::{OwnTrajectories, not_found, tokens::made};
use crate::{
    http::path::PathParameters,
    trajectory::{Owner, Trajectories},
    wire::{
        error::{ApiError, ErrorBody},
        trajectories::pictures::media_type,
    },
};

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
pub(super) async fn get_image(
    own: OwnTrajectories,
    PathParameters((trajectory, turn, identity)): PathParameters<(String, String, String)>,
) -> Result<Response, ApiError> {
    let vocab_size = own.vocab_size;
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
