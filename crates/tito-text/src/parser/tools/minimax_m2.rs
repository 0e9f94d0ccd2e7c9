//! MiniMax M2: `<minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>…` (vLLM
//! `parser/minimax_m2.py`, called `minimax_m2`).
//!
//! Names may stand in either kind of quotes or in none. Only functions of the request are called. The tool's schema says
//! what type a value has.

use super::{
    call_format::CallFormat,
    forcing::{Demand, Forcing, Grammar as Written, TextIs},
    invokes::{self, Invokes, Marks},
};
use crate::structured::Format;

const CALLS: &str = "<minimax:tool_call>";
const CALLS_END: &str = "</minimax:tool_call>";

pub(super) const MINIMAX_M2: CallFormat = CallFormat {
    begins_call: &[CALLS],
    ..CallFormat::engine(
        "minimax_m2",
        invokes::reader::<MinimaxM2>,
        Forcing::Native(Written { one_by_one: Some(TextIs::Bare), ..Written::new(grammar) }),
        MinimaxM2::TOKENS,
    )
};

/// Names in double quotes, and a line for each mark.
fn grammar(demand: &Demand<'_>) -> Format {
    invokes::on_lines::<MinimaxM2>(demand, [CALLS, CALLS_END])
}

#[derive(Debug)]
struct MinimaxM2;

impl Invokes for MinimaxM2 {
    const MARKS: Marks = Marks::of_invokes([CALLS, CALLS_END]);
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
            "minimax_m2",
            &[
                (
                    "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"integer\">7</parameter>\n<parameter name=\"number\">2.0</parameter>\n<parameter name=\"boolean\">true</parameter>\n<parameter name=\"object\">{\"b\": [1.0, null]}</parameter>\n<parameter name=\"array\">[1]</parameter>\n<parameter name=\"string\">1</parameter>\n<parameter name=\"nullable\">null</parameter>\n<parameter name=\"other\">1</parameter>\n</invoke>\n</minimax:tool_call>",
                    "",
                    &[(
                        "f",
                        r#"{"integer": 7, "number": 2.0, "boolean": true, "object": {"b": [1.0, null]}, "array": [1], "string": "1", "nullable": null, "other": "1"}"#,
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
