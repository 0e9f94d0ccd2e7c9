//! A pause: what becomes of requests.

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
    /// The number of its call, by which it knows after waiting whether it is still this pause.
    pub(super) call: u64,
    pub(super) mode: PauseMode,
    pub(super) newcomers: Newcomers,
    /// Whether requests that run are still awaited.
    pub(super) draining: bool,
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
