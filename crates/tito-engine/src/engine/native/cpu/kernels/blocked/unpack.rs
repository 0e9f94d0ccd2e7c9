//! The numbers of blocks, rounded to bf16.

use super::{
    super::{KernelName, KernelSet, vector::Plain},
    block::{Block, Layout, STEP},
    vectors::{self, ToBf16, Work},
};

impl Block<'_> {
    /// One number.
    pub(super) fn number(&self, lane: usize, input: usize) -> f32 {
        let layout = &self.layout;
        let (numbers, group) = (layout.format.numbers, input % layout.format.numbers / layout.format.group);
        let piece = &self.bytes[input / numbers * layout.piece_bytes..];
        let step = &piece[layout.steps + input % numbers / STEP * layout.step_bytes..][..layout.step_bytes];
        let [scale, minimum] = [0, 1].map(|kind| layout.factor(piece, kind, group, lane));
        #[expect(clippy::cast_precision_loss, reason = "a code has at most 8 bits")]
        let code = layout.code(step, lane, input % STEP) as f32;
        code * scale + minimum
    }

    /// Widens it in the layout of a packed matrix.
    pub(super) fn widen(self, set: KernelSet, to: &mut [u16]) {
        // SAFETY: the block is of its layout, and `to` says how much room there is.
        unsafe { compute(set, &self.layout, ToBf16 { block: self, to }) }
    }
}

/// Does work on blocks of a layout with the vectors of a set.
///
/// # Safety
/// The work's blocks are of this layout, and there is what it asks for.
pub(super) unsafe fn compute(set: KernelSet, layout: &Layout, work: impl Work) {
    // SAFETY: the caller's promises. That there is a set of a name shows that the processor has its instructions; where there
    // are tiles, there are those of the next set.
    unsafe {
        match set.name() {
            #[cfg(target_arch = "x86_64")]
            KernelName::Amx | KernelName::Avx512Bf16 => super::x86::avx512_bf16(layout, work),
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx512 => super::x86::avx512(layout, work),
            #[cfg(target_arch = "x86_64")]
            KernelName::Avx2 => super::x86::avx2(layout, work),
            _ => vectors::run::<Plain>(layout, work),
        }
    }
}
