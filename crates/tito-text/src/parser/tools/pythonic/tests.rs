use super::*;
use crate::parser::tools::tests::{Folded, agreed, calls as expected, folded};

const NONE: &[(&str, &str)] = &[];

#[test]
fn a_list_of_calls_becomes_calls_in_json() {
    for (text, calls) in [
        ("[f()]", &[("f", "{}")][..]),
        ("[f(a=1, b='x'), g(c=[1, 2.50,])]\n", &[("f", r#"{"a": 1, "b": "x"}"#), ("g", r#"{"c": [1, 2.50]}"#)]),
        ("[f(a=-1, b=+2.0, c=- -3, d=-0, e=-0.0)]", &[("f", r#"{"a": -1, "b": 2.0, "c": 3, "d": 0, "e": -0.0}"#)]),
        ("[f(a=None, b=True, c=null, d=false)]", &[("f", r#"{"a": null, "b": true, "c": null, "d": false}"#)]),
        (
            "[f(a=(1, 'é'), b=(2), c=(3,), d=(), e={4, 5})]",
            &[("f", r#"{"a": [1, "é"], "b": 2, "c": [3], "d": [], "e": [4, 5]}"#)],
        ),
        ("[f(a={'k': {}, 1: 2, 1.5: 3, None: 5})]", &[("f", r#"{"a": {"k": {}, "1": 2, "1.5": 3, "null": 5}}"#)]),
        ("[f(a=1_000, b=0x1F, c=0b11, d=0o17, e=00)]", &[("f", r#"{"a": 1000, "b": 31, "c": 3, "d": 15, "e": 0}"#)]),
        (
            "[f(a=.5, b=5., c=1e3, d=09.5, e=1e999)]",
            &[("f", r#"{"a": 0.5, "b": 5.0, "c": 1e3, "d": 9.5, "e": Infinity}"#)],
        ),
        (
            r#"[f(a="it's", b='\'"\\\n\x41\u00e9\101\q', c=r'\n')]"#,
            &[("f", r#"{"a": "it's", "b": "'\"\\\nAéA\\q", "c": "\\n"}"#)],
        ),
        ("[f(a='x' \"y\"\n'''z\n''', b=f'{{é}}')]", &[("f", r#"{"a": "xyz\n", "b": "{é}"}"#)]),
        ("[f(a='[)]', # note\n  b=1),\n g.h(c=2)] ;# end", &[("f", r#"{"a": "[)]", "b": 1}"#), ("g.h", r#"{"c": 2}"#)]),
    ] {
        assert_eq!(read("pythonic", text), (String::new(), expected(calls)), "{text}");
    }
}

#[test]
fn what_is_no_list_of_calls_is_content_to_the_letter() {
    for text in [
        "",
        "Hello",
        "[",
        "[f(a=1)",
        "[f(a=1)] is it",
        "[f(a=1)]; so",
        "[f(a=1)]\n7",
        "[f(a=1, a=2)]",
        "[f(a={1: 2, True: 4})]",
        "[f(a=1), g(x.y, 'z', b=3)]",
        "[f(a=1)]\nDone!",
        " [f()]",
        "[f(a=1),]",
        "[f(a=x)]",
        "[f(a=1+2)]",
        "[f(a=b'x')]",
        "[f(a=1j)]",
        "[f(a=...)]",
        "[f(a=01)]",
        "[f(a=1__0)]",
        "[f(a='x\ny')]",
        "[f(a='x)]",
        "[f(from=1)]",
        "[f(a=-True)]",
        "[f(a=-'x')]",
        "[f(a={-1: 2})]",
        "[f(a={**b})]",
        "[f(a={1: 2, 3})]",
        "[f(a=1)(b=2)]",
        "[f(a=1), 5]",
        "[f(a=1), x]",
        "[f(a=1).g(b=2)]",
        "[f(a=1, 2)]",
        "[f(a=1) g(b=2)]",
        "[f(a=f'{x}')]",
        "[f(a='\\ud800')]",
        "[f(a='\\N{DASH}')]",
        "[f(a='\\x4')]",
        "[f(a={,})]",
        "[f(a=(,))]",
        "[f(a==1)]",
        "[f(a=\0)]",
        "f(a=1)",
        "<|python_start|>[f()]<|python_end|>",
    ] {
        assert_eq!(read("pythonic", text), (text.to_owned(), expected(NONE)), "{text}");
    }
}

#[test]
fn llama_4_may_wrap_its_list_in_tokens() {
    for (text, content, calls) in [
        ("<|python_start|>[f(a=1)]<|python_end|>", "", &[("f", r#"{"a": 1}"#)][..]),
        ("<|python_start|>[f()]", "", &[("f", "{}")]),
        ("[f()]", "", &[("f", "{}")]),
        ("[f()]<|python_end|>", "[f()]<|python_end|>", NONE),
        ("<|python_start|>say", "<|python_start|>say", NONE),
        ("<|python_st", "<|python_st", NONE),
        ("<|so", "<|so", NONE),
    ] {
        assert_eq!(read("llama4_pythonic", text), (content.to_owned(), expected(calls)), "{text}");
    }
}

#[test]
fn content_streams_once_it_cannot_be_a_list() {
    let mut reader = llama4_reader(&[]);
    let mut given = Vec::new();
    for piece in ["<|py", "tho", "x", "y", "[f()]"] {
        let mut out = Vec::new();
        reader.push(piece, &mut out);
        given.push(out);
    }
    let content = |text: &str| vec![Piece::Content(text.to_owned())];
    assert_eq!(given, [vec![], vec![], content("<|pythox"), content("y"), content("[f()]")]);
}

#[test]
fn brackets_nest_as_deep_as_in_python() {
    let nested = |depth: usize| format!("[f(a={}{})]", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(read("pythonic", &nested(198)).1.len(), 1);
    assert_eq!(read("pythonic", &nested(199)).1.len(), 0);
    assert_eq!(folded("pythonic", &[], [nested(100_000).as_str()]).1.len(), 0);
}

fn read(format: &str, text: &str) -> Folded {
    agreed(format, &[], text)
}
