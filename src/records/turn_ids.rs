//! Marks where the model's turns end in a stored conversation, whose items have lost their ids.
//!
//! Ids end a message. A later turn has no use for them, but the message must end where it did, or the same conversation
//! would be another one a turn later. Therefore a digest of the ids is kept.

use serde_json::value::RawValue;

use crate::{chat::TokenBundle, json::Value};

/// The fields of ids on an item.
pub(crate) const ID_FIELDS: [&str; 4] =
    ["prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts"];
/// The field of an item in a stored conversation that holds the digest of its ids.
pub(crate) const DIGEST_FIELD: &str = "token_ids_digest";

/// As much of a turn's ids as tells the turn from another one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TurnIds {
    Sent(TokenBundle),
    Stored(String),
}

/// Replaces the ids of an item by their digest. An item that is no JSON object has no ids, and stays as it is.
pub(crate) fn without_ids(item: Box<RawValue>) -> Box<RawValue> {
    if !ID_FIELDS.iter().any(|field| item.get().contains(field)) {
        return item;
    }
    let Ok(Value::Object(mut fields)) = Value::parse(item.get()) else { return item };
    let mut hasher = blake3::Hasher::new();
    let ids = ID_FIELDS[..2].iter().filter_map(|field| fields.get(*field)).filter(|ids| !ids.is_null());
    let mut count = 0;
    for ids in ids {
        let text = ids.to_json_string();
        hasher.update(&text.len().to_le_bytes()).update(text.as_bytes());
        count += 1;
    }
    fields.retain(|key, _| !ID_FIELDS.contains(&key.as_str()));
    if count > 0 {
        fields.insert(DIGEST_FIELD.to_owned(), Value::String(hasher.finalize().to_hex().to_string()));
    }
    serde_json::value::to_raw_value(&Value::Object(fields)).unwrap_or(item)
}
