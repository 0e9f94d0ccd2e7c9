//! Products of bf16 matrices with AMX tiles: Sapphire Rapids and later, on Linux.
//!
//! Owns how a product is cut into panels of C, and in which order they are computed. Refuses to split K: every element
//! of C walks over all of K in steps of 32, from the start, whatever else is computed with it.
//!
//! A step adds to an element what TDPBF16PS makes of 32 products: the even ones are summed by fused multiply-adds, so
//! are the odd ones, both from zero; then the two sums are added, then their sum to the element. All of it rounds to
//! nearest even, takes subnormal numbers for zero, be they of A, B or C, and makes no new ones.

mod detect;
mod panel;
#[cfg(test)]
mod tests;

use std::{marker::PhantomData, mem::size_of, ops::Range, ptr};

use panel::{Ahead, B_TILE, CHUNK, Panel, Soon};

use super::raw::{Along, Bf16Gemm, MOST_PIECES, Piece};

/// K in one step.
const STEP: usize = 32;
/// Columns in one block of B.
const BLOCK: usize = 16;
/// Rows that one panel takes at most.
const PANEL_ROWS: usize = 32;
/// Panels of no more rows than this take four blocks of B at a time, higher ones two.
const LOW_PANEL_ROWS: usize = 16;
/// How much of B is kept at hand while all rows pass over it, where the first ones fetch it: half of a core's L2, the rest
/// is for A and C.
const B_AT_HAND: usize = 1 << 20;
/// The same where what comes next is fetched meanwhile: the less it is, the sooner there is something at hand.
const B_AT_HAND_OF_HIGH: usize = 96 << 10;
/// How far ahead each block of B is fetched from memory.
const B_AHEAD: usize = 4 * B_TILE;

/// Whether [`Tiles`] may be used; asks Linux for the permission the first time.
pub(super) fn available() -> bool {
    detect::available()
}

/// Whether processor and system have the tiles, but this process may not use them.
pub(super) fn denied() -> bool {
    detect::denied()
}

/// The tiles of the thread that has this: none is configured at first, and none when it is dropped. A thread has one at a
/// time.
pub(super) struct Tiles {
    /// The height of the panels that they are configured for, 0 for none.
    configured: usize,
    /// They are the thread's that configured them.
    not_send: PhantomData<*const ()>,
}

impl Tiles {
    pub(super) fn new() -> Self {
        Self { configured: 0, not_send: PhantomData }
    }

    /// Whether the products of an element are summed before they are added to what C held, which is as [`Gemm`] has it.
    ///
    /// [`Gemm`]: super::raw::Gemm
    pub(super) fn sum_first(work: &Bf16Gemm) -> bool {
        work.k <= STEP
    }

    /// Computes the product. Where it accumulates over more than one step, the first one is added to C.
    ///
    /// Rows of A that lie a multiple of 4 KiB apart share one set of L1, which 16 rows overflow: an odd number of cache
    /// lines between rows is faster.
    ///
    /// # Safety
    ///
    /// [`available`] must have said so. All of A and B that the product spans must be readable; C must be readable and
    /// writable, overlap neither of them, and nobody else may use it meanwhile. `k` must be a multiple of 32.
    pub(super) unsafe fn multiply(&mut self, work: &Bf16Gemm) {
        debug_assert!(work.k.is_multiple_of(STEP) && work.a_stride >= work.k);
        debug_assert!(work.b_block_stride >= work.k * BLOCK && work.c_stride >= work.blocks * BLOCK);
        if work.rows == 0 || work.blocks == 0 {
            return;
        }
        let group = blocks_at_hand(work.k, work.rows);
        for first in (0..work.blocks).step_by(group) {
            let end = work.blocks.min(first + group);
            // SAFETY: the caller's promises.
            let mut soon = unsafe { soon_of(work, end, group) };
            for top in (0..work.rows).step_by(PANEL_ROWS) {
                let height = PANEL_ROWS.min(work.rows - top);
                // SAFETY: the caller's promises; the panels lie within the product.
                unsafe {
                    self.configure(height);
                    soon = across(work, top, height, first..end, soon);
                }
            }
        }
    }

