//! From events to the wire: either one JSON body, or a stream whose parts add up to that body.

use std::{sync::Arc, time::Instant};

use super::{ending::ending, shown::ShownInChat};
use crate::{
    TokenId,
    engine::{PromptOutput, SampledToken},
    generation::{Completion, Delta, Event, WeightSpans, scored_prompt},
    http::sse,
    request_fields::{progress::Progress, tools::ParserCounter},
    sglang::meta_info::{ShownInMetaInfo, meta_info},
    state::Api,
    turn::{Prompted, Sampling},
    wire::{
        answer::{
            mm_placeholders::MmPlaceholders,
            output::{
                CompletionTokensDetails, DetailedUsage, PromptTokensDetails, SYSTEM_FINGERPRINT, StreamedUsage,
                TokenSpelling, Usage, created, prompt_logprobs, shown_alternatives,
            },
            sampling_mask::sampling_mask,
            token_continuity::TokenContinuity,
            weight_versions::{WeightVersionSpan, weight_versions},
        },
        chat_completions::{
            deltas::messages,
            types::{
                AnswerMessage, AnswerTokens, ChatCompletion, ChatCompletionChunk, Choice, ChoiceLogprobs, ChunkChoice,
                ChunkDelta, NamedLogprob, TokenLogprob,
            },
        },
        error::ApiError,
        sglang::generate::SglangMetaInfo,
    },
};

/// The values that all parts of one answer have in common.
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of the request")]
pub(in crate::api) struct ChatEnvelope {
    api: Arc<Api>,
    id: String,
    created: u64,
    model: String,
    prompt_token_ids: Arc<[TokenId]>,
    mm_placeholders: Option<MmPlaceholders>,
    /// The prompt as text, if it is asked for and has a text.
    prompt_text: Option<String>,
    /// The report on known ids, if ids are asked for.
    token_continuity: Option<TokenContinuity>,
    return_token_ids: bool,
    return_sampling_mask: bool,
    return_weight_versions: bool,
    logprobs: bool,
    prompt_logprobs: bool,
    tokens_as_ids: bool,
    shown: ShownInChat,
    /// Whether nothing of the prompt was cut off. If something was, the next turn would begin with what was left: the message
    /// carries no ids then.
    prompt_is_whole: bool,
    /// Whether an answer that says nothing has null for its content, instead of an empty text.
    silence_is_null: bool,
    /// Whether the server parses reasoning, so that usage counts its tokens.
    counts_reasoning: bool,
    calls_read: Option<ParserCounter>,
}

impl ChatEnvelope {
    pub(in crate::api) fn new(
        api: Arc<Api>,
        id: String,
        prompt: &Prompted,
        sampling: &Sampling,
        shown: ShownInChat,
    ) -> Self {
        let asks_for_ids = sampling.return_token_ids || (sampling.wants_logprobs() && sampling.tokens_as_ids);
        let token_continuity =
            (prompt.asks_for_continuity || asks_for_ids).then(|| TokenContinuity::from(&prompt.verdict));
        let shown = (sampling.wants_logprobs(), shown);
        Self {
            prompt_text: prompt.text.clone(),
            mm_placeholders: MmPlaceholders::of(prompt.image_ranges()),
            token_continuity,
            return_sampling_mask: sampling.wants_mask(),
            return_weight_versions: sampling.return_weight_versions,
            prompt_logprobs: sampling.prompt_logprobs.is_some(),
            calls_read: sampling.text.format.tools.is_some().then_some(ParserCounter::Chat),
            ..Self::of_recording(api, id, (Arc::clone(&prompt.token_ids), !prompt.is_cut), sampling, shown)
        }
    }

