//! From finished sequences to the result that a client retrieves.

use bytes::Bytes;
use prost::Message;

use super::request::Shown;
use crate::{
    engine::{PromptOutput, SampledToken},
    generation::{Completion, Finish, scored_prompt},
    tinker_sessions::awaited::Outcome,
    wire::{
        error::{ApiError, ErrorKind},
        tinker::protobuf::{ABSENT_LOGPROB, SampleResponse, SampledSequence, StopReason, TopkLogprobs},
    },
};

/// What came of a request.
pub(super) fn outcome(sampled: Result<Vec<Completion>, ApiError>, shown: &Shown, prompt: usize) -> Outcome {
    match sampled.and_then(|completions| result(&completions, shown, prompt)) {
        Ok(Some(result)) => Outcome::Done(Bytes::from(result.encode_to_vec())),
        // Only a part was sampled, or by other weights than those that scored the prompt, and there are no words for that.
        Ok(None) => Outcome::Gone,
        Err(error) => match error.kind() {
            // The client asks anew by itself, and later.
            ErrorKind::Overloaded | ErrorKind::Paused => Outcome::Gone,
            ErrorKind::Internal => Outcome::Failed { error: error.message(), is_users: false },
            _ => Outcome::Failed { error: error.message(), is_users: true },
        },
    }
}

/// The outcome for a client whose server stops: nobody would sample anew.
pub(super) fn stopped() -> Outcome {
    let error = "the server is stopping, and ended this before it was sampled to its end; sample again where one runs";
    Outcome::Failed { error: error.to_owned(), is_users: false }
}

/// The result; `None` if a sequence was ended before its time, or began with other weights than the prompt was scored with.
fn result(completions: &[Completion], shown: &Shown, prompt: usize) -> Result<Option<SampleResponse>, ApiError> {
    let mut sequences = Vec::with_capacity(completions.len());
    for completion in completions {
        let Some(sequence) = sequence(completion, shown)? else { return Ok(None) };
        sequences.push(sequence);
    }
    let needs_prompt = shown.prompt_logprobs.is_some() || shown.topk_prompt > 0;
    let shows_scores = needs_prompt || shown.targets.is_some();
    if shows_scores && scored_prompt(completions).is_some_and(|(_, of_others)| of_others.is_some()) {
        return Ok(None);
    }
    let scored = completions.first().and_then(|completion| completion.prompt.as_ref());
    let cached = scored.map_or(0, |prompt| prompt.cached_tokens);
    let of_prompt = |prompt_output: Option<&PromptOutput>| match prompt_output {
        Some(scored) if scored.logprobs.len() + 1 == prompt => Ok(scored.logprobs.clone()),
        _ => Err(ApiError::internal("the engine left out log-probs of the prompt")),
    };
    let tokens = if needs_prompt { of_prompt(scored)? } else { Vec::new() };
    // Log-probs are those of the last tokens, where so many were asked for.
    let first = prompt - shown.prompt_logprobs.unwrap_or(prompt).min(prompt);
    let given = |index: usize| index.checked_sub(1).filter(|_| index >= first).and_then(|before| tokens.get(before));
    let logprobs = || floats((0..prompt).map(|index| given(index).map_or(f32::NAN, |token| token.logprob)));
    let candidates = scored.map(|prompt| &prompt.candidates[..]).unwrap_or_default();
    let targets = shown.targets.as_ref().map(|targets| targets.scored(candidates)).transpose()?;
    Ok(Some(SampleResponse {
        sequences,
        prompt_logprobs: shown.prompt_logprobs.map(|_| logprobs()),
        topk_prompt_logprobs: top(shown.topk_prompt, (0..prompt).map(given)),
        prompt_cache_hit_tokens: i32::try_from(cached).unwrap_or(i32::MAX),
        target_prompt_logprobs: targets,
    }))
}

fn sequence(completion: &Completion, shown: &Shown) -> Result<Option<SampledSequence>, ApiError> {
    let finish = completion.finish.as_ref().ok_or_else(|| ApiError::internal("a sequence did not end"))?;
    let reason = match finish {
        Finish::Eos | Finish::StopToken(_) | Finish::StopString(_) => StopReason::Stop,
        Finish::Length => StopReason::Length,
        Finish::Repetition | Finish::Abort => return Ok(None),
    };
    let tokens = &completion.tokens;
    Ok(Some(SampledSequence {
        stop_reason: reason.into(),
        tokens: tokens.iter().flat_map(|token| token.id.to_le_bytes()).collect(),
        logprobs: Some(floats(tokens.iter().map(|token| token.logprob))),
        topk_sampled_logprobs: top(shown.topk_sample, tokens.iter().map(Some)),
    }))
}

fn floats(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

/// The `k` most probable tokens at each position, if there are to be any.
fn top<'a>(k: usize, positions: impl Iterator<Item = Option<&'a SampledToken>>) -> Option<TopkLogprobs> {
    let columns = u32::try_from(k).ok().filter(|k| *k > 0)?;
    let (mut token_ids, mut logprobs, mut length) = (Vec::new(), Vec::new(), 0);
    for position in positions {
        let known = position.map(|token| token.top_logprobs.as_slice()).unwrap_or_default();
        for column in 0..k {
            let (id, logprob) = known.get(column).map_or((0, ABSENT_LOGPROB), |top| (top.id, top.logprob));
            token_ids.extend(id.to_le_bytes());
            logprobs.extend(logprob.to_le_bytes());
        }
        length += 1;
    }
    Some(TopkLogprobs { token_ids, logprobs, k: columns, length })
}
