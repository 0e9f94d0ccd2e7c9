//! Values of arguments that are forced where each stands alone: whatever may be written is read as a value of the schema.

use std::sync::Arc;

use super::{super::told::told, *};
use crate::{chat::FunctionTool, json::Value, structured::tests::Model};

/// What forced calls of `f` with the argument `a` have around its value.
const CALLS: [(&str, &str, &str); 4] = [
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n", "\n</parameter>\n</function>\n</tool_call>"),
    ("mimo", "<tool_call>\n<function=f>\n<parameter=a>", "</parameter>\n</function>\n</tool_call>"),
    ("hy_v4", "<tool_calls><tool_call>f<arg_key>a</arg_key><arg_value>", "</arg_value></tool_call></tool_calls>"),
    (
        "minimax_m2",
        "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">",
        "</parameter>\n</invoke>\n</minimax:tool_call>",
    ),
];

/// A schema of `a`, what may be written and how it is read, and what may not be written.
type Row = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);

const VALUES: &[Row] = &[
    (r#"{"type": "string"}"#, &[("Rome", r#""Rome""#), ("5", r#""5""#)], &[]),
    (
        r#"{"anyOf": [{"type": "string"}, {"type": "null"}]}"#,
        &[("Rome", r#""Rome""#), ("null", "null"), ("a b", r#""a b""#)],
        &[],
    ),
    (r#"{"type": ["string", "null"]}"#, &[("Rome", r#""Rome""#), ("null", "null")], &[]),
    (r#"{"type": ["integer", "string"]}"#, &[("Rome", r#""Rome""#), ("5", "5")], &[]),
    (r##"{"$ref": "#/$defs/Color"}"##, &[("red", r#""red""#)], &["blue", "\"red\"", ""]),
    (r##"{"allOf": [{"$ref": "#/$defs/Color"}], "default": "red"}"##, &[("red", r#""red""#)], &["blue", "\"red\""]),
    (
        r##"{"anyOf": [{"$ref": "#/$defs/Color"}, {"type": "null"}]}"##,
        &[("red", r#""red""#), ("null", "null")],
        &["blue", "\"red\"", "none"],
    ),
    (
        r#"{"anyOf": [{"enum": ["all"]}, {"type": "integer", "minimum": 1}]}"#,
        &[("all", r#""all""#), ("3", "3")],
        &["0", "\"all\"", "some"],
    ),
    (r#"{"const": "x"}"#, &[("x", r#""x""#)], &["y", "\"x\""]),
    (r#"{"enum": ["a", null, 7]}"#, &[("a", r#""a""#), ("null", "null"), ("7", "7")], &["\"a\"", "8"]),
    ("{}", &[("Rome", r#""Rome""#), ("5", r#""5""#)], &[]),
    (r#"{"type": "integer"}"#, &[("5", "5")], &["five", "\"5\""]),
    (r#"{"type": "array", "items": {"type": "string"}}"#, &[(r#"["a"]"#, r#"["a"]"#)], &["a", "[1]"]),
    (r#"{"enum": [1, 2]}"#, &[("2", "2")], &["3"]),
];

fn forced(parser: &str, schema: &str) -> ToolFormat {
    let parameters = format!(
        r#"{{"type": "object", "properties": {{"a": {schema}}}, "required": ["a"], "additionalProperties": false,
            "$defs": {{"Color": {{"type": "string", "enum": ["red", "green"]}}}}}}"#
    );
    let tool = FunctionTool {
        name: "f".to_owned(),
        description: None,
        defer_loading: None,
        outer_defer_loading: None,
        parameters: Some(Value::parse(&parameters).unwrap()),
        strict: Some(true),
    };
    let forced = Some(ForcedCall::Named("f".to_owned()));
    ToolFormat { parser: tool_parser(parser), tools: Arc::new([tool]), forced, first_only: false, held: false }
}

#[test]
fn what_may_be_written_is_read_as_what_the_schema_asks_for() {
    let model = Model::new();
    for (parser, begin, end) in CALLS {
        for (schema, may_be, may_not_be) in VALUES {
            let tools = forced(parser, schema);
            let constraint = tools.constraint(&|_| false).unwrap().unwrap();
            let format = OutputFormat::new(None, Some(tools.clone()), Some(tools.parser));
            for (written, value) in *may_be {
                let text = format!("{begin}{written}{end}");
                assert!(model.accepts(&constraint, &text), "{parser} {schema}: {text}");
                let (_, _, calls) = told(&format, PromptReasoning::Unmarked, [text.as_str()]);
                let read = vec![("f".to_owned(), format!(r#"{{"a": {value}}}"#))];
                assert_eq!(calls, read, "{parser} {schema}: {text}");
            }
            for written in *may_not_be {
                let text = format!("{begin}{written}{end}");
                assert!(!model.accepts(&constraint, &text), "{parser} {schema}: {text}");
            }
        }
    }
}

/// What forced calls of `f` with the text `a` have around it, and what the reader acts on there.
const MARKED: &[(&str, &str, &str, &[&str])] = &[
    (
        "qwen3_coder",
        "<tool_call>\n<function=f>\n<parameter=a>\n",
        "\n</parameter>\n</function>\n</tool_call>",
        &["</function>", "</parameter>", "<parameter=q>", "<tool_call>\n<function=g>", "<tool_call><function=g>"],
    ),
    (
        "mimo",
        "<tool_call>\n<function=f>\n<parameter=a>",
        "</parameter>\n</function>\n</tool_call>",
        &["</function>", "</parameter>", "<parameter=q>", "<tool_call>\n<function=g>"],
    ),
    (
        "seed_oss",
        "<seed:tool_call>\n<function=f>\n<parameter=a>",
        "</parameter>\n</function>\n</seed:tool_call>",
        &["</function>", "</parameter>", "<parameter=q>", "<seed:tool_call>\n<function=g>"],
    ),
    (
        "glm45",
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>",
        "</arg_value>\n</tool_call>",
        &["</tool_call>", "</arg_value>", "<arg_key>"],
    ),
    (
        "glm47",
        "<tool_call>f<arg_key>a</arg_key><arg_value>",
        "</arg_value></tool_call>",
        &["</tool_call>", "</arg_value>", "<arg_key>"],
    ),
    (
        "hy_v4",
        "<tool_calls><tool_call>f<arg_key>a</arg_key><arg_value>",
        "</arg_value></tool_call></tool_calls>",
        &["</tool_call>", "</tool_calls>", "</arg_value>", "<arg_key>"],
    ),
    (
        "k2_horizon",
        "<ifm|tool_calls><ifm|tool_call>f<ifm|arg_key>a</ifm|arg_key><ifm|arg_value>",
        "</ifm|arg_value></ifm|tool_call></ifm|tool_calls>",
        &["</ifm|tool_call>", "</ifm|tool_calls>", "</ifm|arg_value>", "<ifm|arg_key>"],
    ),
    (
        "minimax_m2",
        "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">",
        "</parameter>\n</invoke>\n</minimax:tool_call>",
        &["</invoke>", "</parameter>", "</minimax:tool_call>", "<parameter name=\"q\">"],
    ),
    (
        "minicpm5",
        "<function name=\"f\"><param name=\"a\">",
        "</param></function>",
        &["</function>", "</param>", "<param name=q>"],
    ),
    (
        "step3",
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"f\"><steptml:parameter name=\"a\">",
        "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
        &["</steptml:invoke>", "</steptml:parameter>", "<｜tool_call_end｜>", "<｜tool_calls_end｜>"],
    ),
    (
        "deepseek_v32",
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">",
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        &["</｜DSML｜invoke>", "</｜DSML｜parameter>", "</｜DSML｜function_calls>", "<｜DSML｜parameter name=\"q\">"],
    ),
];

#[test]
fn no_forced_text_holds_a_mark_that_would_cut_it() {
    let model = Model::new();
    for (parser, begin, end, marks) in MARKED {
        let tools = forced(parser, r#"{"type": "string"}"#);
        let constraint = tools.constraint(&|_| false).unwrap().unwrap();
        let format = OutputFormat::new(None, Some(tools.clone()), Some(tools.parser));
        for value in ["", "x < y </p> <f>", "<tool_call> 1", "two\nlines </", "<function=g>", "<think>"] {
            let text = format!("{begin}{value}{end}");
            assert!(model.accepts(&constraint, &text), "{parser}: {text}");
            let (_, content, calls) = told(&format, PromptReasoning::Unmarked, [text.as_str()]);
            let read = format!(r#"{{"a": {}}}"#, Value::from(value).to_json_string());
            assert_eq!((content.as_str(), calls), ("", vec![("f".to_owned(), read)]), "{parser}: {text}");
        }
        for mark in *marks {
            for value in [format!("use {mark} here"), (*mark).to_owned(), format!("a\n{mark}\nb")] {
                let text = format!("{begin}{value}{end}");
                assert!(!model.accepts(&constraint, &text), "{parser}: {text}");
            }
            assert!(!model.may_begin(&constraint, &format!("{begin}x{mark}y")), "{parser}: {mark}");
        }
    }
}

#[test]
fn a_forced_call_may_begin_with_a_special_token() {
    let minicpm5 = ["<function", "</function>", "<param", "</param>"];
    let minicpm5 = (&minicpm5[..], "minicpm5", r#"<function name="f"><param name="a">x y</param></function>"#);
    let mistral = (&["[TOOL_CALLS]", "[ARGS]"][..], "mistral", r#"[TOOL_CALLS]f[ARGS]{"a": "x y"}"#);
    let calls = CALLS.map(|(parser, begin, end)| (parser, format!("{begin}x y{end}")));
    let calls = calls.iter().map(|(parser, text)| (forced(parser, "{}").begins_call(), *parser, text.as_str()));
    for (special, parser, text) in calls.chain([minicpm5, mistral]) {
        let model = Model::with_special(special);
        let constraint = forced(parser, r#"{"type": "string"}"#).constraint(&|_| true).unwrap().unwrap();
        assert!(model.accepts_with_special(&constraint, text), "{parser}: {text}");
    }
}

#[test]
fn a_text_that_is_read_as_another_one_is_named() {
    let spaces = r#"{"enum": ["x\n", " y"]}"#;
    let xml = r#"{"enum": ["a &lt; b", "c"]}"#;
    for (schema, parser, expected) in [
        (spaces, "dots", &["f: enum"][..]),
        (spaces, "step3", &["f: enum"]),
        (spaces, "minimax_m2", &[]),
        (spaces, "seed_oss", &[]),
        (spaces, "qwen3_coder", &[]),
        (xml, "minicpm5", &["f: enum"]),
        (xml, "minimax_m2", &[]),
    ] {
        assert_eq!(forced(parser, schema).unheld(), expected, "{parser} {schema}");
    }
}

#[test]
fn what_does_not_hold_is_named() {
    for (schema, bare, marked) in [
        (r#"{"type": "string"}"#, &[][..], &[][..]),
        (
            r#"{"type": "string", "pattern": "^a", "maxLength": 3}"#,
            &["maxLength", "pattern"],
            &["maxLength", "pattern"],
        ),
        (r#"{"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}"#, &["format"], &[]),
        (r#"{"anyOf": [{"type": "integer", "minimum": 3}, {"type": "string"}]}"#, &["minimum"], &[]),
        (r#"{"anyOf": [{"enum": ["all"]}, {"type": "integer", "minimum": 3}]}"#, &[], &[]),
        (r#"{"type": "integer", "minimum": 3}"#, &[], &[]),
        (r#"{"enum": ["5", 6]}"#, &["enum"], &[]),
    ] {
        for (parser, expected) in [("hy_v4", bare), ("deepseek_v32", marked), ("hermes", &[][..])] {
            let expected: Vec<_> = expected.iter().map(|keyword| format!("f: {keyword}")).collect();
            assert_eq!(forced(parser, schema).unheld(), expected, "{parser} {schema}");
        }
    }
}
