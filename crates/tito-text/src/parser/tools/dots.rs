//! dots: `<invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>` between `<dots_function_call>` and its end,
//! or the JSON of `{"name", "arguments"}` there (vLLM `tool_parsers/dots_tool_parser.py`, called `dots`).
//!
//! White space around a value is none of it. Only functions of the request are called. The tool's schema says what type a
//! value has.

use super::{
    call_format::CallFormat,
    forcing::{Demand, Forcing, Grammar as Written, TextIs},
    invokes::{self, Invokes, Marks},
};
use crate::structured::Format;

const CALLS: &str = "<dots_function_call>";
const CALLS_END: &str = "</dots_function_call>";

pub(super) const DOTS: CallFormat = CallFormat {
    trims: true,
    begins_call: &[CALLS],
    marks: Dots::TOKENS,
    ..CallFormat::new(
        "dots",
        invokes::reader::<Dots>,
        Forcing::Native(Written { one_by_one: Some(TextIs::Trimmed), ..Written::new(grammar) }),
    )
};

/// A line for each mark.
fn grammar(demand: &Demand<'_>) -> Format {
    invokes::on_lines::<Dots>(demand, [CALLS, CALLS_END])
}

#[derive(Debug)]
struct Dots;

impl Invokes for Dots {
    const MARKS: Marks = Marks { needs_section: true, takes_json: true, ..Marks::of_invokes([CALLS, CALLS_END]) };
    const TRIMS_VALUES: bool = true;
    const TOKENS: &'static [&'static str] = &[
        CALLS,
        CALLS_END,
        "<invoke name=\"",
        "<invoke name='",
        "<invoke name=",
        "</invoke>",
        "\">",
        "'>",
        ">",
        "<parameter name=",
        "</parameter>",
        // Text everywhere; they hold a `>` that ends no name.
        "<think>",
        "</think>",
    ];
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        check(
            "dots",
            &[
                (
                    "so <dots_function_call>\n<invoke name=\"f\">\n<parameter name=\"integer\"> 7 </parameter>\n<parameter name=string>\na b\n</parameter>\n</invoke>\n<invoke name='g'></invoke>\n</dots_function_call> on",
                    "so on",
                    &[("f", r#"{"integer": 7, "string": "a b"}"#), ("g", "{}")],
                ),
                (
                    r#"<dots_function_call>{"name": "f", "arguments": {"integer": "7"}}</dots_function_call>"#,
                    "",
                    &[("f", r#"{"integer": 7}"#)],
                ),
                (
                    r#"<dots_function_call>{"name": "h"}</dots_function_call>"#,
                    r#"<dots_function_call>{"name": "h"}</dots_function_call>"#,
                    &[],
                ),
                (r#"<invoke name="g"></invoke>"#, r#"<invoke name="g"></invoke>"#, &[]),
                ("<dots_function_call> so", "<dots_function_call> so", &[]),
                (
                    "<dots_function_call><invoke name=\"f\"><parameter name=\"string\">San Fr",
                    "",
                    &[("f", r#"{"string": "San Fr"#)],
                ),
            ],
        );
    }
}
