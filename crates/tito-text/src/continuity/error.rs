//! Why known ids are refused.

use crate::json::Path;

/// Why the ids of a request cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}", reason = self.reason.about(&self.field))]
pub struct ContinuityError {
    /// The field at fault.
    pub field: Path,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// What is said of it after its name.
    Named(String),
    /// A whole sentence.
    Whole(String),
}

impl Reason {
    fn about(&self, field: &Path) -> String {
        match self {
            Self::Named(reason) => format!("`{field}` {reason}"),
            Self::Whole(message) => message.clone(),
        }
    }
}

impl ContinuityError {
    pub(super) fn new(field: impl Into<Path>, reason: impl std::fmt::Display) -> Self {
        Self { field: field.into(), reason: Reason::Named(reason.to_string()) }
    }
}
