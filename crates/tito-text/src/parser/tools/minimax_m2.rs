//! MiniMax M2: `<minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>…` (vLLM
//! `parser/minimax_m2.py`, called `minimax_m2`).
//!
//! Names may stand in either kind of quotes or in none. Only functions of the request are called. The tool's schema says
//! what type a value has.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written},
    machine::{self, Act, Arguments, Draft, Grammar, Reading, ToolCallState},
    one_by_one::Spelling,
    parameters,
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    parser::marker,
    structured::{Format, Tag},
};

const CALLS: &str = "<minimax:tool_call>";
const CALLS_END: &str = "</minimax:tool_call>";
const INVOKE: [&str; 3] = ["<invoke name=\"", "<invoke name='", "<invoke name="];
const INVOKE_END: &str = "</invoke>";
const NAME_END: [&str; 3] = ["\">", "'>", ">"];
const PARAMETER: &str = "<parameter name=";
const PARAMETER_END: &str = "</parameter>";
/// What is text everywhere, and holds a `>` that ends no name.
const TEXT: [&str; 2] = ["<think>", "</think>"];

/// All that may be special tokens.
const MARKS: &[&str] = &[
    CALLS,
    CALLS_END,
    INVOKE[0],
    INVOKE[1],
    INVOKE[2],
    INVOKE_END,
    NAME_END[0],
    NAME_END[1],
    NAME_END[2],
    PARAMETER,
    PARAMETER_END,
    TEXT[0],
    TEXT[1],
];

pub(super) const MINIMAX_M2: CallFormat = CallFormat {
    begins_call: &[CALLS],
    ..CallFormat::engine(
        "minimax_m2",
        reader,
        Forcing::Native(Written { splits_schemas: true, ..Written::new(grammar) }),
        MARKS,
    )
};

/// Names in double quotes, and a line for each mark.
fn grammar(demand: &Demand<'_>) -> Format {
    let spelling = Spelling::new("<parameter name=\"", "\">", "</parameter>\n");
    let begin = |name: &str| format!("<invoke name=\"{name}\">\n");
    let tags = demand.each(|tool| Tag::new(begin(tool.name), spelling.arguments(tool), format!("{INVOKE_END}\n")));
    demand.section(&format!("{CALLS}\n"), tags, "", CALLS_END)
}

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader::<MinimaxM2>(tools)
}

#[derive(Debug)]
struct MinimaxM2;

impl Grammar for MinimaxM2 {
    const MARKERS: &'static [&'static str] = MARKS;

    fn step(state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        let invokes = INVOKE.contains(&marker);
        Some(match (state, marker) {
            (ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between, CALLS) => {
                (ToolCallState::Preamble, Act::Drop)
            }
            (ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between, CALLS_END) => {
                (ToolCallState::Content, Act::Drop)
            }
            (ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between, _) if invokes => {
                (ToolCallState::Name, Act::Open)
            }
            (ToolCallState::Name, _) if NAME_END.contains(&marker) => (ToolCallState::Arguments, Act::Drop),
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, INVOKE_END) => {
                (ToolCallState::Between, Act::Close)
            }
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, CALLS_END) => {
                (ToolCallState::Content, Act::Close)
            }
            // Within a value it is text.
            (ToolCallState::Name | ToolCallState::Arguments, _) if invokes => (ToolCallState::Name, Act::Next),
            (ToolCallState::Arguments | ToolCallState::Value, PARAMETER) => (ToolCallState::Value, Act::Keep),
            (ToolCallState::Value, PARAMETER_END) => (ToolCallState::Arguments, Act::Keep),
            _ => return None,
        })
    }

    fn read(draft: Draft, tools: &Signatures) -> Reading {
        machine::read_call(&draft, tools, |name| tools.allow(name), arguments)
    }
}

/// The values of `<parameter name="KEY">VALUE</parameter>`. Where the end is missing, the next parameter ends a value, or
/// the end of the call.
fn arguments(body: &str) -> Arguments {
    let mut arguments = Arguments::default();
    let mut rest = body;
    while let Some((start, after)) = parameters::first(rest, opening) {
        arguments.unread.push_str(marker::trim(&rest[..start]));
        let Some((key, value)) = parameter_name(after) else {
            // What is no name is text, but at the end of the text it may have become one.
            let next = starts(after).find(|at| opening(&after[*at..]).is_some());
            let Some(next) = next else {
                let key = marker::trim(after.trim_start().trim_start_matches(['"', '\'']));
                arguments.begun = Some((key.to_owned(), rest[start..].to_owned()));
                return arguments;
            };
            arguments.unread.push_str(&rest[start..rest.len() - after.len() + next]);
            rest = &after[next..];
            continue;
        };
        let (end, next) = parameters::value_end(value, opening).unwrap_or_else(|| {
            arguments.open = true;
            (value.len(), "")
        });
        let written = &rest[start..rest.len() - next.len()];
        match marker::trim(key) {
            "" => arguments.unread.push_str(written),
            key => arguments.insert(key, &value[..end], written),
        }
        rest = next;
    }
    arguments.unread.push_str(marker::trim(rest));
    arguments
}

