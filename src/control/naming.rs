//! What weights are called, beside the calls that bring them.

use std::sync::Arc;

use super::{Control, ControlError};

/// Which weights have a name that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relabelled {
    /// Those that are there.
    Now,
    /// Those of an update, once it is finished.
    OnceUpdated,
}

impl Control {
    /// Calls the weights something else from the next token on. Amid an update, these are the weights that it brings: the
    /// name takes the place of those that its parts gave before, and an end that gives another one is refused.
    /// `aborts` ends the requests that run with what they have.
    ///
    /// # Errors
    ///
    /// If the engine cannot.
    pub async fn relabel(&self, label: Arc<str>, aborts: bool) -> Result<Relabelled, ControlError> {
        let engine = self.of_engine("give its weights a version")?;
        // Whoever asks while weights are replaced in one call means those that come.
        let mut state = self.state.lock().await;
        if let Some(phase) = &mut state.update {
            phase.is_renamed(label);
            phase.aborts |= aborts;
            return Ok(Relabelled::OnceUpdated);
        }
        let relabel = async { Ok(engine.relabel(label).await?) };
        self.ending_requests(aborts, &state, relabel).await?;
        Ok(Relabelled::Now)
    }
}
