//! Calls that are JSON between marks, in the families that differ in nothing else. vLLM reads them in files of their own
//! (in `tool_parsers`, and `parser/granite.py` and `parser/cohere_command.py`):
//!
//! - `granite`: `<|tool_call|>[{"name", "arguments"}, …]`, in Granite 3.1 after `<tool_call>`.
//! - `granite-20b-fc`: `<function_call>{"name", "arguments"}` for each call.
//! - `gigachat3`: `<|function_call|>{"name", "arguments"}`, in `GigaChat` 3.0 after `function call<|role_sep|>` instead, and
//!   mostly after `<|message_sep|>`.
//! - `granite4`: `<tool_call>{"name", "arguments"}</tool_call>`.
//! - `ernie45`: likewise, but arguments may be missing.
//! - `longcat`: `<longcat_tool_call>{"name", "arguments"}</longcat_tool_call>`.
//! - `hunyuan_a13b` and `jamba`: `<tool_calls>[{"name", "arguments"}, …]</tool_calls>`.
//! - `phi4_mini_json`: `functools[{"name", "arguments"}, …]`.
//! - `internlm`: `<|action_start|><|plugin|>{"name", "parameters"}<|action_end|>`.
//! - `apertus`: `<|tools_prefix|>[{NAME: ARGUMENTS}, …]<|tools_suffix|>`.
//! - `cohere_command3` and `cohere_command4`:
//!   `<|START_ACTION|>[{"tool_call_id", "tool_name", "parameters"}, …]<|END_ACTION|>`.
//!
//! What deviates on purpose, besides what `json_blocks` says:
//! - `phi4_mini_json`: arguments may hold a `]`. vLLM stops there, and answers with neither calls nor text.
//! - `hunyuan_a13b`: a list with entries that are no calls is content, and so is `助手：`. vLLM drops both.
//! - `internlm`: only white space stands between the marks and the object. vLLM skips anything.
//! - `apertus`: an object with two names is no call. vLLM loses the second.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar},
    json_blocks::{Blocks, Call, Keys, Shape},
};
use crate::{chat::FunctionTool, structured::Format};

pub(super) const APERTUS: CallFormat = CallFormat { trims: true, ..format::<Apertus>("apertus") };
pub(super) const COHERE_COMMAND3: CallFormat =
    CallFormat { drops_others: true, ..format::<CohereCommand>("cohere_command3") };
pub(super) const COHERE_COMMAND4: CallFormat =
    CallFormat { drops_others: true, ..format::<CohereCommand>("cohere_command4") };
pub(super) const ERNIE45: CallFormat =
    CallFormat { keeps_special_tokens: false, trims: true, ..format::<Ernie45>("ernie45") };
pub(super) const GRANITE: CallFormat =
    CallFormat { trims: true, drops_others: true, silence_is_null: true, ..format::<Granite>("granite") };
pub(super) const GIGACHAT3: CallFormat = format::<GigaChat3>("gigachat3");
pub(super) const GRANITE_20B_FC: CallFormat =
    CallFormat { keeps_special_tokens: false, ..format::<Granite20bFc>("granite-20b-fc") };
pub(super) const GRANITE4: CallFormat = format::<Granite4>("granite4");
pub(super) const HUNYUAN_A13B: CallFormat =
    CallFormat { keeps_special_tokens: false, ..format::<HunyuanA13b>("hunyuan_a13b") };
pub(super) const INTERNLM: CallFormat = format::<Internlm>("internlm");
pub(super) const JAMBA: CallFormat = CallFormat { needs: Jamba::MARKS, ..format::<Jamba>("jamba") };
pub(super) const LONGCAT: CallFormat = format::<Longcat>("longcat");
/// Its mark is a word, which may stand in thoughts too.
pub(super) const PHI4_MINI_JSON: CallFormat =
    CallFormat { keeps_special_tokens: false, begins_call: &[], ..format::<Phi4Mini>("phi4_mini_json") };

/// One of the families.
trait Family {
    const BLOCKS: Blocks;
    /// All marks that may be special tokens.
    const MARKS: &'static [&'static str];

    fn grammar(demand: &Demand<'_>) -> Format {
        Self::BLOCKS.grammar(demand)
    }
}

