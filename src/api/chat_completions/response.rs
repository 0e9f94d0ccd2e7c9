//! From events to the wire: one JSON body, or a stream whose fold it is.

use std::sync::Arc;

use super::types::{
    AnswerMessage, AnswerTokens, ChatCompletion, ChatCompletionChunk, Choice, ChoiceLogprobs, ChunkChoice, ChunkDelta,
    ChunkToolCall, NamedLogprob, TokenLogprob,
};
use crate::{
    TokenId,
    api::{
        Api, Prompted,
        error::ApiError,
        output::{
            DetailedUsage, FinishReason, PromptTokensDetails, SYSTEM_FINGERPRINT, StopReason, StreamedUsage,
            TokenSpelling, Usage, created, finish_fields, prompt_logprobs, shown_alternatives,
        },
        sampling::Sampling,
        sse,
        token_continuity::TokenContinuity,
    },
    engine::{PromptOutput, SampledToken},
    generation::{Completion, Delta, Event, Finish},
};

/// How a choice ended: that it calls counts more than what ended its tokens, in streams too, unless the server cut it
/// off: more calls may have been meant.
pub(super) fn ending(finish: &Finish, called: bool) -> (FinishReason, Option<StopReason>) {
    let (reason, stop_reason) = finish_fields(finish);
    let calls = called && *finish != Finish::Abort;
    (if calls { FinishReason::ToolCalls } else { reason }, stop_reason)
}

/// What all parts of one answer have in common.
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of the request")]
pub(super) struct Envelope {
    api: Arc<Api>,
    id: String,
    created: u64,
    model: String,
    prompt_token_ids: Arc<[TokenId]>,
    /// Where ids are asked for.
    token_continuity: Option<TokenContinuity>,
    return_token_ids: bool,
    logprobs: bool,
    top_logprobs: Option<usize>,
    prompt_logprobs: bool,
    tokens_as_ids: bool,
}

impl Envelope {
    pub(super) fn new(
        api: Arc<Api>,
        id: String,
        prompt: &Prompted,
        sampling: &Sampling,
        top_logprobs: Option<usize>,
    ) -> Self {
        let asks_for_ids = sampling.return_token_ids || (sampling.wants_logprobs() && sampling.tokens_as_ids);
        let token_continuity = (prompt.asks_for_continuity || asks_for_ids).then(|| prompt.verdict.clone());
        Self {
            id,
            created: created(),
            model: api.models.name().to_owned(),
            prompt_token_ids: Arc::clone(&prompt.token_ids),
            token_continuity,
            return_token_ids: sampling.return_token_ids,
            logprobs: sampling.wants_logprobs(),
            top_logprobs,
            prompt_logprobs: sampling.prompt_logprobs.is_some(),
            tokens_as_ids: sampling.tokens_as_ids,
            api,
        }
    }

    /// Of ids that were sampled before; `logprobs` says whether theirs are shown, and how many alternatives.
    pub(super) fn of_recording(
        api: Arc<Api>,
        id: String,
        prompt_token_ids: Arc<[TokenId]>,
        sampling: &Sampling,
        (logprobs, top_logprobs): (bool, Option<usize>),
    ) -> Self {
        Self {
            id,
            created: created(),
            model: api.models.name().to_owned(),
            prompt_token_ids,
            token_continuity: None,
            return_token_ids: sampling.return_token_ids,
            logprobs,
            top_logprobs,
            prompt_logprobs: false,
            tokens_as_ids: sampling.tokens_as_ids,
            api,
        }
    }

    fn usage(&self, sampled: usize) -> Usage {
        Usage::new(self.prompt_token_ids.len(), sampled)
    }

    /// What usage says about the prompt; of `n` sequences the first one tells, which met the cache as it was.
    fn details(&self, prompt: Option<&PromptOutput>) -> Option<PromptTokensDetails> {
        let details = |prompt: &PromptOutput| PromptTokensDetails { cached_tokens: prompt.cached_tokens };
        prompt.filter(|_| self.api.prompt_tokens_details).map(details)
    }

    /// The JSON answer.
    pub(super) fn answer(&self, completions: Vec<Completion>) -> Result<ChatCompletion, ApiError> {
        let sampled = completions.iter().map(|completion| completion.tokens.len()).sum();
        let tokenizer = self.api.renderer.tokenizer();
        let prompt = completions.first().and_then(|completion| completion.prompt.as_ref());
        let usage = DetailedUsage::new(self.usage(sampled), self.details(prompt));
        let scored = prompt.filter(|_| self.prompt_logprobs);
        let prompt_logprobs = scored.map(|prompt| prompt_logprobs(&prompt.logprobs, tokenizer)).transpose()?;
        let choices = completions.into_iter().enumerate().map(|(index, completion)| self.choice(index, completion));
        Ok(ChatCompletion {
            id: self.id.clone(),
            object: "chat.completion",
            created: self.created,
            model: self.model.clone(),
            choices: choices.collect::<Result<_, _>>()?,
            service_tier: None,
            system_fingerprint: SYSTEM_FINGERPRINT,
            usage,
            prompt_logprobs,
            prompt_token_ids: self.return_token_ids.then(|| self.prompt_token_ids.to_vec()),
            prompt_text: None,
            kv_transfer_params: None,
            ec_transfer_params: None,
            metrics: None,
            token_continuity: self.token_continuity.clone(),
        })
    }

