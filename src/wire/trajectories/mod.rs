//! `/v1/trajectories`: what is shown of captured turns, and the lines and tables of an export.

pub(crate) mod check;
pub(crate) mod export;
pub(crate) mod pictures;
pub(crate) mod table;
pub(crate) mod tokens;
mod trainers;
pub(crate) mod types;
