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

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{error::ApiError, sampling::SamplingFields};
use crate::{
    TokenId,
    json::{Document, Kind, Node, Reader, Rewrites},
    sampling::SamplingParams,
};
use issue::{Complaint, Context};
pub(super) use issue::{broken_rule, empty_list, missing, missing_of, not_a_list, value_error};
use schema::Schema;
use walk::{NotFinite, Walk};

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

/// Reads a body that keeps the rules of its type.
pub(super) fn read<T: Body>(text: &str) -> Result<T, ApiError> {
    // Python's decoder takes a byte order mark for one.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.is_empty() {
        return Err(missing(&[]));
    }
    let mut document = parse(text)?;
    if document.repeats_keys() {
        let text = document.root.without_repeats();
        let mut document = parse(&text)?;
        let rewrites = settled(&mut document, &text, T::RULES)?;
        return deserialized(&document.root, &rewrites);
    }
    let rewrites = settled(&mut document, text, T::RULES)?;
    deserialized(&document.root, &rewrites)
}

/// The type that a body which keeps its rules is read into; what the rules let pass and the type does not is refused.
fn deserialized<T: Body>(root: &Node<'_>, rewrites: &Rewrites<'_>) -> Result<T, ApiError> {
    let error = match serde_path_to_error::deserialize(Reader::new(root, rewrites)) {
        Ok(body) => return Ok(body),
        Err(error) => with_place(error, root, rewrites),
    };
    let known = |segment: &&serde_path_to_error::Segment| !matches!(segment, serde_path_to_error::Segment::Unknown);
    let segments = error.path().iter().filter(known);
    let mut place: Vec<String> = segments.map(|segment| segment.to_string().replace(['[', ']'], "")).collect();
    let reason = error.inner().to_string();
    // "missing field `x`" is reported at its parent; pydantic names the field itself.
    if let Some(field) = reason.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        place.push(field.to_owned());
    }
    Err(value_error(&place, &reason))
}

type Unfit = serde_path_to_error::Error<serde_json::Error>;

/// serde's `flatten` forgets which field it complains about; the fields that are flattened know when read alone.
fn with_place(error: Unfit, root: &Node<'_>, rewrites: &Rewrites<'_>) -> Unfit {
    if error.path().iter().next().is_some() {
        return error;
    }
    match serde_path_to_error::deserialize::<_, SamplingFields>(Reader::new(root, rewrites)) {
        Err(placed) if placed.path().iter().next().is_some() => placed,
        _ => error,
    }
}

fn parse(text: &str) -> Result<Document<'_>, ApiError> {
    Document::parse(text).map_err(|error| {
        let complaint = Complaint::new("json_invalid", "JSON decode error")
            .with("error", Context::Text(error.message().to_owned()));
        issue::invalid_json(error.position(), &complaint)
    })
}

/// Checks a body; what is to be read otherwise than it was written.
fn settled<'a>(document: &mut Document<'a>, text: &'a str, rules: &Rules) -> Result<Rewrites<'a>, ApiError> {
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
    let rewrites = Rewrites::new(text, walk.rewrites);
    if let Some(&at) = document.not_finite().iter().find(|&&at| !rewrites.covers(at)) {
        let complaint = Complaint::new("json_invalid", "JSON decode error")
            .with("error", Context::Text("NaN and Infinity are served in number fields only".to_owned()));
        return Err(issue::invalid_json(text[..at].chars().count(), &complaint));
    }
    Ok(rewrites)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader sees of a body that keeps the rules.
    fn read_with(text: &str, rules: &Rules) -> Result<String, ApiError> {
        let mut document = parse(text)?;
        if document.repeats_keys() {
            return read_with(&document.root.without_repeats(), rules);
        }
        let rewrites = settled(&mut document, text, rules)?;
        Ok(rewrites.spliced(&document.root).into_owned())
    }

    fn chat(text: &str) -> Result<String, String> {
        read_with(text, &CHAT).map_err(|error| error.body().error.message)
    }

    #[test]
    fn a_strict_body_is_read_as_it_is() {
        let text = r#"{"messages":[{"role":"user","content":"x"}],"temperature":0.5,"seed":null,"x":[1,2]}"#;
        let mut document = parse(text).unwrap();
        assert!(settled(&mut document, text, &CHAT).unwrap().is_empty());
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
        let prompt = |text: &str| read_with(text, &COMPLETION).ok();
        for text in [r#"{"prompt":["1"]}"#, r#"{"prompt":[]}"#, r#"{"prompt":[[1],[2]]}"#] {
            assert_eq!(prompt(text).as_deref(), Some(text));
        }
        assert_eq!(prompt(r#"{"prompt":[1.0,true]}"#).as_deref(), Some(r#"{"prompt":[1,1]}"#));
    }

    #[test]
    fn the_half_of_tokenize_that_fits_is_taken_and_the_other_blanked() {
        let text = |text: &str| read_with(text, &TOKENIZE).ok();
        let message = r#"[{"role":"user"}]"#;
        assert_eq!(
            text(&format!(r#"{{"prompt":5,"messages":{message}}}"#)),
            Some(format!(r#"{{"prompt":null,"messages":{message}}}"#))
        );
        assert_eq!(text(r#"{"prompt":"x","messages":["y"]}"#).as_deref(), Some(r#"{"prompt":"x","messages":null}"#));
    }
}
