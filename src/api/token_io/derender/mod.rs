//! The parts that both derender endpoints share: ids that `/inference/v1/generate` gave become the text of a chat or a
//! completion.
//!
//! The ids pass through the same decoder, stop strings and parsers of `generation` as those of an ordinary chat or
//! completion. A stream is derendered event by event, without a session. The client sends all ids so far, and each
//! event is read after them. So its text is the same as in an ordinary stream.

pub(super) mod chat;
pub(super) mod completion;
mod known_prompt;

use std::sync::Arc;

use axum::Json;

use crate::{
    TokenId,
    engine::SampledToken,
    generation::{Completion, Finish, Recording, TextOptions, end_of_prompt},
    state::Api,
    tokenizer::Tokenizer,
    turn::Sampling,
    wire::{
        answer::{
            output::{DetailedUsage, Usage},
            sampling_mask::SamplingMask,
        },
        error::{ApiError, validation::missing_of},
        fields::sampling::SamplingFields,
        token_io::{
            derender::StreamState,
            derender_input::{
                ChoiceToDerender, ChunkToDerender, Limits, ResponseToDerender, TokenCount, UsageToDerender,
            },
        },
    },
};

/// The state carries this many of a prompt's last tokens, and one before them that says where reasoning is left; decoding
/// looks at the last few.
const CARRIED_PROMPT_TOKENS: usize = 32;

impl StreamState {
    /// Returns the state of a stream, whose `prompt` is given with its first event, and whose answer is read as `text` says.
    fn of(
        carried: Option<Self>,
        prompt: Option<&[TokenId]>,
        text: &TextOptions,
        tokenizer: &Tokenizer,
    ) -> Result<Self, ApiError> {
        let Some(state) = carried else {
            let prompt = prompt.unwrap_or_default();
            let prompt_token_ids = end_of_prompt(text.reasoning(), tokenizer, prompt, CARRIED_PROMPT_TOKENS);
            return Ok(Self { prompt_token_ids, ..Self::default() });
        };
        let sum: usize = state.output_chunk_lens.iter().map(|&length| length as usize).sum();
        let count = state.output_token_ids.len();
        if sum != count {
            let message = format!(
                "output_chunk_lens must sum to len(output_token_ids) (got sum={sum}, len(output_token_ids)={count})"
            );
            return Err(ApiError::invalid("stream_state", message));
        }
        if !state.prev_tokens.is_empty() || state.prompt_token_ids.len() > CARRIED_PROMPT_TOKENS + 1 {
            return Err(ApiError::invalid("stream_state", "invalid stream_state: it is another server's"));
        }
        let carried = &state.prompt_token_ids;
        let end = &carried[carried.len().saturating_sub(CARRIED_PROMPT_TOKENS)..];
        if prompt.is_some_and(|prompt| !prompt.ends_with(end)) {
            return Err(ApiError::invalid(
                "prompt_token_ids",
                "`prompt_token_ids` are not the prompt of `stream_state`",
            ));
        }
        Ok(state)
    }

    /// Returns the script of the stream.
    fn script(&self, sampling: &Sampling) -> Script {
        Script::new(self.prompt_token_ids.as_slice().into(), sampling)
    }

    /// Adds the tokens of an event.
    fn add(&mut self, tokens: &[SampledToken]) -> Result<(), ApiError> {
        if !tokens.is_empty() {
            self.output_token_ids.extend(tokens.iter().map(|token| token.id));
            self.output_chunk_lens.push(TokenCount::try_from(tokens.len()).map_err(ApiError::internal)?);
        }
        Ok(())
    }

    /// Sets the offset at which the text of the next token starts.
    fn set_logprob_text_offset(&mut self, offset: usize) -> Result<(), ApiError> {
        self.logprob_text_offset = u32::try_from(offset)
            .map_err(|_| ApiError::invalid("stream_state", "invalid stream_state: logprob_text_offset is too large"))?;
        Ok(())
    }
}

/// The parameters of a replay: a prompt that decoding may look at, and how its continuation becomes text.
struct Script {
    /// The prompt, or its end, as far as the client sent it.
    prompt_token_ids: Arc<[TokenId]>,
    sampling: Sampling,
}

impl Script {
    /// Makes the script that `sampling` describes.
    fn new(prompt_token_ids: Arc<[TokenId]>, sampling: &Sampling) -> Self {
        Self { prompt_token_ids, sampling: sampling.clone() }
    }