    /// Makes the envelope of ids that were sampled before; `prompt_is_whole` says whether nothing of their prompt was cut off, and
    /// `logprobs` whether their log-probs are shown.
    pub(in crate::api) fn of_recording(
        api: Arc<Api>,
        id: String,
        (prompt_token_ids, prompt_is_whole): (Arc<[TokenId]>, bool),
        sampling: &Sampling,
        (logprobs, shown): (bool, ShownInChat),
    ) -> Self {
        Self {
            id,
            created: created(),
            model: api.models.answering(sampling.adapter.as_ref()),
            prompt_token_ids,
            mm_placeholders: None,
            prompt_text: None,
            token_continuity: None,
            return_token_ids: sampling.return_token_ids,
            // Nobody says which weights sampled a recording, and what else could have been.
            return_sampling_mask: false,
            return_weight_versions: false,
            logprobs,
            prompt_logprobs: false,
            tokens_as_ids: sampling.tokens_as_ids,
            shown,
            prompt_is_whole,
            silence_is_null: sampling.text.format.silence_is_null(),
            counts_reasoning: api.turns.policies.tools.reasoning.is_some(),
            calls_read: None,
            api,
        }
    }

    fn usage(&self, sampled: usize) -> Usage {
        Usage::new(self.prompt_token_ids.len(), sampled)
    }

    /// Returns the usage details of the prompt. Of `n` sequences the first one reports them, because it met the cache
    /// as it was before the request.
    fn details(&self, prompt: Option<&PromptOutput>) -> Option<PromptTokensDetails> {
        self.api.prompt_details(prompt.map(|prompt| prompt.cached_tokens))
    }

    /// Returns the usage details of the sampled tokens.
    pub(in crate::api) fn completion_details(&self, reasoning_tokens: usize) -> Option<CompletionTokensDetails> {
        self.counts_reasoning.then_some(CompletionTokensDetails { reasoning_tokens })
    }

