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

use std::mem::size_of;

use panel::{B_TILE, Panel};

use super::raw::Bf16Gemm;

/// K in one step.
const STEP: usize = 32;
/// Columns in one block of B.
const BLOCK: usize = 16;
/// Rows that one panel takes at most.
const PANEL_ROWS: usize = 32;
/// Panels of no more rows than this take four blocks of B at a time, higher ones two.
const LOW_PANEL_ROWS: usize = 16;
/// How much of B is kept at hand while all rows pass over it: half of a core's L2, the rest is for A and C.
const B_AT_HAND: usize = 1 << 20;
/// How far ahead each block of B is fetched from memory.
const B_AHEAD: usize = 4 * B_TILE;

/// Whether [`gemm`] may be called; asks Linux for the permission the first time.
pub(super) fn available() -> bool {
    detect::available()
}

/// Whether processor and system have the tiles, but this process may not use them.
pub(super) fn denied() -> bool {
    detect::denied()
}

/// Computes the product.
///
/// Rows of A that lie a multiple of 4 KiB apart share one set of L1, which 16 rows overflow: an odd number of cache
/// lines between rows is faster.
///
/// # Safety
///
/// [`available`] must have said so. All of A and B that the product spans must be readable; C must be readable and
/// writable, overlap neither of them, and nobody else may use it meanwhile. `k` must be a multiple of 32.
pub(super) unsafe fn gemm(work: &Bf16Gemm) {
    debug_assert!(work.k.is_multiple_of(STEP) && work.a_stride >= work.k);
    debug_assert!(work.b_block_stride >= work.k * BLOCK && work.c_stride >= work.blocks * BLOCK);
    if work.rows == 0 || work.blocks == 0 {
        return;
    }
    let mut configured = 0;
    let group = blocks_at_hand(work.k);
    for first in (0..work.blocks).step_by(group) {
        let end = work.blocks.min(first + group);
        for top in (0..work.rows).step_by(PANEL_ROWS) {
            let height = PANEL_ROWS.min(work.rows - top);
            // SAFETY: the caller's promises; the panels lie within the product.
            unsafe {
                if height != configured {
                    panel::configure(u8::try_from(height).expect("a panel has at most 32 rows"));
                    configured = height;
                }
                across(work, top, height, first, end);
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { panel::release() };
}

/// How many blocks of B fit into [`B_AT_HAND`]; whole panels of both kinds.
fn blocks_at_hand(k: usize) -> usize {
    let block_bytes = BLOCK * k * size_of::<u16>();
    let fitting = B_AT_HAND / block_bytes.max(1);
    (fitting / 4 * 4).max(4)
}

/// Computes `height` rows from `top` on, of the blocks from `first` to `end`.
///
/// # Safety
///
/// As of [`gemm`]; these rows and blocks are the product's, and the tiles are configured for the height.
unsafe fn across(work: &Bf16Gemm, top: usize, height: usize, first: usize, end: usize) {
    let low = height <= LOW_PANEL_ROWS;
    let widest = if low { 4 } else { 2 };
    for block in (first..end).step_by(widest) {
        let width = widest.min(end - block);
        // SAFETY: the caller's promises, and the panel lies within the product.
        unsafe {
            let panel = panel_at(work, top, block, width);
            match (low, width) {
                (false, 1) => panel::two_by_one(&panel),
                (false, _) => panel::two_by_two(&panel),
                (true, 1) => panel::one_by_one(&panel),
                (true, 2) => panel::one_by_two(&panel),
                (true, 3) => panel::one_by_three(&panel),
                (true, _) => panel::one_by_four(&panel),
            }
        }
    }
}

/// The panel of `width` blocks whose upper left corner is the row `top` of the block `block`.
///
/// # Safety
///
/// The product has this row and this block, and its pointers are valid for them.
unsafe fn panel_at(work: &Bf16Gemm, top: usize, block: usize, width: usize) -> Panel {
    let steps = work.k / STEP;
    let b_block = work.b_block_stride * size_of::<u16>();
    // Rows below the first panel find B in L2. The first panel fetches it: its own blocks first, then, for as long as
    // they have nothing more to fetch, those of the panel to the right.
    let (last_steps, ahead, last_ahead) = if top == 0 {
        let last_steps = steps.min(B_AHEAD / B_TILE);
        (last_steps, last_steps * B_TILE, width * b_block - (steps - last_steps) * B_TILE)
    } else {
        (0, 0, 0)
    };
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
        steps: steps - last_steps,
        ahead,
        last_steps,
        last_ahead,
    }
}