    /// The JSON answer to several requests, one choice each.
    pub(super) fn answer_batch(envelopes: &[Self], completions: Vec<Completion>) -> Result<ChatCompletion, ApiError> {
        let first = envelopes.first().ok_or_else(|| ApiError::internal("a batch of nothing"))?;
        let prompt_tokens = envelopes.iter().map(|envelope| envelope.prompt_token_ids.len()).sum();
        let sampled = completions.iter().map(|completion| completion.tokens.len()).sum();
        let choices = envelopes.iter().zip(completions).enumerate();
        let choices = choices.map(|(index, (envelope, completion))| envelope.choice(index, completion));
        let choices = choices.collect::<Result<_, _>>()?;
        Ok(ChatCompletion {
            choices,
            usage: DetailedUsage::new(Usage::new(prompt_tokens, sampled), None),
            // There is no one prompt.
            prompt_token_ids: None,
            token_continuity: None,
            ..first.answer(Vec::new())?
        })
    }

    /// The choice that a generation is.
    pub(super) fn choice(&self, index: usize, completion: Completion) -> Result<Choice, ApiError> {
        let finish = completion.finish.as_ref().ok_or_else(|| ApiError::internal("a choice did not end"))?;
        let (finish_reason, stop_reason) = ending(finish, !completion.tool_calls.is_empty());
        let bundle = self.return_token_ids || (self.logprobs && self.tokens_as_ids);
        Ok(Choice {
            index,
            logprobs: self.choice_logprobs(&completion.tokens)?,
            finish_reason,
            stop_reason,
            token_ids: self.return_token_ids.then(|| completion.token_ids()),
            routed_experts: None,
            message: AnswerMessage {
                role: "assistant",
                tokens: bundle.then(|| AnswerTokens {
                    prompt_token_ids: self.prompt_token_ids.to_vec(),
                    generation_token_ids: completion.token_ids(),
                    generation_log_probs: completion.tokens.iter().map(|token| token.logprob).collect(),
                }),
                content: (!completion.text.is_empty() || completion.tool_calls.is_empty()).then_some(completion.text),
                refusal: None,
                annotations: None,
                audio: None,
                function_call: None,
                tool_calls: completion.tool_calls.into_iter().map(Into::into).collect(),
                reasoning: None,
            },
        })
    }

    /// The log-probs of some tokens, if they are shown.
    pub(super) fn choice_logprobs(&self, tokens: &[SampledToken]) -> Result<Option<ChoiceLogprobs>, ApiError> {
        if !self.logprobs {
            return Ok(None);
        }
        let content = tokens.iter().map(|token| self.token_logprob(token)).collect::<Result<_, _>>()?;
        Ok(Some(ChoiceLogprobs { content }))
    }

    fn token_logprob(&self, token: &SampledToken) -> Result<TokenLogprob, ApiError> {
        let spelling = TokenSpelling { tokenizer: self.api.renderer.tokenizer(), as_ids: self.tokens_as_ids };
        let alternatives = shown_alternatives(token, self.top_logprobs).into_iter().map(|shown| {
            let name = spelling.name(shown.id)?;
            Ok(NamedLogprob { bytes: name.clone().into_bytes(), token: name, logprob: shown.logprob })
        });
        Ok(TokenLogprob {
            token: NamedLogprob {
                token: spelling.name(token.id)?,
                logprob: token.logprob,
                bytes: spelling.bytes(token.id)?,
            },
            top_logprobs: alternatives.collect::<Result<_, ApiError>>()?,
        })
    }

    fn chunk(&self, choices: Vec<ChunkChoice>) -> ChatCompletionChunk {
        ChatCompletionChunk {
            id: self.id.clone(),
            object: "chat.completion.chunk",
            created: self.created,
            model: self.model.clone(),
            choices,
            usage: None,
            system_fingerprint: None,
            prompt_token_ids: None,
            prompt_text: None,
            token_continuity: None,
        }
    }
}

/// Turns the events of `n` choices into chunks.
pub(super) struct Chunks {
    envelope: Envelope,
    include_usage: bool,
    continuous_usage: bool,
    reads_tool_calls: bool,
    /// Tokens sampled so far; `None` for a choice without output yet.
    sampled: Vec<Option<usize>>,
    details: Option<PromptTokensDetails>,
}

impl Chunks {
    pub(super) fn new(envelope: Envelope, sampling: &Sampling, include_usage: bool, continuous_usage: bool) -> Self {
        let reads_tool_calls = sampling.text.tool_calls.is_some();
        let sampled = vec![None; sampling.n];
        Self { envelope, include_usage, continuous_usage, reads_tool_calls, sampled, details: None }
    }

