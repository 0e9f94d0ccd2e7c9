//! Marks where the model's turns end in a stored conversation, whose items have lost their ids.
//!
//! Ids end a message. A later turn has no use for them, but the message must end where it did, or the same conversation
//! would be another one a turn later. Therefore a digest of the ids is kept.

use serde_json::value::RawValue;

use crate::{
    TokenId,
    chat::{TokenBundle, TokenIds},
    json::Value,
};

/// The fields of ids on an item.
pub(crate) const ID_FIELDS: [&str; 4] =
    ["prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts"];
/// The field of an item in a stored conversation that holds the digests of its ids: of both lists as they were sent, of what the
/// model had seen, and of that with what it sampled then, separated by points. What has no ids that can be read has the first
/// alone.
pub(crate) const DIGEST_FIELD: &str = "token_ids_digest";

/// As much of a turn's ids as tells the turn from another one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TurnIds {
    Sent(TokenBundle),
    Stored(String),
}

impl TurnIds {
    /// Whether the other turn goes on behind the last id of this one, so that both have sampled one message.
    pub(crate) fn is_continued_by(&self, next: &Self) -> bool {
        let ([_, end], [begin, _]) = (self.places(), next.places());
        end.is_some() && end == begin
    }

    /// The digests of what the model had seen, and of that with what it sampled.
    fn places(&self) -> [Option<String>; 2] {
        match self {
            Self::Sent(tokens) => match tokens.ids() {
                Some(ids) => places(&ids).map(Some),
                None => [None, None],
            },
            Self::Stored(digests) => {
                let mut places = digests.split('.').skip(1).map(str::to_owned);
                [places.next(), places.next()]
            }
        }
    }
}

fn places([prompt, generation]: &[Vec<TokenId>; 2]) -> [String; 2] {
    let mut hasher = blake3::Hasher::new();
    [prompt, generation].map(|ids| {
        for id in ids {
            hasher.update(&id.to_le_bytes());
        }
        hasher.finalize().to_hex().to_string()
    })
}

/// Replaces the ids of an item by their digests. An item that is no JSON object has no ids, and stays as it is.
pub(crate) fn without_ids(item: Box<RawValue>) -> Box<RawValue> {
    if !ID_FIELDS.iter().any(|field| item.get().contains(field)) {
        return item;
    }
    let Ok(Value::Object(mut fields)) = Value::parse(item.get()) else { return item };
    let mut hasher = blake3::Hasher::new();
    let [prompt, generation] = [ID_FIELDS[0], ID_FIELDS[1]].map(|field| fields.get(field).filter(|ids| !ids.is_null()));
    for ids in [prompt, generation].into_iter().flatten() {
        let text = ids.to_json_string();
        hasher.update(&text.len().to_le_bytes()).update(text.as_bytes());
    }
    let of_lists = [prompt, generation].map(|ids| ids.map(TokenIds::from_value));
    fields.retain(|key, _| !ID_FIELDS.contains(&key.as_str()));
    if of_lists.iter().any(Option::is_some) {
        let [prompt_token_ids, generation_token_ids] = of_lists;
        let ids = TokenBundle { prompt_token_ids, generation_token_ids }.ids();
        let digests = [hasher.finalize().to_hex().to_string()].into_iter().chain(ids.iter().flat_map(places));
        fields.insert(DIGEST_FIELD.to_owned(), Value::String(digests.collect::<Vec<_>>().join(".")));
    }
    serde_json::value::to_raw_value(&Value::Object(fields)).unwrap_or(item)
}
