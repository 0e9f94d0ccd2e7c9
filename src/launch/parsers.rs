//! How answers are read, checked against the tokenizer before anything else takes time.

use anyhow::bail;

use crate::{
    config::ServeArgs,
    parser::{ReasoningParser, ToolParser},
    tokenizer::Tokenizer,
    turn::ToolPolicy,
};

/// What the flags say; an error where the tokenizer lacks what a parser looks for, as in vLLM.
pub(super) fn policy(args: &ServeArgs, tokenizer: &Tokenizer) -> anyhow::Result<ToolPolicy> {
    let (parser, reasoning) = (args.tool_call_parser, args.reasoning_parser);
    let flags = [
        ("--tool-call-parser", parser.map(|parser| (parser.name(), ToolParser::needed_tokens(parser)))),
        ("--reasoning-parser", reasoning.map(|parser| (parser.name(), ReasoningParser::needed_tokens(parser)))),
    ];
    for (flag, chosen) in flags {
        let Some((name, needed)) = chosen else { continue };
        if let Some(token) = needed.iter().find(|token| tokenizer.id_of(token).is_none()) {
            bail!("{flag} {name} cannot be used with the tokenizer of {}: it has no token {token}", args.model());
        }
    }
    Ok(ToolPolicy { parser, auto: args.enable_auto_tool_choice, reasoning })
}
