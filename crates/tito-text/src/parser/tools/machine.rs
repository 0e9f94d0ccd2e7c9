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
//!   may hold the end of a call, as a file about calls does. vLLM cuts the value off there. `held` judges that, also of
//!   marks in the strings of arguments that are JSON.
//! - A call that nothing ends and whose name text follows, where its arguments should begin, is none: prose mentions calls.
//! - A call whose name the end of the text cuts off is none. One that is cut off later is made of what is there; where
//!   that is in the middle of a value, its arguments are JSON that is cut off at the same place, so that nobody takes them
//!   for the whole. vLLM drops that value. Between two values they are so only where the model did not end the text itself:
//!   some models leave out the end of a call.

use std::collections::VecDeque;

pub(super) use super::arguments::{Arguments, Typed, cut_off, unclosed};
pub(super) use super::call_grammar::{Act, Draft, Grammar, Reading, ToolCallState};
use super::{
    call_format::CallReader,
    call_grammar::ends_value,
    held::Held,
    json_call,
    json_scan::JsonScan,
    lexer::{Lexer, Token},
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    json::Value,
    parser::{Piece, ToolCall, marker, unread::Spaced},
};

/// Makes the reader of a format for a request's tools.
pub(super) fn reader<G: Grammar + 'static>(grammar: G, tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Box::new(Machine {
        lexer: Lexer::new(grammar.markers()),
        tools: Signatures::of(tools),
        state: ToolCallState::Content,
        markup: Markup::default(),
        draft: None,
        json: JsonScan::default(),
        space: Spaced::default(),
        ends_values: grammar.markers().iter().any(|marker| ends_value(&grammar, marker)),
        tokens: VecDeque::new(),
        held: None,
        cut: false,
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
    /// What was read of its JSON, if its arguments are such.
    json: JsonScan,
    /// White space after a call, which is content only if more follows.
    space: Spaced,
    /// Whether the format marks the ends of values.
    ends_values: bool,
    /// What is to be read next.
    tokens: VecDeque<Token>,
    /// What was written since a mark in the middle of a value that may have ended the call, with that mark.
    held: Option<Held>,
    /// Whether the text was cut off.
    cut: bool,
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

/// What ends a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallEnd {
    /// A marker that means just that.
    Marked,
    /// The beginning of the next call.
    Next,
    /// The end of the text.
    Text,
}

impl<G: Grammar> Machine<G> {
    fn run(&mut self, out: &mut Vec<Piece>) {
        while let Some(token) = self.tokens.pop_front() {
            self.token(token, out);
        }
    }

    /// Reads what follows a mark that may have ended a call in the middle of a value, or anything else.
    fn token(&mut self, token: Token, out: &mut Vec<Piece>) {
        let Some(held) = &mut self.held else { return self.certain(token, out) };
        match held.is_text(&token, &self.grammar) {
            None => held.tokens.push(token),
            Some(is_text) => {
                self.tokens.push_front(token);
                self.judged(is_text, out);
            }
        }
    }

    /// Reads what was held as text of the value, or ends the call at the mark and leaves the rest to be read.
    fn judged(&mut self, is_text: bool, out: &mut Vec<Piece>) {
        let Some(Held { mut tokens, quoted, .. }) = self.held.take() else { return };
        if is_text {
            let quote = if quoted { tokens.pop() } else { None };
            for token in tokens {
                self.text(token.as_str(), out);
            }
            if let Some(quote) = quote {
                self.certain(quote, out);
            }
            return;
        }
        let mut tokens = tokens.into_iter();
        let end = tokens.next();
        for token in tokens.rev() {
            self.tokens.push_front(token);
        }
        if let Some(Token::Marker(end)) = end
            && let Some(step) = self.grammar.step(self.state, end)
        {
            self.act(end, step, out);
        }
    }

    /// What is to be held where a marker ends a call: it may be a part of a value.
    fn held_at(&mut self, token: &Token) -> Option<Held> {
        let Token::Marker(marker) = *token else { return None };
        let written = self.draft.as_ref().map_or("", |draft| &draft.arguments);
        if let Some(start) = self.grammar.json_start(self.state, written) {
            self.json.advance(&written[start..]);
            return self.json.is_in_string().then(|| Held::in_string(Token::Marker(marker), self.json.clone()));
        }
        let (_, act) = self.grammar.step(self.state, marker)?;
        let may_be_text = self.ends_values && self.state == ToolCallState::Value && act == Act::Close;
        may_be_text.then(|| Held::in_value(Token::Marker(marker)))
    }

    fn certain(&mut self, token: Token, out: &mut Vec<Piece>) {
        let marker = match token {
            Token::Text(text) => return self.text(&text, out),
            Token::Marker(marker) => marker,
        };
        let Some((state, act)) = self.grammar.step(self.state, marker) else { return self.text(marker, out) };
        if matches!(act, Act::Close | Act::Next) {
            self.held = self.held_at(&token);
            if self.held.is_some() {
                return;
            }
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
                self.close(CallEnd::Marked, out);
            }
            Act::Next => {
                self.close(CallEnd::Next, out);
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
        content(&self.space.take_spoken(), out);
    }

    fn open(&mut self, marker: &str) {
        self.draft = Some(Draft::default());
        self.json = JsonScan::default();
        self.markup.written.push_str(marker);
    }

    /// Ends the call that is being written.
    fn close(&mut self, end: CallEnd, out: &mut Vec<Piece>) {
        let draft = self.draft.take().filter(|draft| end == CallEnd::Marked || !is_prose::<G>(draft));
        if let Some(draft) = draft {
            let ended = end != CallEnd::Text;
            let draft = Draft { ended, cut: self.cut && !ended, ..draft };
            let Reading { call, unread } = self.grammar.read(draft, &self.tools);
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

/// Whether text follows the name of a call, where its arguments should begin.
fn is_prose<G: Grammar>(draft: &Draft) -> bool {
    let written = marker::trim(&draft.arguments);
    let begins_otherwise = G::ARGUMENTS_BEGIN.is_some_and(|begin| !written.starts_with(begin));
    begins_otherwise && !written.is_empty() && !marker::is_blank(&draft.name)
}

fn content(text: &str, out: &mut Vec<Piece>) {
    if !text.is_empty() {
        out.push(Piece::Content(text.to_owned()));
    }
}

impl<G: Grammar> CallReader for Machine<G> {
    fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.tokens.extend(self.lexer.push(text));
        self.run(out);
    }

    fn cut_off(&mut self) {
        self.cut = true;
    }

    fn finish(&mut self, out: &mut Vec<Piece>) {
        self.tokens.extend(self.lexer.finish());
        self.run(out);
        while self.held.is_some() {
            // A value that was cut off may have gone on after the mark.
            self.judged(self.cut, out);
            self.run(out);
        }
        if self.state == ToolCallState::Name {
            // The name may have been another one.
            self.draft = None;
        }
        self.close(CallEnd::Text, out);
    }

    fn is_in_call(&self) -> bool {
        !matches!(self.state, ToolCallState::Content | ToolCallState::Between)
    }
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
        let (arguments, unread) = arguments(&draft.arguments).spelled(name, draft, tools);
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
