//! `cache_salt`: who may share cached prefixes with whom.
//!
//! Limits and sentences are vLLM 0.32's (`entrypoints/generate/base/protocol.py`, `validate_cache_salt`).

use std::sync::Arc;

use serde_json::Value;

use super::error::ApiError;

/// Longest salt, in characters.
const MAX_CHARS: usize = 128;
/// What the keys of external caches are made with.
const FORBIDDEN: [char; 4] = ['@', '/', '\\', '\0'];

/// Checks the field; what is no string is refused with the words for an empty one, as in vLLM.
pub(super) fn cache_salt(field: Option<&Value>) -> Result<Option<Arc<str>>, ApiError> {
    let invalid = |rule: &str| {
        let message = format!("Parameter 'cache_salt' must be {rule} (parameter=cache_salt)");
        Err(ApiError::invalid("cache_salt", message))
    };
    match field {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(salt)) if !salt.is_empty() => {
            if salt.chars().count() > MAX_CHARS || salt.contains(FORBIDDEN) {
                return invalid(r"at most 128 characters and must not contain '@', '/', '\\', or NUL.");
            }
            Ok(Some(salt.as_str().into()))
        }
        Some(_) => invalid("a non-empty string if provided."),
    }
}
