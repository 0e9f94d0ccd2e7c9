//! Byte-level BPE from its parts, for files that do not carry a tokenizer.json.

use std::collections::HashSet;

use tokenizers::{
    NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, decoders,
    models::bpe::BPE,
    normalizers::unicode::NFC,
    pre_tokenizers::{
        byte_level::ByteLevel,
        digits::Digits,
        sequence::Sequence,
        split::{Split as SplitPreTokenizer, SplitPattern},
    },
};

use super::{
    AddedToken, Tokenizer, TokenizerError, byte_level,
    parts::{template, unique, with_added},
};
use crate::TokenId;

/// One step of cutting a text into the words that merges stay within.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Each digit is a word.
    Digits,
    /// The words of GPT-2.
    Gpt2,
    /// Each match, and each stretch between matches, is a word.
    Regex(&'static str),
}

/// The parts of a byte-level BPE tokenizer.
#[derive(Debug, Clone, Default)]
pub struct ByteLevelBpe {
    /// Every token, in the byte alphabet, with its id; added tokens too.
    pub vocab: Vec<(String, TokenId)>,
    /// Merges, the first to be applied first.
    pub merges: Vec<(String, String)>,
    /// Whether a word that is in the vocabulary is that token, whatever the merges say.
    pub ignore_merges: bool,
    /// Whether the text is brought to Unicode's composed form first.
    pub nfc: bool,
    /// How the text is cut into words.
    pub splits: Vec<Split>,
    /// Tokens matched in the text.
    pub added_tokens: Vec<AddedToken>,
    /// The token that encoding with special tokens puts first.
    pub bos: Option<TokenId>,
    /// The token that encoding with special tokens puts last.
    pub eos: Option<TokenId>,
}

impl ByteLevelBpe {
    /// Builds the tokenizer. A token twice in the vocabulary, or outside the byte alphabet, is an error.
    pub fn build(self) -> Result<Tokenizer, TokenizerError> {
        self.check_vocab()?;
        let template = template(&self.vocab, self.bos, self.eos)?;
        let model = BPE::builder()
            .vocab_and_merges(unique(self.vocab)?, self.merges)
            .ignore_merges(self.ignore_merges)
            .build()
            .map_err(|e| TokenizerError::Invalid(e.to_string()))?;
        let mut inner = tokenizers::Tokenizer::new(model);
        if self.nfc {
            inner.with_normalizer(Some(NormalizerWrapper::NFC(NFC)));
        }
        inner.with_pre_tokenizer(Some(pre_tokenizer(&self.splits)?));
        inner.with_decoder(Some(decoders::byte_level::ByteLevel::default()));
        inner.with_post_processor(template);
        with_added(inner, &self.added_tokens)
    }

    fn check_vocab(&self) -> Result<(), TokenizerError> {
        let added: HashSet<&str> = self.added_tokens.iter().map(|token| token.content.as_str()).collect();
        match self.vocab.iter().find(|(token, _)| !added.contains(&**token) && byte_level::bytes(token).is_none()) {
            Some((token, id)) => {
                Err(TokenizerError::Invalid(format!("token {token:?} (id {id}) is not spelled in the byte alphabet")))
            }
            None => Ok(()),
        }
    }
}

fn pre_tokenizer(splits: &[Split]) -> Result<PreTokenizerWrapper, TokenizerError> {
    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    let mut last = ByteLevel::new(false, true, false);
    for split in splits {
        match split {
            Split::Digits => steps.push(Digits::new(true).into()),
            Split::Gpt2 => last = ByteLevel::new(false, true, true),
            Split::Regex(pattern) => {
                let pattern = SplitPattern::Regex((*pattern).to_owned());
                let split = SplitPreTokenizer::new(pattern, SplitDelimiterBehavior::Isolated, false);
                steps.push(split.map_err(|e| TokenizerError::Invalid(e.to_string()))?.into());
            }
        }
    }
    steps.push(last.into());
    Ok(Sequence::new(steps).into())
}
