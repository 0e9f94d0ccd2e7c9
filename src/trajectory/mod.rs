//! Trajectories: the turns that were generated, joined by their ids to the conversations that they belong to.
//!
//! Owns which turn continues which, what is kept of a turn, for how long, and the sequences that a trainer takes. Turns
//! are joined by ids only: a turn continues the one whose whole sequence, prompt and sampled ids, is the longest prefix
//! of its prompt. Two continuations of a turn are branches. Refuses to tell turns apart by text, and to know HTTP or
//! the formats of trainers.
//!
//! ```text
//! Generation ─ capture ─▶ search      fingerprints of all prefixes of the prompt find turns, the longest first
//!                       ─▶ compare    the ids themselves, turn by turn, since a fingerprint proves nothing
//!                       ─▶ write      what the prompt adds to those of its parent, what was sampled: acknowledged
//!                       ─▶ enter      now the turn is seen, and others can continue it
//!                       ─▶ settle     the oldest trajectories leave until the rest fits
//! ```

mod computed;
mod error;
mod fingerprint;
mod given_experts;
mod image_files;
mod images;
mod index;
mod join;
mod listing;
mod masks;
mod notes;
mod record;
mod rescored;
mod room;
mod said;
mod sampling;
mod sequence;
#[cfg(test)]
mod tests;
mod totals;
mod weight;
mod writing;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;

pub use computed::{ComputedBy, WeightSet};
pub use error::CaptureError;
pub use given_experts::GivenExperts;
pub use images::ImageUsed;
pub use listing::{Filter, TrajectorySummary};
pub use masks::PackedMasks;
pub use notes::{MOST_TAGS, Note, Noted, Notes};
pub use record::{AdapterUsed, ContinuityFound, Ended, Generation, Place, TurnRecord, WeightsUsed};
pub use rescored::Rescored;
pub use said::Said;
pub use sampling::SamplingUsed;
pub use sequence::{Sequence, SequenceKey, SequenceKeys, SequenceTurn, Unit};

use crate::store::BatchStore;
use index::{Index, notes_key, turn_key};
use weight::Weight;
use writing::Writer;

/// Whose a trajectory is; `None` where all clients are one.
pub type Owner = Option<Arc<str>>;

/// What a server decides about trajectories.
#[derive(Debug, Clone, Copy)]
pub struct CapturePolicy {
    /// The most bytes that turns may take.
    pub bytes: u64,
    /// For how long a trajectory is kept to which nothing is added; `None` for as long as there is room.
    pub ttl: Option<Duration>,
    /// Whether messages, tools and stop strings are kept beside the ids.
    pub texts: bool,
    /// Whether the files of images are kept, each once.
    pub images: bool,
}

