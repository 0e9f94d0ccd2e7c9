//! What came of a captured turn that was computed again: sampled once more, or scored.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    TokenId,
    trajectory::Rescored,
    wire::body::{self, Body, Rules},
};

/// Asks for a turn to be computed again. It has no fields so far.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckRequest {}

impl Body for CheckRequest {
    const RULES: &'static Rules = &body::ANY;
}

/// A captured turn beside what was computed again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnCheck {
    /// `trajectory.turn.replay` or `trajectory.turn.rescore`.
    pub object: &'static str,
    /// The trajectory.
    #[schema(value_type = String)]
    pub trajectory_id: Arc<str>,
    /// The turn.
    #[schema(value_type = String)]
    pub turn_id: Arc<str>,
    /// `equal`, `in_part` (what was compared is equal, and that is not all), `differs`, or `not_comparable`.
    pub verdict: &'static str,
    /// The verdict in a sentence.
    pub message: String,
    /// What is known to be different from when the turn was sampled, and may be why it differs.
    pub reasons: Vec<String>,
    /// What the weights are called that computed now; null where nothing was computed.
    #[schema(value_type = Option<String>)]
    pub weight_version: Option<Arc<str>>,
    /// The position of the first sampled id in the sequence of the turn.
    pub start: usize,
    /// What came of each position, from `start` to the end of the sequence without a gap.
    pub spans: Vec<VerdictSpan>,
    /// The ids that were sampled now, from `start` on; null for scores.
    pub token_ids: Option<Vec<TokenId>>,
    /// The log-probs that were computed now, from `start` on.
    pub logprobs: Vec<Option<f32>>,
    /// How far the log-probs are from the captured ones; null for replays, and where nothing was compared.
    pub rescored: Option<RescoredDone>,
}

/// Positions of which the same came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct VerdictSpan {
    /// The first position.
    pub start: usize,
    /// The one after the last.
    pub end: usize,
    /// `equal` (all bits), `log_prob` (the same id, other bits of its log-prob), `sampling_mask` (drawn from other ids),
    /// `token_id` (another id), `ended` (the turn has ended before), or `not_compared`.
    pub verdict: &'static str,
}

impl VerdictSpan {
    /// Joins the verdicts of positions, of which the first is `start`.
    pub(crate) fn joined(start: usize, verdicts: impl IntoIterator<Item = &'static str>) -> Vec<Self> {
        let mut spans: Vec<Self> = Vec::new();
        for (index, verdict) in verdicts.into_iter().enumerate() {
            let at = start + index;
            match spans.last_mut() {
                Some(span) if span.verdict == verdict => span.end = at + 1,
                _ => spans.push(Self { start: at, end: at + 1, verdict }),
            }
        }
        spans
    }
}

/// How far log-probs that were computed again are from the captured ones.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RescoredDone {
    /// What the weights are called that computed now.
    #[schema(value_type = String)]
    weight_version: Arc<str>,
    /// How many tokens were compared.
    tokens: usize,
    /// How many of them have the same bits.
    equal_tokens: usize,
    /// The mean of `exp(|difference|)`, as in NeMo-RL.
    token_mult_prob_error: f64,
    /// The mean of current minus captured log-prob, in nats.
    mean_difference: f64,
    /// The median of absolute differences, in nats.
    median: f64,
    /// What 90 of 100 absolute differences do not exceed.
    p90: f64,
    /// What 99 of 100 absolute differences do not exceed.
    p99: f64,
    /// The greatest absolute difference.
    greatest: f64,
}

impl From<Rescored> for RescoredDone {
    fn from(rescored: Rescored) -> Self {
        let Rescored { version, tokens, equal, mult_prob_error, mean_difference, quantiles } = rescored;
        let [median, p90, p99, greatest] = quantiles;
        Self {
            weight_version: version,
            tokens,
            equal_tokens: equal,
            token_mult_prob_error: mult_prob_error,
            mean_difference,
            median,
            p90,
            p99,
            greatest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cover_all_positions() {
        assert_eq!(VerdictSpan::joined(3, []), []);
        let span = |start, end, verdict| VerdictSpan { start, end, verdict };
        assert_eq!(
            VerdictSpan::joined(3, ["equal", "equal", "token_id", "equal"]),
            [span(3, 5, "equal"), span(5, 6, "token_id"), span(6, 7, "equal")]
        );
    }
}
