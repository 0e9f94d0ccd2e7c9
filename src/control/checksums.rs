//! Checksums of the weights, by which a trainer and a server compare what they have.

use std::collections::BTreeMap;

use super::{
    Control, ControlError,
    reading::{Reading, blocking, on_all_cores, parts, read},
};
use crate::{
    engine::{Engine, EngineControl, EngineError, UpdateError, WeightTensor},
    weights::checksum::Checksum,
};

const RESET_AMID_UPDATE: ControlError =
    ControlError::State("weights cannot be reset while a weight update is active: finish it first");

fn summed(tensor: WeightTensor) -> (String, Checksum) {
    let sum = Checksum::of_tensor(&tensor);
    (tensor.name, sum)
}

impl Control {
    /// Has all weights count as lost, so that what is compared afterwards was sent afterwards; vLLM sets them to zero.
    /// Requests are refused until every tensor has been sent, and there is no other way back.
    ///
    /// # Errors
    ///
    /// If the engine cannot replace its weights, or while an update is active.
    pub async fn reset_weights(&self) -> Result<(), ControlError> {
        let engine = self.of_engine("have its weights sent again")?;
        engine.replaces_weights()?;
        let _state = self.idle(RESET_AMID_UPDATE).await?;
        engine.lose_weights().await?;
        self.has_changed();
        Ok(())
    }

    /// Returns the checksum of every tensor, by name: of its name, type, shape and bytes as the engine holds them.
    ///
    /// # Errors
    ///
    /// If the engine cannot read its weights, or while they are replaced: what is there then is no version's.
    pub async fn checksums(&self) -> Result<BTreeMap<String, Checksum>, ControlError> {
        of_tensors(self.of_engine("read its weights")?).await
    }
}

/// Returns the checksum of all that an engine holds; `None` for an engine whose weights nobody can read.
///
/// # Errors
///
/// As [`Control::checksums`].
pub async fn model_checksum(engine: &dyn Engine) -> Result<Option<Checksum>, ControlError> {
    let Some(engine) = engine.control() else { return Ok(None) };
    Ok(Some(Checksum::of_model(&of_tensors(engine).await?)))
}

async fn of_tensors(engine: &dyn EngineControl) -> Result<BTreeMap<String, Checksum>, ControlError> {
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
