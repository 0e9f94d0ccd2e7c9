//! What captures the turns of this process, with the checksums of the weights that sample them.

use std::sync::Arc;

use crate::{
    control::WeightSets,
    engine::Engine,
    replay::computed_by,
    trajectory::{ComputedBy, Trajectories, WeightSet},
    turn::Capture,
};

/// Captures the turns of this process, and keeps a checksum of each set of weights that its engine has.
pub(super) fn start(trajectories: Arc<Trajectories>, engine: &Arc<dyn Engine>, model: &str) -> Capture {
    let process: Arc<str> = uuid::Uuid::new_v4().simple().to_string().into();
    if let Some(weights) = WeightSets::of(engine) {
        let computed_by = computed_by(engine.info());
        tokio::spawn(keep(weights, computed_by, Arc::clone(&trajectories), Arc::clone(&process)));
    }
    Capture { trajectories, model: model.into(), process }
}

/// Runs as long as the process.
async fn keep(mut weights: WeightSets, by: ComputedBy, trajectories: Arc<Trajectories>, process: Arc<str>) {
    loop {
        let (number, checksum) = weights.next().await;
        let (process, computed_by) = (Arc::clone(&process), by.clone());
        let set = WeightSet { process, number, checksum: checksum.to_string(), computed_by };
        let store = Arc::clone(&trajectories);
        let kept = tokio::task::spawn_blocking(move || store.keep_weights(&set)).await;
        // Where the store failed, the same weights come again.
        if matches!(kept, Ok(Ok(()))) {
            weights.pass_over(number);
        }
    }
}
