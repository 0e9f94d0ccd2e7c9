//! The alphabet that mistral.rs is given in place of the model's tokenizer: every id is spelt by its own number.
//!
//! It makes all text inside the engine meaningless, so that none can be used by accident, and it adds one id that no
//! model can emit, [`Alphabet::end`]: the only end-of-sequence token the engine knows. The model's own ones are thereby
//! ordinary ids, which may be sampled past (`ignore_eos`) and fed (multi-turn prompts); ending a sequence is the tap's.

use serde_json::{Map, Value, json};

use crate::TokenId;

/// The ids `0..size`, and the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alphabet {
    size: TokenId,
}

impl Alphabet {
    /// `vocab_size` is the width of the logits; `None` where it is 0 or leaves no id for the end.
    pub(super) fn new(vocab_size: usize) -> Option<Self> {
        let size = TokenId::try_from(vocab_size).ok()?;
        (1..TokenId::MAX).contains(&size).then_some(Self { size })
    }

    /// The width of the logits.
    pub(super) fn size(self) -> usize {
        self.size as usize
    }

    /// The id that ends a sequence in the engine; the model has no such token.
    pub(super) fn end(self) -> TokenId {
        self.size
    }

    /// The alphabet as a `tokenizer.json`.
    pub(super) fn tokenizer(self) -> Value {
        let vocab: Map<String, Value> = (0..=self.size).map(|id| (spelling(id), Value::from(id))).collect();
        json!({
            "version": "1.0",
            "added_tokens": [],
            // The engine's token trie insists on a byte-level decoder.
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            // Its warm-up request is text, which becomes the unknown token.
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": spelling(0)},
        })
    }

    /// The `tokenizer_config.json` beside it: an end, and a chat template that nobody can have meant.
    pub(super) fn template(self) -> Value {
        json!({"eos_token": spelling(self.end()), "chat_template": ""})
    }
}

fn spelling(id: TokenId) -> String {
    format!("t{id}")
}

#[cfg(test)]
mod tests {
    use tokenizers::Tokenizer;

    use super::*;

    #[test]
    fn the_alphabet_is_a_tokenizer_with_one_id_more_than_the_model() {
        let alphabet = Alphabet::new(300).unwrap();
        let tokenizer: Tokenizer = serde_json::from_value(alphabet.tokenizer()).unwrap();
        assert_eq!(tokenizer.get_vocab_size(true), 301);
        assert!([0, TokenId::MAX as usize].into_iter().all(|size| Alphabet::new(size).is_none()));
        assert_eq!(tokenizer.token_to_id("t300"), Some(alphabet.end()));
        assert_eq!(tokenizer.decode(&[7, 299, 300], false).unwrap(), "t7t299t300");
        assert_eq!(tokenizer.encode_fast("hello", true).unwrap().get_ids(), [0]);
    }
}
