//! `MiniCPM` 5: `<function name="NAME"><param name="KEY">VALUE</param></function>` (vLLM
//! `tool_parsers/minicpm5xml_tool_parser.py`, called `minicpm5`).
//!
//! Only functions of the request are called. Values are XML: `<![CDATA[…]]>` is text to the letter, and so is a value whose
//! references (`&lt;`) are not all known. The tool's schema says what type a value has; where it does not name the key, the
//! model writes JSON or Python's words.
//!
//! What deviates on purpose:
//! - Arguments that the schema does not have are kept, and those that it requires may be missing: the call is the model's.
//! - A name is never taken for another one. vLLM maps the names of a benchmark's functions to each other.
//! - Tags whose white space is lost (`<functionname=`) are text.

use super::{
    call_format::CallFormat,
    forcing::{Demand, Forcing, Grammar as Written, TextIs},
    invokes::{self, Invokes, Marks},
    machine::{Arguments, Callee},
    one_by_one::Spelling,
    parameters, schema,
    xml_text::{self, CDATA, CDATA_END},
};
use crate::{
    json::Value,
    structured::{Format, Tag},
};

/// All that may be special tokens: checkpoints have the tags so, without what follows their names.
const MARKS: &[&str] = &["<function", "</function>", "<param", "</param>", "<think>", "</think>"];

/// What the model may write around all arguments, as if they were one.
const WRAPPERS: [&str; 2] = ["arguments", "properties"];

pub(super) const MINICPM5: CallFormat = CallFormat {
    trims: true,
    begins_call: &["<function name="],
    marks: MARKS,
    ..CallFormat::new(
        "minicpm5",
        invokes::reader::<MiniCpm5>,
        Forcing::Native(Written { one_by_one: Some(TextIs::Xml), ..Written::new(grammar) }),
    )
};

fn grammar(demand: &Demand<'_>) -> Format {
    let marks = MiniCpm5::MARKS.in_values();
    let spelling = Spelling::new("<param name=\"", "\">", "</param>", &marks).of_text(TextIs::Xml);
    let begin = |name: &str| format!("<function name=\"{name}\">");
    let tags = demand.each(|tool| Tag::new(begin(tool.name), spelling.arguments(tool), "</function>"));
    demand.list(tags, "\n", "<function name=")
}

#[derive(Debug)]
struct MiniCpm5;

impl Invokes for MiniCpm5 {
    const MARKS: Marks = Marks {
        section: None,
        needs_section: false,
        takes_json: false,
        call: None,
        invoke: ["<function name=\"", "<function name='", "<function name="],
        invoke_end: "</function>",
        parameter: "<param name=",
        parameter_end: "</param>",
        word: "param",
    };
    const TOKENS: &'static [&'static str] = &[
        "<function name=\"",
        "<function name='",
        "<function name=",
        "</function>",
        "\">",
        "'>",
        ">",
        "<param name=",
        "</param>",
        // Text everywhere; they hold a `>` that ends no name.
        "<think>",
        "</think>",
    ];

    /// The end behind that of `<![CDATA[…]]>`, in which marks are text.
    fn literal_end(value: &str) -> Option<(usize, &str)> {
        let text = value.trim_start().strip_prefix(CDATA)?;
        text.match_indices(CDATA_END).find_map(|(at, _)| {
            let behind = text[at + CDATA_END.len()..].trim_start();
            Some((value.len() - behind.len(), parameters::tag(behind, &["/", Self::MARKS.word, ">"])?))
        })
    }

    fn add(arguments: &mut Arguments, key: &str, text: &str, written: &str, callee: &Callee<'_>) {
        let text = xml_text::plain(text);
        if callee.tools.names(callee.name, key) {
            return arguments.insert(key, Value::from(text), written);
        }
        match schema::untyped(&text) {
            Value::Object(inner) if wraps(key, callee) && callee.tools.name_all(callee.name, inner.keys()) => {
                for (key, value) in inner {
                    let written = value.to_json_string();
                    arguments.insert(&key, value, &written);
                }
            }
            value => arguments.insert(key, value, written),
        }
    }
}

fn wraps(key: &str, callee: &Callee<'_>) -> bool {
    WRAPPERS.contains(&key) && !callee.tools.names(callee.name, key)
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        let call = |name: &str, key: &str, value: &str| {
            format!("<function name=\"{name}\"><param name=\"{key}\">{value}</param></function>")
        };
        check(
            "minicpm5",
            &[
                (
                    &format!("so {}\n{} on", call("f", "integer", "7"), "<function name='g'></function>"),
                    "so on",
                    &[("f", r#"{"integer": 7}"#), ("g", "{}")],
                ),
                (&call("f", "string", "<![CDATA[a < b &amp; c]]>"), "", &[("f", r#"{"string": "a < b &amp; c"}"#)]),
                (
                    &call("f", "string", "a &lt; b &amp; &#233;&#x e9;"),
                    "",
                    &[("f", r#"{"string": "a &lt; b &amp; &#233;&#x e9;"}"#)],
                ),
                (&call("f", "string", "a &lt; b &amp; &#233;&#xe9;"), "", &[("f", r#"{"string": "a < b & éé"}"#)]),
                (&call("f", "string", "a && b"), "", &[("f", r#"{"string": "a && b"}"#)]),
                (&call("f", "other", "[7]"), "", &[("f", r#"{"other": [7]}"#)]),
                (
                    &call("f", "properties", "{'integer': '7', 'string': 'a'}"),
                    "",
                    &[("f", r#"{"integer": 7, "string": "a"}"#)],
                ),
                (&call("h", "a", "7"), &call("h", "a", "7"), &[]),
                ("<function name=\"f\"><param name=\"string\">San Fr", "", &[("f", r#"{"string": "San Fr"#)]),
            ],
        );
    }
}
