//! What computed turns: the engine, and the weights that it had, told apart from all other weights by a checksum.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CaptureError, Generation, Trajectories, TurnRecord};

/// Weights of one process, and what computed with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightSet {
    /// The process that served, by an id that no other one has.
    pub process: Arc<str>,
    /// How often the process had replaced the weights.
    pub number: u64,
    /// The checksum of the weights as the engine held them, see docs/control-plane.md.
    pub checksum: String,
    /// What computed.
    pub computed_by: ComputedBy,
}

/// Whatever else than weights decides the bits of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputedBy {
    /// The version of tito.
    pub tito: String,
    /// The engine.
    pub engine: String,
    /// The device with its kernels.
    pub device: String,
    /// The type of its arithmetic.
    pub dtype: String,
}

/// The key of a set's record.
pub(super) fn weights_key(process: &str, number: u64) -> String {
    format!("weights {process} {number:016x}")
}

impl Trajectories {
    /// Keeps what computed the turns of a process with weights of this number. It takes a few hundred bytes, which do not count
    /// among those of turns, and stays as long as the store.
    ///
    /// # Errors
    ///
    /// If the store failed.
    pub fn keep_weights(&self, set: &WeightSet) -> Result<(), CaptureError> {
        let bytes = serde_json::to_vec(set).map_err(|error| CaptureError::Failed(error.to_string()))?;
        self.write(Vec::new(), vec![(weights_key(&set.process, set.number), bytes.into())])
    }

    /// Reads a record, and what is known of the weights that sampled it.
    pub(super) fn decoded(&self, bytes: &[u8]) -> Result<TurnRecord, CaptureError> {
        let mut record = TurnRecord::decode(bytes)?;
        let Generation { process, weights, .. } = &mut record.generation;
        for weights in weights {
            weights.checksum = self.weights(process, weights.number)?.map(|set| set.checksum);
        }
        Ok(record)
    }

    /// What computed a turn; `None` where nobody knew it in time.
    ///
    /// # Errors
    ///
    /// If the store failed.
    pub fn weights(&self, process: &str, number: u64) -> Result<Option<WeightSet>, CaptureError> {
        let Some(bytes) = self.store.read(&weights_key(process, number))? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| CaptureError::Corrupted(error.to_string()))
    }
}
