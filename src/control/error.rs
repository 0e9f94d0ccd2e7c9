//! Why a call was not done.

use crate::engine::{EngineError, UpdateError};

/// Why a call was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The engine that serves cannot do it at all.
    #[error("the engine `{engine}` cannot {what}; start the server with --engine native")]
    Unsupported {
        /// The engine.
        engine: &'static str,
        /// What was asked of it.
        what: &'static str,
    },
    /// The call does not fit the state that the server is in.
    #[error("{0}")]
    State(&'static str),
    /// The call does not belong to the update in parts that was active, which it ended. The same call may be done now.
    #[error("{0}")]
    EndsUpdate(&'static str),
    /// The weights were not replaced.
    #[error(transparent)]
    Update(#[from] UpdateError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
