//! The checksums of all sets of weights that an engine has, one after the other, for whoever notes which ones sampled.

use std::{sync::Arc, time::Duration};

use tokio::time::Interval;

use super::model_checksum;
use crate::{engine::Engine, weights::checksum::Checksum};

/// How often it is looked whether there are new weights.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Sets of weights, as they come.
pub struct WeightSets {
    engine: Arc<dyn Engine>,
    /// The number of the weights that are not shown again.
    passed_over: Option<u64>,
    look: Interval,
}

impl WeightSets {
    /// Watches an engine; `None` for one whose weights nobody can read.
    pub fn of(engine: &Arc<dyn Engine>) -> Option<Self> {
        engine.control()?;
        Some(Self { engine: Arc::clone(engine), passed_over: None, look: tokio::time::interval(LOOK_AGAIN) })
    }

    /// Waits for weights that are not passed over, and that stay for long enough to be read; returns their number and their
    /// checksum. While an update is under way, or weights are given back, it goes on waiting.
    pub async fn next(&mut self) -> (u64, Checksum) {
        loop {
            self.look.tick().await;
            if self.passed_over == Some(self.engine.current_weights().number) {
                continue;
            }
            if let Some(numbered) = self.numbered().await {
                return numbered;
            }
        }
    }

    /// Shows the weights of this number no more, until others have come.
    pub fn pass_over(&mut self, number: u64) {
        self.passed_over = Some(number);
    }

    /// The weights that are there; `None` while there are none whose number it is.
    async fn numbered(&self) -> Option<(u64, Checksum)> {
        let control = self.engine.control()?;
        let now = || (control.begun_updates(), self.engine.current_weights().number);
        let before = now();
        let checksum = model_checksum(&*self.engine).await.ok()??;
        // An update that was begun and undone leaves the number as it was, and not the count.
        (now() == before).then_some((before.1, checksum))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::engine::{
        NewWeights, OnWeightsChange, UndoPolicy, WeightDtype, WeightTensor,
        native::{NativeEngine, NativeSettings, WeightsSource},
    };

    fn engine() -> Arc<dyn Engine> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/native/llama");
        let config = std::fs::read_to_string(directory.join("config.json")).unwrap();
        let weights = WeightsSource::Directory(directory);
        let settings = NativeSettings {
            threads: Some(1),
            kv_cache_bytes: 1 << 20,
            ..NativeSettings::new(weights, serde_json::from_str(&config).unwrap())
        };
        Arc::new(NativeEngine::load(&settings, &mut |_, _| ()).unwrap())
    }

    fn new_norm() -> NewWeights {
        NewWeights::Tensors(vec![WeightTensor {
            name: "model.norm.weight".to_owned(),
            dtype: WeightDtype::F32,
            shape: vec![64],
            bytes: 0.5_f32.to_le_bytes().repeat(64).into(),
        }])
    }

    #[tokio::test]
    async fn weights_that_are_half_written_have_no_checksum_of_a_version() {
        let engine = engine();
        let (sets, control) = (WeightSets::of(&engine).unwrap(), engine.control().unwrap());
        let before = sets.numbered().await.unwrap();
        assert_eq!(before.0, 0);
        control.begin_update(UndoPolicy::Memory).await.unwrap();
        assert_eq!(sets.numbered().await, None);
        control.write_weights(new_norm()).await.unwrap();
        assert_eq!(sets.numbered().await, None);
        control.cancel_update().await.unwrap();
        assert_eq!(sets.numbered().await, Some(before));
    }

    #[tokio::test]
    async fn each_set_of_weights_comes_until_it_is_passed_over() {
        let engine = engine();
        let mut sets = WeightSets::of(&engine).unwrap();
        let first = sets.next().await;
        assert_eq!((first.0, sets.next().await), (0, first));
        sets.pass_over(0);
        let control = engine.control().unwrap();
        control.begin_update(UndoPolicy::Memory).await.unwrap();
        control.write_weights(new_norm()).await.unwrap();
        control.finish_update(Some("second".into()), OnWeightsChange::default()).await.unwrap();
        let second = sets.next().await;
        assert!(second.0 > first.0 && second.1 != first.1);
    }
}
