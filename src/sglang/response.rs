//! From events to the wire: one answer, or a stream each of whose events has all that there is so far.

use std::{sync::Arc, time::Instant};

use super::{logprobs::LogprobLists, request::SglangTurn};
use crate::{
    engine::SampledToken,
    generation::{Completion, Event, Finish},
    http::sse,
    state::Api,
    wire::{
        answer::{output::StopReason, sampling_mask::sampling_mask, weight_versions::weight_versions},
        error::ApiError,
        sglang::generate::{SglangAnswer, SglangFinish, SglangMetaInfo, SglangOutput, SglangSamplingMask},
    },
};

/// What all parts of an answer have in common.
pub(super) struct SglangEnvelope {
    api: Arc<Api>,
    turn: SglangTurn,
    began: Instant,
}

impl SglangEnvelope {
    pub(super) fn new(api: Arc<Api>, turn: SglangTurn) -> Self {
        Self { api, turn, began: Instant::now() }
    }

    /// Whether there are several continuations.
    fn is_list(&self) -> bool {
        self.turn.is_batch || self.turn.n > 1
    }

    /// Makes the JSON answer.
    pub(super) fn answer(&self, completions: &[Completion]) -> Result<SglangAnswer, ApiError> {
        let outputs = completions.iter().enumerate().map(|(index, completion)| self.output(index, completion));
        let mut outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        match outputs.pop() {
            Some(only) if !self.is_list() && outputs.is_empty() => Ok(SglangAnswer::One(Box::new(only))),
            last => {
                outputs.extend(last);
                Ok(SglangAnswer::Many(outputs))
            }
        }
    }

    /// All that there is of a continuation.
    fn output(&self, index: usize, completion: &Completion) -> Result<SglangOutput, ApiError> {
        let index = index / self.turn.n;
        let (prompt, plan) = (&self.turn.prompts[index], self.turn.plan(index));
        let current = || Arc::clone(&self.api.turns.generator.engine().current_weights().label);
        // The token after a prompt that is only scored is nobody's.
        let tokens: &[SampledToken] = if plan.scores_only { &[] } else { &completion.tokens };
        let lists = LogprobLists {
            plan,
            prompt: &prompt.token_ids,
            completion,
            tokenizer: self.api.turns.tokenizer(),
            shows_texts: self.turn.shows_texts,
        };
        Ok(SglangOutput {
            text: if plan.scores_only { String::new() } else { completion.text.clone() },
            output_ids: tokens.iter().map(|token| token.id).collect(),
            prompt_token_ids: self.turn.shows_prompts.then(|| prompt.token_ids.to_vec()),
            meta_info: SglangMetaInfo {
                id: prompt.id.clone(),
                finish_reason: completion.finish.as_ref().map(|finish| match finish {
                    Finish::Abort => ended(finish, tokens),
                    _ if plan.scores_only => SglangFinish::Length { length: 0 },
                    _ => ended(finish, tokens),
                }),
                prompt_tokens: prompt.token_ids.len(),
                completion_tokens: tokens.len(),
                cached_tokens: completion.prompt.as_ref().map(|prompt| prompt.cached_tokens),
                weight_version: completion.weights.latest().unwrap_or_else(current).to_string(),
                weight_versions: if tokens.is_empty() { Vec::new() } else { weight_versions(&completion.weights) },
                e2e_latency: self.began.elapsed().as_secs_f64(),
                routed_experts: self.experts(completion),
                logprobs: plan.logprobs.map(|shown| lists.lists(shown)).transpose()?,
                mask: mask(plan.sampling.wants_mask(), tokens)?,
            },
            index: None,
        })
    }

    /// The experts of a continuation that has ended, where they are asked for.
    fn experts(&self, completion: &Completion) -> Option<String> {
        let is_shown = self.turn.shows_experts && completion.finish.is_some();
        self.api.routed_experts_of_meta_info(completion.routes.as_ref().filter(|_| is_shown))
    }
}

/// The ids that each token was drawn from, where they are asked for.
pub(super) fn mask(is_asked: bool, tokens: &[SampledToken]) -> Result<Option<SglangSamplingMask>, ApiError> {
    let mask = sampling_mask(is_asked, tokens)?;
    Ok(mask.map(|mask| SglangSamplingMask {
        output_token_sampling_mask_length: mask.len(),
        output_token_sampling_mask: mask,
        output_token_sampling_logprobs: tokens.iter().map(|token| token.logprob).collect(),
    }))
}

/// What ended a continuation, in SGLang's words.
pub(super) fn ended(finish: &Finish, tokens: &[SampledToken]) -> SglangFinish {
    match finish {
        Finish::Eos => match tokens.last() {
            Some(token) => SglangFinish::Stop { matched: StopReason::Token(token.id) },
            None => SglangFinish::Length { length: 0 },
        },
        Finish::StopToken(id) => SglangFinish::Stop { matched: StopReason::Token(*id) },
        Finish::StopString(stop) => SglangFinish::Stop { matched: StopReason::Text(stop.clone()) },
        Finish::Repetition => SglangFinish::Stop { matched: StopReason::Text("repetition_detected".to_owned()) },
        Finish::Length => SglangFinish::Length { length: tokens.len() },
        Finish::Abort => SglangFinish::Abort { message: "the request was aborted", status_code: None, err_type: None },
    }
}

/// Collects the events of all continuations, and shows after each all that there is.
pub(super) struct SglangChunks {
    envelope: SglangEnvelope,
    completions: Vec<Completion>,
}

impl SglangChunks {
    pub(super) fn new(envelope: SglangEnvelope, choices: usize) -> Self {
        Self { envelope, completions: vec![Completion::default(); choices] }
    }
}

impl sse::Chunks for SglangChunks {
    type Chunk = SglangOutput;

    fn push(&mut self, index: usize, event: Event) -> Result<Vec<SglangOutput>, ApiError> {
        let shows = matches!(&event, Event::Delta(delta) if !delta.tokens.is_empty() || delta.finish.is_some());
        self.completions[index].push(event);
        if !shows {
            return Ok(Vec::new());
        }
        let output = self.envelope.output(index, &self.completions[index])?;
        Ok(vec![SglangOutput { index: self.envelope.is_list().then_some(index), ..output }])
    }

    fn last(&self) -> Option<SglangOutput> {
        None
    }
}
