//! Weights that are fetched ahead of a product.

use super::{
    pages::{LINE, prefetch_line},
    raw::Gemm,
};

/// How much of the inner dimension there is between two looks at what is fetched ahead.
pub(super) const PIECE: usize = 32;

/// Weights that are fetched into the caches while those before them are multiplied, a part with each piece of the inner
/// dimension: they come from memory, which is slow and otherwise has nothing to do once the first tile has been computed.
pub(super) struct Ahead {
    /// Where the next line begins.
    line: *const u8,
    /// Lines that are left.
    lines: usize,
    /// Lines that are fetched with a piece.
    at_once: usize,
}

impl Ahead {
    /// What follows the blocks from `block` on, spread over `tiles` tiles; nothing where a single one reads all weights
    /// once, which the processor foresees by itself.
    #[inline(always)]
    pub(super) fn new<const BLOCKS: usize>(work: &Gemm<impl Copy, impl Copy>, block: usize, tiles: usize) -> Self {
        let end = (block + BLOCKS).min(work.blocks);
        let next = if tiles > 1 { (work.blocks + work.following - end).min(BLOCKS) } else { 0 };
        let lines = (next * work.b_block_stride * size_of_number(work.b)).div_ceil(LINE);
        let at_once = lines.div_ceil(tiles * work.k.div_ceil(PIECE).max(1));
        Self { line: work.b.wrapping_add(end * work.b_block_stride).cast(), lines, at_once }
    }

    /// Asks for the next lines.
    #[inline(always)]
    pub(super) fn fetch(&mut self) {
        for _ in 0..self.at_once.min(self.lines) {
            prefetch_line(self.line);
            self.line = self.line.wrapping_add(LINE);
            self.lines -= 1;
        }
    }
}

/// The bytes of a number that is pointed to.
const fn size_of_number<T>(_: *const T) -> usize {
    size_of::<T>()
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// How many lines are fetched with each piece of a product of blocks of 64 pairs.
    fn fetched(rows: usize, blocks: usize, following: usize, block: usize) -> Vec<usize> {
        let numbers = vec![0_u16; (blocks + following) * 16 * 128];
        let work = Gemm {
            a: ptr::dangling::<u16>(),
            a_stride: 128,
            rows,
            b: numbers.as_ptr(),
            b_block_stride: 16 * 128,
            blocks,
            following,
            next: (ptr::null(), 0),
            soon: 0,
            k: 128,
            c: ptr::dangling_mut(),
            c_stride: 0,
            accumulate: false,
        };
        let tiles = rows.div_ceil(8);
        let mut ahead = Ahead::new::<3>(&work, block, tiles);
        let first = work.b.wrapping_add((block + 3).min(blocks) * work.b_block_stride).cast::<u8>();
        assert_eq!(ahead.line, first, "what comes next is fetched");
        let pieces = (0..tiles * 128 / PIECE).map(|_| {
            let before = ahead.lines;
            ahead.fetch();
            before - ahead.lines
        });
        let pieces = pieces.collect();
        assert_eq!(ahead.lines, 0, "all of it");
        pieces
    }

    #[test]
    fn the_next_blocks_are_fetched_a_part_with_each_piece_and_nothing_beyond_them() {
        let lines_of_a_block = 16 * 128 * 2 / LINE;
        assert_eq!(fetched(64, 6, 0, 0).iter().sum::<usize>(), 3 * lines_of_a_block);
        assert_eq!(fetched(64, 6, 0, 3), [0; 32], "nothing follows");
        assert_eq!(fetched(64, 6, 2, 3).iter().sum::<usize>(), 2 * lines_of_a_block);
        assert_eq!(fetched(16, 6, 3, 3), [24; 8]);
        assert_eq!(fetched(8, 6, 3, 0), [0; 4], "a single tile reads all weights once");
    }
}
