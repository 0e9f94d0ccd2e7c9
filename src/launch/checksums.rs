//! Checksums of weights, so that a capture says which ones sampled.

use std::{sync::Arc, time::Duration};

use crate::{
    control::{Control, ControlPolicy},
    engine::{Engine, EngineInfo},
    generation::RunningRequests,
    trajectory::{ComputedBy, Trajectories, WeightSet},
    turn::Capture,
    weights::checksum::Checksum,
};

/// How often it is looked whether there are new weights.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The checksum of an engine's weights; `None` for an engine whose weights nobody can read.
pub(super) async fn of(engine: &Arc<dyn Engine>) -> anyhow::Result<Option<String>> {
    if engine.control().is_none() {
        return Ok(None);
    }
    let control = Control::new(Arc::clone(engine), RunningRequests::default(), ControlPolicy::default());
    Ok(Some(Checksum::of_model(&control.checksums().await?).to_string()))
}

/// What captures the turns of this process, and keeps checksums of the weights that sample them.
pub(super) fn capture(trajectories: Arc<Trajectories>, engine: &Arc<dyn Engine>, model: &str) -> Capture {
    let process: Arc<str> = uuid::Uuid::new_v4().simple().to_string().into();
    tokio::spawn(keep(Arc::clone(engine), Arc::clone(&trajectories), Arc::clone(&process)));
    Capture { trajectories, model: model.into(), process }
}

/// Keeps the checksum of each set of weights that the engine has for long enough to read it. Runs as long as the process.
async fn keep(engine: Arc<dyn Engine>, trajectories: Arc<Trajectories>, process: Arc<str>) {
    let (mut known, mut look) = (None, tokio::time::interval(LOOK_AGAIN));
    while engine.control().is_some() {
        look.tick().await;
        if known == Some(engine.current_weights().number) {
            continue;
        }
        // An update that is under way, or weights that were given back: it is looked again.
        let Some((number, checksum)) = numbered(&engine).await else { continue };
        let computed_by = computed_by(engine.info());
        let set = WeightSet { process: Arc::clone(&process), number, checksum, computed_by };
        let store = Arc::clone(&trajectories);
        let kept = tokio::task::spawn_blocking(move || store.keep_weights(&set)).await;
        if matches!(kept, Ok(Ok(()))) {
            known = Some(number);
        }
    }
}

/// The checksum of the weights that are there, and their number; `None` while no weights are there whose number it is.
async fn numbered(engine: &Arc<dyn Engine>) -> Option<(u64, String)> {
    let control = engine.control()?;
    let now = || (control.begun_updates(), engine.current_weights().number);
    let before = now();
    let checksum = of(engine).await.ok()??;
    // An update that was begun and undone leaves the number as it was, and not the count.
    (now() == before).then_some((before.1, checksum))
}

/// What computes, as a capture says it.
pub(super) fn computed_by(info: &EngineInfo) -> ComputedBy {
    ComputedBy {
        tito: env!("CARGO_PKG_VERSION").to_owned(),
        engine: info.engine.to_owned(),
        device: info.device.clone(),
        dtype: info.dtype.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::engine::{
        NewWeights, UndoPolicy, WeightDtype, WeightTensor,
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

    #[tokio::test]
    async fn weights_that_are_half_written_have_no_checksum_of_a_version() {
        let engine = engine();
        let control = engine.control().unwrap();
        let before = numbered(&engine).await.unwrap();
        assert_eq!(before.0, 0);
        control.begin_update(UndoPolicy::Memory).await.unwrap();
        assert_eq!(numbered(&engine).await, None);
        let norm = WeightTensor {
            name: "model.norm.weight".to_owned(),
            dtype: WeightDtype::F32,
            shape: vec![64],
            bytes: 0.5_f32.to_le_bytes().repeat(64).into(),
        };
        control.write_weights(NewWeights::Tensors(vec![norm])).await.unwrap();
        assert_eq!(numbered(&engine).await, None);
        control.cancel_update().await.unwrap();
        assert_eq!(numbered(&engine).await, Some(before));
    }
}
