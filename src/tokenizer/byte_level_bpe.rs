//! Byte-level BPE from its parts, for files that do not carry a tokenizer.json.

use std::collections::HashMap;

use tokenizers::{
    AddedToken as LibraryToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, decoders,
    models::bpe::{BPE, Vocab},
    normalizers::unicode::NFC,
    pre_tokenizers::{
        byte_level::ByteLevel,
        digits::Digits,
        sequence::Sequence,
        split::{Split as SplitPreTokenizer, SplitPattern},
    },
    processors::template::TemplateProcessing,
};

use super::{AddedToken, Tokenizer, TokenizerError, byte_level};
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
        let template = self.template()?;
        let vocab: Vocab = self.vocab.into_iter().collect();
        let model = BPE::builder()
            .vocab_and_merges(vocab, self.merges)
            .ignore_merges(self.ignore_merges)
            .build()
            .map_err(|e| TokenizerError::Invalid(e.to_string()))?;
        let mut inner = tokenizers::Tokenizer::new(model);
        if self.nfc {
            inner.with_normalizer(Some(NormalizerWrapper::NFC(NFC)));
        }
        inner.with_pre_tokenizer(Some(pre_tokenizer(&self.splits)?));
        inner.with_decoder(Some(decoders::byte_level::ByteLevel::default()));
        if let Some(template) = template {
            inner.with_post_processor(Some(template));
        }
        inner.add_tokens(&self.added_tokens.iter().map(AddedToken::to_library).collect::<Vec<LibraryToken>>());
        super::check_ids(&inner, &self.added_tokens)?;
        Tokenizer::from_inner(inner, super::contradict(&self.added_tokens))
    }

    fn check_vocab(&self) -> Result<(), TokenizerError> {
        let mut ids: HashMap<&str, TokenId> = HashMap::with_capacity(self.vocab.len());
        for (token, id) in &self.vocab {
            if let Some(other) = ids.insert(token, *id) {
                return Err(TokenizerError::Invalid(format!("token {token:?} has two ids, {other} and {id}")));
            }
        }
        let added: std::collections::HashSet<&str> =
            self.added_tokens.iter().map(|token| token.content.as_str()).collect();
        match self.vocab.iter().find(|(token, _)| !added.contains(&**token) && byte_level::bytes(token).is_none()) {
            Some((token, id)) => {
                Err(TokenizerError::Invalid(format!("token {token:?} (id {id}) is not spelled in the byte alphabet")))
            }
            None => Ok(()),
        }
    }

    fn template(&self) -> Result<Option<TemplateProcessing>, TokenizerError> {
        let spell = |id: TokenId| {
            let entry = self.vocab.iter().find(|(_, other)| *other == id);
            entry.map(|(token, _)| (token.clone(), id)).ok_or(TokenizerError::OutOfVocabulary(id))
        };
        let (bos, eos) = (self.bos.map(spell).transpose()?, self.eos.map(spell).transpose()?);
        if bos.is_none() && eos.is_none() {
            return Ok(None);
        }
        let around = |sequence: &str, kind: u32| {
            let mut pieces: Vec<String> = bos.iter().map(|(token, _)| format!("{token}:{kind}")).collect();
            pieces.push(format!("{sequence}:{kind}"));
            pieces.extend(eos.iter().map(|(token, _)| format!("{token}:{kind}")));
            pieces
        };
        let pair = [around("$A", 0), around("$B", 1)].concat();
        let mut special: Vec<(String, TokenId)> = bos.iter().chain(&eos).cloned().collect();
        special.dedup();
        TemplateProcessing::builder()
            .try_single(around("$A", 0))
            .and_then(|builder| builder.try_pair(pair))
            .map_err(|e| TokenizerError::Invalid(format!("special tokens around a text: {e}")))?
            .special_tokens(special)
            .build()
            .map(Some)
            .map_err(|e| TokenizerError::Invalid(format!("special tokens around a text: {e}")))
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
