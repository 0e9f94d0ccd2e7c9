//! Weights of a model that drafts, which have no version: no token comes of them alone.

use std::path::PathBuf;

use super::{Control, ControlError, updating::WHAT};
use crate::engine::{EngineControl, Written};

const DRAFT_AMID_UPDATE: ControlError =
    ControlError::State("weights of the draft model are not replaced while a weight update is active: finish it first");

impl Control {
    /// Whether another model drafts.
    pub fn has_draft_model(&self) -> bool {
        self.engine.control().is_some_and(EngineControl::has_draft_model)
    }

    /// Replaces weights of the model that drafts. Requests go on, and no token of them changes.
    ///
    /// # Errors
    ///
    /// If there is no such model, or the weights cannot be used; it goes on with those that it had.
    pub async fn update_draft(&self, path: PathBuf) -> Result<Written, ControlError> {
        let engine = self.of_engine(WHAT)?;
        let _writing = self.writing_calls.begin();
        let _idle = self.idle(DRAFT_AMID_UPDATE).await?;
        let written = engine.update_draft(path).await?;
        tracing::info!(
            tensors = written.tensors,
            bytes = written.bytes,
            "the weights of the draft model were replaced"
        );
        Ok(written)
    }
}
