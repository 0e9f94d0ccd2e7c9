//! Replacing weights: in one call, or in phases.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Control, ControlError,
    deltas::{Source, versions},
    numbers::trained,
    state::{Heard, OF_A_BODY, OVER, Phase, State, Whose},
};
use crate::engine::{EngineControl, NewWeights, TensorInfo, UpdateError, WeightTensor, WeightVersion, Written};

/// Weights to put in, in one call.
#[derive(Debug)]
pub struct Update {
    /// A file or a directory of safetensors; some tensors of the model, or all.
    pub path: PathBuf,
    /// What the weights are called from now on; the number of the update where nobody says.
    pub label: Option<Arc<str>>,
    /// Whether requests that run end with what they have once the weights are there; an update that fails ends none.
    pub aborts: bool,
}

/// What an update did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Updated {
    /// The weights that sample from now on.
    pub version: Arc<WeightVersion>,
    /// What was written.
    pub written: Written,
    /// The number of tensors of the model.
    pub tensors: usize,
    /// How many of them have no weights yet: these were lost, and neither this update nor an earlier one brought them.
    pub lacking: usize,
    /// How long it took.
    pub took: Duration,
}

/// The update that a body is for.
pub(super) struct Joined {
    /// The number of the update.
    pub(super) call: u64,
    /// Whether the body is a part of an update in phases.
    pub(super) is_part: bool,
    /// What is told of each piece.
    pub(super) heard: Heard,
}

const ACTIVE: ControlError = ControlError::Update(UpdateError::OutOfOrder(
    "start_weight_update called while a weight update is already active. Call finish_weight_update first.",
));
const NOT_STARTED: ControlError =
    ControlError::Update(UpdateError::OutOfOrder("start_weight_update must be called before update_weights."));
const NOT_MATCHING: ControlError = ControlError::Update(UpdateError::OutOfOrder(
    "finish_weight_update called without a matching start_weight_update.",
));
const INSTEAD_OF_A_PART: ControlError = ControlError::EndsUpdate(
    "an update in parts was active, and this call is none of its parts but an update of its own; that update is ended, with \
     the old weights put back: begin it anew, and name each part within `update_info`",
);
const COMING: ControlError = ControlError::State(
    "a body that is a part of the weight update has not ended: call finish_weight_update when it was answered",
);

const GIVEN_BACK: ControlError =
    ControlError::State("the memory of the weights was given back: POST /wake_up?tags=weights comes first");

pub(super) const WHAT: &str = "replace its weights";

/// Refuses an update that brings nothing, which would give weights another name and leave them as they are.
fn brings_something(written: Written, proven: bool) -> Result<(), UpdateError> {
    if written.tensors > 0 || proven {
        return Ok(());
    }
    Err(UpdateError::Refused("no tensor of the model was sent; the weights stay as they are".to_owned()))
}

impl Control {
    /// Replaces weights in one call.
    ///
    /// # Errors
    ///
    /// If the weights cannot be used; the server goes on with those that it had.
    pub async fn update(&self, update: Update) -> Result<Updated, ControlError> {
        self.update_numbered(update, None).await
    }

    /// The same; where there is `is_loaded`, the weights are those that the server was started with if it says so at the
    /// end.
    pub(super) async fn update_numbered(
        &self,
        update: Update,
        is_loaded: Option<&(dyn Fn() -> bool + Sync)>,
    ) -> Result<Updated, ControlError> {
        self.of_engine(WHAT)?;
        let _writing = self.writing_calls.begin();
        let mut state = self.state.lock().await;
        if state.update.as_ref().is_some_and(|phase| phase.in_phases) {
            // Its end would name weights that lack these.
            self.drop_phase(&mut state).await?;
            return Err(INSTEAD_OF_A_PART);
        }
        let updated = self.update_alone(&mut state, update).await?;
        if let Some(is_loaded) = is_loaded {
            state.note_loaded(is_loaded(), updated.version.number);
        }
        Ok(updated)
    }

