//! Pausing: what becomes of requests that run, and of those that come.

use std::sync::Arc;

use super::{Control, ControlError};

/// What becomes of requests that run, as in vLLM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseMode {
    /// They end with what they have.
    Abort,
    /// They go on to their end, and the pause begins after it.
    Wait,
    /// They stay as they are, and go on when the server is resumed.
    Keep,
}

/// What becomes of requests that come during a pause that is to end or await those that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newcomers {
    /// They are refused, as by vLLM 0.33.
    Refused,
    /// They wait until the server is resumed, as in SGLang and AReaL.
    Queued,
}

/// A pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Paused {
    mode: PauseMode,
    newcomers: Newcomers,
    /// Whether requests that run are still awaited.
    draining: bool,
}

impl Paused {
    /// Whether the engine computes nothing.
    pub(super) fn holds(self) -> bool {
        !self.draining
    }

    pub(super) fn refuses(self) -> bool {
        self.closes() && self.newcomers == Newcomers::Refused
    }

    /// Whether requests that come stay outside of the engine.
    pub(super) fn closes(self) -> bool {
        self.mode != PauseMode::Keep
    }
}

impl Control {
    /// Pauses the server, and returns when it is. A pause of a paused server takes the place of the one before.
    ///
    /// # Errors
    ///
    /// If requests are to be kept and the engine cannot hold them, or if the server was resumed while requests were
    /// awaited.
    pub async fn pause(self: &Arc<Self>, mode: PauseMode, newcomers: Newcomers) -> Result<(), ControlError> {
        if mode == PauseMode::Keep {
            self.of_engine("keep running requests in a pause")?;
        }
        let mut state = self.state.lock().await;
        state.paused = Some(Paused { mode, newcomers, draining: mode == PauseMode::Wait });
        let call = state.begin();
        self.settle(&state).await?;
        if mode == PauseMode::Abort {
            let aborted = self.requests.abort_all();
            tracing::info!(aborted, "paused: requests were ended with what they have");
        }
        if mode != PauseMode::Wait {
            return Ok(());
        }
        drop(state);
        self.requests.settled().await;
        let mut state = self.state.lock().await;
        if state.calls != call {
            return Err(ControlError::State("the server was resumed or paused anew before its requests had ended"));
        }
        state.paused = Some(Paused { mode, newcomers, draining: false });
        self.settle(&state).await
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