    /// The tokens of a choice. What the request asks for of each has to come with them: nobody can compute it here.
    fn tokens(&self, api: &Api, choice: &ChoiceToDerender) -> Result<Vec<SampledToken>, ApiError> {
        let tokens = choice.tokens(api.turns.vocab_size())?;
        let asked = [
            ("return_sampling_mask", "sampling_mask", self.sampling.wants_mask(), choice.sampling_mask.is_some()),
            ("logprobs", "logprobs", self.sampling.wants_logprobs(), choice.has_logprobs()),
        ];
        match asked.into_iter().find(|(.., is_asked, is_there)| *is_asked && !is_there) {
            Some((wish, field, ..)) if !tokens.is_empty() => {
                let index = choice.index;
                let message =
                    format!("the request asks for `{wish}`, and choice {index} of the answer has no `{field}`");
                Err(ApiError::invalid_request(message))
            }
            _ => Ok(tokens),
        }
    }

    /// Puts a whole choice into text.
    fn play(&self, api: &Api, choice: &ChoiceToDerender) -> Result<Completion, ApiError> {
        if choice.token_ids.as_ref().is_none_or(Vec::is_empty) {
            let message = format!("choice {} has empty or null token_ids", choice.index);
            return Err(ApiError::invalid_request(message));
        }
        let tokens = self.tokens(api, choice)?;
        let Some(finish) = choice.finish()? else {
            let message = format!("choice {} has no finish_reason, and a whole answer has ended", choice.index);
            return Err(ApiError::invalid_request(message));
        };
        self.replay(api, tokens, Some(finish), 0)
    }

    /// Puts the tokens that one event adds to a choice into text, after the tokens of `state`, and adds them there.
    fn play_on(&self, api: &Api, state: &mut StreamState, choice: &ChoiceToDerender) -> Result<Completion, ApiError> {
        let completion = self.continuation(api, state, choice)?;
        state.add(&completion.tokens)?;
        let thought = TokenCount::try_from(completion.reasoning_tokens).map_err(ApiError::internal)?;
        state.reasoning_tokens = state.reasoning_tokens.saturating_add(thought);
        Ok(completion)
    }

    /// The text and the tokens that one event adds to a choice.
    fn continuation(&self, api: &Api, state: &StreamState, choice: &ChoiceToDerender) -> Result<Completion, ApiError> {
        let before = &state.output_token_ids;
        let bare =
            |&id: &TokenId| SampledToken { id, logprob: 0.0, rank: 0, top_logprobs: Vec::new(), sampling_mask: None };
        let mut tokens: Vec<_> = before.iter().map(bare).collect();
        tokens.extend(self.tokens(api, choice)?);
        if tokens.len() > api.turns.max_model_len {
            let (count, limit) = (tokens.len(), api.turns.max_model_len);
            return Err(ApiError::invalid_request(format!("{count} tokens exceed max_model_len ({limit}).")));
        }
        if before.iter().any(|&id| id as usize >= api.turns.vocab_size()) {
            return Err(ApiError::invalid("stream_state", "invalid stream_state: a token id is out of vocabulary"));
        }
        let (finish, from) = (choice.finish()?, before.len());
        let shown = self.count_with_text(&tokens[..from]);
        let all = if finish.is_some() { tokens.len() } else { self.count_with_text(&tokens) };
        if shown == from && from < all {
            let held_back = tokens.split_off(all);
            let mut completion = self.replay(api, tokens, finish, from)?;
            completion.tokens.extend(held_back);
            return Ok(completion);
        }
        // The end comes after its token, or was none: what was held back is shown now.
        let earlier = self.replay(api, tokens[..shown].to_vec(), None, 0)?;
        let whole = self.replay(api, tokens[..all].to_vec(), finish, 0)?;
        let rest = rest(whole, &earlier).ok_or_else(|| {
            ApiError::invalid("stream_state", "invalid stream_state: the text so far is no beginning of the answer")
        })?;
        Ok(Completion { tokens: tokens.split_off(from), ..rest })
    }

    /// How many tokens of a choice that goes on have their text shown: one that ends an answer has none, if it is the last.
    fn count_with_text(&self, tokens: &[SampledToken]) -> usize {
        let is_end = tokens.last().is_some_and(|last| self.sampling.ends_with(last.id, tokens.len()));
        tokens.len() - usize::from(is_end)
    }

