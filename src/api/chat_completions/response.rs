//! From events to the wire: one JSON body, or a stream whose fold it is.

use std::sync::Arc;

use super::{
    shown::Shown,
    types::{
        AnswerMessage, AnswerTokens, ChatCompletion, ChatCompletionChunk, Choice, ChoiceLogprobs, ChunkChoice,
        ChunkDelta, ChunkToolCall, NamedLogprob, TokenLogprob,
    },
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
fn ending(finish: &Finish, called: bool) -> (FinishReason, Option<StopReason>) {
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
    /// Where it is asked for and there is one.
    prompt_text: Option<String>,
    /// Where ids are asked for.
    token_continuity: Option<TokenContinuity>,
    return_token_ids: bool,
    logprobs: bool,
    shown: Shown,
    prompt_logprobs: bool,
    tokens_as_ids: bool,
}

impl Envelope {
    pub(super) fn new(api: Arc<Api>, id: String, prompt: &Prompted, sampling: &Sampling, shown: Shown) -> Self {
        let asks_for_ids = sampling.return_token_ids || (sampling.wants_logprobs() && sampling.tokens_as_ids);
        let token_continuity = (prompt.asks_for_continuity || asks_for_ids).then(|| prompt.verdict.clone());
        Self {
            id,
            created: created(),
            model: api.models.name().to_owned(),
            prompt_token_ids: Arc::clone(&prompt.token_ids),
            prompt_text: prompt.text.clone(),
            token_continuity,
            return_token_ids: sampling.return_token_ids,
            logprobs: sampling.wants_logprobs(),
            shown,
            prompt_logprobs: sampling.prompt_logprobs.is_some(),
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
            prompt_text: self.prompt_text.clone(),
            kv_transfer_params: None,
            ec_transfer_params: None,
            metrics: None,
            token_continuity: self.token_continuity.clone(),
        })
    }

    fn choice(&self, index: usize, completion: Completion) -> Result<Choice, ApiError> {
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
                role: self.shown.role.clone(),
                tokens: bundle.then(|| AnswerTokens {
                    prompt_token_ids: self.prompt_token_ids.to_vec(),
                    generation_token_ids: completion.token_ids(),
                    generation_log_probs: completion.tokens.iter().map(|token| token.logprob).collect(),
                }),
                content: self.content(completion.text, completion.tool_calls.is_empty()),
                refusal: None,
                annotations: None,
                audio: None,
                function_call: None,
                tool_calls: completion.tool_calls.into_iter().map(Into::into).collect(),
                reasoning: None,
            },
        })
    }

    /// What a message says; null where it only makes calls.
    fn content(&self, text: String, calls_nothing: bool) -> Option<String> {
        match &self.shown.echo {
            Some(echo) => Some(echo.clone() + &text),
            None => (!text.is_empty() || calls_nothing).then_some(text),
        }
    }

    fn choice_logprobs(&self, tokens: &[SampledToken]) -> Result<Option<ChoiceLogprobs>, ApiError> {
        if !self.logprobs {
            return Ok(None);
        }
        let content = tokens.iter().map(|token| self.token_logprob(token)).collect::<Result<_, _>>()?;
        Ok(Some(ChoiceLogprobs { content }))
    }

    fn token_logprob(&self, token: &SampledToken) -> Result<TokenLogprob, ApiError> {
        let spelling = TokenSpelling { tokenizer: self.api.renderer.tokenizer(), as_ids: self.tokens_as_ids };
        let alternatives = shown_alternatives(token, self.shown.top_logprobs).into_iter().map(|other| {
            let name = spelling.name(other.id)?;
            Ok(NamedLogprob { bytes: name.clone().into_bytes(), token: name, logprob: other.logprob })
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
#[expect(clippy::struct_excessive_bools, reason = "three are wishes of the request, one is progress")]
pub(super) struct Chunks {
    envelope: Envelope,
    include_usage: bool,
    continuous_usage: bool,
    reads_tool_calls: bool,
    /// The first chunks are out.
    started: bool,
    /// Tokens sampled so far, of each choice.
    sampled: Vec<usize>,
    details: Option<PromptTokensDetails>,
}

impl Chunks {
    pub(super) fn new(envelope: Envelope, sampling: &Sampling, include_usage: bool, continuous_usage: bool) -> Self {
        let reads_tool_calls = sampling.text.tool_calls.is_some();
        let sampled = vec![0; sampling.n];
        Self { envelope, include_usage, continuous_usage, reads_tool_calls, started: false, sampled, details: None }
    }

    fn usage(&self, index: usize) -> Option<StreamedUsage> {
        self.continuous_usage.then(|| StreamedUsage::so_far(self.envelope.usage(self.sampled[index])))
    }

    fn first(&self, index: usize) -> ChatCompletionChunk {
        let choice = ChunkChoice {
            index,
            delta: ChunkDelta {
                role: Some(self.envelope.shown.role.clone()),
                content: Some(String::new()),
                ..ChunkDelta::default()
            },
            logprobs: None,
            finish_reason: None,
            stop_reason: None,
            token_ids: None,
        };
        let prompt = self.envelope.return_token_ids.then(|| self.envelope.prompt_token_ids.to_vec());
        ChatCompletionChunk {
            usage: self.usage(index),
            prompt_token_ids: Some(prompt),
            prompt_text: Some(self.envelope.prompt_text.clone()),
            token_continuity: self.envelope.token_continuity.clone(),
            ..self.envelope.chunk(vec![choice])
        }
    }

    /// What is put in front of a choice, with `echo`.
    fn repeated(&self, index: usize) -> Option<ChatCompletionChunk> {
        let echo = self.envelope.shown.echo.clone().filter(|echo| !echo.is_empty())?;
        let choice = ChunkChoice {
            index,
            delta: ChunkDelta { content: Some(echo), ..ChunkDelta::default() },
            logprobs: None,
            finish_reason: None,
            stop_reason: None,
            token_ids: None,
        };
        Some(ChatCompletionChunk { usage: self.usage(index), ..self.envelope.chunk(vec![choice]) })
    }

    /// The chunks of a delta: calls have one each, as OpenAI sends them, and the end comes behind them.
    fn deltas(&self, index: usize, mut delta: Delta) -> Result<Vec<ChatCompletionChunk>, ApiError> {
        let text = std::mem::take(&mut delta.text);
        let calls = std::mem::take(&mut delta.tool_calls);
        let (spoken, called, ended) = (!text.is_empty(), !calls.is_empty(), delta.finish.is_some());
        if !(spoken || called || ended || self.shows_silence()) {
            return Ok(Vec::new());
        }
        let content =
            ChunkDelta { content: (spoken || !self.reads_tool_calls).then_some(text), ..ChunkDelta::default() };
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
        if !std::mem::replace(&mut self.started, true) {
            chunks.extend((0..self.sampled.len()).map(|index| self.first(index)));
            chunks.extend((0..self.sampled.len()).filter_map(|index| self.repeated(index)));
        }
        self.sampled[index] += delta.tokens.len();
        chunks.extend(self.deltas(index, delta)?);
        Ok(chunks)
    }

    fn last(&self) -> Option<ChatCompletionChunk> {
        self.include_usage.then(|| ChatCompletionChunk {
            usage: Some(StreamedUsage::last(self.envelope.usage(self.sampled.iter().sum()), self.details)),
            system_fingerprint: Some(SYSTEM_FINGERPRINT),
            ..self.envelope.chunk(Vec::new())
        })
    }
}
