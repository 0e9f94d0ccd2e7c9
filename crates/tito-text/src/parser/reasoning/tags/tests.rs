//! Texts and what is reasoning in them, format by format.

use super::PieceSink;
use crate::{
    json::Value,
    parser::{Piece, PromptReasoning, ReasoningParser},
};

/// Pieces of a request that has no tools.
impl PieceSink for Vec<Piece> {
    fn put(&mut self, piece: Piece) {
        self.push(piece);
    }

    fn is_in_call(&self) -> bool {
        false
    }
}

/// Reasoning and content that `name` finds, with the template's variables.
fn read(name: &str, variables: &str, prompt: PromptReasoning, text: &str) -> (Option<String>, String) {
    let variables = Value::parse(variables).unwrap();
    let format = ReasoningParser::named(name).unwrap().format(variables.as_object().unwrap());
    let Some(mut reader) = format.reader(prompt, &[]) else { return (None, text.to_owned()) };
    let mut pieces = Vec::new();
    reader.push(text, &mut pieces);
    reader.finish(&|_| true, &mut pieces);
    let (mut reasoning, mut content) = (None, String::new());
    for piece in pieces {
        match piece {
            Piece::Reasoning(text) => reasoning.get_or_insert_with(String::new).push_str(&text),
            Piece::Content(text) => content.push_str(&text),
            Piece::Call(call) => panic!("{call:?}"),
        }
    }
    (reasoning, content)
}

#[track_caller]
fn check(name: &str, text: &str, reasoning: Option<&str>, content: &str) {
    assert_eq!(
        read(name, "{}", PromptReasoning::Unmarked, text),
        (reasoning.map(str::to_owned), content.to_owned()),
        "{name}: {text:?}"
    );
}

#[test]
fn deepseek_r1_takes_the_first_marks_and_trims_nothing() {
    let r1 = "deepseek_r1";
    check(r1, "<think>\na\n</think>\n\nb", Some("\na\n"), "\n\nb");
    check(r1, "a</think>b", Some("a"), "b");
    check(r1, "a</think>", Some("a"), "");
    check(r1, "<think></think>b", Some(""), "b");
    check(r1, "a", Some("a"), "");
    check(r1, "", Some(""), "");
    check(r1, " \n<think>a</think>b", Some("a"), "b");
    check(r1, " \na</think>b", Some(" \na"), "b");
    check(r1, " \n", Some(" \n"), "");
    check(r1, "<think>a<think>b</think>c</think>d<think>e", Some("a<think>b"), "c</think>d<think>e");
    check(r1, "so <think>a</think>b", Some("so a"), "b");
    check(r1, "a</thin", Some("a</thin"), "");
    check(r1, "a<tool_call>b</think>c", Some("a<tool_call>b"), "c");
}

#[test]
fn qwen3_drops_all_marks_and_calls_end_it() {
    let qwen3 = "qwen3";
    check(qwen3, "<think>\na\n</think>\n\nb", Some("\na\n"), "\n\nb");
    check(qwen3, "a</think>b</think>c<think>d", Some("a"), "bc<think>d");
    check(qwen3, "<think></think>b", None, "b");
    check(qwen3, "a", Some("a"), "");
    check(qwen3, "", None, "");
    check(qwen3, "a<think>b\n<tool_call>{}</tool_call>c</think>d", Some("ab\n<tool_call>{}</tool_call>c"), "d");
    check(qwen3, "a<think>b\n<tool_call>{}</tool_call>c", Some("ab\n"), "<tool_call>{}</tool_call>c");
    check(qwen3, "a</tool_call>b", Some("a</tool_call>b"), "");
    check(qwen3, "a<tool_cal", Some("a<tool_cal"), "");
}

