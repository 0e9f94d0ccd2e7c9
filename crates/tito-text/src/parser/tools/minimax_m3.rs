//! MiniMax M3: `<invoke name="NAME">` with an element for each argument, `<KEY>VALUE</KEY>`, all between `<tool_call>` and
//! its end, where `]<]minimax[>[` stands before each tag (vLLM `parser/minimax_m3.py`, called `minimax_m3`).
//!
//! Elements in a value make it an object, or an array where the tool's schema wants one and they are all called `item`.
//! Elements that are called alike make a list. Where the schema says that a value is text, they are that. Text beside elements is the value of `$text`. The schema says what type a
//! text has.
//!
//! What deviates on purpose: the end of an outer element, or of the call, ends an element whose own end is missing, and
//! other markup in a value is text. vLLM loses that argument, and those after it.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::Forcing,
    machine::{self, Act, Arguments, Draft, Grammar, Reading, ToolCallState},
    schema::Signatures,
    schema_types::Schemas,
};
use crate::{
    chat::FunctionTool,
    json::{MAX_DEPTH, Object, Value},
    parser::marker,
};

/// What stands before each tag.
const NAMESPACE: &str = "]<]minimax[>[";
const CALLS: &str = "]<]minimax[>[<tool_call>";
const CALLS_END: &str = "]<]minimax[>[</tool_call>";
const INVOKE: [&str; 3] = ["]<]minimax[>[<invoke name=\"", "]<]minimax[>[<invoke name='", "]<]minimax[>[<invoke name="];
const INVOKE_END: &str = "]<]minimax[>[</invoke>";
const NAME_END: [&str; 3] = ["\">", "'>", ">"];
/// What the elements of an array are called.
const ITEM: &str = "item";
/// How deep elements nest that are read; what is within them is text.
const DEEPEST: usize = if MAX_DEPTH < 128 { MAX_DEPTH - 1 } else { 127 };

pub(super) const MINIMAX_M3: CallFormat = CallFormat {
    keeps_special_tokens: false,
    silence_is_null: true,
    marks: &[NAMESPACE],
    begins_call: &[CALLS],
    ..CallFormat::new("minimax_m3", reader, Forcing::BareJson)
};

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader(MinimaxM3, tools)
}

#[derive(Debug)]
struct MinimaxM3;

impl Grammar for MinimaxM3 {
    const MARKERS: &'static [&'static str] =
        &[CALLS, CALLS_END, INVOKE[0], INVOKE[1], INVOKE[2], INVOKE_END, NAME_END[0], NAME_END[1], NAME_END[2]];
    const ARGUMENTS_BEGIN: Option<char> = Some(']');

    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        let invokes = INVOKE.contains(&marker);
        Some(match (state, marker) {
            (ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between, CALLS) => {
                (ToolCallState::Preamble, Act::Drop)
            }
            (ToolCallState::Preamble | ToolCallState::Between, CALLS_END) => (ToolCallState::Content, Act::Drop),
            (ToolCallState::Preamble | ToolCallState::Between, _) if invokes => (ToolCallState::Name, Act::Open),
            (ToolCallState::Name, _) if NAME_END.contains(&marker) => (ToolCallState::Arguments, Act::Drop),
            (ToolCallState::Name | ToolCallState::Arguments, INVOKE_END) => (ToolCallState::Between, Act::Close),
            (ToolCallState::Name | ToolCallState::Arguments, CALLS_END) => (ToolCallState::Content, Act::Close),
            (ToolCallState::Name | ToolCallState::Arguments, CALLS) => (ToolCallState::Preamble, Act::Close),
            (ToolCallState::Name | ToolCallState::Arguments, _) if invokes => (ToolCallState::Name, Act::Next),
            _ => return None,
        })
    }

    fn read(&self, draft: Draft, tools: &Signatures) -> Reading {
        let schemas = tools.schemas(marker::trim(&draft.name));
        machine::read_call(&draft, tools, |name| !name.contains('<'), |body| arguments(body, schemas.as_ref()))
    }
}

/// The values of the elements.
fn arguments(body: &str, schemas: Option<&Schemas<'_>>) -> Arguments {
    let mut source = Source { rest: body, path: Vec::new(), open: false, begun: None };
    let Inside { text, elements, .. } = source.inside();
    let values = object(&elements, schemas);
    Arguments {
        values,
        unread: marker::trim(&text).to_owned(),
        open: source.open,
        begun: source.begun,
        ..Arguments::default()
    }
}

/// What stands in an element.
#[derive(Debug, Default)]
struct Inside<'t> {
    /// All of it, as it was written.
    written: &'t str,
    text: String,
    elements: Vec<(&'t str, Inside<'t>)>,
}

