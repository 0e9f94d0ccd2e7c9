//! Replacing weights: in one call, or in phases.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Control, ControlError, State,
    deltas::{Source, versions},
};
use crate::engine::{NewWeights, TensorInfo, UpdateError, WeightVersion, Written};

/// An update in phases that was begun and is not finished.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phase {
    /// Its number among the updates.
    call: u64,
    /// When the last call of it ended.
    last: Instant,
    written: Written,
    /// The number that the trainer gives to what was written last, where it says one.
    trained: Option<u64>,
}

/// Weights to put in, in one call.
#[derive(Debug)]
pub struct Update {
    /// A file or a directory of safetensors; some tensors of the model, or all.
    pub path: PathBuf,
    /// What the weights are called from now on; the number of the update where nobody says.
    pub label: Option<Arc<str>>,
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
    /// How long it took.
    pub took: Duration,
}

const ACTIVE: ControlError = ControlError::Update(UpdateError::OutOfOrder(
    "start_weight_update called while a weight update is already active. Call finish_weight_update first.",
));
const NOT_STARTED: ControlError =
    ControlError::Update(UpdateError::OutOfOrder("start_weight_update must be called before update_weights."));
const NOT_MATCHING: ControlError = ControlError::Update(UpdateError::OutOfOrder(
    "finish_weight_update called without a matching start_weight_update.",
));

const WHAT: &str = "replace its weights";

