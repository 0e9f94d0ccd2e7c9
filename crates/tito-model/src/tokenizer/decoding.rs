//! Which decoders a token's text can be split off from, token by token, exactly.

use tokenizers::{DecoderWrapper, Tokenizer};

use super::{TokenizerError, byte_level};
use crate::TokenId;

/// How the text of a sequence follows from its tokens.
#[derive(Debug, Clone)]
pub(super) enum Decoding {
    /// The text is the concatenated bytes of the tokens.
    Bytes,
    /// The text of a token depends on nothing but whether text stands before it.
    Text(TextDecoding),
}

/// Decoding by SentencePiece-like decoders.
#[derive(Debug, Clone)]
pub(super) struct TextDecoding {
    /// A token that produces text. Decoded after it, a token has the text that it has in the middle of a sequence.
    anchor: TokenId,
    /// What the anchor decodes to on its own.
    anchor_text: String,
    /// `<0x0A>` stands for a byte, see `ByteRun`.
    byte_fallback: bool,
}

impl Decoding {
    pub(super) fn new(tokenizer: &Tokenizer) -> Result<Self, TokenizerError> {
        let mut steps = Vec::new();
        if let Some(decoder) = tokenizer.get_decoder() {
            flatten(decoder, &mut steps);
        }
        if let [DecoderWrapper::ByteLevel(_)] = steps[..] {
            return Ok(Self::Bytes);
        }
        check_local(&steps)?;
        let byte_fallback = steps.iter().any(|step| matches!(step, DecoderWrapper::ByteFallback(_)));
        let (anchor, anchor_text) = find_anchor(tokenizer, byte_fallback)?;
        Ok(Self::Text(TextDecoding { anchor, anchor_text, byte_fallback }))
    }

    /// Returns the bytes of one token in the middle of a text.
    pub(super) fn bytes(&self, tokenizer: &Tokenizer, id: TokenId, token: &str) -> Result<Vec<u8>, TokenizerError> {
        match self {
            Self::Bytes => Ok(token_bytes(token)),
            Self::Text(text) => match text.fallback_byte(token) {
                Some(byte) => Ok(vec![byte]),
                None => Ok(text.decode(tokenizer, &[id], true)?.into_bytes()),
            },
        }
    }
}

impl TextDecoding {
    /// Returns whether tokens may stand for a byte.
    pub(super) fn has_byte_fallback(&self) -> bool {
        self.byte_fallback
    }

    /// Returns the byte that a token stands for on its own.
    pub(super) fn fallback_byte(&self, token: &str) -> Option<u8> {
        if self.byte_fallback { fallback_byte(token) } else { None }
    }

    /// Decodes `ids`, special tokens included, at the start of a text or after some.
    pub(super) fn decode(
        &self,
        tokenizer: &Tokenizer,
        ids: &[TokenId],
        after_text: bool,
    ) -> Result<String, TokenizerError> {
        if !after_text {
            return decode(tokenizer, ids);
        }
        let mut with_anchor = Vec::with_capacity(ids.len() + 1);
        with_anchor.push(self.anchor);
        with_anchor.extend_from_slice(ids);
        let mut text = decode(tokenizer, &with_anchor)?;
        if !text.starts_with(&self.anchor_text) {
            return Err(TokenizerError::Decode(format!("the text of {ids:?} depends on the tokens before")));
        }
        Ok(text.split_off(self.anchor_text.len()))
    }
}

/// Returns the bytes of a token of byte-level BPE; one outside the alphabet stands for its own text.
pub(super) fn token_bytes(token: &str) -> Vec<u8> {
    byte_level::bytes(token).unwrap_or_else(|| token.as_bytes().to_vec())
}

fn decode(tokenizer: &Tokenizer, ids: &[TokenId]) -> Result<String, TokenizerError> {
    tokenizer.decode(ids, false).map_err(|e| TokenizerError::Decode(e.to_string()))
}

fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

fn flatten<'a>(decoder: &'a DecoderWrapper, steps: &mut Vec<&'a DecoderWrapper>) {
    match decoder {
        DecoderWrapper::Sequence(sequence) => sequence.get_decoders().iter().for_each(|inner| flatten(inner, steps)),
        step => steps.push(step),
    }
}

/// Checks that each step looks at single tokens, or at the start of the text once the tokens are joined.
///
/// A run of byte tokens is one token to the steps after `ByteFallback`, so none of them may look at it before it is joined
/// with the rest: its characters are told one by one.
fn check_local(steps: &[&DecoderWrapper]) -> Result<(), TokenizerError> {
    let (mut fused, mut in_runs) = (false, false);
    let byte_fallback = steps.iter().any(|step| matches!(step, DecoderWrapper::ByteFallback(_)));
    for step in steps {
        let local = match step {
            DecoderWrapper::Strip(strip) => strip.stop == 0 && (fused || !in_runs),
            DecoderWrapper::Fuse(_) => {
                fused = true;
                true
            }
            DecoderWrapper::ByteFallback(_) => {
                in_runs = true;
                !fused
            }
            DecoderWrapper::Replace(_) | DecoderWrapper::Metaspace(_) => !fused && !in_runs,
            // It puts a space before byte tokens, so that they are none any more.
            DecoderWrapper::WordPiece(_) => !fused && !byte_fallback,
            _ => false,
        };
        if !local {
            let step = serde_json::to_string(step).unwrap_or_default();
            return Err(TokenizerError::Unsupported(format!("the text of a token cannot be told with decoder {step}")));
        }
    }
    Ok(())
}

/// Finds the first token of the model that produces text and does not depend on what it follows.
fn find_anchor(tokenizer: &Tokenizer, byte_fallback: bool) -> Result<(TokenId, String), TokenizerError> {
    let added = tokenizer.get_added_tokens_decoder();
    let mut tokens: Vec<(TokenId, String)> =
        tokenizer.get_vocab(false).into_iter().map(|(token, id)| (id, token)).collect();
    tokens.sort_unstable();
    for (id, token) in tokens {
        if added.contains_key(&id) || (byte_fallback && fallback_byte(&token).is_some()) {
            continue;
        }
        let text = decode(tokenizer, &[id])?;
        if !text.trim().is_empty() && decode(tokenizer, &[id, id])?.starts_with(&text) {
            return Ok((id, text));
        }
    }
    Err(TokenizerError::Unsupported("no token of the vocabulary produces text".to_owned()))
}
