//! Values that hold the marks of their own calls, in all formats that write each argument by itself.

use super::tests::check;

/// In a text, `{V}` stands for the value.
#[test]
fn a_value_may_hold_what_ends_it_and_its_call() {
    let formats = [
        (
            "qwen3_coder",
            "<tool_call>\n<function=f>\n<parameter=string>\n{V}\n</parameter>\n</function>\n</tool_call>",
            ["</parameter>", "</function>", "</tool_call>"],
        ),
        (
            "glm45",
            "<tool_call>f\n<arg_key>string</arg_key>\n<arg_value>{V}</arg_value>\n</tool_call>",
            ["</arg_value>", "</arg_key>", "</tool_call>"],
        ),
        (
            "minimax_m2",
            "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"string\">{V}</parameter>\n</invoke>\n</minimax:tool_call>",
            ["</parameter>", "</invoke>", "</minimax:tool_call>"],
        ),
        (
            "deepseek_v32",
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"string\" string=\"true\">{V}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
            ["</｜DSML｜parameter>", "</｜DSML｜invoke>", "</｜DSML｜function_calls>"],
        ),
        (
            "kimi_k3",
            "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"string\" type=\"string\"<|sep|>{V}<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
            ["<|close|>argument<|sep|>", "<|close|>call<|sep|>", "<|close|>tools<|sep|>"],
        ),
        (
            "functiongemma",
            "<start_function_call>call:f{string:<escape>{V}<escape>}<end_function_call>",
            ["}", "<end_function_call>", ","],
        ),
    ];
    for (name, call, [of_value, of_call, of_all]) in formats {
        for value in [
            format!("a {of_call} b"),
            format!("a {of_call}{of_all} b"),
            format!("a {of_all}\n b {of_call} c"),
            format!("{of_call}\n"),
            format!("a {of_value} b {of_value} c"),
        ] {
            let text = call.replace("{V}", &value);
            let arguments = serde_json::json!({ "string": value }).to_string().replacen("\":\"", "\": \"", 1);
            check(name, &[(&text, "", &[("f", &arguments)])]);
        }
    }
}

