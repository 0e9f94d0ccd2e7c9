mod answer_forms;
mod forced_values;
mod long_texts;
pub(super) mod lost;
mod marks;
mod marks_in_calls;
mod properties;
mod read_otherwise;
mod reasoning_marks;
mod recorded;
mod samples;

use super::*;

/// A format of calls by its name, behind which the suffix of its marks may stand: `hy_v3:6124c78e`.
pub(super) fn tool_parser(name: &str) -> ToolParser {
    let (name, suffix) = with_suffix(name);
    let tokens = ["<tool_calls>", "</tool_calls>"].map(|mark| suffix::spelled(mark, suffix));
    ToolParser::named(name).unwrap().of_vocabulary(&mut tokens.into_iter(), None).unwrap()
}

/// The same of a way of writing reasoning.
pub(super) fn reasoning_parser(name: &str) -> ReasoningParser {
    let (name, suffix) = with_suffix(name);
    let tokens = ["<think>", "</think>"].map(|mark| suffix::spelled(mark, suffix));
    ReasoningParser::named(name).unwrap().of_vocabulary(&mut tokens.into_iter(), None).unwrap()
}

fn with_suffix(name: &str) -> (&str, &str) {
    name.split_at(name.find(':').unwrap_or(name.len()))
}

#[test]
fn ids_are_those_of_vllm_and_never_the_same() {
    let [one, other] = [(), ()].map(|()| ToolCall::new("f".to_owned(), "{}".to_owned()).id);
    assert_ne!(one, other);
    let digits = one.strip_prefix("chatcmpl-tool-").unwrap();
    assert!(digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{one}");
}
