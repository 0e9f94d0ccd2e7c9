//! `sampling_params`: reads and writes the parameters that vLLM's engine takes (`sampling_params.py`,
//! `SamplingParams`).
//!
//! Reading applies no default of the model except that of `max_tokens`. Writing leaves out values that are at their
//! defaults, in vLLM's order; `max_tokens` is always written, since leaving it out stands for all the room there is
//! (vLLM leaves out 16).

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::{
    asked_for::is_given,
    model::GenerationConfig,
    parser::SpecialTokens,
    request_fields::sampling::SettledNumbers,
    sampling::Logprobs,
    state::Api,
    turn::{Sampling, SamplingPolicy},
    wire::{
        answer::output::ShownAlternatives,
        error::ApiError,
        fields::{
            sampling::{SamplingFields, Stop},
            unserved::refuse_unserved,
        },
        token_io::{
            candidates::Prompt,
            generate::{MaxTokens, RenderedParams, SamplingParamsFields},
        },
    },
};

/// Valid parameters, and the number of alternatives that are shown.
#[derive(Debug)]
pub(super) struct ResolvedParams {
    pub(super) sampling: Sampling,
    /// How many alternatives to show, if log-probs are reported.
    pub(super) shown: Option<ShownAlternatives>,
}

impl SamplingParamsFields {
    /// Whether tokens are put into text at all.
    pub(super) fn makes_text(&self) -> bool {
        self.detokenize.unwrap_or(true)
    }

    /// Checks the parameters.
    pub(super) fn resolve(mut self, prompt_len: usize, api: &Api) -> Result<ResolvedParams, ApiError> {
        refuse_unserved([("trace_decode_token_ids", &self.trace_decode_token_ids)], is_given)?;
        self.refuse_those_of_a_body()?;
        let policy = &api.turns.policies.sampling;
        let prompt = Prompt { len: prompt_len, vocab_size: api.turns.vocab_size(), most: policy.max_logprobs };
        let candidates = self.candidates(&prompt)?;
        if candidates.is_some() {
            api.check_scores_candidates("prompt_logprob_token_ids")?;
        }
        // vLLM's engine takes any number of stop strings; four are the limit of the other endpoints.
        let stops = match self.sampling.stop.take() {
            None => Vec::new(),
            Some(Stop::One(stop)) => vec![stop],
            Some(Stop::Many(stops)) => stops,
        };
        if stops.iter().any(String::is_empty) {
            return Err(ApiError::invalid_request("stop cannot contain an empty string."));
        }
        if !stops.is_empty() && !self.makes_text() {
            let message = "stop strings are only supported when detokenize is True. Set detokenize=True to use stop.";
            return Err(ApiError::invalid_request(message));
        }
        let (logprobs, shown) = self.logprobs()?;
        let (max_tokens, max_new_tokens) = match self.max_tokens {
            MaxTokens::Absent => (None, api.turns.policies.sampling.defaults.max_new_tokens),
            MaxTokens::Given(asked) => (asked, None),
        };
        let policy = SamplingPolicy {
            defaults: GenerationConfig { max_new_tokens, ..GenerationConfig::default() },
            ..api.turns.policies.sampling.clone()
        };
        self.sampling.return_sampling_mask.get_or_insert(policy.sampling_mask.on_generate);
        let mut sampling = self.sampling.resolve(max_tokens, logprobs, &policy, api.turns.vocabulary())?;
        Arc::make_mut(&mut sampling.text).stop = stops;
        sampling.candidates = candidates.map(Arc::new);
        Ok(ResolvedParams { sampling, shown })
    }

