//! SGLang's own fields of chats and completions (0.5.23, `srt/entrypoints/openai/protocol.py`): each is done, or refused where
//! it asks for something. What SGLang needs for its processes and its GPUs, such as `data_parallel_rank`, asks for nothing here.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{sampling::SamplingFields, unserved::refuse_unserved};
use crate::{asked_for::is_filled, wire::error::ApiError};

/// What SGLang has beside OpenAI's fields.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SglangFields {
    /// SGLang's name for `include_stop_str_in_output`.
    pub no_stop_trim: Option<bool>,
    /// SGLang's: share cached prefixes only with requests of the same key; `cache_salt` wins.
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
    // In a box, so that requests stay small.
    #[serde(flatten)]
    pub refused: Box<RefusedSglangFields>,
}

/// Fields of SGLang that change what is generated or answered and that tito does not have there: refused unless null, false or
/// empty.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct RefusedSglangFields {
    custom_logit_processor: Option<Value>,
    custom_params: Option<Value>,
    ebnf: Option<Value>,
    json_schema: Option<Value>,
    lora_path: Option<Value>,
    regex: Option<Value>,
    return_cached_tokens_details: Option<Value>,
    return_flat_raw_output_top_logprobs: Option<Value>,
    return_hidden_states: Option<Value>,
    return_input_ids_in_sglext: Option<Value>,
    return_output_ids_in_sglext: Option<Value>,
    return_spec_tokens_details: Option<Value>,
    session_params: Option<Value>,
    stop_regex: Option<Value>,
    watermark: Option<Value>,
}

impl RefusedSglangFields {
    /// Refuses those that are set, with what has their effect here.
    fn check(&self) -> Result<(), ApiError> {
        let elsewhere = [
            ("ebnf", &self.ebnf, "send the grammar as `structured_outputs`: {\"grammar\": ...}"),
            ("json_schema", &self.json_schema, "send the schema as `structured_outputs`: {\"json\": ...}"),
            ("lora_path", &self.lora_path, "name the adapter as `model`"),
            ("regex", &self.regex, "send the expression as `structured_outputs`: {\"regex\": ...}"),
            (
                "return_cached_tokens_details",
                &self.return_cached_tokens_details,
                "start the server with --enable-prompt-tokens-details, and read `usage`",
            ),
            ("return_input_ids_in_sglext", &self.return_input_ids_in_sglext, "send `return_token_ids`"),
            ("return_output_ids_in_sglext", &self.return_output_ids_in_sglext, "send `return_token_ids`"),
            ("session_params", &self.session_params, "send the whole conversation, and name it by `session_id`"),
        ];
        for (name, value, instead) in elsewhere {
            if value.as_ref().is_some_and(is_filled) {
                return Err(ApiError::invalid(name, format!("SGLang's `{name}` is not served here: {instead}")));
            }
        }
        let nowhere = [
            ("custom_logit_processor", &self.custom_logit_processor),
            ("custom_params", &self.custom_params),
            ("return_flat_raw_output_top_logprobs", &self.return_flat_raw_output_top_logprobs),
            ("return_hidden_states", &self.return_hidden_states),
            ("return_spec_tokens_details", &self.return_spec_tokens_details),
            ("stop_regex", &self.stop_regex),
            ("watermark", &self.watermark),
        ];
        refuse_unserved(nowhere, is_filled)
    }
}

impl SglangFields {
    /// Refuses what is not served, and writes the rest into the fields that mean the same.
    pub(crate) fn read_into(&mut self, sampling: &mut SamplingFields) -> Result<(), ApiError> {
        self.refused.check()?;
        if self.sampling_logprobs_mode.as_deref().is_some_and(|mode| mode != "selected") {
            let message = "only the `sampling_logprobs_mode` `selected` is served";
            return Err(ApiError::invalid("sampling_logprobs_mode", message));
        }
        if self.no_stop_trim == Some(true) {
            sampling.include_stop_str_in_output = Some(true);
        }
        if sampling.cache_salt.is_none() {
            sampling.cache_salt = self.extra_key.take();
        }
        if sampling.routed_experts_prompt_start.is_none() {
            sampling.routed_experts_prompt_start = self.routed_experts_start_len;
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
