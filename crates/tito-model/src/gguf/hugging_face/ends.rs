//! The tokens that end a generation.
//!
//! A file names one, two or three of them. A `generation_config.json` lists all, and no key of a GGUF file does. llama.cpp
//! finds the others in the vocabulary by their texts, and so does this.

use super::super::{GgufError, GgufFile, metadata::Metadata, tokenizer::CONTROL};
use crate::TokenId;

/// Texts of tokens that end a generation wherever a vocabulary has them: llama.cpp's list. Its tokens of code completion
/// (such as `<|file_sep|>`) are left out, as no published `generation_config.json` has them.
const ENDS: [&str; 22] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Tokens that end no generation beside those of one of these groups: `<|end|>` ends a message of Harmony, after which the
/// next one comes, and Gemma 4's `</s>` is a tag of HTML.
const EXCEPTIONS: [(&str, &[&[&str]]); 2] = [
    (
        "<|end|>",
        &[
            &["<|return|>", "<|call|>"],
            &["<|return|>", "<|calls|>"],
            &["<|call|>", "<|flush|>"],
            &["<|calls|>", "<|flush|>"],
        ],
    ),
    ("</s>", &[&["<|tool_response>"]]),
];

impl GgufFile {
    /// The ids that end a generation: the main one, and the others by their numbers.
    pub(super) fn ends(&self) -> Result<Vec<TokenId>, GgufError> {
        let [main, turn, message] = ["eos", "eot", "eom"].map(|role| self.token_id(role));
        let (main, named) = (main?, [turn?, message?]);
        let tokens = self.metadata().texts("tokenizer.ggml.tokens")?.unwrap_or_default();
        let text = |id: TokenId| tokens.get(id as usize).copied();
        let mut others = by_text(self.metadata(), &tokens)?;
        others.extend(named.into_iter().flatten());
        let is_beside = |group: &&[&str]| group.iter().all(|end| others.iter().any(|id| text(*id) == Some(*end)));
        let passed_over: Vec<&str> =
            EXCEPTIONS.into_iter().filter(|(_, groups)| groups.iter().any(is_beside)).map(|(end, _)| end).collect();
        others.retain(|id| Some(*id) != main && text(*id).is_none_or(|text| !passed_over.contains(&text)));
        others.sort_unstable();
        others.dedup();
        Ok(main.into_iter().chain(others).collect())
    }
}

/// The tokens of the list. A `</s>` that is not special is text: Gemma's is the tag that ends what is struck through.
fn by_text(metadata: Metadata<'_>, tokens: &[&str]) -> Result<Vec<TokenId>, GgufError> {
    let kinds = metadata.integers("tokenizer.ggml.token_type")?.unwrap_or_default();
    let ends = |index: usize, text: &str| {
        ENDS.contains(&text) && (text != "</s>" || kinds.get(index).is_some_and(|kind| *kind == CONTROL))
    };
    let found = (0..).zip(tokens).enumerate().filter(|(index, (_, text))| ends(*index, text));
    Ok(found.map(|(_, (id, _))| id).collect())
}
