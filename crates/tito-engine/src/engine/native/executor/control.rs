//! What a training loop does to the thread, between two steps.

use std::{path::Path, sync::Arc};

use super::{
    controlled::Controlled,
    standing::{Came, Standing, Update},
    state::Executor,
    steps::Steps,
};
use crate::{
    engine::{
        AdapterId, EngineError, Memory, NewWeights, OnWeightsChange, TensorChanges, TensorInfo, UndoPolicy,
        UpdateError, Visit, WeightVersion, WeightsInUse, Written,
        native::{
            backend::{Backend, NoRoom},
            model::Undo,
            scheduler::SequenceId,
            weights::{GivenTensors, Shapes, Weights, WeightsError, open_any_of},
        },
    },
    memory,
};

fn refused(error: &WeightsError) -> UpdateError {
    let refused = if error.is_passing() { UpdateError::NotNow } else { UpdateError::Refused };
    refused(error.to_string())
}

/// Refuses to keep more than there is memory for.
fn has_room(needed: u64) -> Result<(), UpdateError> {
    let available = memory::available().unwrap_or(u64::MAX);
    if needed > available { Err(UpdateError::NoRoomForUndo { needed, available }) } else { Ok(()) }
}

impl<B: Backend> Executor<B> {
    /// Whether no step may be computed now.
    pub(super) fn stands_still(&self) -> bool {
        let Standing { held, without_cache, update, .. } = &self.standing;
        *held || *without_cache || update.is_some() || self.model.lacking() > 0 || self.steps.wait()
    }

    /// The weights that compute a sequence's next token, unless its reader was told of them.
    pub(super) fn untold_weights(&self, id: SequenceId) -> Option<WeightsInUse> {
        let Standing { weights, reuses, .. } = &self.standing;
        let reuse_older_keys = *reuses && self.scheduler.reuses_older_keys(id);
        let active = self.active.get(&id)?;
        let is =
            |told: &WeightsInUse| told.reuse_older_keys == reuse_older_keys && told.version.number == weights.number;
        let version = match &active.adapter {
            None if active.told.as_ref().is_some_and(|told| is(told) && told.version == *weights) => return None,
            None => Arc::clone(weights),
            // An adapter has its name whatever the base is called, which is told beside it.
            Some(_)
                if active.told.as_ref().is_some_and(|told| is(told) && told.base.as_ref() == Some(&weights.label)) =>
            {
                return None;
            }
            Some(adapter) => Arc::new(WeightVersion { number: weights.number, label: Arc::clone(adapter.label()) }),
        };
        let base = active.adapter.as_ref().map(|_| Arc::clone(&weights.label));
        Some(WeightsInUse { version, base, reuse_older_keys })
    }

    fn publish(&mut self, weights: WeightVersion) -> Arc<WeightVersion> {
        self.standing.names.note(&weights.label, weights.number);
        self.standing.weights = Arc::new(weights);
        self.status.set_weights(Arc::clone(&self.standing.weights));
        Arc::clone(&self.standing.weights)
    }

    fn publish_lacking(&self) {
        self.status.set_lacking(self.model.lacking());
    }

    fn try_write(&mut self, weights: &dyn Weights) -> Result<Written, UpdateError> {
        let Some(update) = &mut self.standing.update else { return Err(NOT_STARTED) };
        let checked = self.model.check(weights).map_err(|error| refused(&error))?;
        if let Some(undo) = &update.undo {
            has_room(self.model.undo_bytes(&checked, undo))?;
        }
        // The same tensor may come twice: the last one counts.
        let heads = self.model.heads_of(&checked).map_err(|error| refused(&error))?;
        update.came.add(Came { heads, further: checked.further().clone() });
        update.touched = true;
        let bytes = self.model.replace(&checked, update.undo.as_mut()).map_err(|error| refused(&error))?;
        Ok(Written { tensors: checked.count(), bytes })
    }

