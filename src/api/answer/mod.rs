//! What answers of several endpoints carry.

pub(super) mod output;
pub(super) mod token_continuity;
