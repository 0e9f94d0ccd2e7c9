//! Which models have their prompts rendered by Harmony, as in vLLM.

use super::settings::ModelSettings;
use crate::{model::ModelFiles, prompt::Harmony, tokenizer::Tokenizer};

/// The models that vLLM asks Harmony for.
const MODEL_TYPE: &str = "gpt_oss";

/// Harmony, if the model reads it, and what renders prompts then: no template is asked, not even one of the command line.
pub(super) fn of_model(
    model: &ModelSettings,
    files: &ModelFiles,
    tokenizer: &Tokenizer,
    template_source: String,
) -> (Option<Harmony>, String) {
    if files.config.model_type.as_deref() != Some(MODEL_TYPE) {
        return (None, template_source);
    }
    let harmony = Harmony::new(tokenizer, model.harmony.clone());
    if harmony.is_none() {
        tracing::warn!("the tokenizer lacks the special tokens of Harmony, so the chat template renders prompts");
        return (None, template_source);
    }
    if model.chat_template.is_some() {
        tracing::warn!("--chat-template is not used: as in vLLM, Harmony renders the prompts of this model");
    }
    (harmony, "none, but Harmony".to_owned())
}
