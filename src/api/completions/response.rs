//! From events to the wire: either one JSON body, or a stream whose parts add up to that body.

use std::sync::Arc;

use indexmap::IndexMap;

use super::request::{CompletionTurn, Prompt};
use crate::{
    TokenId,
    engine::{PromptOutput, SampledToken},
    generation::{Completion, Delta, Event, WeightSpans},
    http::sse,
    request_fields::progress::Progress,
    state::Api,
    wire::{
        answer::{
            output::{
                DetailedUsage, PromptTokensDetails, SYSTEM_FINGERPRINT, ShownAlternatives, StreamedUsage,
                TokenSpelling, Usage, created, finish_fields, prompt_logprobs, shown_alternatives,
            },
            sampling_mask::sampling_mask,
            weight_versions::{WeightVersionSpan, weight_versions},
        },
        completions::types::{
            CompletionAnswer, CompletionChoice, CompletionChunk, CompletionChunkChoice, CompletionLogprobs,
        },
        error::ApiError,
    },
};

/// The values that all parts of one answer have in common.
pub(in crate::api) struct CompletionEnvelope {
    api: Arc<Api>,
    created: u64,
    turn: CompletionTurn,
}

impl CompletionEnvelope {
    pub(in crate::api) fn new(api: Arc<Api>, turn: CompletionTurn) -> Self {
        Self { api, created: created(), turn }
    }

    fn model(&self) -> String {
        self.api.models.answering(self.turn.sampling.adapter.as_ref())
    }

    /// Returns the prompt of choice `index`: the choices of the first prompt come first.
    fn prompt(&self, index: usize) -> &Prompt {
        &self.turn.prompts[index / self.turn.sampling.n]
    }

    fn prompt_tokens(&self) -> usize {
        self.turn.prompts.iter().map(|prompt| prompt.token_ids.len()).sum()
    }

    /// Returns the usage details of the prompts, given the cached tokens of each choice. Usage counts a prompt once, as
    /// its first choice reports it, because that one met the cache as it was before the request.
    fn details(&self, cached_tokens: impl Iterator<Item = Option<usize>>) -> Option<PromptTokensDetails> {
        let of_each_prompt = cached_tokens.step_by(self.turn.sampling.n).flatten();
        self.api.prompt_details(of_each_prompt.reduce(|sum, tokens| sum + tokens))
    }

    /// Makes the JSON answer.
    pub(in crate::api) fn answer(&self, completions: &[Completion]) -> Result<CompletionAnswer, ApiError> {
        let sampled = completions.iter().map(|completion| completion.tokens.len()).sum();
        let cached = |completion: &Completion| completion.prompt.as_ref().map(|prompt| prompt.cached_tokens);
        let details = self.details(completions.iter().map(cached));
        let metrics =
            self.api.metrics(completions.iter().map(|completion| (completion.times, completion.tokens.len())));
        let choices = completions.iter().enumerate().map(|(index, completion)| self.choice(index, completion));
        Ok(CompletionAnswer {
            id: self.turn.id.clone(),
            object: "text_completion",
            created: self.created,
            model: self.model(),
            choices: choices.collect::<Result<_, _>>()?,
            service_tier: None,
            system_fingerprint: SYSTEM_FINGERPRINT,
            usage: DetailedUsage::new(Usage::new(self.prompt_tokens(), sampled), details),
            kv_transfer_params: None,
            ec_transfer_params: None,
            metrics,
        })
    }

    /// Makes the choice that shows a completion.
    pub(in crate::api) fn choice(&self, index: usize, completion: &Completion) -> Result<CompletionChoice, ApiError> {
        let finish = completion.finish.as_ref().ok_or_else(|| ApiError::internal("a choice did not end"))?;
        let (finish_reason, stop_reason) = finish_fields(finish);
        let ids = self.turn.sampling.return_token_ids;
        let prompt = completion.prompt.as_ref().map(|prompt| prompt.logprobs.as_slice());
        let tokenizer = self.api.turns.tokenizer();
        let scored = prompt.filter(|_| self.turn.sampling.prompt_logprobs.is_some());
        let mut logprobs = Logprobs::default();
        self.add_echo(index, prompt, &mut logprobs)?;
        self.add_sampled(&completion.tokens, &mut logprobs)?;
        Ok(CompletionChoice {
            index,
            logprobs: logprobs.lists,
            finish_reason,
            stop_reason,
            token_ids: ids.then(|| completion.token_ids()),
            prompt_logprobs: scored.map(|tokens| prompt_logprobs(tokens, tokenizer)).transpose()?,
            prompt_weight_version: None,
            prompt_token_ids: ids.then(|| self.prompt(index).token_ids.to_vec()),
            routed_experts: self.api.routed_experts(completion.routes.as_ref()),
            sampling_mask: sampling_mask(self.turn.sampling.wants_mask(), &completion.tokens)?,
            weight_versions: self.weight_versions(&completion.weights),
            text: self.echo_text(index) + self.text(&completion.text),
        })
    }