/// The name of a parameter, and the text from its value on.
fn parameter_name(text: &str) -> Option<(&str, &str)> {
    ["\"", "'", ""].iter().find_map(|quote| {
        let (key, rest) = key(text.trim_start(), quote)?;
        Some((key, rest.trim_start().strip_prefix('>')?))
    })
}

fn starts(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices('<').map(|(at, _)| at)
}

/// The text after `<parameter name=`.
fn opening(text: &str) -> Option<&str> {
    let rest = parameters::tag(text, &["parameter"])?;
    let named = rest.trim_start();
    let spaced = named.len() < rest.len();
    named.strip_prefix("name").filter(|_| spaced)?.trim_start().strip_prefix('=')
}

/// A key in the given quotes, and what comes after it.
fn key<'t>(text: &'t str, quote: &str) -> Option<(&'t str, &'t str)> {
    if !quote.is_empty() {
        return text.strip_prefix(quote)?.split_once(quote);
    }
    let end = text.find(|c: char| c == '>' || c.is_whitespace())?;
    (end > 0).then(|| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        check(
            "minimax_m2",
            &[
                (
                    "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"integer\">7</parameter>\n<parameter name=\"number\">2.0</parameter>\n<parameter name=\"boolean\">true</parameter>\n<parameter name=\"object\">{\"b\": [1.0, null]}</parameter>\n<parameter name=\"array\">[1]</parameter>\n<parameter name=\"string\">1</parameter>\n<parameter name=\"nullable\">null</parameter>\n<parameter name=\"other\">1</parameter>\n</invoke>\n</minimax:tool_call>",
                    "",
                    &[(
                        "f",
                        r#"{"integer": 7, "number": 2, "boolean": true, "object": {"b": [1.0, null]}, "array": [1], "string": "1", "nullable": null, "other": "1"}"#,
                    )],
                ),
                (
                    "I look.\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"integer\">1</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call> done",
                    "I look. done",
                    &[("f", r#"{"integer": 1}"#), ("g", "{}")],
                ),
                (
                    "a <minimax:tool_call>\n<invoke name=\"h\">\n</invoke>\n</minimax:tool_call> b",
                    "a <minimax:tool_call>\n<invoke name=\"h\">\n</invoke> b",
                    &[],
                ),
                (
                    "a <minimax:tool_call>\n<invoke name=\" g \">\n</invoke>\n</minimax:tool_call> b",
                    "a b",
                    &[("g", "{}")],
                ),
                (
                    "<invoke name='f'><parameter name='string'> é\n</parameter></invoke> x",
                    " x",
                    &[("f", "{\"string\": \" é\\n\"}")],
                ),
                (
                    r#"<invoke name=f>< parameter  name = string >a<parameter name="integer">7</ parameter></invoke>"#,
                    "",
                    &[("f", r#"{"string": "a", "integer": 7}"#)],
                ),
                ("so <minimax:tool_call> x", "so <minimax:tool_call> x", &[]),
                ("so </minimax:tool_call> x", "so  x", &[]),
                (
                    "<minimax:tool_call>\n<invoke name=\"f\"><parameter name=\"string\">a\n</minimax:tool_call>",
                    "",
                    &[("f", "{\"string\": \"a\\n\"}")],
                ),
                (r#"<invoke name="f""#, r#"<invoke name="f""#, &[]),
                (
                    "<minimax:tool_call>\n<invoke name=\"f\"><parameter name=\"a>b\">1</parameter><parameter name=\"\">2</parameter></invoke>\n</minimax:tool_call>",
                    "\n<parameter name=\"\">2</parameter>",
                    &[("f", r#"{"a>b": "1"}"#)],
                ),
                (r#"1 > 0 "> '>"#, r#"1 > 0 "> '>"#, &[]),
            ],
        );
    }
}
