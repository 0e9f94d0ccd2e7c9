//! SGLang's own fields of chats and completions (0.5.23, `srt/entrypoints/openai/protocol.py`) that are served. `foreign_fields` has
//! those that are refused.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{cache_salt::joined_salt, sampling::SamplingFields};
use crate::wire::error::ApiError;

/// What SGLang has beside OpenAI's fields.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SglangFields {
    /// SGLang's name for `include_stop_str_in_output`.
    pub no_stop_trim: Option<bool>,
    /// SGLang's: share cached prefixes only with requests of the same key, and of the same `cache_salt` where both are there.
    #[schema(value_type = Option<String>)]
    pub extra_key: Option<Value>,
    /// SGLang's: what the request is called, to abort it by.
    pub rid: Option<String>,
    /// SGLang's: report the experts of all tokens but the last one, with `--enable-return-routed-experts`.
    pub return_routed_experts: Option<bool>,
    /// SGLang's name for `routed_experts_prompt_start`.
    pub routed_experts_start_len: Option<i64>,
    /// SGLang's. False is refused where the server parses reasoning.
    pub separate_reasoning: Option<bool>,
    /// SGLang's. Only `selected` (the default).
    pub sampling_logprobs_mode: Option<String>,
}

impl SglangFields {
    /// Refuses a mode that is not served, and writes the rest into the fields that mean the same. To do so again changes nothing.
    pub(crate) fn read_into(&mut self, sampling: &mut SamplingFields) -> Result<(), ApiError> {
        if self.sampling_logprobs_mode.as_deref().is_some_and(|mode| mode != "selected") {
            let message = "only the `sampling_logprobs_mode` `selected` is served";
            return Err(ApiError::invalid("sampling_logprobs_mode", message));
        }
        if self.no_stop_trim == Some(true) && sampling.include_stop_str_in_output == Some(false) {
            let message = "`no_stop_trim` is true and `include_stop_str_in_output` false: send one of them";
            return Err(ApiError::invalid("no_stop_trim", message));
        }
        if self.no_stop_trim == Some(true) {
            sampling.include_stop_str_in_output = Some(true);
        }
        if let Some(key) = self.extra_key.take() {
            let salt = joined_salt(sampling.cache_salt.as_ref(), Some(&key))?;
            sampling.cache_salt = salt.map(|salt| Value::String(salt.to_string()));
        }
        match (sampling.routed_experts_prompt_start, self.routed_experts_start_len) {
            (None, start) => sampling.routed_experts_prompt_start = start,
            (Some(own), Some(other)) if own != other => {
                let message = "`routed_experts_start_len` and `routed_experts_prompt_start` differ: send one of them";
                return Err(ApiError::invalid("routed_experts_start_len", message));
            }
            (Some(_), _) => {}
        }
        Ok(())
    }

    /// Refuses to leave reasoning in the text, where the server `parses` it out.
    pub(crate) fn check_reasoning(&self, parses: bool) -> Result<(), ApiError> {
        if self.separate_reasoning == Some(false) && parses {
            let message = "this server parses reasoning out of every answer: start one without --reasoning-parser, or read \
                           `reasoning` beside `content`";
            return Err(ApiError::invalid("separate_reasoning", message));
        }
        Ok(())
    }
}