    fn try_change(&mut self, changes: Vec<TensorChanges>) -> Result<Written, UpdateError> {
        let Some(update) = &mut self.standing.update else { return Err(NOT_STARTED) };
        if changes.is_empty() {
            return Err(refused(&WeightsError::Nothing));
        }
        self.model.check_changes(&changes).map_err(|error| refused(&error))?;
        if let Some(undo) = &update.undo {
            has_room(self.model.undo_bytes_of_changes(&changes, undo))?;
        }
        update.touched = true;
        let tensors = changes.len();
        let bytes = self.model.change(changes, update.undo.as_mut()).map_err(|error| refused(&error))?;
        Ok(Written { tensors, bytes })
    }

    /// Ends an update that failed, with the weights that were there before it.
    fn fail(&mut self, reason: UpdateError) -> UpdateError {
        match self.roll_back() {
            Ok(()) => reason,
            Err(NoRoom) => UpdateError::Lost { reason: reason.to_string() },
        }
    }

    fn roll_back(&mut self) -> Result<(), NoRoom> {
        let Some(Update { undo, touched, .. }) = self.standing.update.take() else { return Ok(()) };
        let outcome = match undo {
            Some(undo) => self.model.undo(undo),
            None if touched => Err(NoRoom),
            None => Ok(()),
        };
        if outcome.is_err() {
            self.lose_weights();
        }
        outcome
    }
}

const NOT_STARTED: UpdateError = UpdateError::OutOfOrder("start_weight_update must be called before update_weights.");

impl<B: Backend> Controlled for Executor<B> {
    fn forget_adapter(&mut self, id: AdapterId) {
        self.scheduler.forget_adapter(id);
    }

    fn hold(&mut self) {
        self.standing.held = true;
    }

    fn release(&mut self) {
        self.standing.held = false;
    }

    fn reset_prefix_cache(&mut self, running: bool) -> bool {
        if running {
            self.scheduler.give_back_blocks();
        }
        self.scheduler.reset_prefix_cache()
    }

    fn relabel(&mut self, label: Arc<str>) {
        let number = self.standing.weights.number;
        self.publish(WeightVersion { number, label });
    }

    fn read_weights(&mut self, names: &[String], visit: Visit) -> Result<(), UpdateError> {
        if self.standing.update.is_some() {
            return Err(UpdateError::Unsettled);
        }
        match self.model.lacking() {
            0 => self.read_weights_amid_update(names, visit),
            missing => Err(EngineError::WithoutWeights { missing }.into()),
        }
    }

    fn read_weights_amid_update(&mut self, names: &[String], mut visit: Visit) -> Result<(), UpdateError> {
        self.model.read_tensors(names, &mut visit).map_err(|error| refused(&error.into()))
    }

    fn begin_update(&mut self, undo: UndoPolicy) -> Result<(), UpdateError> {
        if self.standing.update.is_some() {
            return Err(UpdateError::OutOfOrder(
                "start_weight_update called while a weight update is already active. Call finish_weight_update first.",
            ));
        }
        if !self.model.has_room_for_weights() {
            return Err(UpdateError::OutOfOrder(
                "the memory of the weights was given back: POST /wake_up?tags=weights comes first",
            ));
        }
        self.status.count_begun_update();
        // Weights that nobody knows are not worth keeping.
        let keeps = undo == UndoPolicy::Memory && self.model.lacking() == 0;
        self.standing.update = Some(Update { undo: keeps.then(Undo::default), touched: false, came: Came::default() });
        Ok(())
    }

    fn check_weights(&mut self, tensors: Vec<TensorInfo>) -> Result<(), UpdateError> {
        self.model.check(&Shapes(tensors)).map(|_| ()).map_err(|error| refused(&error))
    }

    fn check_whole(&self, path: &Path) -> Result<(), UpdateError> {
        let check = || self.model.check_whole(&*open_any_of(path, self.config_of_gguf.as_ref())?);
        check().map_err(|error| refused(&error))
    }

