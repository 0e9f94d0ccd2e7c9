//! From events to the wire: either one JSON body, or a stream whose parts add up to that body.

use std::sync::Arc;

use super::request::GenerateTurn;
use crate::{
    TokenId,
    api::chat_completions::response::ChatEnvelope,
    engine::{PromptImage, PromptOutput, SampledToken},
    generation::{Completion, Delta, Event, Finish, scored_prompt},
    http::sse,
    npy,
    request_fields::progress::Progress,
    sampling::TopLogprob,
    state::Api,
    wire::{
        answer::{
            mm_placeholders::MmPlaceholders,
            output::{
                DetailedUsage, PromptTokensDetails, ShownAlternatives, StreamedUsage, TokenSpelling, Usage, created,
                finish_fields, prompt_logprobs, shown_alternatives, spelt_id,
            },
            sampling_mask::sampling_mask,
            weight_versions::weight_versions,
        },
        error::ApiError,
        token_io::generate::{
            ChunkUsage, GenerateAnswer, GenerateChoice, GenerateChunk, GenerateLogprobs, IdLogprob, IdLogprobs,
            OutputMode, TextLogprob, TextLogprobs,
        },
    },
};

/// The values that all parts of one answer have in common.
pub(super) struct GenerateEnvelope {
    api: Arc<Api>,
    created: u64,
    turn: GenerateTurn,
    /// Makes the message of a choice, if one is reported.
    chat: Option<ChatEnvelope>,
}

impl GenerateEnvelope {
    pub(super) fn new(api: Arc<Api>, turn: GenerateTurn) -> Self {
        let chat = turn.message.clone().map(|message| {
            let prompt = (Arc::clone(&turn.prompt_token_ids), message.prompt_is_whole);
            let shown = (turn.shown.is_some(), message.chat);
            ChatEnvelope::of_recording(Arc::clone(&api), turn.id.clone(), prompt, &turn.sampling, shown)
        });
        Self { created: created(), turn, api, chat }
    }

    fn usage(&self, sampled: usize) -> Usage {
        Usage::new(self.turn.prompt_token_ids.len(), sampled)
    }

    fn details(&self, prompt: Option<&PromptOutput>) -> Option<PromptTokensDetails> {
        self.api.prompt_details(prompt.map(|prompt| prompt.cached_tokens))
    }

    fn prompt_token_ids(&self) -> Option<Vec<TokenId>> {
        self.turn.return_token_ids.then(|| self.turn.prompt_token_ids.to_vec())
    }

    fn mm_placeholders(&self) -> Option<MmPlaceholders> {
        let images = &self.turn.images;
        MmPlaceholders::of(images.iter().map(PromptImage::placeholders)).filter(|_| self.turn.return_token_ids)
    }

    fn text(&self, text: String) -> Option<String> {
        (self.turn.output_mode == OutputMode::Text).then_some(text)
    }

    /// Makes the JSON answer.
    pub(super) fn answer(&self, completions: &[Completion]) -> Result<GenerateAnswer, ApiError> {
        let sampled = completions.iter().map(|completion| completion.tokens.len()).sum();
        let prompt = completions.first().and_then(|completion| completion.prompt.as_ref());
        let (scored, scored_by) = scored_prompt(completions).unzip();
        let shown = scored.filter(|_| self.turn.sampling.prompt_logprobs.is_some());
        let shows_scores = shown.is_some() || self.turn.sampling.candidates.is_some();
        let tokenizer = self.api.turns.tokenizer();
        let choices = completions.iter().enumerate().map(|(index, completion)| self.choice(index, completion));
        // Those of the chat whose message is told.
        let thought = completions.iter().map(|completion| completion.reasoning_tokens).sum();
        let details = self.chat.as_ref().and_then(|chat| chat.completion_details(thought));
        Ok(GenerateAnswer {
            request_id: self.turn.id.clone(),
            model: self.api.models.answering(self.turn.sampling.adapter.as_ref()),
            created: self.created,
            usage: DetailedUsage::new(self.usage(sampled), self.details(prompt)).detailed(details),
            prompt_logprobs: shown.map(|prompt| prompt_logprobs(&prompt.logprobs, tokenizer)).transpose()?,
            prompt_weight_version: scored_by.flatten().filter(|_| shows_scores).map(Into::into),
            prompt_token_id_logprobs: self.candidate_logprobs(scored, completions)?,
            prompt_token_ids: self.prompt_token_ids(),
            mm_placeholders: self.mm_placeholders(),
            metrics: None,
            kv_transfer_params: None,
            ec_transfer_params: None,
            output_mode: self.turn.output_mode,
            choices: choices.collect::<Result<_, _>>()?,
        })
    }

