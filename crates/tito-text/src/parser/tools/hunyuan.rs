//! Hunyuan 3 and 4, called Hy: calls between `<tool_calls>` and its end (vLLM `tool_parsers/hy_v3_tool_parser.py` and
//! `tool_parsers/hy_v4_tool_parser.py`):
//!
//! - `hy_v3`: `<tool_call>NAME<tool_sep><arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`.
//! - `hy_v4`: likewise, without `<tool_sep>`.
//!
//! Functions are called by any name. The tool's schema says what type a value has. The marks of some checkpoints have a
//! suffix, which their vocabulary shows: `<tool_calls:6124c78e>`.
//!
//! What deviates on purpose:
//! - `null` is null where the schema allows it; in vLLM it is a text.
//! - One call that cannot be read is content, and spoils no others; `hy_v4` in vLLM refuses all.

use super::{
    call_format::CallFormat,
    forcing::{Demand, Forcing, Grammar as Written, TextIs},
    one_by_one::Spelling,
    pairs::{self, Marks, Pairs},
    schema::Signatures,
};
use crate::{
    parser::suffix,
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
    let written = Written { one_by_one: Some(TextIs::Bare), ..Written::new(grammar) };
    CallFormat {
        begins_call: &[CALLS],
        begins_each: &[CALL],
        marks: P::TOKENS,
        needs: &[CALLS, CALLS_END],
        of_tokens: Some(pairs::reader_of_tokens::<P>),
        ..CallFormat::new(name, pairs::reader::<P>, Forcing::Native(written))
    }
}

/// What Hy 3 writes.
fn on_lines(demand: &Demand<'_>) -> Format {
    let marks = [CALLS, CALLS_END, CALL, CALL_END, SEPARATOR, KEY, KEY_END, VALUE, VALUE_END];
    let [calls, end_of_calls, call, call_end, separator, key, key_end, value, value_end] =
        marks.map(|mark| suffix::spelled(mark, demand.suffix));
    let (between, end) = (format!("{key_end}\n{value}"), format!("{value_end}\n"));
    let marks = [&*key, &value_end, &call_end, &end_of_calls];
    let spelling = Spelling::new(&key, &between, &end, &marks);
    let begin = |name: &str| format!("{call}{name}{separator}\n");
    let tags = demand.each(|tool| Tag::new(begin(tool.name), spelling.arguments(tool), &*call_end));
    demand.section(&format!("{calls}\n"), tags, "\n", &format!("\n{end_of_calls}"))
}

/// What Hy 4 writes.
fn on_one_line(demand: &Demand<'_>) -> Format {
    let marks = [CALLS, CALLS_END, CALL, CALL_END, KEY, KEY_END, VALUE, VALUE_END];
    let [calls, end_of_calls, call, call_end, key, key_end, value, value_end] =
        marks.map(|mark| suffix::spelled(mark, demand.suffix));
    let between = key_end + &value;
    let marks = [&*key, &value_end, &call_end, &end_of_calls];
    let spelling = Spelling::new(&key, &between, &value_end, &marks);
    let tags = demand.each(|tool| Tag::new(format!("{call}{}", tool.name), spelling.arguments(tool), &*call_end));
    demand.section(&calls, tags, "", &end_of_calls)
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
        // The same with a suffix, where marks without it are text.
        let suffixed = |text: &str| text.replace('>', ":6124c78e>");
        check(
            "hy_v3:6124c78e",
            &[
                (&suffixed(two), "I look.\n on", read),
                (&suffixed(cut), "", &[("f", r#"{"string": "San Fr"#)]),
                (two, two, &[]),
                (
                    &suffixed("<tool_calls><tool_call>f<tool_sep><arg_key>string</arg_key><arg_value>{}</arg_value></tool_call>")
                        .replace("{}", "</arg_value></tool_call>"),
                    "",
                    &[("f", r#"{"string": "</arg_value></tool_call>"}"#)],
                ),
                (&suffixed("<tool_calls>no call</tool_calls>"), &suffixed("<tool_calls>no call</tool_calls>"), &[]),
            ],
        );
        check(
            "hy_v4:a.*é",
            &[
                (&two.replace("<tool_sep>", "").replace('>', ":a.*é>"), "I look.\n on", read),
                (&suffixed(two), &suffixed(two), &[]),
            ],
        );
    }
}
