//! Mistral: `[TOOL_CALLS]` and, before version 11 of its tokenizers, a JSON list of calls; since then the name, `[ARGS]`
//! where the vocabulary has it, and the arguments (vLLM `parser/mistral.py`).
//!
//! What deviates on purpose:
//! - The text says which of the two it is, not the vocabulary: a list or an object right after the marker is the older.
//! - A list without calls, or one that cannot be read, is content to the letter, with what stands before it. vLLM loses
//!   that, and the marker.
//! - What comes after arguments, or after a list, is content, and so is a call without a name. vLLM loses the former.
//! - The id after `[CALL_ID]` is that of the call. vLLM takes it for a part of the name.
//! - A marker within a string of the arguments is text, if the string ends and JSON goes on after it.
//! - A name that another marker follows has no arguments, and is content with the marker before it.
//!
//! Arguments keep the types of their JSON; what is of none that the tool's schema allows becomes what it asks for.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar},
    json_scan::JsonScan,
    mistral_list::{self, MARKER},
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    json::Value,
    parser::{
        Piece, ToolCall, marker,
        unread::{Spaced, Unread},
    },
    structured::{Format, Tag},
};

const ARGS: &str = "[ARGS]";
/// What the id of a call follows, which its name stands before; version 11 of the tokenizers writes it.
const CALL_ID: &str = "[CALL_ID]";
const MARKS: &[&str] = &[MARKER, ARGS, CALL_ID];

/// What the tokenizer has to have.
const NEEDS: &[&str] = &[MARKER];

pub(super) const MISTRAL: CallFormat = CallFormat {
    marks: MARKS,
    begins_call: &[MARKER],
    drops_others: true,
    needs: NEEDS,
    silence_is_null: true,
    ..CallFormat::new("mistral", reader, Forcing::Native(Grammar::new(grammar)))
};

/// The vocabulary says which of the two the model was trained to write.
fn grammar(demand: &Demand<'_>) -> Format {
    if (demand.has_token)(ARGS) {
        let tags = demand.each(|tool| Tag::new(format!("{MARKER}{}{ARGS}", tool.name), tool.json(), ""));
        return demand.list(tags, "", MARKER);
    }
    let begin = |name: &str| format!("{{\"name\": \"{name}\", \"arguments\": ");
    let tags = demand.each(|tool| Tag::new(begin(tool.name), tool.json(), "}"));
    demand.section(&format!("{MARKER}["), tags, ", ", "]")
}

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Box::new(Mistral::new(tools))
}

/// Where in its text the reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum MistralState {
    /// Before the first marker.
    #[default]
    Content,
    /// After the marker, where it is not known yet which format comes.
    Marked,
    /// In a list, or what should be one.
    List,
    /// In a name.
    Name,
    /// In arguments that have not ended.
    Arguments,
    /// After arguments.
    After,
}

#[derive(Debug)]
struct Mistral {
    tools: Signatures,
    state: MistralState,
    /// White space after content. A call of the newer format takes it away.
    space: Spaced,
    /// What was not given out.
    held: Unread,
    run: MarkerRun,
    /// The name of the call whose arguments are read, and the mark after it.
    name: String,
    args: &'static str,
    json: MistralJson,
    /// Whether the text was cut off.
    cut: bool,
}

/// Markers with nothing between them, at the start of what was not given out.
#[derive(Debug, Clone, Copy, Default)]
struct MarkerRun {
    /// Where the last of them ends.
    end: usize,
    /// The bytes that are these and white space.
    looked: usize,
}

/// What was read of the arguments of a call.
#[derive(Debug, Default)]
struct MistralJson {
    scan: JsonScan,
    /// The bytes in which no marker begins that ends them.
    looked: usize,
    /// A marker within a string of them, what was read after it, and up to where.
    held: Option<(usize, JsonScan, usize)>,
}

impl Mistral {
    fn new(tools: &[FunctionTool]) -> Self {
        Self {
            tools: Signatures::of(tools),
            state: MistralState::default(),
            space: Spaced::default(),
            held: Unread::default(),
            run: MarkerRun::default(),
            name: String::new(),
            args: "",
            json: MistralJson::default(),
            cut: false,
        }
    }

    /// Makes one step; `false` where more text is needed.
    fn step(&mut self, out: &mut Vec<Piece>) -> bool {
        match self.state {
            MistralState::Content => self.content(out),
            MistralState::Marked => self.marked(),
            MistralState::List => false,
            MistralState::Name => self.read_name(),
            MistralState::Arguments => self.arguments(out),
            MistralState::After => self.after(out),
        }
    }

