//! The transform for x86 processors of 64 bits, each of which has these instructions.

#![expect(clippy::inline_always, reason = "only what is inlined uses the wider instructions")]

use std::arch::x86_64::__m128i;

use pulp::{cast, core_arch::x86::Sse2};

use super::factors::{DIGITS, HIGH, KEPT, LOW, ODD, Pair, Z3, Z4};

/// Eight numbers of 32 bits: the first four, and the others.
type Wide = [__m128i; 2];

/// The samples of coefficients within the limit.
#[inline(always)]
pub(super) fn transformed(block: &[i16; 64]) -> [u8; 64] {
    const COLUMNS: i32 = (DIGITS - KEPT).cast_signed();
    const ROWS: i32 = (DIGITS + KEPT + 3).cast_signed();
    let lanes = Lanes(Sse2::try_new().expect("each of them has it"));
    let columns = lanes.turned(lanes.one_direction::<COLUMNS>(cast(*block)));
    lanes.turned_bytes(lanes.one_direction::<ROWS>(columns))
}

/// What proves that the processor has the instructions.
#[derive(Clone, Copy)]
struct Lanes(Sse2);

impl Lanes {
    #[inline(always)]
    fn pair(self, one: __m128i, other: __m128i, (factor, by): Pair) -> Wide {
        let factors = cast([factor, by, factor, by, factor, by, factor, by]);
        [self.0._mm_unpacklo_epi16(one, other), self.0._mm_unpackhi_epi16(one, other)]
            .map(|both| self.0._mm_madd_epi16(both, factors))
    }

    #[inline(always)]
    fn add(self, [low, high]: Wide, other: Wide) -> Wide {
        [self.0._mm_add_epi32(low, other[0]), self.0._mm_add_epi32(high, other[1])]
    }

    #[inline(always)]
    fn sub(self, [low, high]: Wide, other: Wide) -> Wide {
        [self.0._mm_sub_epi32(low, other[0]), self.0._mm_sub_epi32(high, other[1])]
    }

    /// Times two to the power of `DIGITS`.
    #[inline(always)]
    fn widened(self, numbers: __m128i) -> Wide {
        const BACK: i32 = 16 - DIGITS.cast_signed();
        let zero = self.0._mm_setzero_si128();
        let high = [self.0._mm_unpacklo_epi16(zero, numbers), self.0._mm_unpackhi_epi16(zero, numbers)];
        high.map(|numbers| self.0._mm_srai_epi32::<BACK>(numbers))
    }

    /// Divided by two to the power of `SHIFT`, within 16 bits.
    #[inline(always)]
    fn rounded<const SHIFT: i32>(self, numbers: Wide) -> __m128i {
        let half = self.0._mm_set1_epi32(1 << (SHIFT - 1));
        let [low, high] = numbers.map(|numbers| self.0._mm_srai_epi32::<SHIFT>(self.0._mm_add_epi32(numbers, half)));
        self.0._mm_packs_epi32(low, high)
    }

    /// Eight transforms at once: of the first numbers of all, the second ones, and so on.
    #[inline(always)]
    fn one_direction<const SHIFT: i32>(self, [c0, c1, c2, c3, c4, c5, c6, c7]: [__m128i; 8]) -> [__m128i; 8] {
        let sum = self.widened(self.0._mm_add_epi16(c0, c4));
        let difference = self.widened(self.0._mm_sub_epi16(c0, c4));
        let (low, high) = (self.pair(c2, c6, LOW), self.pair(c2, c6, HIGH));
        let even = [self.add(sum, high), self.add(difference, low), self.sub(difference, low), self.sub(sum, high)];
        let (third, first) = (self.0._mm_add_epi16(c7, c3), self.0._mm_add_epi16(c5, c1));
        let (z3, z4) = (self.pair(third, first, Z3), self.pair(third, first, Z4));
        let odd = [
            self.add(self.pair(c7, c1, ODD[0]), z4),
            self.add(self.pair(c5, c3, ODD[1]), z3),
            self.add(self.pair(c5, c3, ODD[2]), z4),
            self.add(self.pair(c7, c1, ODD[3]), z3),
        ];
        std::array::from_fn(|place| match place {
            0..4 => self.rounded::<SHIFT>(self.add(even[place], odd[place])),
            _ => self.rounded::<SHIFT>(self.sub(even[7 - place], odd[7 - place])),
        })
    }

    /// Rows as columns.
    #[inline(always)]
    fn turned(self, [r0, r1, r2, r3, r4, r5, r6, r7]: [__m128i; 8]) -> [__m128i; 8] {
        let twos = [(r0, r1), (r2, r3), (r4, r5), (r6, r7)];
        let low = twos.map(|(one, other)| self.0._mm_unpacklo_epi16(one, other));
        let high = twos.map(|(one, other)| self.0._mm_unpackhi_epi16(one, other));
        let fours = [(low[0], low[1]), (low[2], low[3]), (high[0], high[1]), (high[2], high[3])];
        let low = fours.map(|(one, other)| self.0._mm_unpacklo_epi32(one, other));
        let high = fours.map(|(one, other)| self.0._mm_unpackhi_epi32(one, other));
        let eights = [(low[0], low[1]), (high[0], high[1]), (low[2], low[3]), (high[2], high[3])];
        let [c0, c2, c4, c6] = eights.map(|(one, other)| self.0._mm_unpacklo_epi64(one, other));
        let [c1, c3, c5, c7] = eights.map(|(one, other)| self.0._mm_unpackhi_epi64(one, other));
        [c0, c1, c2, c3, c4, c5, c6, c7]
    }

    /// The samples of columns of numbers around zero, row by row.
    #[inline(always)]
    fn turned_bytes(self, [c0, c1, c2, c3, c4, c5, c6, c7]: [__m128i; 8]) -> [u8; 64] {
        let halves = [(c0, c4), (c1, c5), (c2, c6), (c3, c7)];
        let both = halves.map(|(one, other)| self.0._mm_packs_epi16(one, other));
        let twos = [(both[0], both[1]), (both[2], both[3])];
        let low = twos.map(|(one, other)| self.0._mm_unpacklo_epi8(one, other));
        let high = twos.map(|(one, other)| self.0._mm_unpackhi_epi8(one, other));
        let fours = [(low[0], low[1]), (high[0], high[1])];
        let [first_0, first_4] = fours.map(|(one, other)| self.0._mm_unpacklo_epi16(one, other));
        let [last_0, last_4] = fours.map(|(one, other)| self.0._mm_unpackhi_epi16(one, other));
        let rows = [
            self.0._mm_unpacklo_epi32(first_0, first_4),
            self.0._mm_unpackhi_epi32(first_0, first_4),
            self.0._mm_unpacklo_epi32(last_0, last_4),
            self.0._mm_unpackhi_epi32(last_0, last_4),
        ];
        let middle = self.0._mm_set1_epi8(i8::MIN);
        cast(rows.map(|rows| self.0._mm_xor_si128(rows, middle)))
    }
}
