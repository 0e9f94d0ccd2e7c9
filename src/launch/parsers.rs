//! How answers are read, chosen by the chat template where a flag says so, and checked against the tokenizer before
//! anything else takes time.

use anyhow::{anyhow, bail};

use super::{harmony, progress::Progress, settings::ParserSettings};
use crate::{
    TokenId,
    config::Choice,
    model::TokenizerConfig,
    parser::{
        NoFormat, ReasoningParser, SeveralSuffixes, ToolParser, reasoning_marks, reasoning_parser_of, tool_marks,
        tool_parser_of,
    },
    tokenizer::Tokenizer,
    turn::{ToolPolicy, ToolStrictLevel},
};

/// The parser as a vocabulary's tokens spell its marks, of which a configuration may declare what they end in.
type OfVocabulary<P> = fn(P, &mut dyn Iterator<Item = String>, Option<&str>) -> Result<P, SeveralSuffixes>;

/// A flag that may leave the choice to the chat template.
struct Flag<P> {
    spelling: &'static str,
    of_template: fn(&str) -> Result<P, NoFormat>,
    name: fn(P) -> &'static str,
    marks: fn() -> String,
    names: fn() -> Vec<&'static str>,
    of_vocabulary: OfVocabulary<P>,
    needed_tokens: fn(P) -> &'static [&'static str],
}

/// A tokenizer, as far as it says how marks are spelled.
#[derive(Clone, Copy)]
pub(super) struct Vocabulary<'t> {
    tokenizer: &'t Tokenizer,
    /// What its configuration says that marks end in.
    suffix: Option<&'t str>,
}

impl<'t> Vocabulary<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer, configuration: &'t TokenizerConfig) -> Self {
        Self { tokenizer, suffix: configuration.raw.get("token_suffix").and_then(serde_json::Value::as_str) }
    }

    fn tokens(self) -> impl Iterator<Item = String> {
        let ids = (0..self.tokenizer.vocab_size()).filter_map(|id| TokenId::try_from(id).ok());
        ids.filter_map(move |id| self.tokenizer.token(id))
    }
}

const CALLS: Flag<ToolParser> = Flag {
    spelling: "--tool-call-parser",
    of_template: tool_parser_of,
    name: ToolParser::name,
    marks: tool_marks,
    names: || ToolParser::names().collect(),
    of_vocabulary: ToolParser::of_vocabulary,
    needed_tokens: ToolParser::needed_tokens,
};

const REASONING: Flag<ReasoningParser> = Flag {
    spelling: "--reasoning-parser",
    of_template: reasoning_parser_of,
    name: ReasoningParser::name,
    marks: reasoning_marks,
    names: || ReasoningParser::names().collect(),
    of_vocabulary: ReasoningParser::of_vocabulary,
    needed_tokens: ReasoningParser::needed_tokens,
};

/// What flags and the chat templates choose: the one for requests with tools, and the one for others. Where Harmony renders
/// prompts and no flag chooses, answers are read as Harmony.
pub(super) fn chosen(
    settings: ParserSettings,
    (with_tools, without): (Option<&str>, Option<&str>),
    is_harmony: bool,
    progress: &Progress,
) -> anyhow::Result<ToolPolicy> {
    let flags = ToolPolicy {
        parser: CALLS.chosen(settings.calls, with_tools, progress)?,
        auto: settings.auto_tool_choice,
        reasoning: REASONING.chosen(settings.reasoning, without, progress)?,
        strict_level: settings.strict_level,
    };
    let policy = if is_harmony { harmony::policy(flags, progress) } else { flags };
    check_strict_level(policy)?;
    Ok(policy)
}

/// An error where calls are to be held that the model makes by itself, and the format's grammar cannot hold them.
fn check_strict_level(policy: ToolPolicy) -> anyhow::Result<()> {
    let level = match policy.strict_level {
        ToolStrictLevel::Auto => return Ok(()),
        ToolStrictLevel::Function => "function",
        ToolStrictLevel::Parameter => "parameter",
    };
    let Some(parser) = policy.parser.filter(|parser| policy.auto && !parser.holds_any()) else { return Ok(()) };
    bail!(
        "--tool-strict-level {level} cannot be kept with {} {}: no grammar of this format holds calls that the model \
         makes by itself; leave the level out if such calls may have any form",
        CALLS.spelling,
        parser.name()
    );
}

