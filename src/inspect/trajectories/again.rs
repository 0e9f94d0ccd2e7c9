//! A captured turn, computed again with the present weights: sampled once more, or scored.

use std::{collections::HashMap, sync::Arc};

use axum::{Json, extract::State};

use super::{OwnTrajectories, not_found, tokens::made};
use crate::{
    engine::Adapter,
    http::{json_body::JsonBody, path::PathParameters},
    replay::{CapturedTurn, Compared, Outcome, Replayer, Verdict, computed_by},
    state::Api,
    trajectory::{CaptureError, Owner, Rescored, Sequence, SequenceKey, Trajectories, WeightSet},
    wire::{
        error::{ApiError, ErrorBody},
        trajectories::check::{CheckRequest, TurnCheck, VerdictSpan},
    },
};

const REPLAY: &str = "trajectory.turn.replay";
const RESCORE: &str = "trajectory.turn.rescore";

/// Samples a captured turn again, as `tito replay` does, and compares it position by position. Nothing of that is captured.
#[utoipa::path(
    post,
    path = "/v1/trajectories/{trajectory_id}/turns/{turn_id}/replay",
    tag = "trajectories",
    params(("trajectory_id" = String, Path), ("turn_id" = String, Path)),
    request_body = CheckRequest,
    responses(
        (status = 200, body = TurnCheck),
        (status = 404, description = "There is no such trajectory or turn", body = ErrorBody),
    )
)]
pub(super) async fn replay_turn(
    State(api): State<Arc<Api>>,
    own: OwnTrajectories,
    PathParameters((trajectory, turn)): PathParameters<(String, String)>,
    JsonBody(CheckRequest {}): JsonBody<CheckRequest>,
) -> Result<Json<TurnCheck>, ApiError> {
    let (owner, vocab_size) = (own.owner.clone(), own.vocab_size);
    let weights = api.turns.generator.engine().current_weights().number;
    let process = api.turns.capture.as_ref().map(|capture| Arc::clone(&capture.process)).unwrap_or_default();
    let wanted = (trajectory.clone(), turn.clone());
    let work = move |trajectories: &Trajectories, owner: &Owner| {
        let Some(key) = trajectories.sequence_of(owner, &wanted.0, &wanted.1) else { return Ok(None) };
        let set = trajectories.weights(&process, weights)?;
        match CapturedTurn::read(trajectories, &key, vocab_size) {
            Ok(captured) => Ok(Some((key, Ok(captured), set))),
            // What is not what was sampled cannot be sampled again, and that is the answer.
            Err(CaptureError::Corrupted(reason)) => Ok(Some((key, Err(reason), set))),
            Err(error) => Err(error),
        }
    };
    let found = own.with(work).await?.ok_or_else(|| no_turn(&trajectory, &turn))?;
    let (key, captured, set) = found;
    let captured = match captured {
        Ok(captured) => captured,
        Err(reason) => return Ok(Json(not_comparable(REPLAY, key, reason))),
    };
    let compared = replayer(&api, owner, weights, set).turn(&captured).await;
    Ok(Json(replayed(key, captured.start(), compared)))
}

/// Computes the log-probs again of what a captured turn sampled, as a prompt's, and compares them position by position.
#[utoipa::path(
    post,
    path = "/v1/trajectories/{trajectory_id}/turns/{turn_id}/rescore",
    tag = "trajectories",
    params(("trajectory_id" = String, Path), ("turn_id" = String, Path)),
    request_body = CheckRequest,
    responses(
        (status = 200, body = TurnCheck),
        (status = 404, description = "There is no such trajectory or turn", body = ErrorBody),
    )
)]
pub(super) async fn rescore_turn(
    State(api): State<Arc<Api>>,
    own: OwnTrajectories,
    PathParameters((trajectory, turn)): PathParameters<(String, String)>,
    JsonBody(CheckRequest {}): JsonBody<CheckRequest>,
) -> Result<Json<TurnCheck>, ApiError> {
    let vocab_size = own.vocab_size;
    let wanted = (trajectory.clone(), turn.clone());
    let work =
        move |trajectories: &Trajectories, owner: &Owner| made(trajectories, owner, (&wanted.0, &wanted.1), vocab_size);
    let (key, sequence) = own.with(work).await?.ok_or_else(|| no_turn(&trajectory, &turn))?;
    let again = match loaded_adapter(&api, &sequence).await {
        Ok(adapter) => api.turns.logprobs_again(&sequence, adapter).await,
        Err(reason) => Err(reason),
    };
    Ok(Json(match again {
        Ok((logprobs, version)) => scored(key, &sequence, &logprobs, version),
        Err(reason) => not_comparable(RESCORE, key, reason),
    }))
}

