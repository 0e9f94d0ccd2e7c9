//! Text to reasoning and the rest: vLLM's names, and one file for each way of telling them apart.
//!
//! If the prompt has begun or ended the reasoning of the turn, that counts, whatever the template's variables say. Not
//! every template heeds them. They decide only if the prompt does neither.
//!
//! What deviates on purpose:
//! - Where the prompt has ended the reasoning of the turn already, everything is content, unless the model begins with the
//!   mark that begins reasoning. vLLM's JSON answers take it for reasoning, its streams do not.
//! - Reasoning that nothing ends is reasoning in every format. vLLM's JSON answers of `granite`, `hunyuan_a13b` and `olmo3`
//!   have it for content, with the marks; its streams do not.
//! - Gemma 4 thinks between its marks only. vLLM's streams also take a first piece for thoughts that begins with `thought`
//!   or holds an end mark.

mod answer_form;
mod append_think;
mod label;
mod reader;
mod styles;
mod tags;
mod wrapper;

use super::suffix::{self, SeveralSuffixes};
use crate::json::{Object, Value};
pub use answer_form::{AnswerForm, CallInReasoning};
use append_think::AppendThink;
pub(super) use reader::{PieceSink, ReasoningReader};
use styles::Tags;
use tags::TagReader;

/// Where a prompt leaves the reasoning of the turn that is to be generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptReasoning {
    /// Nowhere: no mark of it stands in that turn.
    Unmarked,
    /// It has begun, so many tokens before the prompt's end.
    Begun(usize),
    /// It has ended.
    Ended,
}

/// How the template's variables say whether the model thinks.
#[derive(Debug, Clone, Copy)]
enum Thinks {
    /// Whatever they say.
    Always,
    /// The model thinks if `thinking` or `enable_thinking` is true.
    IfAsked,
    /// The model thinks unless `enable_thinking` is there and not true.
    UnlessTold,
    /// The model thinks if one of the two is true, or if neither is there.
    UnlessOff,
    /// So it does, but for a `reasoning_effort` of `none`.
    UnlessNoEffort,
    /// The model thinks if `reasoning_effort` is there, and not `no_think`.
    IfEffort,
    /// The model thinks unless `reasoning_effort` is `no_think`.
    UnlessNoThink,
    /// The model thinks unless `thinking`, or without that `enable_thinking`, is there and not true.
    UnlessFirstOff,
    /// Nothing says that it begins with thoughts, apart from the prompt.
    Unsaid,
}

impl Thinks {
    fn with(self, variables: &Object) -> bool {
        let asked = ["thinking", "enable_thinking"].map(|name| variables.get(name));
        let any = || asked.into_iter().flatten().any(is_true);
        match self {
            Self::Always => true,
            Self::IfAsked => any(),
            Self::UnlessTold => asked[1].is_none_or(is_true),
            Self::UnlessOff => asked.into_iter().all(|value| value.is_none_or(Value::is_null)) || any(),
            Self::UnlessNoEffort => {
                let effort = variables.get("reasoning_effort").and_then(Value::as_str);
                Self::UnlessOff.with(variables) && effort != Some("none")
            }
            Self::IfEffort => {
                variables.get("reasoning_effort").is_some_and(is_true) && Self::UnlessNoThink.with(variables)
            }
            Self::UnlessNoThink => variables.get("reasoning_effort").and_then(Value::as_str) != Some("no_think"),
            Self::UnlessFirstOff => {
                let said = |value: &&Value| !value.is_null();
                asked[0].filter(said).or(asked[1]).is_none_or(is_true)
            }
            Self::Unsaid => false,
        }
    }
}

/// What Python's `bool` says.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(object) => !object.is_empty(),
        number => !matches!(number.to_json_string().as_str(), "0" | "0.0" | "-0.0"),
    }
}

