//! The experts that the tokens of a turn go through: what a request wants to see of them, and which it gives.

use std::sync::Arc;

use super::{TurnError, Turns};
use crate::engine::{GivenRoutes, RouteArray, Routing};

/// What a request says about experts, before its prompt is known.
#[derive(Debug, Clone, Default)]
pub struct RouteWishes {
    /// The experts of so many tokens at the beginning of the prompt are not shown.
    pub start: i64,
    /// The experts that the first tokens of the prompt go through.
    pub given: Option<Arc<RouteArray>>,
}

impl Turns {
    /// Checks the wishes against a prompt of so many tokens, and against the model.
    pub(super) fn routing(&self, wishes: &RouteWishes, prompt: usize) -> Result<Routing, TurnError> {
        let start = usize::try_from(wishes.start).ok().filter(|start| *start <= prompt);
        let start = start.ok_or(TurnError::RoutesStart { start: wishes.start, prompt })?;
        let shape = self.generator.engine().route_shape();
        let given = match (&wishes.given, shape) {
            (None, _) => None,
            (Some(_), None) => return Err(TurnError::NoExperts { engine: self.generator.engine().info().engine }),
            (Some(array), Some(shape)) => Some(GivenRoutes::new(array, shape, prompt)?),
        };
        let shown = self.policies.requests.return_routed_experts && shape.is_some();
        Ok(Routing { shown_from: shown.then_some(start), given })
    }
}
