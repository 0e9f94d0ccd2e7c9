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
        let number = engine.current_weights().number;
        if known == Some(number) {
            continue;
        }
        // An update that is under way, or weights that were given back: it is looked again.
        let Ok(Some(checksum)) = of(&engine).await else { continue };
        // What was read while weights were replaced is the checksum of nothing.
        if engine.current_weights().number != number || engine.control().is_none_or(|control| control.lacking() > 0) {
            continue;
        }
        let computed_by = computed_by(engine.info());
        let set = WeightSet { process: Arc::clone(&process), number, checksum, computed_by };
        let store = Arc::clone(&trajectories);
        let kept = tokio::task::spawn_blocking(move || store.keep_weights(&set)).await;
        if matches!(kept, Ok(Ok(()))) {
            known = Some(number);
        }
    }
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
