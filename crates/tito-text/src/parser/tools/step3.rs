//! Step 3: `<steptml:invoke name="NAME"><steptml:parameter name="KEY">VALUE</steptml:parameter></steptml:invoke>` after
//! `<｜tool_call_begin｜>function<｜tool_sep｜>`, all calls between `<｜tool_calls_begin｜>` and its end (vLLM
//! `tool_parsers/step3_tool_parser.py`, called `step3`).
//!
//! White space around a value is none of it. Functions are called by any name.
//!
//! What deviates on purpose: an object or an array is one where the schema says so; vLLM leaves it text. Calls without the
//! end of all calls are calls.

use super::{
    call_format::CallFormat,
    forcing::{Demand, Forcing, Grammar as Written, TextIs},
    invokes::{self, Invokes, Marks},
    one_by_one::Spelling,
    pairs::is_name,
    schema::Signatures,
};
use crate::structured::{Format, Tag};

const CALLS: &str = "<｜tool_calls_begin｜>";
const CALLS_END: &str = "<｜tool_calls_end｜>";
/// With the kind of the call, which is always the same.
const CALL: &str = "<｜tool_call_begin｜>function<｜tool_sep｜>";
const CALL_END: &str = "<｜tool_call_end｜>";

pub(super) const STEP3: CallFormat = CallFormat {
    trims: true,
    begins_call: &[CALLS],
    begins_each: &["<｜tool_call_begin｜>"],
    marks: &[CALLS, CALLS_END, "<｜tool_call_begin｜>", "<｜tool_sep｜>", CALL_END],
    ..CallFormat::new(
        "step3",
        invokes::reader::<Step3>,
        Forcing::Native(Written { one_by_one: Some(TextIs::Trimmed), ..Written::new(grammar) }),
    )
};

fn grammar(demand: &Demand<'_>) -> Format {
    let marks = Step3::MARKS.in_values();
    let spelling =
        Spelling::new("<steptml:parameter name=\"", "\">", "</steptml:parameter>", &marks).of_text(TextIs::Trimmed);
    let begin = |name: &str| format!("{CALL}<steptml:invoke name=\"{name}\">");
    let end = format!("</steptml:invoke>{CALL_END}");
    let tags = demand.each(|tool| Tag::new(begin(tool.name), spelling.arguments(tool), &*end));
    demand.section(CALLS, tags, "", CALLS_END)
}

#[derive(Debug)]
struct Step3;

impl Invokes for Step3 {
    const MARKS: Marks = Marks {
        section: Some([CALLS, CALLS_END]),
        needs_section: true,
        takes_json: false,
        call: Some([CALL, CALL_END]),
        invoke: ["<steptml:invoke name=\"", "<steptml:invoke name='", "<steptml:invoke name="],
        invoke_end: "</steptml:invoke>",
        parameter: "<steptml:parameter name=",
        parameter_end: "</steptml:parameter>",
        word: "steptml:parameter",
    };
    const TRIMS_VALUES: bool = true;
    const TOKENS: &'static [&'static str] = &[
        CALLS,
        CALLS_END,
        CALL,
        CALL_END,
        "<steptml:invoke name=\"",
        "<steptml:invoke name='",
        "<steptml:invoke name=",
        "</steptml:invoke>",
        "\">",
        "'>",
        ">",
        "<steptml:parameter name=",
        "</steptml:parameter>",
        // Text everywhere; they hold a `>` that ends no name.
        "<think>",
        "</think>",
    ];

    fn allows(name: &str, _tools: &Signatures) -> bool {
        is_name(name)
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        let call = |name: &str, parameters: &str| {
            format!(
                "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"{name}\">{parameters}</steptml:invoke>\
                 <｜tool_call_end｜>"
            )
        };
        let parameter =
            |key: &str, value: &str| format!("<steptml:parameter name=\"{key}\">{value}</steptml:parameter>");
        let values =
            parameter("integer", "7") + "\n" + &parameter("string", "\na b\n") + &parameter("object", "{\"b\": 1}");
        let calls = call("f", &values) + "\n" + &call("h", &parameter("a", "7"));
        let read: &[_] = &[("f", r#"{"integer": 7, "string": "a b", "object": {"b": 1}}"#), ("h", r#"{"a": "7"}"#)];
        check(
            "step3",
            &[
                (&format!("so <｜tool_calls_begin｜>\n{calls}\n<｜tool_calls_end｜> on"), "so on", read),
                (&format!("<｜tool_calls_begin｜>{calls}"), "", read),
                (&call("g", ""), &call("g", ""), &[]),
                (
                    "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"f\"><steptml:parameter name=\"string\">San Fr",
                    "",
                    &[("f", r#"{"string": "San Fr"#)],
                ),
                ("<｜tool_calls_begin｜>so<｜tool_calls_end｜>", "<｜tool_calls_begin｜>so<｜tool_calls_end｜>", &[]),
            ],
        );
    }
}