    fn content(&mut self, out: &mut Vec<Piece>) -> bool {
        let found = self.held.first(&[MARKER]).map(|(at, _)| at);
        let end = found.unwrap_or_else(|| self.held.len() - marker::begun(&self.held, &[MARKER]));
        self.space.push_str(&self.held.take(end));
        let content = self.space.take_spoken();
        if !content.is_empty() {
            out.push(Piece::Content(content));
        }
        if found.is_some() {
            self.held.skip(MARKER.len());
            self.state = MistralState::Marked;
        }
        found.is_some()
    }

    fn marked(&mut self) -> bool {
        let mut rest = &self.held[self.run.looked..];
        loop {
            rest = rest.trim_start_matches(marker::is_space);
            let Some(after) = rest.strip_prefix(MARKER) else { break };
            rest = after;
            self.run.end = self.held.len() - rest.len();
        }
        self.run.looked = self.held.len() - rest.len();
        let open = [MARKER, ARGS].iter().any(|marker| marker.len() > rest.len() && marker.starts_with(rest));
        if !open {
            let list = rest.starts_with(['[', '{']) && !rest.starts_with(ARGS);
            self.state = if list { MistralState::List } else { MistralState::Name };
            let run = std::mem::take(&mut self.run);
            // A list that cannot be read is content with all of them.
            self.held.skip(if list { 0 } else { run.end });
        }
        !open
    }

    fn read_name(&mut self) -> bool {
        let Some((at, mark)) = self.held.first(&[MARKER, ARGS, "{"]) else { return false };
        let name = self.held.take(at);
        if mark == MARKER {
            self.held.skip(MARKER.len());
            self.without_arguments(&name);
            self.state = MistralState::Marked;
            return true;
        }
        self.name = name;
        self.args = if mark == ARGS { ARGS } else { "" };
        self.held.skip(self.args.len());
        self.json = MistralJson::default();
        self.state = MistralState::Arguments;
        true
    }

    /// What has a marker before it and no arguments, whatever they would be, is content to the letter.
    fn without_arguments(&mut self, name: &str) {
        if !marker::is_blank(name) {
            self.content_of([MARKER, name]);
        }
    }

    /// Takes what turned out to be content.
    fn content_of<'t>(&mut self, texts: impl IntoIterator<Item = &'t str>) {
        texts.into_iter().for_each(|text| self.space.push_str(text));
    }

    fn arguments(&mut self, out: &mut Vec<Piece>) -> bool {
        if self.json.held.is_some() {
            return self.held_marker(out);
        }
        let next = self.held[self.json.looked..].find(MARKER).map(|at| self.json.looked + at);
        self.json.scan.advance(&self.held[..next.unwrap_or(self.held.len())]);
        if let Some(end) = self.json.scan.end() {
            if Value::parse(&self.held[..end]).is_ok() {
                let arguments = self.held.take(end);
                self.call(&arguments, out);
                self.state = MistralState::After;
                return true;
            }
            self.json.scan.give_up();
        }
        let Some(next) = next else {
            self.json.looked = self.held.len() - marker::begun(&self.held[self.json.looked..], &[MARKER]);
            return false;
        };
        if self.json.scan.is_in_string() {
            self.json.held = Some((next, self.json.scan.clone(), next));
        } else {
            self.end_at(next, out);
        }
        true
    }

    /// Reads what follows a marker within a string, which is text if JSON goes on after that.
    fn held_marker(&mut self, out: &mut Vec<Piece>) -> bool {
        let Some((at, scan, read)) = &mut self.json.held else { return false };
        let (at, goes_on) = (*at, scan.goes_on(&self.held[*read..]));
        *read = self.held.len();
        match goes_on {
            None => return false,
            Some(true) => {
                // What is said of one marker in the string is said of all others in it.
                let json = &mut self.json;
                (json.looked, json.held) = (json.scan.end_string(&self.held), None);
            }
            Some(false) => self.end_at(at, out),
        }
        true
    }

    /// Ends the arguments at a marker.
    fn end_at(&mut self, at: usize, out: &mut Vec<Piece>) {
        let arguments = self.held.take(at);
        self.call(&arguments, out);
        self.held.skip(MARKER.len());
        self.state = MistralState::Name;
        self.json = MistralJson::default();
    }

    fn after(&mut self, out: &mut Vec<Piece>) -> bool {
        let found = self.content(out);
        if found {
            self.state = MistralState::Name;
        }
        found
    }

    /// Gives out the call whose arguments are known; what has no name is none, and content to the letter.
    fn call(&mut self, arguments: &str, out: &mut Vec<Piece>) {
        let written = std::mem::take(&mut self.name);
        let (name, id) = written.split_once(CALL_ID).unwrap_or((&written, ""));
        let (name, id) = (marker::trim(name), marker::trim(id));
        if name.is_empty() {
            if !marker::is_blank(arguments) {
                self.content_of([MARKER, &written, self.args, arguments]);
            }
            return;
        }
        let spoken = self.space.take_spoken();
        if !spoken.is_empty() {
            out.push(Piece::Content(spoken));
        }
        self.space.clear();
        let (arguments, unread) = match first_value(arguments) {
            ("", _) => (if self.cut && self.held.is_empty() { "{" } else { "{}" }, ""),
            read => read,
        };
        let arguments = self.tools.fit(name, arguments.to_owned());
        let mut call = ToolCall::with_short_id(name.to_owned(), arguments);
        if !id.is_empty() {
            id.clone_into(&mut call.id);
        }
        out.push(Piece::Call(call));
        self.space.push_str(unread);
    }
}

