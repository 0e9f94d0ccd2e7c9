//! What the transform multiplies with.

/// Binary digits of factors.
pub(super) const DIGITS: u32 = 13;
/// Binary digits that columns keep for rows.
pub(super) const KEPT: u32 = 2;

/// `factor` with 13 binary digits.
#[expect(clippy::cast_possible_truncation, reason = "they are less than 4")]
const fn digits(factor: f64) -> i16 {
    (factor * (1 << DIGITS) as f64 + 0.5) as i16
}

const F_0_298: i16 = digits(0.298_631_336);
const F_0_390: i16 = digits(0.390_180_644);
const F_0_541: i16 = digits(0.541_196_1);
const F_0_765: i16 = digits(0.765_366_865);
const F_0_899: i16 = digits(0.899_976_223);
const F_1_175: i16 = digits(1.175_875_602);
const F_1_501: i16 = digits(1.501_321_11);
const F_1_847: i16 = digits(1.847_759_065);
const F_1_961: i16 = digits(1.961_570_56);
const F_2_053: i16 = digits(2.053_119_869);
const F_2_562: i16 = digits(2.562_915_447);
const F_3_072: i16 = digits(3.072_711_026);

/// The factors of two numbers.
pub(super) type Pair = (i16, i16);

/// Of the third and the seventh number, for the two sums of them.
pub(super) const LOW: Pair = (F_0_541, F_0_541 - F_1_847);
pub(super) const HIGH: Pair = (F_0_541 + F_0_765, F_0_541);
/// Of the eighth and the fourth, and of the sixth and the second number, each two added.
pub(super) const Z3: Pair = (F_1_175 - F_1_961, F_1_175);
pub(super) const Z4: Pair = (F_1_175, F_1_175 - F_0_390);
/// Of the eighth and the second, the sixth and the fourth, the sixth and the fourth, and the eighth and the second number.
pub(super) const ODD: [Pair; 4] = [
    (-F_0_899, F_1_501 - F_0_899),
    (-F_2_562, F_3_072 - F_2_562),
    (F_2_053 - F_2_562, -F_2_562),
    (F_0_298 - F_0_899, -F_0_899),
];