    async fn update_alone(&self, state: &mut State, update: Update) -> Result<Updated, ControlError> {
        let engine = self.of_engine(WHAT)?;
        let Update { path, label, aborts } = update;
        if state.update.is_some() {
            return Err(OF_A_BODY);
        }
        let begun = Instant::now();
        let source = self.source(state, path).await?;
        let (version, proves) = (source.version(), source.proves());
        let (trained, lacking) = (trained(version, label.as_deref()), self.lacking());
        let label = label.or_else(|| version.map(|version| version.to_string().into()));
        self.begin_in_engine(engine, state).await?;
        self.show_update(true);
        let outcome: Result<_, ControlError> = async {
            let written = source.write(engine).await?;
            brings_something(written, proves)?;
            let finish = async { Ok(engine.finish_update(label, self.policy.on_weights_change).await?) };
            let version = self.ending_requests(aborts, state, finish).await?;
            Ok((written, version))
        }
        .await;
        self.show_update(false);
        let (written, version) = match outcome {
            Ok(done) => done,
            Err(error) => {
                tracing::warn!(%error, "the weights were not replaced");
                // Where the engine found the fault, it has ended the update already.
                engine.cancel_update().await?;
                return Err(error);
            }
        };
        state.trained = self.trained_after(trained, state.trained, lacking, Some(written));
        Ok(self.updated(version, written, begun))
    }

    fn updated(&self, version: Arc<WeightVersion>, written: Written, begun: Instant) -> Updated {
        let (took, tensors) = (begun.elapsed(), self.engine.control().map_or(0, |engine| engine.tensors().len()));
        let (label, bytes, lacking) = (&*version.label, written.bytes, self.lacking());
        tracing::info!(
            version = label,
            tensors = written.tensors,
            of = tensors,
            lacking,
            bytes,
            ?took,
            "the weights were replaced"
        );
        Updated { version, written, tensors, lacking, took }
    }

