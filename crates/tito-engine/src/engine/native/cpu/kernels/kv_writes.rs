//! What a step writes into the cache: which tokens go into which block, and each block by one thread.

use super::{
    Processor, States,
    kv::{BLOCK_TOKENS, BlockParts, KvStore},
};
use crate::engine::native::backend::Span;

/// Fewer tokens than this are not worth a second thread.
const TOKENS_TO_SHARE: usize = 8;

/// The tokens of a sequence that go into one block.
#[derive(Debug, Clone, Copy)]
struct BlockWrite {
    /// The number of the sequence.
    span: usize,
    block: u32,
    /// The place of the first token in the block.
    slot: usize,
    /// The row of the first token in the step.
    row: usize,
    tokens: usize,
}

/// All new tokens of a step, block by block. No block is there twice.
#[derive(Debug)]
pub(crate) struct CacheWrites {
    blocks: Vec<BlockWrite>,
    tokens: usize,
}

impl CacheWrites {
    /// Where the new tokens of these sequences go.
    ///
    /// # Panics
    /// If two sequences write into one block, or a token has no block.
    pub(crate) fn of(spans: &[Span]) -> Self {
        let mut blocks = Vec::with_capacity(spans.len());
        for (number, span) in spans.iter().enumerate() {
            let mut done = 0;
            while done < span.tokens {
                let position = span.first_position + done;
                let slot = position % BLOCK_TOKENS;
                let tokens = (span.tokens - done).min(BLOCK_TOKENS - slot);
                let block = span.blocks[position / BLOCK_TOKENS];
                blocks.push(BlockWrite { span: number, block, slot, row: span.first_row + done, tokens });
                done += tokens;
            }
        }
        let mut written: Vec<u32> = blocks.iter().map(|write| write.block).collect();
        written.sort_unstable();
        assert!(written.is_sorted_by(|one, other| one < other), "a block is written by one sequence");
        Self { blocks, tokens: spans.iter().map(|span| span.tokens).sum() }
    }

    /// Writes keys and values, one after the other from column `first` of every row on, and marks the sequences some of
    /// whose numbers are not finite as they are stored.
    ///
    /// # Panics
    /// If the cache has no such block, or a row has other numbers than the cache.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    pub(crate) fn write(
        &self,
        Processor { set, pool }: &mut Processor,
        states: &States,
        first: usize,
        store: &mut KvStore,
        finite: &mut [bool],
    ) {
        let width = (states.columns() - first) / 2;
        let (layout, numbers) = (store.layout, BlockParts::new(store));
        let (set, threads) = (*set, pool.threads());
        let write = |index: usize, finite: &mut bool| {
            let BlockWrite { block, slot, row, tokens, .. } = self.blocks[index];
            // One token in each of many blocks is little work, and most of it waits for memory.
            if let Some(next) = self.blocks.get(index + threads).filter(|next| next.tokens == 1 && next.slot > 0) {
                numbers.prefetch(layout, next.block, next.slot);
            }
            // SAFETY: no block is there twice, and each index is worked on once.
            let mut block = unsafe { numbers.block(layout, block) };
            // A block that is written as a whole has nothing left of what was there.
            if slot == 0 && tokens < BLOCK_TOKENS {
                block.clear();
            }
            for token in 0..tokens {
                let (keys, values) = states.row(row + token)[first..].split_at(width);
                *finite &= block.write(set, layout, slot + token, (keys, values));
            }
        };
        let mut all_finite = vec![true; self.blocks.len()];
        if self.tokens < TOKENS_TO_SHARE {
            all_finite.iter_mut().enumerate().for_each(|(index, finite)| write(index, finite));
        } else {
            pool.for_each_mut(&mut all_finite, &write);
        }
        for (write, is_finite) in self.blocks.iter().zip(all_finite) {
            finite[write.span] &= is_finite;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first_row: usize, tokens: usize, first_position: usize, blocks: &[u32]) -> Span {
        let blocks = blocks.to_vec();
        Span { first_row, tokens, first_position, blocks, slot: 0, adapter: None, snapshots: Vec::new() }
    }

    #[test]
    fn tokens_are_where_their_positions_say() {
        let writes = CacheWrites::of(&[span(0, 1, 40, &[7, 9]), span(1, 70, 30, &[1, 2, 3, 4])]);
        let found: Vec<_> =
            writes.blocks.iter().map(|one| (one.span, one.block, one.slot, one.row, one.tokens)).collect();
        assert_eq!(found, [(0, 9, 8, 0, 1), (1, 1, 30, 1, 2), (1, 2, 0, 3, 32), (1, 3, 0, 35, 32), (1, 4, 0, 67, 4)]);
        assert_eq!(writes.tokens, 71);
    }

    #[test]
    #[should_panic(expected = "a block is written by one sequence")]
    fn no_two_sequences_write_into_one_block() {
        CacheWrites::of(&[span(0, 1, 3, &[5]), span(1, 1, 4, &[5])]);
    }
}