/// All turns that were captured. Methods block, on a disk for as long as it takes to read or write: call them where a
/// thread may wait.
pub struct Trajectories {
    store: Arc<dyn BatchStore>,
    writer: Writer,
    policy: CapturePolicy,
    index: Mutex<Index>,
    /// Held while notes are changed, so that no change is lost to another one.
    noting: Mutex<()>,
    /// Held while trajectories leave, until the store has forgotten their records.
    leaving: Mutex<()>,
}

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Trajectories {
    /// Opens what a store has of earlier processes; all of it is read.
    ///
    /// # Errors
    ///
    /// If what is there is not what was written.
    pub fn open(store: Arc<dyn BatchStore>, policy: CapturePolicy) -> Result<Self, CaptureError> {
        let this = Self::restored(store, policy, |_| {})?;
        this.expire(now());
        this.settle(None)?;
        Ok(this)
    }

    /// Opens what a store has, for somebody who may read all of it: every trajectory belongs to the owner `None`. Nothing is
    /// deleted by this, however old or large it is.
    ///
    /// # Errors
    ///
    /// If what is there is not what was written.
    pub fn open_to_look(store: Arc<dyn BatchStore>) -> Result<Self, CaptureError> {
        let policy = CapturePolicy { bytes: u64::MAX, ttl: None, texts: true, images: true };
        Self::restored(store, policy, |record| record.generation.owner = None)
    }

    /// Reads all that a store has; `change` is what becomes of each turn before it is entered.
    fn restored(
        store: Arc<dyn BatchStore>,
        policy: CapturePolicy,
        change: impl Fn(&mut TurnRecord),
    ) -> Result<Self, CaptureError> {
        let mut index = Index::new();
        let mut ids = store.ids()?;
        ids.sort();
        let (turns, others): (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| id.starts_with("turn "));
        let (images, notes): (Vec<_>, Vec<_>) = others.into_iter().partition(|id| id.starts_with(images::PREFIX));
        for id in images {
            index.restore_image(&id)?;
        }
        for id in turns {
            let Some(bytes) = store.read(&id)? else { continue };
            let mut record = TurnRecord::decode(&bytes)?;
            change(&mut record);
            if turn_key(record.place.number) != id {
                return Err(CaptureError::Corrupted(format!("a turn of another number is kept as `{id}`")));
            }
            index.restore(&record, Weight::of(&record, &bytes))?;
        }
        index.forget_unused_images();
        for id in notes {
            let number = id.strip_prefix("notes ").and_then(|number| u64::from_str_radix(number, 16).ok());
            let Some(tree) = number else { continue };
            let Some(bytes) = store.read(&id)? else { continue };
            let notes = serde_json::from_slice(&bytes).map_err(|error| CaptureError::Corrupted(error.to_string()))?;
            // Those of a trajectory that is gone leave.
            index.attach(tree, notes, bytes.len());
        }
        let (writer, index) = (Writer::new(Arc::clone(&store))?, Mutex::new(index));
        Ok(Self { store, writer, policy, index, noting: Mutex::default(), leaving: Mutex::default() })
    }

    /// Whether texts are kept beside the ids.
    pub fn keeps_texts(&self) -> bool {
        self.policy.texts
    }

    /// Whether the files of images are kept.
    pub fn keeps_images(&self) -> bool {
        self.policy.images
    }

    /// Forgets what is too old at a time, in seconds since 1970.
    fn expire(&self, now: f64) {
        if let Some(ttl) = self.policy.ttl {
            self.index.lock().expire(now - ttl.as_secs_f64());
        }
    }

    /// Writes a batch.
    fn write(&self, gone: Vec<String>, kept: Vec<(String, Arc<[u8]>)>) -> Result<(), CaptureError> {
        self.writer.write(gone, kept).map_err(|error| {
            // In its own words: what stores say of themselves speaks of responses.
            let error = CaptureError::from(error);
            tracing::error!(%error, "a trajectory was not written");
            error
        })
    }

    /// Reads the bytes of a turn; `None` if it is gone.
    fn read(&self, number: u64) -> Result<Option<Vec<u8>>, CaptureError> {
        Ok(self.store.read(&turn_key(number))?)
    }

    /// Forgets a trajectory, and says whether there was one.
    ///
    /// # Errors
    ///
    /// If the store failed; the trajectory is not shown any more, and is deleted as soon as the store can be written.
    pub fn delete(&self, owner: &Owner, id: &str) -> Result<bool, CaptureError> {
        let found = {
            let mut index = self.index.lock();
            let found = index.find(owner.as_ref(), id).map(|(number, _)| number);
            if let Some(number) = found {
                index.fell(number);
            }
            found
        };
        self.settle(None)?;
        Ok(found.is_some())
    }

    /// Changes what is attached to a trajectory.
    ///
    /// # Errors
    ///
    /// If the store failed; nothing is changed then.
    pub fn note(&self, owner: &Owner, id: &str, note: Note) -> Result<Noted, CaptureError> {
        let _noting = self.noting.lock();
        let (number, mut notes) = {
            let index = self.index.lock();
            let Some((number, tree)) = index.find(owner.as_ref(), id) else { return Ok(Noted::NoTrajectory) };
            if let Note::Reward { turn: Some(turn), .. } = &note
                && !tree.turns.iter().any(|number| index.nodes[number].id == *turn)
            {
                return Ok(Noted::NoTurn);
            }
            (number, tree.notes.clone())
        };
        let before = weight::of_notes(&notes);
        notes.change(note);
        if notes.tags.len() > MOST_TAGS {
            return Ok(Noted::TooManyTags);
        }
        let bytes = serde_json::to_vec(&notes).map_err(|error| CaptureError::Failed(error.to_string()))?;
        let (key, length) = (notes_key(number), bytes.len());
        if notes.is_empty() {
            let _leaving = self.leaving.lock();
            self.write(vec![key], Vec::new())?;
            self.index.lock().attach(number, notes.clone(), 0);
            return Ok(Noted::Done(notes));
        }
        self.check_size(number, weight::of_notes(&notes).saturating_sub(before), &[(&key, &bytes)])?;
        self.write(Vec::new(), vec![(key, bytes.into())])?;
        self.index.lock().attach(number, notes.clone(), length);
        self.settle_later(number);
        Ok(Noted::Done(notes))
    }
}
