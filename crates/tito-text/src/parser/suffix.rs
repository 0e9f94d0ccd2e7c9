//! Marks that end in a suffix of the checkpoint's own, such as `<tool_calls:6124c78e>`: those of Hunyuan's checkpoints.
//!
//! The suffix is looked for in the vocabulary, as vLLM does for `hy_v4` (`detect_token_suffix` in
//! `tool_parsers/hy_v4_tool_parser.py`). For `hy_v3` it takes the `token_suffix` of the tokenizer's configuration, which
//! decides here where the vocabulary has the marks with several. Such marks are made once, at the start, and live as long
//! as the program.

use std::collections::{BTreeSet, HashSet};

/// What Hunyuan's marks are called.
const NAMES: [&str; 6] = ["think", "tool_calls", "tool_call", "tool_sep", "arg_key", "arg_value"];

/// Nothing says which marks the model writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the vocabulary has its marks with several suffixes ({}), and `token_suffix` of tokenizer_config.json names none of them",
    .0.join(", ")
)]
pub struct SeveralSuffixes(Vec<String>);

/// The suffix with which a vocabulary has all marks of `needed`, or the only one that it has any mark with.
pub(super) fn found(
    tokens: &mut dyn Iterator<Item = String>,
    needed: &[&str],
    declared: Option<&str>,
) -> Result<String, SeveralSuffixes> {
    let marks: HashSet<String> = tokens.filter(|token| of_mark(token).is_some()).collect();
    let suffixes: BTreeSet<&str> = marks.iter().filter_map(|mark| of_mark(mark)).collect();
    let is_whole = |suffix: &str| needed.iter().all(|mark| marks.contains(&spelled(mark, suffix)));
    let whole: Vec<&str> = suffixes.iter().copied().filter(|suffix| is_whole(suffix)).collect();
    match whole[..] {
        [suffix] => Ok(suffix.to_owned()),
        // What is missing is named by whoever looks for the marks.
        [] => Ok(suffixes.first().filter(|_| suffixes.len() == 1).copied().unwrap_or_default().to_owned()),
        _ => match declared.filter(|declared| whole.contains(declared)) {
            Some(declared) => Ok(declared.to_owned()),
            None => Err(SeveralSuffixes(whole.iter().map(|suffix| format!("{suffix:?}")).collect())),
        },
    }
}

/// The suffix of a token that is a mark; an empty one where it has none.
fn of_mark(token: &str) -> Option<&str> {
    let inner = token.strip_prefix('<')?.strip_suffix('>')?;
    let inner = inner.strip_prefix('/').unwrap_or(inner);
    NAMES.iter().filter_map(|name| inner.strip_prefix(name)).find(|rest| {
        let tail = rest.strip_prefix(':');
        let is_suffix = |tail: &str| !tail.is_empty() && !tail.contains(|c: char| c == '>' || c.is_whitespace());
        rest.is_empty() || tail.is_some_and(is_suffix)
    })
}

/// A mark with a suffix.
pub(super) fn spelled(mark: &str, suffix: &str) -> String {
    mark.strip_suffix('>').map_or_else(|| mark.to_owned(), |start| format!("{start}{suffix}>"))
}

/// Marks with a suffix, kept for good.
pub(super) fn kept(marks: &[&str], suffix: &str) -> &'static [&'static str] {
    let marks: Vec<&'static str> = marks.iter().map(|mark| &*spelled(mark, suffix).leak()).collect();
    marks.leak()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::{ReasoningParser, ToolParser};

    fn tokens(texts: &[&str]) -> impl Iterator<Item = String> {
        texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn the_suffix_is_the_one_with_which_the_vocabulary_has_the_marks() {
        let needed = ["<tool_calls>", "</tool_calls>"];
        let several = |suffixes: [&str; 2]| Err(SeveralSuffixes(suffixes.map(|suffix| format!("{suffix:?}")).to_vec()));
        for (vocabulary, declared, suffix) in [
            (vec!["a", "<tool_calls>", "</tool_calls>"], None, Ok("")),
            (vec!["<tool_calls:6124c78e>", "</tool_calls:6124c78e>"], None, Ok(":6124c78e")),
            (vec!["</tool_calls:é.*>", "<tool_calls:é.*>", "<tool_call>"], None, Ok(":é.*")),
            // A token that only looks like a mark.
            (vec!["<tool_calls: a>", "<tool_calls:>", "<tool_callsx>", "<tool_calls:a>b>", "<x:b>"], None, Ok("")),
            // The marks that are missing have it too.
            (vec!["<think:b>"], None, Ok(":b")),
            (vec!["<think:b>", "<think:c>"], None, Ok("")),
            (vec!["<tool_calls>", "</tool_calls>", "<tool_calls:b>", "</tool_calls:b>"], Some(":b"), Ok(":b")),
            (vec!["<tool_calls>", "</tool_calls>", "<tool_calls:b>", "</tool_calls:b>"], Some(""), Ok("")),
            (vec!["<tool_calls>", "</tool_calls>", "<tool_calls:b>", "</tool_calls:b>"], None, several(["", ":b"])),
            (vec!["<tool_calls>", "</tool_calls>"], Some(":b"), Ok("")),
        ] {
            let read = found(&mut tokens(&vocabulary), &needed, declared);
            assert_eq!(read, suffix.map(str::to_owned), "{vocabulary:?} {declared:?}");
        }
        let message = SeveralSuffixes(vec!["\"\"".to_owned(), "\":b\"".to_owned()]).to_string();
        assert!(message.contains("(\"\", \":b\")") && message.contains("`token_suffix`"), "{message}");
    }

    #[test]
    fn only_formats_whose_marks_may_have_a_suffix_ask_for_it() {
        let never = || std::iter::from_fn(|| -> Option<String> { panic!("the vocabulary is read") });
        for name in ToolParser::names().filter(|name| !name.starts_with("hy_")) {
            let parser = ToolParser::named(name).unwrap();
            assert_eq!(parser.of_vocabulary(&mut never(), None), Ok(parser));
        }
        for name in ReasoningParser::names().filter(|name| !name.starts_with("hy_")) {
            let parser = ReasoningParser::named(name).unwrap();
            assert_eq!(parser.of_vocabulary(&mut never(), None), Ok(parser));
        }
        let vocabulary = ["<think:b>", "</think:b>", "<tool_calls:b>", "</tool_calls:b>"];
        for name in ["hy_v3", "hy_v4"] {
            let (calls, reasoning) = (ToolParser::named(name).unwrap(), ReasoningParser::named(name).unwrap());
            let spelled = calls.of_vocabulary(&mut tokens(&vocabulary), None).unwrap();
            assert_ne!(spelled, calls);
            assert_eq!(spelled.needed_tokens(), ["<tool_calls:b>", "</tool_calls:b>"]);
            let spelled = reasoning.of_vocabulary(&mut tokens(&vocabulary), None).unwrap();
            assert_ne!(spelled, reasoning);
            assert_eq!(spelled.needed_tokens(), ["<think:b>", "</think:b>"]);
            assert_eq!(spelled.marks().unwrap().call, Some("<tool_calls:b>"));
        }
    }
}