    /// Makes the JSON answer.
    pub(in crate::api) fn answer(&self, completions: Vec<Completion>) -> Result<ChatCompletion, ApiError> {
        let sampled = completions.iter().map(|completion| completion.tokens.len()).sum();
        let tokenizer = self.api.turns.tokenizer();
        let prompt = completions.first().and_then(|completion| completion.prompt.as_ref());
        let thought = completions.iter().map(|completion| completion.reasoning_tokens).sum();
        let usage =
            DetailedUsage::new(self.usage(sampled), self.details(prompt)).detailed(self.completion_details(thought));
        let (scored, scored_by) = scored_prompt(&completions).filter(|_| self.prompt_logprobs).unzip();
        let prompt_logprobs = scored.map(|prompt| prompt_logprobs(&prompt.logprobs, tokenizer)).transpose()?;
        let sglext = self.shown.sglext(&self.api, &completions);
        let metrics =
            self.api.metrics(completions.iter().map(|completion| (completion.times, completion.tokens.len())));
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
            prompt_weight_version: scored_by.flatten().map(Into::into),
            prompt_token_ids: self.return_token_ids.then(|| self.prompt_token_ids.to_vec()),
            mm_placeholders: self.mm_placeholders.clone().filter(|_| self.return_token_ids),
            prompt_text: self.prompt_text.clone(),
            kv_transfer_params: None,
            ec_transfer_params: None,
            metrics,
            token_continuity: self.token_continuity.clone(),
            sglext,
        })
    }

    /// Makes the JSON answer to several requests, with one choice each, and what became of the ids of the worst off.
    pub(super) fn answer_batch(
        envelopes: &[Self],
        completions: Vec<Completion>,
        continuity: Option<TokenContinuity>,
    ) -> Result<ChatCompletion, ApiError> {
        let first = envelopes.first().ok_or_else(|| ApiError::internal("a batch of nothing"))?;
        let prompt_tokens = envelopes.iter().map(|envelope| envelope.prompt_token_ids.len()).sum();
        let sampled = completions.iter().map(|completion| completion.tokens.len()).sum();
        let thought = completions.iter().map(|completion| completion.reasoning_tokens).sum();
        let prompts = completions.iter().filter_map(|completion| completion.prompt.as_ref());
        let cached = prompts.map(|prompt| prompt.cached_tokens).reduce(|all, one| all + one);
        let choices = envelopes.iter().zip(completions).enumerate();
        let choices = choices.map(|(index, (envelope, completion))| envelope.choice_of_batch(index, completion));
        Ok(ChatCompletion {
            choices: choices.collect::<Result<_, _>>()?,
            usage: DetailedUsage::new(Usage::new(prompt_tokens, sampled), first.api.prompt_details(cached))
                .detailed(first.completion_details(thought)),
            // A batch has several prompts, so there is no single one to show.
            prompt_token_ids: None,
            mm_placeholders: None,
            token_continuity: continuity.filter(|_| first.token_continuity.is_some()),
            ..first.answer(Vec::new())?
        })
    }

    /// Makes the choice of one of several prompts. The message has the prompt's ids, but not those of one that was cut off: the choice
    /// has them then.
    fn choice_of_batch(&self, index: usize, completion: Completion) -> Result<Choice, ApiError> {
        let mut choice = self.choice(index, completion)?;
        if self.return_token_ids && !self.prompt_is_whole {
            choice.prompt_token_ids = Some(self.prompt_token_ids.to_vec());
        }
        Ok(choice)
    }

    /// Makes the choice that shows a completion.
    pub(in crate::api) fn choice(&self, index: usize, mut completion: Completion) -> Result<Choice, ApiError> {
        let finish = completion.finish.as_ref().ok_or_else(|| ApiError::internal("a choice did not end"))?;
        let called = !completion.tool_calls.is_empty();
        let (finish_reason, stop_reason) = ending(finish, called, &self.shown.tool_choice);
        if let Some(counter) = self.calls_read {
            counter.count("non_streaming", called);
        }
        let bundle = self.prompt_is_whole && (self.return_token_ids || (self.logprobs && self.tokens_as_ids));
        Ok(Choice {
            index,
            logprobs: self.choice_logprobs(&completion.tokens)?,
            finish_reason,
            stop_reason,
            token_ids: self.return_token_ids.then(|| completion.token_ids()),
            routed_experts: self.api.routed_experts(completion.routes.as_ref()),
            sampling_mask: sampling_mask(self.return_sampling_mask, &completion.tokens)?,
            weight_versions: self.weight_versions(&completion.weights),
            prompt_token_ids: self.shown.prompt_token_ids.then(|| self.prompt_token_ids.to_vec()),
            meta_info: self.shown.meta_info.map(|began| self.meta_info(began, &completion)).transpose()?,
            dropped_tool_calls: std::mem::take(&mut completion.dropped_calls),
            message: AnswerMessage {
                role: self.shown.role.clone(),
                tokens: bundle.then(|| AnswerTokens {
                    prompt_token_ids: self.prompt_token_ids.to_vec(),
                    generation_token_ids: completion.token_ids(),
                    generation_log_probs: Some(completion.tokens.iter().map(|token| token.logprob).collect()),
                    routed_experts: self.api.routed_experts_of_message(completion.routes.as_ref()),
                }),
                content: self.content(completion.text, called),
                refusal: None,
                annotations: None,
                audio: None,
                function_call: None,
                tool_calls: completion.tool_calls.into_iter().map(Into::into).collect(),
                reasoning: completion.reasoning.filter(|_| self.shown.reasoning),
            },
        })
    }

    fn meta_info(&self, began: Instant, completion: &Completion) -> Result<Box<SglangMetaInfo>, ApiError> {
        let (logprobs, top, mask) = (self.logprobs, self.shown.top_logprobs, self.return_sampling_mask);
        let shown = ShownInMetaInfo { began, logprobs, top, mask };
        let id = self.shown.rid.as_ref().unwrap_or(&self.id);
        meta_info(&self.api, id, self.prompt_token_ids.len(), completion, shown).map(Box::new)
    }

    /// Returns which weights sampled the tokens of a choice, if that is asked for.
    fn weight_versions(&self, weights: &WeightSpans) -> Option<Vec<WeightVersionSpan>> {
        self.return_weight_versions.then(|| weight_versions(weights))
    }

    /// Returns the content of a message. If it has no text, its content is empty next to a forced call, and null next to
    /// other calls.
    fn content(&self, text: String, called: bool) -> Option<String> {
        if let Some(echo) = &self.shown.echo {
            return Some(echo.clone() + &text);
        }
        let forced = self.shown.tool_choice.is_forced();
        // SGLang's clients want a text.
        let null = text.is_empty() && !forced && self.shown.meta_info.is_none() && (called || self.silence_is_null);
        (!null).then_some(text)
    }

    /// Returns the log-probs of some tokens, if log-probs are shown.
    pub(in crate::api) fn choice_logprobs(&self, tokens: &[SampledToken]) -> Result<Option<ChoiceLogprobs>, ApiError> {
        if !self.logprobs {
            return Ok(None);
        }
        let content = tokens.iter().map(|token| self.token_logprob(token)).collect::<Result<_, _>>()?;
        Ok(Some(ChoiceLogprobs { content }))
    }

    fn token_logprob(&self, token: &SampledToken) -> Result<TokenLogprob, ApiError> {
        let spelling = TokenSpelling { tokenizer: self.api.turns.tokenizer(), as_ids: self.tokens_as_ids };
        let alternatives = shown_alternatives(token, self.shown.top_logprobs).into_iter().map(|other| {
            Ok(NamedLogprob {
                token: spelling.name(other.id)?,
                logprob: other.logprob,
                bytes: spelling.bytes_of_alternative(other.id)?,
            })
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
            mm_placeholders: None,
            prompt_text: None,
            kv_transfer_params: None,
            metrics: None,
            token_continuity: None,
        }
    }
}