/// How a model writes what it thinks.
#[derive(Debug, Clone, Copy)]
enum Style {
    Tags(Tags),
    /// Nothing is told apart: the start that the prompt took from the text is put back.
    AppendThink,
    /// The text has channels, which a reader of calls reads too.
    Channels,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    name: &'static str,
    thinks: Thinks,
    style: Style,
    /// Tokens without which vLLM does not start.
    needs: &'static [&'static str],
    /// Whether a request may want reasoning that nothing follows as content.
    may_force_content: bool,
    /// Whether the marks of some checkpoints have a suffix.
    may_have_suffix: bool,
}

const fn entry(name: &'static str, thinks: Thinks, style: Style) -> Entry {
    Entry { name, thinks, style, needs: &[], may_force_content: false, may_have_suffix: false }
}

const fn tags(name: &'static str, thinks: Thinks, tags: Tags) -> Entry {
    entry(name, thinks, Style::Tags(tags))
}

const fn needing(needs: &'static [&'static str], entry: Entry) -> Entry {
    Entry { needs, ..entry }
}

const fn forcible(name: &'static str) -> Entry {
    Entry { may_force_content: true, ..tags(name, Thinks::UnlessTold, styles::NEMOTRON) }
}

const fn hunyuan(name: &'static str, thinks: Thinks) -> Entry {
    Entry { may_have_suffix: true, ..needing(BOTH, tags(name, thinks, styles::HUNYUAN)) }
}

const BOTH: &[&str] = &["<think>", "</think>"];

/// The ways by vLLM's names. It looks for tokens when it is certain that the model thinks.
const ENTRIES: &[Entry] = &[
    tags("cohere_command3", Thinks::Unsaid, styles::COHERE),
    tags("cohere_command4", Thinks::Unsaid, styles::COHERE),
    needing(BOTH, tags("deepseek_r1", Thinks::Always, styles::DEEPSEEK_R1)),
    tags("deepseek_v3", Thinks::IfAsked, styles::DEEPSEEK_R1),
    tags("deepseek_v4", Thinks::UnlessNoEffort, styles::DEEPSEEK_V4),
    tags("deepseek_v41", Thinks::UnlessNoEffort, styles::DEEPSEEK_V41),
    needing(BOTH, tags("ernie45", Thinks::Always, styles::ERNIE45)),
    tags("gemma4", Thinks::Unsaid, styles::GEMMA4),
    tags("glm45", Thinks::UnlessOff, styles::GLM),
    tags("glm47", Thinks::UnlessOff, styles::GLM),
    tags("granite", Thinks::Unsaid, styles::GRANITE),
    forcible("granite_thinking_parser"),
    tags("holo2", Thinks::UnlessOff, styles::DEEPSEEK_R1),
    tags("hunyuan_a13b", Thinks::Unsaid, styles::HUNYUAN_A13B),
    hunyuan("hy_v3", Thinks::IfEffort),
    hunyuan("hy_v4", Thinks::UnlessNoThink),
    tags("k2_horizon", Thinks::Always, styles::K2_HORIZON),
    tags("kimi_k2", Thinks::UnlessOff, styles::KIMI_K2),
    tags("kimi_k3", Thinks::UnlessFirstOff, styles::KIMI_K3),
    tags("ling3", Thinks::UnlessOff, styles::GLM),
    tags("mimo", Thinks::UnlessTold, styles::QWEN3),
    tags("minimax_m2", Thinks::Always, styles::MINIMAX_M2),
    entry("minimax_m2_append_think", Thinks::Always, Style::AppendThink),
    needing(&["<mm:think>", "</mm:think>"], tags("minimax_m3", Thinks::Unsaid, styles::MINIMAX_M3)),
    tags("mistral", Thinks::Unsaid, styles::MISTRAL),
    forcible("nemotron_v3"),
    // Not vLLM's, but what people type.
    forcible("nemotron"),
    tags("olmo3", Thinks::Always, styles::DEEPSEEK_R1),
    entry("openai_gptoss", Thinks::Always, Style::Channels),
    tags("plamo3", Thinks::UnlessTold, styles::PLAMO3),
    needing(&["<assistant>"], tags("poolside_v1", Thinks::IfAsked, styles::DEEPSEEK_R1)),
    tags("qwen3", Thinks::UnlessTold, styles::QWEN3),
    tags("seed_oss", Thinks::UnlessTold, styles::SEED_OSS),
    needing(&["</think>"], tags("step3", Thinks::Always, styles::DEEPSEEK_R1)),
    tags("step3p5", Thinks::Always, styles::NEMOTRON),
    needing(BOTH, tags("step5", Thinks::Always, styles::DEEPSEEK_R1)),
];

