//! From the coefficients of a block to its samples, to the bit as libjpeg-turbo's slow integer transform in its form for x86
//! processors: columns, then rows; factors of 13 binary digits, after Loeffler, Ligtenberg and Moschytz (1989).

#![expect(clippy::inline_always, reason = "only what is inlined uses the wider instructions")]

mod factors;
#[cfg(any(test, not(target_arch = "x86_64")))]
mod plain;
#[cfg(target_arch = "x86_64")]
mod sse2;

#[cfg(not(target_arch = "x86_64"))]
use self::plain::transformed;
#[cfg(target_arch = "x86_64")]
use self::sse2::transformed;
use super::KIND;
use crate::error::ImageError;

/// Builds of libjpeg-turbo for different processors agree on coefficients up to here. Encoders write at most a fifth of it.
const LARGEST: u16 = 8191;

/// What makes samples of the coefficients of a component.
pub(super) struct Transform {
    /// What each coefficient is multiplied with, modulo 2^16.
    factors: [i16; 64],
    /// The largest that each may be before that.
    largest: [i16; 64],
}

impl Transform {
    pub(super) fn new(quantisation: &[u16; 64]) -> Self {
        let largest = quantisation.map(|factor| LARGEST.checked_div(factor).map_or(i16::MAX, u16::cast_signed));
        Self { factors: quantisation.map(u16::cast_signed), largest }
    }

    /// The samples of a block, row by row.
    #[inline(always)]
    pub(super) fn samples(&self, block: &[i16; 64]) -> Result<[u8; 64], ImageError> {
        let (mut numbers, mut too_large) = ([0; 64], 0);
        for (place, number) in numbers.iter_mut().enumerate() {
            *number = block[place].wrapping_mul(self.factors[place]);
            too_large |= i16::from(block[place].saturating_abs() > self.largest[place]);
        }
        if too_large != 0 {
            return Err(error());
        }
        Ok(transformed(&numbers))
    }

    /// The samples of a block that has no coefficient but the first.
    #[inline(always)]
    pub(super) fn samples_of_one(&self, number: i16) -> Result<[u8; 64], ImageError> {
        if number.saturating_abs() > self.largest[0] {
            return Err(error());
        }
        let sample = (number.wrapping_mul(self.factors[0]) + 4) >> 3;
        Ok([(sample.clamp(-128, 127) + 128).to_le_bytes()[0]; 64])
    }
}

#[cold]
fn error() -> ImageError {
    ImageError::unsupported(KIND, "a coefficient is larger than those of any image")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Transform, plain, transformed};

    #[test]
    fn a_block_of_one_colour_is_that_colour() {
        let transform = Transform::new(&[1; 64]);
        let mut block = [0; 64];
        for (number, sample) in [(0, 128), (8, 129), (-1024, 0), (1016, 255), (2000, 255), (3, 128), (4, 129)] {
            block[0] = number;
            assert_eq!(transform.samples(&block).unwrap(), [sample; 64], "{number}");
        }
    }

    #[test]
    fn a_block_of_one_coefficient_is_transformed_like_any_other() {
        for factor in [0, 1, 2, 3, 16, 255, u16::MAX] {
            let transform = Transform::new(&[factor; 64]);
            let mut block = [0; 64];
            for number in i16::MIN..=i16::MAX {
                block[0] = number;
                assert_eq!(transform.samples_of_one(number), transform.samples(&block), "{number} times {factor}");
            }
        }
    }

    #[test]
    fn coefficients_that_processors_differ_on_are_refused() {
        let transformed = |number, factor| Transform::new(&[factor; 64]).samples(&[number; 64]);
        assert!(transformed(8191, 1).is_ok());
        assert!(transformed(-8191, 1).is_ok());
        assert!(transformed(8192, 1).is_err());
        assert!(transformed(2730, 3).is_ok());
        assert!(transformed(2731, 3).is_err());
        assert!(transformed(-2731, 3).is_err());
        assert!(transformed(i16::MIN, u16::MAX).is_err());
        assert!(transformed(i16::MIN, 0).is_ok());
    }

    proptest! {
        #[test]
        fn instructions_of_the_processor_change_nothing(places in prop::collection::vec((0_usize..64, -8191_i16..=8191), 0..64)) {
            let mut block = [0; 64];
            for (place, number) in places {
                block[place] = number;
            }
            prop_assert_eq!(transformed(&block), plain::transformed(&block));
        }
    }
}
