//! The ids of a turn's sequence, for looking at.

use axum::{
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};

use super::{OwnTrajectories, not_found};
use crate::{
    http::path::PathParameters,
    trajectory::{CaptureError, ImageUsed, Owner, Sequence, SequenceKey, Trajectories},
    turn::{Drift, Inspection, Origin, OriginSpan},
    wire::{
        error::{ApiError, ErrorBody},
        trajectories::tokens::{DriftShown, OriginShown, TurnTokens},
    },
};

/// All ids of the sequence that ends with a turn: texts, log-probs, where they came from, and where encoding again differs.
#[utoipa::path(
    get,
    path = "/v1/trajectories/{trajectory_id}/turns/{turn_id}/tokens",
    tag = "trajectories",
    params(("trajectory_id" = String, Path), ("turn_id" = String, Path)),
    responses(
        (status = 200, body = TurnTokens),
        (status = 404, description = "There is no such trajectory or turn", body = ErrorBody),
    )
)]
pub(super) async fn get_tokens(
    own: OwnTrajectories,
    PathParameters((trajectory, turn)): PathParameters<(String, String)>,
) -> Result<Response, ApiError> {
    let (tokenizer, vocab_size) = (own.tokenizer.clone(), own.vocab_size);
    let wanted = (trajectory.clone(), turn.clone());
    let work = move |trajectories: &Trajectories, owner: &Owner| {
        let (trajectory, turn) = wanted;
        let found = made(trajectories, owner, (&trajectory, &turn), vocab_size)?;
        Ok(found.map(|(key, sequence)| {
            let inspection = Inspection::of(&sequence, tokenizer.as_deref());
            serde_json::to_vec(&turn_tokens(key, inspection, sequence.images))
        }))
    };
    let written = own.with(work).await?;
    let written = written.ok_or_else(|| not_found("turn_id", &format!("turn of '{trajectory}'"), &turn))?;
    Ok(([(CONTENT_TYPE, "application/json")], written.map_err(ApiError::internal)?).into_response())
}

/// The sequence that ends with a turn; `None` if there is no such turn.
pub(super) fn made(
    trajectories: &Trajectories,
    owner: &Owner,
    (trajectory, turn): (&str, &str),
    vocab_size: usize,
) -> Result<Option<(SequenceKey, Sequence)>, CaptureError> {
    let Some(key) = trajectories.sequence_of(owner, trajectory, turn) else { return Ok(None) };
    let sequence = trajectories.sequence(&key, vocab_size)?;
    Ok(Some((key, sequence)))
}

fn turn_tokens(key: SequenceKey, inspection: Inspection, images: Vec<ImageUsed>) -> TurnTokens {
    let Inspection { token_ids, texts, fragments, logprobs, ranks, entropies, spans, drift } = inspection;
    let span = |span: OriginSpan| OriginShown {
        start: span.range.start,
        end: span.range.end,
        origin: match span.origin {
            Origin::Template => "template",
            Origin::Message => "message",
            Origin::Prompt => "prompt",
            Origin::Reused => "reused",
            Origin::Sampled => "sampled",
        },
        role: span.role,
        turn_id: span.turn,
        source: span.source,
        weight_version: span.weights,
        base_version: span.base,
        adapter: span.adapter,
    };
    let drifted =
        |drift: Drift| DriftShown { start: drift.range.start, end: drift.range.end, token_ids: drift.token_ids };
    TurnTokens {
        object: "trajectory.turn.tokens",
        trajectory_id: key.trajectory,
        turn_id: key.turn,
        token_ids,
        texts,
        fragments,
        logprobs,
        ranks,
        entropies,
        images: images.into_iter().map(Into::into).collect(),
        spans: spans.into_iter().map(span).collect(),
        drift: drift.map(|drift| drift.into_iter().map(drifted).collect()),
    }
}
