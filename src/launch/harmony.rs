//! Which models have their prompts rendered by Harmony, and their answers read as Harmony, as in vLLM.

use super::{progress::Progress, settings::ModelSettings};
use crate::{
    model::ModelFiles,
    parser::{ReasoningParser, ToolParser},
    prompt::Harmony,
    tokenizer::Tokenizer,
    turn::ToolPolicy,
};

/// The models that vLLM asks Harmony for.
const MODEL_TYPE: &str = "gpt_oss";
/// What reads calls and reasoning out of Harmony's channels.
const CALLS: &str = "openai";
const REASONING: &str = "openai_gptoss";

/// The policy of flags, with Harmony for what they do not choose: no other format can be meant. As in vLLM, the model may
/// then call tools by itself, whether or not a flag says so.
pub(super) fn policy(flags: ToolPolicy, progress: &Progress) -> ToolPolicy {
    if flags.parser.is_none() || flags.reasoning.is_none() {
        progress.say("answers are read as Harmony where no flag says otherwise");
    }
    let parser = flags.parser.or_else(|| ToolParser::named(CALLS));
    let reads_channels = parser.is_some_and(|parser| parser.name() == CALLS);
    ToolPolicy {
        parser,
        auto: flags.auto || reads_channels,
        reasoning: flags.reasoning.or_else(|| ReasoningParser::named(REASONING)),
        ..flags
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_choose_a_format_are_kept() {
        let names = |flags: ToolPolicy| {
            let policy = policy(flags, &Progress::new());
            (policy.parser.map(ToolParser::name), policy.auto, policy.reasoning.map(ReasoningParser::name))
        };
        let none = ToolPolicy::default();
        assert_eq!(names(none), (Some("openai"), true, Some("openai_gptoss")));
        let [parser, openai] = ["hermes", "openai"].map(ToolParser::named);
        let reasoning = ReasoningParser::named("qwen3");
        assert_eq!(names(ToolPolicy { parser, reasoning, ..none }), (Some("hermes"), false, Some("qwen3")));
        assert_eq!(names(ToolPolicy { parser: openai, ..none }), (Some("openai"), true, Some("openai_gptoss")));
    }
}