impl Control {
    /// Replaces weights in one call.
    ///
    /// # Errors
    ///
    /// If the weights cannot be used; the server goes on with those that it had.
    pub async fn update(&self, Update { path, label }: Update) -> Result<Updated, ControlError> {
        let engine = self.of_engine(WHAT)?;
        let mut state = self.idle().await?;
        let begun = Instant::now();
        let source = self.source(&state, path.clone()).await.inspect_err(|_| _ = state.pulled.remove(&path))?;
        let trained = source.version();
        let label = label.or_else(|| trained.map(|version| version.to_string().into()));
        engine.begin_update(self.policy.undo).await?;
        // What was pulled counts for this update, also where it fails: whatever is in the directory afterwards is new.
        state.pulled.remove(&path);
        self.show_update(true);
        let outcome: Result<_, UpdateError> = async {
            let written = source.write(engine).await?;
            let version = engine.finish_update(label, self.policy.on_weights_change).await?;
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
                return Err(error.into());
            }
        };
        state.trained = trained.or_else(|| version.label.parse().ok());
        Ok(self.updated(version, written, begun))
    }

    fn updated(&self, version: Arc<WeightVersion>, written: Written, begun: Instant) -> Updated {
        let (took, tensors) = (begun.elapsed(), self.engine.control().map_or(0, |engine| engine.tensors().len()));
        let (label, bytes) = (&*version.label, written.bytes);
        tracing::info!(
            version = label,
            tensors = written.tensors,
            of = tensors,
            bytes,
            ?took,
            "the weights were replaced"
        );
        Updated { version, written, tensors, took }
    }

    /// Waits for the calls before, and refuses while an update in phases is active.
    async fn idle(&self) -> Result<tokio::sync::MutexGuard<'_, State>, ControlError> {
        let state = self.state.lock().await;
        if state.update.is_some() { Err(ACTIVE) } else { Ok(state) }
    }

    fn show_update(&self, updating: bool) {
        self.shown.lock().updating = updating;
    }

    /// Begins an update in phases. Nothing is computed until it is finished, or cancelled because no call of it came for
    /// too long.
    ///
    /// # Errors
    ///
    /// If an update is active already.
    pub async fn start_update(self: &Arc<Self>) -> Result<(), ControlError> {
        let engine = self.of_engine(WHAT)?;
        let mut state = self.idle().await?;
        engine.begin_update(self.policy.undo).await?;
        state.updates += 1;
        let call = state.updates;
        state.update = Some(Phase { call, last: Instant::now(), written: Written::default(), trained: None });
        let patience = self.policy.update_timeout;
        tracing::info!(?patience, "weights are being replaced: requests wait until the update is finished");
        self.show_update(true);
        tokio::spawn(Arc::clone(self).watch(call));
        Ok(())
    }

    /// Cancels an update when no call of it came for too long.
    async fn watch(self: Arc<Self>, call: u64) {
        loop {
            let wait = {
                let state = self.state.lock().await;
                let Some(phase) = state.update.filter(|phase| phase.call == call) else { return };
                self.policy.update_timeout.saturating_sub(phase.last.elapsed())
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

    /// Writes weights within an update in phases. An error ends the update, with the old weights put back.
    ///
    /// # Errors
    ///
    /// If no update is active, or the weights cannot be used.
    pub async fn write_weights(&self, weights: NewWeights) -> Result<Written, ControlError> {
        let mut state = self.updating().await?;
        let source = match weights {
            NewWeights::Tensors(_) | NewWeights::Changes(_) => Ok(Source::Given(weights)),
            NewWeights::Path(path) => {
                let source = self.source(&state, path.clone()).await;
                // As in an update in one call, what was pulled counts for one part.
                state.pulled.remove(&path);
                source
            }
        };
        self.write_part(&mut state, source).await
    }

    /// Applies the deltas that lead to a version, within an update in phases. An error ends the update, with the old
    /// weights put back.
    ///
    /// # Errors
    ///
    /// If no update is active, or a delta is missing, damaged or made for other weights.
    pub async fn write_version(&self, published: PathBuf, version: u64) -> Result<Written, ControlError> {
        let mut state = self.updating().await?;
        let source = versions(&state, published, version).await;
        self.write_part(&mut state, source).await
    }

    /// Waits for the calls before, and refuses while no update in phases is active.
    async fn updating(&self) -> Result<tokio::sync::MutexGuard<'_, State>, ControlError> {
        self.of_engine(WHAT)?;
        let state = self.state.lock().await;
        if state.update.is_some() { Ok(state) } else { Err(NOT_STARTED) }
    }

    async fn write_part(
        &self,
        state: &mut State,
        source: Result<Source, UpdateError>,
    ) -> Result<Written, ControlError> {
        let engine = self.of_engine(WHAT)?;
        let (outcome, trained) = match source {
            Ok(source) => {
                let trained = source.version();
                (source.write(engine).await, trained)
            }
            Err(error) => (Err(error), None),
        };
        if let (Ok(written), Some(phase)) = (&outcome, &mut state.update) {
            (phase.last, phase.trained) = (Instant::now(), trained);
            phase.written.tensors += written.tensors;
            phase.written.bytes += written.bytes;
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
    /// If no update is active, or the model lacks tensors.
    pub async fn finish_update(&self, label: Option<Arc<str>>) -> Result<Updated, ControlError> {
        let engine = self.of_engine(WHAT)?;
        let mut state = self.state.lock().await;
        let Some(phase) = state.update.take() else { return Err(NOT_MATCHING) };
        self.show_update(false);
        let version = engine.finish_update(label, self.policy.on_weights_change).await?;
        if phase.written.tensors > 0 {
            state.trained = phase.trained.or_else(|| version.label.parse().ok());
        }
        Ok(self.updated(version, phase.written, phase.last))
    }

    /// Puts the old weights back, if an update is active: any, or that of a certain call.
    ///
    /// # Errors
    ///
    /// If they were not kept.
    pub async fn cancel_update(&self, call: Option<u64>) -> Result<(), ControlError> {
        let engine = self.of_engine(WHAT)?;
        let mut state = self.state.lock().await;
        let Some(phase) = state.update else { return Ok(()) };
        if call.is_some_and(|call| call != phase.call) {
            return Ok(());
        }
        state.update = None;
        self.show_update(false);
        Ok(engine.cancel_update().await?)
    }

    /// Calls the weights something else from the next token on.
    ///
    /// # Errors
    ///
    /// If the engine cannot.
    pub async fn relabel(&self, label: Arc<str>) -> Result<(), ControlError> {
        Ok(self.of_engine("give its weights a version")?.relabel(label).await?)
    }
}