    /// The log-probs of tokens that the request names. There are none if the first choice was ended before its first token.
    fn candidate_logprobs(
        &self,
        prompt: Option<&PromptOutput>,
        completions: &[Completion],
    ) -> Result<Option<String>, ApiError> {
        let Some(candidates) = &self.turn.sampling.candidates else { return Ok(None) };
        let positions = self.turn.prompt_token_ids.len() - 1 - candidates.first();
        let scores = prompt.map(|prompt| &prompt.candidates[..]).unwrap_or_default();
        let is_ended = |first: &Completion| first.finish == Some(Finish::Abort) && first.tokens.is_empty();
        if scores.is_empty() && completions.first().is_some_and(is_ended) {
            return Ok(None);
        }
        if scores.len() != positions * candidates.width() {
            return Err(ApiError::internal("the engine left out log-probs of the prompt"));
        }
        Ok(Some(npy::encode(scores, candidates.width())))
    }

    fn choice(&self, index: usize, completion: &Completion) -> Result<GenerateChoice, ApiError> {
        let finish = completion.finish.as_ref().ok_or_else(|| ApiError::internal("a choice did not end"))?;
        let (mut finish_reason, stop_reason) = finish_fields(finish);
        let (message, logprobs) = match &self.chat {
            None => (None, self.logprobs(&completion.tokens)?),
            Some(chat) => {
                let choice = chat.choice(index, completion.clone())?;
                finish_reason = choice.finish_reason;
                (Some(choice.message), choice.logprobs.map(GenerateLogprobs::Chat))
            }
        };
        Ok(GenerateChoice {
            index,
            finish_reason: Some(finish_reason),
            stop_reason,
            token_ids: completion.token_ids(),
            routed_experts: self.api.routed_experts(completion.routes.as_ref()),
            sampling_mask: sampling_mask(self.turn.sampling.wants_mask(), &completion.tokens)?,
            weight_versions: Some(weight_versions(&completion.weights)),
            text: self.text(completion.text.clone()),
            message,
            logprobs,
        })
    }

    fn logprobs(&self, tokens: &[SampledToken]) -> Result<Option<GenerateLogprobs>, ApiError> {
        let Some(ShownAlternatives(shown)) = self.turn.shown else { return Ok(None) };
        Ok(Some(match self.turn.output_mode {
            OutputMode::Tokens => {
                let content = tokens.iter().map(|token| by_id(token, shown)).collect();
                GenerateLogprobs::Tokens { content }
            }
            OutputMode::Text | OutputMode::Derender => {
                let content = tokens.iter().map(|token| self.by_text(token, shown)).collect::<Result<_, _>>()?;
                GenerateLogprobs::Text { content }
            }
        }))
    }

    fn by_text(&self, token: &SampledToken, shown: Option<usize>) -> Result<TextLogprobs, ApiError> {
        let as_ids = self.turn.sampling.tokens_as_ids;
        let spelling = TokenSpelling { tokenizer: self.api.turns.tokenizer(), as_ids };
        let alternatives = shown_alternatives(token, shown).into_iter().map(|top| {
            let bytes = if as_ids { None } else { Some(spelling.bytes(top.id)?) };
            Ok(TextLogprob { token: spelling.name(top.id)?, logprob: top.logprob, bytes })
        });
        Ok(TextLogprobs {
            token: TextLogprob {
                token: spelling.name(token.id)?,
                logprob: token.logprob,
                bytes: if as_ids { None } else { Some(spelling.bytes(token.id)?) },
            },
            top_logprobs: alternatives.collect::<Result<_, ApiError>>()?,
        })
    }