/// Turns the events of `n` choices into chunks.
pub(super) struct ChatChunks {
    envelope: ChatEnvelope,
    include_usage: bool,
    continuous_usage: bool,
    /// Whether the first chunks have been sent.
    started: bool,
    /// The progress of each choice.
    progress: Vec<Progress>,
    /// The number of calls of each choice that have been sent.
    called: Vec<usize>,
    details: Option<PromptTokensDetails>,
}

impl ChatChunks {
    pub(in crate::api) fn new(
        envelope: ChatEnvelope,
        sampling: &Sampling,
        include_usage: bool,
        continuous_usage: bool,
    ) -> Self {
        Self {
            envelope,
            include_usage,
            continuous_usage,
            started: false,
            progress: vec![Progress::default(); sampling.n],
            called: vec![0; sampling.n],
            details: None,
        }
    }

    fn usage(&self, index: usize) -> Option<StreamedUsage> {
        let Progress { sampled, thought, .. } = self.progress[index];
        let details = self.envelope.completion_details(thought);
        self.continuous_usage.then(|| StreamedUsage::so_far(self.envelope.usage(sampled), details))
    }

    fn first(&self, index: usize) -> ChatCompletionChunk {
        let choice = ChunkChoice {
            index,
            delta: ChunkDelta {
                role: Some(self.envelope.shown.role.clone()),
                content: Some(Some(String::new())),
                ..ChunkDelta::default()
            },
            ..ChunkChoice::default()
        };
        let prompt = self.envelope.return_token_ids.then(|| self.envelope.prompt_token_ids.to_vec());
        ChatCompletionChunk {
            usage: self.usage(index),
            mm_placeholders: self.envelope.mm_placeholders.clone().filter(|_| prompt.is_some()),
            prompt_token_ids: Some(prompt),
            prompt_text: Some(self.envelope.prompt_text.clone()),
            token_continuity: self.envelope.token_continuity.clone(),
            ..self.envelope.chunk(vec![choice])
        }
    }

    /// Makes the chunk that repeats the last message before the answer, with `echo`.
    fn repeated(&self, index: usize) -> Option<ChatCompletionChunk> {
        let echo = self.envelope.shown.echo.clone().filter(|echo| !echo.is_empty())?;
        let choice = ChunkChoice {
            index,
            delta: ChunkDelta { content: Some(Some(echo)), ..ChunkDelta::default() },
            ..ChunkChoice::default()
        };
        Some(ChatCompletionChunk { usage: self.usage(index), ..self.envelope.chunk(vec![choice]) })
    }