const fn format<F: Family>(name: &'static str) -> CallFormat {
    CallFormat {
        marks: F::MARKS,
        begins_call: F::BLOCKS.begins,
        ..CallFormat::new(name, reader::<F>, Forcing::Native(Grammar::new(F::grammar)))
    }
}

fn reader<F: Family>(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    F::BLOCKS.reader(tools)
}

struct Apertus;

impl Family for Apertus {
    const BLOCKS: Blocks =
        Blocks { call: Call::Pair, ..Blocks::new(&["<|tools_prefix|>"], &["<|tools_suffix|>"], Shape::List) };
    const MARKS: &'static [&'static str] = &["<|tools_prefix|>", "<|tools_suffix|>"];
}

struct CohereCommand;

impl Family for CohereCommand {
    const BLOCKS: Blocks = Blocks {
        call: Call::Keyed(Keys {
            name: "tool_name",
            arguments: &["parameters"],
            number: Some("tool_call_id"),
            ..Keys::NAMED
        }),
        ..Blocks::new(&["<|START_ACTION|>"], &["<|END_ACTION|>"], Shape::List)
    };
    const MARKS: &'static [&'static str] = &["<|START_ACTION|>", "<|END_ACTION|>"];
}

struct Ernie45;

impl Family for Ernie45 {
    const BLOCKS: Blocks = Blocks {
        call: Call::Keyed(Keys { may_lack: true, ..Keys::NAMED }),
        on_lines: true,
        ..Blocks::new(&["<tool_call>"], &["</tool_call>"], Shape::Object)
    };
    const MARKS: &'static [&'static str] = &["<tool_call>", "</tool_call>"];
}

struct GigaChat3;

/// The mark of `GigaChat` 3.1, which is a token.
const FUNCTION_CALL: &str = "<|function_call|>";
/// The head of a message of `GigaChat` 3.0.
const FUNCTION_CALL_ROLE: &str = "function call<|role_sep|>\n";

impl Family for GigaChat3 {
    const BLOCKS: Blocks = Blocks::new(
        &[
            FUNCTION_CALL,
            FUNCTION_CALL_ROLE,
            "<|message_sep|>\n\n<|function_call|>",
            "<|message_sep|><|function_call|>",
            "<|message_sep|>\n\nfunction call<|role_sep|>\n",
        ],
        &["<|message_sep|>", "</s>"],
        Shape::Object,
    );
    const MARKS: &'static [&'static str] = &[FUNCTION_CALL, "<|message_sep|>", "<|role_sep|>", "</s>"];

    /// The mark that the model's vocabulary has.
    fn grammar(demand: &Demand<'_>) -> Format {
        let begins = if (demand.has_token)(FUNCTION_CALL) { &[FUNCTION_CALL] } else { &[FUNCTION_CALL_ROLE] };
        Blocks::new(begins, &[], Shape::Object).grammar(demand)
    }
}

struct Granite20bFc;

impl Family for Granite20bFc {
    const BLOCKS: Blocks = Blocks::new(&["<function_call>"], &[], Shape::Object);
    const MARKS: &'static [&'static str] = &["<function_call>"];
}

struct Granite;

impl Family for Granite {
    const BLOCKS: Blocks =
        Blocks { spoils: false, fits: true, ..Blocks::new(&["<|tool_call|>", "<tool_call>"], &[], Shape::List) };
    const MARKS: &'static [&'static str] = &["<|tool_call|>", "<tool_call>"];
}

struct Granite4;

impl Family for Granite4 {
    const BLOCKS: Blocks = Blocks {
        call: Call::Keyed(Keys { takes_text: true, ..Keys::NAMED }),
        on_lines: true,
        ..Blocks::new(&["<tool_call>"], &["</tool_call>"], Shape::Object)
    };
    const MARKS: &'static [&'static str] = &["<tool_call>", "</tool_call>"];
}

struct HunyuanA13b;

impl Family for HunyuanA13b {
    const BLOCKS: Blocks = Blocks {
        call: Call::Keyed(Keys { takes_text: true, ..Keys::NAMED }),
        spoils: false,
        ..Blocks::new(&["<tool_calls>"], &["</tool_calls>"], Shape::List)
    };
    const MARKS: &'static [&'static str] = &["<tool_calls>", "</tool_calls>"];
}

