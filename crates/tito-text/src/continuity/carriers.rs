//! Ids that a request brings: on its messages, or beside them.

use std::sync::Arc;

use super::{ContinuityError, Reason, Source, Warning};
use crate::{
    TokenId,
    chat::{InvalidTokenIds, Message, TokenIds},
    json::Path,
    prompt::KnownPrefix,
};

/// What a request brings besides its messages.
#[derive(Debug, Clone, Default)]
pub struct Carriers {
    /// The whole prompt, by the fields that it stands in; messages are not rendered then.
    pub whole_prompts: Vec<(&'static str, TokenIds)>,
    /// Ids that the prompt must start with.
    pub required_prefix_token_ids: Option<TokenIds>,
    /// The client's name for the conversation, or for a group of conversations.
    pub session: Option<String>,
    /// Who else may be given what the conversation was answered, and whose answers it may be given: those of the same salt.
    pub salt: Option<Arc<str>>,
    /// The name of the adapter that is asked; what one adapter answered is given to no conversation with another.
    pub adapter: Option<Arc<str>>,
    /// Whether ids of the conversation are known that were sampled in another context, and that the request therefore does
    /// not bring.
    pub context_changed: bool,
}

/// What the explicit carriers of a request say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Explicit {
    /// No carrier says anything.
    Silent,
    /// A carrier says that no ids are known.
    Nothing,
    /// A carrier brings these ids.
    Prefix(Source, KnownPrefix),
}

impl Carriers {
    /// Whether any ids are among them.
    pub fn have_ids(&self) -> bool {
        self.required_prefix_token_ids.is_some() || !self.whole_prompts.is_empty()
    }

    /// The ids of the whole prompt, if there are any. Complaints are those of vLLM.
    pub(super) fn whole_prompt(&self, vocab_size: usize) -> Result<Option<Vec<TokenId>>, ContinuityError> {
        let mut whole: Option<Vec<TokenId>> = None;
        for (param, ids) in &self.whole_prompts {
            let error = |message| ContinuityError { field: (*param).into(), reason: Reason::Whole(message) };
            let token_ids = ids.parse(vocab_size).map_err(|invalid| match invalid {
                InvalidTokenIds::NotTokenIds => error(not_a_prompt(param)),
                InvalidTokenIds::OutOfVocabulary { id, .. } => error(format!("Token id {id} is out of vocabulary")),
            })?;
            if token_ids.is_empty() {
                return Err(error(not_a_prompt(param)));
            }
            if whole.as_ref().is_some_and(|whole| *whole != token_ids) {
                return Err(error(format!("`{param}` is not the prompt that another field gives")));
            }
            whole = Some(token_ids);
        }
        Ok(whole)
    }
}

/// vLLM's complaint, which spells an inner field as Python does.
fn not_a_prompt(param: &str) -> String {
    let shown = param.split_once('.').map_or(param.to_owned(), |(outer, inner)| format!("{outer}['{inner}']"));
    format!("`{shown}` must be a non-empty list of non-negative integers.")
}

/// Finds the ids that the prompt must start with, if a carrier brings any.
///
/// An empty `required` means that none are known, whatever the messages say.
pub fn known_prefix(
    messages: &[Message],
    required: Option<&TokenIds>,
    vocab_size: usize,
) -> Result<Option<KnownPrefix>, ContinuityError> {
    match explicit(messages, required, vocab_size)? {
        Explicit::Prefix(_, prefix) => Ok(Some(prefix)),
        Explicit::Silent | Explicit::Nothing => Ok(None),
    }
}