/// The text of elements.
struct Source<'t> {
    rest: &'t str,
    /// The elements that are open, the outermost first.
    path: Vec<&'t str>,
    /// Whether an element has no end.
    open: bool,
    /// An argument whose name has no end.
    begun: Option<(String, String)>,
}

impl<'t> Source<'t> {
    /// What stands before the end of the innermost element, which is taken too.
    fn inside(&mut self) -> Inside<'t> {
        let all = self.rest;
        let mut inside = Inside::default();
        while let Some((text, tag)) = self.rest.split_once(NAMESPACE) {
            inside.text.push_str(text);
            if let Some(end) = tag.strip_prefix("</").filter(|end| self.ends(end)) {
                inside.written = &all[..all.len() - tag.len() - NAMESPACE.len()];
                self.end(tag, end);
                return inside;
            }
            match self.name(tag) {
                Some(name) => {
                    self.rest = &tag[name.len() + 2..];
                    self.path.push(name);
                    let element = self.inside();
                    self.path.pop();
                    inside.elements.push((name, element));
                }
                None if self.path.is_empty()
                    && tag.starts_with('<')
                    && !tag.contains('>')
                    && !tag.starts_with("</") =>
                {
                    self.begun = Some((tag[1..].to_owned(), format!("{NAMESPACE}{tag}")));
                    self.rest = "";
                    return inside;
                }
                None => {
                    inside.text.push_str(NAMESPACE);
                    self.rest = tag;
                }
            }
        }
        let open = !self.path.is_empty();
        let begun = if open { marker::begun(self.rest, &[NAMESPACE]) } else { 0 };
        inside.text.push_str(&self.rest[..self.rest.len() - begun]);
        inside.written = &all[..all.len() - begun];
        self.open |= open;
        self.rest = "";
        inside
    }

    /// Whether this, after `</`, ends one of the open elements, or may do so where the text is cut off.
    fn ends(&self, end: &str) -> bool {
        match end.split_once('>') {
            Some((name, _)) => self.path.contains(&name),
            None => self.path.last().is_some_and(|name| name.starts_with(end)),
        }
    }

    /// Takes the end of the innermost element; that of an outer one is left for it.
    fn end(&mut self, tag: &'t str, end: &'t str) {
        match end.split_once('>') {
            Some((name, rest)) if self.path.last() == Some(&name) => self.rest = rest,
            Some(_) => self.rest = &self.rest[self.rest.len() - tag.len() - NAMESPACE.len()..],
            None => {
                self.open = true;
                self.rest = "";
            }
        }
    }

    /// The name in the tag that begins an element.
    fn name(&self, tag: &'t str) -> Option<&'t str> {
        // A tag that has no end before the next one is none.
        let tag = tag.split(NAMESPACE).next()?;
        let (name, _) = tag.strip_prefix('<')?.split_once('>')?;
        let named = !marker::is_blank(name) && !name.starts_with('/');
        (named && self.path.len() < DEEPEST).then_some(name)
    }
}