struct Internlm;

impl Family for Internlm {
    const BLOCKS: Blocks = Blocks {
        call: Call::Keyed(Keys { arguments: &["parameters", "arguments"], may_lack: true, ..Keys::NAMED }),
        on_lines: true,
        ..Blocks::new(&["<|action_start|><|plugin|>"], &["<|action_end|>"], Shape::Object)
    };
    const MARKS: &'static [&'static str] = &["<|action_start|>", "<|plugin|>", "<|action_end|>"];
}

struct Jamba;

impl Family for Jamba {
    const BLOCKS: Blocks = Blocks::new(&["<tool_calls>"], &["</tool_calls>"], Shape::List);
    const MARKS: &'static [&'static str] = &["<tool_calls>", "</tool_calls>"];
}

struct Longcat;

impl Family for Longcat {
    const BLOCKS: Blocks =
        Blocks { on_lines: true, ..Blocks::new(&["<longcat_tool_call>"], &["</longcat_tool_call>"], Shape::Object) };
    const MARKS: &'static [&'static str] = &["<longcat_tool_call>", "</longcat_tool_call>"];
}

struct Phi4Mini;

impl Family for Phi4Mini {
    const BLOCKS: Blocks = Blocks {
        call: Call::Keyed(Keys { arguments: &["arguments", "parameters"], ..Keys::NAMED }),
        ..Blocks::new(&["functools["], &[], Shape::List)
    };
    const MARKS: &'static [&'static str] = &[];
}

#[cfg(test)]
mod tests {
    use crate::parser::{
        Piece,
        tools::tests::{check, pieces},
    };

