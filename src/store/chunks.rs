//! Records as trees of chunks, so that records which say the same in part keep that part once.
//!
//! A long record is cut where its bytes say so, not at fixed places: what two records have in common is cut alike wherever
//! it stands. The keys of the chunks are cut too, where the keys say so, until few are left: the root. So a record that goes
//! on where another one ends adds what is new and one path to the root.
//!
//! A chunk stays for as long as something holds it: a root, or a chunk of keys. Its key is the hash of its bytes and of its
//! level, so that a chunk that is read proves itself, and keys that a client sends are never followed.

use std::collections::{HashMap, hash_map::Entry};

use fastcdc::v2020::FastCDC;

/// The BLAKE3 hash of a chunk's level and of its bytes.
pub(super) type ChunkKey = [u8; KEY];

const KEY: usize = 32;

/// What is longer is cut, into chunks of about this length.
const AVERAGE: usize = 2048;
const LEAST: usize = AVERAGE / 4;
const MOST: usize = 4 * AVERAGE;

/// A record, cut up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) root: Root,
    /// All chunks below the root.
    chunks: HashMap<ChunkKey, Vec<u8>>,
}

/// What stands for a record: its bytes, or the keys of its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Root {
    /// How many levels of keys there are: 0 where `bytes` are the record.
    pub(super) level: u8,
    pub(super) bytes: Vec<u8>,
}

/// Where chunks are read.
pub(super) trait ReadChunk {
    /// What goes wrong.
    type Error;

    /// The bytes of a chunk.
    fn read(&self, key: ChunkKey) -> Result<Vec<u8>, Self::Error>;

    /// What is said when chunks contradict each other.
    fn broken(&self, what: &str) -> Self::Error;
}

/// Where chunks are kept.
pub(super) trait Chunks {
    /// What goes wrong.
    type Error;

    /// How often a chunk is held; `None` if it is not there.
    fn holders(&self, key: ChunkKey) -> Result<Option<u64>, Self::Error>;

    /// Changes how often a chunk is held.
    fn set_holders(&mut self, key: ChunkKey, holders: u64) -> Result<(), Self::Error>;

    /// Keeps a chunk that is not there, and is held once.
    fn insert(&mut self, key: ChunkKey, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Forgets a chunk, and returns its bytes.
    fn remove(&mut self, key: ChunkKey) -> Result<Vec<u8>, Self::Error>;

    /// What is said when chunks contradict each other.
    fn broken(&self, what: &str) -> Self::Error;
}

impl Tree {
    /// Cuts up a record.
    pub(super) fn of(record: &[u8]) -> Self {
        let mut root = Root { level: 0, bytes: record.to_vec() };
        let mut chunks = HashMap::new();
        while root.bytes.len() > AVERAGE {
            let mut keys = Vec::new();
            let mut rest = root.bytes.as_slice();
            for length in if root.level == 0 { cuts(rest) } else { cuts_of_keys(rest) } {
                let (chunk, after) = rest.split_at(length);
                rest = after;
                let key = key(root.level, chunk);
                keys.extend(key);
                chunks.entry(key).or_insert_with(|| chunk.to_vec());
            }
            root = Root { level: root.level + 1, bytes: keys };
        }
        Self { root, chunks }
    }

    /// The chunks with their keys, in no order.
    pub(super) fn chunks(&self) -> impl Iterator<Item = (&ChunkKey, &Vec<u8>)> {
        self.chunks.iter()
    }

    /// The lengths of all chunks below the root.
    pub(super) fn lengths(&self) -> HashMap<ChunkKey, usize> {
        self.chunks.iter().map(|(key, chunk)| (*key, chunk.len())).collect()
    }

    /// Keeps the chunks of a record.
    pub(super) fn hold<C: Chunks>(&self, kept: &mut C) -> Result<(), C::Error> {
        self.hold_keys(self.root.level, &self.root.bytes, kept)
    }

