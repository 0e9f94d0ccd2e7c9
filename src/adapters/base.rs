//! The weights of the base that an adapter has with it, compared with those that are served.
//!
//! They are compared when the adapter is loaded, and let go. What is kept of them is a checksum of each tensor that was served
//! then. After an update of the base, the first request of the adapter looks whether the tensors are still the same.

use std::collections::BTreeMap;

use super::AdapterError;
use crate::{
    engine::{Engine, EngineControl, TensorInfo},
    weights::{
        WeightTensor,
        checksum::{Checksum, TensorHasher},
        peft::{PeftAdapter, is_same},
    },
};

/// The tensors of the base that an adapter was compared with.
#[derive(Debug)]
pub(super) struct Compared {
    /// Their checksums, by their names, when the adapter was loaded.
    checksums: BTreeMap<String, Checksum>,
    seen: tokio::sync::Mutex<Seen>,
}

/// What was seen of the tensors last.
#[derive(Debug)]
struct Seen {
    /// How many updates of the base were begun by then.
    updates: u64,
    /// A tensor that had other numbers than at the load.
    changed: Option<String>,
}

impl Compared {
    /// Compares the weights of the base that an adapter has with it with those that are served, and lets them go. `tensors`
    /// are the names of the tensors that its modules change. `None` for an adapter that has none with it.
    pub(super) async fn of(
        engine: &dyn Engine,
        weights: &mut PeftAdapter,
        tensors: Vec<String>,
    ) -> Result<Option<Self>, AdapterError> {
        let saved = weights.modules.iter_mut().zip(tensors);
        let saved: Vec<(String, WeightTensor)> =
            saved.filter_map(|(module, tensor)| Some((tensor, module.base.take()?))).collect();
        if saved.is_empty() {
            return Ok(None);
        }
        let control = engine.control().ok_or(AdapterError::Off)?;
        // Counted first, so that an update that comes meanwhile is one that is looked at.
        let updates = control.begun_updates();
        let names = saved.iter().map(|(name, _)| name.clone()).collect();
        let look = move |info: &TensorInfo, bytes: &[u8]| {
            saved.iter().filter(|(name, _)| *name == info.name).all(|(_, saved)| is_same(saved, info.dtype, bytes))
        };
        let found = read(control, names, look).await?;
        if let Some((name, _)) = found.iter().find(|(_, (is_same, _))| !is_same) {
            return Err(AdapterError::Model(format!(
                "the adapter has other numbers for {name} than the model that is served, so it was trained with another one"
            )));
        }
        let checksums = found.into_iter().map(|(name, (_, checksum))| (name, checksum)).collect();
        Ok(Some(Self { checksums, seen: tokio::sync::Mutex::new(Seen { updates, changed: None }) }))
    }

    /// Refuses the adapter where an update has changed the tensors since it was loaded.
    pub(super) async fn check(&self, engine: &dyn Engine) -> Result<(), AdapterError> {
        let control = engine.control().ok_or(AdapterError::Off)?;
        let mut seen = self.seen.lock().await;
        let updates = control.begun_updates();
        if updates != seen.updates {
            let found = read(control, self.checksums.keys().cloned().collect(), |_, _| true).await?;
            let is_other =
                |(name, own): &(&String, &Checksum)| found.get(*name).is_none_or(|(_, checksum)| checksum != *own);
            let changed = self.checksums.iter().find(is_other).map(|(name, _)| name.clone());
            *seen = Seen { updates, changed };
        }
        seen.changed.as_ref().map_or(Ok(()), |name| Err(AdapterError::OtherBase(name.clone())))
    }
}

/// Reads tensors of the base; returns what `look` says of each, and its checksum.
async fn read(
    control: &dyn EngineControl,
    names: Vec<String>,
    look: impl Fn(&TensorInfo, &[u8]) -> bool + Send + 'static,
) -> Result<BTreeMap<String, (bool, Checksum)>, AdapterError> {
    let (sender, found) = std::sync::mpsc::channel();
    let visit = move |info: &TensorInfo, bytes: Vec<u8>| {
        let mut hasher = TensorHasher::new(&info.name, info.dtype, &info.shape);
        hasher.update(&bytes);
        // Whoever asked may have gone.
        let _ = sender.send((info.name.clone(), (look(info, &bytes), hasher.finish())));
    };
    control.read_weights(names, Box::new(visit)).await.map_err(|error| AdapterError::of_weights(&error))?;
    Ok(found.try_iter().collect())
}