/// The first JSON value of `text`, as it is written, and what follows it; all of the text where it has none.
fn first_value(text: &str) -> (&str, &str) {
    let text = marker::trim(text);
    let end = Value::parse_start(text).map_or(text.len(), |(_, end)| end);
    text.split_at(end)
}

impl CallReader for Mistral {
    fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        while self.step(out) {}
    }

    fn cut_off(&mut self) {
        self.cut = true;
    }

    fn finish(&mut self, out: &mut Vec<Piece>) {
        // Arguments that were cut off may have gone on after the marker.
        while let Some((at, ..)) = self.json.held.take().filter(|_| !self.cut) {
            self.end_at(at, out);
            while self.step(out) {}
        }
        let held = self.held.take_all();
        match self.state {
            MistralState::Content | MistralState::After => self.space.push_str(&held),
            // As in vLLM, a call that has not begun is nothing. A name may have been another one.
            MistralState::Marked | MistralState::Name => self.without_arguments(&held),
            MistralState::List => match mistral_list::calls(&held, &self.tools) {
                Some(calls) => {
                    out.push(Piece::Content(self.space.take_all()));
                    out.extend(calls);
                }
                None => self.content_of([MARKER, &held]),
            },
            MistralState::Arguments => self.call(&held, out),
        }
        let content = self.space.take_all();
        if !content.is_empty() {
            out.push(Piece::Content(content));
        }
    }

    fn is_in_call(&self) -> bool {
        !matches!(self.state, MistralState::Content | MistralState::After)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content, and names and arguments.
    fn read(text: &str) -> (String, Vec<(String, String)>) {
        let (mut reader, mut pieces) = (Mistral::new(&[]), Vec::new());
        reader.push(text, &mut pieces);
        reader.finish(&mut pieces);
        let (mut content, mut calls) = (String::new(), Vec::new());
        for piece in pieces {
            match piece {
                Piece::Content(text) => content.push_str(&text),
                Piece::Call(call) => {
                    assert!(call.id.len() == 9 && call.id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
                    calls.push((call.name, call.arguments));
                }
                Piece::Reasoning(text) => panic!("{text}"),
            }
        }
        (content, calls)
    }

    #[track_caller]
    fn check(text: &str, content: &str, calls: &[(&str, &str)]) {
        let calls = calls.iter().map(|&(name, arguments)| (name.to_owned(), arguments.to_owned())).collect();
        assert_eq!(read(text), (content.to_owned(), calls), "{text}");
    }

    #[test]
    fn lists_are_spelled_as_python_spells_them() {
        check(r#"so [TOOL_CALLS] [{"name": "f", "arguments":{"a":1}}]"#, "so ", &[("f", r#"{"a": 1}"#)]);
        check(r#"[TOOL_CALLS]{"name": "f", "arguments": "{\"a\":1}"}x"#, "x", &[("f", r#"{"a":1}"#)]);
        check(r#"[TOOL_CALLS][TOOL_CALLS][{"name": "f"}, 1, {"x": 1}]"#, r#"1{"x": 1}"#, &[("f", "{}")]);
        check(r#"[TOOL_CALLS][{"name": "f", "id": "x", "why": "y"}] so"#, r#"{"why": "y"} so"#, &[("f", "{}")]);
        check(r#"[TOOL_CALLS][x [{"name": "f", "arguments": []}]"#, "[x ", &[("f", "[]")]);
        let nameless = r#"[TOOL_CALLS][{"name": 1, "arguments": null}] so"#;
        for text in [
            nameless,
            "so [TOOL_CALLS] []",
            "[TOOL_CALLS][{",
            "[TOOL_CALLS] {\"a\": 1}",
            "a [TOOL_CALLS][A",
            " [TOOL_",
            "so ",
        ] {
            check(text, text, &[]);
        }
    }

    #[test]
    fn names_come_with_their_arguments_to_the_letter() {
        check(r#"so [TOOL_CALLS]f{"a":1}"#, "so", &[("f", r#"{"a":1}"#)]);
        check(
            r#"[TOOL_CALLS]f[ARGS]{"a": "{"}[TOOL_CALLS]g [ARGS]{} so."#,
            " so.",
            &[("f", r#"{"a": "{"}"#), ("g", "{}")],
        );
        check(r#"[TOOL_CALLS]f{"a": 1} {"b": 2}"#, r#" {"b": 2}"#, &[("f", r#"{"a": 1}"#)]);
        check(r#"[TOOL_CALLS]f{"a": 1,} x "#, "", &[("f", r#"{"a": 1,} x"#)]);
        check(r#"[TOOL_CALLS]f{"a": "[TOOL_CALLS]g{}"#, "", &[("f", r#"{"a": ""#), ("g", "{}")]);
        check("[TOOL_CALLS]f[ARGS] 5 x", " x", &[("f", "5")]);
        check("[TOOL_CALLS]f[ARGS]", "", &[("f", "{}")]);
        check("[TOOL_CALLS]f", "[TOOL_CALLS]f", &[]);
        check(r#"so [TOOL_CALLS]f[TOOL_CALLS]g{"a": 1}"#, "so [TOOL_CALLS]f", &[("g", r#"{"a": 1}"#)]);
        check("[TOOL_CALLS]f [TOOL_CALLS]g[ARGS]{} so", "[TOOL_CALLS]f so", &[("g", "{}")]);
        check("[TOOL_CALLS]f{}[TOOL_CALLS] [TOOL_CALLS]g{}", "", &[("f", "{}"), ("g", "{}")]);
        check("[TOOL_CALLS] [TOOL_CALLS]f{}", "", &[("f", "{}")]);
        check(r#"[TOOL_CALLS]f[TOOL_CALLS][{"name": "g"}]"#, "[TOOL_CALLS]f", &[("g", "{}")]);
        check("[TOOL_CALLS]f[TOOL_CALLS]g", "[TOOL_CALLS]f[TOOL_CALLS]g", &[]);
        check("[TOOL_CALLS][ARGS]{}", "[TOOL_CALLS][ARGS]{}", &[]);
        check("so [TOOL_CALLS]", "so ", &[]);
    }

    #[test]
    fn an_id_of_the_models_is_that_of_the_call() {
        let (mut reader, mut pieces) = (Mistral::new(&[]), Vec::new());
        reader.push(r#"[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{"a": 1}[TOOL_CALLS]g [CALL_ID] [ARGS]{}"#, &mut pieces);
        reader.finish(&mut pieces);
        let calls: Vec<_> = pieces
            .into_iter()
            .map(|piece| match piece {
                Piece::Call(call) => (call.id, call.name, call.arguments),
                piece => panic!("{piece:?}"),
            })
            .collect();
        assert_eq!(calls[0], ("abc123def".to_owned(), "f".to_owned(), r#"{"a": 1}"#.to_owned()));
        assert_eq!((calls[1].0.len(), calls[1].1.as_str()), (9, "g"));
        check("[TOOL_CALLS][CALL_ID]abc[ARGS]{}", "[TOOL_CALLS][CALL_ID]abc[ARGS]{}", &[]);
        check("[TOOL_CALLS]f[CALL_ID]abc[TOOL_CALLS]g{}", "[TOOL_CALLS]f[CALL_ID]abc", &[("g", "{}")]);
    }

    #[test]
    fn a_call_goes_out_as_soon_as_its_arguments_end() {
        let (mut reader, mut pieces) = (Mistral::new(&[]), Vec::new());
        reader.push(r#"[TOOL_CALLS]f{"a": {}"#, &mut pieces);
        assert_eq!(pieces.len(), 0);
        reader.push("}", &mut pieces);
        assert_eq!(pieces.len(), 1);
    }
}