    #[test]
    fn lists_after_a_mark_are_calls() {
        for (name, begin, end) in [
            ("granite", "<|tool_call|>", ""),
            ("granite", "<tool_call> ", ""),
            ("hunyuan_a13b", "<tool_calls>", "</tool_calls>"),
            ("jamba", "<tool_calls>\n", "\n</tool_calls>"),
            ("phi4_mini_json", "functools", ""),
        ] {
            let read = |list: &str| format!("{begin}{list}{end}");
            let one = read(r#"[{"name": "f", "arguments": {"string":"[é]"}}]"#);
            let two = read(r#"[{"name":"f","arguments":{"integer":1}}, {"name": "g", "arguments": {}, "id": 3}]"#);
            let more = format!("I look.{two} done{one}");
            let cut = read(r#"[{"name": "f", "arguments": {}}"#);
            let empty = read("[]");
            let object = format!("so {}", read(r#"{"name": "f", "arguments": {}}"#));
            let unknown = read(r#"[{"name": "f", "arguments": {}, "x": [1]}]"#);
            check(
                name,
                &[
                    (&one, "", &[("f", r#"{"string": "[é]"}"#)]),
                    (&two, "", &[("f", r#"{"integer": 1}"#), ("g", "{}")]),
                    (&more, "I look. done", &[("f", r#"{"integer": 1}"#), ("g", "{}"), ("f", r#"{"string": "[é]"}"#)]),
                    (&unknown, r#"{"x": [1]}"#, &[("f", "{}")]),
                    (&cut, &cut, &[]),
                    (&empty, &empty, &[]),
                    (&object, &object, &[]),
                ],
            );
        }
    }

    #[test]
    fn objects_between_marks_are_calls() {
        for (name, begin, end) in [
            ("granite4", "<tool_call>", "</tool_call>"),
            ("ernie45", "\n<tool_call>\n", "\n</tool_call>"),
            ("longcat", "<longcat_tool_call>", "</longcat_tool_call>"),
            ("internlm", "<|action_start|><|plugin|>\n", "<|action_end|>"),
        ] {
            let read = |call: &str| format!("{begin}{call}{end}");
            let one = format!("I look.{} done", read(r#"{"name": "f", "arguments": {"string": "</tool_call>"}}"#));
            let two = read(r#"{"name":"f","arguments":{"integer":1}}"#) + &read(r#"{"arguments": {}, "name": "g"}"#);
            let open = format!(r#"{begin}{{"name": "f", "arguments": {{}}}}"#);
            let next = format!("{open}{open}");
            let cut = format!(r#"so {begin}{{"name": "f", "arguments": {{"a": 1"#);
            let list = format!("so {}", read(r#"[{"name": "f", "arguments": {}}]"#));
            check(
                name,
                &[
                    (&one, "I look. done", &[("f", r#"{"string": "</tool_call>"}"#)]),
                    (&two, "", &[("f", r#"{"integer": 1}"#), ("g", "{}")]),
                    (&open, "", &[("f", "{}")]),
                    (&next, "", &[("f", "{}"), ("f", "{}")]),
                    (&cut, &cut, &[]),
                    (&list, &list, &[]),
                ],
            );
        }
    }

    #[test]
    fn cohere_numbers_its_calls() {
        let text = r#"<|START_ACTION|>[{"tool_call_id": "7", "tool_name": "f", "parameters": {}}]<|END_ACTION|>"#;
        let [Piece::Call(call)] = &pieces("cohere_command4", &[], [text])[..] else { panic!() };
        assert_eq!((call.id.as_str(), call.name.as_str()), ("7", "f"));
    }

    #[test]
    fn each_family_has_its_own_keys() {
        check(
            "cohere_command3",
            &[(
                "I look.<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"integer\": 1}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {}}\n]<|END_ACTION|>",
                "I look.",
                &[("f", r#"{"integer": 1}"#), ("g", "{}")],
            )],
        );
        check(
            "apertus",
            &[
                (
                    r#"I look. <|tools_prefix|>[{"f": {"integer": 1}}, {"g": {}}]<|tools_suffix|> done"#,
                    "I look. done",
                    &[("f", r#"{"integer": 1}"#), ("g", "{}")],
                ),
                (r#"<|tools_prefix|>[{"f": {}, "g": {}}]"#, r#"<|tools_prefix|>[{"f": {}, "g": {}}]"#, &[]),
            ],
        );
        check(
            "internlm",
            &[
                (
                    r#"<|action_start|><|plugin|>{"name": "f", "parameters": {"a": "é"}}<|action_end|>"#,
                    "",
                    &[("f", r#"{"a": "é"}"#)],
                ),
                (r#"<|action_start|><|plugin|>{"name": "f"}"#, "", &[("f", "{}")]),
            ],
        );
        check(
            "granite-20b-fc",
            &[
                (
                    r#"I look. <function_call> {"name": "f", "arguments": {"a": "<b>"}}<function_call> {"name": "g", "arguments": {}} on"#,
                    "I look.  on",
                    &[("f", r#"{"a": "<b>"}"#), ("g", "{}")],
                ),
                (r#"<function_call> {"name": "f"}"#, r#"<function_call> {"name": "f"}"#, &[]),
            ],
        );
        let f: &[_] = &[("f", r#"{"a": 1}"#)];
        check(
            "gigachat3",
            &[
                (r#"<|function_call|>{"name": "f", "arguments": {"a": 1}}</s>"#, "", f),
                (
                    "I look.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
                    "I look.",
                    f,
                ),
                (
                    "<|message_sep|>\n\n<|function_call|>{\"name\": \"f\", \"arguments\": {\"a\": 1}}<|message_sep|>",
                    "",
                    f,
                ),
                ("A function call<|role_sep|>\n{} ", "A function call<|role_sep|>\n{} ", &[]),
                (r#"<|function_call|>{"name": "f", "arg"#, r#"<|function_call|>{"name": "f", "arg"#, &[]),
            ],
        );
        check("ernie45", &[(r#"<tool_call>{"name": "f"}</tool_call>"#, "", &[("f", "{}")])]);
        check(
            "granite4",
            &[(r#"<tool_call>{"name": "f", "arguments": "{\"a\":1}"}</tool_call>"#, "", &[("f", r#"{"a":1}"#)])],
        );
        check(
            "granite",
            &[(
                r#"<tool_call> so <|tool_call|>[{"name": "f", "arguments": {"integer": "1"}}]"#,
                "<tool_call> so",
                &[("f", r#"{"integer": 1}"#)],
            )],
        );
    }
}
