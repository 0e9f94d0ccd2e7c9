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

mod changing;
mod computed;
mod error;
mod fingerprint;
mod given_experts;
mod image_files;
mod images;
mod index;
mod join;
mod learnt;
mod listing;
mod masks;
mod notes;
mod opening;
mod promised;
mod record;
mod removed;
mod rescored;
mod room;
mod said;
mod sampling;
mod sequence;
#[cfg(test)]
mod tests;
mod totals;
mod unawaited;
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
pub use learnt::Learnt;
pub use listing::{Filter, TrajectorySummary};
pub use masks::PackedMasks;
pub use notes::{MOST_TAGS, Note, Noted, Notes};
pub use record::{AdapterUsed, ContinuityFound, Ended, Generation, Place, TurnRecord, WeightsUsed};
pub use rescored::Rescored;
pub use said::Said;
pub use sampling::SamplingUsed;
pub use sequence::{Sequence, SequenceKey, SequenceKeys, SequenceTurn, Unit};
pub use unawaited::UnawaitedTurn;

use crate::store::BatchStore;
use index::{Index, turn_key};
use removed::Removal;
use unawaited::Unawaited;
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
    unawaited: Unawaited,
}

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Trajectories {
    /// Counts a turn that is about to be kept and that no request waits for, until what is returned is dropped.
    pub fn keep_unawaited(&self) -> UnawaitedTurn {
        self.unawaited.turn()
    }

    /// Resolves when no such turn is being kept.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.unawaited.settled()
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
            let expired = self.index.lock().expire(now - ttl.as_secs_f64());
            Removal::Ttl.count(expired);
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
}
