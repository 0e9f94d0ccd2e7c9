//! The tokens that each sampled token was drawn from, as answers show them.

use std::sync::Arc;

use crate::{TokenId, engine::SampledToken, wire::error::ApiError};

/// A row for each sampled token: the ids that it was drawn from, itself among them, ascending.
pub(crate) type SamplingMask = Vec<Arc<[TokenId]>>;

/// Returns the mask of some tokens, if the answer is to have one.
pub(crate) fn sampling_mask(is_asked: bool, tokens: &[SampledToken]) -> Result<Option<SamplingMask>, ApiError> {
    let row = |token: &SampledToken| {
        token.sampling_mask.clone().ok_or_else(|| ApiError::internal("a token came without its sampling mask"))
    };
    is_asked.then(|| tokens.iter().map(row).collect()).transpose()
}