/// A way of writing reasoning.
#[derive(Debug, Clone, Copy)]
pub struct ReasoningParser(&'static Entry);

impl PartialEq for ReasoningParser {
    fn eq(&self, other: &Self) -> bool {
        (self.0.name, self.0.needs) == (other.0.name, other.0.needs)
    }
}

impl Eq for ReasoningParser {}

impl ReasoningParser {
    /// vLLM's names of the ways that are known here.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ENTRIES.iter().map(|entry| entry.name)
    }

    /// The way that vLLM calls so.
    pub fn named(name: &str) -> Option<Self> {
        ENTRIES.iter().find(|entry| entry.name == name).map(Self)
    }

    /// vLLM's name of it.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Tokens without which vLLM refuses to start with this parser.
    pub fn needed_tokens(self) -> &'static [&'static str] {
        self.0.needs
    }

    /// The way as a checkpoint writes whose vocabulary has these `tokens`: its marks may have a suffix. `declared` is the one
    /// that the tokenizer's configuration names.
    ///
    /// # Errors
    ///
    /// If the vocabulary has the marks with several suffixes, and none is declared.
    pub fn of_vocabulary(
        self,
        tokens: &mut dyn Iterator<Item = String>,
        declared: Option<&str>,
    ) -> Result<Self, SeveralSuffixes> {
        let Entry { needs, style: Style::Tags(tags), may_have_suffix: true, .. } = self.0 else { return Ok(self) };
        let suffix = suffix::found(tokens, needs, declared)?;
        if suffix.is_empty() {
            return Ok(self);
        }
        let style = Style::Tags(tags.with_suffix(&suffix));
        Ok(Self(Box::leak(Box::new(Entry { needs: suffix::kept(needs, &suffix), style, ..*self.0 }))))
    }

    /// The marks by which ids tell reasoning; `None` where it is told by other means, or not told from the rest.
    pub fn marks(self) -> Option<ReasoningMarks> {
        self.marks_spelled(0)
    }

    fn marks_spelled(self, spelling: usize) -> Option<ReasoningMarks> {
        match &self.0.style {
            Style::Tags(Tags { starts, ends, call, reopens, .. }) => Some(ReasoningMarks {
                start: starts[spelling],
                end: ends[spelling],
                call: *call,
                reopens: *reopens,
                call_ends: false,
                by_id: false,
            }),
            Style::AppendThink | Style::Channels => None,
        }
    }

    /// Every spelling of its marks.
    #[cfg(any(test, feature = "internals"))]
    pub fn spellings(self) -> Vec<&'static str> {
        match &self.0.style {
            Style::Tags(tags) => tags.starts.iter().chain(tags.ends).copied().chain(tags.call).collect(),
            Style::AppendThink | Style::Channels => Vec::new(),
        }
    }

    /// How the answer to one request is read, of which the template's variables are known.
    pub fn format(self, variables: &Object) -> ReasoningFormat {
        let forces = variables.get("force_nonempty_content").and_then(Value::as_bool) == Some(true);
        let forces_content = self.0.may_force_content && forces;
        let effort = variables.get("reasoning_effort").and_then(Value::as_str);
        let spelling = match &self.0.style {
            Style::Tags(tags) => tags.efforts.iter().position(|known| Some(*known) == effort).unwrap_or_default(),
            Style::AppendThink | Style::Channels => 0,
        };
        ReasoningFormat {
            parser: self,
            thinks: self.0.thinks.with(variables),
            forces_content,
            spelling,
            form: AnswerForm::default(),
        }
    }
}

