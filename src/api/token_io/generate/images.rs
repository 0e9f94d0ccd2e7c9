//! The images of a request in ids.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    TokenId,
    asked_for::has_items,
    images::ImageIdentity,
    state::Api,
    turn::{IdsWithImages, SentImage, TurnError},
    wire::{
        error::ApiError,
        token_io::{
            features::{Features, MmHashes, MmItems},
            generate::GenerateRequest,
        },
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
    let (features, parts) = (request.features.as_ref(), request.content_parts.as_ref());
    let (features, parts) = (features.filter(|value| has_items(value)), parts.filter(|value| has_items(value)));
    if api.turns.media.is_none()
        && let Some(field) = features.map(|_| FEATURES).or(parts.map(|_| PARTS))
    {
        let error = api.turns.check_refused(field).err().unwrap_or(TurnError::SeesNoImages);
        return Err(ApiError::invalid(field, format!("`{field}`: {error}")));
    }
    match (features, parts) {
        (None, None) => Ok(token_ids.into()),
        (Some(_), Some(_)) => Err(ApiError::invalid(PARTS, "content_parts and features are mutually exclusive")),
        (Some(features), None) => sent_images(&token_ids, features, api).await,
        (None, Some(parts)) => Ok(api.turns.with_images(&token_ids, urls(parts)?, PARTS).await?),
    }
}

async fn sent_images(token_ids: &[TokenId], features: &Value, api: &Api) -> Result<IdsWithImages, ApiError> {
    let features =
        Features::deserialize(features).map_err(|error| ApiError::invalid(FEATURES, format!("`features`: {error}")))?;
    let Features { mm_hashes: MmHashes { image: hashes }, mm_placeholders, kwargs_data, mm_metadata } = features;
    let places = mm_placeholders.image;
    let count = hashes.len();
    if places.len() != count {
        return Err(ApiError::invalid(FEATURES, "image mm_hashes and mm_placeholders must have the same length"));
    }
    let texts = |field: &str, items: Option<MmItems>| match items {
        None => Ok(vec![None; count]),
        Some(MmItems { image }) if image.len() == count => Ok(image),
        Some(_) => Err(ApiError::invalid(FEATURES, format!("image mm_hashes and {field} must have the same length"))),
    };
    let tensors = texts("kwargs_data", kwargs_data)?.into_iter();
    let metadata = texts("mm_metadata", mm_metadata)?;
    let sent = hashes.iter().zip(places).zip(tensors.zip(metadata)).map(|((hash, place), (tensors, metadata))| {
        SentImage { named: ImageIdentity::from_hex(hash), placeholders: place.range(), tensors, metadata }
    });
    Ok(api.turns.with_sent_images(token_ids, sent.collect(), FEATURES).await?)
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
