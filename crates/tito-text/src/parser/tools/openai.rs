//! gpt-oss: messages in channels, of which `analysis` is reasoning, `final` and `commentary` are content, and those for
//! `functions.NAME` are calls (vLLM `parser/harmony.py` over the crate `openai-harmony`).
//!
//! Works on the text with its special tokens, where vLLM works on ids: what only looks like a special token counts as one.
//!
//! What deviates on purpose:
//! - Nothing is lost: text that is no message, messages whose header cannot be read, and messages for others (a tool that
//!   the server would have to run, or a function where nobody asked for calls) are content to the letter. What a model
//!   thinks is reasoning, whether or not the server has a parser for it.
//! - Where a message has been cut within its header, the header is content, as in vLLM, without the stop token.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar},
};
use crate::{
    chat::FunctionTool,
    json::{self, Value},
    parser::{Piece, ToolCall, marker, unread::Unread},
    structured::{Format, Tag},
};

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const CONSTRAIN: &str = "<|constrain|>";
/// What ends a message.
const ENDS: &[&str] = &["<|end|>", "<|return|>", "<|call|>"];
/// What a header may say that its message is written in.
const CONTENT_TYPES: [&str; 3] = ["json", "code", "text"];
/// Tools that are not functions of the request.
const BUILT_IN: &[&str] = &["python", "browser", "container"];

/// Calls that the model begins by itself are held to nothing: they begin as any message does.
pub(super) const OPENAI: CallFormat = CallFormat {
    channels: true,
    ..CallFormat::new("openai", reader, Forcing::Native(Grammar { holds_any: false, ..Grammar::new(grammar) }))
};

/// A call ends the answer, and thoughts may come before it.
fn grammar(demand: &Demand<'_>) -> Format {
    let thought = Format::Tag(Tag::new(
        format!("{CHANNEL}analysis{MESSAGE}"),
        Format::AnyText { excludes: Vec::new() },
        format!("{}{START}assistant", ENDS[0]),
    ));
    let call = demand.tools.iter().flat_map(|tool| {
        let name = tool.name;
        [
            format!("{CHANNEL}commentary to=functions.{name} {CONSTRAIN}json{MESSAGE}"),
            format!(" to=functions.{name}{CHANNEL}commentary {CONSTRAIN}json{MESSAGE}"),
        ]
        .map(|header| Format::Sequence { elements: vec![Format::text(header), tool.json()] })
    });
    let elements = vec![Format::Star { content: Box::new(thought) }, Format::Or { elements: call.collect() }];
    Format::Sequence { elements }
}

fn reader(_tools: &[FunctionTool]) -> Box<dyn CallReader> {
    channels(true)
}

/// A reader of all channels; `calls` says whether calls are wanted.
pub(in crate::parser) fn channels(calls: bool) -> Box<dyn CallReader> {
    Box::new(Channels {
        calls,
        state: HarmonyState::Header { known_role: true },
        held: Unread::default(),
        blank: 0,
        thought: false,
        spoken: false,
    })
}

/// What a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HarmonyMessageKind {
    Reasoning,
    Content,
    Call {
        name: String,
        json: bool,
    },
    /// The message is for a tool that the server would have to run, or from somebody else.
    Foreign,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HarmonyState {
    /// Before the text of a message. The first header lacks the role, which the prompt has.
    Header { known_role: bool },
    /// In the text of a message; `begun` says that some of it went out.
    Text { kind: HarmonyMessageKind, begun: bool },
    /// After a message; `spoken` says that more than white space stands there.
    Outside { spoken: bool },
}

#[derive(Debug)]
struct Channels {
    calls: bool,
    state: HarmonyState,
    held: Unread,
    /// Bytes of it between messages that are certain to be white space.
    blank: usize,
    /// Whether reasoning went out, and content.
    thought: bool,
    spoken: bool,
}