    /// Returns which weights sampled the tokens of a choice, if that is asked for.
    fn weight_versions(&self, weights: &WeightSpans) -> Option<Vec<WeightVersionSpan>> {
        self.turn.sampling.return_weight_versions.then(|| weight_versions(weights))
    }

    /// Returns the prompt's text, if it is to be repeated.
    fn echo_text(&self, index: usize) -> String {
        self.prompt(index).text.clone().unwrap_or_default()
    }

    /// Returns the part of the sampled text that is shown.
    fn text<'a>(&self, sampled: &'a str) -> &'a str {
        if self.turn.prompt_only { "" } else { sampled }
    }

    /// Adds the log-probs of a repeated prompt, whose first token has none.
    fn add_echo(&self, index: usize, prompt: Option<&[SampledToken]>, out: &mut Logprobs) -> Result<(), ApiError> {
        let (true, Some(prompt), Some(_)) = (self.turn.echo, prompt, self.turn.logprobs) else { return Ok(()) };
        if let Some(&first) = self.prompt(index).token_ids.first() {
            out.push(self.spelling().name(first)?, None, None);
        }
        self.add(prompt, out)
    }

    fn add_sampled(&self, tokens: &[SampledToken], out: &mut Logprobs) -> Result<(), ApiError> {
        self.add(if self.turn.prompt_only { &[] } else { tokens }, out)
    }

    fn add(&self, tokens: &[SampledToken], out: &mut Logprobs) -> Result<(), ApiError> {
        let Some(ShownAlternatives(shown)) = self.turn.logprobs else { return Ok(()) };
        let spelling = self.spelling();
        // An empty piece of a stream has empty lists, rather than null.
        out.lists.get_or_insert_default();
        for token in tokens {
            let mut alternatives = IndexMap::new();
            for alternative in shown_alternatives(token, shown) {
                alternatives.entry(spelling.name(alternative.id)?).or_insert(alternative.logprob);
            }
            out.push(spelling.name(token.id)?, Some(token.logprob), Some(alternatives));
        }
        Ok(())
    }

    /// Returns the log-probs of some tokens that start after `offset` characters, and the offset at which they end.
    pub(in crate::api) fn logprobs(
        &self,
        tokens: &[SampledToken],
        offset: usize,
    ) -> Result<(Option<CompletionLogprobs>, usize), ApiError> {
        let mut logprobs = Logprobs { lists: None, offset };
        self.add(tokens, &mut logprobs)?;
        Ok((logprobs.lists, logprobs.offset))
    }

    fn spelling(&self) -> TokenSpelling<'_> {
        TokenSpelling { tokenizer: self.api.turns.tokenizer(), as_ids: self.turn.sampling.tokens_as_ids }
    }

    fn chunk(&self, choices: Vec<CompletionChunkChoice>) -> CompletionChunk {
        CompletionChunk {
            id: self.turn.id.clone(),
            object: "text_completion",
            created: self.created,
            model: self.model(),
            choices,
            usage: None,
            system_fingerprint: None,
            kv_transfer_params: None,
            metrics: None,
        }
    }
}

/// The lists of log-probs, and the offset at which the next token starts.
#[derive(Default)]
struct Logprobs {
    lists: Option<CompletionLogprobs>,
    offset: usize,
}

impl Logprobs {
    fn push(&mut self, name: String, logprob: Option<f32>, alternatives: Option<IndexMap<String, f32>>) {
        let lists = self.lists.get_or_insert_default();
        lists.text_offset.push(self.offset);
        self.offset += name.chars().count();
        lists.tokens.push(name);
        lists.token_logprobs.push(logprob);
        lists.top_logprobs.push(alternatives);
    }
}

