//! What answers of several endpoints carry.

pub(crate) mod output;
pub(crate) mod token_continuity;
