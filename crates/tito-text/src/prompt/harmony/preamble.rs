//! What a prompt of Harmony begins with: the system message, and what the developer says of the task and of tools.

use std::fmt::Write as _;

use super::{
    settings::{Effort, HarmonySettings},
    typescript::tools_section,
};
use crate::chat::FunctionTool;

const IDENTITY: &str = "You are ChatGPT, a large language model trained by OpenAI.";
const KNOWLEDGE_CUTOFF: &str = "2024-06";

/// What every system message of a prompt says alike.
pub(super) struct Circumstances<'a> {
    pub(super) settings: &'a HarmonySettings,
    /// The day, as in 2026-11-23.
    pub(super) date: String,
    /// Whether the developer message shows any tool.
    pub(super) has_tools: bool,
}

impl Circumstances<'_> {
    /// What a system message says, in which the instructions stand only where the server says so.
    pub(super) fn system(&self, instructions: Option<&str>, effort: Effort) -> String {
        let mut text = IDENTITY.to_owned();
        if let Some(instructions) = instructions.filter(|_| self.settings.system_instructions) {
            let _ = write!(text, "\n{instructions}");
        }
        let _ = write!(
            text,
            "\nKnowledge cutoff: {KNOWLEDGE_CUTOFF}\nCurrent date: {}\n\nReasoning: {}\n\n# Valid channels: analysis, \
             commentary, final. Channel must be included for every message.",
            self.date,
            effort.as_str()
        );
        if self.has_tools {
            text.push_str("\nCalls to these tools must go to the commentary channel: 'functions'.");
        }
        text
    }

    /// What a developer message says.
    pub(super) fn developer(&self, instructions: Option<&str>, tools: &[FunctionTool]) -> String {
        let instructions = instructions.filter(|_| !self.settings.system_instructions);
        let instructions = instructions.map(|text| format!("# Instructions\n\n{text}"));
        let tools = if tools.is_empty() { None } else { Some(tools_section(tools)) };
        [instructions, tools].into_iter().flatten().collect::<Vec<_>>().join("\n\n")
    }
}
