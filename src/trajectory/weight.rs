//! What is known of trajectories without reading a record takes so many bytes. What records take, the store says.
//!
//! A table that has just doubled holds 7 entries in 16 places, and a node of a tree is half full at worst; an allocation
//! has 16 bytes of its own, and is rounded up. The constants are of such worst cases; a test compares them with what
//! 115,000 turns really take with their store: 1,497 bytes each in trajectories of ten turns, and 2,322 where each is a
//! trajectory (mimalloc, 29 November 2026), 100 of them those of the record. Memory that was freed does not count: until the
//! allocator gives it back, a process may have some 5 to 10 % more.

use super::{Notes, images, record::TurnRecord};

/// A turn: its entry, those of its ids in two scopes, its id, and its place in its trajectory.
const TURN: u64 = 930;
/// An id of a request, besides its letters: the entry that finds it, and the text.
const REQUEST: u64 = 150;
/// An image of a turn: the entry that finds its file, the key of that, and the link to it.
const IMAGE: u64 = 500;
/// A trajectory: its entry, its id, and the links to both.
const TREE: u64 = 1100;
/// The name of a session, besides its letters: it is kept by its trajectory and by the entry that finds it.
const SESSION: u64 = 150;
/// A reward of a turn, or a tag, besides its letters.
const NOTE: u64 = 120;

/// What a turn takes.
fn of_turn(record: &TurnRecord) -> u64 {
    let requests = &record.generation.request_ids;
    let images = IMAGE * record.generation.images.len() as u64;
    TURN + images + requests.iter().map(|id| REQUEST + id.len() as u64).sum::<u64>()
}

/// What a trajectory takes besides its turns and notes.
pub(super) fn of_tree(session: Option<&str>) -> u64 {
    TREE + session.map_or(0, |session| SESSION + session.len() as u64)
}

/// What notes take.
pub(super) fn of_notes(notes: &Notes) -> u64 {
    let rewards = notes.turn_rewards.keys().map(|turn| NOTE + turn.len() as u64);
    let tags = notes.tags.iter().map(|tag| NOTE + tag.len() as u64);
    rewards.chain(tags).sum()
}

/// What a turn takes: so many bytes for what is known of it, and a record of so many bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weight {
    pub(super) known: u64,
    pub(super) record: u64,
}

impl Weight {
    /// What a turn takes, and its record.
    pub(super) fn of(record: &TurnRecord, encoded: &[u8]) -> Self {
        // A file counts for each turn that has it: this is for bounds.
        let files = images::file_bytes(&record.generation.images);
        Self { known: of_turn(record), record: files.saturating_add(encoded.len() as u64) }
    }
}

/// The most that a store takes for so many records of so many bytes together. A store says itself what it takes; this is a
/// bound that needs no look at it: a chunk of 512 bytes or more takes less than three times its length, its keys take less
/// than it does, and what else belongs to a record less than 1,000 bytes.
pub(super) fn most_stored(records: usize, bytes: u64) -> u64 {
    (4 * bytes).saturating_add(1000 * records as u64)
}
