//! What every tokenizer that is built from its parts needs: a vocabulary, what is put around a text, and added tokens.

use tokenizers::{AddedToken as LibraryToken, models::bpe::Vocab, processors::template::TemplateProcessing};

use super::{AddedToken, Tokenizer, TokenizerError, check_ids, contradict};
use crate::TokenId;

/// The vocabulary by token. A token with two ids is an error.
pub(super) fn unique(tokens: Vec<(String, TokenId)>) -> Result<Vocab, TokenizerError> {
    let mut vocab = Vocab::with_capacity(tokens.len());
    for (token, id) in tokens {
        if let Some(other) = vocab.get(&token) {
            return Err(TokenizerError::Invalid(format!("token {token:?} has two ids, {other} and {id}")));
        }
        vocab.insert(token, id);
    }
    Ok(vocab)
}

/// What puts these tokens around a text; `None` where there is neither.
pub(super) fn template(
    vocab: &[(String, TokenId)],
    bos: Option<TokenId>,
    eos: Option<TokenId>,
) -> Result<Option<TemplateProcessing>, TokenizerError> {
    let spell = |id: TokenId| {
        let entry = vocab.iter().find(|(_, other)| *other == id);
        entry.map(|(token, _)| (token.clone(), id)).ok_or(TokenizerError::OutOfVocabulary(id))
    };
    let (bos, eos) = (bos.map(spell).transpose()?, eos.map(spell).transpose()?);
    if bos.is_none() && eos.is_none() {
        return Ok(None);
    }
    let around = |sequence: &str, kind: u32| {
        let mut pieces: Vec<String> = bos.iter().map(|(token, _)| format!("{token}:{kind}")).collect();
        pieces.push(format!("{sequence}:{kind}"));
        pieces.extend(eos.iter().map(|(token, _)| format!("{token}:{kind}")));
        pieces
    };
    let wrong = |error| TokenizerError::Invalid(format!("special tokens around a text: {error}"));
    let pair = [around("$A", 0), around("$B", 1)].concat();
    let mut special: Vec<(String, TokenId)> = bos.iter().chain(&eos).cloned().collect();
    special.dedup();
    TemplateProcessing::builder()
        .try_single(around("$A", 0))
        .and_then(|builder| builder.try_pair(pair))
        .map_err(wrong)?
        .special_tokens(special)
        .build()
        .map(Some)
        .map_err(|error| TokenizerError::Invalid(format!("special tokens around a text: {error}")))
}

/// The tokenizer with added tokens, whose ids have to be those of the vocabulary.
pub(super) fn with_added(mut inner: tokenizers::Tokenizer, added: &[AddedToken]) -> Result<Tokenizer, TokenizerError> {
    inner.add_tokens(&added.iter().map(AddedToken::to_library).collect::<Vec<LibraryToken>>());
    check_ids(&inner, added)?;
    Tokenizer::from_inner(inner, contradict(added))
}