/// What the carriers say, by their precedence.
pub(super) fn explicit(
    messages: &[Message],
    required: Option<&TokenIds>,
    vocab_size: usize,
) -> Result<Explicit, ContinuityError> {
    let Some(required) = required else {
        let prefix = from_messages(messages, vocab_size)?;
        return Ok(prefix.map_or(Explicit::Silent, |prefix| Explicit::Prefix(Source::Message, prefix)));
    };
    let param = "required_prefix_token_ids";
    let token_ids = required.parse(vocab_size).map_err(|error| invalid(param, &error))?;
    if token_ids.is_empty() {
        return Ok(Explicit::Nothing);
    }
    if messages.is_empty() {
        return Err(ContinuityError::new(param, "needs a message that it ends with"));
    }
    let (anchor, sampled) = anchor_of(&token_ids, messages).unzip();
    let sampled = sampled.unwrap_or(token_ids.len());
    let prefix = KnownPrefix { token_ids, anchor, sampled, on_unprovable: None };
    Ok(Explicit::Prefix(Source::RequiredPrefix, prefix))
}

/// What the bundles of other messages than the one that the ids come from say against them. Of those, the latest before
/// it is looked at, or with `all` every one; they are compared as text where they are spelt alike.
pub(super) fn disagreement(messages: &[Message], source: Source, prefix: &KnownPrefix, all: bool) -> Option<Warning> {
    let bundles = || {
        let assistants = messages.iter().enumerate().rev().filter(|(_, message)| message.role.is_assistant());
        assistants.filter_map(|(index, message)| Some((index, message.tokens.both()?)))
    };
    if source == Source::RequiredPrefix {
        let (index, _) = bundles().next()?;
        let (latest, _) = bundle(index, &messages[index], usize::MAX).ok().flatten()?;
        let agree = latest.starts_with(&prefix.token_ids) || prefix.token_ids.starts_with(&latest);
        return (!agree).then_some(Warning::CarriersDisagree);
    }
    let anchor = prefix.anchor?;
    let (own, _) = messages[anchor].tokens.both()?;
    let earlier = bundles().filter(|(index, _)| *index < anchor).map(|(_, bundle)| bundle);
    let mut compared = earlier.take(if all { usize::MAX } else { 1 });
    let ids = &prefix.token_ids[..prefix.token_ids.len() - prefix.sampled];
    let broken = compared.any(|(prompt, generation)| !own.starts_with(ids, &[prompt, generation]));
    broken.then_some(Warning::ChainBroken)
}

/// The ids of the latest assistant message that carries both lists.
fn from_messages(messages: &[Message], vocab_size: usize) -> Result<Option<KnownPrefix>, ContinuityError> {
    let assistants = messages.iter().enumerate().rev().filter(|(_, message)| message.role.is_assistant());
    for (anchor, message) in assistants {
        if let Some((token_ids, sampled)) = bundle(anchor, message, vocab_size)? {
            return Ok(Some(KnownPrefix { token_ids, anchor: Some(anchor), sampled, on_unprovable: None }));
        }
    }
    Ok(None)
}

/// Prompt and generation of one message, and the length of the latter; `None` where it carries none, or two empty
/// lists: harnesses put those on turns that no model wrote.
fn bundle(
    index: usize,
    message: &Message,
    vocab_size: usize,
) -> Result<Option<(Vec<TokenId>, usize)>, ContinuityError> {
    let place = |field: &'static str| Path::from("messages").then(index).then(field);
    let parse = |ids: &TokenIds, field| ids.parse(vocab_size).map_err(|error| invalid(place(field), &error));
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

fn invalid(field: impl Into<Path>, error: &InvalidTokenIds) -> ContinuityError {
    match error {
        InvalidTokenIds::NotTokenIds => ContinuityError::new(field, error),
        InvalidTokenIds::OutOfVocabulary { .. } => ContinuityError::new(field, format_args!("is invalid: {error}")),
    }
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
        KnownPrefix { token_ids: token_ids.to_vec(), anchor, sampled, on_unprovable: None }
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
            assert_eq!(error.field.to_string(), param, "{error}");
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
        assert_eq!(known(&messages, &json!([-1])).unwrap_err().field.to_string(), "required_prefix_token_ids");
        assert_eq!(known(&json!([]), &json!([1])).unwrap_err().field.to_string(), "required_prefix_token_ids");
    }
}
