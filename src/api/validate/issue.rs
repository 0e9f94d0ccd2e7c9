//! Complaints about a request, in the words and the layout of vLLM's answer to a pydantic error.

use std::{borrow::Cow, fmt::Write as _};

use crate::{
    api::error::ApiError,
    json::{Kind, Node, string_repr},
};

/// Most complaints that are spelt out.
const MOST_REPORTED: usize = 10;
/// Most characters of a value that is repeated.
const MOST_INPUT_CHARS: usize = 200;
/// Most characters of one complaint.
const MOST_CHARS: usize = 1000;

/// A value in a complaint's `ctx`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Context {
    Int(i128),
    Text(String),
    /// Python's exception of this reason.
    ValueError(&'static str),
}

/// What is wrong with a value, wherever it stands.
#[derive(Debug)]
pub(super) struct Complaint {
    /// Pydantic's name of the error.
    pub(super) kind: &'static str,
    message: Cow<'static, str>,
    context: Vec<(&'static str, Context)>,
}

impl Complaint {
    pub(super) fn new(kind: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), context: Vec::new() }
    }

    /// Of a value that has its type, and breaks a rule besides.
    pub(super) fn broken(rule: &'static str) -> Self {
        Self::new("value_error", format!("Value error, {rule}")).with("error", Context::ValueError(rule))
    }

    pub(super) fn with(mut self, name: &'static str, value: Context) -> Self {
        self.context.push((name, value));
        self
    }
}

/// A step on the way to a value.
#[derive(Debug, Clone)]
pub(super) enum Segment {
    Key(String),
    Name(&'static str),
    Index(usize),
}

/// Complaints in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Issues {
    count: usize,
    reported: Vec<String>,
    first_place: Option<String>,
}

impl Issues {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether further complaints are only counted.
    pub(super) fn is_full(&self) -> bool {
        self.reported.len() >= MOST_REPORTED
    }

    pub(super) fn count(&mut self) {
        self.count += 1;
    }

    pub(super) fn add(&mut self, path: &[Segment], complaint: &Complaint, input: &Node<'_>) {
        self.count();
        if !self.is_full() {
            let place = place(path);
            self.reported.push(line(&place, complaint, &summary(input)));
            self.first_place.get_or_insert(place);
        }
    }

    pub(super) fn into_error(self) -> ApiError {
        let plural = if self.count == 1 { "" } else { "s" };
        let mut message = format!("{} validation error{plural}:", self.count);
        for line in &self.reported {
            write!(message, "\n  {line}").expect("a string takes any text");
        }
        if self.count > self.reported.len() {
            let more = self.count - self.reported.len();
            write!(message, "\n  ...and {more} more error{plural}").expect("a string takes any text");
        }
        ApiError::malformed(self.first_place, message)
    }
}

