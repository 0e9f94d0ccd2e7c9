//! Whether a body is a request, by vLLM's rules and in its words (FastAPI and pydantic's lax mode).
//!
//! Owns which values pass for which fields, and turns those that pass only laxly into what serde takes. Refuses to know
//! what a request means: limits of single fields are their readers' business.

mod anthropic;
mod checks;
mod issue;
mod messages;
mod requests;
mod responses;
mod scalar;
mod schema;
mod walk;

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::error::ApiError;
use crate::{
    TokenId,
    json::{Document, Kind, Node},
    sampling::SamplingParams,
};
use issue::{Complaint, Context};
pub(super) use issue::{broken_rule, empty_list, missing, missing_of, not_a_list, value_error};
use schema::Schema;
use walk::{NotFinite, Rewrite, Walk};

/// A request that vLLM declares.
pub(super) trait Body: DeserializeOwned + Send + 'static {
    /// Its rules.
    const RULES: &'static Rules;
}

/// JSON text of any kind, for readers that look at parts of it.
impl Body for Box<RawValue> {
    const RULES: &'static Rules = &ANY;
}

type Before = fn(&mut Node<'_>) -> Result<(), ApiError>;

/// What a body must be.
#[derive(Debug)]
pub(super) struct Rules {
    schema: &'static Schema,
    /// Runs first, and may put the body into the form that the schema is for.
    before: Option<Before>,
    /// Whether an assistant's calls are looked at after everything else.
    checks_calls: bool,
    /// What the schema is a union of; the first that fits is taken.
    alternatives: &'static [Alternative],
}

/// One of several requests that share a path.
#[derive(Debug)]
struct Alternative {
    /// The field that makes the difference.
    key: &'static str,
    schema: &'static Schema,
    /// Fields of the others, of any type here.
    foreign: &'static [&'static str],
}

/// `POST /v1/chat/completions`.
pub(super) static CHAT: Rules =
    Rules { schema: &requests::CHAT, before: Some(checks::chat), checks_calls: true, alternatives: &[] };

/// `POST /v1/completions`.
pub(super) static COMPLETION: Rules =
    Rules { schema: &requests::COMPLETION, before: Some(checks::completion), checks_calls: false, alternatives: &[] };

/// `POST /tokenize`.
pub(super) static TOKENIZE: Rules = Rules {
    schema: &requests::TOKENIZE,
    before: Some(checks::tokenize),
    checks_calls: true,
    alternatives: &[
        Alternative { key: "messages", schema: &requests::TOKENIZE_CHAT_ONLY, foreign: &["prompt"] },
        Alternative {
            key: "prompt",
            schema: &requests::TOKENIZE_TEXT_ONLY,
            foreign: &[
                "messages",
                "add_generation_prompt",
                "continue_final_message",
                "chat_template",
                "chat_template_kwargs",
                "tools",
            ],
        },
    ],
};

/// `POST /v1/responses`.
pub(super) static RESPONSES: Rules =
    Rules { schema: &responses::RESPONSES, before: Some(checks::responses), checks_calls: false, alternatives: &[] };

/// `POST /detokenize`.
pub(super) static DETOKENIZE: Rules =
    Rules { schema: &requests::DETOKENIZE, before: None, checks_calls: false, alternatives: &[] };

/// `POST /v1/messages`.
pub(super) static MESSAGES: Rules =
    Rules { schema: &anthropic::MESSAGES, before: Some(anthropic::named), checks_calls: false, alternatives: &[] };

/// `POST /v1/messages/count_tokens`.
pub(super) static COUNT_TOKENS: Rules =
    Rules { schema: &anthropic::COUNT_TOKENS, before: Some(anthropic::named), checks_calls: false, alternatives: &[] };

/// A body that its reader checks: only its JSON is checked before.
pub(super) static ANY: Rules = Rules { schema: &Schema::Any, before: None, checks_calls: false, alternatives: &[] };

