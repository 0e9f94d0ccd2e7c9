//! Captured trajectories, as people and trainers see them: `/v1/trajectories` with its exports, and the page `/inspect`.
//!
//! Owns what `tito inspect` serves without a model, and the same paths of a server that generates. Has
//! `replay` and `turn` compute a turn again. Refuses to decide what is captured: that is `turn`'s, and `trajectory` keeps it.

mod page;
mod trajectories;

use axum::Router;

pub(crate) use self::{
    page::{PATH, router as page},
    trajectories::{Captured, router},
};
use crate::http::error;

/// Returns the routes that show captured trajectories and change nothing, without a model.
pub(crate) fn read_only(captured: Captured) -> Router {
    let (routes, _) = trajectories::read_only().split_for_parts();
    routes.merge(page()).fallback(|| async { error::not_found() }).with_state(captured)
}
