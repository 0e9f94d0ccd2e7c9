//! Numbers of eight and of four bits.

use std::{array, sync::LazyLock};

/// The numbers that a byte can be in E4M3, as "FP8 Formats for Deep Learning" (arXiv 2209.05433) defines it: a sign, four
/// bits of exponent with a bias of 7, three of fraction. There is no infinity; all other bits set is NaN.
pub(super) static E4M3: LazyLock<[f32; 256]> = LazyLock::new(|| array::from_fn(|byte| e4m3(byte.to_le_bytes()[0])));

fn e4m3(byte: u8) -> f32 {
    let (exponent, fraction) = (u32::from(byte >> 3 & 0xf), f32::from(byte & 7));
    let size = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => fraction * power(127 - 9),
        _ => (8.0 + fraction) * power(exponent + 127 - 10),
    };
    if byte & 0x80 == 0 { size } else { -size }
}

/// Two to the power of `biased` - 127, for powers that f32 has as ordinary numbers.
pub(super) fn power(biased: u32) -> f32 {
    f32::from_bits(biased << 23)
}

/// A power of two in E8M0, the type of scales in the OCP Microscaling Formats (MX) specification: the exponent with a bias
/// of 127. The last one is NaN.
pub(super) fn e8m0(byte: u8) -> f32 {
    match byte {
        0 => f32::MIN_POSITIVE / 2.0,
        255 => f32::NAN,
        _ => power(u32::from(byte)),
    }
}

/// The numbers that half a byte can be in E2M1, as the OCP Microscaling Formats (MX) specification defines it.
pub(super) const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_types_have_the_numbers_of_their_definition() {
        assert_eq!(E4M3[0x7e].to_bits(), 448_f32.to_bits());
        assert_eq!(E4M3[0x01].to_bits(), 0.001_953_125_f32.to_bits());
        assert_eq!(E4M3[0x08].to_bits(), 0.015_625_f32.to_bits());
        assert_eq!(E4M3[0xb8].to_bits(), (-1_f32).to_bits());
        assert_eq!(E4M3[0x80].to_bits(), (-0_f32).to_bits());
        assert!(E4M3[0x7f].is_nan() && E4M3[0xff].is_nan());
    }

    #[test]
    fn powers_are_those_of_their_definition() {
        let powers = [e8m0(0), e8m0(127), e8m0(254)].map(|power| f64::from(power).log2().to_bits());
        assert_eq!(powers, [-127_f64, 0.0, 127.0].map(f64::to_bits));
        assert!(e8m0(255).is_nan());
    }
}
