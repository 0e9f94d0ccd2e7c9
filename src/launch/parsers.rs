//! How answers are read, chosen by the chat template where a flag says so, and checked against the tokenizer before
//! anything else takes time.

use anyhow::{anyhow, bail};

use super::{progress::Progress, settings::ParserSettings};
use crate::{
    config::Choice,
    parser::{NoFormat, ReasoningParser, ToolParser, reasoning_marks, reasoning_parser_of, tool_marks, tool_parser_of},
    tokenizer::Tokenizer,
    turn::{ToolPolicy, ToolStrictLevel},
};

/// A flag that may leave the choice to the chat template.
struct Flag<P> {
    spelling: &'static str,
    of_template: fn(&str) -> Result<P, NoFormat>,
    name: fn(P) -> &'static str,
    marks: fn() -> String,
    names: fn() -> Vec<&'static str>,
    needed_tokens: fn(P) -> &'static [&'static str],
}

const CALLS: Flag<ToolParser> = Flag {
    spelling: "--tool-call-parser",
    of_template: tool_parser_of,
    name: ToolParser::name,
    marks: tool_marks,
    names: || ToolParser::names().collect(),
    needed_tokens: ToolParser::needed_tokens,
};

const REASONING: Flag<ReasoningParser> = Flag {
    spelling: "--reasoning-parser",
    of_template: reasoning_parser_of,
    name: ReasoningParser::name,
    marks: reasoning_marks,
    names: || ReasoningParser::names().collect(),
    needed_tokens: ReasoningParser::needed_tokens,
};

/// What flags and the chat templates choose: the one for requests with tools, and the one for others.
pub(super) fn chosen(
    settings: ParserSettings,
    (with_tools, without): (Option<&str>, Option<&str>),
    progress: &Progress,
) -> anyhow::Result<ToolPolicy> {
    let policy = ToolPolicy {
        parser: CALLS.chosen(settings.calls, with_tools, progress)?,
        auto: settings.auto_tool_choice,
        reasoning: REASONING.chosen(settings.reasoning, without, progress)?,
        strict_level: settings.strict_level,
    };
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
    tokenizer: &Tokenizer,
) -> [(&'static str, Result<&'static str, String>); 2] {
    let (calls, reasoning) = (CALLS.fitting(with_tools, tokenizer), REASONING.fitting(without, tokenizer));
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
    fn fitting(&self, template: Option<&str>, tokenizer: &Tokenizer) -> Result<&'static str, String> {
        let template = template.ok_or_else(|| "there is no chat template".to_owned())?;
        let parser = (self.of_template)(template).map_err(|reason| reason.to_string())?;
        let name = (self.name)(parser);
        match lacking((self.needed_tokens)(parser), tokenizer) {
            Some(token) => Err(format!("{name} would be it, and the tokenizer has no token {token}")),
            None => Ok(name),
        }
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

/// An error where the tokenizer of `model` lacks what a parser looks for, as in vLLM.
pub(super) fn check(
    ToolPolicy { parser, reasoning, .. }: ToolPolicy,
    tokenizer: &Tokenizer,
    model: &str,
) -> anyhow::Result<()> {
    let flags = [
        (CALLS.spelling, parser.map(|parser| (parser.name(), ToolParser::needed_tokens(parser)))),
        (REASONING.spelling, reasoning.map(|parser| (parser.name(), ReasoningParser::needed_tokens(parser)))),
    ];
    for (flag, chosen) in flags {
        let Some((name, needed)) = chosen else { continue };
        if let Some(token) = lacking(needed, tokenizer) {
            bail!("{flag} {name} cannot be used with the tokenizer of {model}: it has no token {token}");
        }
    }
    Ok(())
}

/// The first token that the tokenizer does not have.
fn lacking(needed: &'static [&'static str], tokenizer: &Tokenizer) -> Option<&'static str> {
    needed.iter().copied().find(|token| tokenizer.id_of(token).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(template: Option<&str>) -> Result<(Option<&'static str>, Option<&'static str>), String> {
        let settings = ParserSettings {
            calls: Some(Choice::Auto),
            auto_tool_choice: false,
            reasoning: Some(Choice::Named(ReasoningParser::named("qwen3").unwrap())),
            strict_level: ToolStrictLevel::Auto,
        };
        let tools = chosen(settings, (template, None), &Progress::new()).map_err(|error| error.to_string())?;
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
