//! The arguments of a call that are written one by one, and the JSON that they are: all of it, or what is certain of it.

use super::{call_grammar::Draft, schema::Signatures};
use crate::json::{Object, Value};

/// What is known of the types of values that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Typed {
    /// Nothing: all are written as text, and the tool's schema says what they are.
    #[default]
    No,
    /// The model has said which are text.
    Said,
    /// They are of the types that the tool's schema asks for.
    Fitted,
}

/// The arguments of a call, read.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) values: Object,
    /// How each of the values was written.
    pub(super) written: Vec<String>,
    /// What belongs to no argument.
    pub(super) unread: String,
    /// Whether the last of them has no end.
    pub(super) open: bool,
    /// Whether something says that none is missing.
    pub(super) whole: bool,
    /// What is known of the types of the values.
    pub(super) typed: Typed,
    /// What is there of an argument whose value has not begun: its key, which may lack its end, and all of it as it was written.
    pub(super) begun: Option<(String, String)>,
}

impl Arguments {
    /// Adds an argument, `written` as that. Of two that are called alike, the last one counts.
    pub(super) fn insert(&mut self, key: &str, value: impl Into<Value>, written: &str) {
        let (index, before) = self.values.insert_full(key.to_owned(), value.into());
        if before.is_some() {
            self.unread.push_str(&std::mem::replace(&mut self.written[index], written.to_owned()));
        } else {
            self.written.push(written.to_owned());
        }
    }

    /// The arguments as JSON of the types that a tool wants, and what is not in them.
    pub(super) fn spelled(
        mut self,
        name: &str,
        &Draft { ended, cut, .. }: &Draft,
        tools: &Signatures,
    ) -> (String, String) {
        let mut cut_key = None;
        match self.begun.take() {
            Some((key, _)) if !ended => cut_key = Some(key),
            Some((_, written)) => self.unread.push_str(&written),
            None => {}
        }
        let written = Value::from(self.values).to_json_string();
        let closed = match self.typed {
            Typed::No => tools.fit_untyped(name, written),
            Typed::Said => tools.fit(name, written),
            Typed::Fitted => written,
        };
        let spelled = match cut_key {
            Some(key) => cut_off_in_key(&closed, key),
            None if self.open && !ended => unclosed(&closed).to_owned(),
            None if cut && !self.whole => cut_off(closed),
            None => closed,
        };
        (spelled, self.unread)
    }
}

/// An object with one more key, cut off in that: nobody knows whether it is the whole key, and no value has begun.
fn cut_off_in_key(object: &str, key: String) -> String {
    let mut cut = object.strip_suffix('}').unwrap_or(object).to_owned();
    if !key.is_empty() {
        let key = Value::from(key).to_json_string();
        cut += if cut == "{" { "" } else { ", " };
        cut += key.strip_suffix('"').unwrap_or(&key);
    }
    cut
}

/// An object that may have got more.
pub(super) fn cut_off(mut object: String) -> String {
    object.truncate(object.strip_suffix('}').unwrap_or(&object).len());
    object
}

/// JSON without what closes its last value, and what that is in.
pub(super) fn unclosed(json: &str) -> &str {
    fn closers(value: &Value) -> usize {
        match value {
            Value::String(_) => 1,
            Value::Array(items) => 1 + items.last().map_or(0, closers),
            Value::Object(object) => 1 + object.values().next_back().map_or(0, closers),
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Literal(_) => 0,
        }
    }
    let closers = Value::parse(json).map_or(0, |value| closers(&value));
    &json[..json.len() - closers]
}
