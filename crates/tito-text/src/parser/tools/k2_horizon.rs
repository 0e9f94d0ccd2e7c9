//! K2 Horizon: `<ifm|tool_call>NAME<ifm|arg_key>KEY</ifm|arg_key><ifm|arg_value>VALUE</ifm|arg_value></ifm|tool_call>`, all
//! calls between `<ifm|tool_calls>` and its end (vLLM `tool_parsers/k2_horizon_tool_parser.py`, called `k2_horizon`).
//!
//! Where the template's variable `tool_call_format` says so, the type of a value stands in front of it, or a call is the
//! JSON of `{"name", "arguments"}`. All three are read, whatever it says. Only functions of the request are called.
//!
//! What deviates on purpose: one call that cannot be read is content, and spoils no others.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written, TextIs},
    machine::Callee,
    one_by_one::Spelling,
    pairs::{self, Marks, Pairs},
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    json::Value,
    structured::{Format, Tag},
};

const CALLS: &str = "<ifm|tool_calls>";
const CALLS_END: &str = "</ifm|tool_calls>";
const CALL: &str = "<ifm|tool_call>";
const CALL_END: &str = "</ifm|tool_call>";
const KEY: &str = "<ifm|arg_key>";
const KEY_END: &str = "</ifm|arg_key>";
const KIND: &str = "<ifm|arg_type>";
const KIND_END: &str = "</ifm|arg_type>";
const VALUE: &str = "<ifm|arg_value>";
const VALUE_END: &str = "</ifm|arg_value>";
/// What the reader acts on within a value.
const MARKS_IN_VALUES: [&str; 4] = [KEY, VALUE_END, CALL_END, CALLS_END];

pub(super) const K2_HORIZON: CallFormat = CallFormat {
    begins_call: &[CALLS],
    begins_each: &[CALL],
    marks: K2Horizon::TOKENS,
    ..CallFormat::new(
        "k2_horizon",
        reader,
        Forcing::Native(Written { one_by_one: Some(TextIs::Bare), ..Written::new(grammar) }),
    )
};

/// Without types, as the template has it where it is told nothing.
fn grammar(demand: &Demand<'_>) -> Format {
    let spelling = Spelling::new(KEY, "</ifm|arg_key><ifm|arg_value>", VALUE_END, &MARKS_IN_VALUES);
    let tags = demand.each(|tool| Tag::new(format!("{CALL}{}", tool.name), spelling.arguments(tool), CALL_END));
    demand.section(CALLS, tags, "\n", CALLS_END)
}

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    pairs::reader::<K2Horizon>(tools)
}

#[derive(Debug)]
struct K2Horizon;

impl Pairs for K2Horizon {
    const MARKS: Marks = Marks {
        section: Some([CALLS, CALLS_END]),
        call: [CALL, CALL_END],
        separator: None,
        key: [KEY, KEY_END],
        kind: Some([KIND, KIND_END]),
        value: [VALUE, VALUE_END],
    };
    const TOKENS: &'static [&'static str] =
        &[CALLS, CALLS_END, CALL, CALL_END, KEY, KEY_END, KIND, KIND_END, VALUE, VALUE_END];
    const TAKES_JSON: bool = true;

    fn allows(name: &str, tools: &Signatures) -> bool {
        pairs::is_name(name) && tools.allow(name)
    }

    /// `array[string]` is an array.
    fn value(callee: &Callee<'_>, key: &str, kind: Option<&str>, text: &str) -> Value {
        let kind = kind.map(|kind| kind.split('[').next().unwrap_or(kind).trim().to_lowercase());
        callee.tools.value(callee.name, key, kind.as_deref(), text)
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        let call =
            |arguments: &str| format!("<ifm|tool_calls><ifm|tool_call>f{arguments}</ifm|tool_call></ifm|tool_calls>");
        let plain =
            |key: &str, value: &str| format!("<ifm|arg_key>{key}</ifm|arg_key><ifm|arg_value>{value}</ifm|arg_value>");
        let typed = |key: &str, kind: &str, value: &str| {
            let kind = format!("<ifm|arg_type>{kind}</ifm|arg_type>");
            format!("<ifm|arg_key>{key}</ifm|arg_key>{kind}<ifm|arg_value>{value}</ifm|arg_value>")
        };
        let said = typed("a", "integer", "7") + &typed("b", "string", "7") + &typed("c", "array[integer]", "[7]");
        let json = "<ifm|tool_calls><ifm|tool_call>{\"name\": \"f\", \"arguments\": {\"integer\": \"7\"}}</ifm|tool_call>\n\
                    <ifm|tool_call>g</ifm|tool_call></ifm|tool_calls> on";
        check(
            "k2_horizon",
            &[
                (
                    &format!("so {}", call(&(plain("integer", " 7 ") + &plain("string", " 7")))),
                    "so ",
                    &[("f", r#"{"integer": 7, "string": " 7"}"#)],
                ),
                (&call(&said), "", &[("f", r#"{"a": 7, "b": "7", "c": [7]}"#)]),
                (
                    &call(&(typed("nullable", "null", "null") + &typed("string", "integer", "7"))),
                    "",
                    &[("f", r#"{"nullable": null, "string": "7"}"#)],
                ),
                (json, " on", &[("f", r#"{"integer": 7}"#), ("g", "{}")]),
                (
                    "<ifm|tool_calls><ifm|tool_call>h</ifm|tool_call></ifm|tool_calls>",
                    "<ifm|tool_calls><ifm|tool_call>h</ifm|tool_call>",
                    &[],
                ),
                ("<ifm|tool_call>g</ifm|tool_call>", "<ifm|tool_call>g</ifm|tool_call>", &[]),
                (
                    "<ifm|tool_calls><ifm|tool_call>f<ifm|arg_key>string</ifm|arg_key><ifm|arg_type>str",
                    "",
                    &[("f", r#"{"string"#)],
                ),
            ],
        );
    }
}
