//! Every flag and environment variable, and what they mean together.
//!
//! The only reader of the environment. Spellings and defaults are `vllm serve`'s.

mod serve;

use std::path::PathBuf;

use clap::{Parser, Subcommand, builder::Styles};

pub use serve::{Dtype, EngineKind, GgufWeights, ServeArgs};

/// Token in, token out: a drop-in for `vllm serve` that continues conversations from the ids that were sampled.
#[derive(Debug, Parser)]
#[command(name = "tito", version, styles = Styles::plain(), max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// What to log, for example `debug` or `warn,tito=debug`.
    #[arg(long, global = true, env = "TITO_LOG", value_name = "FILTER")]
    pub log: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model over HTTP.
    Serve(Box<ServeArgs>),
    /// Widen a GGUF file to a Hugging Face directory in bfloat16.
    Convert {
        /// The GGUF file.
        model: PathBuf,
        /// The directory to make.
        directory: PathBuf,
    },
    /// Print the OpenAPI document.
    Openapi,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::parser::ToolParser;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn vllm_spellings_are_understood() {
        let line = "tito serve model.gguf --host 127.0.0.1 --port 9 --served-model-name a b --max-model-len 4k \
                    --max-logprobs -1 --logprobs-mode processed_logprobs --api-key k1 --dtype float32 \
                    --return-tokens-as-token-ids --generation-config vllm --seed 7 --engine scripted \
                    --enable-auto-tool-choice --tool-call-parser hermes";
        let arguments = Arguments::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Serve(serve) = arguments.command else { panic!("not serve") };
        assert_eq!(serve.served_model_name, ["a", "b"]);
        assert_eq!((serve.max_model_len, serve.max_logprobs, serve.dtype), (Some(4000), -1, Dtype::Float32));
        assert_eq!((serve.enable_auto_tool_choice, serve.tool_call_parser), (true, ToolParser::named("hermes")));
    }
}