/// What `auto` would choose for calls and for reasoning by the chat templates, or why it would not or could not.
pub(super) fn fitting(
    (with_tools, without): (Option<&str>, Option<&str>),
    vocabulary: Vocabulary<'_>,
) -> [(&'static str, Result<&'static str, String>); 2] {
    let (calls, reasoning) = (CALLS.fitting(with_tools, vocabulary), REASONING.fitting(without, vocabulary));
    [(CALLS.spelling, calls), (REASONING.spelling, reasoning)]
}

impl<P: Copy> Flag<P> {
    fn chosen(
        &self,
        choice: Option<Choice<P>>,
        template: Option<&str>,
        progress: &Progress,
    ) -> anyhow::Result<Option<P>> {
        let parser = match choice {
            None => return Ok(None),
            Some(Choice::Named(parser)) => return Ok(Some(parser)),
            Some(Choice::Auto) => self.of_template(template)?,
        };
        progress.say(&format!("{} auto is {}, by the chat template", self.spelling, (self.name)(parser)));
        Ok(Some(parser))
    }

    /// What the template shows, if the tokenizer has what it takes.
    fn fitting(&self, template: Option<&str>, vocabulary: Vocabulary<'_>) -> Result<&'static str, String> {
        let template = template.ok_or_else(|| "there is no chat template".to_owned())?;
        let parser = (self.of_template)(template).map_err(|reason| reason.to_string())?;
        let name = (self.name)(parser);
        let parser = (self.of_vocabulary)(parser, &mut vocabulary.tokens(), vocabulary.suffix);
        let parser = parser.map_err(|reason| format!("{name} would be it, but {reason}"))?;
        match lacking((self.needed_tokens)(parser), vocabulary.tokenizer) {
            Some(token) => Err(format!("{name} would be it, and the tokenizer has no token {token}")),
            None => Ok(name),
        }
    }

    /// The parser as the model's vocabulary spells its marks. An error where that lacks what the parser looks for, as in
    /// vLLM, or does not say which they are.
    fn spelled(&self, parser: Option<P>, vocabulary: Vocabulary<'_>, model: &str) -> anyhow::Result<Option<P>> {
        let Some(parser) = parser else { return Ok(None) };
        let refused = format!("{} {} cannot be used with the tokenizer of {model}", self.spelling, (self.name)(parser));
        let parser = (self.of_vocabulary)(parser, &mut vocabulary.tokens(), vocabulary.suffix);
        let parser = parser.map_err(|reason| anyhow!("{refused}: {reason}"))?;
        if let Some(token) = lacking((self.needed_tokens)(parser), vocabulary.tokenizer) {
            bail!("{refused}: it has no token {token}");
        }
        Ok(Some(parser))
    }

    fn of_template(&self, template: Option<&str>) -> anyhow::Result<P> {
        let flag = self.spelling;
        let Some(template) = template else {
            bail!(
                "{flag} auto finds the format in the chat template, but the model has none; name one of {}",
                self.listed()
            );
        };
        (self.of_template)(template).map_err(|reason| {
            let marks = (self.marks)();
            anyhow!("{flag} auto cannot choose: {reason} (looked for: {marks}); name one of {}", self.listed())
        })
    }

    fn listed(&self) -> String {
        (self.names)().join(", ")
    }
}

/// The policy with the marks of its parsers as the model's vocabulary spells them.
pub(super) fn spelled(policy: ToolPolicy, vocabulary: Vocabulary<'_>, model: &str) -> anyhow::Result<ToolPolicy> {
    Ok(ToolPolicy {
        parser: CALLS.spelled(policy.parser, vocabulary, model)?,
        reasoning: REASONING.spelled(policy.reasoning, vocabulary, model)?,
        ..policy
    })
}

/// The first token that the tokenizer does not have.
fn lacking(needed: &'static [&'static str], tokenizer: &Tokenizer) -> Option<&'static str> {
    needed.iter().copied().find(|token| tokenizer.id_of(token).is_none())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{model::ModelFiles, tokenizer::AddedToken};

    fn of(template: Option<&str>) -> Result<(Option<&'static str>, Option<&'static str>), String> {
        let settings = ParserSettings {
            calls: Some(Choice::Auto),
            auto_tool_choice: false,
            reasoning: Some(Choice::Named(ReasoningParser::named("qwen3").unwrap())),
            strict_level: ToolStrictLevel::Auto,
        };
        let tools = chosen(settings, (template, None), false, &Progress::new()).map_err(|error| error.to_string())?;
        Ok((tools.parser.map(ToolParser::name), tools.reasoning.map(ReasoningParser::name)))
    }

    #[test]
    fn auto_is_what_the_template_says_and_a_name_what_it_names() {
        assert_eq!(of(Some("[TOOL_CALLS]")), Ok((Some("mistral"), Some("qwen3"))));
    }

    #[test]
    fn a_level_that_the_format_cannot_keep_is_refused() {
        let of = |name: &str, auto: bool, strict_level| {
            let parser = ToolParser::named(name);
            check_strict_level(ToolPolicy { parser, auto, reasoning: None, strict_level })
        };
        for level in [ToolStrictLevel::Function, ToolStrictLevel::Parameter] {
            assert!(of("hermes", true, level).is_ok());
            // Forced calls are held in any case.
            assert!(of("pythonic", false, level).is_ok());
            for name in ["pythonic", "gemma4", "openai"] {
                let error = of(name, true, level).unwrap_err().to_string();
                assert!(error.contains("--tool-strict-level") && error.contains(name), "{error}");
            }
        }
        assert!(of("pythonic", true, ToolStrictLevel::Auto).is_ok());
    }

    #[test]
    fn marks_are_spelled_as_in_the_vocabulary() {
        let files = ModelFiles::open(Path::new("tests/fixtures/tiny-model")).unwrap();
        let policy = |name: &str| ToolPolicy {
            parser: ToolParser::named(name),
            reasoning: ReasoningParser::named(name),
            ..ToolPolicy::default()
        };
        let with_tokens = |texts: &[&str]| {
            let tokenizer = files.tokenizer().unwrap();
            let first = TokenId::try_from(tokenizer.vocab_size()).unwrap();
            let added = (first..).zip(texts).map(|(id, text)| AddedToken::verbatim(id, *text, true));
            tokenizer.with_added_tokens(&added.collect::<Vec<_>>()).unwrap()
        };
        let (plain, suffixed) = (["<tool_calls>", "</tool_calls>"], ["<tool_calls:a1>", "</tool_calls:a1>"]);
        let thoughts = ["<think:a1>", "</think:a1>"];
        for name in ["hy_v3", "hy_v4"] {
            let tokenizer = with_tokens(&[suffixed, thoughts].concat());
            // The tiny model has marks of thoughts without a suffix, too.
            let suffix = Some(":a1");
            let spelled = spelled(policy(name), Vocabulary { tokenizer: &tokenizer, suffix }, "m").unwrap();
            assert_eq!(spelled.parser.unwrap().needed_tokens(), suffixed);
            assert_eq!(spelled.reasoning.unwrap().needed_tokens(), thoughts);
        }
        let both = with_tokens(&[plain, suffixed, thoughts].concat());
        let of_both = |suffix| spelled(policy("hy_v3"), Vocabulary { tokenizer: &both, suffix }, "m");
        assert_eq!(of_both(Some(":a1")).unwrap().parser.unwrap().needed_tokens(), suffixed);
        let error = of_both(None).unwrap_err().to_string();
        let refused =
            "--tool-call-parser hy_v3 cannot be used with the tokenizer of m: the vocabulary has its marks with";
        assert!(error.starts_with(refused) && error.contains(":a1"), "{error}");
        // The tiny model has a mark of calls without a suffix, too.
        let lacking = with_tokens(&["<tool_calls:a1>"]);
        let policy = ToolPolicy { reasoning: None, ..policy("hy_v4") };
        let error = spelled(policy, Vocabulary { tokenizer: &lacking, suffix: None }, "m").unwrap_err().to_string();
        assert!(error.ends_with("it has no token <tool_calls>"), "{error}");
    }

    #[test]
    fn nothing_is_guessed() {
        for (template, reason) in [
            (
                None,
                "--tool-call-parser auto finds the format in the chat template, but the model has none; name one of ",
            ),
            (Some("a"), "--tool-call-parser auto cannot choose: none of the marks"),
        ] {
            let error = of(template).unwrap_err();
            assert!(error.starts_with(reason) && error.contains("hermes"), "{error}");
        }
        let error = of(Some("a")).unwrap_err();
        assert!(error.contains("looked for: <|tool_call>, ") && error.contains("[TOOL_CALLS]"), "{error}");
    }
}
