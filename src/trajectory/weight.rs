//! What trajectories take: the bytes of records, and those of what is known of them without reading a record.
//!
//! A table that has just doubled holds 7 entries in 16 places, and a node of a tree is half full at worst; an allocation
//! has 16 bytes of its own, and is rounded up. The constants are of such worst cases; a test compares them with what
//! 115,000 turns really take: 1,472 bytes each in trajectories of ten turns, and 2,247 where each is a trajectory (glibc,
//! 23 November 2026), 100 of them those of the record.

use super::{Notes, record::TurnRecord};

/// A turn: its entry, those of its ids in two scopes, its id, and its place in its trajectory.
const TURN: u64 = 900;
/// An id of a request, besides its letters: the entry that finds it, and the text.
const REQUEST: u64 = 150;
/// A trajectory: its entry, its id, and the links to both.
const TREE: u64 = 1100;
/// The name of a session, besides its letters: it is kept by its trajectory and by the entry that finds it.
const SESSION: u64 = 150;
/// A reward of a turn, or a tag besides its letters.
const NOTE: u64 = 120;
/// What a store needs for a record besides the record: see its own bounds.
const RECORD: u64 = 250;

/// What a turn takes whose record has so many bytes.
pub(super) fn of_turn(record: &TurnRecord, encoded: usize) -> u64 {
    let requests = &record.generation.request_ids;
    TURN + RECORD + encoded as u64 + requests.iter().map(|id| REQUEST + id.len() as u64).sum::<u64>()
}

/// What a trajectory takes besides its turns and notes.
pub(super) fn of_tree(session: Option<&str>) -> u64 {
    TREE + session.map_or(0, |session| SESSION + session.len() as u64)
}

/// What notes take, with their record.
pub(super) fn of_notes(notes: &Notes) -> u64 {
    if notes.is_empty() {
        return 0;
    }
    let rewards = notes.turn_rewards.keys().map(|turn| NOTE + 2 * turn.len() as u64);
    let tags = notes.tags.iter().map(|tag| NOTE + 2 * tag.len() as u64);
    RECORD + rewards.chain(tags).sum::<u64>()
}