/// How the reasoning of one answer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningFormat {
    parser: ReasoningParser,
    thinks: bool,
    /// Whether reasoning that nothing follows is content.
    forces_content: bool,
    /// Which of the spellings of its marks the prompt makes the model write.
    spelling: usize,
    /// What the answer is held to.
    form: AnswerForm,
}

/// The marks by which ids tell where reasoning begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningMarks {
    /// The mark that begins reasoning.
    pub start: &'static str,
    /// The mark that ends reasoning.
    pub end: &'static str,
    /// A mark that ends reasoning which has no other end, and that belongs to what follows.
    pub call: Option<&'static str>,
    /// Whether it may begin again.
    pub reopens: bool,
    /// Whether that mark of a call ends reasoning even if another end follows.
    pub call_ends: bool,
    /// Whether only the token counts as the end where there is one, since the sampler holds what follows it to a form.
    pub by_id: bool,
}

impl ReasoningFormat {
    /// The marks of reasoning; `None` where other means find it.
    pub fn marks(self) -> Option<ReasoningMarks> {
        let marks = self.parser.marks_spelled(self.spelling)?;
        let AnswerForm { to_the_letter, call } = self.form;
        let reopens = marks.reopens && !to_the_letter;
        Some(ReasoningMarks { reopens, call_ends: call == CallInReasoning::Ends, by_id: to_the_letter, ..marks })
    }

    /// The same for an answer that goes on with `text`, which is part of its message. Whoever says something has done
    /// thinking, unless reasoning begins in what it says; the marks that a prompt leaves count in any case.
    #[must_use]
    pub fn continuing(self, text: &str) -> Self {
        let Style::Tags(tags) = &self.parser.0.style else { return self };
        let last = |marks: &[&str]| marks.iter().filter_map(|mark| text.rfind(mark)).max();
        let said = !text.trim().is_empty() && last(tags.starts) <= last(tags.ends);
        Self { thinks: self.thinks && !said, ..self }
    }

    /// The same for an answer that begins with no reasoning, whatever the template's variables say.
    #[must_use]
    pub fn after_reasoning(self) -> Self {
        Self { thinks: false, ..self }
    }

    /// The same for an answer that is held to something.
    #[must_use]
    pub fn with_form(self, form: AnswerForm) -> Self {
        Self { form, ..self }
    }

    /// Whether an answer begins with reasoning.
    pub fn begins_with_reasoning(self, prompt: PromptReasoning) -> bool {
        match prompt {
            PromptReasoning::Unmarked => self.thinks,
            PromptReasoning::Begun(_) => true,
            PromptReasoning::Ended => false,
        }
    }

    /// Whether reasoning may begin within an answer that does not begin with it, or again after its end.
    pub fn may_begin_later(self, prompt: PromptReasoning) -> bool {
        let Style::Tags(tags) = &self.parser.0.style else { return false };
        match prompt {
            _ if self.form.to_the_letter => false,
            PromptReasoning::Ended => true,
            PromptReasoning::Unmarked if !self.thinks => tags.unasked,
            PromptReasoning::Unmarked | PromptReasoning::Begun(_) => tags.reopens,
        }
    }

