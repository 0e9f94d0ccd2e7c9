//! Which formats answers are read in: by name, or as the chat template says.

use clap::{
    ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};

use crate::parser::{ReasoningParser, ToolParser};

/// The name under which the chat template decides.
const AUTO: &str = "auto";

/// A format that a flag chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice<P> {
    /// The one whose marks the chat template has.
    Auto,
    /// This one.
    Named(P),
}

/// How far calls are held that the model makes by itself, under vLLM's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ToolStrictLevelArg {
    /// As each tool asks with its `strict`.
    #[default]
    Auto,
    /// Calls have the right format and name one of the tools.
    Function,
    /// Calls also follow the schema of their tool, as if all tools were `strict`.
    Parameter,
}

/// vLLM's names of formats.
pub(super) fn tool_parser() -> impl TypedValueParser<Value = Choice<ToolParser>> {
    one_of(ToolParser::names(), ToolParser::named)
}

/// vLLM's names of ways to think.
pub(super) fn reasoning_parser() -> impl TypedValueParser<Value = Choice<ReasoningParser>> {
    one_of(ReasoningParser::names(), ReasoningParser::named)
}

fn one_of<P: Clone + Send + Sync + 'static>(
    names: impl Iterator<Item = &'static str>,
    find: fn(&str) -> Option<P>,
) -> impl TypedValueParser<Value = Choice<P>> {
    PossibleValuesParser::new(std::iter::once(AUTO).chain(names)).try_map(move |name| match name.as_str() {
        AUTO => Ok(Choice::Auto),
        name => find(name).map(Choice::Named).ok_or("no such parser"),
    })
}
