//! How a body is read: parsed once, checked by the rules that vLLM declares for its type, and put into that type.
//!
//! This module owns the order of these steps. The rules themselves are next to each type.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::{
    TokenId,
    foreign_fields::ForeignFields,
    json::{Document, Node, NodeKind, Path, Reader, Rewrites, Segment},
    pydantic::{NotFinite, Schema, Walk},
    sampling::SamplingParams,
    trajectory::Said,
    wire::{
        error::{
            ApiError,
            validation::{invalid_json, missing, value_error},
        },
        fields::{chat_messages, sampling::SamplingFields},
        said::SaidFields,
    },
};

/// A type of request body that vLLM declares.
pub(crate) trait Body: DeserializeOwned + Send + 'static {
    /// The rules that vLLM declares for it.
    const RULES: &'static Rules;
    /// Where a client says things in it that are captured; `None` where nothing is.
    const SAID: Option<&'static SaidFields> = None;

    /// Takes what the client says in it, where that is captured.
    fn take_said(&mut self, _said: Said) {}
}

/// JSON text of any kind, for readers that look at parts of it only.
impl Body for Box<RawValue> {
    const RULES: &'static Rules = &ANY;
}

/// For large types, so that a body is not copied each time that it is handed on.
impl<T: Body> Body for Box<T> {
    const RULES: &'static Rules = T::RULES;
    const SAID: Option<&'static SaidFields> = T::SAID;

    fn take_said(&mut self, said: Said) {
        T::take_said(self, said);
    }
}

type Before = fn(&mut Node<'_>) -> Result<(), ApiError>;

/// The rules that a body must keep.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The types that each field may have.
    pub schema: &'static Schema,
    /// A check that runs first, and may put the body into the form that the schema describes.
    pub before: Option<Before>,
    /// Fields of other endpoints that it does not take.
    pub foreign: &'static ForeignFields,
    /// Whether the tool calls of assistant messages are checked after everything else.
    pub checks_calls: bool,
    /// The types that the schema is a union of; the first that fits is taken.
    pub alternatives: &'static [Alternative],
}

/// One of several requests that share a path.
#[derive(Debug)]
pub(crate) struct Alternative {
    /// The field whose presence selects this alternative.
    pub key: &'static str,
    /// The types that its fields may have.
    pub schema: &'static Schema,
    /// Fields of the other alternatives; they may have any type here.
    pub foreign: &'static [&'static str],
}

impl Rules {
    /// Makes rules that consist of a schema only.
    pub(crate) const fn new(schema: &'static Schema) -> Self {
        Self { schema, before: None, foreign: &ForeignFields::NONE, checks_calls: false, alternatives: &[] }
    }
}

/// The rules of a body that its reader checks: here it only has to be JSON.
pub(crate) static ANY: Rules = Rules::new(&Schema::Any);

/// Reads JSON text as a body that keeps the rules of its type.
pub(crate) fn parse<T: Body>(bytes: &[u8]) -> Result<T, ApiError> {
    parse_with(bytes, false)
}

/// Does the same; the body has what the client says in it, if that is captured.
pub(crate) fn parse_with<T: Body>(bytes: &[u8], captures_texts: bool) -> Result<T, ApiError> {
    let captured = T::SAID.filter(|_| captures_texts);
    read(bytes, |document, text| typed(document, text, captured))
}

/// Reads JSON text as a body that keeps the rules of its type, and some of the same fields into another type.
pub(crate) fn parse_with_fields<T: Body, Fields: DeserializeOwned>(bytes: &[u8]) -> Result<(T, Fields), ApiError> {
    read(bytes, |document, text| {
        let rewrites = settled(document, text, T::RULES)?;
        Ok((deserialized(&document.root, &rewrites)?, deserialized(&document.root, &rewrites)?))
    })
}

/// Reads JSON text as a document that repeats no keys, and puts that into types.
fn read<T>(
    bytes: &[u8],
    put_into_types: impl for<'a> FnOnce(&mut Document<'a>, &'a str) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ApiError::unreadable())?;
    // Python's decoder accepts a byte order mark in front.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.is_empty() {
        return Err(missing(Path::default()));
    }
    let mut document = parsed(text)?;
    if document.repeats_keys() {
        let text = document.root.without_repeats();
        let mut document = parsed(&text)?;
        return put_into_types(&mut document, &text);
    }
    put_into_types(&mut document, text)
}