    /// Refuses what other endpoints have beside their sampling fields, and this one not among its parameters.
    fn refuse_those_of_a_body(&self) -> Result<(), ApiError> {
        let fields = &self.sampling;
        let unserved = [
            ("cache_salt", fields.cache_salt.as_ref().is_some_and(is_given), "give it beside `sampling_params`"),
            ("truncate_prompt_tokens", fields.truncate_prompt_tokens.is_some(), "cut `token_ids` before they are sent"),
            ("truncation_side", fields.truncation_side.is_some(), "cut `token_ids` before they are sent"),
            ("stream_interval", fields.stream_interval.is_some(), "each token has an event of its own here"),
        ];
        match unserved.into_iter().find(|(_, is_asked, _)| *is_asked) {
            Some((name, _, what)) => {
                Err(ApiError::invalid(name, format!("`{name}` is not supported in `sampling_params`: {what}")))
            }
            None => Ok(()),
        }
    }

    /// Reads `logprobs`. If k alternatives are asked for, k are shown with the sampled token first, and that one is
    /// shown even with a k of 0. Of `logprob_token_ids` all are shown, beside the sampled token. vLLM leaves the last one out,
    /// and shows nothing for them alone, which is what its own render asks for.
    fn logprobs(&self) -> Result<(Option<Logprobs>, Option<ShownAlternatives>), ApiError> {
        let chosen = self.sampling.logprob_token_ids.as_ref().map(Vec::len);
        match (self.logprobs, chosen) {
            (None, None) => Ok((None, None)),
            (None, Some(_)) => Ok((Some(Logprobs::Top(0)), Some(ShownAlternatives(None)))),
            (Some(asked), Some(count)) if i64::try_from(count) != Ok(asked) => {
                let message = format!(
                    "When both logprobs and logprob_token_ids are set, logprobs must equal len(logprob_token_ids). Got \
                     logprobs={asked}, len(logprob_token_ids)={count}. (parameter=logprob_token_ids, value={count})"
                );
                Err(ApiError::invalid("logprob_token_ids", message))
            }
            (Some(_), Some(count)) => Ok((Some(Logprobs::Top(count)), Some(ShownAlternatives(None)))),
            (Some(-1), None) => Ok((Some(Logprobs::All), Some(ShownAlternatives(None)))),
            (Some(asked), None) => {
                let top = usize::try_from(asked).map_err(|_| {
                    let message = format!(
                        "logprobs must be non-negative or -1, got {asked}. (parameter=logprobs, value={asked})"
                    );
                    ApiError::invalid("logprobs", message)
                })?;
                Ok((Some(Logprobs::Top(top)), Some(ShownAlternatives(Some(top.max(1))))))
            }
        }
    }
}

/// The parameters to be written: a request's fields, and their checked values.
pub(in crate::api::token_io) struct Rendered<'a> {
    /// The fields as they were sent.
    pub(in crate::api::token_io) fields: &'a SamplingFields,
    /// The sampling as it was checked.
    pub(in crate::api::token_io) sampling: &'a Sampling,
    /// The number of tokens to generate, clamped to the room that the prompt leaves.
    pub(in crate::api::token_io) max_tokens: usize,
    /// The number of alternatives for each position as it was sent; -1 stands for all.
    pub(in crate::api::token_io) logprobs: Option<i64>,
    /// Whether the request asks for a stream.
    pub(in crate::api::token_io) stream: bool,
    /// The constraint, in the form of `structured_outputs`.
    pub(in crate::api::token_io) structured_outputs: Option<Value>,
}

