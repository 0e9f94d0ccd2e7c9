//! What `tokenizer.ggml.pre` stands for: how the original tokenizer.json cuts a text into words.

use crate::tokenizer::{
    Split,
    words::{GPT_4O, LLAMA3, QWEN2, QWEN3_5, TEKKEN},
};

/// The names that [`lookup`] knows.
pub(super) const SUPPORTED: [&str; 10] =
    ["gpt-2", "smollm", "qwen2", "qwen35", "llama-bpe", "llama4", "dbrx", "gpt-4o", "tekken", "deepseek-v3"];

const DEEPSEEK_V3: [Split; 3] = [
    Split::Regex(r"\p{N}{1,3}"),
    Split::Regex("[一-龥\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+"),
    Split::Regex(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
    ),
];

/// The parts of a tokenizer.json that a GGUF file only names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PreTokenizer {
    pub(super) splits: Vec<Split>,
    pub(super) nfc: bool,
    pub(super) ignore_merges: bool,
    /// Whether BOS is added where `tokenizer.ggml.add_bos_token` is missing.
    pub(super) adds_bos: bool,
}

/// Returns what a name stands for, `None` if that is not known for sure.
///
/// `default` and a missing name stay unknown: they were written where the converter did not know either. So do names of
/// several tokenizers that are not the same: `lfm2` is also that of LFM 2.5, whose words are others, and tokenizers called
/// `glm4` put two tokens before a text, of which a file can say one. Converters find a name by the ids of one text, which tell
/// neither `pixtral` with the words of `tekken` from one with those of Llama 3 (the vocabulary is the same), nor whether a
/// `smaug-bpe`, which has Llama 3's vocabulary, applies its merges to words that are tokens.
pub(super) fn lookup(name: &str) -> Option<PreTokenizer> {
    let plain = PreTokenizer { splits: vec![Split::Gpt2], nfc: false, ignore_merges: false, adds_bos: false };
    match name {
        "gpt-2" => Some(plain),
        "smollm" => Some(PreTokenizer { splits: vec![Split::Digits, Split::Gpt2], ..plain }),
        "qwen2" => Some(PreTokenizer { splits: vec![Split::Regex(QWEN2)], nfc: true, ..plain }),
        "llama-bpe" | "llama-v3" | "llama3" => {
            Some(PreTokenizer { splits: vec![Split::Regex(LLAMA3)], ignore_merges: true, adds_bos: true, ..plain })
        }
        // Words of `cl100k`, of which those of Llama 3 are a copy. All that are tokens are made by merges as well.
        "dbrx" => Some(PreTokenizer { splits: vec![Split::Regex(LLAMA3)], ..plain }),
        "qwen35" => Some(PreTokenizer { splits: vec![Split::Regex(QWEN3_5)], nfc: true, ..plain }),
        // All words that are tokens are made by merges as well.
        "gpt-4o" => Some(PreTokenizer { splits: vec![Split::Regex(GPT_4O)], ignore_merges: true, ..plain }),
        "llama4" => {
            Some(PreTokenizer { splits: vec![Split::Regex(GPT_4O)], ignore_merges: true, adds_bos: true, ..plain })
        }
        "tekken" => {
            Some(PreTokenizer { splits: vec![Split::Regex(TEKKEN)], ignore_merges: true, adds_bos: true, ..plain })
        }
        "deepseek-v3" => Some(PreTokenizer { splits: DEEPSEEK_V3.to_vec(), ..plain }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_error_message_is_known() {
        assert!(SUPPORTED.iter().all(|name| lookup(name).is_some()));
    }

    #[test]
    fn what_the_converter_did_not_know_is_not_guessed() {
        assert_eq!(lookup("default"), None);
        assert_eq!(lookup(""), None);
        assert_eq!(lookup("lfm2"), None);
        assert_eq!(lookup("glm4"), None);
        assert_eq!(lookup("pixtral"), None);
        assert_eq!(lookup("smaug-bpe"), None);
    }
}
