//! What answers of several endpoints carry.

pub(crate) mod metrics;
pub(crate) mod mm_placeholders;
pub(crate) mod output;
pub(crate) mod sampling_mask;
pub(crate) mod token_continuity;
pub(crate) mod tool_notices;
pub(crate) mod weight_versions;
