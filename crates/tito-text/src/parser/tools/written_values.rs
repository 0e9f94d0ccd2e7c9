//! Every type that a schema may ask for × every way to write a value, in the formats that leave it to the schema what a
//! value is: the value is what was written, or the text as it was written, and nothing else.

use super::{
    super::{
        marker,
        told::{ARGUMENT_SCHEMAS, parameters_of_a},
    },
    tests::{agreed, tool},
};
use crate::json::{Object, Value};

/// What a model writes around the value of `a` in a call of `f`.
const TEXTS: &[(&[&str], &str, &str)] = &[
    (
        &["qwen3_coder", "qwen3_xml", "mimo", "step3p5", "step5"],
        "<tool_call>\n<function=f>\n<parameter=a>\n",
        "\n</parameter>\n</function>\n</tool_call>",
    ),
    (&["seed_oss"], "<seed:tool_call>\n<function=f>\n<parameter=a>", "</parameter>\n</function>\n</seed:tool_call>"),
    (
        &["glm45", "glm47", "ling3", "poolside_v1"],
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>",
        "</arg_value>\n</tool_call>",
    ),
    (
        &["hy_v3"],
        "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>a</arg_key>\n<arg_value>",
        "</arg_value>\n</tool_call>\n</tool_calls>",
    ),
    (&["hy_v4"], "<tool_calls><tool_call>f<arg_key>a</arg_key><arg_value>", "</arg_value></tool_call></tool_calls>"),
    (
        &["k2_horizon"],
        "<ifm|tool_calls><ifm|tool_call>f<ifm|arg_key>a</ifm|arg_key><ifm|arg_value>",
        "</ifm|arg_value></ifm|tool_call></ifm|tool_calls>",
    ),
    (
        &["minimax_m2"],
        "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">",
        "</parameter>\n</invoke>\n</minimax:tool_call>",
    ),
    (
        &["dots"],
        "<dots_function_call>\n<invoke name=\"f\">\n<parameter name=\"a\">",
        "</parameter>\n</invoke>\n</dots_function_call>",
    ),
    (
        &["step3"],
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"f\"><steptml:parameter name=\"a\">",
        "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
    ),
    (&["functiongemma"], "<start_function_call>call:f{a:<escape>", "<escape>}<end_function_call>"),
    (&["minicpm5"], "<function name=\"f\"><param name=\"a\">", "</param></function>"),
    (
        &["minimax_m3"],
        "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>",
        "]<]minimax[>[</a>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
    ),
];

