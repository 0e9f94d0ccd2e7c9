//! Endpoints of ids: their shapes.

pub(crate) mod abort;
pub(crate) mod candidates;
pub(crate) mod derender;
pub(crate) mod derender_input;
pub(crate) mod features;
pub(crate) mod generate;
pub(crate) mod render;
mod rules;