impl Channels {
    /// Makes one step; false where more text is needed.
    fn step(&mut self, out: &mut Vec<Piece>) -> bool {
        match self.state.clone() {
            HarmonyState::Header { known_role } => {
                let Some((end, _)) = self.held.first(&[MESSAGE]) else { return false };
                let header = self.held.take(end + MESSAGE.len());
                let kind = kind(&header[..end], known_role);
                let unwanted = !self.calls && matches!(kind, Some(HarmonyMessageKind::Call { .. }));
                let kind = if unwanted { Some(HarmonyMessageKind::Foreign) } else { kind };
                if matches!(kind, None | Some(HarmonyMessageKind::Foreign)) {
                    self.content(&header, out);
                }
                self.state = match kind {
                    Some(kind) => HarmonyState::Text { kind, begun: false },
                    None => HarmonyState::Outside { spoken: true },
                };
                true
            }
            HarmonyState::Text { kind, .. } => {
                let found = self.held.first(ENDS);
                let waits = matches!(kind, HarmonyMessageKind::Call { .. });
                let begun = if waits { self.held.len() } else { marker::begun(&self.held, ENDS) };
                let end = found.map_or_else(|| self.held.len() - begun, |(at, _)| at);
                let text = self.held.take(end);
                self.text(&kind, &text, found.is_some(), out);
                let Some((_, mark)) = found else { return false };
                let mark = self.held.take(mark.len());
                if kind == HarmonyMessageKind::Foreign {
                    self.content(&mark, out);
                }
                self.state = HarmonyState::Outside { spoken: false };
                true
            }
            HarmonyState::Outside { spoken } => {
                let found = self.held.first(&[START]).map(|(at, _)| at);
                let end = found.unwrap_or_else(|| self.held.len() - marker::begun(&self.held, &[START]));
                // White space between messages belongs to none of them.
                let spoken = spoken || !marker::is_blank(&self.held[self.blank..end]);
                self.blank = end;
                if spoken {
                    let text = self.held.take(end);
                    self.blank = 0;
                    self.content(&text, out);
                    self.state = HarmonyState::Outside { spoken };
                }
                if found.is_some() {
                    self.held.skip(START.len() + if spoken { 0 } else { end });
                    self.blank = 0;
                    self.state = HarmonyState::Header { known_role: false };
                }
                found.is_some()
            }
        }
    }

    /// Gives out text of a message; that of a call is all of it.
    fn text(&mut self, kind: &HarmonyMessageKind, text: &str, ended: bool, out: &mut Vec<Piece>) {
        if let HarmonyMessageKind::Call { name, json } = kind {
            if ended {
                let arguments = if *json { spelled(text) } else { text.to_owned() };
                out.push(Piece::Call(ToolCall::new(name.clone(), arguments)));
            }
            return;
        }
        let HarmonyState::Text { begun, .. } = &mut self.state else { return };
        let first = !std::mem::replace(begun, *begun || !text.is_empty());
        if text.is_empty() {
            return;
        }
        match kind {
            HarmonyMessageKind::Reasoning => {
                // Messages of a kind are lines.
                let line = if first && std::mem::replace(&mut self.thought, true) { "\n" } else { "" };
                out.push(Piece::Reasoning(format!("{line}{text}")));
            }
            HarmonyMessageKind::Content => {
                let line = if first && std::mem::replace(&mut self.spoken, true) { "\n" } else { "" };
                out.push(Piece::Content(format!("{line}{text}")));
            }
            HarmonyMessageKind::Foreign | HarmonyMessageKind::Call { .. } => self.content(text, out),
        }
    }

    /// Gives out what is no message of the answer.
    fn content(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.spoken |= !text.is_empty();
        if !text.is_empty() {
            out.push(Piece::Content(text.to_owned()));
        }
    }
}

