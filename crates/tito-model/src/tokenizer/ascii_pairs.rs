//! Pairs of ASCII characters, as a table.

/// Some of the pairs of ASCII characters.
#[derive(Debug)]
pub(super) struct AsciiPairs {
    /// By the first character: a bit for each second one.
    seconds: [u128; 128],
}

impl AsciiPairs {
    /// Those that a condition holds for.
    pub(super) fn of(holds: impl Fn(char, char) -> bool) -> Self {
        let mut seconds = [0_u128; 128];
        for (left, seconds) in ('\0'..).zip(&mut seconds) {
            for right in ('\0'..='\x7f').filter(|&right| holds(left, right)) {
                *seconds |= 1 << u32::from(right);
            }
        }
        Self { seconds }
    }

    /// Whether these two bytes of a text are one of them.
    pub(super) fn has(&self, left: u8, right: u8) -> bool {
        right.is_ascii() && self.seconds.get(usize::from(left)).is_some_and(|seconds| seconds >> right & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::AsciiPairs;

    #[test]
    fn a_table_has_the_pairs_that_its_condition_holds_for_and_no_byte_beyond_ascii() {
        let pairs = AsciiPairs::of(|left, right| u32::from(left) % 3 == 0 && u32::from(right) % 7 < 2);
        for (left, right) in (0..=u8::MAX).flat_map(|left| (0..=u8::MAX).map(move |right| (left, right))) {
            let expected = left < 128 && right < 128 && left % 3 == 0 && right % 7 < 2;
            assert_eq!(pairs.has(left, right), expected, "{left} {right}");
        }
    }
}