    /// Waits for the calls before, and refuses while an update is active, with the error that the call has for it.
    pub(super) async fn idle(&self, active: ControlError) -> Result<tokio::sync::MutexGuard<'_, State>, ControlError> {
        let state = self.state.lock().await;
        match &state.update {
            None => Ok(state),
            Some(phase) if phase.in_phases => Err(active),
            Some(_) => Err(OF_A_BODY),
        }
    }

    fn show_update(&self, updating: bool) {
        self.shown.lock().updating = updating;
        self.has_changed();
    }

    /// Begins an update in phases. Nothing is computed until it is finished, or cancelled because no call of it came for
    /// too long.
    ///
    /// # Errors
    ///
    /// If an update is active already.
    pub async fn start_update(self: &Arc<Self>) -> Result<(), ControlError> {
        let engine = self.of_engine(WHAT)?;
        let mut state = self.idle(ACTIVE).await?;
        self.begin(engine, &mut state, true).await?;
        Ok(())
    }

    /// The same, and updates from directories that come before its end are parts of it: see [`Control::update_or_part`].
    ///
    /// # Errors
    ///
    /// As [`Control::start_update`].
    pub async fn start_update_with_directories(self: &Arc<Self>) -> Result<(), ControlError> {
        let engine = self.of_engine(WHAT)?;
        let mut state = self.idle(ACTIVE).await?;
        let (call, _) = self.begin(engine, &mut state, true).await?;
        state.phase(Whose::Of(call), OVER)?.takes_directories = true;
        Ok(())
    }

    /// Has the engine begin an update, where there is memory for its weights.
    async fn begin_in_engine(&self, engine: &dyn EngineControl, state: &State) -> Result<(), ControlError> {
        if state.asleep.is_some_and(|asleep| asleep.weights) {
            return Err(GIVEN_BACK);
        }
        Ok(engine.begin_update(self.policy.undo).await?)
    }

    /// Begins an update in an idle state; returns its number, and what is to be told when something of it comes.
    async fn begin(
        self: &Arc<Self>,
        engine: &dyn EngineControl,
        state: &mut State,
        in_phases: bool,
    ) -> Result<(u64, Heard), ControlError> {
        self.begin_in_engine(engine, state).await?;
        state.updates += 1;
        let call = state.updates;
        let heard = Heard::now();
        state.update = Some(Phase {
            call,
            in_phases,
            coming: 0,
            begun: Instant::now(),
            lacking: self.lacking(),
            heard: heard.clone(),
            written: Written::default(),
            trained: None,
            proven: false,
            label: None,
            names: BTreeSet::new(),
            takes_directories: false,
            aborts: false,
        });
        let patience = self.policy.update_timeout;
        tracing::info!(?patience, "weights are being replaced: requests wait until the update is finished");
        self.show_update(true);
        tokio::spawn(Arc::clone(self).watch(call));
        Ok((call, heard))
    }

    /// Finds the update that a body is for: the one in phases, of which it is a part then, or else one of its own, which it
    /// begins, and whose weights it calls `label`.
    pub(super) async fn join_update(self: &Arc<Self>, label: Option<Arc<str>>) -> Result<Joined, ControlError> {
        let engine = self.of_engine(WHAT)?;
        let mut state = self.state.lock().await;
        match &mut state.update {
            None => {
                let (call, heard) = self.begin(engine, &mut state, false).await?;
                state.phase(Whose::Of(call), OVER)?.label = label;
                Ok(Joined { call, is_part: false, heard })
            }
            Some(phase) if phase.in_phases => {
                phase.coming += 1;
                Ok(Joined { call: phase.call, is_part: true, heard: phase.heard.clone() })
            }
            Some(_) => Err(OF_A_BODY),
        }
    }

    /// Ends a body that was a part of an update, whose weights it calls `label`.
    pub(super) async fn part_ended(&self, call: u64, label: Option<Arc<str>>) -> Result<(), ControlError> {
        let mut state = self.state.lock().await;
        let phase = state.phase(Whose::Of(call), OVER)?;
        phase.coming -= 1;
        phase.part_is_named(label);
        Ok(())
    }

    /// Cancels an update when no call of it came for too long.
    async fn watch(self: Arc<Self>, call: u64) {
        loop {
            let wait = {
                let state = self.state.lock().await;
                let Some(phase) = state.update.as_ref().filter(|phase| phase.call == call) else { return };
                self.policy.update_timeout.saturating_sub(phase.heard.when().elapsed())
            };
            if wait.is_zero() {
                tracing::warn!("no call of the weight update came for too long: the old weights are put back");
                if let Err(error) = self.cancel_update(Some(call)).await {
                    tracing::error!(%error, "the old weights were not put back");
                }
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Compares tensors that are to come with those of the model, without writing anything.
    ///
    /// # Errors
    ///
    /// If they are not the model's.
    pub async fn check_weights(&self, tensors: Vec<TensorInfo>) -> Result<(), ControlError> {
        Ok(self.of_engine(WHAT)?.check_weights(tensors).await?)
    }

    /// Writes files or directories, one after the other and all within the same update in phases. An error ends the update,
    /// with the old weights put back.
    ///
    /// # Errors
    ///
    /// If no update is active, or the weights cannot be used.
    pub async fn write_paths(&self, paths: Vec<PathBuf>) -> Result<Written, ControlError> {
        let mut state = self.updating(Whose::Started).await?;
        let mut all = Written::default();
        for path in paths {
            all += self.write_path(&mut state, path).await?;
        }
        Ok(all)
    }

    async fn write_path(&self, state: &mut State, path: PathBuf) -> Result<Written, ControlError> {
        let source = self.source(state, path).await;
        self.write_part(state, source).await
    }

    /// Replaces weights in one call, or within an update in phases that takes directories writes a part of that, which ends
    /// it where it fails. Such a part is answered with nothing: its weights sample once the update is finished.
    ///
    /// # Errors
    ///
    /// If the weights cannot be used; the server goes on with those that it had.
    pub async fn update_or_part(&self, update: Update) -> Result<Option<Updated>, ControlError> {
        self.of_engine(WHAT)?;
        let _writing = self.writing_calls.begin();
        let mut state = self.state.lock().await;
        match &state.update {
            Some(phase) if phase.in_phases && !phase.takes_directories => {
                // Another trainer may have sent it.
                self.drop_phase(&mut state).await?;
                return Err(INSTEAD_OF_A_PART);
            }
            Some(phase) if phase.in_phases => {}
            _ => return self.update_alone(&mut state, update).await.map(Some),
        }
        self.write_path(&mut state, update.path).await?;
        if let Some(phase) = &mut state.update {
            phase.part_is_named(update.label);
            phase.aborts |= update.aborts;
        }
        Ok(None)
    }

    /// Writes any weights within an update in phases, as its calls do.
    #[cfg(test)]
    pub async fn write_weights(&self, weights: NewWeights) -> Result<Written, ControlError> {
        if let NewWeights::Path(path) = weights {
            return self.write_paths(vec![path]).await;
        }
        let mut state = self.updating(Whose::Started).await?;
        self.write_part(&mut state, Ok(Source::Given(weights))).await
    }

    /// Writes what came of a body, within the update that it is for.
    pub(super) async fn write_piece(&self, call: u64, tensors: Vec<WeightTensor>) -> Result<(), ControlError> {
        let mut state = self.updating(Whose::Of(call)).await?;
        let source = Source::Given(NewWeights::Tensors(tensors));
        self.write_part(&mut state, Ok(source)).await.map(|_| ())
    }

    /// Applies the deltas that lead to a version, within an update in phases. An error ends the update, with the old
    /// weights put back.
    ///
    /// # Errors
    ///
    /// If no update is active, or a delta is missing, damaged or made for other weights.
    pub async fn write_version(&self, published: PathBuf, version: u64) -> Result<Written, ControlError> {
        let mut state = self.updating(Whose::Started).await?;
        let source = versions(self.held_weights(&state), published, version).await;
        self.write_part(&mut state, source).await
    }

    /// Waits for the calls before, and refuses while the update that the call is about is not active.
    async fn updating(&self, whose: Whose) -> Result<tokio::sync::MutexGuard<'_, State>, ControlError> {
        self.of_engine(WHAT)?;
        let mut state = self.state.lock().await;
        state.phase(whose, NOT_STARTED)?;
        Ok(state)
    }

    async fn write_part(
        &self,
        state: &mut State,
        source: Result<Source, UpdateError>,
    ) -> Result<Written, ControlError> {
        let engine = self.of_engine(WHAT)?;
        let (outcome, number, builds_on, proves) = match source {
            Ok(source) => {
                let (number, builds_on) = (source.version(), source.builds_on_what_is_there());
                let proves = source.proves();
                (source.write(engine).await, number, builds_on, proves)
            }
            Err(error) => (Err(error), None, false, false),
        };
        if let (Ok(written), Some(phase)) = (&outcome, &mut state.update) {
            phase.heard.again();
            phase.wrote(*written, number, builds_on);
            phase.proven |= proves;
        } else {
            state.update = None;
            self.show_update(false);
            engine.cancel_update().await?;
        }
        Ok(outcome.inspect_err(|error| tracing::warn!(%error, "the weight update failed"))?)
    }

    /// Finishes an update in phases. An error ends it too, with the old weights put back.
    ///
    /// # Errors
    ///
    /// If no update is active, or what came is not the model's.
    pub async fn finish_update(&self, label: Option<Arc<str>>) -> Result<Updated, ControlError> {
        self.finish(Whose::Started, label).await
    }

    pub(super) async fn finish(&self, whose: Whose, label: Option<Arc<str>>) -> Result<Updated, ControlError> {
        let engine = self.of_engine(WHAT)?;
        let mut state = self.state.lock().await;
        if state.phase(whose, NOT_MATCHING)?.coming > 0 {
            return Err(COMING);
        }
        let Some(phase) = state.update.take() else { return Err(NOT_MATCHING) };
        self.show_update(false);
        if let Err(error) = brings_something(phase.written, phase.proven) {
            engine.cancel_update().await?;
            return Err(error.into());
        }
        let label = match phase.name(label) {
            Ok(label) => label,
            Err(error) => {
                engine.cancel_update().await?;
                return Err(error.into());
            }
        };
        let trained = trained(phase.trained, label.as_deref());
        let finish = async { Ok(engine.finish_update(label, self.policy.on_weights_change).await?) };
        let version = self.ending_requests(phase.aborts, &state, finish).await?;
        state.trained = self.trained_after(trained, state.trained, phase.lacking, None);
        Ok(self.updated(version, phase.written, phase.begun))
    }

    /// Puts the old weights back: those of the update of a certain number, or of whichever is in phases, if it is active.
    ///
    /// # Errors
    ///
    /// If they were not kept.
    pub async fn cancel_update(&self, call: Option<u64>) -> Result<(), ControlError> {
        self.of_engine(WHAT)?;
        let mut state = self.state.lock().await;
        if state.phase(call.map_or(Whose::Started, Whose::Of), NOT_MATCHING).is_err() {
            return Ok(());
        }
        self.drop_phase(&mut state).await
    }

    async fn drop_phase(&self, state: &mut State) -> Result<(), ControlError> {
        state.update = None;
        self.show_update(false);
        Ok(self.of_engine(WHAT)?.cancel_update().await?)
    }

    /// Puts the old weights back where an update in phases is active, of which a part was refused before it came here.
    ///
    /// # Errors
    ///
    /// If they were not kept.
    pub async fn cancel_part_update(&self) -> Result<(), ControlError> {
        // An engine without weights has no update either, and what was refused says so.
        if self.engine.control().is_none() { Ok(()) } else { self.cancel_update(None).await }
    }

    /// Makes a change, and where `aborts` says so, ends the requests that run before anything is computed after it; none
    /// where it is refused.
    pub(super) async fn ending_requests<T>(
        &self,
        aborts: bool,
        state: &State,
        change: impl Future<Output = Result<T, ControlError>>,
    ) -> Result<T, ControlError> {
        if !aborts {
            return change.await;
        }
        self.of_engine(WHAT)?.hold().await?;
        let changed = change.await;
        if changed.is_ok() {
            self.requests.abort_begun();
        }
        self.settle(state).await?;
        changed
    }
}
