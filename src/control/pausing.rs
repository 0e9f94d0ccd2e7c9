//! Pausing: what becomes of requests that run, and of those that come.

use std::sync::Arc;

use super::{
    Control, ControlError,
    paused::{Newcomers, PauseMode, Paused},
    state::State,
    waiting::{KEPT_ASLEEP, Waited, without_weights},
};

impl Control {
    /// Pauses the server, and returns when it is. A pause of a paused server takes the place of the one before.
    ///
    /// # Errors
    ///
    /// If requests are to be kept and the engine cannot hold them; if requests are to be awaited while weights are lost or
    /// the server sleeps, so that none ends; or as soon as the server is resumed or paused anew while they are awaited.
    pub async fn pause(self: &Arc<Self>, mode: PauseMode, newcomers: Newcomers) -> Result<(), ControlError> {
        if mode == PauseMode::Keep {
            self.of_engine("keep running requests in a pause")?;
        }
        let mut state = self.state.lock().await;
        if mode == PauseMode::Wait && state.asleep.is_some() && self.requests.has_begun() {
            return Err(KEPT_ASLEEP);
        }
        let call = state.begin();
        let paused = Paused { call, mode, newcomers, draining: mode == PauseMode::Wait };
        state.paused = Some(paused);
        self.settle(&state).await?;
        if mode == PauseMode::Abort {
            let aborted = self.requests.abort_begun();
            tracing::info!(aborted, "paused: requests were ended with what they have");
        }
        if mode != PauseMode::Wait {
            state.settled_pause = state.paused;
            return Ok(());
        }
        drop(state);
        let (mut state, waited) = self.wait_for_requests(|state| state.is_paused_by(call)).await;
        match waited {
            Waited::Superseded => {
                Err(ControlError::State("the server was resumed or paused anew before its requests had ended"))
            }
            Waited::Settled => {
                state.paused = Some(Paused { draining: false, ..paused });
                state.settled_pause = state.paused;
                self.settle(&state).await
            }
            Waited::WithoutWeights(missing) => self.give_up_pause(&mut state, without_weights(missing)).await,
        }
    }

    /// Refuses a pause that was to wait. What was before it goes on, and that is no pause that was to wait too: whoever
    /// called that one was told that another call came.
    async fn give_up_pause(&self, state: &mut State, refusal: ControlError) -> Result<(), ControlError> {
        state.paused = state.settled_pause;
        self.settle(state).await?;
        Err(refusal)
    }

    /// Ends a pause; a server that is not paused goes on as before.
    ///
    /// # Errors
    ///
    /// If the engine has failed.
    pub async fn resume(&self) -> Result<(), ControlError> {
        let mut state = self.state.lock().await;
        (state.paused, state.settled_pause) = (None, None);
        state.begin();
        self.settle(&state).await
    }
}
