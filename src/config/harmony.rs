//! What vLLM reads from the environment about models that read Harmony.

use clap::Args;

/// What prompts of gpt-oss say besides the conversation.
#[derive(Debug, Args)]
pub struct HarmonyArgs {
    /// The date that the system message shows instead of today's.
    #[arg(long, hide = true, value_name = "DATE", env = "VLLM_SYSTEM_START_DATE")]
    pub system_start_date: Option<String>,

    /// Whether instructions stand in the system message rather than in a message of the developer.
    #[arg(long, hide = true, value_name = "0|1", env = "VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS")]
    pub harmony_system_instructions: Option<i64>,
}
