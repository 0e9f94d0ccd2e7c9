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
