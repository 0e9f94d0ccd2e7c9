//! What is noted of a verdict among what happens to a request.

use crate::{continuity::Verdict, request_trace::PromptVerdict};

/// What is noted of a verdict.
pub(super) fn noted(verdict: &Verdict) -> PromptVerdict {
    PromptVerdict {
        outcome: verdict.outcome.into(),
        source: verdict.source.into(),
        reason: verdict.reason,
        reused: verdict.reused,
        new: verdict.new,
    }
}
