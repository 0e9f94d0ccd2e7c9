//! What a server decides of all prompts of Harmony, and a request of its own.

use crate::{json::Path, prompt::PromptError};

/// What a server decides of all prompts.
#[derive(Debug, Clone, Default)]
pub struct HarmonySettings {
    /// The date that system messages show instead of today's.
    pub start_date: Option<String>,
    /// Whether instructions stand in system messages rather than in developer messages.
    pub system_instructions: bool,
}

/// How much the model is to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Effort {
    Low,
    #[default]
    Medium,
    High,
}

impl Effort {
    /// The effort that a request asks for.
    pub(super) fn of(asked: Option<&str>) -> Result<Self, PromptError> {
        let message = match asked {
            None => return Ok(Self::default()),
            Some("low") => return Ok(Self::Low),
            Some("medium") => return Ok(Self::Medium),
            Some("high") => return Ok(Self::High),
            Some("none") => "Harmony does not support reasoning_effort='none'".to_owned(),
            Some(other) => format!(
                "reasoning_effort='{other}' is not supported by Harmony. Supported values are: high, medium, low."
            ),
        };
        Err(PromptError::Content { field: Path::from("reasoning_effort"), message })
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}
