//! Where the model's turns end in a stored conversation, whose items have lost their ids.
//!
//! Ids end a message. A later turn has no use for them, but the message must end where it did, or the same conversation
//! would be another one a turn later. So a digest stays.

use serde_json::value::RawValue;

use crate::{chat::TokenBundle, json::Value};

/// The fields of ids on an item.
pub(super) const ID_FIELDS: [&str; 3] = ["prompt_token_ids", "generation_token_ids", "generation_log_probs"];
/// What is left of them in a stored conversation.
pub(super) const DIGEST_FIELD: &str = "token_ids_digest";

/// The ids of a turn, so far as to tell it from another one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TurnIds {
    Sent(TokenBundle),
    Stored(String),
}

/// An item without its ids, but for a digest. What is no JSON object has none.
pub(super) fn without_ids(item: Box<RawValue>) -> Box<RawValue> {
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