impl CallReader for Channels {
    fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        while self.step(out) {}
    }

    fn finish(&mut self, out: &mut Vec<Piece>) {
        let held = self.held.take_all();
        match self.state.clone() {
            HarmonyState::Text { kind, .. } => self.text(&kind, &held, true, out),
            HarmonyState::Outside { spoken: false } if marker::is_blank(&held) => {}
            HarmonyState::Header { .. } | HarmonyState::Outside { .. } => self.content(&held, out),
        }
        self.state = HarmonyState::Outside { spoken: false };
    }

    /// Nothing else reads reasoning there.
    fn is_in_call(&self) -> bool {
        false
    }

    fn is_reasoning(&self) -> bool {
        // As vLLM counts tokens, what is written for tools is reasoning too.
        matches!(
            self.state,
            HarmonyState::Text {
                kind: HarmonyMessageKind::Reasoning | HarmonyMessageKind::Call { .. } | HarmonyMessageKind::Foreign,
                ..
            }
        )
    }
}

/// Arguments as Python writes them, with everything beyond ASCII escaped; unchanged where they are no JSON.
fn spelled(text: &str) -> String {
    let format = json::Format { ensure_ascii: true, ..json::Format::default() };
    Value::parse_literally(text).map_or_else(|_| text.to_owned(), |value| value.to_json_string_with(&format))
}

/// What a header says its message is; `None` where it cannot be read.
fn kind(header: &str, known_role: bool) -> Option<HarmonyMessageKind> {
    let (channel, rest) = channel(header)?;
    let rest = rest.replace(CONSTRAIN, &format!(" {CONSTRAIN}"));
    let mut parts: Vec<_> = rest.split_ascii_whitespace().collect();
    if parts.first() == Some(&"assistant") {
        parts.remove(0);
    } else if !known_role {
        // Somebody else speaks, or nobody.
        let known = matches!(parts.first(), Some(&("user" | "system" | "developer" | "tool")));
        return (known || parts.len() > 1).then_some(HarmonyMessageKind::Foreign);
    }
    let last = parts.pop();
    let (recipient, content_type) = match last {
        Some(part) if part.starts_with("to=") || parts.is_empty() => (Some(part), None),
        part => (parts.pop(), part),
    };
    let known_type = |written: &str| CONTENT_TYPES.contains(&written.strip_prefix(CONSTRAIN).unwrap_or(written));
    let is_type = recipient.is_some_and(|recipient| recipient.starts_with(CONSTRAIN));
    if !parts.is_empty() || !content_type.into_iter().chain(recipient.filter(|_| is_type)).all(known_type) {
        return None;
    }
    let recipient = recipient.filter(|_| !is_type);
    let recipient = recipient.map(|recipient| recipient.strip_prefix("to=").unwrap_or(recipient));
    let json = content_type.is_none_or(|content_type| content_type.contains("json"));
    Some(match (channel.as_deref(), recipient) {
        (None | Some("analysis" | "commentary" | "final"), Some(recipient)) if is_function(recipient) => {
            let name = recipient.strip_prefix("functions.").unwrap_or(recipient).to_owned();
            HarmonyMessageKind::Call { name, json }
        }
        // A model may think in the words of a tool that it was trained with.
        (Some("analysis"), recipient) if recipient.is_none_or(is_built_in) => HarmonyMessageKind::Reasoning,
        (Some("final" | "commentary"), None) => HarmonyMessageKind::Content,
        _ => HarmonyMessageKind::Foreign,
    })
}

/// The channel of a header, and the header without it; `None` where the channel has no name.
fn channel(header: &str) -> Option<(Option<String>, String)> {
    let Some((before, after)) = header.split_once(CHANNEL) else { return Some((None, header.to_owned())) };
    let end = after.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(after.len());
    let (name, after) = after.split_at(end);
    (!name.is_empty()).then(|| (Some(name.to_owned()), format!("{before}{after}")))
}

fn is_function(recipient: &str) -> bool {
    if let Some(name) = recipient.strip_prefix("functions.") {
        // The prompt of the next turn could not name it otherwise.
        return !name.is_empty() && !name.contains("<|");
    }
    !recipient.is_empty() && !recipient.starts_with("<|") && recipient != "assistant" && !is_built_in(recipient)
}

