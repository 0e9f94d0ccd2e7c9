//! Loops at the end of what was sampled, by vLLM's rule (`v1/core/sched/utils.py`).
//!
//! Owns the rule and its limits. Refuses to know what happens to a sequence that loops.

use super::SamplingError;
use crate::TokenId;

/// A sequence loops once its last tokens are one pattern, several times over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepetitionDetection {
    shortest: usize,
    longest: usize,
    count: usize,
}

impl RepetitionDetection {
    /// Looks for patterns of `min_pattern_size` to `max_pattern_size` tokens that come `min_count` times; `None` where
    /// that is off.
    pub fn new(max_pattern_size: i64, min_pattern_size: i64, min_count: i64) -> Result<Option<Self>, SamplingError> {
        if max_pattern_size < 0 || min_pattern_size < 0 || min_pattern_size > max_pattern_size {
            let message = "max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= max_pattern_size. \
                           Set both to 0 to disable repetitive pattern detection.";
            return Err(SamplingError::unnamed(message.to_owned()));
        }
        if max_pattern_size > 0 && min_count < 2 {
            let message = "min_count must be >= 2 to detect repetitive patterns in engine output. If you do not wish \
                           to detect repetitive patterns, set max_pattern_size to 0.";
            return Err(SamplingError::unnamed(message.to_owned()));
        }
        let size = |tokens: i64| usize::try_from(tokens).unwrap_or(usize::MAX);
        let on =
            Self { shortest: size(min_pattern_size).max(1), longest: size(max_pattern_size), count: size(min_count) };
        Ok((max_pattern_size > 0).then_some(on))
    }

    /// Whether `token_ids` ends in a loop.
    pub fn found_in(&self, token_ids: &[TokenId]) -> bool {
        // More tokens than there are hold no pattern, nor does any longer one.
        let most = (token_ids.len() / self.count).min(self.longest);
        (self.shortest..=most).any(|size| {
            let tail = &token_ids[token_ids.len() - size * self.count..];
            // Equal to itself one pattern later: all patterns in it are the same.
            tail[size..]
                .iter()
                .rev()
                .zip(tail[..tail.len() - size].iter().rev())
                .all(|(later, earlier)| later == earlier)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn detection(longest: i64, shortest: i64, count: i64) -> RepetitionDetection {
        RepetitionDetection::new(longest, shortest, count).unwrap().unwrap()
    }

    #[test]
    fn a_loop_is_found_when_its_last_repetition_is_complete() {
        let detection = detection(3, 0, 3);
        assert!(detection.found_in(&[9, 1, 2, 3, 1, 2, 3, 1, 2, 3]));
        assert!(!detection.found_in(&[9, 1, 2, 3, 1, 2, 3, 1, 2]));
        assert!(detection.found_in(&[5, 5, 5]));
        assert!(!detection.found_in(&[5, 5]));
        assert!(!detection.found_in(&[]));
    }

    #[test]
    fn only_patterns_of_the_given_sizes_count() {
        assert!(!detection(3, 2, 2).found_in(&[1, 5, 5]));
        assert!(detection(3, 2, 2).found_in(&[5, 5, 5, 5]));
        assert!(!detection(2, 1, 2).found_in(&[1, 2, 3, 1, 2, 3]));
    }

    #[test]
    fn a_size_of_zero_is_off_and_what_makes_no_sense_is_refused() {
        assert_eq!(RepetitionDetection::new(0, 0, 0), Ok(None));
        for (longest, shortest, count, word) in
            [(-1, 0, 2, "max_pattern_size"), (1, 2, 2, "<="), (1, 0, 1, "min_count")]
        {
            let error = RepetitionDetection::new(longest, shortest, count).unwrap_err();
            let unnamed = matches!(error, SamplingError::Refused { param: None, .. });
            assert!(error.to_string().contains(word) && unnamed, "{error:?}");
        }
    }

    proptest! {
        #[test]
        fn the_rule_is_that_of_vllm(ids in prop::collection::vec(0..3_u32, 0..24), longest in 1..6_usize, count in 2..5_usize) {
            // As vLLM writes it: each of the last tokens equals the one a pattern before it, count - 1 times.
            let repeats = |size: usize| {
                (1..=size).all(|n| (1..count).all(|m| ids[ids.len() - (size * m + n)] == ids[ids.len() - n]))
            };
            let expected = (1..=longest).take_while(|size| size * count <= ids.len()).any(repeats);
            let found = RepetitionDetection { shortest: 1, longest, count }.found_in(&ids);
            prop_assert_eq!(found, expected);
        }
    }
}
