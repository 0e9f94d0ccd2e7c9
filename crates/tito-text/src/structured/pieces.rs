//! What structural tags are made of once they are spelled out: texts, expressions and JSON, in a row, to choose from or
//! repeated; and how `llguidance` is told of them.

use std::fmt::Write as _;

use serde_json::Value;

use super::lark::{ANYTHING, escaped, literal};
use crate::TokenId;

/// A part of an output.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    /// This text, in which no special tokens are.
    Text(String),
    /// A special token.
    Special(TokenId),
    /// As much text as an expression can take.
    Expression(Expression),
    /// Text up to the first `end`, and with it. Those of one `group` are ends of the same text, so the first one counts.
    Until { end: String, excludes: Vec<String>, group: usize },
    /// JSON, with its schema prepared.
    Json(Json),
    /// One after the other.
    Sequence(Vec<Piece>),
    /// One of these.
    Choice(Vec<Piece>),
    /// As often as the operator says: `?`, `*` or `+`.
    Repeated(Box<Piece>, char),
    /// Once or more, with the other between any two.
    Separated(Box<Piece>, Box<Piece>),
}

/// Text that an expression matches.
#[derive(Debug, Clone)]
pub(super) struct Expression {
    /// The expression as it stands between slashes.
    pub(super) pattern: String,
    /// What the text does not contain.
    pub(super) excludes: Vec<String>,
    /// Whether there may be none of it.
    pub(super) optional: bool,
}

/// JSON that a schema describes.
#[derive(Debug, Clone)]
pub(super) struct Json {
    /// The schema as the compiler takes it.
    pub(super) schema: Value,
    /// The schema as it was given.
    pub(super) given: Value,
    /// Whether the compiler lets white space in between its tokens.
    pub(super) is_spaced: bool,
}

impl Piece {
    /// No text.
    pub(super) const fn nothing() -> Self {
        Self::Sequence(Vec::new())
    }

    /// One after the other.
    pub(super) fn then(self, next: Self) -> Self {
        match self {
            Self::Sequence(mut parts) => {
                parts.push(next);
                Self::Sequence(parts)
            }
            first => Self::Sequence(vec![first, next]),
        }
    }

    /// The same with each character of fixed text by itself.
    pub(super) fn in_characters(&self) -> Self {
        let all = |parts: &[Self]| parts.iter().map(Self::in_characters).collect();
        let one = |part: &Self| Box::new(part.in_characters());
        match self {
            Self::Text(text) => Self::Sequence(text.chars().map(|c| Self::Text(c.into())).collect()),
            Self::Sequence(parts) => Self::Sequence(all(parts)),
            Self::Choice(parts) => Self::Choice(all(parts)),
            Self::Repeated(part, operator) => Self::Repeated(one(part), *operator),
            Self::Separated(part, separator) => Self::Separated(one(part), one(separator)),
            other => other.clone(),
        }
    }

    /// The grammar in Lark.
    pub(super) fn lark(&self) -> String {
        let mut writer = Writer { rules: String::new(), count: 0 };
        let start = writer.write(self);
        format!("start: {start}\n{}", writer.rules)
    }
}

impl Expression {
    /// The excluded texts, as an expression of all that contain one.
    pub(super) fn excluding(excludes: &[String]) -> Option<String> {
        let excludes: Vec<String> = excludes.iter().map(|text| escaped(text)).collect();
        (!excludes.is_empty()).then(|| format!("{ANYTHING}({}){ANYTHING}", excludes.join("|")))
    }
}

/// Writes rules.
struct Writer {
    rules: String,
    count: usize,
}

impl Writer {
    fn write(&mut self, piece: &Piece) -> String {
        match piece {
            Piece::Text(text) => literal(text),
            Piece::Special(id) => format!("<[{id}]>"),
            Piece::Expression(Expression { pattern, excludes, optional }) => {
                let name = self.name('T', "", &format!("/{pattern}/{}", without(excludes)));
                if *optional { format!("{name}?") } else { name }
            }
            Piece::Until { end, excludes, .. } => {
                let attributes = format!("[suffix={}]", literal(end));
                self.name('r', &attributes, &format!("/{ANYTHING}/{}", without(excludes)))
            }
            Piece::Json(json) => format!("%json {}", json.schema),
            Piece::Sequence(parts) if parts.is_empty() => literal(""),
            Piece::Sequence(parts) => format!("({})", self.all(parts).join(" ")),
            Piece::Choice(parts) => format!("({})", self.all(parts).join(" | ")),
            Piece::Repeated(part, operator) => {
                let part = self.write(part);
                format!("{}{operator}", self.name('r', "", &part))
            }
            Piece::Separated(part, separator) => {
                let (part, separator) = (self.write(part), self.write(separator));
                let name = self.name('r', "", &part);
                format!("({name} ({separator} {name})*)")
            }
        }
    }

    fn all(&mut self, parts: &[Piece]) -> Vec<String> {
        parts.iter().map(|part| self.write(part)).collect()
    }

    /// A rule or, with `T`, a terminal.
    fn name(&mut self, kind: char, attributes: &str, body: &str) -> String {
        let name = format!("{kind}{}", self.count);
        self.count += 1;
        let _ = writeln!(self.rules, "{name}{attributes}: {body}");
        name
    }
}

/// The complement of texts that contain one of these, to be joined to a terminal.
fn without(excludes: &[String]) -> String {
    Expression::excluding(excludes).map_or_else(String::new, |excluded| format!(" & ~/{excluded}/"))
}