/// Returns the loaded adapter of the name that sampled the end of a sequence; `None` where none did.
pub(super) async fn loaded_adapter(api: &Api, sequence: &Sequence) -> Result<Option<Arc<Adapter>>, String> {
    let Some(used) = sequence.turns.last().and_then(|turn| turn.generation.adapter.as_ref()) else { return Ok(None) };
    let loaded = api.models.fitting(&used.name).await.map_err(|error| error.body().error.message)?;
    loaded.map(Some).ok_or_else(|| format!("the adapter {} is not loaded", used.name))
}

fn no_turn(trajectory: &str, turn: &str) -> ApiError {
    not_found("turn_id", &format!("turn of '{trajectory}'"), turn)
}

/// What samples again with the weights of this number, of which `set` is known.
fn replayer(api: &Api, owner: Owner, weights: u64, set: Option<WeightSet>) -> Replayer {
    let turns = &api.turns;
    let adapters = api.models.adapters.as_ref().map(|adapters| adapters.all()).unwrap_or_default();
    Replayer {
        generator: turns.generator.clone(),
        tokenizer: Arc::clone(turns.tokenizer()),
        compiler: Arc::clone(&turns.structured),
        media: turns.media.clone(),
        adapters: adapters.into_iter().map(|(name, named)| (name, named.adapter)).collect::<HashMap<_, _>>(),
        weights,
        checksum: set.map(|set| set.checksum),
        computed_by: computed_by(turns.generator.engine().info()),
        owner,
        // All of it is computed anew, and nobody learns from it what the cache has.
        cache_salt: Some(uuid::Uuid::new_v4().simple().to_string().into()),
    }
}

fn replayed(key: SequenceKey, start: usize, compared: Compared) -> TurnCheck {
    let Compared { outcome, verdicts, again, version } = compared;
    TurnCheck {
        verdict: match outcome {
            Outcome::Equal { .. } => "equal",
            Outcome::Partial { .. } => "in_part",
            Outcome::Ends { .. } | Outcome::Differs { .. } | Outcome::MaskDiffers { .. } => "differs",
            Outcome::Unrepeatable(_) => "not_comparable",
        },
        message: outcome.told(),
        reasons: outcome.reasons().to_vec(),
        weight_version: version,
        start,
        spans: VerdictSpan::joined(start, verdicts.into_iter().map(name)),
        token_ids: Some(again.iter().map(|(id, _)| *id).collect()),
        logprobs: again.iter().map(|(_, logprob)| Some(*logprob)).collect(),
        ..not_comparable(REPLAY, key, String::new())
    }
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Equal => "equal",
        Verdict::LogProb => "log_prob",
        Verdict::Mask => "sampling_mask",
        Verdict::Id => "token_id",
        Verdict::Ended => "ended",
        Verdict::NotCompared => "not_compared",
    }
}

fn scored(key: SequenceKey, sequence: &Sequence, logprobs: &[Option<f32>], version: Arc<str>) -> TurnCheck {
    let start = sequence.prompt_tokens;
    let pairs = sequence.logprobs[start..].iter().zip(&logprobs[start..]);
    let verdict = |(then, now): (&Option<f32>, &Option<f32>)| match (then, now) {
        (Some(then), Some(now)) if then.to_bits() == now.to_bits() => "equal",
        (Some(_), Some(_)) => "log_prob",
        _ => "not_compared",
    };
    let spans = VerdictSpan::joined(start, pairs.clone().map(verdict));
    let known: Vec<(f32, f32)> = pairs.filter_map(|(then, now)| Some(((*then)?, (*now)?))).collect();
    let Some(rescored) = Rescored::of(Arc::clone(&version), &known) else {
        return not_comparable(RESCORE, key, "nothing of it was sampled here".to_owned());
    };
    let (equal, tokens, greatest) = (rescored.equal, rescored.tokens, rescored.quantiles[3]);
    TurnCheck {
        verdict: if equal == tokens { "equal" } else { "differs" },
        message: if equal == tokens {
            format!("all {tokens} log-probs are equal to the bit")
        } else {
            format!(
                "{equal} of {tokens} log-probs are equal to the bit, and the greatest difference is {greatest} nats"
            )
        },
        weight_version: Some(version),
        start,
        spans,
        logprobs: logprobs[start..].to_vec(),
        rescored: Some(rescored.into()),
        ..not_comparable(RESCORE, key, String::new())
    }
}

/// The answer on a turn of which nothing can be compared.
fn not_comparable(object: &'static str, key: SequenceKey, message: String) -> TurnCheck {
    TurnCheck {
        object,
        trajectory_id: key.trajectory,
        turn_id: key.turn,
        verdict: "not_comparable",
        message,
        reasons: Vec::new(),
        weight_version: None,
        start: 0,
        spans: Vec::new(),
        token_ids: None,
        logprobs: Vec::new(),
        rescored: None,
    }
}
