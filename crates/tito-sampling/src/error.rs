//! Why parameters cannot be honoured, and why no token could be sampled.

use crate::TokenId;

/// A parameter that cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SamplingError {
    /// Out of its range.
    #[error("{message}")]
    Refused {
        /// The request field at fault; `None` where vLLM does not name it.
        param: Option<&'static str>,
        /// vLLM's sentence, complete with its ` (parameter=…, value=…)`.
        message: String,
    },
    /// Nothing to sample.
    #[error("max_tokens must be at least 1, got {asked}. (parameter=max_tokens, value={asked})")]
    NoTokens {
        /// What was asked for.
        asked: i64,
    },
    /// Fewer tokens may be sampled than must be.
    #[error("min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}.")]
    FewerThanMinTokens {
        /// The least.
        min_tokens: usize,
        /// The most.
        max_tokens: usize,
    },
}

impl SamplingError {
    pub(super) fn unnamed(message: String) -> Self {
        Self::Refused { param: None, message }
    }

    pub(super) fn named(param: &'static str, message: &str, value: impl std::fmt::Display) -> Self {
        Self::Refused { param: Some(param), message: format!("{message} (parameter={param}, value={value})") }
    }

    /// What is said of a word that has no token.
    pub const NO_BAD_WORD: &str = "bad_words entries must tokenize to at least one token.";

    /// Ids in a field that a vocabulary of `vocab_size` tokens does not have.
    pub fn unknown_ids(param: &'static str, ids: &[impl std::fmt::Debug], vocab_size: usize) -> Self {
        let message = if param == "allowed_token_ids" {
            "allowed_token_ids contains out-of-vocab token id!".to_owned()
        } else {
            format!("token_id(s) {ids:?} in {param} contain out-of-vocab token ids. Vocabulary size: {vocab_size}")
        };
        Self::named(param, &message, format_args!("{ids:?}"))
    }
}

/// A position that cannot be sampled or scored; the sequence cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// The model's logits contain NaN or +infinity, so no probability is defined. (-infinity is a masked token.)
    #[error("the model returned a logit that is not a number or is infinite")]
    NonFiniteLogits,
    /// Penalties or biases pushed a logit out of the range of `f32`.
    #[error("a penalty or bias pushed a logit out of range")]
    EditOverflow,
    /// The masks of the request, or the model itself, gave every token probability zero.
    #[error("no token is left to sample: every token is masked")]
    NothingLeft,
    /// More tokens could be sampled than a sampling mask may have.
    #[error(
        "{tokens} tokens could be sampled here, more than the {most} that a sampling mask may have \
         (--sampling-mask-max-tokens); ask for a smaller top_k, top_p or temperature, or a greater min_p"
    )]
    MaskTooLong {
        /// How many could be sampled.
        tokens: usize,
        /// How many a mask may have.
        most: usize,
    },
    /// What a structured output must keep to could not be followed further.
    #[error("the structured output cannot be followed: {0}")]
    Unfollowable(&'static str),
    /// The token to score is not one that the model has a logit for.
    #[error("token id {id} is out of the model's vocabulary of {vocab_size}")]
    OutOfVocabulary {
        /// The token.
        id: TokenId,
        /// Width of the logits.
        vocab_size: usize,
    },
}

/// A float as Python's `repr` writes it: `2.0`, `1e-05`, `1e+16`, `nan`.
pub(super) fn python(value: f64) -> String {
    let magnitude = value.abs();
    if value.is_nan() {
        "nan".to_owned()
    } else if magnitude.is_infinite() || magnitude == 0.0 || (1e-4..1e16).contains(&magnitude) {
        format!("{value:?}")
    } else {
        let scientific = format!("{value:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        format!("{digits}e{sign}{exponent:0>2}")
    }
}