/// Checks a body and returns it with every value as serde takes it.
pub(super) fn checked<'a>(text: &'a str, rules: &Rules) -> Result<Cow<'a, str>, ApiError> {
    // Python's decoder takes a byte order mark for one.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.is_empty() {
        return Err(missing(&[]));
    }
    let document = parse(text)?;
    if document.repeats_keys() {
        let text = document.root.without_repeats();
        let rewritten = settled(parse(&text)?, &text, rules)?;
        return Ok(Cow::Owned(rewritten.unwrap_or(text)));
    }
    Ok(settled(document, text, rules)?.map_or(Cow::Borrowed(text), Cow::Owned))
}

fn parse(text: &str) -> Result<Document<'_>, ApiError> {
    Document::parse(text).map_err(|error| {
        let complaint = Complaint::new("json_invalid", "JSON decode error")
            .with("error", Context::Text(error.message().to_owned()));
        issue::invalid_json(error.position(), &complaint)
    })
}

/// The text with its rewrites, if there are any.
fn settled(mut document: Document<'_>, text: &str, rules: &Rules) -> Result<Option<String>, ApiError> {
    if document.root.is_null() {
        return Err(missing(&[]));
    }
    if let (Kind::Object(_), Some(before)) = (&document.root.kind, rules.before) {
        before(&mut document.root)?;
    }
    let root = &document.root;
    let mut walk = Walk::new(text);
    match rules.alternatives.iter().find(|choice| root.get(choice.key).is_some() && walk.fits(choice.schema, root)) {
        Some(choice) => {
            walk.check(choice.schema, root);
            choice.foreign.iter().filter_map(|key| root.get(key)).for_each(|value| walk.blank(value));
        }
        None => walk.check(rules.schema, root),
    }
    if rules.checks_calls && walk.issues.is_empty() {
        check_calls(&mut walk, root);
    }
    if !walk.issues.is_empty() {
        return Err(walk.issues.into_error());
    }
    if let Some(error) = walk.not_finite.iter().find_map(not_finite) {
        return Err(error);
    }
    walk.rewrites.sort_by_key(|rewrite| rewrite.place.start);
    let rewritten = |at: usize| {
        let behind = walk.rewrites.partition_point(|rewrite| rewrite.place.start <= at);
        behind.checked_sub(1).is_some_and(|index| walk.rewrites[index].place.end > at)
    };
    if let Some(&at) = document.not_finite().iter().find(|&&at| !rewritten(at)) {
        let complaint = Complaint::new("json_invalid", "JSON decode error")
            .with("error", Context::Text("NaN and Infinity are served in number fields only".to_owned()));
        return Err(issue::invalid_json(text[..at].chars().count(), &complaint));
    }
    Ok(spliced(text, &walk.rewrites))
}

/// vLLM checks calls when it unpacks them, message by message, and forgets where the message stood.
fn check_calls(walk: &mut Walk<'_>, root: &Node<'_>) {
    let Some(Kind::List(messages)) = root.get("messages").map(|messages| &messages.kind) else { return };
    for message in messages.nodes() {
        let calls = message.get("tool_calls").filter(|calls| !calls.is_null());
        if let (Some("assistant"), Some(calls)) = (message.get("role").and_then(Node::as_str), calls) {
            walk.iterate(&messages::TOOL_CALL, calls);
            if !walk.issues.is_empty() {
                return;
            }
        }
    }
}

/// Every such number is out of its field's range; the sampler's own checks say it in vLLM's words.
fn not_finite(number: &NotFinite) -> Option<ApiError> {
    let value = number.value;
    let mut params = SamplingParams::default();
    match number.path.first()?.as_str() {
        "temperature" => params.temperature = value,
        "top_p" => params.top_p = value,
        "min_p" => params.min_p = value,
        "presence_penalty" => params.presence_penalty = value,
        "frequency_penalty" => params.frequency_penalty = value,
        "repetition_penalty" => params.repetition_penalty = value,
        // Without beam search it means nothing; biases are clamped.
        "length_penalty" => return None,
        "logit_bias" if !value.is_nan() => return None,
        "logit_bias" => {
            let id: TokenId = number.path.last()?.parse().unwrap_or_default();
            params.logit_bias = vec![(id, f32::NAN)];
        }
        field => return Some(ApiError::invalid(field, format!("`{field}` must hold finite numbers"))),
    }
    params.validated(usize::MAX).err().map(ApiError::from)
}

