//! The control plane of a training loop: it pauses the server, gives it other weights, and lets it go on.
//!
//! Owns in which state the server is, and which call is possible in which. Calls are done one after the other. It knows
//! no HTTP: `admin` gives each call its paths, and each error its status.
//!
//! ```text
//!             pause ──▶ paused (abort, wait: nobody comes in; keep: who comes waits) ──▶ resume
//! serving ──  sleep ──▶ asleep (memory given back, part by part)                     ──▶ wake_up
//!             start ──▶ updating (engine stands still, old weights kept)             ──▶ finish, cancel, or time out
//! ```
//!
//! The three are independent of each other: a paused server can be updated, one that sleeps too, and a step is computed
//! only while none of them holds the engine.

mod asleep;
mod checksums;
mod deltas;
mod draft;
mod error;
mod meters;
mod naming;
mod numbers;
mod paused;
mod pausing;
mod pulled;
mod reading;
mod reloading;
mod sleeping;
mod state;
mod streaming;
mod tensor_rows;
mod updating;
mod waiting;
mod weight_sets;
mod writing_calls;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::watch;

pub use self::{
    checksums::model_checksum,
    error::ControlError,
    naming::Relabelled,
    paused::{Newcomers, PauseMode},
    reloading::LoadedFiles,
    sleeping::{Awakened, SleepLevel, SleepTag},
    tensor_rows::TensorRows,
    updating::{Update, Updated},
    weight_sets::WeightSets,
};
use crate::{
    engine::{AdapterId, Engine, EngineControl, OnWeightsChange, UndoPolicy, WeightVersion},
    generation::{Door, RunningRequests},
};
use paused::Paused;
use state::State;
use writing_calls::WritingCalls;

/// The decisions of the server, rather than of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlPolicy {
    /// Whether requests that come while the server is paused wait, whatever the pause says.
    pub queue_while_paused: bool,
    /// What becomes of the keys and values of running sequences when the weights change.
    pub on_weights_change: OnWeightsChange,
    /// What an update keeps of what it overwrites.
    pub undo: UndoPolicy,
    /// The longest time between two calls of an update; after it, the old weights are put back.
    pub update_timeout: Duration,
}

impl Default for ControlPolicy {
    fn default() -> Self {
        Self {
            queue_while_paused: false,
            on_weights_change: OnWeightsChange::default(),
            undo: UndoPolicy::default(),
            update_timeout: Duration::from_mins(5),
        }
    }
}

/// The control plane of a server.
pub struct Control {
    engine: Arc<dyn Engine>,
    requests: RunningRequests,
    policy: ControlPolicy,
    /// Held while a call is done.
    state: tokio::sync::Mutex<State>,
    /// Tells those that wait for requests to end that the state may be another one.
    changes: watch::Sender<()>,
    /// The same, for those that only look.
    shown: Mutex<ControlStatus>,
    /// The calls that write weights.
    writing_calls: WritingCalls,
}

/// What is to be seen of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub struct ControlStatus {
    /// Whether the server is paused, or about to be.
    pub paused: bool,
    /// Whether it sleeps.
    pub asleep: bool,
    /// Whether its weights are being replaced.
    pub updating: bool,
    /// Whether nothing is computed because the server is paused or asleep.
    pub held: bool,
}

impl Control {
    /// Makes the control plane of an engine whose requests are `requests`.
    pub fn new(engine: Arc<dyn Engine>, requests: RunningRequests, policy: ControlPolicy) -> Arc<Self> {
        let (state, changes, shown) = (tokio::sync::Mutex::default(), watch::Sender::new(()), Mutex::default());
        Arc::new(Self { engine, requests, policy, state, changes, shown, writing_calls: WritingCalls::new() })
    }

    /// Has those look at the state who wait for requests to end.
    fn has_changed(&self) {
        self.changes.send_replace(());
    }

    /// Returns what is to be seen of the state, without waiting for a call that is being done.
    pub fn status(&self) -> ControlStatus {
        *self.shown.lock()
    }

    /// Whether nothing is computed until somebody says so, or sends the weights that are lost.
    pub fn stands_still(&self) -> bool {
        let ControlStatus { held, updating, .. } = self.status();
        held || updating || self.lacking() > 0
    }

    /// Waits until each call that writes weights has its answer, also one whose body still comes.
    pub fn writing_calls_ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.writing_calls.ended()
    }

    /// Returns the weights that sample now.
    pub fn weights(&self) -> Arc<WeightVersion> {
        self.engine.control().map_or_else(WeightVersion::first, EngineControl::weights)
    }

    /// Returns how many tensors are to be sent before anything can be sampled.
    pub fn lacking(&self) -> usize {
        self.engine.control().map_or(0, EngineControl::lacking)
    }

    /// Returns the engine.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// How often the engine gave something to a request: this grows as long as it works.
    pub fn outputs(&self) -> u64 {
        self.requests.outputs()
    }

    /// Has all calls wait, in the order in which they come, until what is returned is dropped.
    #[cfg(test)]
    pub async fn hold_calls(&self) -> impl Drop {
        self.state.lock().await
    }

    /// When something of the update that is under way came last.
    #[cfg(test)]
    pub async fn update_heard(&self) -> Option<tokio::time::Instant> {
        self.state.lock().await.update.as_ref().map(|phase| phase.heard.when())
    }

    fn of_engine(&self, what: &'static str) -> Result<&dyn EngineControl, ControlError> {
        let engine = self.engine.info().engine;
        self.engine.control().ok_or(ControlError::Unsupported { engine, what })
    }

    /// Ends the requests that somebody named, or all, also those that wait to begin; says how many there were.
    pub fn abort(&self, ids: Option<&[String]>) -> usize {
        match ids {
            None => self.requests.abort_all(),
            Some(ids) => self.requests.abort_any(ids),
        }
    }

    /// Ends the requests that have begun, as whoever brings other weights may want; says how many there were. Those that
    /// wait will begin with the new ones.
    pub fn abort_begun(&self) -> usize {
        self.requests.abort_begun()
    }

    /// Ends the requests that run with an adapter, or wait to; says how many there were.
    pub fn abort_adapter(&self, id: AdapterId) -> usize {
        self.requests.abort_adapter(id)
    }

    /// Forgets cached prefixes; `running` has running requests give back theirs too. Returns whether nothing is left.
    ///
    /// # Errors
    ///
    /// If the engine cannot.
    pub async fn reset_prefix_cache(&self, running: bool) -> Result<bool, ControlError> {
        Ok(self.of_engine("forget its cached prefixes")?.reset_prefix_cache(running).await?)
    }

    /// Has the engine and the door agree with a state.
    async fn settle(&self, state: &State) -> Result<(), ControlError> {
        self.requests.set_door(self.door(state));
        let held = !state.draining && (state.paused.is_some_and(Paused::holds) || state.asleep.is_some());
        *self.shown.lock() = ControlStatus {
            paused: state.paused.is_some(),
            asleep: state.asleep.is_some(),
            updating: state.update.is_some(),
            held,
        };
        meters::show(state.asleep);
        self.has_changed();
        match self.engine.control() {
            Some(engine) if held => Ok(engine.hold().await?),
            Some(engine) => Ok(engine.release().await?),
            // Behind a closed door there is nothing to hold.
            None => Ok(()),
        }
    }

    fn door(&self, state: &State) -> Door {
        match state.paused {
            Some(paused) if paused.refuses() && !self.policy.queue_while_paused => Door::Refusing,
            Some(paused) if paused.closes() => Door::Queueing,
            _ if state.draining => Door::Queueing,
            _ => Door::Open,
        }
    }
}
