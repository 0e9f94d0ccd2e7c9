//! What a training loop can have the thread do.

use std::{path::Path, sync::Arc};

use super::steps::Steps;
use crate::engine::{
    AdapterId, Memory, NewWeights, OnWeightsChange, TensorInfo, UndoPolicy, UpdateError, Visit, WeightVersion, Written,
    native::backend::NoRoom,
};

/// The thread, as a training loop sees it; the calls are those of [`EngineControl`](crate::engine::EngineControl).
pub(in crate::engine::native) trait Controlled {
    fn forget_adapter(&mut self, id: AdapterId);
    fn hold(&mut self);
    fn release(&mut self);
    fn reset_prefix_cache(&mut self, running: bool) -> bool;
    fn relabel(&mut self, label: Arc<str>);
    fn read_weights(&mut self, names: &[String], visit: Visit) -> Result<(), UpdateError>;
    fn read_weights_amid_update(&mut self, names: &[String], visit: Visit) -> Result<(), UpdateError>;
    fn begin_update(&mut self, undo: UndoPolicy) -> Result<(), UpdateError>;
    fn check_weights(&mut self, tensors: Vec<TensorInfo>) -> Result<(), UpdateError>;
    fn check_whole(&self, path: &Path) -> Result<(), UpdateError>;
    fn write_weights(&mut self, weights: NewWeights) -> Result<Written, UpdateError>;
    fn finish_update(
        &mut self,
        label: Option<Arc<str>>,
        change: OnWeightsChange,
    ) -> Result<Arc<WeightVersion>, UpdateError>;
    fn update_draft(&mut self, path: &Path) -> Result<Written, UpdateError>;
    fn cancel_update(&mut self) -> Result<(), UpdateError>;
    fn lose_weights(&mut self);
    fn discard(&mut self, memory: Memory);
    fn restore(&mut self, memory: Memory) -> Result<(), NoRoom>;
    fn steps(&mut self) -> &mut Steps;
    fn sequences(&self) -> usize;
}