/// Elements as the values of an object.
fn object(elements: &[(&str, Inside<'_>)], schemas: Option<&Schemas<'_>>) -> Object {
    let mut object = Object::default();
    let mut lists = Vec::new();
    for (name, inside) in elements {
        let schema = schemas.and_then(|schemas| schemas.property(name));
        let value = value(inside, schema.as_ref());
        match object.get_mut(*name) {
            None => {
                object.insert((*name).to_owned(), value);
            }
            Some(Value::Array(items)) if lists.contains(name) => items.push(value),
            Some(first) => {
                *first = Value::Array(vec![std::mem::replace(first, Value::Null), value]);
                lists.push(*name);
            }
        }
    }
    object
}

fn value(Inside { written, text, elements }: &Inside<'_>, schemas: Option<&Schemas<'_>>) -> Value {
    let types = schemas.map(Schemas::types);
    let allows = |name: &str| types.as_ref().is_some_and(|types| types.allow(name));
    if schemas.is_some_and(Schemas::is_text) {
        return Value::from(*written);
    }
    if elements.is_empty() {
        return match marker::is_blank(text) && !allows("string") {
            true if allows("array") => Value::Array(Vec::new()),
            true if allows("object") => Value::from(Object::default()),
            _ => Value::from(text.as_str()),
        };
    }
    if allows("array") && marker::is_blank(text) && elements.iter().all(|(name, _)| *name == ITEM) {
        let items = elements.iter().enumerate().map(|(index, (_, inside))| {
            let schemas = schemas.and_then(|schemas| schemas.item(index));
            value(inside, schemas.as_ref())
        });
        return Value::Array(items.collect());
    }
    let mut object = object(elements, schemas);
    if !marker::is_blank(text) {
        let mut key = "$text".to_owned();
        while object.contains_key(&key) {
            key.insert(0, '$');
        }
        object.insert(key, Value::from(text.as_str()));
    }
    Value::from(object)
}

#[cfg(test)]
mod tests {
    use super::NAMESPACE;
    use crate::parser::tools::tests::{Row, check, folded, tool};

    #[test]
    fn texts_are_read_so() {
        let spelled = |text: &str| text.replace('~', NAMESPACE);
        let rows: &[Row<'_>] = &[
            (
                "I look.~<tool_call>\n~<invoke name=\"f\">\n~<integer>7~</integer>\n~<string>é <b>1</b>~</string>\n~<object>~<b>1~</b>~<c>~<d>x~</d>~</c>~</object>\n~<array>~<item>1~</item>~<item>~<e>2~</e>~</item>~</array>\n~<other>1~</other>\n~</invoke>\n~<invoke name='g'>~</invoke>\n~</tool_call> done",
                "I look. done",
                &[
                    (
                        "f",
                        r#"{"integer": 7, "string": "é <b>1</b>", "object": {"b": "1", "c": {"d": "x"}}, "array": ["1", {"e": "2"}], "other": "1"}"#,
                    ),
                    ("g", "{}"),
                ],
            ),
            (
                "~<tool_call>~<invoke name=f>~<array>~</array>~<object> ~</object>~<x>1~</x>~<x>2~</x>~<x>3~</x>~<y>a~<z>b~</z>c~</y>~</invoke>~</tool_call>",
                "",
                &[("f", r#"{"array": [], "object": {}, "x": ["1", "2", "3"], "y": {"z": "b", "$text": "ac"}}"#)],
            ),
            (
                "~<tool_call>~<invoke name=\"f\">~<object>~<b>1~</object>~<integer>2~</x>~</invoke>~<invoke name=\"g\">~<invoke name=\"h\">~</tool_call>",
                "",
                &[("f", r#"{"object": {"b": "1"}, "integer": "2~</x>"}"#), ("g", "{}"), ("h", "{}")],
            ),
            (
                "~<tool_call>~<invoke name=\"f\">so~<integer>2~</integer>~</tool_call>",
                "so",
                &[("f", r#"{"integer": 2}"#)],
            ),
            (
                "~<tool_call>~<invoke name=\"f\">~<a>x ~<b y~</a>~<c>1~</c>~</invoke>~</tool_call>",
                "",
                &[("f", r#"{"a": "x ~<b y", "c": "1"}"#)],
            ),
            (
                "~<tool_call>~<invoke name=\"f\">~<a>1~</a>~<tool_call>~<invoke name=\"g\">~</invoke>~</tool_call>",
                "",
                &[("f", r#"{"a": "1"}"#), ("g", "{}")],
            ),
            ("~<tool_call>~<invoke name=\"f\">~<string>é~</str", "", &[("f", r#"{"string": "é"#)]),
            ("~<tool_call>~<invoke name=\"f\">~<object>~<b>1]<]mini", "", &[("f", r#"{"object": {"b": "1"#)]),
            ("~<tool_call>~<invoke name=\"f\">~<str", "", &[("f", r#"{"str"#)]),
            ("so ~<tool_call>~<invoke name=\"f", "so ~<tool_call>~<invoke name=\"f", &[]),
            ("so ~<tool_call> on", "so ~<tool_call> on", &[]),
            ("~<invoke name=\"f\">~</invoke>", "~<invoke name=\"f\">~</invoke>", &[]),
        ];
        for (text, content, calls) in rows {
            let calls: Vec<_> = calls.iter().map(|(name, arguments)| (*name, spelled(arguments))).collect();
            let calls: Vec<_> = calls.iter().map(|(name, arguments)| (*name, arguments.as_str())).collect();
            check("minimax_m3", &[(&spelled(text), &spelled(content), &calls)]);
        }
    }

    #[test]
    fn elements_that_are_not_named_may_have_a_schema_too() {
        let text =
            "~<tool_call>~<invoke name=\"n\">~<x>1~</x>~<y>2~</y>~</invoke>~</tool_call>".replace('~', NAMESPACE);
        let tools = [tool("n", r#"{"type": "object", "additionalProperties": {"type": "integer"}}"#)];
        let read = folded("minimax_m3", &tools, [text.as_str()]);
        assert_eq!(read.1, [("n".to_owned(), r#"{"x": 1, "y": 2}"#.to_owned())]);
    }

    #[test]
    fn elements_may_nest_without_end() {
        let text =
            format!("{NAMESPACE}<tool_call>{NAMESPACE}<invoke name=\"f\">{}", format!("{NAMESPACE}<a>").repeat(10_000));
        let read = folded("minimax_m3", &[], [text.as_str()]);
        assert_eq!(read.1.len(), 1);
    }
}
