//! The transform without instructions of one kind of processor.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers within limits")]

use super::factors::{DIGITS, HIGH, KEPT, LOW, ODD, Pair, Z3, Z4};

/// The samples of coefficients within the limit.
pub(super) fn transformed(block: &[i16; 64]) -> [u8; 64] {
    let (mut between, mut samples) = (*block, [0; 64]);
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
    samples
}

fn pair(one: i16, other: i16, (factor, by): Pair) -> i32 {
    (i32::from(one) * i32::from(factor)).wrapping_add(i32::from(other) * i32::from(by))
}

/// Eight numbers transformed and divided by two to the power of `shift`. Sums of two are made in 16 bits, and all others in 32,
/// as the instructions do.
fn one_direction([c0, c1, c2, c3, c4, c5, c6, c7]: [i16; 8], shift: u32) -> [i16; 8] {
    let sum = i32::from(c0.wrapping_add(c4)) << DIGITS;
    let difference = i32::from(c0.wrapping_sub(c4)) << DIGITS;
    let (low, high) = (pair(c2, c6, LOW), pair(c2, c6, HIGH));
    let even =
        [sum.wrapping_add(high), difference.wrapping_add(low), difference.wrapping_sub(low), sum.wrapping_sub(high)];
    let (third, first) = (c7.wrapping_add(c3), c5.wrapping_add(c1));
    let (z3, z4) = (pair(third, first, Z3), pair(third, first, Z4));
    let odd = [
        pair(c7, c1, ODD[0]).wrapping_add(z4),
        pair(c5, c3, ODD[1]).wrapping_add(z3),
        pair(c5, c3, ODD[2]).wrapping_add(z4),
        pair(c7, c1, ODD[3]).wrapping_add(z3),
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