    fn chunk(&self, choices: Vec<GenerateChoice>, usage: Option<ChunkUsage>) -> GenerateChunk {
        let (request_id, output_mode) = (self.turn.id.clone(), self.turn.output_mode);
        GenerateChunk { request_id, usage, prompt_token_ids: None, mm_placeholders: None, output_mode, choices }
    }
}

fn by_id(token: &SampledToken, shown: Option<usize>) -> IdLogprobs {
    let entry = |top: TopLogprob| IdLogprob {
        token: spelt_id(top.id),
        token_id: top.id,
        logprob: top.logprob,
        rank: Some(top.rank),
    };
    IdLogprobs {
        token: entry(TopLogprob { id: token.id, logprob: token.logprob, rank: token.rank }),
        top_logprobs: shown_alternatives(token, shown).into_iter().map(entry).collect(),
    }
}

/// Turns the events of `n` choices into chunks.
pub(super) struct GenerateChunks {
    envelope: GenerateEnvelope,
    include_usage: bool,
    continuous_usage: bool,
    /// Whether the prompt has not been sent yet; the first choice that begins sends it.
    prompt_is_due: bool,
    progress: Vec<Progress>,
    details: Option<PromptTokensDetails>,
}

impl GenerateChunks {
    pub(super) fn new(envelope: GenerateEnvelope, n: usize, include_usage: bool, continuous_usage: bool) -> Self {
        let progress = vec![Progress::default(); n];
        Self { envelope, include_usage, continuous_usage, prompt_is_due: true, progress, details: None }
    }

    fn delta(&mut self, index: usize, mut delta: Delta) -> Result<Vec<GenerateChunk>, ApiError> {
        let progress = &mut self.progress[index];
        progress.push(&mut delta);
        let ended = delta.finish.is_some();
        let speaks = self.envelope.turn.output_mode == OutputMode::Text && !delta.text.is_empty();
        if delta.tokens.is_empty() && !ended && !speaks {
            return Ok(Vec::new());
        }
        let (finish_reason, stop_reason) = delta.finish.as_ref().map(finish_fields).unzip();
        let choice = GenerateChoice {
            index,
            finish_reason,
            stop_reason: stop_reason.flatten(),
            token_ids: delta.tokens.iter().map(|token| token.id).collect(),
            routed_experts: self.envelope.api.routed_experts(progress.routes.as_ref().filter(|_| ended)),
            sampling_mask: sampling_mask(self.envelope.turn.sampling.wants_mask(), &delta.tokens)?,
            weight_versions: ended.then(|| weight_versions(&progress.weights)),
            text: self.envelope.text(delta.text),
            message: None,
            logprobs: self.envelope.logprobs(&delta.tokens)?,
        };
        let usage = || ChunkUsage::SoFar(DetailedUsage::new(self.envelope.usage(progress.sampled), None));
        let mut chunk = self.envelope.chunk(vec![choice], self.continuous_usage.then(usage));
        if std::mem::take(&mut self.prompt_is_due) {
            chunk.prompt_token_ids = self.envelope.prompt_token_ids();
            chunk.mm_placeholders = self.envelope.mm_placeholders();
        }
        Ok(vec![chunk])
    }
}

impl sse::Chunks for GenerateChunks {
    type Chunk = GenerateChunk;

    fn push(&mut self, index: usize, event: Event) -> Result<Vec<GenerateChunk>, ApiError> {
        match event {
            Event::Delta(delta) => self.delta(index, delta),
            // A request for the prompt's log-probs in a stream has been refused before.
            Event::Prompt(prompt) => {
                if index == 0 {
                    self.details = self.envelope.details(Some(&prompt));
                }
                Ok(Vec::new())
            }
        }
    }

    fn last(&self) -> Option<GenerateChunk> {
        let sampled = self.progress.iter().map(|progress| progress.sampled).sum();
        let usage = || StreamedUsage::last(self.envelope.usage(sampled), self.details);
        self.include_usage.then(|| self.envelope.chunk(Vec::new(), Some(ChunkUsage::Last(usage()))))
    }
}
