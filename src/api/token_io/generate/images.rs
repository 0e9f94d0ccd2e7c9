//! The images of a request in ids.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    TokenId,
    asked_for::has_items,
    images::ImageIdentity,
    state::Api,
    turn::{IdsWithImages, TurnError},
    wire::{
        error::ApiError,
        token_io::{features::Features, generate::GenerateRequest},
    },
};

const FEATURES: &str = "features";
const PARTS: &str = "content_parts";

/// The ids of a request and the images that they are computed with.
pub(super) async fn ids_with_images(
    token_ids: Arc<[TokenId]>,
    request: &GenerateRequest,
    api: &Api,
) -> Result<IdsWithImages, ApiError> {
    let asked = |value: &Option<Value>| value.clone().filter(has_items);
    let (features, parts) = (asked(&request.features), asked(&request.content_parts));
    if api.turns.media.is_none()
        && let Some(field) = features.as_ref().map(|_| FEATURES).or(parts.as_ref().map(|_| PARTS))
    {
        return Err(ApiError::invalid(field, format!("`{field}`: {}", TurnError::SeesNoImages)));
    }
    match (features, parts) {
        (None, None) => Ok(token_ids.into()),
        (Some(_), Some(_)) => Err(ApiError::invalid(PARTS, "content_parts and features are mutually exclusive")),
        (Some(features), None) => known_images(token_ids, features, api),
        (None, Some(parts)) => Ok(api.turns.with_images(&token_ids, urls(&parts)?, PARTS).await?),
    }
}

fn known_images(token_ids: Arc<[TokenId]>, features: Value, api: &Api) -> Result<IdsWithImages, ApiError> {
    let features: Features = serde_json::from_value(features)
        .map_err(|error| ApiError::invalid(FEATURES, format!("`features`: {error}")))?;
    if features.has_tensors() {
        let message = "tensors of images are not read here; send the images in `content_parts`";
        return Err(ApiError::invalid(FEATURES, message));
    }
    let (hashes, places) = (&features.mm_hashes.image, &features.mm_placeholders.image);
    if hashes.len() != places.len() {
        return Err(ApiError::invalid(FEATURES, "image mm_hashes and mm_placeholders must have the same length"));
    }
    let known = hashes.iter().zip(places).map(|(hash, place)| Some((ImageIdentity::from_hex(hash)?, place.range())));
    let known: Option<Vec<_>> = known.collect();
    let unknown = || ApiError::invalid(FEATURES, "`mm_hashes` must be those that a render of this server gave");
    Ok(api.turns.with_known_images(token_ids, &known.ok_or_else(unknown)?)?)
}

/// The URLs of parts, each of which is an image.
fn urls(parts: &Value) -> Result<Vec<String>, ApiError> {
    let wrong = || {
        let message = "`content_parts` must be a list of images, each as {\"type\": \"image_url\", \"url\": …}";
        ApiError::invalid(PARTS, message)
    };
    let url = |part: &Value| {
        let is_image = part.get("type").and_then(Value::as_str) == Some("image_url");
        part.get("url").and_then(Value::as_str).filter(|_| is_image).map(str::to_owned).ok_or_else(wrong)
    };
    parts.as_array().ok_or_else(wrong)?.iter().map(url).collect()
}