impl Rendered<'_> {
    /// Returns the parameters as `/inference/v1/generate` takes them.
    pub(in crate::api::token_io) fn params(&self, policy: &SamplingPolicy) -> RenderedParams {
        let mut params = RenderedParams::default();
        self.add_distribution(policy, &mut params);
        self.add_ends(&mut params);
        self.add_reports(&mut params);
        self.add_masks(&mut params);
        params
    }

    fn add_distribution(&self, policy: &SamplingPolicy, params: &mut RenderedParams) {
        if self.sampling.n != 1 {
            params.put("n", json!(self.sampling.n));
        }
        for (name, value) in SettledNumbers::new(self.fields, &policy.defaults).written(self.sampling.is_greedy()) {
            params.put(name, value);
        }
        if let Some(seed) = self.fields.seed.filter(|&seed| seed != -1) {
            params.put("seed", json!(seed));
        }
    }

    fn add_ends(&self, params: &mut RenderedParams) {
        let fields = self.fields;
        params.put("stop", json!(self.sampling.text.stop));
        params.put("stop_token_ids", json!(without_repeats(fields.stop_token_ids.as_deref())));
        if fields.ignore_eos == Some(true) {
            params.put("ignore_eos", json!(true));
        }
        params.put("max_tokens", json!(self.max_tokens));
        if let Some(min_tokens) = fields.min_tokens.filter(|&tokens| tokens != 0) {
            params.put("min_tokens", json!(min_tokens));
        }
        if let Some(detection) = fields.repetition_detection {
            params.put("repetition_detection", json!(detection));
        }
    }

    fn add_reports(&self, params: &mut RenderedParams) {
        let (fields, text) = (self.fields, &self.sampling.text);
        let chosen = fields.logprob_token_ids.as_ref().filter(|ids| !ids.is_empty());
        if let Some(logprobs) = self.logprobs.filter(|_| chosen.is_none()) {
            params.put("logprobs", json!(logprobs));
        }
        if let Some(prompt_logprobs) = fields.prompt_logprobs {
            params.put("prompt_logprobs", json!(prompt_logprobs));
        }
        if let Some(ids) = chosen {
            params.put("logprob_token_ids", json!(ids));
        }
        if self.sampling.wants_mask() {
            params.put("return_sampling_mask", json!(true));
        }
        if let Some(start) = fields.routed_experts_prompt_start.filter(|&start| start != 0) {
            params.put("routed_experts_prompt_start", json!(start));
        }
        // The format may mark calls and reasoning with special tokens, so they must stay in the text.
        if !text.skip_special_tokens || text.format.special_tokens() != SpecialTokens::AsAsked {
            params.put("skip_special_tokens", json!(false));
        }
        if fields.spaces_between_special_tokens == Some(false) {
            params.put("spaces_between_special_tokens", json!(false));
        }
        if text.include_stop_str_in_output {
            params.put("include_stop_str_in_output", json!(true));
        }
        // vLLM's numbers for the kinds of output: 1 reports each piece, and 2 the whole.
        params.put("output_kind", json!(if self.stream { 1 } else { 2 }));
        params.put("skip_clone", json!(true));
        if let Some(budget) = self.sampling.thinking_budget {
            params.put("thinking_token_budget", json!(budget));
        }
        let longest = text.stop.iter().map(|stop| stop.chars().count()).max().unwrap_or(0);
        if longest > 1 && !text.include_stop_str_in_output {
            params.put("output_text_buffer_length", json!(longest - 1));
        }
    }

    fn add_masks(&self, params: &mut RenderedParams) {
        let fields = self.fields;
        if let Some(constraint) = &self.structured_outputs {
            params.put("structured_outputs", constraint.clone());
        }
        if let Some(biases) = &fields.logit_bias {
            let clamped = biases.iter().map(|(id, bias)| (id.clone(), json!(bias.clamp(-100.0, 100.0))));
            params.put("logit_bias", clamped.collect::<Map<_, _>>().into());
        }
        if let Some(ids) = &fields.allowed_token_ids {
            params.put("allowed_token_ids", json!(ids));
        }
        params.put("bad_words", json!(without_repeats(fields.bad_words.as_deref())));
        params.put("skip_reading_prefix_cache", json!(fields.prompt_logprobs.is_some()));
    }
}

fn without_repeats<T: PartialEq + Clone>(items: Option<&[T]>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for item in items.unwrap_or_default() {
        if !kept.contains(item) {
            kept.push(item.clone());
        }
    }
    kept
}
