//! Which ids are known for a conversation, and which message they end with.
//!
//! Owns the carriers of ids, their precedence and their validation: the top-level `required_prefix_token_ids` wins
//! over the ids on messages. Refuses rendering: how known ids become a prompt is `prompt`'s.
//!
//! Deliberate deviations from NeMo-RL, whose servers define the two fields: the anchor is the latest assistant
//! message that has both lists, as NVIDIA Dynamo's wrapper has it (NeMo-RL cuts at the last assistant message and
//! loses the turns in between); ids on other roles are not ids of a generation and are ignored; one list without the
//! other is an error.

use crate::{
    TokenId,
    chat::{Content, ContentPart, InvalidTokenIds, Message, TokenIds},
    prompt::KnownPrefix,
    tokenizer::Tokenizer,
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
/// An empty `required` means that none are, whatever the messages say. The model may know more ids (`vocab_size`)
/// than the tokenizer.
pub fn known_prefix(
    messages: &[Message],
    required: Option<&TokenIds>,
    tokenizer: &Tokenizer,
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
    let anchor = anchor_of(&token_ids, messages, tokenizer)?;
    Ok(Some(KnownPrefix { token_ids, anchor }))
}

/// The ids of the latest assistant message that carries both lists.
fn from_messages(messages: &[Message], vocab_size: usize) -> Result<Option<KnownPrefix>, ContinuityError> {
    let assistants = messages.iter().enumerate().rev().filter(|(_, message)| message.role.is_assistant());
    for (anchor, message) in assistants {
        if let Some(token_ids) = bundle(anchor, message, vocab_size)? {
            return Ok(Some(KnownPrefix { token_ids, anchor }));
        }
    }
    Ok(None)
}

/// Prompt and generation of one message; `None` where it carries none, or two empty lists: harnesses put those on
/// turns that no model wrote.
fn bundle(index: usize, message: &Message, vocab_size: usize) -> Result<Option<Vec<TokenId>>, ContinuityError> {
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
    token_ids.extend(generation);
    Ok(Some(token_ids))
}

/// The message that explicitly given ids end with.
///
/// Ids that a message carries too are that message's. Otherwise it is the latest assistant message whose
/// conversation the ids can hold: the texts of the user, system and tool messages before it stand in the decoded ids in
/// order. Without that check a later assistant turn that no ids cover would swallow the turns in between. Where no
/// assistant message fits, the client's word stands as NeMo-RL takes it: the last assistant message, or without any
/// the last message.
fn anchor_of(ids: &[TokenId], messages: &[Message], tokenizer: &Tokenizer) -> Result<usize, ContinuityError> {
    let assistants = || (0..messages.len()).rev().filter(|&index| messages[index].role.is_assistant());
    let Some(last) = assistants().next() else {
        return Ok(messages.len() - 1);
    };
    for index in assistants() {
        // A malformed bundle is not this request's source of ids, so its faults do not matter here.
        if bundle(index, &messages[index], usize::MAX).ok().flatten().as_deref() == Some(ids) {
            return Ok(index);
        }
    }
    let known: Vec<_> = ids.iter().copied().filter(|&id| tokenizer.contains(id)).collect();
    let text = tokenizer.decode(&known, false).map_err(|error| {
        ContinuityError::new("required_prefix_token_ids".to_owned(), format_args!("cannot be decoded: {error}"))
    })?;
    Ok(assistants().find(|&index| holds(&text, &messages[..index])).unwrap_or(last))
}

/// Whether the texts of all messages that no model wrote stand in `text`, one after the other.
fn holds(text: &str, messages: &[Message]) -> bool {
    let mut rest = text;
    for message in messages.iter().filter(|message| !message.role.is_assistant()) {
        for piece in texts(&message.content) {
            let piece = piece.trim();
            match rest.find(piece) {
                Some(place) => rest = &rest[place + piece.len()..],
                None => return false,
            }
        }
    }
    true
}

fn texts(content: &Content) -> Vec<&str> {
    match content {
        Content::Empty => Vec::new(),
        Content::Text(text) => vec![text],
        Content::Parts(parts) => parts
            .iter()
            .filter_map(|part| match part {
                ContentPart::Text(text) => Some(text.as_str()),
                ContentPart::Object { fields, .. } => fields.get("text")?.as_str(),
            })
            .collect(),
    }
}
