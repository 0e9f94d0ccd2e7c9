//! Which ids are known for a conversation, and which message they end with.
//!
//! Owns the carriers of ids, their precedence and their validation: the top-level `required_prefix_token_ids` wins
//! over the ids on messages. Refuses rendering: how known ids become a prompt is `prompt`'s, and so is the search for
//! the message that they end with where no message carries them.
//!
//! Deliberate deviations from NeMo-RL, whose servers define the two fields: the anchor is the latest assistant
//! message that has both lists, as NVIDIA Dynamo's wrapper has it (NeMo-RL cuts at the last assistant message and
//! loses the turns in between); ids on other roles are not ids of a generation and are ignored; one list without the
//! other is an error.

use crate::{
    TokenId,
    chat::{InvalidTokenIds, Message, TokenIds},
    prompt::KnownPrefix,
};

/// Why the ids of a request cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ContinuityError {
    /// The field at fault.
    pub param: String,
    /// What is wrong with it.
    pub message: String,
}

impl ContinuityError {
    fn new(param: String, reason: impl std::fmt::Display) -> Self {
        Self { message: format!("`{param}` {reason}"), param }
    }

    fn ids(param: String, error: &InvalidTokenIds) -> Self {
        match error {
            InvalidTokenIds::NotTokenIds => Self::new(param, error),
            InvalidTokenIds::OutOfVocabulary { .. } => Self::new(param, format_args!("is invalid: {error}")),
        }
    }
}

/// Finds the ids that the prompt must start with, if any are known.
///
/// An empty `required` means that none are, whatever the messages say.
pub fn known_prefix(
    messages: &[Message],
    required: Option<&TokenIds>,
    vocab_size: usize,
) -> Result<Option<KnownPrefix>, ContinuityError> {
    let Some(required) = required else {
        return from_messages(messages, vocab_size);
    };
    let param = "required_prefix_token_ids".to_owned();
    let token_ids = required.parse(vocab_size).map_err(|error| ContinuityError::ids(param.clone(), &error))?;
    if token_ids.is_empty() {
        return Ok(None);
    }
    if messages.is_empty() {
        return Err(ContinuityError::new(param, "needs a message that it ends with"));
    }
    let (anchor, sampled) = anchor_of(&token_ids, messages).unzip();
    Ok(Some(KnownPrefix { sampled: sampled.unwrap_or(token_ids.len()), token_ids, anchor }))
}

/// The ids of the latest assistant message that carries both lists.
fn from_messages(messages: &[Message], vocab_size: usize) -> Result<Option<KnownPrefix>, ContinuityError> {
    let assistants = messages.iter().enumerate().rev().filter(|(_, message)| message.role.is_assistant());
    for (anchor, message) in assistants {
        if let Some((token_ids, sampled)) = bundle(anchor, message, vocab_size)? {
            return Ok(Some(KnownPrefix { token_ids, anchor: Some(anchor), sampled }));
        }
    }
    Ok(None)
}

/// Prompt and generation of one message, and the length of the latter; `None` where it carries none, or two empty lists: harnesses put those on
/// turns that no model wrote.
fn bundle(
    index: usize,
    message: &Message,
    vocab_size: usize,
) -> Result<Option<(Vec<TokenId>, usize)>, ContinuityError> {
    let place = |field: &str| format!("messages[{index}].{field}");
    let parse =
        |ids: &TokenIds, field| ids.parse(vocab_size).map_err(|error| ContinuityError::ids(place(field), &error));
    let tokens = &message.tokens;
    let (prompt, generation) = match (&tokens.prompt_token_ids, &tokens.generation_token_ids) {
        (None, None) => return Ok(None),
        (Some(prompt), Some(generation)) => (prompt, generation),
        (Some(_), None) => {
            return Err(ContinuityError::new(place("generation_token_ids"), "is missing beside prompt_token_ids"));
        }
        (None, Some(_)) => {
            return Err(ContinuityError::new(place("prompt_token_ids"), "is missing beside generation_token_ids"));
        }
    };
    let mut token_ids = parse(prompt, "prompt_token_ids")?;
    let generation = parse(generation, "generation_token_ids")?;
    if token_ids.is_empty() {
        if generation.is_empty() {
            return Ok(None);
        }
        return Err(ContinuityError::new(place("prompt_token_ids"), "is empty, but a generation followed it"));
    }
    token_ids.extend(&generation);
    Ok(Some((token_ids, generation.len())))
}

