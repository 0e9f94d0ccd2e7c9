//! JSON files of a model directory, with errors that name file and key.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::ModelError;
use crate::{files, json};

/// No such file of a model is longer; the longest list some hundred thousand added tokens.
const MOST_BYTES: u64 = 64 << 20;

/// Reads a file, `None` if it does not exist.
pub(super) fn read_text(path: &Path) -> Result<Option<String>, ModelError> {
    match files::read_text(path, MOST_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ModelError::Read { path: path.to_owned(), source }),
    }
}

/// Reads a file that holds one JSON object, `None` if it does not exist.
pub(super) fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, ModelError> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    let object = json::read_python(&text);
    object.map(Some).map_err(|error| ModelError::Invalid { path: path.to_owned(), reason: error.to_string() })
}

/// Converts the value of a key.
pub(super) fn value<T: DeserializeOwned>(value: &Value, key: &str, path: &Path) -> Result<T, ModelError> {
    T::deserialize(value)
        .map_err(|error| ModelError::Invalid { path: path.to_owned(), reason: format!("{key}: {error}") })
}