fn is_built_in(recipient: &str) -> bool {
    BUILT_IN.contains(&recipient.split('.').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reasoning, content, and names and arguments.
    fn read(text: &str) -> (String, String, Vec<(String, String)>) {
        let (mut reader, mut pieces) = (channels(true), Vec::new());
        reader.push(text, &mut pieces);
        reader.finish(&mut pieces);
        let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
        for piece in pieces {
            match piece {
                Piece::Reasoning(text) => reasoning.push_str(&text),
                Piece::Content(text) => content.push_str(&text),
                Piece::Call(call) => calls.push((call.name, call.arguments)),
            }
        }
        (reasoning, content, calls)
    }

    #[track_caller]
    fn check(text: &str, reasoning: &str, content: &str, calls: &[(&str, &str)]) {
        let calls = calls.iter().map(|&(name, arguments)| (name.to_owned(), arguments.to_owned())).collect();
        assert_eq!(read(text), (reasoning.to_owned(), content.to_owned(), calls), "{text}");
    }

    #[test]
    fn channels_are_reasoning_content_and_calls() {
        let text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi.<|return|>";
        check(text, "hm", "Hi.", &[]);
        check("<|channel|>analysis<|message|>hm", "hm", "", &[]);
        check("<|channel|>final<|message|>Hi", "", "Hi", &[]);
        let text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>\
                    <|start|>assistant<|channel|>commentary<|message|>c<|end|>\
                    <|start|>assistant<|channel|>final<|message|>d";
        check(text, "a\nb", "c\nd", &[]);
        check("<|channel|>analysis to=python code<|message|>x<|end|>", "x", "", &[]);
    }

    #[test]
    fn calls_are_for_functions_however_their_header_is_written() {
        for header in [
            "<|channel|>commentary to=functions.f json",
            "<|channel|>commentary to=functions.f <|constrain|>json",
            "<|channel|>commentary to=functions.f<|constrain|>json",
            "<|channel|>commentary to=functions.f",
            " to=functions.f<|channel|>commentary json",
            "<|channel|>commentary to=f json",
            "<|channel|>analysis to=functions.f json",
        ] {
            for (begin, end) in
                [("", ""), ("", "<|call|>"), ("<|channel|>final<|message|>a<|end|><|start|>assistant", "")]
            {
                let text = format!("{begin}{header}<|message|>{{\"a\":1, \"b\": \"é\"}}{end}");
                check(&text, "", if begin.is_empty() { "" } else { "a" }, &[("f", r#"{"a": 1, "b": "\u00e9"}"#)]);
            }
        }
        check("<|channel|>commentary to=functions.f json<|message|>{\"a\":", "", "", &[("f", r#"{"a":"#)]);
        check("<|channel|>commentary to=functions.f text<|message|>{\"a\":1}", "", "", &[("f", r#"{"a":1}"#)]);
    }

    #[test]
    fn what_is_no_message_is_content() {
        check("Hello.", "", "Hello.", &[]);
        check("<|channel|>ana", "", "<|channel|>ana", &[]);
        check("<|channel|>final<|message|>a<|end|> and", "", "a and", &[]);
        for foreign in [
            "<|channel|>commentary to=python<|message|>x<|end|>",
            "<|channel|>commentary to=browser.search code<|message|>{\"q\": 1}<|call|>",
            "<|channel|>commentary to=python<|message|>x",
        ] {
            check(foreign, "", foreign, &[]);
        }
        check(
            "<|channel|>final<|message|>a<|end|><|start|>user<|message|>b<|end|>",
            "",
            "auser<|message|>b<|end|>",
            &[],
        );
        check("<|channel|><|message|>a<|end|>", "", "<|channel|><|message|>a<|end|>", &[]);
    }
}