    /// The marks that have a text even if they are special tokens, where no other special token has one (vLLM's
    /// `parser/engine`); `None` where the request decides.
    pub(super) fn only_marks(self) -> Option<Vec<&'static str>> {
        match &self.parser.0.style {
            Style::Tags(tags) if !tags.tokens.is_empty() => Some(tags.tokens.to_vec()),
            Style::Tags(tags) if !tags.first_only => {
                Some(tags.starts.iter().chain(tags.ends).copied().chain(tags.call).collect())
            }
            _ => None,
        }
    }

    /// Whether an answer without a text has null for content.
    pub(super) fn silence_is_null(self) -> bool {
        match &self.parser.0.style {
            Style::Tags(tags) => self.thinks || tags.unasked,
            Style::Channels => self.thinks,
            Style::AppendThink => false,
        }
    }

    pub(super) fn is_channels(self) -> bool {
        matches!(self.parser.0.style, Style::Channels)
    }

    /// The reader of one generation, after such a prompt; `begins_call` are the marks that begin calls.
    pub(super) fn reader(
        self,
        prompt: PromptReasoning,
        begins_call: &[&'static str],
    ) -> Option<Box<dyn ReasoningReader>> {
        match &self.parser.0.style {
            Style::Tags(tags) if self.begins_with_reasoning(prompt) => {
                Some(Box::new(TagReader::in_reasoning(tags, begins_call, self.forces_content, self.form)))
            }
            Style::Tags(tags) if self.may_begin_later(prompt) => {
                Some(Box::new(TagReader::after_reasoning(tags, begins_call, self.form)))
            }
            Style::AppendThink => Some(Box::new(AppendThink::default())),
            Style::Tags(_) | Style::Channels => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thinks(name: &str, variables: &str) -> bool {
        let variables = Value::parse(variables).unwrap();
        ReasoningParser::named(name).unwrap().format(variables.as_object().unwrap()).thinks
    }

    #[test]
    fn every_name_has_a_parser_and_no_other_has() {
        for name in ReasoningParser::names() {
            assert_eq!(ReasoningParser::named(name).map(ReasoningParser::name), Some(name));
        }
        assert_eq!(ReasoningParser::named("Qwen3"), None);
    }

    #[test]
    fn templates_say_whether_the_model_thinks_as_vllm_reads_them() {
        for (variables, deepseek_v3, qwen3, glm45) in [
            ("{}", false, true, true),
            (r#"{"thinking": true}"#, true, true, true),
            (r#"{"thinking": false}"#, false, true, false),
            (r#"{"thinking": null}"#, false, true, true),
            (r#"{"enable_thinking": true}"#, true, true, true),
            (r#"{"enable_thinking": false}"#, false, false, false),
            (r#"{"enable_thinking": null}"#, false, false, true),
            (r#"{"enable_thinking": 0}"#, false, false, false),
            (r#"{"enable_thinking": "no"}"#, true, true, true),
            (r#"{"enable_thinking": false, "thinking": true}"#, true, false, true),
        ] {
            assert_eq!(thinks("deepseek_v3", variables), deepseek_v3, "{variables}");
            assert_eq!(thinks("qwen3", variables), qwen3, "{variables}");
            assert_eq!(thinks("glm45", variables), glm45, "{variables}");
            assert!(thinks("deepseek_r1", variables) && thinks("minimax_m2", variables), "{variables}");
        }
    }

    #[test]
    fn newer_templates_say_so_in_more_ways() {
        for (variables, deepseek_v4, kimi_k3) in [
            ("{}", true, true),
            (r#"{"reasoning_effort": "none"}"#, false, true),
            (r#"{"reasoning_effort": "high", "thinking": true}"#, true, true),
            (r#"{"thinking": false, "enable_thinking": true}"#, true, false),
            (r#"{"thinking": null, "enable_thinking": false}"#, false, false),
            (r#"{"thinking": true, "enable_thinking": false}"#, true, true),
        ] {
            assert_eq!(thinks("deepseek_v4", variables), deepseek_v4, "{variables}");
            assert_eq!(thinks("kimi_k3", variables), kimi_k3, "{variables}");
            assert!(!thinks("gemma4", variables), "{variables}");
        }
    }
}
