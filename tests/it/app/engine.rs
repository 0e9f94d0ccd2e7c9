//! What the scripted engine reports, and what it cannot do.

use std::sync::Arc;

use tito::{
    engine::{RouteShape, WeightVersion, WeightsInUse},
    state::Readiness,
};

use super::TestApp;

impl TestApp {
    /// Tokens that the engine says were cached of every prompt.
    pub(crate) fn cached_tokens(self, tokens: usize) -> Self {
        self.with(|recipe| recipe.cached_tokens = Some(tokens))
    }

    /// Weights of which the engine says that they compute every sequence, from which token on, by what they are called
    /// (an adapter's: `ADAPTER on BASE`) and whether they read keys of older ones.
    pub(crate) fn weights(self, changes: &[(usize, &str, bool)]) -> Self {
        self.with(|recipe| recipe.weights = in_use(changes))
    }

    /// The same of all sequences but the very first one.
    pub(crate) fn later_weights(self, changes: &[(usize, &str, bool)]) -> Self {
        self.with(|recipe| recipe.later_weights = Some(in_use(changes)))
    }

    /// A model with mixtures of experts, and `--enable-return-routed-experts` if `returns`.
    pub(crate) fn mixtures(self, shape: RouteShape, returns: bool) -> Self {
        self.with(|recipe| {
            recipe.mixtures = Some(shape);
            recipe.requests.return_routed_experts = returns;
        })
    }

    /// What the server says to those who ask whether they may send more.
    pub(crate) fn readiness(&self) -> Readiness {
        self.served().api.readiness.clone()
    }

    /// An engine that scores no tokens that a request names at positions of its prompt, as mistral.rs.
    pub(crate) fn without_candidates(self) -> Self {
        self.with(|recipe| recipe.scores_candidates = false)
    }
}

fn in_use(changes: &[(usize, &str, bool)]) -> Vec<(usize, WeightsInUse)> {
    let in_use = |(number, &(from, label, reuse_older_keys)): (u64, &(usize, &str, bool))| {
        let (label, base) = label.split_once(" on ").map_or((label, None), |(label, base)| (label, Some(base.into())));
        let version = Arc::new(WeightVersion { number, label: label.into() });
        (from, WeightsInUse { version, base, reuse_older_keys })
    };
    (0..).zip(changes).map(in_use).collect()
}
