//! Formats that are read marker by marker: what vLLM 0.32 gives to its one parser engine (`parser/engine/`).
//!
//! A [`Grammar`] says which markers there are, where each leads, and what a call is made of. Refuses to know any of them.
//!
//! The rules that all share, as vLLM's engine has them for whole texts:
//! - Content is what stands outside of calls. After the first call that has a name it is dropped; after calls that were
//!   only begun it is kept. Content of nothing but white space is dropped where a call was begun.
//! - The markup of a call that is none is dropped.
//! - A call that the end of the text cuts off is made of what is there.

use std::fmt;

use super::{
    call_format::CallReader,
    lexer::{Lexer, Token},
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    json::Value,
    parser::{Piece, ToolCall, marker},
};

/// Where in a text a reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Outside of calls.
    Content,
    /// Before the name of a call.
    Preamble,
    /// In the name of a call.
    Name,
    /// In the arguments of a call.
    Arguments,
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
}

/// What a draft amounts to.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Whether it has a name that a stream of vLLM's would announce, so that content after it is dropped.
    pub(super) announced: bool,
    /// The call, if it is one.
    pub(super) call: Option<ToolCall>,
}

/// One format.
pub(super) trait Grammar: Send + fmt::Debug {
    /// All markers, also those that mean something in some states only.
    const MARKERS: &'static [&'static str];

    /// What a marker does; `None` where it is text like any other.
    fn step(state: State, marker: &str) -> Option<(State, Act)>;

    /// What a call is made of.
    fn read(draft: Draft, tools: &Signatures) -> Reading;
}

/// Makes the reader of a format for a request's tools.
pub(super) fn reader<G: Grammar + 'static>(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Box::new(Machine::<G> {
        lexer: Lexer::new(G::MARKERS),
        tools: Signatures::of(tools),
        state: State::Content,
        draft: None,
        content: Content::default(),
        grammar: std::marker::PhantomData,
    })
}

/// The reader of a format.
#[derive(Debug)]
struct Machine<G> {
    lexer: Lexer,
    tools: Signatures,
    state: State,
    /// The call that is being written.
    draft: Option<Draft>,
    content: Content,
    grammar: std::marker::PhantomData<G>,
}

impl<G: Grammar> Machine<G> {
    fn token(&mut self, token: Token, out: &mut Vec<Piece>) {
        let marker = match token {
            Token::Text(text) => return self.text(&text, out),
            Token::Marker(marker) => marker,
        };
        let Some((state, act)) = G::step(self.state, marker) else { return self.text(marker, out) };
        self.state = state;
        match act {
            Act::Drop => {}
            Act::Open => {
                self.draft = Some(Draft::default());
                self.content.opened = true;
            }
            Act::Close => self.close(out),
            Act::Keep => self.text(marker, out),
        }
    }

    fn text(&mut self, text: &str, out: &mut Vec<Piece>) {
        match (self.state, &mut self.draft) {
            (State::Content, _) => self.content.push(text, out),
            (State::Name, Some(draft)) => draft.name.push_str(text),
            (State::Arguments, Some(draft)) => draft.arguments.push_str(text),
            _ => {}
        }
    }

    fn close(&mut self, out: &mut Vec<Piece>) {
        let Some(draft) = self.draft.take() else { return };
        let reading = G::read(draft, &self.tools);
        if reading.announced {
            self.content.end();
        }
        out.extend(reading.call.map(Piece::Call));
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
        self.close(out);
        self.content.finish(out);
    }
}

/// What stands outside of calls.
#[derive(Debug, Default)]
struct Content {
    /// White space before the first word, or the text after calls of which none has a name yet.
    held: String,
    /// Whether there was a word.
    spoken: bool,
    /// Whether a call was begun.
    opened: bool,
    /// Whether nothing more counts.
    ended: bool,
}

impl Content {
    fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        if self.ended {
            return;
        }
        self.held.push_str(text);
        self.spoken |= !marker::is_blank(text);
        if self.spoken && !self.opened {
            out.push(Piece::Content(std::mem::take(&mut self.held)));
        }
    }

    /// Ends the calls. Once one has a name, what came after the first call that was begun does not count.
    fn end(&mut self) {
        self.held.clear();
        self.ended = true;
    }

    fn finish(&mut self, out: &mut Vec<Piece>) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() && (self.spoken || !self.opened) {
            out.push(Piece::Content(held));
        }
    }
}

/// What a draft amounts to in the formats whose arguments are no JSON.
///
/// A name may be missing where the arguments are the JSON of a whole call; vLLM looks for one there.
pub(super) fn named(
    draft: Draft,
    tools: &Signatures,
    allowed: impl Fn(&str) -> bool,
    arguments: impl Fn(&str) -> Value,
) -> Reading {
    let Draft { name: written, arguments: body } = draft;
    let found = if written.is_empty() { name_within(&body).unwrap_or_default() } else { &written };
    let announced = !found.is_empty() && allowed(found);
    let name = if written.is_empty() && !announced { "" } else { marker::trim(found) };
    let spelled = if marker::is_blank(&body) {
        Some((name.to_owned(), "{}".to_owned()))
    } else if name.is_empty() {
        whole_call(&body)
    } else {
        Some((name.to_owned(), arguments(&body).to_json_string()))
    };
    let call = spelled.filter(|(name, _)| !name.is_empty() && allowed(name)).map(|(name, arguments)| {
        let arguments = tools.fit(&name, arguments);
        ToolCall::new(name, arguments)
    });
    Reading { announced, call }
}

/// The first name that arguments hold: `"name": "…"`, wherever it is.
pub(super) fn name_within(body: &str) -> Option<&str> {
    let mut from = 0;
    while let Some(at) = body[from..].find("\"name\"") {
        let after = from + at + "\"name\"".len();
        from += at + 1;
        let rest = body[after..].trim_start().strip_prefix(':').map(str::trim_start);
        if let Some(value) = rest.and_then(|rest| rest.strip_prefix('"'))
            && let Some((name, _)) = value.split_once('"')
        {
            return Some(name).filter(|name| !name.is_empty());
        }
    }
    None
}

/// A call that is a JSON object of its own: `{"name": …, "arguments": …}`.
pub(super) fn whole_call(body: &str) -> Option<(String, String)> {
    let Ok(Value::Object(mut call)) = Value::parse(marker::trim(body)) else { return None };
    let name = call.get("name")?.as_str()?.to_owned();
    let arguments = ["arguments", "parameters"].iter().find_map(|key| call.get(*key));
    let arguments = match arguments {
        Some(Value::String(text)) => text.clone(),
        Some(arguments) => arguments.to_json_string(),
        None => {
            call.shift_remove("name");
            Value::from(call).to_json_string()
        }
    };
    Some((name, arguments))
}