/// The formats in which a value is JSON, which may hold the text.
const JSON: &[(&str, &str, &str)] = &[
    ("hermes", r#"<tool_call>{"name": "f", "arguments": {"a": "#, "}}</tool_call>"),
    ("granite4", r#"<tool_call>{"name": "f", "arguments": {"a": "#, "}}</tool_call>"),
    ("mistral", r#"[TOOL_CALLS]f[ARGS]{"a": "#, "}"),
    (
        "kimi_k2",
        r#"<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "#,
        "}<|tool_call_end|><|tool_calls_section_end|>",
    ),
];

/// What is written, the type that this says, and how it may be spelled as JSON. `None` in Python's words says no type.
const WRITTEN: &[(&str, &str, &[&str])] = &[
    ("3", "integer", &["3"]),
    ("3.0", "number", &["3.0"]),
    ("1e+21", "number", &["1e+21"]),
    ("2.50", "number", &["2.50"]),
    ("\"3\"", "", &[]),
    ("true", "boolean", &["true"]),
    ("True", "boolean", &["true"]),
    ("None", "", &["null"]),
    ("null", "null", &["null"]),
    ("[1,2]", "array", &["[1, 2]"]),
    ("{'k': True}", "object", &["{\"k\": true}"]),
    ("1e400", "", &[]),
    ("9007199254740993", "integer", &["9007199254740993"]),
    ("-0", "integer", &["-0"]),
    ("a \"q\" 'b'\nc\\n", "", &[]),
    ("<br> </ \u{e9}", "", &[]),
    ("", "", &[]),
    ("  ", "", &[]),
];

/// Why a value is none of those that it may be.
fn wrong(value: &Value, written: &(&str, &str, &[&str]), types: &[&str], format: &str) -> Option<&'static str> {
    let (text, said, spellings) = written;
    let is_quoted = JSON.iter().any(|(name, ..)| *name == format);
    if let Value::String(read) = value {
        // A format may have white space around a value.
        let same = marker::trim(read) == marker::trim(text);
        // Where nothing says that it is text, a text in quotes may be what is quoted.
        let unquoted = types != ["string"] && Value::parse(text).is_ok_and(|text| text == *value);
        let is_typed = types.contains(said) && !types.contains(&"string") && !is_quoted;
        return if is_typed { Some("is text") } else { (!same && !unquoted).then_some("is another text") };
    }
    // MiniMax M3 writes the items of objects and arrays as elements, so that an empty one has nothing in it.
    let is_empty_element = format == "minimax_m3" && marker::trim(text).is_empty();
    if is_empty_element && (*value == Value::from(Object::default()) || *value == Value::Array(Vec::new())) {
        return None;
    }
    let spelled = spellings.contains(&value.to_json_string().as_str());
    if types == ["string"] { Some("is no text") } else { (!spelled).then_some("is another value") }
}

fn only_value(format: &str, schema: &str, text: &str) -> Result<Value, String> {
    let parameters = parameters_of_a(schema);
    let (content, calls) = agreed(format, &[tool("f", &parameters)], text);
    let [(name, arguments)] = &calls[..] else { return Err(format!("{content:?} {calls:?}")) };
    let arguments = Value::parse_literally(arguments).map_err(|_| arguments.clone())?;
    match arguments.as_object() {
        Some(object) if name == "f" && object.len() == 1 && content.is_empty() => Ok(object["a"].clone()),
        _ => Err(format!("{content:?} {calls:?}")),
    }
}

#[test]
fn a_value_is_what_was_written_or_the_text_itself_for_every_type() {
    let plain = TEXTS.iter().flat_map(|(formats, before, after)| formats.iter().map(move |name| (name, before, after)));
    let plain = plain.map(|(name, before, after)| (*name, *before, *after, false));
    let quoted = JSON.iter().map(|(name, before, after)| (*name, *before, *after, true));
    let mut faults = Vec::new();
    for (format, before, after, is_quoted) in plain.chain(quoted) {
        for (schema, types) in ARGUMENT_SCHEMAS {
            for written in WRITTEN {
                let value = if is_quoted { Value::from(written.0).to_json_string() } else { written.0.to_owned() };
                let fault = match only_value(format, schema, &format!("{before}{value}{after}")) {
                    Ok(value) => wrong(&value, written, types, format).map(|why| format!("{why}: {value:?}")),
                    Err(read) => Some(read),
                };
                faults.extend(fault.map(|fault| format!("{format} {schema} {:?}: {fault}", written.0)));
            }
        }
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n"));
}

/// Formats in which a value is JSON or Python's, and what stands around it.
const NUMBERS_IN: &[(&str, &str, &str)] = &[
    ("xlam", r#"[{"name": "f", "arguments": {"a": "#, "}}]"),
    ("llama3_json", r#"{"name": "f", "parameters": {"a": "#, "}}"),
    ("mistral", r#"[TOOL_CALLS] [{"name": "f", "arguments": {"a": "#, "}}]"),
    ("openai", r#"<|channel|>commentary to=functions.f json<|message|>{"a": "#, "}<|call|>"),
    ("qwen3_json", r#"<tool_call>{"name": "f", "arguments": {"a": "#, "}}</tool_call>"),
    ("pythonic", "[f(a=", ")]"),
    ("lfm2", "<|tool_call_start|>[f(a=", ")]<|tool_call_end|>"),
    ("gemma4", "<|tool_call>call:f{a:", "}<tool_call|>"),
    (
        "deepseek_v32",
        "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" string=\"false\">",
        "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>",
    ),
    (
        "kimi_k3",
        "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"number\"<|sep|>",
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
    ),
];

#[test]
fn a_number_is_what_was_written_to_the_letter_in_every_format() {
    let texts =
        TEXTS.iter().flat_map(|(formats, before, after)| formats.iter().map(move |name| (*name, *before, *after)));
    let places = texts.chain(JSON.iter().copied()).chain(NUMBERS_IN.iter().copied());
    for (format, before, after) in places {
        for schema in [r#"{"type": "number"}"#, r#"{"type": "integer"}"#, r#"{"type": ["number", "null"]}"#] {
            for written in ["3", "3.0", "1e+21", "2.50", "1E5", "-0.0", "0.1000000000000000055", "9007199254740993.0"] {
                let value = only_value(format, schema, &format!("{before}{written}{after}"));
                let read = value.as_ref().map(Value::to_json_string);
                assert_eq!(read.as_deref(), Ok(written), "{format} {schema}: {value:?}");
            }
        }
    }
}

#[test]
fn marks_within_a_value_lose_nothing() {
    for (formats, before, after) in TEXTS {
        for format in *formats {
            for mark in before.split_inclusive('>').chain(after.split_inclusive('>')) {
                let text = format!("{before}Q{mark}Z{after}");
                let (content, calls) =
                    agreed(format, &[tool("f", r#"{"properties": {"a": {"type": "string"}}}"#)], &text);
                let shown = calls.iter().fold(content, |shown, (name, arguments)| shown + name + arguments);
                for letter in ['Q', 'Z'] {
                    assert_eq!(shown.matches(letter).count(), 1, "{format} {text:?}: {shown:?}");
                }
            }
        }
    }
}