/// `rewrites` in the order of their places.
fn spliced(text: &str, rewrites: &[Rewrite]) -> Option<String> {
    if rewrites.is_empty() {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for rewrite in rewrites {
        out.push_str(&text[at..rewrite.place.start]);
        out.push_str(&rewrite.text);
        at = rewrite.place.end;
    }
    out.push_str(&text[at..]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(text: &str) -> Result<String, String> {
        checked(text, &CHAT).map(Cow::into_owned).map_err(|error| error.body().error.message)
    }

    #[test]
    fn a_strict_body_is_not_copied() {
        let text = r#"{"messages":[{"role":"user","content":"x"}],"temperature":0.5,"seed":null,"x":[1,2]}"#;
        assert!(matches!(checked(text, &CHAT), Ok(Cow::Borrowed(kept)) if kept == text));
    }

    #[test]
    fn lax_values_are_written_as_serde_takes_them() {
        let text = r#"{"messages":[], "temperature": "0.5", "n": 1.0, "logprobs":"yes", "stop_token_ids":["7",8]}"#;
        let strict = r#"{"messages":[], "temperature": 0.5, "n": 1, "logprobs":true, "stop_token_ids":[7,8]}"#;
        assert_eq!(chat(text).as_deref(), Ok(strict));
    }

    #[test]
    fn the_last_of_repeated_keys_counts() {
        assert_eq!(chat(r#"{"n":"x","messages":[],"n":"2"}"#).as_deref(), Ok(r#"{"n":2,"messages":[]}"#));
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused_in_the_samplers_words() {
        let error = |field: &str| chat(&format!(r#"{{"messages":[],{field}}}"#)).unwrap_err();
        assert!(error(r#""temperature":NaN"#).starts_with("temperature must be a finite number, got nan."));
        assert!(error(r#""top_p":"inf""#).starts_with("top_p must be in (0, 1], got inf."));
        assert!(error(r#""presence_penalty":-Infinity"#).starts_with("presence_penalty must be in [-2, 2], got -inf."));
        assert!(error(r#""logit_bias":{"5":NaN}"#).contains("got nan for token_id 5"));
        assert!(error(r#""chat_template_kwargs":{"a":NaN}"#).contains("number fields only"));
        assert_eq!(
            chat(r#"{"messages":[],"logit_bias":{"5":-Infinity}}"#).as_deref(),
            Ok(r#"{"messages":[],"logit_bias":{"5":-1e300}}"#)
        );
    }

    #[test]
    fn a_union_takes_what_needs_no_rewriting_first() {
        let prompt = |text: &str| checked(text, &COMPLETION).map(Cow::into_owned).ok();
        for text in [r#"{"prompt":["1"]}"#, r#"{"prompt":[]}"#, r#"{"prompt":[[1],[2]]}"#] {
            assert_eq!(prompt(text).as_deref(), Some(text));
        }
        assert_eq!(prompt(r#"{"prompt":[1.0,true]}"#).as_deref(), Some(r#"{"prompt":[1,1]}"#));
    }

    #[test]
    fn the_half_of_tokenize_that_fits_is_taken_and_the_other_blanked() {
        let text = |text: &str| checked(text, &TOKENIZE).map(Cow::into_owned).ok();
        let message = r#"[{"role":"user"}]"#;
        assert_eq!(
            text(&format!(r#"{{"prompt":5,"messages":{message}}}"#)),
            Some(format!(r#"{{"prompt":null,"messages":{message}}}"#))
        );
        assert_eq!(text(r#"{"prompt":"x","messages":["y"]}"#).as_deref(), Some(r#"{"prompt":"x","messages":null}"#));
    }
}