    /// Holds the chunks below a root or a chunk of `level`.
    fn hold_keys<C: Chunks>(&self, level: u8, bytes: &[u8], kept: &mut C) -> Result<(), C::Error> {
        for key in keys(level, bytes) {
            if let Some(holders) = kept.holders(key)? {
                kept.set_holders(key, holders + 1)?;
            } else {
                let chunk = &self.chunks[&key];
                kept.insert(key, chunk)?;
                self.hold_keys(level - 1, chunk, kept)?;
            }
        }
        Ok(())
    }
}

impl Root {
    /// Lets the chunks of a record go; those that nothing holds are forgotten.
    pub(super) fn release<C: Chunks>(&self, kept: &mut C) -> Result<(), C::Error> {
        release(self.level, &self.bytes, kept)
    }

    /// Adds the lengths of all chunks below to those that are known.
    pub(super) fn lengths<C: ReadChunk>(&self, kept: &C, known: &mut HashMap<ChunkKey, usize>) -> Result<(), C::Error> {
        lengths(self.level, &self.bytes, kept, known)
    }

    /// Puts the record together.
    pub(super) fn record<C: ReadChunk>(self, kept: &C) -> Result<Vec<u8>, C::Error> {
        let Self { mut level, mut bytes } = self;
        while level > 0 {
            let mut below = Vec::new();
            for key in keys(level, &bytes) {
                let chunk = kept.read(key)?;
                if self::key(level - 1, &chunk) != key {
                    return Err(kept.broken("a chunk is not what was written"));
                }
                below.extend(chunk);
            }
            (level, bytes) = (level - 1, below);
        }
        Ok(bytes)
    }
}

fn release<C: Chunks>(level: u8, bytes: &[u8], kept: &mut C) -> Result<(), C::Error> {
    for key in keys(level, bytes) {
        match kept.holders(key)? {
            None | Some(0) => return Err(kept.broken("a chunk is missing")),
            Some(1) => {
                let chunk = kept.remove(key)?;
                release(level - 1, &chunk, kept)?;
            }
            Some(holders) => kept.set_holders(key, holders - 1)?,
        }
    }
    Ok(())
}

/// Adds the lengths of the chunks below a root or a chunk of `level`. What is below a chunk that is known is known too.
fn lengths<C: ReadChunk>(
    level: u8,
    bytes: &[u8],
    kept: &C,
    known: &mut HashMap<ChunkKey, usize>,
) -> Result<(), C::Error> {
    for key in keys(level, bytes) {
        if let Entry::Vacant(entry) = known.entry(key) {
            let chunk = kept.read(key)?;
            entry.insert(chunk.len());
            lengths(level - 1, &chunk, kept, known)?;
        }
    }
    Ok(())
}

fn key(level: u8, bytes: &[u8]) -> ChunkKey {
    blake3::Hasher::new().update(&[level]).update(bytes).finalize().into()
}

/// The keys that a root or a chunk of `level` consists of; a record has none.
fn keys(level: u8, bytes: &[u8]) -> impl Iterator<Item = ChunkKey> + '_ {
    let keys = if level > 0 { bytes } else { &[] };
    keys.as_chunks().0.iter().copied()
}

/// The lengths of the chunks of a record.
fn cuts(record: &[u8]) -> Vec<usize> {
    FastCDC::new(record, LEAST, AVERAGE, MOST).map(|cut| cut.length).collect()
}

