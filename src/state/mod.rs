//! What the handlers of all endpoints work with: the turns, the names of the model, and what is kept between requests.
//!
//! Owns [`Api`], which axum hands to each handler as its state. Refuses routes, bodies and answers: those are in `api` and
//! in the rooms of other dialects.

mod kv_event_source;
mod models;
mod readiness;
mod routed_experts;
mod server_load;
mod tokenizer_info;

use std::{sync::Arc, time::Duration};

pub use self::{
    kv_event_source::KvEventSource, models::ServedModels, readiness::Readiness, server_load::ServerLoad,
    tokenizer_info::TokenizerInfo,
};
pub(crate) use server_load::Served;

use crate::{
    TokenId,
    engine::RequestTimes,
    records::Responses,
    store::MemoryStore,
    tinker_sessions::Tinker,
    turn::Turns,
    wire::{
        answer::{metrics::PerRequestMetrics, output::PromptTokensDetails},
        error::ApiError,
        fields::sampling::known_id,
    },
};

/// The memory that responses may take up, and the time for which they are kept, if no flag sets them.
const RESPONSE_BYTES: u64 = 1 << 24;
const RESPONSE_TTL: Duration = Duration::from_hours(1);

/// Everything that endpoints work with.
pub struct Api {
    /// Makes turns and generates their answers.
    pub turns: Arc<Turns>,
    /// The names under which the model is served.
    pub models: ServedModels,
    /// Whether usage says how much of a prompt was cached.
    pub prompt_tokens_details: bool,
    /// Whether answers of one sequence say how long it took.
    pub request_metrics: bool,
    /// Requests that are being served.
    pub server_load: ServerLoad,
    /// Whether more may be sent.
    pub readiness: Readiness,
    /// The answer of `/tokenizer_info`, if that endpoint is on.
    pub tokenizer_info: Option<TokenizerInfo>,
    /// Where events of the cache are published, if they are.
    pub kv_events: Option<KvEventSource>,
    /// Responses that can be retrieved and continued by their ids.
    pub responses: Responses,
    /// The sessions of Tinker's clients, if they are served.
    pub tinker: Option<Arc<Tinker>>,
}

impl Api {
    /// Makes the API of a server without flags: with vLLM's defaults, and with responses kept in memory.
    #[cfg_attr(
        not(any(test, feature = "internals")),
        expect(dead_code, reason = "start-up leaves nothing to a default")
    )]
    pub fn new(turns: Turns, models: ServedModels) -> Self {
        let store = MemoryStore::new(RESPONSE_BYTES, RESPONSE_TTL);
        Self {
            turns: Arc::new(turns),
            models,
            prompt_tokens_details: false,
            request_metrics: false,
            server_load: ServerLoad::default(),
            readiness: Readiness::default(),
            tokenizer_info: None,
            kv_events: None,
            responses: Responses::new(Arc::new(store), None),
            tinker: None,
        }
    }

    /// Returns the usage details of a prompt, if they are shown.
    pub(crate) fn prompt_details(&self, cached_tokens: Option<usize>) -> Option<PromptTokensDetails> {
        let details = |cached_tokens| PromptTokensDetails { cached_tokens };
        cached_tokens.filter(|_| self.prompt_tokens_details).map(details)
    }

    /// Returns the metrics of an answer, by the times and the tokens of its sequences, if they are shown. Of several
    /// sequences, nobody could say whose times they are.
    pub(crate) fn metrics(
        &self,
        mut sequences: impl ExactSizeIterator<Item = (Option<RequestTimes>, usize)>,
    ) -> Option<PerRequestMetrics> {
        let shown = self.request_metrics && sequences.len() == 1;
        sequences.next().filter(|_| shown).map(|(times, tokens)| PerRequestMetrics::new(times, tokens))
    }

    /// Returns the ids of a prompt, if the vocabulary has all of them; `field` is the field that they come in. vLLM's own
    /// endpoints refuse others in its words instead.
    pub(crate) fn known_ids(&self, field: &'static str, ids: &[i64]) -> Result<Vec<TokenId>, ApiError> {
        let vocab_size = self.turns.vocab_size();
        let unknown = |id| ApiError::invalid(field, format!("the token id {id} is out of vocabulary"));
        ids.iter().map(|&id| known_id(id, vocab_size).ok_or_else(|| unknown(id))).collect()
    }

    /// Refuses a request for more tokens than the context has; `field` is the field that asks for them.
    pub(crate) fn check_max_tokens(&self, field: &'static str, asked: Option<i64>) -> Result<(), ApiError> {
        let most = self.turns.max_model_len;
        match asked {
            Some(asked) if usize::try_from(asked).is_ok_and(|tokens| tokens > most) => {
                Err(ApiError::too_many_tokens(field, asked, most))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a field that names tokens to be scored at positions of a prompt, where the engine scores no such tokens.
    pub(crate) fn check_scores_candidates(&self, field: &'static str) -> Result<(), ApiError> {
        let engine = self.turns.generator.engine();
        if engine.scores_candidates() {
            return Ok(());
        }
        let name = engine.info().engine;
        let message = format!(
            "the engine `{name}` cannot score the tokens of `{field}` at positions of a prompt; start the server with \
             --engine native"
        );
        Err(ApiError::invalid(field, message))
    }
}