/// One choice of a stream.
#[derive(Default)]
struct StreamedChoice {
    started: bool,
    progress: Progress,
    prompt: Option<PromptOutput>,
    offset: usize,
}

/// Turns the events of all choices into chunks.
pub(super) struct CompletionChunks {
    envelope: CompletionEnvelope,
    include_usage: bool,
    continuous_usage: bool,
    choices: Vec<StreamedChoice>,
}

impl CompletionChunks {
    pub(in crate::api) fn new(envelope: CompletionEnvelope, include_usage: bool, continuous_usage: bool) -> Self {
        let choices = envelope.turn.prompts.len() * envelope.turn.sampling.n;
        let choices = std::iter::repeat_with(StreamedChoice::default).take(choices).collect();
        Self { envelope, include_usage, continuous_usage, choices }
    }

    fn delta(&mut self, index: usize, mut delta: Delta) -> Result<CompletionChunk, ApiError> {
        let envelope = &self.envelope;
        let streamed = &mut self.choices[index];
        let first = !std::mem::replace(&mut streamed.started, true);
        streamed.progress.push(&mut delta);
        let mut logprobs = Logprobs { lists: None, offset: streamed.offset };
        if first {
            let scores = streamed.prompt.as_mut().map(|prompt| std::mem::take(&mut prompt.logprobs));
            envelope.add_echo(index, scores.as_deref(), &mut logprobs)?;
        }
        envelope.add_sampled(&delta.tokens, &mut logprobs)?;
        streamed.offset = logprobs.offset;
        let progress = &streamed.progress;
        let (finish_reason, stop_reason) = delta.finish.as_ref().map(finish_fields).unzip();
        let finished = finish_reason.is_some();
        let ids = envelope.turn.sampling.return_token_ids;
        let prompt = envelope.prompt(index);
        let sampled = || delta.tokens.iter().map(|token| token.id).collect::<Vec<TokenId>>();
        let choice = CompletionChunkChoice {
            index,
            logprobs: logprobs.lists,
            finish_reason,
            stop_reason: stop_reason.flatten(),
            // vLLM reports the ids of a repeated prompt even if they are not asked for.
            prompt_token_ids: (first && (ids || envelope.turn.echo)).then(|| prompt.token_ids.to_vec()),
            token_ids: ids.then(sampled),
            routed_experts: envelope.api.routed_experts(progress.routes.as_ref().filter(|_| finished)),
            sampling_mask: sampling_mask(envelope.turn.sampling.wants_mask(), &delta.tokens)?,
            weight_versions: if finished { envelope.weight_versions(&progress.weights) } else { None },
            text: if first { envelope.echo_text(index) } else { String::new() } + envelope.text(&delta.text),
        };
        let usage = Usage::new(prompt.token_ids.len(), progress.sampled);
        Ok(CompletionChunk {
            usage: self.continuous_usage.then(|| usage.into()),
            system_fingerprint: (finished && !self.include_usage).then_some(SYSTEM_FINGERPRINT),
            kv_transfer_params: Some(None),
            ..envelope.chunk(vec![choice])
        })
    }
}

impl sse::Chunks for CompletionChunks {
    type Chunk = CompletionChunk;

    fn push(&mut self, index: usize, event: Event) -> Result<Vec<CompletionChunk>, ApiError> {
        match event {
            Event::Prompt(prompt) => {
                self.choices[index].prompt = Some(prompt);
                Ok(Vec::new())
            }
            Event::Delta(delta) => Ok(vec![self.delta(index, delta)?]),
        }
    }

    fn last(&self) -> Option<CompletionChunk> {
        let sampled = self.choices.iter().map(|choice| choice.progress.sampled).sum();
        let cached = |choice: &StreamedChoice| choice.prompt.as_ref().map(|prompt| prompt.cached_tokens);
        let details = self.envelope.details(self.choices.iter().map(cached));
        let times = self.choices.iter().map(|choice| (choice.progress.times, choice.progress.sampled));
        self.include_usage.then(|| CompletionChunk {
            usage: Some(StreamedUsage::last(Usage::new(self.envelope.prompt_tokens(), sampled), details)),
            system_fingerprint: Some(SYSTEM_FINGERPRINT),
            metrics: self.envelope.api.metrics(times).map(Into::into),
            ..self.envelope.chunk(Vec::new())
        })
    }
}