    fn usage(&self, index: usize) -> Option<StreamedUsage> {
        self.continuous_usage.then(|| self.envelope.usage(self.sampled[index].unwrap_or(0)).into())
    }

    fn first(&self, index: usize) -> ChatCompletionChunk {
        let choice = ChunkChoice {
            index,
            delta: ChunkDelta { role: Some("assistant"), content: Some(String::new()), ..ChunkDelta::default() },
            logprobs: None,
            finish_reason: None,
            stop_reason: None,
            token_ids: None,
        };
        let prompt = self.envelope.return_token_ids.then(|| self.envelope.prompt_token_ids.to_vec());
        ChatCompletionChunk {
            usage: self.usage(index),
            prompt_token_ids: Some(prompt),
            prompt_text: Some(None),
            token_continuity: self.envelope.token_continuity.clone(),
            ..self.envelope.chunk(vec![choice])
        }
    }

    /// The chunks of a delta: calls have one each, as OpenAI sends them, and the end comes behind them.
    fn deltas(&self, index: usize, mut delta: Delta) -> Result<Vec<ChatCompletionChunk>, ApiError> {
        let text = std::mem::take(&mut delta.text);
        let calls = std::mem::take(&mut delta.tool_calls);
        let (spoken, called, ended) = (!text.is_empty(), !calls.is_empty(), delta.finish.is_some());
        if !(spoken || called || ended || self.shows_silence()) {
            return Ok(Vec::new());
        }
        let content = ChunkDelta {
            content: (spoken || !(ended || self.reads_tool_calls)).then_some(text),
            ..ChunkDelta::default()
        };
        if !called {
            return Ok(vec![self.piece(index, content, &delta, called)?]);
        }
        let calls = calls.into_iter().enumerate().map(|(index, call)| ChunkDelta {
            tool_calls: vec![ChunkToolCall { index, call: call.into() }],
            ..ChunkDelta::default()
        });
        let before_the_end = spoken.then_some(content).into_iter().chain(calls);
        let nothing = Delta::default();
        let mut chunks =
            before_the_end.map(|piece| self.piece(index, piece, &nothing, called)).collect::<Result<Vec<_>, _>>()?;
        chunks.push(self.piece(index, ChunkDelta::default(), &delta, called)?);
        Ok(chunks)
    }

    /// Whether a delta that says nothing is sent: not while text is kept back, unless its tokens were asked for.
    fn shows_silence(&self) -> bool {
        !self.reads_tool_calls || self.envelope.return_token_ids || self.envelope.logprobs
    }

    /// A chunk that says `message`, with the tokens and the end of `delta`.
    fn piece(
        &self,
        index: usize,
        message: ChunkDelta,
        delta: &Delta,
        called: bool,
    ) -> Result<ChatCompletionChunk, ApiError> {
        let finish = delta.finish.as_ref().map(|finish| ending(finish, called));
        let (finish_reason, stop_reason) = finish.map_or((None, None), |(reason, stop)| (Some(reason), Some(stop)));
        let finished = finish_reason.is_some();
        let token_ids = || delta.tokens.iter().map(|token| token.id).collect();
        let choice = ChunkChoice {
            index,
            logprobs: self.envelope.choice_logprobs(&delta.tokens)?,
            finish_reason,
            stop_reason,
            token_ids: Some(self.envelope.return_token_ids.then(token_ids)),
            delta: message,
        };
        Ok(ChatCompletionChunk {
            usage: self.usage(index),
            system_fingerprint: (finished && !self.include_usage).then_some(SYSTEM_FINGERPRINT),
            ..self.envelope.chunk(vec![choice])
        })
    }
}

impl sse::Chunks for Chunks {
    type Chunk = ChatCompletionChunk;

    fn push(&mut self, index: usize, event: Event) -> Result<Vec<ChatCompletionChunk>, ApiError> {
        let delta = match event {
            Event::Delta(delta) => delta,
            // Its log-probs are refused on streams.
            Event::Prompt(prompt) => {
                if index == 0 {
                    self.details = self.envelope.details(Some(&prompt));
                }
                return Ok(Vec::new());
            }
        };
        let mut chunks = Vec::with_capacity(2);
        if self.sampled[index].is_none() {
            self.sampled[index] = Some(0);
            chunks.push(self.first(index));
        }
        if let Some(sampled) = &mut self.sampled[index] {
            *sampled += delta.tokens.len();
        }
        chunks.extend(self.deltas(index, delta)?);
        Ok(chunks)
    }

    fn last(&self) -> Option<ChatCompletionChunk> {
        self.include_usage.then(|| ChatCompletionChunk {
            usage: Some(StreamedUsage::last(self.envelope.usage(self.sampled.iter().flatten().sum()), self.details)),
            system_fingerprint: Some(SYSTEM_FINGERPRINT),
            ..self.envelope.chunk(Vec::new())
        })
    }
}
