//! What others are told of a block: the hash that all processes have for it, its tokens, and what else it depends on.

use std::sync::Arc;

use super::sequence::Sequence;
use crate::engine::{
    Adapter, AdapterId,
    cache_events::{BlockKeys, StoredBlocks},
    native::{
        backend::BLOCK_TOKENS,
        images::ImagePart,
        kv_cache::{BlockHash, NewBlock},
    },
};

/// A whole block of a sequence that was computed and is hashed.
pub(super) fn new_block(sequence: &mut Sequence, block: usize) -> NewBlock {
    hash(sequence, block + 1);
    let tokens = block * BLOCK_TOKENS..(block + 1) * BLOCK_TOKENS;
    let told = |hash: &BlockHash| hash.low_bits();
    let images = sequence.images.iter().flat_map(|images| images.within(tokens.clone()));
    let images = images.map(|part| (part.image.identity().to_string().into(), start(&part, tokens.start))).collect();
    let adapter = sequence.adapter.as_deref();
    NewBlock {
        hash: sequence.hashes[block + 1],
        adapter: adapter.map(Adapter::id),
        stored: StoredBlocks {
            hashes: vec![told(&sequence.told_hashes[block + 1])],
            parent: (block > 0).then(|| told(&sequence.told_hashes[block])),
            token_ids: sequence.token_ids[tokens.clone()].to_vec(),
            adapter: adapter.map(|adapter| (AdapterId::number(adapter.id()), Arc::clone(adapter.name()))),
            keys: vec![BlockKeys { images, salt: sequence.salt.clone().filter(|_| block == 0) }],
        },
    }
}

/// Hashes the first `blocks` blocks as all processes do. What a sequence has of these hashes stays true whatever weights come.
fn hash(sequence: &mut Sequence, blocks: usize) {
    if sequence.told_hashes.is_empty() {
        let adapter = sequence.adapter.as_ref().map(|adapter| &**adapter.name());
        sequence.told_hashes.push(BlockHash::told_root(adapter, sequence.salt.as_deref()));
    }
    while sequence.told_hashes.len() <= blocks {
        let block = sequence.told_hashes.len() - 1;
        let tokens = block * BLOCK_TOKENS..(block + 1) * BLOCK_TOKENS;
        let next = sequence.hash_from(sequence.told_hashes[block], tokens);
        sequence.told_hashes.push(next);
    }
}

/// Where an image begins, in tokens from the start of a block.
fn start(part: &ImagePart<'_>, block: usize) -> i64 {
    let signed = |position: usize| i64::try_from(position).expect("a position in a sequence");
    signed(part.first_token - part.rows.start) - signed(block)
}
