//! Hunyuan 3 and 4, called Hy: calls between `<tool_calls>` and its end (vLLM `tool_parsers/hy_v3_tool_parser.py` and
//! `tool_parsers/hy_v4_tool_parser.py`):
//!
//! - `hy_v3`: `<tool_call>NAME<tool_sep><arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`.
//! - `hy_v4`: likewise, without `<tool_sep>`.
//!
//! Functions are called by any name. The tool's schema says what type a value has.
//!
//! What deviates on purpose:
//! - Marks have no suffix (`<tool_calls:…>`). A checkpoint whose marks have one is refused at the start, because it lacks
//!   these tokens.
//! - `null` is null where the schema allows it; in vLLM it is a text.
//! - One call that cannot be read is content, and spoils no others; `hy_v4` in vLLM refuses all.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written},
    one_by_one::Spelling,
    pairs::{self, Marks, Pairs},
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    structured::{Format, Tag},
};

const CALLS: &str = "<tool_calls>";
const CALLS_END: &str = "</tool_calls>";
const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
const SEPARATOR: &str = "<tool_sep>";
const KEY: &str = "<arg_key>";
const KEY_END: &str = "</arg_key>";
const VALUE: &str = "<arg_value>";
const VALUE_END: &str = "</arg_value>";

pub(super) const HY_V3: CallFormat = call_format::<HyV3>("hy_v3", on_lines);
pub(super) const HY_V4: CallFormat = call_format::<HyV4>("hy_v4", on_one_line);

const fn call_format<P: Pairs>(name: &'static str, grammar: fn(&Demand<'_>) -> Format) -> CallFormat {
    let written = Written { splits_schemas: true, ..Written::new(grammar) };
    CallFormat {
        begins_call: &[CALLS],
        marks: P::TOKENS,
        needs: &[CALLS, CALLS_END],
        ..CallFormat::new(name, reader::<P>, Forcing::Native(written))
    }
}

/// What Hy 3 writes.
fn on_lines(demand: &Demand<'_>) -> Format {
    let spelling = Spelling::new(KEY, "</arg_key>\n<arg_value>", "</arg_value>\n");
    let begin = |name: &str| format!("{CALL}{name}{SEPARATOR}\n");
    let tags = demand.each(|tool| Tag::new(begin(tool.name), spelling.arguments(tool), CALL_END));
    demand.section(&format!("{CALLS}\n"), tags, "\n", &format!("\n{CALLS_END}"))
}

/// What Hy 4 writes.
fn on_one_line(demand: &Demand<'_>) -> Format {
    let spelling = Spelling::new(KEY, "</arg_key><arg_value>", VALUE_END);
    let tags = demand.each(|tool| Tag::new(format!("{CALL}{}", tool.name), spelling.arguments(tool), CALL_END));
    demand.section(CALLS, tags, "", CALLS_END)
}

fn reader<P: Pairs>(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    pairs::reader::<P>(tools)
}

#[derive(Debug)]
struct HyV3;

impl Pairs for HyV3 {
    const MARKS: Marks = Marks { separator: Some(SEPARATOR), ..HyV4::MARKS };
    const TOKENS: &'static [&'static str] =
        &[CALLS, CALLS_END, CALL, CALL_END, SEPARATOR, KEY, KEY_END, VALUE, VALUE_END];

    fn allows(name: &str, _tools: &Signatures) -> bool {
        pairs::is_name(name)
    }
}

#[derive(Debug)]
struct HyV4;

impl Pairs for HyV4 {
    const MARKS: Marks = Marks {
        section: Some([CALLS, CALLS_END]),
        call: [CALL, CALL_END],
        separator: None,
        key: [KEY, KEY_END],
        kind: None,
        value: [VALUE, VALUE_END],
    };
    const TOKENS: &'static [&'static str] = &[CALLS, CALLS_END, CALL, CALL_END, KEY, KEY_END, VALUE, VALUE_END];

    fn allows(name: &str, _tools: &Signatures) -> bool {
        pairs::is_name(name)
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        let two = "I look.\n<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>integer</arg_key>\n<arg_value>7</arg_value>\n\
                   <arg_key>string</arg_key>\n<arg_value> 7\n</arg_value>\n</tool_call>\n<tool_call>h<tool_sep>\n\
                   <arg_key>a</arg_key>\n<arg_value>7</arg_value>\n</tool_call>\n</tool_calls> on";
        let read: &[_] = &[("f", "{\"integer\": 7, \"string\": \" 7\\n\"}"), ("h", r#"{"a": "7"}"#)];
        let cut = "<tool_calls><tool_call>f<tool_sep><arg_key>string</arg_key><arg_value>San Fr";
        check(
            "hy_v3",
            &[
                (two, "I look.\n on", read),
                ("<tool_calls><tool_call>g<tool_sep></tool_call></tool_calls>", "", &[("g", "{}")]),
                (cut, "", &[("f", r#"{"string": "San Fr"#)]),
                ("<tool_call>f<tool_sep></tool_call>", "<tool_call>f<tool_sep></tool_call>", &[]),
                ("<tool_calls>no call</tool_calls>", "<tool_calls>no call</tool_calls>", &[]),
                ("<tool_calls><tool_call>f", "<tool_calls><tool_call>f", &[]),
            ],
        );
        check(
            "hy_v4",
            &[
                (&two.replace("<tool_sep>", ""), "I look.\n on", read),
                (&cut.replace("<tool_sep>", ""), "", &[("f", r#"{"string": "San Fr"#)]),
                ("<tool_calls><tool_call>f<tool_call>g</tool_call></tool_calls>", "", &[("f", "{}"), ("g", "{}")]),
            ],
        );
    }
}
