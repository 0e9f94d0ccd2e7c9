//! Pausing: what becomes of requests that run, and of those that come.

use std::sync::Arc;

use super::{
    Control, ControlError,
    paused::{Newcomers, PauseMode, Paused},
    waiting::{Waited, without_weights},
};

impl Control {
    /// Pauses the server, and returns when it is. A pause of a paused server takes the place of the one before.
    ///
    /// # Errors
    ///
    /// If requests are to be kept and the engine cannot hold them; if requests are to be awaited while weights are lost, so
    /// that none ends; or as soon as the server is resumed or paused anew while they are awaited.
    pub async fn pause(self: &Arc<Self>, mode: PauseMode, newcomers: Newcomers) -> Result<(), ControlError> {
        if mode == PauseMode::Keep {
            self.of_engine("keep running requests in a pause")?;
        }
        let mut state = self.state.lock().await;
        let call = state.begin();
        let before = state.paused;
        state.paused = Some(Paused { call, mode, newcomers, draining: mode == PauseMode::Wait });
        self.settle(&state).await?;
        if mode == PauseMode::Abort {
            let aborted = self.requests.abort_begun();
            tracing::info!(aborted, "paused: requests were ended with what they have");
        }
        if mode != PauseMode::Wait {
            return Ok(());
        }
        drop(state);
        let (mut state, waited) = self.wait_for_requests(|state| state.is_paused_by(call)).await;
        match waited {
            Waited::Superseded => {
                Err(ControlError::State("the server was resumed or paused anew before its requests had ended"))
            }
            Waited::Settled => {
                state.paused = Some(Paused { call, mode, newcomers, draining: false });
                self.settle(&state).await
            }
            Waited::WithoutWeights(missing) => {
                state.paused = before;
                self.settle(&state).await?;
                Err(without_weights(missing))
            }
        }
    }

    /// Ends a pause; a server that is not paused goes on as before.
    ///
    /// # Errors
    ///
    /// If the engine has failed.
    pub async fn resume(&self) -> Result<(), ControlError> {
        let mut state = self.state.lock().await;
        state.paused = None;
        state.begin();
        self.settle(&state).await
    }
}