#[test]
fn others_drop_white_space_behind_reasoning() {
    for (name, call) in [
        ("glm45", "<tool_call>"),
        ("kimi_k2", "<|tool_calls_section_begin|>"),
        ("minimax_m2", "<minimax:tool_call>"),
        ("nemotron_v3", "<tool_call>"),
        ("nemotron", "<tool_call>"),
    ] {
        check(name, "<think>\na \n\n</think>\n\nb", Some("\na"), "\n\nb");
        check(name, " \n</think>b", None, "b");
        check(name, "a \n", Some("a"), "");
        check(name, &format!("a\n{call}b"), Some("a"), &format!("{call}b"));
    }
    check("glm45", "a \n</think>b<think> c</think>d", Some("a \n c"), "bd");
    check("kimi_k2", "a</think>b<think>c", Some("a"), "b<think>c");
}

#[test]
fn models_that_begin_their_thoughts_by_themselves_need_not_think() {
    for (name, start, end, call) in [
        ("gemma4", "<|channel>", "<channel|>", "<|tool_call>"),
        ("gemma4", "<|channel>thought\n", "<channel|>", "<|tool_call>"),
        ("mistral", "[THINK]", "[/THINK]", "[TOOL_CALLS]"),
        ("minimax_m3", "<mm:think>", "</mm:think>", "]<]minimax[>[<tool_call>"),
        ("cohere_command3", "<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>"),
        ("cohere_command4", "<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>"),
    ] {
        check(name, "a", None, "a");
        check(name, "", None, "");
        check(name, &format!("{start}a{end}b"), Some("a"), "b");
        check(name, &format!("{end}b{end}c"), None, "bc");
        check(name, &format!("b{start}a{end}c{start}d"), Some("ad"), "bc");
        check(name, &format!("{start}a{call}b"), Some("a"), &format!("{call}b"));
        check(name, &format!("{start}a{call}b{end}c"), Some(&format!("a{call}b")), "c");
        let begun = read(name, "{}", PromptReasoning::Begun(0), &format!("a{end}b"));
        assert_eq!(begun, (Some("a".to_owned()), "b".to_owned()), "{name}");
    }
    check("mistral", "[THINK]a\n[/THINK]\nb", Some("a"), "\nb");
    check("gemma4", "<|channel>thought\nthought\na<channel|>b", Some("thought\na"), "b");
    check("gemma4", "<|channel>thoughts<channel|>b", Some("thoughts"), "b");
    check("gemma4", "<|channel>thought<channel|>thought\nb", None, "thought\nb");
}

#[test]
fn deepseek_v4_thinks_unless_told_and_may_think_all_the_same() {
    check("deepseek_v4", "a\n</think>\nb", Some("a"), "\nb");
    check("deepseek_v4", "a<｜DSML｜tool_calls>b", Some("a"), "<｜DSML｜tool_calls>b");
    check("deepseek_v41", "a<｜DSML｜ calls>b", Some("a"), "<｜DSML｜ calls>b");
    let told = r#"{"thinking": false}"#;
    let read = read("deepseek_v4", told, PromptReasoning::Unmarked, "<think>a</think>b");
    assert_eq!(read, (Some("a".to_owned()), "b".to_owned()));
}

#[test]
fn others_share_the_tags_of_deepseek_and_qwen() {
    for name in ["holo2", "olmo3", "step3", "step5", "ernie45"] {
        check(name, "<think>\na\n</think>b</think>", Some("\na\n"), "b</think>");
        check(name, "a", Some("a"), "");
    }
    check("mimo", "a\n</think>b", Some("a\n"), "b");
    check("step3p5", "a\n</think>b", Some("a"), "b");
    check("seed_oss", "<seed:think>a\n</seed:think>b", Some("a\n"), "b");
    check("seed_oss", "a<seed:tool_call>b", Some("a"), "<seed:tool_call>b");
    check("ling3", "a</think>b<think>c", Some("ac"), "b");
}

