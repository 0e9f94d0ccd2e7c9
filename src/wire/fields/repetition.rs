//! `repetition_detection` on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sampling::{RepetitionDetection, SamplingError};

/// The last `min_count` patterns of at most `max_pattern_size` tokens are the same: the generation loops.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RepetitionFields {
    /// 0 is off.
    max_pattern_size: Option<i64>,
    /// 0 is the same as 1.
    min_pattern_size: Option<i64>,
    /// At least 2.
    min_count: Option<i64>,
}

impl RepetitionFields {
    /// Checks the fields; `None` if repetition is not looked for.
    pub fn resolve(self) -> Result<Option<RepetitionDetection>, SamplingError> {
        let [longest, shortest, count] =
            [self.max_pattern_size, self.min_pattern_size, self.min_count].map(Option::unwrap_or_default);
        RepetitionDetection::new(longest, shortest, count)
    }
}
