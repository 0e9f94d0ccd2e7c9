//! Formats that are read marker by marker: what vLLM 0.32 gives to its one parser engine (`parser/engine/`), and others
//! that are written alike.
//!
//! A [`Grammar`] says which markers there are, where each leads, and what a call is made of. Refuses to know any of them.
//!
//! The rules that all share:
//! - Content is what stands outside of calls, before them, between them and after them.
//! - Nothing that was sampled is lost but markers and white space. Markup that makes no call is content to the letter, and
//!   so is what a call has beside its name and its arguments. vLLM drops both, and content after calls too.
//! - A call that nothing ends is ended by the next one.
//! - What ends a call in the middle of a value ends it only if no end of that value follows before another call begins: a value
//!   may hold the end of a call, as a file about calls does. vLLM cuts the value off there.
//! - A call whose name the end of the text cuts off is none. One that is cut off later is made of what is there; where
//!   that is in the middle of a value, its arguments are JSON that is cut off at the same place, so that nobody takes them
//!   for the whole. vLLM drops that value.

use std::fmt;

use super::{
    call_format::CallReader,
    json_call,
    lexer::{Lexer, Token},
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    json::{Object, Value},
    parser::{Piece, ToolCall, marker},
};

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

    /// The markers as this checkpoint spells them.
    fn markers(&self) -> &'static [&'static str] {
        Self::MARKERS
    }

    /// What a marker does; `None` where it is text like any other.
    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)>;

    /// What a call is made of.
    fn read(&self, draft: Draft, tools: &Signatures) -> Reading;
}

/// Makes the reader of a format for a request's tools.
pub(super) fn reader<G: Grammar + 'static>(grammar: G, tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Box::new(Machine {
        lexer: Lexer::new(grammar.markers()),
        tools: Signatures::of(tools),
        state: ToolCallState::Content,
        markup: Markup::default(),
        draft: None,
        space: String::new(),
        ends_values: grammar.markers().iter().any(|marker| ends_value(&grammar, marker)),
        maybe_ended: Vec::new(),
        grammar,
    })
}

/// The reader of a format.
#[derive(Debug)]
struct Machine<G> {
    lexer: Lexer,
    tools: Signatures,
    state: ToolCallState,
    /// All that was written since the last place that certainly was outside of calls.
    markup: Markup,
    /// The call that is being written.
    draft: Option<Draft>,
    /// White space after a call, which is content only if more follows.
    space: String,
    /// Whether the format marks the ends of values.
    ends_values: bool,
    /// What was written since a mark in the middle of a value that may have ended the call, with that mark.
    maybe_ended: Vec<Token>,
    grammar: G,
}

/// What is content if it makes no call.
#[derive(Debug, Default)]
struct Markup {
    /// All of it.
    written: String,
    /// What stands in front of the name of a call.
    preamble: String,
    /// Whether there is more than markers and white space.
    visible: bool,
}

/// Whether a marker ends a value, and no more than that.
fn ends_value(grammar: &impl Grammar, marker: &str) -> bool {
    matches!(grammar.step(ToolCallState::Value, marker), Some((ToolCallState::Arguments, Act::Keep)))
}

/// Whether a marker begins a call, be it in the middle of a value or outside of calls.
fn begins_call(grammar: &impl Grammar, marker: &str) -> bool {
    let leads = |state, act| grammar.step(state, marker).is_some_and(|(_, does)| does == act);
    let outside = [ToolCallState::Content, ToolCallState::Preamble, ToolCallState::Between];
    leads(ToolCallState::Value, Act::Next) || outside.into_iter().any(|state| leads(state, Act::Open))
}

impl<G: Grammar> Machine<G> {
    /// Reads what follows a mark that may have ended a call in the middle of a value, or anything else.
    fn token(&mut self, token: Token, out: &mut Vec<Piece>) {
        if self.maybe_ended.is_empty() {
            return self.certain(token, out);
        }
        match token {
            Token::Marker(marker) if ends_value(&self.grammar, marker) => {
                for text in std::mem::take(&mut self.maybe_ended) {
                    self.text(text.as_str(), out);
                }
                self.certain(token, out);
            }
            Token::Marker(marker) if begins_call(&self.grammar, marker) => {
                self.end_where_marked(out);
                self.certain(token, out);
            }
            token => self.maybe_ended.push(token),
        }
    }

    /// Ends the call at the mark that may have ended it, and reads what came after that. None of it begins a call.
    fn end_where_marked(&mut self, out: &mut Vec<Piece>) {
        let mut tokens = std::mem::take(&mut self.maybe_ended).into_iter();
        let Some(Token::Marker(end)) = tokens.next() else { return };
        if let Some((state, _)) = self.grammar.step(self.state, end) {
            self.act(end, (state, Act::Close), out);
        }
        tokens.for_each(|token| self.certain(token, out));
    }

    fn certain(&mut self, token: Token, out: &mut Vec<Piece>) {
        let marker = match token {
            Token::Text(text) => return self.text(&text, out),
            Token::Marker(marker) => marker,
        };
        let Some((state, act)) = self.grammar.step(self.state, marker) else { return self.text(marker, out) };
        if self.ends_values && self.state == ToolCallState::Value && act == Act::Close {
            self.maybe_ended.push(token);
            return;
        }
        self.act(marker, (state, act), out);
    }

