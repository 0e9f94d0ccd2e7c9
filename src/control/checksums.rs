//! Checksums of the weights, by which a trainer and a server compare what they have.

use std::collections::BTreeMap;

use super::{
    Control, ControlError,
    reading::{Reading, blocking, on_all_cores, parts, read},
};
use crate::{
    engine::{EngineError, UpdateError, WeightTensor},
    weights::checksum::Checksum,
};

fn summed(tensor: WeightTensor) -> (String, Checksum) {
    let sum = Checksum::of_tensor(&tensor);
    (tensor.name, sum)
}

impl Control {
    /// Returns the checksum of every tensor, by name: of its name, type, shape and bytes as the engine holds them.
    ///
    /// # Errors
    ///
    /// If the engine cannot read its weights, or while they are replaced: what is there then is no version's.
    pub async fn checksums(&self) -> Result<BTreeMap<String, Checksum>, ControlError> {
        let engine = self.of_engine("read its weights")?;
        if engine.lacking() > 0 {
            let missing = engine.lacking();
            return Err(EngineError::WithoutWeights { missing }.into());
        }
        // An update that begins and ends between two parts leaves no other trace, if it is undone.
        let begun = engine.begun_updates();
        let tensors = engine.tensors();
        let names = tensors.iter().map(|tensor| tensor.name.as_str());
        let mut sums = BTreeMap::new();
        for names in parts(&tensors, names).map_err(|name| EngineError::Failed(format!("there is no tensor {name}")))? {
            let held = read(engine, names, Reading::Settled).await?;
            sums.extend(blocking(move || on_all_cores(held, |tensor| Ok(summed(tensor)))).await?);
        }
        if engine.begun_updates() == begun { Ok(sums) } else { Err(UpdateError::Unsettled.into()) }
    }
}
