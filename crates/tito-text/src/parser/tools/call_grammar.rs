//! What tells one format of calls from another: its markers, where each of them leads, and what a call is made of.

use std::fmt;

use super::schema::Signatures;
use crate::parser::ToolCall;

/// Where in a text a reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolCallState {
    /// Outside of calls.
    Content,
    /// Before the name of a call.
    Preamble,
    /// In the name of a call.
    Name,
    /// In the arguments of a call.
    Arguments,
    /// In one of the arguments, where markers that begin a call are text.
    Value,
    /// After a call, where it is not certain yet that no other call follows.
    Between,
}

/// What a marker does besides leading to another state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Nothing: the marker itself is dropped.
    Drop,
    /// The word begins a call.
    Open,
    /// The word ends a call.
    Close,
    /// The word begins a call, and so ends the one before it.
    Next,
    /// The word is part of the arguments.
    Keep,
}

/// What was written of a call.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Its name, or what stands in its place.
    pub(super) name: String,
    /// Its arguments as the format writes them.
    pub(super) arguments: String,
    /// Whether a marker ended it, and not the end of the text.
    pub(super) ended: bool,
    /// Whether the text was cut off in it.
    pub(super) cut: bool,
}

impl Draft {
    /// What was written of the JSON of the arguments; where that is nothing, an object without any, or what may become one.
    pub(super) fn json_or_empty<'t>(&self, body: &'t str) -> &'t str {
        match body {
            "" if self.cut => "{",
            "" => "{}",
            body => body,
        }
    }
}

/// What a draft amounts to.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The call, if it is one.
    pub(super) call: Option<ToolCall>,
    /// What of the draft is neither in the call nor a marker.
    pub(super) unread: String,
}

/// One format.
pub(super) trait Grammar: Send + fmt::Debug {
    /// All markers, also those that mean something in some states only.
    const MARKERS: &'static [&'static str];
    /// What the marks of all arguments begin with, if each argument has such.
    const ARGUMENTS_BEGIN: Option<char> = None;
    /// Whether one mark stands on both sides of a value.
    const QUOTES_VALUES: bool = false;

    /// The markers as this checkpoint spells them.
    fn markers(&self) -> &'static [&'static str] {
        Self::MARKERS
    }

    /// What a marker does; `None` where it is text like any other.
    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)>;

    /// Where in what was written of the arguments their JSON begins; `None` where it does not, or where they are no JSON.
    fn json_start(&self, _state: ToolCallState, _arguments: &str) -> Option<usize> {
        None
    }

    /// What a call is made of.
    fn read(&self, draft: Draft, tools: &Signatures) -> Reading;
}

/// Whether a marker ends a value, and no more than that.
pub(super) fn ends_value(grammar: &impl Grammar, marker: &str) -> bool {
    matches!(grammar.step(ToolCallState::Value, marker), Some((ToolCallState::Arguments, Act::Keep)))
}

/// Whether a marker begins a call, be it in the middle of a value or outside of calls.
pub(super) fn begins_call(grammar: &impl Grammar, marker: &str) -> bool {
    let leads = |state, act| grammar.step(state, marker).is_some_and(|(_, does)| does == act);
    let outside = [ToolCallState::Content, ToolCallState::Preamble, ToolCallState::Between];
    leads(ToolCallState::Value, Act::Next) || outside.into_iter().any(|state| leads(state, Act::Open))
}