/// Puts a document into its type.
fn typed<'a, T: Body>(
    document: &mut Document<'a>,
    text: &'a str,
    captured: Option<&SaidFields>,
) -> Result<T, ApiError> {
    let said = captured.map(|fields| fields.read(&document.root));
    let rewrites = settled(document, text, T::RULES)?;
    let mut body: T = deserialized(&document.root, &rewrites)?;
    if let Some(said) = said {
        body.take_said(said);
    }
    Ok(body)
}

/// Reads a body that keeps its rules into its type, and refuses what the rules let pass but the type does not.
fn deserialized<T: DeserializeOwned>(root: &Node<'_>, rewrites: &Rewrites<'_>) -> Result<T, ApiError> {
    let reader = Reader::new(root, rewrites);
    // Keeping track of the path to every value takes as long as reading it, so only a second attempt does it.
    if let Ok(body) = T::deserialize(reader) {
        return Ok(body);
    }
    let error = match serde_path_to_error::deserialize(reader) {
        Ok(body) => return Ok(body),
        Err(error) => with_place(error, reader),
    };
    let mut path: Path = error.path().iter().filter_map(segment).collect();
    let reason = error.inner().to_string();
    // serde reports "missing field `x`" at the parent; pydantic names the field itself.
    if let Some(field) = reason.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        path.push(field.to_owned());
    }
    Err(value_error(&path, &reason))
}

/// Returns the step to the value that does not fit; `None` where serde has lost it.
fn segment(segment: &serde_path_to_error::Segment) -> Option<Segment> {
    match segment {
        serde_path_to_error::Segment::Seq { index } => Some(Segment::Index(*index)),
        serde_path_to_error::Segment::Map { key } if key == "max_tokens" => Some(Segment::Name("max_tokens")),
        serde_path_to_error::Segment::Map { key } => Some(Segment::Key(key.replace(['[', ']'], ""))),
        serde_path_to_error::Segment::Enum { variant } => Some(Segment::Key(variant.clone())),
        serde_path_to_error::Segment::Unknown => None,
    }
}

type Unfit = serde_path_to_error::Error<serde_json::Error>;

/// serde's `flatten` loses the name of the field that an error is about; the flattened fields know it when they are
/// read alone.
fn with_place(error: Unfit, reader: Reader<'_, '_>) -> Unfit {
    if error.path().iter().next().is_some() {
        return error;
    }
    match serde_path_to_error::deserialize::<_, SamplingFields>(reader) {
        Err(placed) if placed.path().iter().next().is_some() => placed,
        _ => error,
    }
}

fn parsed(text: &str) -> Result<Document<'_>, ApiError> {
    Document::parse(text).map_err(|error| invalid_json(error.position(), error.message()))
}

/// Checks a body, and returns the values that have to be read differently from how they were written.
fn settled<'a>(document: &mut Document<'a>, text: &'a str, rules: &Rules) -> Result<Rewrites<'a>, ApiError> {
    if document.root.is_null() {
        return Err(missing(Path::default()));
    }
    if let (NodeKind::Object(_), Some(before)) = (&document.root.kind, rules.before) {
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
        return Err(walk.issues.into());
    }
    // After the types: a body of another endpoint lacks what this one needs, and is refused for that.
    if let Some(field) = rules.foreign.first_in(root) {
        let message = format!("`{}` is not served on {}: {}", field.name, rules.foreign.of, field.instead);
        return Err(ApiError::invalid(field.name, message));
    }
    if let Some(error) = walk.not_finite.iter().find_map(not_finite) {
        return Err(error);
    }
    let rewrites = Rewrites::new(text, walk.rewrites);
    if let Some(&at) = document.not_finite().iter().find(|&&at| !rewrites.covers(at)) {
        let reason = "NaN and Infinity are served in number fields only";
        return Err(invalid_json(text[..at].chars().count(), reason));
    }
    Ok(rewrites)
}

/// Checks tool calls as vLLM does: it unpacks them message by message, and its errors do not say in which message they
/// stood.
fn check_calls(walk: &mut Walk<'_>, root: &Node<'_>) {
    let Some(NodeKind::List(messages)) = root.get("messages").map(|messages| &messages.kind) else { return };
    for message in messages.nodes() {
        let calls = message.get("tool_calls").filter(|calls| !calls.is_null());
        if let (Some("assistant"), Some(calls)) = (message.get("role").and_then(Node::as_str), calls) {
            walk.iterate(&chat_messages::TOOL_CALL, calls);
            if !walk.issues.is_empty() {
                return;
            }
        }
    }
}