#[test]
fn granite_thinks_between_sentences() {
    for (thought, response) in [("Here is", "Here is"), ("Here's", "Here's"), ("Here is", "Here's")] {
        let text = format!("{thought} my thought process: a: {response} my response: b");
        check("granite", &text, Some(" a: "), " b");
    }
    check("granite", "Here is my response: b", None, "Here is my response: b");
    check("granite", "b Here is my thought process: a", None, "b Here is my thought process: a");
    check("granite", "Here is my thought process: a Here is my resp", Some(" a Here is my resp"), "");
    check("granite", "Here is my tho", None, "Here is my tho");
}

#[test]
fn marks_around_the_answer_are_dropped() {
    check("hunyuan_a13b", "<think>\na\n</think>\n<answer>\nb\n</answer>", Some("a"), "b");
    check("hunyuan_a13b", "<think>\n\n</think>\n<answer>\nb\n</answer>", None, "b");
    check("hunyuan_a13b", "<answer>\nb", None, "b");
    check("hunyuan_a13b", "a <answer>b</answer>", None, "a <answer>b</answer>");
    check("ernie45", "a\n</think>\n\n<response>\nb\n</response>\n", Some("a\n"), "b\n");
    check("ernie45", "a</think>\nb<response>", Some("a"), "\nb<response>");
    for (open, close) in [("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")] {
        let text = format!("<|START_THINKING|>a {open}<|END_THINKING|>{open}b{close}");
        check("cohere_command3", &text, Some(&format!("a {open}")), "b");
    }
}

#[test]
fn kimi_k3_has_a_channel_for_each() {
    let (think, answer) = ("<|open|>think<|sep|>", "<|open|>response<|sep|>");
    let (thought, answered) = ("<|close|>think<|sep|>", "<|close|>response<|sep|><|close|>message<|sep|>");
    check("kimi_k3", &format!("{think}a{thought}{answer}b{answered}"), Some("a"), "b");
    check("kimi_k3", &format!("a{thought}b"), Some("a"), "b");
    check("kimi_k3", &format!("{answer}b{answered}"), None, "b");
    check("kimi_k3", &format!("a{answer}b"), Some("a"), "b");
    check("kimi_k3", "a<|open|>tools<|sep|>b", Some("a"), "<|open|>tools<|sep|>b");
    let told = r#"{"thinking": false}"#;
    let read = read("kimi_k3", told, PromptReasoning::Unmarked, &format!("{answer}b{answered}"));
    assert_eq!(read, (None, "b".to_owned()));
}

#[test]
fn minimax_m2_append_think_gives_the_start_back() {
    check("minimax_m2_append_think", "a</think>b", None, "<think>a</think>b");
    check("minimax_m2_append_think", "", None, "<think>");
}

#[test]
fn nothing_is_reasoning_where_the_prompt_ended_it_or_the_model_does_not_think() {
    for name in ["deepseek_r1", "qwen3", "glm45", "kimi_k2", "minimax_m2", "nemotron_v3"] {
        assert_eq!(read(name, "{}", PromptReasoning::Ended, "a <b"), (None, "a <b".to_owned()), "{name}");
    }
    for name in ["deepseek_v3", "qwen3", "glm45", "kimi_k2", "nemotron_v3"] {
        let text = "<think>a</think>b";
        assert_eq!(
            read(name, r#"{"enable_thinking": false}"#, PromptReasoning::Unmarked, text),
            (None, text.to_owned()),
            "{name}"
        );
    }
}

#[test]
fn reasoning_that_nothing_follows_is_content_if_the_request_wants_some() {
    let forced = r#"{"force_nonempty_content": true}"#;
    for (text, reasoning, content) in
        [("a", None, "a"), ("a</think>\n", Some("\n"), "a"), ("a</think>\nb", Some("a"), "\nb"), ("", None, "")]
    {
        let expected = (reasoning.map(str::to_owned), content.to_owned());
        assert_eq!(read("nemotron_v3", forced, PromptReasoning::Unmarked, text), expected, "{text:?}");
    }
}
