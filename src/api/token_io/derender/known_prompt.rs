//! What is known of the prompt of ids that are put into text: the request may say it, and what was generated too.

use crate::{
    TokenId,
    state::Api,
    wire::{error::ApiError, token_io::derender_input::TokenCount},
};

/// What a request, or what was generated, says of a prompt. No prompt is empty: neither a 0 nor an empty list says anything.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ToldOfPrompt<'a> {
    ids: Option<&'a [TokenId]>,
    count: Option<usize>,
}

impl<'a> ToldOfPrompt<'a> {
    pub(super) fn new(ids: Option<&'a Vec<TokenId>>, count: Option<TokenCount>) -> Self {
        let ids = ids.map(Vec::as_slice).filter(|ids| !ids.is_empty());
        Self { ids, count: count.map(|count| count as usize).filter(|&count| count > 0) }
    }
}

/// A prompt, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownPrompt<'a> {
    pub(super) ids: Option<&'a [TokenId]>,
    /// Its tokens, for usage; 0 where nobody says them.
    pub(super) count: usize,
}

impl<'a> KnownPrompt<'a> {
    /// Refuses what contradicts itself: a message with ids of another prompt would make the next turn continue that one.
    pub(super) fn new(asked: ToldOfPrompt<'a>, given: ToldOfPrompt<'a>, api: &Api) -> Result<Self, ApiError> {
        let ids = asked.ids.or(given.ids);
        let limit = api.turns.max_model_len;
        if let Some(ids) = [asked.ids, given.ids].into_iter().flatten().find(|ids| ids.len() > limit) {
            let message = format!("prompt_token_ids length ({}) exceeds max_model_len ({limit}).", ids.len());
            return Err(ApiError::invalid_request(message));
        }
        if given.ids.is_some_and(|given| ids != Some(given)) {
            let message = "`prompt_token_ids` of the request are not those of what was generated";
            return Err(ApiError::invalid("prompt_token_ids", message));
        }
        let count = ids.map(<[_]>::len).or(asked.count).or(given.count).unwrap_or(0);
        if let Some(other) = [asked.count, given.count].into_iter().flatten().find(|&other| other != count) {
            let message = format!(
                "the request, or what was generated, counts {other} tokens of a prompt of {count}: leave out \
                 `prompt_tokens`, or give its length"
            );
            return Err(ApiError::invalid("prompt_tokens", message));
        }
        Ok(Self { ids, count })
    }
}
