//! Checksums of the weights, by which a trainer and a server compare what they have.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::{Control, ControlError};
use crate::engine::{TensorInfo, UpdateError, Visit};

impl Control {
    /// Returns the BLAKE3 checksum of every tensor, by name: of its bytes as the engine holds them.
    ///
    /// # Errors
    ///
    /// If the engine cannot read its weights.
    pub async fn checksums(&self) -> Result<BTreeMap<String, String>, ControlError> {
        let engine = self.of_engine("read its weights")?;
        if engine.lacking() > 0 {
            let missing = engine.lacking();
            return Err(crate::engine::EngineError::WithoutWeights { missing }.into());
        }
        let names = engine.tensors().iter().map(|tensor| tensor.name.clone()).collect();
        let sums = Arc::new(Mutex::new(BTreeMap::new()));
        let kept = Arc::clone(&sums);
        let visit: Visit = Box::new(move |tensor: &TensorInfo, bytes: &[u8]| {
            kept.lock().insert(tensor.name.clone(), blake3::hash(bytes).to_hex().to_string());
        });
        engine.read_weights(names, visit).await.map_err(UpdateError::from)?;
        let sums = std::mem::take(&mut *sums.lock());
        Ok(sums)
    }
}