    /// Makes the chunks of a delta: one for each message in it; the last one also has the tokens and the end.
    fn deltas(&mut self, index: usize, mut delta: Delta) -> Result<Vec<ChatCompletionChunk>, ApiError> {
        // A delta counts as read for calls once reasoning is over.
        if let Some(counter) = self.envelope.calls_read.filter(|_| delta.reasoning.is_none()) {
            counter.count("streaming", !delta.tool_calls.is_empty());
        }
        if !self.envelope.shown.reasoning {
            delta.reasoning = None;
        }
        let ended = delta.finish.is_some();
        let mut messages = messages(&mut delta, &mut self.called[index]);
        if messages.is_empty() {
            if !(ended || self.shows_silence()) {
                return Ok(Vec::new());
            }
            let reads = self.envelope.api.turns.policies.tools.reads();
            let content = (!reads).then(|| Some(String::new()));
            messages.push(ChunkDelta { content, ..ChunkDelta::default() });
        } else if ended && messages.iter().any(|message| !message.tool_calls.is_empty()) {
            messages.push(ChunkDelta::default());
        }
        let last = messages.len() - 1;
        let nothing = Delta::default();
        let pieces = messages.into_iter().enumerate();
        pieces.map(|(at, message)| self.piece(index, message, if at == last { &delta } else { &nothing })).collect()
    }

    /// Whether a delta that says nothing is sent. While text is kept back it is not, unless its tokens were asked for.
    fn shows_silence(&self) -> bool {
        let shows_tokens =
            self.envelope.return_token_ids || self.envelope.logprobs || self.envelope.return_sampling_mask;
        shows_tokens || !self.envelope.api.turns.policies.tools.reads()
    }

    /// Makes a chunk that says `message`, with the tokens and the end of `delta`.
    fn piece(&self, index: usize, message: ChunkDelta, delta: &Delta) -> Result<ChatCompletionChunk, ApiError> {
        let ending = |finish| ending(finish, self.called[index] > 0, &self.envelope.shown.tool_choice);
        let (finish_reason, stop_reason) = delta.finish.as_ref().map(ending).unzip();
        let finished = finish_reason.is_some();
        let token_ids = || delta.tokens.iter().map(|token| token.id).collect();
        let choice = ChunkChoice {
            index,
            logprobs: self.envelope.choice_logprobs(&delta.tokens)?,
            finish_reason,
            stop_reason,
            token_ids: Some(self.envelope.return_token_ids.then(token_ids)),
            routed_experts: self.envelope.api.routed_experts(self.progress[index].routes.as_ref().filter(|_| finished)),
            sampling_mask: sampling_mask(self.envelope.return_sampling_mask, &delta.tokens)?,
            weight_versions: finished.then(|| self.envelope.weight_versions(&self.progress[index].weights)),
            dropped_tool_calls: delta.dropped_calls.clone(),
            delta: message,
        };
        Ok(ChatCompletionChunk {
            usage: self.usage(index),
            system_fingerprint: (finished && !self.include_usage).then_some(SYSTEM_FINGERPRINT),
            kv_transfer_params: Some(None),
            ..self.envelope.chunk(vec![choice])
        })
    }
}

impl sse::Chunks for ChatChunks {
    type Chunk = ChatCompletionChunk;

    fn push(&mut self, index: usize, event: Event) -> Result<Vec<ChatCompletionChunk>, ApiError> {
        let mut delta = match event {
            Event::Delta(delta) => delta,
            // A request for the prompt's log-probs in a stream has been refused before.
            Event::Prompt(prompt) => {
                if index == 0 {
                    self.details = self.envelope.details(Some(&prompt));
                }
                return Ok(Vec::new());
            }
        };
        let mut chunks = Vec::with_capacity(2);
        if !std::mem::replace(&mut self.started, true) {
            chunks.extend((0..self.progress.len()).map(|index| self.first(index)));
            chunks.extend((0..self.progress.len()).filter_map(|index| self.repeated(index)));
        }
        self.progress[index].push(&mut delta);
        chunks.extend(self.deltas(index, delta)?);
        Ok(chunks)
    }

    fn last(&self) -> Option<ChatCompletionChunk> {
        let sampled = self.progress.iter().map(|progress| progress.sampled).sum();
        let thought = self.progress.iter().map(|progress| progress.thought).sum();
        let times = self.progress.iter().map(|progress| (progress.times, progress.sampled));
        self.include_usage.then(|| ChatCompletionChunk {
            usage: Some(
                StreamedUsage::last(self.envelope.usage(sampled), self.details)
                    .detailed(self.envelope.completion_details(thought)),
            ),
            system_fingerprint: Some(SYSTEM_FINGERPRINT),
            metrics: self.envelope.api.metrics(times).map(Into::into),
            ..self.envelope.chunk(Vec::new())
        })
    }
}
