//! Checksums of the weights, by which a trainer and a server compare what they have.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::{Control, ControlError};
use crate::{
    engine::{TensorInfo, Visit},
    weights::checksum::{Checksum, TensorHasher},
};

impl Control {
    /// Returns the checksum of every tensor, by name: of its name, type, shape and bytes as the engine holds them.
    ///
    /// # Errors
    ///
    /// If the engine cannot read its weights.
    pub async fn checksums(&self) -> Result<BTreeMap<String, Checksum>, ControlError> {
        let engine = self.of_engine("read its weights")?;
        if engine.lacking() > 0 {
            let missing = engine.lacking();
            return Err(crate::engine::EngineError::WithoutWeights { missing }.into());
        }
        let names = engine.tensors().iter().map(|tensor| tensor.name.clone()).collect();
        let sums = Arc::new(Mutex::new(BTreeMap::new()));
        let kept = Arc::clone(&sums);
        let visit: Visit = Box::new(move |tensor: &TensorInfo, bytes: &[u8]| {
            let mut hasher = TensorHasher::new(&tensor.name, tensor.dtype, &tensor.shape);
            hasher.update(bytes);
            kept.lock().insert(tensor.name.clone(), hasher.finish());
        });
        engine.read_weights(names, visit).await?;
        let sums = std::mem::take(&mut *sums.lock());
        Ok(sums)
    }
}
