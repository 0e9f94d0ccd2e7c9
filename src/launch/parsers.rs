//! How answers are read, checked against the tokenizer before anything else takes time.

use anyhow::bail;

use crate::{
    parser::{ReasoningParser, ToolParser},
    tokenizer::Tokenizer,
    turn::ToolPolicy,
};

/// An error where the tokenizer of `model` lacks what a parser looks for, as in vLLM.
pub(super) fn check(
    ToolPolicy { parser, reasoning, .. }: ToolPolicy,
    tokenizer: &Tokenizer,
    model: &str,
) -> anyhow::Result<()> {
    let flags = [
        ("--tool-call-parser", parser.map(|parser| (parser.name(), ToolParser::needed_tokens(parser)))),
        ("--reasoning-parser", reasoning.map(|parser| (parser.name(), ReasoningParser::needed_tokens(parser)))),
    ];
    for (flag, chosen) in flags {
        let Some((name, needed)) = chosen else { continue };
        if let Some(token) = needed.iter().find(|token| tokenizer.id_of(token).is_none()) {
            bail!("{flag} {name} cannot be used with the tokenizer of {model}: it has no token {token}");
        }
    }
    Ok(())
}