/// Without an end of the value, the end of the call ends both; what comes then is read as before.
#[test]
fn what_ends_a_call_does_so_where_no_value_ends_behind_it() {
    let open = "<tool_call>\n<function=f>\n<parameter=string>\na\n</function>\n</tool_call>";
    let f: (&str, &str) = ("f", r#"{"string": "a"}"#);
    check(
        "qwen3_coder",
        &[
            (open, "", &[f]),
            (&format!("{open} so </function> it is"), " so </function> it is", &[f]),
            (&format!("{open}\n{open}"), "", &[f, f]),
            (&format!("{open}\n<tool_call>\n<function=g>\n</function>\n</tool_call> on"), " on", &[f, ("g", "{}")]),
            (
                &format!("{open}\n<function=f><parameter=string>b</parameter></function>"),
                "",
                &[f, ("f", r#"{"string": "b"}"#)],
            ),
        ],
    );
}

/// In a text, `{V}` stands for what a string in JSON holds.
const OF_JSON: [(&str, &str, &[&str]); 5] = [
    ("mistral", "[TOOL_CALLS]f[ARGS]{\"string\": \"{V}\"}", &["[TOOL_CALLS]", "[TOOL_CALLS]g[ARGS]{}"]),
    (
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"string\": \"{V}\"}<|tool_call_end|><|tool_calls_section_end|>",
        &[
            "<|tool_call_end|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>g:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        ],
    ),
    (
        "deepseek_v31",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"string\": \"{V}\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        &["<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>"],
    ),
    (
        "deepseek_v3",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"string\": \"{V}\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        &["<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>function"],
    ),
    (
        "plamo3",
        "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>f<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{\"string\": \"{V}\"}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>",
        &["<|plamo:end_tool_arguments:plamo|>", "<|plamo:tag|>", "<|plamo:begin_tool_name:plamo|>g"],
    ),
];

#[test]
fn a_string_in_json_may_hold_marks_and_whole_calls() {
    for (name, call, marks) in OF_JSON {
        let all = marks.concat();
        for mark in marks.iter().copied().chain([all.as_str()]) {
            for value in [format!("x {mark} y"), format!("{mark}{mark}"), format!("\\\" {mark}\\\\")] {
                let arguments = format!("{{\"string\": \"{value}\"}}");
                check(name, &[(&call.replace("{V}", &value), "", &[("f", &arguments)])]);
            }
        }
    }
}

/// A string that never ends swallows nothing: the mark ends the call, whose JSON is broken.
#[test]
fn a_string_without_an_end_ends_at_the_mark() {
    let broken: (&str, &str) = ("f", r#"{"string": "x "#);
    let g = r#"{"integer":7,"string":"é"}"#;
    // White space around the arguments is none of them.
    let trimmed: (&str, &str) = ("f", r#"{"string": "x"#);
    check(
        "mistral",
        &[
            (r#"[TOOL_CALLS]f[ARGS]{"string": "x [TOOL_CALLS]g[ARGS]{} on"#, " on", &[trimmed, ("g", "{}")]),
            (
                &format!(r#"[TOOL_CALLS]f[ARGS]{{"string": "x [TOOL_CALLS]f[ARGS]{g}[TOOL_CALLS]g[ARGS]{{}}"#),
                "",
                &[trimmed, ("f", g), ("g", "{}")],
            ),
        ],
    );
    let call = |name: &str, arguments: &str| {
        format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>")
    };
    let first = format!("<｜tool▁calls▁begin｜>{}", call("f", broken.1));
    check(
        "deepseek_v31",
        &[
            (&format!("{first}<｜tool▁calls▁end｜> on"), " on", &[broken]),
            (&format!("{first}{}<｜tool▁calls▁end｜>", call("g", "{}")), "", &[broken, ("g", "{}")]),
            (&format!("{first}{}{}", call("f", g), call("g", "{}")), "", &[broken, ("f", g), ("g", "{}")]),
            (&format!("{first}{}{}", call("f", broken.1), call("g", "{}")), "", &[broken, broken, ("g", "{}")]),
        ],
    );
}

#[test]
fn a_text_between_quotes_may_hold_whole_calls() {
    let call =
        r#"<|tool_call>call:f{string:<|"|>x <tool_call|><|tool_call>call:g{}<tool_call|> y<|"|>}<tool_call|> on"#;
    let arguments = r#"{"string": "x <tool_call|><|tool_call>call:g{}<tool_call|> y"}"#;
    let unquoted = r#"<|tool_call>call:f{string:<|"|>x<tool_call|><|tool_call>call:f{string:<|"|>y<|"|>}<tool_call|>"#;
    check(
        "gemma4",
        &[
            (call, " on", &[("f", arguments)]),
            (unquoted, "", &[("f", r#"{"string": "x"}"#), ("f", r#"{"string": "y"}"#)]),
        ],
    );
    let call = "<start_function_call>call:f{string:<escape>x }<end_function_call><start_function_call>call:g{} y<escape>}<end_function_call>";
    let arguments = r#"{"string": "x }<end_function_call><start_function_call>call:g{} y"}"#;
    check("functiongemma", &[(call, "", &[("f", arguments)])]);
}

/// In a call, `{V}` stands for the value of `string`, and `{W}` for another argument, `array`, or nothing.
#[test]
fn a_value_may_hold_what_begins_an_argument() {
    let formats = [
        (
            "qwen3_coder",
            "<function=f>\n<parameter=string>\n{V}\n</parameter>\n{W}</function>",
            "<parameter=array>\n[1]\n</parameter>\n",
            "<parameter=array>",
        ),
        (
            "minimax_m2",
            "<invoke name=\"f\"><parameter name=\"string\">{V}</parameter>\n{W}</invoke>",
            "<parameter name=\"array\">[1]</parameter>\n",
            "<parameter name=\"array\">",
        ),
        (
            "step3",
            "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"f\"><steptml:parameter name=\"string\">{V}</steptml:parameter>{W}</steptml:invoke>",
            "<steptml:parameter name=\"array\">[1]</steptml:parameter>",
            "<steptml:parameter name=\"array\">",
        ),
        (
            "glm45",
            "<tool_call>f\n<arg_key>string</arg_key>\n<arg_value>{V}</arg_value>\n{W}</tool_call>",
            "<arg_key>array</arg_key>\n<arg_value>[1]</arg_value>\n",
            "<arg_key>array</arg_key>\n<arg_value>",
        ),
        (
            "deepseek_v32",
            "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"string\" string=\"true\">{V}</｜DSML｜parameter>{W}</｜DSML｜invoke>",
            "<｜DSML｜parameter name=\"array\" string=\"false\">[1]</｜DSML｜parameter>",
            "<｜DSML｜parameter name=\"array\" string=\"false\">",
        ),
        (
            "kimi_k3",
            "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"string\" type=\"string\"<|sep|>{V}<|close|>argument<|sep|>{W}<|close|>call<|sep|>",
            "<|open|>argument key=\"array\" type=\"array\"<|sep|>[1]<|close|>argument<|sep|>",
            "<|open|>argument key=\"array\" type=\"array\"<|sep|>",
        ),
    ];
    for (name, call, another, begin) in formats {
        let whole = another.trim_end();
        // The argument is there besides; and more values end than begin.
        for (value, more) in [
            (format!("x {begin} y"), true),
            (format!("x {whole} y"), false),
            (format!("x {whole} y"), true),
            (format!("{whole}{whole} y"), true),
        ] {
            let text = call.replace("{V}", &value).replace("{W}", if more { another } else { "" });
            let mut arguments = serde_json::json!({ "string": value }).to_string().replacen("\":\"", "\": \"", 1);
            if more {
                arguments.truncate(arguments.len() - 1);
                arguments += ", \"array\": [1]}";
            }
            check(name, &[(&text, "", &[("f", &arguments)])]);
        }
    }
    let glm = "<tool_call>f\n<arg_key>string</arg_key>\n<arg_value>x <arg_key> y</arg_value>\n</tool_call>";
    check("glm45", &[(glm, "", &[("f", r#"{"string": "x <arg_key> y"}"#)])]);
    let quoted = "<function name=\"f\"><param name=\"string\"><![CDATA[x <param name=\"a\"> y </param> z]]></param><param name=\"integer\">7</param></function>";
    check("minicpm5", &[(quoted, "", &[("f", r#"{"string": "x <param name=\"a\"> y </param> z", "integer": 7}"#)])]);
    let text = "~<tool_call>~<invoke name=\"f\">~<string>x ~<b> y~</string>~</invoke>".replace('~', "]<]minimax[>[");
    check("minimax_m3", &[(&text, "", &[("f", r#"{"string": "x ]<]minimax[>[<b> y"}"#)])]);
}

/// Where nothing says otherwise, an argument begins there, and the end of the value before it is missing.
#[test]
fn an_argument_ends_a_value_whose_end_is_missing() {
    for (name, text) in [
        ("qwen3_coder", "<function=f><parameter=string>x <parameter=integer>7</parameter></function>"),
        (
            "glm45",
            "<tool_call>f<arg_key>string</arg_key><arg_value>x <arg_key>integer</arg_key><arg_value>7</arg_value></tool_call>",
        ),
    ] {
        check(name, &[(text, "", &[("f", r#"{"string": "x ", "integer": 7}"#)])]);
    }
}