/// The lengths of the chunks of a list of keys. Keys are as good as random, so that one in so many begins with zeros: a
/// chunk ends there. No chunk has one key only, so that each level is shorter than the one below.
fn cuts_of_keys(bytes: &[u8]) -> Vec<usize> {
    const MASK: usize = AVERAGE / KEY - 1;
    let (mut cuts, mut length) = (Vec::new(), 0);
    for key in bytes.as_chunks::<KEY>().0 {
        length += KEY;
        let ends_here = usize::from(u16::from_le_bytes([key[0], key[1]])) & MASK == 0;
        if (ends_here && length > KEY) || length >= MOST {
            cuts.push(std::mem::take(&mut length));
        }
    }
    cuts.extend((length > 0).then_some(length));
    cuts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::tests::noise;

    /// Chunks in a map.
    #[derive(Default)]
    struct Map(HashMap<ChunkKey, (u64, Vec<u8>)>);

    impl Chunks for Map {
        type Error = String;

        fn holders(&self, key: ChunkKey) -> Result<Option<u64>, String> {
            Ok(self.0.get(&key).map(|(holders, _)| *holders))
        }

        fn set_holders(&mut self, key: ChunkKey, holders: u64) -> Result<(), String> {
            self.0.get_mut(&key).ok_or("missing")?.0 = holders;
            Ok(())
        }

        fn insert(&mut self, key: ChunkKey, bytes: &[u8]) -> Result<(), String> {
            let earlier = self.0.insert(key, (1, bytes.to_vec()));
            if earlier.is_some() { Err("inserted twice".to_owned()) } else { Ok(()) }
        }

        fn remove(&mut self, key: ChunkKey) -> Result<Vec<u8>, String> {
            Ok(self.0.remove(&key).ok_or("missing")?.1)
        }

        fn broken(&self, what: &str) -> String {
            what.to_owned()
        }
    }

    impl ReadChunk for Map {
        type Error = String;

        fn read(&self, key: ChunkKey) -> Result<Vec<u8>, String> {
            Ok(self.0.get(&key).ok_or("missing")?.1.clone())
        }

        fn broken(&self, what: &str) -> String {
            what.to_owned()
        }
    }

    impl Map {
        fn bytes(&self) -> usize {
            self.0.values().map(|(_, bytes)| KEY + bytes.len()).sum()
        }
    }

    /// A record of a few pieces, of which there are few different ones.
    fn a_record() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![0..40_usize, Just(5000), Just(70_000), Just(600_000)];
        let piece = prop_oneof![
            3 => (0..3_u64, length.clone()).prop_map(|(seed, length)| noise(seed, length)),
            1 => (0..2_u8, length).prop_map(|(byte, length)| vec![byte; length]),
        ];
        proptest::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn records_are_what_they_were_whatever_else_comes_and_goes(
            records in proptest::collection::vec(a_record(), 1..8), order in any::<u64>()
        ) {
            let mut kept = Map::default();
            let trees: Vec<_> = records.iter().map(|record| Tree::of(record)).collect();
            for tree in &trees {
                tree.hold(&mut kept).unwrap();
            }
            let mut left: Vec<usize> = (0..records.len()).collect();
            while !left.is_empty() {
                for index in &left {
                    prop_assert_eq!(&trees[*index].root.clone().record(&kept).unwrap(), &records[*index]);
                }
                let needed: HashMap<_, _> = left.iter().flat_map(|index| trees[*index].chunks()).collect();
                prop_assert_eq!(needed.len(), kept.0.len());
                let gone = left.remove(usize::try_from(order % left.len() as u64).unwrap());
                trees[gone].root.release(&mut kept).unwrap();
            }
            prop_assert!(kept.0.is_empty());
        }
    }

    /// The records of a conversation, each of which has all that was said before.
    #[test]
    fn a_conversation_takes_little_more_than_its_last_record() {
        let said: Vec<Vec<u8>> = (0..200).map(|turn| noise(turn, 3000)).collect();
        let mut kept = Map::default();
        let mut roots = 0;
        for turns in 1..=said.len() {
            let tree =
                Tree::of(&[noise(1000 + turns as u64, 400), said[..turns].concat(), noise(turns as u64, 300)].concat());
            roots += tree.root.bytes.len();
            tree.hold(&mut kept).unwrap();
        }
        let last = 200 * 3000;
        let copied = last * 201 / 2;
        let taken = kept.bytes() + roots;
        assert!(taken < 8 * last, "{taken} bytes for {last}, {copied} with copies");
        assert!(taken < copied / 12, "{taken} bytes for {last}, {copied} with copies");
    }

    #[test]
    fn a_change_in_the_middle_changes_few_chunks() {
        let record = noise(7, 1_000_000);
        let mut changed = record.clone();
        changed.splice(500_000..500_000, *b"something is said here");
        let (one, other) = (Tree::of(&record), Tree::of(&changed));
        let new = other.chunks().filter(|(key, _)| !one.chunks.contains_key(*key)).count();
        assert!(new <= 6, "{new} of {}", other.chunks.len());
    }

    #[test]
    fn a_chunk_that_is_not_what_was_written_is_an_error() {
        let tree = Tree::of(&noise(3, 20_000));
        let mut kept = Map::default();
        tree.hold(&mut kept).unwrap();
        kept.0.values_mut().next().unwrap().1[5] ^= 1;
        assert_eq!(tree.root.record(&kept).unwrap_err(), "a chunk is not what was written");
    }
}