    /// Does what a marker does.
    fn act(&mut self, marker: &str, (state, act): (ToolCallState, Act), out: &mut Vec<Piece>) {
        self.space.clear();
        match act {
            Act::Drop => self.markup.written.push_str(marker),
            Act::Open => self.open(marker),
            Act::Close => {
                self.markup.written.push_str(marker);
                self.close(true, out);
            }
            Act::Next => {
                self.close(true, out);
                self.open(marker);
            }
            Act::Keep => {
                self.markup.written.push_str(marker);
                if let Some(draft) = &mut self.draft {
                    draft.arguments.push_str(marker);
                }
            }
        }
        self.state = state;
        if matches!(state, ToolCallState::Content | ToolCallState::Between) {
            self.settle(out);
        }
    }

    fn text(&mut self, text: &str, out: &mut Vec<Piece>) {
        match self.state {
            ToolCallState::Content => content(text, out),
            ToolCallState::Between => self.between(text, out),
            ToolCallState::Preamble => self.markup.preamble.push_str(text),
            ToolCallState::Name => self.draft.get_or_insert_default().name.push_str(text),
            ToolCallState::Arguments | ToolCallState::Value => {
                self.draft.get_or_insert_default().arguments.push_str(text);
            }
        }
        if !matches!(self.state, ToolCallState::Content | ToolCallState::Between) {
            self.markup.written.push_str(text);
            self.markup.visible |= !marker::is_blank(text);
        }
    }

    /// White space between calls is markup.
    fn between(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.space.push_str(text);
        let space = self.space.split_off(marker::trim_end(&self.space).len());
        content(&std::mem::replace(&mut self.space, space), out);
    }

    fn open(&mut self, marker: &str) {
        self.draft = Some(Draft::default());
        self.markup.written.push_str(marker);
    }

    /// Ends the call that is being written.
    fn close(&mut self, ended: bool, out: &mut Vec<Piece>) {
        if let Some(draft) = self.draft.take() {
            let Reading { call, unread } = self.grammar.read(Draft { ended, ..draft }, &self.tools);
            if let Some(call) = call {
                let unread = std::mem::take(&mut self.markup).preamble + &unread;
                out.push(Piece::Call(call));
                if !marker::is_blank(&unread) {
                    content(&unread, out);
                }
            }
        }
        self.settle(out);
    }

    /// Gives out the markup that made no call.
    fn settle(&mut self, out: &mut Vec<Piece>) {
        let markup = std::mem::take(&mut self.markup);
        if markup.visible {
            content(&markup.written, out);
        }
    }
}

fn content(text: &str, out: &mut Vec<Piece>) {
    if !text.is_empty() {
        out.push(Piece::Content(text.to_owned()));
    }
}

impl<G: Grammar> CallReader for Machine<G> {
    fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        for token in self.lexer.push(text) {
            self.token(token, out);
        }
    }

    fn finish(&mut self, out: &mut Vec<Piece>) {
        for token in self.lexer.finish() {
            self.token(token, out);
        }
        self.end_where_marked(out);
        if self.state == ToolCallState::Name {
            // The name may have been another one.
            self.draft = None;
        }
        self.close(false, out);
    }

    fn is_in_call(&self) -> bool {
        !matches!(self.state, ToolCallState::Content | ToolCallState::Between)
    }
}

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
    fn spelled(mut self, name: &str, ended: bool, tools: &Signatures) -> (String, String) {
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

/// The function that is called, and what is known of it.
pub(super) struct Callee<'c> {
    pub(super) name: &'c str,
    pub(super) tools: &'c Signatures,
}

/// What a draft amounts to in the formats whose arguments are no JSON.
///
/// A name may be missing where the arguments are the JSON of a whole call; vLLM looks for one there.
pub(super) fn read_call(
    draft: &Draft,
    tools: &Signatures,
    allowed: impl Fn(&str) -> bool,
    arguments: impl Fn(&str) -> Arguments,
) -> Reading {
    let name = marker::trim(&draft.name);
    let reading = if name.is_empty() {
        whole_call(&draft.arguments, tools)
    } else {
        let (arguments, unread) = arguments(&draft.arguments).spelled(name, draft.ended, tools);
        Reading { call: Some(ToolCall::new(name.to_owned(), arguments)), unread }
    };
    if reading.call.as_ref().is_some_and(|call| allowed(&call.name)) { reading } else { Reading::default() }
}

/// A call that is a JSON object of its own: `{"name": …, "arguments": …}`, or with the arguments beside the name.
pub(super) fn whole_call(body: &str, tools: &Signatures) -> Reading {
    let Ok(Value::Object(mut call)) = Value::parse_literally(marker::trim(body)) else { return Reading::default() };
    let Some(Value::String(name)) = call.shift_remove("name") else { return Reading::default() };
    if name.is_empty() {
        return Reading::default();
    }
    let key = ["arguments", "parameters"].into_iter().find(|key| call.contains_key(*key));
    let (arguments, unread) = match key.and_then(|key| call.shift_remove(key)) {
        Some(Value::String(text)) => (text, json_call::unread(call)),
        Some(arguments) => (arguments.to_json_string(), json_call::unread(call)),
        None => (Value::from(call).to_json_string(), String::new()),
    };
    let arguments = tools.fit(&name, arguments);
    Reading { call: Some(ToolCall::new(name, arguments)), unread }
}