/// The message that explicitly given ids are known to end with, because it carries the same, and how many of them were
/// sampled for it.
fn anchor_of(ids: &[TokenId], messages: &[Message]) -> Option<(usize, usize)> {
    let assistants = messages.iter().enumerate().rev().filter(|(_, message)| message.role.is_assistant());
    // A malformed bundle is not this request's source of ids, so its faults do not matter here.
    let bundles = assistants.map(|(index, message)| (index, bundle(index, message, usize::MAX).ok().flatten()));
    bundles
        .filter_map(|(index, bundle)| Some((index, bundle?)))
        .find(|(_, bundle)| bundle.0 == ids)
        .map(|(index, (_, sampled))| (index, sampled))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const VOCAB_SIZE: usize = 100;

    fn known(messages: &Value, required: &Value) -> Result<Option<KnownPrefix>, ContinuityError> {
        let messages: Vec<Message> = serde_json::from_str(&messages.to_string()).unwrap();
        let required: Option<TokenIds> = serde_json::from_str(&required.to_string()).unwrap();
        known_prefix(&messages, required.as_ref(), VOCAB_SIZE)
    }

    fn message(role: &str, prompt: &Value, generation: &Value) -> Value {
        json!({"role": role, "content": "x", "prompt_token_ids": prompt, "generation_token_ids": generation})
    }

    fn prefix(token_ids: &[TokenId], anchor: Option<usize>, sampled: usize) -> KnownPrefix {
        KnownPrefix { token_ids: token_ids.to_vec(), anchor, sampled }
    }

    #[test]
    fn the_latest_assistant_with_ids_is_the_anchor() {
        let messages = json!([
            message("assistant", &json!([1]), &json!([2])),
            message("assistant", &json!([1, 2]), &json!([3, 4])),
            message("user", &json!([9]), &json!([9])),
            message("assistant", &json!([]), &json!([])),
            message("assistant", &Value::Null, &Value::Null),
        ]);
        assert_eq!(known(&messages, &Value::Null), Ok(Some(prefix(&[1, 2, 3, 4], Some(1), 2))));
    }

    #[test]
    fn half_a_bundle_names_the_missing_field() {
        let (ids, none) = (json!([1]), Value::Null);
        for (prompt, generation, param) in [
            (&ids, &none, "messages[0].generation_token_ids"),
            (&none, &ids, "messages[0].prompt_token_ids"),
            (&json!([]), &ids, "messages[0].prompt_token_ids"),
            (&json!([100]), &ids, "messages[0].prompt_token_ids"),
            (&ids, &json!(["1"]), "messages[0].generation_token_ids"),
        ] {
            let error = known(&json!([message("assistant", prompt, generation)]), &Value::Null).unwrap_err();
            assert_eq!(error.param, param, "{error}");
        }
    }

    #[test]
    fn required_ids_are_those_of_the_message_that_carries_them() {
        let messages = json!([
            message("assistant", &json!([1]), &json!([2])),
            message("assistant", &json!([1, 2, 3]), &json!([4])),
            message("assistant", &json!("broken"), &json!([4])),
        ]);
        assert_eq!(known(&messages, &json!([1, 2])), Ok(Some(prefix(&[1, 2], Some(0), 1))));
        assert_eq!(known(&messages, &json!([1, 2, 3, 4])), Ok(Some(prefix(&[1, 2, 3, 4], Some(1), 1))));
        assert_eq!(known(&messages, &json!([7, 8])), Ok(Some(prefix(&[7, 8], None, 2))));
        assert_eq!(known(&messages, &json!([])), Ok(None));
        assert_eq!(known(&messages, &json!([-1])).unwrap_err().param, "required_prefix_token_ids");
        assert_eq!(known(&json!([]), &json!([1])).unwrap_err().param, "required_prefix_token_ids");
    }
}