    fn replay(
        &self,
        api: &Api,
        tokens: Vec<SampledToken>,
        finish: Option<Finish>,
        from: usize,
    ) -> Result<Completion, ApiError> {
        let last = tokens.last().map(|token| token.id);
        let mut text = TextOptions::clone(&self.sampling.text);
        // A stop token has no text. If the choice is said to end with one but its last token is another one, it was left out, as
        // vLLM's own tests do, and the last token has its text.
        let played = match &finish {
            Some(Finish::Eos) if last != api.turns.policies.sampling.eos_token_id || last.is_none() => {
                Some(Finish::Length)
            }
            Some(Finish::StopToken(id)) if last != Some(*id) => Some(Finish::Length),
            Some(Finish::StopString(stop)) if !text.stop.contains(stop) => {
                text.stop.push(stop.clone());
                finish.clone()
            }
            _ => finish.clone(),
        };
        let recording = Recording {
            prompt_token_ids: Arc::clone(&self.prompt_token_ids),
            text: Arc::new(text),
            min_tokens: self.sampling.min_tokens(),
            tokens,
            finish: played,
        };
        let mut completion = api.turns.generator.replay(&recording, from).map_err(|reason| {
            ApiError::invalid_request(format!("the token ids are not those of an answer to the request: {reason}"))
        })?;
        completion.finish = finish;
        Ok(completion)
    }
}

/// Decodes on a thread of its own, because a long answer takes a while.
async fn decoded<T: Send + 'static>(
    decode: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<Json<T>, ApiError> {
    tokio::task::spawn_blocking(decode).await.map_err(ApiError::internal)?.map(Json)
}

/// Returns what of `whole` is not in `earlier`, its beginning; `None` if that is no beginning of it.
fn rest(whole: Completion, earlier: &Completion) -> Option<Completion> {
    let text = whole.text.strip_prefix(&earlier.text)?.to_owned();
    let reasoning = match (&whole.reasoning, &earlier.reasoning) {
        (Some(whole), Some(earlier)) => Some(whole.strip_prefix(earlier.as_str())?.to_owned()),
        (None, Some(_)) => return None,
        (reasoning, None) => reasoning.clone(),
    };
    let tool_calls = whole.tool_calls.get(earlier.tool_calls.len()..)?.to_vec();
    let reasoning_tokens = whole.reasoning_tokens.saturating_sub(earlier.reasoning_tokens);
    Some(Completion { text, reasoning, reasoning_tokens, tool_calls, ..whole })
}

/// Returns how ids become an answer where the request that was rendered is not given.
fn plain_sampling(api: &Api) -> Result<Sampling, ApiError> {
    SamplingFields::default().resolve(None, None, &api.turns.policies.sampling, api.turns.vocabulary())
}

/// Refuses an answer without log-probs of the prompt, if the request asks for them.
fn check_scores(sampling: &Sampling, response: &ResponseToDerender) -> Result<(), ApiError> {
    if sampling.prompt_logprobs.is_some() && response.prompt_logprobs.is_none() {
        let message = "the request asks for log-probs of the prompt, and the answer has no `prompt_logprobs`";
        return Err(ApiError::invalid_request(message));
    }
    Ok(())
}

/// Returns the name of the model that an answer shows: the one that was asked for, or the server's.
fn shown_model(asked: Option<String>, api: &Api) -> String {
    asked.filter(|model| !model.is_empty()).unwrap_or_else(|| api.models.name().to_owned())
}

/// Returns the limits that no answer of this server exceeds.
fn limits(api: &Api) -> Limits {
    let policy = &api.turns.policies.sampling;
    Limits { max_model_len: api.turns.max_model_len, max_logprobs: policy.max_logprobs, sequences: policy.max_n }
}

/// Returns the usage that an event reports, of a prompt of so many tokens.
fn usage(given: Option<UsageToDerender>, prompt_tokens: usize) -> Option<DetailedUsage> {
    let completion_tokens = given?.completion_tokens.unwrap_or(0) as usize;
    Some(DetailedUsage::new(Usage::new(prompt_tokens, completion_tokens), None))
}

/// Returns the event of a stream. Refuses one about more than one choice, because the state is that of one choice.
fn event(chunk: Option<ChunkToDerender>, endpoint: &str) -> Result<ChunkToDerender, ApiError> {
    let chunk = chunk.ok_or_else(|| missing_of("generate_chunk", 1))?;
    chunk.check()?;
    match chunk.choices.len() {
        0 | 1 => Ok(chunk),
        count => {
            let message = format!("{endpoint} expects at most one choice per chunk (got {count}).");
            Err(ApiError::invalid_request(message))
        }
    }
}

/// The sampling mask of the tokens of a choice that came with one.
fn shown_mask(given: &ChoiceToDerender, tokens: &[SampledToken]) -> Option<SamplingMask> {
    given.sampling_mask.as_ref()?;
    tokens.iter().map(|token| token.sampling_mask.clone()).collect()
}
