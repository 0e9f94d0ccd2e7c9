//! Checks of single sampling fields that need more than their type: limits, and ids of the vocabulary.

use crate::{
    TokenId,
    json::string_repr,
    sampling::{Logprobs, SamplingError},
    tokenizer::Tokenizer,
    turn::SamplingPolicy,
    wire::{error::ApiError, fields::sampling::known_id},
};

pub(super) fn checked_max_tokens(asked: Option<i64>, policy: &SamplingPolicy) -> Result<Option<usize>, ApiError> {
    let Some(asked) = asked else { return Ok(policy.defaults.max_new_tokens) };
    match usize::try_from(asked) {
        Ok(tokens) if tokens > 0 => Ok(Some(tokens)),
        _ => Err(SamplingError::NoTokens { asked }.into()),
    }
}

/// Refuses more alternatives than the server allows, in vLLM's sentence and with the flag that sets the limit. `field`
/// is `logprobs` or `prompt_logprobs`.
pub(super) fn within_limit(
    field: &'static str,
    asked: &Logprobs,
    limit: Option<usize>,
    vocab_size: usize,
) -> Result<(), ApiError> {
    let count = match asked {
        Logprobs::Top(count) => *count,
        Logprobs::All => vocab_size,
        Logprobs::Ids(_) => 0,
    };
    let limit = limit.unwrap_or(vocab_size);
    if count <= limit {
        return Ok(());
    }
    let whose = if field == "logprobs" { "sample" } else { "prompt" };
    let message = format!(
        "Requested {whose} logprobs of {count}, which is greater than max allowed: {limit}; --max-logprobs sets the limit"
    );
    Err(ApiError::refused(field, message, Some(count.to_string())))
}

/// Returns the ids, or refuses them if the vocabulary lacks one of them.
pub(super) fn token_ids(field: &'static str, ids: Option<&[i64]>, vocab_size: usize) -> Result<Vec<TokenId>, ApiError> {
    let known = |id| known_id(id, vocab_size);
    let ids = ids.unwrap_or_default();
    let unknown: Vec<_> = ids.iter().filter(|&&id| known(id).is_none()).collect();
    if unknown.is_empty() {
        return Ok(ids.iter().filter_map(|&id| known(id)).collect());
    }
    Err(SamplingError::unknown_ids(field, &unknown, vocab_size).into())
}

/// Encodes each word with and without a space before it, as vLLM's `SamplingParams.update_from_tokenizer` does.
pub(super) fn bad_words(words: &[String], tokenizer: &Tokenizer) -> Result<Vec<Vec<TokenId>>, ApiError> {
    let shown = || format!("[{}]", words.iter().map(|word| string_repr(word)).collect::<Vec<_>>().join(", "));
    if words.iter().any(String::is_empty) {
        let message = format!("bad_words cannot contain an empty string. Got bad_words={}", shown());
        return Err(ApiError::invalid_request(message));
    }
    // The number is limited because each of them is looked for at every position.
    let most = tokenizer.vocab_size();
    if words.len() > most {
        let message = format!("bad_words can be at most as many as the {most} tokens of the vocabulary.");
        return Err(ApiError::refused("bad_words", message, Some(words.len().to_string())));
    }
    let mut sequences = Vec::new();
    for word in words {
        let word = word.trim_start();
        let plain = tokenizer.encode(word, false)?;
        if plain.is_empty() {
            return Err(ApiError::refused("bad_words", SamplingError::NO_BAD_WORD, Some(shown())));
        }
        let spaced = tokenizer.encode(&format!(" {word}"), false)?;
        if spaced.first() != plain.first() && spaced.len() == plain.len() {
            sequences.push(spaced);
        }
        sequences.push(plain);
    }
    Ok(sequences)
}
