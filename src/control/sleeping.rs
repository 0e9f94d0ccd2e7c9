//! Sleeping: the server gives memory back while nobody needs it.

use std::sync::Arc;

use tokio::sync::MutexGuard;

use super::{
    Control, ControlError, PauseMode, State,
    asleep::Asleep,
    waiting::{KEPT_ASLEEP, Waited, without_weights},
};
use crate::engine::Memory;

/// How deep a server sleeps, as in vLLM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SleepLevel {
    /// Nothing is computed.
    Scheduling,
    /// The memory of keys and values is given back. Weights stay where they are.
    KvCache,
    /// The memory of weights is given back too. They are to be sent again after the server has been woken up.
    Weights,
}

/// A part of a server that can be woken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SleepTag {
    /// The memory of weights.
    Weights,
    /// The memory of keys and values.
    KvCache,
    /// The computing.
    Scheduling,
}

/// What became of a call to wake up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Awakened {
    /// Whether nothing sleeps any more.
    pub awake: bool,
    /// Tensors that are to be sent before anything can be sampled.
    pub lacking: usize,
}

const UPDATING: ControlError = ControlError::State("the server cannot sleep while a weight update is active");
const SUPERSEDED: ControlError = ControlError::State("another call came before the requests of the server had ended");

impl Control {
    /// Has the server sleep; requests that come wait. A server that sleeps already sleeps at least as deep; returns how deep it
    /// sleeps then.
    ///
    /// # Errors
    ///
    /// If the engine cannot, or while weights are being replaced; if weights are to go that cannot be sent again; if requests
    /// are to be awaited while weights are lost or the server sleeps already, so that none ends, or as soon as another call takes the place of one that
    /// awaits them.
    pub async fn sleep(self: &Arc<Self>, level: SleepLevel, mode: PauseMode) -> Result<SleepLevel, ControlError> {
        let parts = Asleep { weights: level >= SleepLevel::Weights, kv_cache: level >= SleepLevel::KvCache };
        self.fall_asleep(parts, mode).await
    }

    /// Gives exactly these parts of the memory back, and computes nothing until each has been woken up.
    ///
    /// # Errors
    ///
    /// As [`Control::sleep`].
    pub async fn give_back(self: &Arc<Self>, parts: &[SleepTag]) -> Result<(), ControlError> {
        let has = |tag| parts.contains(&tag);
        let parts = Asleep { weights: has(SleepTag::Weights), kv_cache: has(SleepTag::KvCache) };
        self.fall_asleep(parts, PauseMode::Keep).await?;
        Ok(())
    }

    async fn fall_asleep(self: &Arc<Self>, parts: Asleep, mode: PauseMode) -> Result<SleepLevel, ControlError> {
        let engine = self.of_engine("give memory back")?;
        let mut state = self.state.lock().await;
        if state.update.is_some() {
            return Err(UPDATING);
        }
        if parts.weights {
            // Weights that nobody can send again are not given away.
            engine.replaces_weights()?;
        }
        if mode == PauseMode::Wait {
            state = self.without_requests(state).await?;
        }
        state.begin();
        let before = state.asleep.unwrap_or(Asleep { weights: false, kv_cache: false });
        let asleep = Asleep { weights: before.weights || parts.weights, kv_cache: before.kv_cache || parts.kv_cache };
        state.asleep = Some(asleep);
        self.settle(&state).await?;
        if mode == PauseMode::Abort {
            self.requests.abort_begun();
        }
        for (memory, now, before) in
            [(Memory::KvCache, asleep.kv_cache, before.kv_cache), (Memory::Weights, asleep.weights, before.weights)]
        {
            if now && !before {
                engine.discard(memory).await?;
            }
        }
        Ok(match asleep {
            Asleep { weights: true, .. } => SleepLevel::Weights,
            Asleep { kv_cache: true, .. } => SleepLevel::KvCache,
            Asleep { .. } => SleepLevel::Scheduling,
        })
    }

    /// Waits until no request is left that would have to be awaited by a sleep.
    async fn without_requests<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>, ControlError> {
        if state.asleep.is_some() {
            return if self.requests.has_begun() { Err(KEPT_ASLEEP) } else { Ok(state) };
        }
        let call = state.begin();
        // What a pause has kept goes on to its end.
        state.draining = true;
        self.settle(&state).await?;
        drop(state);
        let (mut state, waited) = self.wait_for_requests(|state| state.calls == call).await;
        let refusal = match waited {
            Waited::Superseded => return Err(SUPERSEDED),
            Waited::Settled if state.update.is_some() => UPDATING,
            Waited::Settled => return Ok(state),
            Waited::WithoutWeights(missing) => without_weights(missing),
        };
        state.begin();
        self.settle(&state).await?;
        Err(refusal)
    }

    /// Wakes up parts of the server, or all of it. A sleep that still waits for requests to end does not come any more.
    ///
    /// # Errors
    ///
    /// If the system does not give the memory back; the server goes on sleeping.
    pub async fn wake_up(&self, tags: Option<&[SleepTag]>) -> Result<Awakened, ControlError> {
        let engine = self.of_engine("give memory back")?;
        let mut state = self.state.lock().await;
        let Some(mut asleep) = state.asleep else {
            if state.draining {
                state.begin();
                self.settle(&state).await?;
            }
            return Ok(Awakened { awake: true, lacking: self.lacking() });
        };
        let wanted = |tag| tags.is_none_or(|tags| tags.contains(&tag));
        if asleep.weights && wanted(SleepTag::Weights) {
            engine.restore(Memory::Weights).await?;
            asleep.weights = false;
        }
        state.asleep = Some(asleep);
        if asleep.kv_cache && wanted(SleepTag::KvCache) {
            engine.restore(Memory::KvCache).await?;
            asleep.kv_cache = false;
        }
        state.asleep = (asleep.weights || asleep.kv_cache).then_some(asleep);
        self.settle(&state).await?;
        Ok(Awakened { awake: state.asleep.is_none(), lacking: self.lacking() })
    }
}