    /// Whether [`Tiles::multiply_pieces`] takes such pieces.
    pub(super) fn takes_pieces(work: &Bf16Gemm, along: Along) -> bool {
        match along {
            Along::Columns => !work.accumulate,
            Along::Depth => work.accumulate && work.k == STEP,
        }
    }

    /// Computes a product in pieces whose B lies anywhere: `work` is the first of them. Pieces of the depth are a step each: C is
    /// read and written once for all of them.
    ///
    /// # Safety
    ///
    /// As of [`Tiles::multiply`], for each of the pieces, which are such as [`Tiles::takes_pieces`].
    pub(super) unsafe fn multiply_pieces(&mut self, work: &Bf16Gemm, along: Along, pieces: &[Piece<u16>]) {
        debug_assert!(Self::takes_pieces(work, along));
        if work.rows == 0 || work.blocks == 0 || pieces.is_empty() {
            return;
        }
        for top in (0..work.rows).step_by(PANEL_ROWS) {
            let height = PANEL_ROWS.min(work.rows - top);
            // SAFETY: the caller's promises; the panels lie within the pieces.
            unsafe {
                self.configure(height);
                match along {
                    Along::Columns => {
                        for (index, piece) in pieces.iter().enumerate() {
                            let piece = work.piece(along, index, piece);
                            across(&piece, top, height, 0..work.blocks, Soon::NOTHING);
                        }
                    }
                    Along::Depth => across_steps(work, top, height, pieces),
                }
            }
        }
    }

