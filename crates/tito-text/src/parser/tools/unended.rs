//! Calls without an end: those that were cut off, those whose end the model left out, and mentions of calls in prose.

use super::tests::{calls, check, folded, folded_cut_off, tools};
use crate::json::Value;

/// Beginnings of calls in all formats that may lack the end of one: what was cut off behind an argument, and its JSON.
const CUT: &[(&str, &str, &str)] = &[
    ("qwen3_coder", "<tool_call>\n<function=f>", "{"),
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=string>\nx\n</parameter>\n", r#"{"string": "x""#),
    ("seed_oss", "<seed:tool_call><function=f><parameter=string>x</parameter>", r#"{"string": "x""#),
    ("mimo", "<tool_call><function=f><parameter=string>x</parameter>", r#"{"string": "x""#),
    ("glm45", "<tool_call>f\n<arg_key>object</arg_key>\n<arg_value>{\"b\": 1}</arg_value>\n", r#"{"object": {"b": 1}"#),
    ("poolside_v1", "<tool_call>f<arg_key>array</arg_key><arg_value>[1]</arg_value>", r#"{"array": [1]"#),
    ("minimax_m2", "<minimax:tool_call><invoke name=\"f\">", "{"),
    (
        "minimax_m2",
        "<minimax:tool_call><invoke name=\"f\"><parameter name=\"integer\">1</parameter>",
        r#"{"integer": 1"#,
    ),
    ("dots", "<dots_function_call><invoke name=\"f\"><parameter name=\"integer\">1</parameter>", r#"{"integer": 1"#),
    ("minicpm5", "<function name=\"f\"><param name=\"integer\">1</param>", r#"{"integer": 1"#),
    ("step3", "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"f\">", "{"),
    (
        "deepseek_v32",
        "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"integer\" string=\"false\">1</｜DSML｜parameter>",
        r#"{"integer": 1"#,
    ),
    (
        "kimi_k3",
        "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"number\"<|sep|>1<|close|>argument<|sep|>",
        r#"{"a": 1"#,
    ),
    ("hy_v3", "<tool_calls><tool_call>f<tool_sep>", "{"),
    (
        "k2_horizon",
        "<ifm|tool_calls><ifm|tool_call>f<ifm|arg_key>integer</ifm|arg_key><ifm|arg_value>1</ifm|arg_value>",
        r#"{"integer": 1"#,
    ),
    (
        "minimax_m3",
        "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<integer>1]<]minimax[>[</integer>",
        r#"{"integer": 1"#,
    ),
    ("gemma4", "<|tool_call>call:f{", "{"),
    ("gemma4", r#"<|tool_call>call:f{integer:1,object:{k:<|"|>v<|"|>}"#, r#"{"integer": 1, "object": {"k": "v"#),
    ("functiongemma", "<start_function_call>call:f{", "{"),
    ("functiongemma", "<start_function_call>call:f{string:<escape>x<escape>,", r#"{"string": "x""#),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>", "{"),
    ("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>", "{"),
    ("deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n", "{"),
    ("mistral", "[TOOL_CALLS]f[ARGS]", "{"),
    (
        "plamo3",
        "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>f<|plamo:end_tool_name:plamo|>",
        "{",
    ),
];

#[test]
fn a_call_that_is_cut_off_between_arguments_does_not_look_whole() {
    for (format, text, arguments) in CUT {
        assert_eq!(folded_cut_off(format, text).1, calls(&[("f", arguments)]), "{format} {text}");
        assert!(Value::parse(arguments).is_err());
    }
}

/// Where JSON or the format's own punctuation says that nothing is missing, or the model ended the text, the call is whole.
#[test]
fn a_call_is_whole_if_something_says_so() {
    for (format, text) in [
        ("gemma4", "<|tool_call>call:f{integer:1}"),
        ("functiongemma", "<start_function_call>call:f{integer:1}"),
        ("mistral", "[TOOL_CALLS]f[ARGS]{\"integer\": 1}"),
        (
            "kimi_k2",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"integer\": 1}",
        ),
        ("qwen3_coder", "<tool_call><function=f><parameter=integer>1</parameter></function>"),
    ] {
        assert_eq!(folded_cut_off(format, text).1, calls(&[("f", r#"{"integer": 1}"#)]), "{format} {text}");
    }
    for (format, text, arguments) in CUT.iter().filter(|(format, ..)| *format != "gemma4") {
        let read = folded(format, &tools(), [*text]).1;
        // DeepSeek passes on what is there.
        let whole = if format.starts_with("deepseek_v3") && *arguments == "{" { "" } else { &format!("{arguments}}}") };
        assert_eq!(read, calls(&[("f", whole)]), "{format} {text}");
    }
}

/// What may be the end of the call may be text of a value that was cut off.
#[test]
fn a_value_that_is_cut_off_may_hold_the_end_of_its_call() {
    for (format, text, arguments) in [
        ("qwen3_coder", "<function=f><parameter=string>x </function> y", r#"{"string": "x </function> y"#),
        ("gemma4", r#"<|tool_call>call:f{string:<|"|>x <tool_call|> y"#, r#"{"string": "x <tool_call|> y"#),
        ("mistral", r#"[TOOL_CALLS]f[ARGS]{"a": "x [TOOL_CALLS]g y"#, r#"{"a": "x [TOOL_CALLS]g y"#),
        (
            "deepseek_v31",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": \"x <｜tool▁call▁end｜> y",
            r#"{"a": "x <｜tool▁call▁end｜> y"#,
        ),
    ] {
        assert_eq!(folded_cut_off(format, text), (String::new(), calls(&[("f", arguments)])), "{format} {text}");
    }
}

#[test]
fn prose_that_mentions_a_call_makes_none() {
    for (format, text) in [
        ("minicpm5", "The tag <function name=\"f\"> begins a call."),
        ("minimax_m2", "The tag <invoke name=\"f\"> begins a call."),
        ("minimax_m2", "The tag <minimax:tool_call><invoke name=\"f\"> begins a call."),
        ("qwen3_coder", "I would write <function=f> here, with parameters."),
        ("seed_oss", "I would write <function=f> here, <parameter=string> and </parameter>."),
        ("hy_v3", "I would write <tool_calls><tool_call>f<tool_sep> here."),
        ("deepseek_v32", "I would write <｜DSML｜invoke name=\"f\"> here."),
        ("kimi_k3", "I would write <|open|>tools<|sep|><|open|>call tool=\"f\"<|sep|> here."),
        ("minimax_m3", "I write ]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\"> here."),
    ] {
        check(format, &[(text, text, &[])]);
        assert_eq!(folded_cut_off(format, text), (text.to_owned(), Vec::new()));
    }
    check(
        "qwen3_coder",
        &[
            ("I write <function=f> here. <function=g></function>", "I write <function=f> here.", &[("g", "{}")]),
            // With an end it is a call.
            ("<function=f> here </function>", "here", &[("f", "{}")]),
        ],
    );
}
