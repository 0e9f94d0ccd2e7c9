//! From the coefficients of a block to its samples, to the bit as libjpeg-turbo's slow integer transform in its form for x86
//! processors: columns, then rows; factors of 13 binary digits, after Loeffler, Ligtenberg and Moschytz (1989).

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers within limits")]

use super::KIND;
use crate::error::ImageError;

/// Binary digits of factors.
const DIGITS: u32 = 13;
/// Binary digits that columns keep for rows.
const KEPT: u32 = 2;

/// Builds of libjpeg-turbo for different processors agree on coefficients up to here. Encoders write at most a fifth of it.
const LARGEST: i32 = 8191;

/// The samples of a block, row by row.
pub(super) fn inverse_transform(block: &[i16; 64], quantisation: &[u16; 64]) -> Result<[u8; 64], ImageError> {
    let mut between = [0; 64];
    for (place, (&number, &factor)) in block.iter().zip(quantisation).enumerate() {
        let number = i32::from(number) * i32::from(factor);
        if number.abs() > LARGEST {
            return Err(ImageError::unsupported(KIND, "a coefficient is larger than those of any image"));
        }
        between[place] = number as i16;
    }
    let mut samples = [0; 64];
    for column in 0..8 {
        let numbers = std::array::from_fn(|row| between[8 * row + column]);
        for (row, number) in one_direction(numbers, DIGITS - KEPT).into_iter().enumerate() {
            between[8 * row + column] = number;
        }
    }
    for (row, line) in samples.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let numbers = std::array::from_fn(|column| between[8 * row + column]);
        *line = one_direction(numbers, DIGITS + KEPT + 3).map(|number| (number.clamp(-128, 127) + 128) as u8);
    }
    Ok(samples)
}

/// `factor` with 13 binary digits.
const fn digits(factor: f64) -> i32 {
    (factor * (1 << DIGITS) as f64 + 0.5) as i32
}

const F_0_298: i32 = digits(0.298_631_336);
const F_0_390: i32 = digits(0.390_180_644);
const F_0_541: i32 = digits(0.541_196_1);
const F_0_765: i32 = digits(0.765_366_865);
const F_0_899: i32 = digits(0.899_976_223);
const F_1_175: i32 = digits(1.175_875_602);
const F_1_501: i32 = digits(1.501_321_11);
const F_1_847: i32 = digits(1.847_759_065);
const F_1_961: i32 = digits(1.961_570_56);
const F_2_053: i32 = digits(2.053_119_869);
const F_2_562: i32 = digits(2.562_915_447);
const F_3_072: i32 = digits(3.072_711_026);

/// Eight numbers transformed and divided by two to the power of `shift`. Sums of two are made in 16 bits, and all others in 32,
/// as the instructions do.
fn one_direction([c0, c1, c2, c3, c4, c5, c6, c7]: [i16; 8], shift: u32) -> [i16; 8] {
    let pair = |one: i16, factor: i32, other: i16, by: i32| {
        (i32::from(one).wrapping_mul(factor)).wrapping_add(i32::from(other).wrapping_mul(by))
    };
    let sum = i32::from(c0.wrapping_add(c4)) << DIGITS;
    let difference = i32::from(c0.wrapping_sub(c4)) << DIGITS;
    let low = pair(c2, F_0_541, c6, F_0_541 - F_1_847);
    let high = pair(c2, F_0_541 + F_0_765, c6, F_0_541);
    let even =
        [sum.wrapping_add(high), difference.wrapping_add(low), difference.wrapping_sub(low), sum.wrapping_sub(high)];
    let (third, first) = (c7.wrapping_add(c3), c5.wrapping_add(c1));
    let z3 = pair(third, F_1_175 - F_1_961, first, F_1_175);
    let z4 = pair(third, F_1_175, first, F_1_175 - F_0_390);
    let odd = [
        pair(c7, -F_0_899, c1, F_1_501 - F_0_899).wrapping_add(z4),
        pair(c5, -F_2_562, c3, F_3_072 - F_2_562).wrapping_add(z3),
        pair(c5, F_2_053 - F_2_562, c3, -F_2_562).wrapping_add(z4),
        pair(c7, F_0_298 - F_0_899, c1, -F_0_899).wrapping_add(z3),
    ];
    let rounded = |number: i32| {
        let number = number.wrapping_add(1 << (shift - 1)) >> shift;
        number.clamp(i16::MIN.into(), i16::MAX.into()) as i16
    };
    std::array::from_fn(|place| match place {
        0..4 => rounded(even[place].wrapping_add(odd[place])),
        _ => rounded(even[7 - place].wrapping_sub(odd[7 - place])),
    })
}

#[cfg(test)]
mod tests {
    use super::inverse_transform;

    #[test]
    fn a_block_of_one_colour_is_that_colour() {
        let mut block = [0; 64];
        for (number, sample) in [(0, 128), (8, 129), (-1024, 0), (1016, 255), (2000, 255), (3, 128), (4, 129)] {
            block[0] = number;
            assert_eq!(inverse_transform(&block, &[1; 64]).unwrap(), [sample; 64], "{number}");
        }
    }

    #[test]
    fn coefficients_that_processors_differ_on_are_refused() {
        assert!(inverse_transform(&[8191; 64], &[1; 64]).is_ok());
        assert!(inverse_transform(&[-8191; 64], &[1; 64]).is_ok());
        assert!(inverse_transform(&[8192; 64], &[1; 64]).is_err());
        assert!(inverse_transform(&[i16::MIN; 64], &[u16::MAX; 64]).is_err());
    }
}