/// A required field that is not there; without a place, the whole body.
pub(in crate::api) fn missing(place: &[&'static str]) -> ApiError {
    let path: Vec<_> = place.iter().copied().map(Segment::Name).collect();
    single(self::place(&path), &Complaint::new("missing", "Field required"), "None")
}

/// A required field that is not there, of an object of `count` fields.
pub(in crate::api) fn missing_of(place: &str, count: usize) -> ApiError {
    single(place.to_owned(), &Complaint::new("missing", "Field required"), &format!("<dict of {count} items>"))
}

/// A list without an item.
pub(in crate::api) fn empty_list(place: &str) -> ApiError {
    let complaint = Complaint::new("too_short", "List should have at least 1 item after validation, not 0")
        .with("field_type", Context::Text("List".to_owned()))
        .with("min_length", Context::Int(1))
        .with("actual_length", Context::Int(0));
    single(place.to_owned(), &complaint, "<list of 0 items>")
}

/// Not a list; `input` is what it is.
pub(in crate::api) fn not_a_list(place: &str, input: &str) -> ApiError {
    single(place.to_owned(), &Complaint::new("list_type", "Input should be a valid list"), input)
}

/// A list of `count` items that breaks a rule.
pub(in crate::api) fn broken_rule(place: &str, rule: &'static str, count: usize) -> ApiError {
    single(place.to_owned(), &Complaint::broken(rule), &format!("<list of {count} items>"))
}

/// A value that only this server refuses, and why.
pub(in crate::api) fn value_error(place: &[String], reason: &str) -> ApiError {
    let path: Vec<_> = place.iter().cloned().map(Segment::Key).collect();
    let place = self::place(&path);
    let reason = string_repr(reason);
    let message = format!("1 validation error:\n  {{'type': 'value_error', 'loc': '{place}', 'msg': {reason}}}");
    ApiError::malformed(Some(place), message)
}

/// A text that is not JSON, from some character on.
pub(super) fn invalid_json(position: usize, complaint: &Complaint) -> ApiError {
    single(place(&[Segment::Index(position)]), complaint, "<dict of 0 items>")
}

fn single(place: String, complaint: &Complaint, input: &str) -> ApiError {
    let message = format!("1 validation error:\n  {}", line(&place, complaint, input));
    ApiError::malformed(Some(place), message)
}

fn line(place: &str, complaint: &Complaint, input: &str) -> String {
    let mut line = format!(
        "{{'type': {}, 'loc': {}, 'msg': {}, 'input': {}",
        string_repr(complaint.kind),
        string_repr(place),
        string_repr(&complaint.message),
        string_repr(input)
    );
    for (index, (name, value)) in complaint.context.iter().enumerate() {
        let before = if index == 0 { ", 'ctx': {" } else { ", " };
        let value = match value {
            Context::Int(value) => value.to_string(),
            Context::Text(text) => string_repr(text),
            Context::ValueError(reason) => format!("ValueError({})", string_repr(reason)),
        };
        write!(line, "{before}'{name}': {value}").expect("a string takes any text");
    }
    line.push_str(if complaint.context.is_empty() { "}" } else { "}}" });
    shortened(line, MOST_CHARS)
}

fn shortened(text: String, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...[truncated]", &text[..end]),
        None => text,
    }
}

/// A value that cannot flood the answer.
fn summary(node: &Node<'_>) -> String {
    match &node.kind {
        Kind::List(items) => format!("<list of {} items>", items.len()),
        Kind::Object(entries) => format!("<dict of {} items>", entries.len()),
        _ => shortened(node.python_str(), MOST_INPUT_CHARS),
    }
}

/// The path, without the steps that name pydantic's own machinery.
fn place(path: &[Segment]) -> String {
    let mut place = "body".to_owned();
    for segment in path {
        match segment {
            Segment::Index(index) => write!(place, ".{index}").expect("a string takes any text"),
            Segment::Key(key) => push(&mut place, key),
            Segment::Name(name) => push(&mut place, name),
        }
    }
    place
}

fn push(place: &mut String, name: &str) {
    if !is_machinery(name) {
        place.push('.');
        place.push_str(name);
    }
}

/// vLLM takes some fields for pydantic's words too (`function.arguments` becomes `function`).
fn is_machinery(name: &str) -> bool {
    const WORDS: [&str; 28] = [
        "function-wrap",
        "function-after",
        "function-before",
        "function-plain",
        "json-or-python",
        "lax-or-strict",
        "chain",
        "default",
        "nullable",
        "tagged-union",
        "union",
        "call",
        "arguments",
        "is-instance",
        "is-subclass",
        "callable",
        "str",
        "int",
        "float",
        "bool",
        "bytes",
        "bytearray",
        "list",
        "tuple",
        "dict",
        "set",
        "frozenset",
        "complex",
    ];
    name.contains(['[', ']', '(', ')', '{', '}'])
        || WORDS.iter().chain(&["none", "nonetype"]).any(|word| name.eq_ignore_ascii_case(word))
}
