//! Complaints about values, in pydantic's words.

use std::{borrow::Cow, fmt::Write as _};

use crate::json::{Node, NodeKind, Path, string_repr};

/// At most this many complaints are spelt out.
const MOST_REPORTED: usize = 10;
/// A complaint repeats at most this many characters of a value.
const MOST_INPUT_CHARS: usize = 200;
/// One complaint has at most this many characters.
const MOST_CHARS: usize = 1000;

/// A value in a complaint's `ctx`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Context {
    Int(i128),
    Text(String),
    /// Python's exception with this reason.
    ValueError(&'static str),
}

/// What is wrong with a value, wherever it stands.
#[derive(Debug)]
pub(crate) struct Complaint {
    /// Pydantic's name of the error.
    pub(super) kind: &'static str,
    message: Cow<'static, str>,
    context: Vec<(&'static str, Context)>,
}

impl Complaint {
    pub(crate) fn new(kind: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), context: Vec::new() }
    }

    /// Makes the complaint about a value that has the right type and still breaks a rule.
    pub(crate) fn broken(rule: &'static str) -> Self {
        Self::new("value_error", format!("Value error, {rule}")).with("error", Context::ValueError(rule))
    }

    pub(crate) fn with(mut self, name: &'static str, value: Context) -> Self {
        self.context.push((name, value));
        self
    }
}

/// What is wrong with one value.
#[derive(Debug)]
pub(crate) struct Issue {
    /// The path to the value.
    pub(crate) path: Path,
    complaint: Complaint,
    /// A short form of the value.
    input: String,
}

/// The reasons why a document does not pass, in the order in which they were found.
#[derive(Debug, Default)]
pub(crate) struct Issues {
    count: usize,
    reported: Vec<Issue>,
}

impl Issues {
    /// Makes the issues of one complaint about a value, which `input` shows.
    pub(crate) fn single(path: Path, complaint: Complaint, input: impl Into<String>) -> Self {
        Self { count: 1, reported: vec![Issue { path, complaint, input: input.into() }] }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns how many complaints there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns the first complaints, which are the ones that are spelt out.
    pub(crate) fn reported(&self) -> &[Issue] {
        &self.reported
    }

    /// Whether further complaints are only counted.
    pub(super) fn is_full(&self) -> bool {
        self.reported.len() >= MOST_REPORTED
    }

    pub(super) fn count(&mut self) {
        self.count += 1;
    }

    pub(super) fn add(&mut self, path: &Path, complaint: Complaint, input: &Node<'_>) {
        self.count();
        if !self.is_full() {
            self.reported.push(Issue { path: path.clone(), complaint, input: summary(input) });
        }
    }
}

impl Issue {
    /// Writes the complaint as Python prints it; `place` is the spelt path to the value.
    pub(crate) fn line(&self, place: &str) -> String {
        let Self { complaint, input, .. } = self;
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
}

fn shortened(text: String, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...[truncated]", &text[..end]),
        None => text,
    }
}

/// Shortens a value, so that it cannot flood the answer.
fn summary(node: &Node<'_>) -> String {
    match &node.kind {
        NodeKind::List(items) => format!("<list of {} items>", items.len()),
        NodeKind::Object(entries) => format!("<dict of {} items>", entries.len()),
        _ => shortened(node.python_str(), MOST_INPUT_CHARS),
    }
}
