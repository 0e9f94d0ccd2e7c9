//! BPE of `SentencePiece` from its parts, for files that do not carry a tokenizer.json.

use std::cmp::Reverse;

use tokenizers::{
    DecoderWrapper, decoders,
    models::bpe::{BPE, Vocab},
    normalizers::Replace,
};

use super::{
    AddedToken, Tokenizer, TokenizerError,
    parts::{template, unique, with_added},
};
use crate::TokenId;

/// What a space is in the vocabulary.
const SPACE: &str = "\u{2581}";
/// No token that `SentencePiece` has trained is longer; all ways in which a longer one can be cut would take long to find.
const MOST_PIECE_BYTES: usize = 512;

/// A token that `SentencePiece` has trained.
#[derive(Debug, Clone)]
pub struct Piece {
    /// As it is in the vocabulary.
    pub token: String,
    /// Its id.
    pub id: TokenId,
    /// Of two merges, that into the token of the higher score comes first.
    pub score: f32,
}

/// The parts of a tokenizer that `SentencePiece` has trained, in which no text is preceded by a space.
#[derive(Debug, Clone, Default)]
pub struct SentencePieceBpe {
    /// Every token; added tokens, and one for each byte, too.
    pub pieces: Vec<Piece>,
    /// The token of what has no other, where there is one.
    pub unknown: Option<TokenId>,
    /// Tokens matched in the text.
    pub added_tokens: Vec<AddedToken>,
    /// The token that encoding with special tokens puts first.
    pub bos: Option<TokenId>,
    /// The token that encoding with special tokens puts last.
    pub eos: Option<TokenId>,
}

impl SentencePieceBpe {
    /// Builds the tokenizer that transformers makes of the same parts (`SentencePieceExtractor` in its
    /// `convert_slow_tokenizer.py`): merges are all ways in which a token consists of two others.
    ///
    /// A token twice in the vocabulary, and bytes without a token, are errors.
    pub fn build(self) -> Result<Tokenizer, TokenizerError> {
        let Self { pieces, unknown, added_tokens, bos, eos } = self;
        let tokens: Vec<(String, TokenId)> = pieces.iter().map(|piece| (piece.token.clone(), piece.id)).collect();
        let template = template(&tokens, bos, eos)?;
        let spell = |id| pieces.iter().find(|piece| piece.id == id).map(|piece| piece.token.clone());
        let unknown = unknown.map(|id| spell(id).ok_or(TokenizerError::OutOfVocabulary(id))).transpose()?;
        let vocab = unique(tokens)?;
        if let Some(byte) = (0..=u8::MAX).find(|byte| !vocab.contains_key(&format!("<0x{byte:02X}>"))) {
            return Err(TokenizerError::Invalid(format!("the byte {byte:#04x} has no token")));
        }
        if let Some(Piece { token, .. }) = pieces.iter().find(|piece| piece.token.len() > MOST_PIECE_BYTES) {
            let start: String = token.chars().take(20).collect();
            let bytes = token.len();
            return Err(TokenizerError::Invalid(format!("the token that begins with {start:?} has {bytes} bytes")));
        }
        let merges = merges(&pieces, &vocab);
        let mut builder = BPE::builder().vocab_and_merges(vocab, merges).byte_fallback(true).fuse_unk(true);
        if let Some(unknown) = unknown {
            builder = builder.unk_token(unknown);
        }
        let model = builder.build().map_err(|error| TokenizerError::Invalid(error.to_string()))?;
        let mut inner = tokenizers::Tokenizer::new(model);
        inner.with_normalizer(Some(replace(" ", SPACE)?));
        let steps: Vec<DecoderWrapper> = vec![
            replace(SPACE, " ")?.into(),
            decoders::byte_fallback::ByteFallback::default().into(),
            decoders::fuse::Fuse::default().into(),
        ];
        inner.with_decoder(Some(decoders::sequence::Sequence::new(steps)));
        inner.with_post_processor(template);
        with_added(inner, &added_tokens)
    }
}

fn replace(from: &str, to: &str) -> Result<Replace, TokenizerError> {
    Replace::new(from, to).map_err(|error| TokenizerError::Invalid(error.to_string()))
}

/// All pairs of tokens that are one together, the first to be applied first: by the score of what they become, then by
/// the length of the left token and of the right one, in characters, and at last by their ids.
fn merges(pieces: &[Piece], vocab: &Vocab) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for Piece { token, score, .. } in pieces {
        let mut local: Vec<(&str, &str)> = token
            .char_indices()
            .skip(1)
            .map(|(at, _)| token.split_at(at))
            .filter(|(left, right)| vocab.contains_key(*left) && vocab.contains_key(*right))
            .collect();
        local.sort_by_key(|(left, right)| (vocab[*left], vocab[*right]));
        // Of minus zero it makes zero, which is the same score.
        found.extend(local.into_iter().map(|pair| (*score + 0.0, pair)));
    }
    let lengths = |(left, right): (&str, &str)| Reverse((left.chars().count(), right.chars().count()));
    // The sort is stable, so that the order of ids stays among equal ones.
    found.sort_by(|(left, first), (right, second)| {
        right.total_cmp(left).then_with(|| lengths(*first).cmp(&lengths(*second)))
    });
    found.into_iter().map(|(_, (left, right))| (left.to_owned(), right.to_owned())).collect()
}
