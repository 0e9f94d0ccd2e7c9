//! What one reading of a text shows that another does not.

use std::collections::BTreeMap;

/// Marks of formats that vLLM shows in some places and drops in others.
const MARKS: &[&str] = &[
    "<think>",
    "</think>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<tool_call>",
    "</tool_call>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<tool_call|>",
    "<parameter=",
    "</parameter>",
    "< / parameter >",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "<|python_tag|>",
    "\"name\"",
    "\"arguments\"",
    "\"parameters\"",
];

/// How often each letter is there, but for marks. Numbers and punctuation are spelled anew where a call is read; an `e` may
/// be of a number.
fn letters(text: &str) -> BTreeMap<char, usize> {
    let text = MARKS.iter().fold(text.to_owned(), |text, mark| text.replace(mark, ""));
    let mut found = BTreeMap::new();
    for c in text.to_lowercase().chars().filter(|c| c.is_alphabetic() && *c != 'e') {
        *found.entry(c).or_default() += 1;
    }
    found
}

/// The letters that `other` shows more often than `one`.
pub(in crate::parser) fn lost(one: &str, other: &str) -> String {
    let one = letters(one);
    let lost = letters(other).into_iter().filter(|(c, count)| one.get(c).is_none_or(|kept| kept < count));
    lost.map(|(c, _)| c).collect()
}
