//! The report on what became of the ids of earlier turns, as answers show it.

use serde::Serialize;
use utoipa::ToSchema;

use crate::continuity::{Outcome, Verdict};

/// What became of the ids of earlier turns, see docs/token-continuity.md.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TokenContinuity {
    /// Where the known ids came from: `none`, `message`, `required_prefix`, `cache` or `prompt_override`.
    source: &'static str,
    /// `fresh`, `exact`, `partial`, `unproven` or `retokenized`.
    outcome: &'static str,
    /// Why the latest assistant message was not continued from its ids.
    reason: Option<&'static str>,
    /// The index of the message that the known ids end with.
    anchor: Option<usize>,
    /// Known ids at the start of the prompt.
    reused_ids: usize,
    /// Ids behind them.
    new_ids: usize,
    /// `anchored_tail`, `open_message`, `eos_count` or `whole_prompt`.
    proof: Option<&'static str>,
    /// How the cache found the ids: by `session`, `tool_call` or `messages`.
    matched_by: Option<&'static str>,
    /// The name of the adapter that is asked; left out for the base. Only what this adapter answered is taken from the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter: Option<String>,
    /// What the weights are called that sampled the last of the known ids; left out where the server does not remember
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_version: Option<String>,
    /// What speaks against the known ids.
    warnings: Vec<&'static str>,
    /// Whether encoding the whole conversation would have given other ids; null unless asked for.
    drift: Option<Drift>,
}

/// What encoding the whole conversation would have given.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
struct Drift {
    /// Whether it would have been other ids.
    differs: bool,
    /// The first position that differs.
    position: Option<usize>,
}

impl From<&Verdict> for TokenContinuity {
    fn from(verdict: &Verdict) -> Self {
        Self {
            source: verdict.source.into(),
            outcome: verdict.outcome.into(),
            reason: verdict.reason,
            anchor: verdict.anchor,
            reused_ids: verdict.reused,
            new_ids: verdict.new,
            proof: verdict.proof.map(Into::into),
            matched_by: verdict.matched_by.map(Into::into),
            adapter: verdict.adapter.as_deref().map(str::to_owned),
            weight_version: verdict.weights.as_deref().map(str::to_owned),
            warnings: verdict.warnings.iter().map(Into::into).collect(),
            drift: verdict.drift.map(|drift| Drift { differs: drift.position.is_some(), position: drift.position }),
        }
    }
}

impl TokenContinuity {
    /// Returns a short form for a header: `cache; outcome=exact; reused=812; new=31; anchor=3`, and then the fields that
    /// apply.
    pub fn header(&self) -> String {
        let mut text =
            format!("{}; outcome={}; reused={}; new={}", self.source, self.outcome, self.reused_ids, self.new_ids);
        let anchor = self.anchor.map(|anchor| anchor.to_string());
        let warnings = (!self.warnings.is_empty()).then(|| self.warnings.join(","));
        let reason = self.reason.map(str::to_owned);
        for (name, value) in [("anchor", anchor), ("reason", reason), ("warnings", warnings)] {
            text.extend(value.map(|value| format!("; {name}={value}")));
        }
        text
    }

    /// Whether there was an earlier turn to continue.
    pub fn says_something(&self) -> bool {
        self.outcome != <&str>::from(Outcome::Fresh)
    }
}
