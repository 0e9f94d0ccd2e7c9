//! The numbers of a block, rounded to bf16.

use super::{
    super::{KernelSet, LANES, instructions::Vectorized, packed::rounded},
    block::{BITS, Block, HALVES, Layout, PAIR, STEP, step_bytes},
};

impl Block<'_> {
    /// One number.
    pub(super) fn number(&self, lane: usize, input: usize) -> f32 {
        let Layout { format, step_bytes, piece_bytes, .. } = self.layout;
        let (piece, input) = (&self.bytes[input / format.numbers * piece_bytes..], input % format.numbers);
        let (group, input) = (input / format.group, input % format.group);
        let [scales, minima] = self.layout.scales(piece, group);
        let step = &self.layout.steps(piece, group)[input / STEP * step_bytes..][..step_bytes];
        let code = self.layout.code(step, input % STEP / 2, 2 * lane + input % 2);
        number(code, scales[lane], minima[lane])
    }

    /// Widens it in the layout of a packed matrix.
    pub(super) fn widen(self, set: KernelSet, to: &mut [u16]) {
        #[cfg(target_arch = "x86_64")]
        if super::x86::widen(set, &self, to) {
            return;
        }
        set.vectorize(ToBf16 { block: self, to });
    }
}

/// The number of a code. Codes have few bits.
#[inline(always)]
fn number(code: i32, scale: f32, minimum: f32) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "a code has at most 8 bits")]
    let code = code as f32;
    code * scale + minimum
}

/// A block in pairs of bf16.
struct ToBf16<'a> {
    block: Block<'a>,
    to: &'a mut [u16],
}

impl Vectorized for ToBf16<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        // So that each is compiled for its number of bits.
        match self.block.layout.format.bits {
            4 => self.of_bits::<4>(),
            5 => self.of_bits::<5>(),
            6 => self.of_bits::<6>(),
            _ => self.of_bits::<8>(),
        }
    }
}

impl ToBf16<'_> {
    #[inline(always)]
    fn of_bits<const B: usize>(self) {
        let Self { block: Block { layout, bytes }, to } = self;
        let offset = i32::from(layout.format.offset);
        let mut to = to.as_chunks_mut::<PAIR>().0.iter_mut();
        for piece in bytes.chunks_exact(layout.piece_bytes) {
            for group in 0..layout.format.groups() {
                let [scales, minima] = layout.scales(piece, group).map(twice);
                for step in layout.steps(piece, group).chunks_exact(step_bytes(B)) {
                    let pairs = [codes::<B, 0>(step), codes::<B, 1>(step)];
                    for (codes, to) in pairs.into_iter().zip(to.by_ref()) {
                        let factors = scales.iter().zip(&minima);
                        for ((to, code), (scale, minimum)) in to.iter_mut().zip(codes).zip(factors) {
                            *to = rounded(number(code - offset, *scale, *minimum));
                        }
                    }
                }
            }
        }
    }
}

/// The codes of a pair of a step, with their offset.
#[inline(always)]
fn codes<const B: usize, const NUMBER: usize>(step: &[u8]) -> [i32; PAIR] {
    let mut codes = [0; PAIR];
    if B == 8 {
        let bytes: &[u8; PAIR] = step[NUMBER * PAIR..].first_chunk().expect("a whole step");
        for (code, byte) in codes.iter_mut().zip(bytes) {
            *code = i32::from(byte.cast_signed());
        }
        return codes;
    }
    let (halves, further) = step.split_first_chunk::<HALVES>().expect("a whole step");
    for (code, byte) in codes.iter_mut().zip(halves) {
        *code = i32::from(byte >> (4 * NUMBER) & 0xf);
    }
    for (bit, bits) in further.as_chunks::<BITS>().0.iter().take(B - 4).enumerate() {
        let word: &[u8; 4] = bits[NUMBER * 4..].first_chunk().expect("the bits of a pair");
        let word = u32::from_le_bytes(*word);
        for (place, code) in codes.iter_mut().enumerate() {
            *code |= i32::from(word >> place & 1 == 1) << (4 + bit);
        }
    }
    codes
}

/// Each number twice, as the codes of a pair are.
#[inline(always)]
fn twice(of: [f32; LANES]) -> [f32; PAIR] {
    std::array::from_fn(|place| of[place / 2])
}
