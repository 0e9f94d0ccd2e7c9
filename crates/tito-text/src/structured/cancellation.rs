//! Whether anybody still waits for a grammar.

use llguidance::CancellationHandle;
use parking_lot::Mutex;

/// Tells a compilation that nobody waits for it any more.
#[derive(Debug, Default)]
pub struct Cancellation(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    cancelled: bool,
    /// What is being worked out now.
    running: Option<CancellationHandle>,
}

impl Cancellation {
    /// Ends the compilation where it is, or at the end of the stage that cannot be interrupted.
    pub fn cancel(&self) {
        let mut state = self.0.lock();
        state.cancelled = true;
        if let Some(running) = &state.running {
            running.cancel();
        }
    }

    /// Whether nobody waits.
    pub fn is_cancelled(&self) -> bool {
        self.0.lock().cancelled
    }

    /// Has what is worked out next end with the compilation.
    pub(super) fn covers(&self, running: CancellationHandle) {
        let mut state = self.0.lock();
        if state.cancelled {
            running.cancel();
        }
        state.running = Some(running);
    }
}