/// Refuses a number that is not finite. It is always out of its field's range, so the sampler's own checks say so in
/// vLLM's words.
fn not_finite(number: &NotFinite) -> Option<ApiError> {
    let value = number.value;
    let mut params = SamplingParams::default();
    let segments = number.path.segments();
    let Some(Segment::Name(field)) = segments.first() else { return None };
    let named = params.numbers_mut().into_iter().find(|(name, _)| name == field);
    if let Some((_, number)) = named {
        *number = value;
        return params.validated(usize::MAX).err().map(ApiError::from);
    }
    match *field {
        // The length penalty means nothing without beam search, and infinite biases are clamped.
        "length_penalty" => return None,
        "logit_bias" if !value.is_nan() => return None,
        "logit_bias" => {
            let Some(Segment::Key(id)) = segments.last() else { return None };
            let id: TokenId = id.parse().unwrap_or_default();
            params.logit_bias = vec![(id, f32::NAN)];
        }
        field => return Some(ApiError::invalid(field, format!("`{field}` must hold finite numbers"))),
    }
    params.validated(usize::MAX).err().map(ApiError::from)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::{
        chat::Message,
        wire::{chat_completions, completions, tokenize},
    };

    /// Returns the text that a reader sees of a body that keeps the rules.
    fn read_with(text: &str, rules: &Rules) -> Result<String, ApiError> {
        let mut document = parsed(text)?;
        if document.repeats_keys() {
            return read_with(&document.root.without_repeats(), rules);
        }
        let rewrites = settled(&mut document, text, rules)?;
        Ok(rewrites.spliced(&document.root).into_owned())
    }

    fn chat(text: &str) -> Result<String, String> {
        read_with(text, &chat_completions::rules::RULES).map_err(|error| error.message())
    }

    #[test]
    fn a_strict_body_is_read_as_it_is() {
        let text = r#"{"messages":[{"role":"user","content":"x"}],"temperature":0.5,"seed":null,"x":[1,2]}"#;
        let mut document = parsed(text).unwrap();
        assert!(settled(&mut document, text, &chat_completions::rules::RULES).unwrap().is_empty());
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
        let prompt = |text: &str| read_with(text, &completions::rules::RULES).ok();
        for text in [r#"{"prompt":["1"]}"#, r#"{"prompt":[]}"#, r#"{"prompt":[[1],[2]]}"#] {
            assert_eq!(prompt(text).as_deref(), Some(text));
        }
        assert_eq!(prompt(r#"{"prompt":[1.0,true]}"#).as_deref(), Some(r#"{"prompt":[1,1]}"#));
    }

    #[test]
    fn the_half_of_tokenize_that_fits_is_taken_and_the_other_blanked() {
        let text = |text: &str| read_with(text, &tokenize::rules::TOKENIZE_RULES).ok();
        let message = r#"[{"role":"user"}]"#;
        assert_eq!(
            text(&format!(r#"{{"prompt":5,"messages":{message}}}"#)),
            Some(format!(r#"{{"prompt":null,"messages":{message}}}"#))
        );
        assert_eq!(text(r#"{"prompt":"x","messages":["y"]}"#).as_deref(), Some(r#"{"prompt":"x","messages":null}"#));
    }

    #[derive(Debug, Deserialize)]
    struct Fields {
        #[expect(dead_code, reason = "only its shape is tested")]
        messages: Vec<Message>,
        #[serde(flatten)]
        #[expect(dead_code, reason = "only its shape is tested")]
        sampling: SamplingFields,
    }

    impl Body for Fields {
        const RULES: &'static Rules = &ANY;
    }

    fn place(body: &str) -> String {
        let error = parse::<Fields>(body.as_bytes()).unwrap_err();
        assert!(error.is_about_shape());
        error.param().unwrap_or_default()
    }

    #[test]
    fn a_complaint_of_the_reader_names_the_field() {
        assert_eq!(place(r#"{"messages":[{"role":"user"},{"content":"x"}]}"#), "body.messages.1.role");
        assert_eq!(place(r#"{"messages":[{"role":"user","content":5}]}"#), "body.messages.0.content");
        assert_eq!(place(r#"{"messages":[],"stop_token_ids":[1,"x"]}"#), "body.stop_token_ids.1");
        assert_eq!(place("{}"), "body.messages");
        assert_eq!(place("[]"), "body");
    }

    #[test]
    fn what_is_not_json_is_placed_by_characters() {
        assert_eq!(place("{oops"), "body.1");
        assert_eq!(place("{\"é\":tru}"), "body.5");
        assert_eq!(place("{\"messages\":[]} x"), "body.16");
        assert_eq!(parse::<Fields>(&[0xff]).unwrap_err(), ApiError::unreadable());
    }
}
