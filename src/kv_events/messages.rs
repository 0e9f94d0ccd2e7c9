//! Events as vLLM's `KVEventBatch` in msgpack, byte for byte as msgspec writes it.

use std::time::UNIX_EPOCH;

use rmp::{
    Marker,
    encode::{ByteBuf, write_array_len, write_f64, write_map_len, write_nil, write_sint, write_str, write_uint},
};

use crate::engine::cache_events::{BlockKeys, CacheEvent, CacheEventBatch, StoredBlocks};

/// Where blocks are, for whoever tells tiers apart: those that can be used at once.
const MEDIUM: &str = "GPU";
/// All layers have one group of blocks.
const GROUP: u64 = 0;
/// How vLLM calls layers whose keys and values are kept for all tokens.
const KIND: &str = "full_attention";
/// There is one process.
const RANK: u64 = 0;

/// A batch of events of blocks with so many tokens.
pub(super) fn batch(batch: &CacheEventBatch, block_size: usize) -> Vec<u8> {
    let mut out = Out(ByteBuf::new());
    let since = batch.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    out.array(3);
    out.float(since.as_secs_f64());
    out.array(batch.events.len());
    for event in &batch.events {
        match event {
            CacheEvent::Stored(stored) => out.stored(stored, block_size),
            CacheEvent::Removed(hashes) => out.removed(hashes),
            CacheEvent::Cleared => out.tagged("AllBlocksCleared", 0),
        }
    }
    out.number(RANK);
    out.0.into_vec()
}

/// Writing into memory does not fail.
struct Out(ByteBuf);

impl Out {
    fn stored(&mut self, stored: &StoredBlocks, block_size: usize) {
        // msgspec takes the header for all sixteen fields that there could be, whatever is left out.
        self.0.as_mut_vec().extend([Marker::Map16.to_u8(), 0, 11]);
        self.text("type");
        self.text("BlockStored");
        self.text("block_hashes");
        self.numbers(&stored.hashes);
        self.text("parent_block_hash");
        self.optional(stored.parent, Self::number);
        self.text("token_ids");
        self.array(stored.token_ids.len());
        stored.token_ids.iter().for_each(|id| self.number(u64::from(*id)));
        self.text("block_size");
        self.number(block_size as u64);
        self.text("lora_id");
        self.optional(stored.adapter.as_ref(), |out, (number, _)| out.number(*number));
        self.text("medium");
        self.text(MEDIUM);
        self.text("lora_name");
        self.optional(stored.adapter.as_ref(), |out, (_, name)| out.text(name));
        self.text("extra_keys");
        self.array(stored.keys.len());
        let adapter = stored.adapter.as_ref().map(|(_, name)| &**name);
        stored.keys.iter().for_each(|keys| self.keys(keys, adapter));
        self.text("group_idx");
        self.number(GROUP);
        self.text("kv_cache_spec_kind");
        self.text(KIND);
    }

    /// What the hash of a block depends on besides its tokens; nil for nothing.
    fn keys(&mut self, BlockKeys { images, salt }: &BlockKeys, adapter: Option<&str>) {
        // vLLM has no salt that is empty.
        let salt = salt.as_deref().filter(|salt| !salt.is_empty());
        let length = images.len() + usize::from(adapter.is_some()) + usize::from(salt.is_some());
        if length == 0 {
            return self.nil();
        }
        self.array(length);
        if let Some(name) = adapter {
            self.text(name);
        }
        for (image, start) in images {
            self.array(2);
            self.text(image);
            let _ = write_sint(&mut self.0, *start);
        }
        if let Some(salt) = salt {
            self.text(salt);
        }
    }

    fn removed(&mut self, hashes: &[u64]) {
        self.tagged("BlockRemoved", 3);
        self.text("block_hashes");
        self.numbers(hashes);
        self.text("medium");
        self.text(MEDIUM);
        self.text("group_idx");
        self.number(GROUP);
    }

    /// The beginning of a map with this type and so many fields more.
    fn tagged(&mut self, name: &str, fields: u32) {
        let _ = write_map_len(&mut self.0, fields + 1);
        self.text("type");
        self.text(name);
    }

    fn numbers(&mut self, numbers: &[u64]) {
        self.array(numbers.len());
        for number in numbers {
            self.number(*number);
        }
    }

    fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.nil(),
        }
    }

    fn array(&mut self, length: usize) {
        let length = u32::try_from(length).expect("fewer than 2^32 elements");
        let _ = write_array_len(&mut self.0, length);
    }

    fn number(&mut self, number: u64) {
        let _ = write_uint(&mut self.0, number);
    }

    fn float(&mut self, number: f64) {
        let _ = write_f64(&mut self.0, number);
    }

    fn text(&mut self, text: &str) {
        let _ = write_str(&mut self.0, text);
    }

    fn nil(&mut self) {
        let _ = write_nil(&mut self.0);
    }
}
