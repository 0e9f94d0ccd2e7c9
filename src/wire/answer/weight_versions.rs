//! Which weights sampled which tokens of an answer, as answers show it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::generation::{WeightSpan, WeightSpans};

/// Tokens that the same weights sampled.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub struct WeightVersionSpan {
    /// What the weights are called: `default` for those that were loaded, and for others what the update that brought
    /// them called them, or how often weights were replaced.
    version: String,
    /// Where an adapter sampled, whose name and version `version` is then, what the weights of the base are called; left out
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    base_version: Option<String>,
    /// The first token.
    start: usize,
    /// The token after the last one.
    end: usize,
    /// True where the weights read keys and values that older ones wrote, with `--on-weights-change reuse`; left out
    /// otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    reuse_older_keys: bool,
}

/// The weights that scored the prompt of several choices, one of which began with others: they were replaced meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub(crate) struct PromptWeightVersion {
    /// What the weights are called, as in `weight_versions`.
    version: String,
    /// Where an adapter scored, what the weights of the base are called; left out otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    base_version: Option<String>,
}

impl From<WeightSpan> for PromptWeightVersion {
    fn from(span: WeightSpan) -> Self {
        Self { version: span.label.to_string(), base_version: span.base.map(|base| base.to_string()) }
    }
}

/// Names the weights that sampled the tokens of a choice.
pub(crate) fn weight_versions(weights: &WeightSpans) -> Vec<WeightVersionSpan> {
    let spans = weights.spans().into_iter();
    let shown = spans.map(|span| WeightVersionSpan {
        version: span.label.to_string(),
        base_version: span.base.map(|base| base.to_string()),
        start: span.start,
        end: span.end,
        reuse_older_keys: span.reuse_older_keys,
    });
    shown.collect()
}
