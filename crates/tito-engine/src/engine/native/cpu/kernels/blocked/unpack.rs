//! The numbers of a block, rounded to bf16.

use super::{
    super::{KernelSet, LANES, instructions::Vectorized, packed::rounded},
    block::{Layout, PAIR},
};

/// 16 rows of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) layout: Layout,
    pub(super) bytes: &'a [u8],
}

impl Block<'_> {
    /// One number.
    pub(super) fn number(&self, lane: usize, input: usize) -> f32 {
        let Layout { format, step_bytes, piece_bytes, .. } = self.layout;
        let (piece, input) = (&self.bytes[input / format.numbers * piece_bytes..], input % format.numbers);
        let (group, input) = (input / format.group, input % format.group);
        let [scales, minima] = self.layout.scales(piece, group);
        let step = &self.layout.steps(piece, group)[input / super::block::STEP * step_bytes..][..step_bytes];
        let code = self.layout.code(step, input % super::block::STEP / 2, 2 * lane + input % 2);
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
    fn of_bits<const BITS: usize>(self) {
        let Self { block: Block { mut layout, bytes }, to } = self;
        layout.format.bits = BITS;
        let mut to = to.as_chunks_mut::<PAIR>().0.iter_mut();
        for piece in bytes.chunks_exact(layout.piece_bytes) {
            for group in 0..layout.format.groups() {
                let [scales, minima] = layout.scales(piece, group).map(twice);
                for step in layout.steps(piece, group).chunks_exact(layout.step_bytes) {
                    for (pair, to) in to.by_ref().take(2).enumerate() {
                        for (place, to) in to.iter_mut().enumerate() {
                            *to = rounded(number(layout.code(step, pair, place), scales[place], minima[place]));
                        }
                    }
                }
            }
        }
    }
}

/// Each number twice, as the codes of a pair are.
#[inline(always)]
fn twice(of: [f32; LANES]) -> [f32; PAIR] {
    std::array::from_fn(|place| of[place / 2])
}