    fn write_weights(&mut self, weights: NewWeights) -> Result<Written, UpdateError> {
        if self.standing.update.is_none() {
            return Err(NOT_STARTED);
        }
        let written = match weights {
            NewWeights::Path(path) => match open_any_of(&path, self.config_of_gguf.as_ref()) {
                Ok(files) => self.try_write(&*files),
                Err(error) => Err(refused(&error)),
            },
            NewWeights::Tensors(tensors) => match GivenTensors::new(tensors) {
                Ok(given) => self.try_write(&given),
                Err(error) => Err(refused(&error)),
            },
            NewWeights::Changes(changes) => self.try_change(changes),
        };
        self.publish_lacking();
        written.map_err(|reason| self.fail(reason))
    }

    fn finish_update(
        &mut self,
        label: Option<Arc<str>>,
        change: OnWeightsChange,
    ) -> Result<Arc<WeightVersion>, UpdateError> {
        let Some(Update { touched, came, .. }) = &mut self.standing.update else {
            return Err(UpdateError::OutOfOrder("finish_weight_update called without a matching start_weight_update."));
        };
        let (touched, came) = (*touched, std::mem::take(came));
        let number = self.standing.weights.number + u64::from(touched);
        self.standing.came.add(came);
        // Where weights were lost, the rest may come with later updates.
        if self.model.lacking() == 0 {
            let Came { heads, further } = std::mem::take(&mut self.standing.came);
            let compared = self.model.check_heads(&heads).and_then(|()| self.model.check_further(&further));
            if let Err(error) = compared {
                return Err(self.fail(refused(&error)));
            }
        }
        let label = label.or_else(|| (!touched).then(|| Arc::clone(&self.standing.weights.label)));
        if touched {
            self.scheduler.change_weights(number, change);
            self.standing.reuses = change == OnWeightsChange::Reuse;
        }
        self.standing.update = None;
        let label = label.unwrap_or_else(|| self.standing.names.of_update(number));
        Ok(self.publish(WeightVersion { number, label }))
    }

    fn update_draft(&mut self, path: &Path) -> Result<Written, UpdateError> {
        let Some(draft) = &mut self.draft_model else {
            return Err(UpdateError::Refused("there is no draft model here".to_owned()));
        };
        let written = draft.update(path, &mut self.model)?;
        self.scheduler.renew_drafter();
        Ok(written)
    }

    fn cancel_update(&mut self) -> Result<(), UpdateError> {
        self.roll_back().map_err(|NoRoom| UpdateError::Lost { reason: "the update was cancelled".to_owned() })
    }

    fn lose_weights(&mut self) {
        self.standing.came = Came::default();
        self.model.lose_weights();
        self.publish_lacking();
    }

    fn discard(&mut self, memory: Memory) {
        match memory {
            Memory::KvCache => {
                self.scheduler.give_back_blocks();
                self.scheduler.reset_prefix_cache();
                self.model.discard_cache();
                if let Some(draft) = &mut self.draft_model {
                    draft.discard_cache();
                }
                self.standing.without_cache = true;
            }
            Memory::Weights => {
                self.standing.came = Came::default();
                self.model.discard_weights();
                if let Some(draft) = &mut self.draft_model {
                    draft.discard_weights();
                }
            }
        }
        self.publish_lacking();
    }

    fn restore(&mut self, memory: Memory) -> Result<(), NoRoom> {
        match memory {
            Memory::KvCache => {
                self.model.restore_cache()?;
                if let Some(draft) = &mut self.draft_model {
                    draft.restore_cache();
                }
                self.standing.without_cache = false;
                Ok(())
            }
            Memory::Weights => {
                self.model.restore_weights()?;
                if let Some(draft) = &mut self.draft_model {
                    draft.restore_weights(&mut self.model);
                }
                Ok(())
            }
        }
    }

    fn steps(&mut self) -> &mut Steps {
        &mut self.steps
    }

    fn sequences(&self) -> usize {
        self.active.len()
    }
}
