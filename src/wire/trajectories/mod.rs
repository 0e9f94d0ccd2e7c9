//! `/v1/trajectories`: what is shown of captured turns, and the lines of an export.

pub(crate) mod export;
pub(crate) mod tokens;
pub(crate) mod types;
