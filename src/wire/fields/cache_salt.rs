//! `cache_salt`: who may share cached prefixes with whom.
//!
//! Limits and sentences are vLLM 0.32's (`entrypoints/generate/base/protocol.py`, `validate_cache_salt`).

use std::sync::Arc;

use serde_json::Value;

use crate::{json::Node, wire::error::ApiError};

const FIELD: &str = "cache_salt";
/// The length of the longest salt, in characters.
const MAX_CHARS: usize = 128;
/// Characters that the keys of external caches are put together with.
const FORBIDDEN: [char; 4] = ['@', '/', '\\', '\0'];

/// Checks the field as it was sent; a value that is no string is refused in the words for an empty one, as in vLLM.
pub(crate) fn check(field: Option<&Node<'_>>) -> Result<(), ApiError> {
    match field.filter(|value| !value.is_null()) {
        None => Ok(()),
        Some(value) => check_text(FIELD, value.as_str().unwrap_or_default()),
    }
}

fn check_text(field: &'static str, salt: &str) -> Result<(), ApiError> {
    let rule = if salt.is_empty() {
        "a non-empty string if provided."
    } else if salt.chars().count() > MAX_CHARS || salt.contains(FORBIDDEN) {
        r"at most 128 characters and must not contain '@', '/', '\\', or NUL."
    } else {
        return Ok(());
    };
    Err(ApiError::refused(field, format!("Parameter '{field}' must be {rule}"), None))
}

/// Reads the field and SGLang's `extra_key` beside it. Where both are there, each of them keeps requests apart, as in SGLang: the
/// salt is then made of both, as one that the field takes too.
pub(crate) fn joined_salt(field: Option<&Value>, extra_key: Option<&Value>) -> Result<Option<Arc<str>>, ApiError> {
    let (salt, key) = (cache_salt(field)?, key_of("extra_key", extra_key)?);
    let (Some(salt), Some(key)) = (&salt, &key) else { return Ok(salt.or(key)) };
    // Neither of them has the character between them.
    let both = blake3::hash(format!("{salt}\0{key}").as_bytes());
    Ok(Some(both.to_hex().as_str().into()))
}

/// Reads the field and checks it.
pub(crate) fn cache_salt(field: Option<&Value>) -> Result<Option<Arc<str>>, ApiError> {
    key_of(FIELD, field)
}

fn key_of(field: &'static str, value: Option<&Value>) -> Result<Option<Arc<str>>, ApiError> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let key = value.as_str().unwrap_or_default();
    check_text(field, key)?;
    Ok(Some(key.into()))
}