    /// Makes the tiles fit panels of this height.
    ///
    /// # Safety
    ///
    /// As of [`Tiles::multiply`].
    unsafe fn configure(&mut self, height: usize) {
        if height != self.configured {
            // SAFETY: the caller's promise.
            unsafe { panel::configure(u8::try_from(height).expect("a panel has at most 32 rows")) };
            self.configured = height;
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        if self.configured > 0 {
            // SAFETY: they were configured, so AMX is usable.
            unsafe { panel::release() };
        }
    }
}

/// How many panels of so many rows are high ones.
fn high_panels(rows: usize) -> usize {
    rows / PANEL_ROWS + usize::from(rows % PANEL_ROWS > LOW_PANEL_ROWS)
}

/// How many blocks of B are multiplied with all rows before the next ones are; whole panels of both kinds, unless that is more
/// than is kept at hand.
fn blocks_at_hand(k: usize, rows: usize) -> usize {
    let block_bytes = (BLOCK * k * size_of::<u16>()).max(1);
    if high_panels(rows) > 0 {
        (B_AT_HAND_OF_HIGH / block_bytes / 2 * 2).max(2)
    } else {
        (B_AT_HAND / block_bytes / 4 * 4).max(4)
    }
}

/// What the high panels of the blocks before `end` fetch: as many blocks as these are, of this product or of the next one.
///
/// # Safety
///
/// As of [`Tiles::multiply`].
unsafe fn soon_of(work: &Bf16Gemm, end: usize, group: usize) -> Soon {
    let block = work.b_block_stride;
    let (from, blocks) = if end < work.blocks {
        // SAFETY: there is such a block.
        (unsafe { work.b.add(end * block) }, group.min(work.blocks - end))
    } else {
        (work.next.0, group.min(work.next.1))
    };
    let from = from.cast::<u8>();
    // All panels have as many steps as the blocks that are fetched, or more; each step reads two tiles.
    let chunks = (2 * B_TILE / CHUNK).div_ceil(high_panels(work.rows).max(1));
    Soon { from, end: from.wrapping_add(blocks * block * size_of::<u16>()), chunks }
}

/// Computes `height` rows from `top` on, of some blocks; says what is left to fetch.
///
/// # Safety
///
/// As of [`Tiles::multiply`]; these rows and blocks are the product's, and the tiles are configured for the height.
unsafe fn across(work: &Bf16Gemm, top: usize, height: usize, blocks: Range<usize>, mut soon: Soon) -> Soon {
    let low = height <= LOW_PANEL_ROWS;
    let widest = if low { 4 } else { 2 };
    for block in blocks.clone().step_by(widest) {
        let width = widest.min(blocks.end - block);
        // SAFETY: the caller's promises, and the panel lies within the product.
        unsafe {
            let mut panel = panel_at(work, top, block, width, soon);
            match (low, width) {
                (false, 1) => panel::two_by_one(&mut panel),
                (false, _) => panel::two_by_two(&mut panel),
                (true, 1) => panel::one_by_one(&mut panel),
                (true, 2) => panel::one_by_two(&mut panel),
                (true, 3) => panel::one_by_three(&mut panel),
                (true, _) => panel::one_by_four(&mut panel),
            }
            soon = panel.soon;
        }
    }
    soon
}

/// Computes `height` rows from `top` on, of all blocks, over a step for each of the pieces.
///
/// # Safety
///
/// As of [`Tiles::multiply_pieces`]; these rows are the product's, and the tiles are configured for the height.
unsafe fn across_steps(work: &Bf16Gemm, top: usize, height: usize, pieces: &[Piece<u16>]) {
    let mut jumps = [0; MOST_PIECES];
    for (jump, pair) in jumps.iter_mut().zip(pieces.windows(2)) {
        *jump = pair[1].b.addr().wrapping_sub(pair[0].b.addr()).wrapping_sub(B_TILE).cast_signed();
    }
    let jumps = &jumps[..pieces.len()];
    let low = height <= LOW_PANEL_ROWS;
    let widest = if low { 4 } else { 2 };
    for block in (0..work.blocks).step_by(widest) {
        let width = widest.min(work.blocks - block);
        // SAFETY: the caller's promises, and the panel lies within the product.
        unsafe {
            let mut panel = panel_at(work, top, block, width, Soon::NOTHING);
            (panel.steps, panel.jumps) = (jumps.len(), jumps.as_ptr());
            match (low, width) {
                (false, 1) => panel::two_by_one_anywhere(&mut panel),
                (false, _) => panel::two_by_two_anywhere(&mut panel),
                (true, 1) => panel::one_by_one_anywhere(&mut panel),
                (true, 2) => panel::one_by_two_anywhere(&mut panel),
                (true, 3) => panel::one_by_three_anywhere(&mut panel),
                (true, _) => panel::one_by_four_anywhere(&mut panel),
            }
        }
    }
}

/// The panel of `width` blocks whose upper left corner is the row `top` of the block `block`.
///
/// # Safety
///
/// The product has this row and this block, and its pointers are valid for them.
unsafe fn panel_at(work: &Bf16Gemm, top: usize, block: usize, width: usize, soon: Soon) -> Panel {
    let steps = work.k / STEP;
    let b_block = work.b_block_stride * size_of::<u16>();
    let ahead = if work.rows <= LOW_PANEL_ROWS { ahead_of(steps, width * b_block) } else { Ahead::default() };
    // SAFETY: both corners lie within the product.
    let (a, b, c) = unsafe {
        let c = work.c.add(top * work.c_stride + block * BLOCK);
        (work.a.add(top * work.a_stride), work.b.add(block * work.b_block_stride), c)
    };
    Panel {
        a,
        a_stride: work.a_stride * size_of::<u16>(),
        b,
        b_block,
        c,
        c_stride: work.c_stride * size_of::<f32>(),
        accumulate: usize::from(work.accumulate),
        steps: steps - ahead.last_steps,
        ahead,
        soon,
        jumps: ptr::null(),
    }
}

/// What a panel of so many steps fetches, which is alone to read its blocks: its own first, then, for as long as they have
/// nothing more to fetch, those of the panel to the right, so many bytes on.
fn ahead_of(steps: usize, panel_bytes: usize) -> Ahead {
    let last_steps = steps.min(B_AHEAD / B_TILE);
    let first_steps = steps - last_steps;
    Ahead { distance: last_steps * B_TILE, last_steps, last_distance: panel_bytes - first_steps * B_TILE }
}
