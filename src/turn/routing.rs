//! The experts that the tokens of a turn go through: what a request wants to see of them, and which it gives.

use std::sync::Arc;

use super::TurnError;
use crate::{
    engine::{Engine, GivenRoutes, RouteArray, RouteShape, Routing},
    trajectory::GivenExperts,
};

/// What a request says about experts, before its prompt is known.
#[derive(Debug, Clone, Default)]
pub struct RouteWishes {
    /// The experts of so many tokens at the beginning of the prompt are not shown.
    pub start: i64,
    /// The experts that the first tokens of the prompt go through.
    pub given: Option<Arc<RouteArray>>,
}

impl RouteWishes {
    /// Checks the wishes against a prompt of so many tokens, and against the model; `may_show` is whether the server shows
    /// experts at all.
    pub(super) fn routing(&self, engine: &dyn Engine, may_show: bool, prompt: usize) -> Result<Routing, TurnError> {
        let start = usize::try_from(self.start).ok().filter(|start| *start <= prompt);
        let start = start.ok_or(TurnError::RoutesStart { start: self.start, prompt })?;
        let shape = engine.route_shape();
        let given = match (&self.given, shape) {
            (None, _) => None,
            (Some(_), None) => return Err(TurnError::NoExperts { engine: engine.info().engine }),
            (Some(array), Some(shape)) => Some(GivenRoutes::new(array, shape, prompt)?),
        };
        let shown = may_show && shape.is_some();
        Ok(Routing { shown_from: shown.then_some(start), given })
    }
}

/// Returns experts as captures keep them.
pub(super) fn experts_to_keep(given: &GivenRoutes) -> GivenExperts {
    let RouteArray { shape: [_, mixtures, per_token], numbers } = given.array();
    let size = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
    let kept = |number: i32| u16::try_from(number).unwrap_or(GivenExperts::CHOSEN_BY_THE_MODEL);
    GivenExperts {
        mixtures: size(mixtures),
        per_token: size(per_token),
        experts: numbers.into_iter().map(kept).collect(),
    }
}

/// Returns the experts that a captured request gave for its prompt, for a model with these mixtures.
///
/// # Errors
///
/// If the model has no such experts; the text says why.
pub(crate) fn kept_routes(
    kept: &GivenExperts,
    shape: Option<&RouteShape>,
    prompt: usize,
) -> Result<Arc<GivenRoutes>, String> {
    let shape = shape.ok_or("its request gave experts, and this model has none")?;
    if kept.mixtures as usize != shape.mixtures.len() {
        let (then, now) = (kept.mixtures, shape.mixtures.len());
        return Err(format!("its request gave experts of {then} layers, and this model has {now} with experts"));
    }
    let tokens = kept.tokens().ok_or("its experts are not as many as their sizes say")?;
    let number = |expert: &u16| match *expert {
        GivenExperts::CHOSEN_BY_THE_MODEL => -1,
        expert => i32::from(expert),
    };
    let array = RouteArray {
        shape: [tokens, kept.mixtures as usize, kept.per_token as usize],
        numbers: kept.experts.iter().map(number).collect(),
    };
    GivenRoutes::new(&array, shape, prompt).map_err(|error| format!("what its request gave as experts {error}"))
}
