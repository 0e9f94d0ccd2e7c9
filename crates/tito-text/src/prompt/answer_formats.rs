//! How a model writes its answers.

use crate::parser::{ReasoningParser, ToolParser};

/// The formats in which a model writes its answers; `None` where nobody reads them.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnswerFormats {
    /// How it writes what it thinks.
    pub reasoning: Option<ReasoningParser>,
    /// How it writes calls.
    pub tools: Option<ToolParser>,
}
