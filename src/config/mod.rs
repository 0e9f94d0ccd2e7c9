//! Every flag and environment variable. What flags mean together is in `launch/settings`.
//!
//! The only reader of the environment. Spellings and defaults are `vllm serve`'s; flags of vLLM that mean nothing here
//! are known too, see `vllm_flags`, and so are its variables, see `vllm_variables`.

mod adapters;
mod admin;
mod argv;
mod capture;
mod choices;
mod config_file;
mod device;
mod efforts;
mod examples;
mod foreign;
mod generated;
mod harmony;
mod http;
mod hub;
mod images;
mod kv_events;
mod number;
mod other_servers;
mod otlp;
mod parsers;
mod part_dtypes;
mod serve;
mod speculative;
mod structured_outputs;
mod vllm_flags;
mod vllm_variables;

use std::{ffi::OsString, path::PathBuf};

use clap::{
    ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand,
    builder::Styles,
    error::{ContextKind, ContextValue, ErrorKind},
};

pub use adapters::AdapterArgs;
pub use admin::{AdminArgs, Undo, WeightsChange};
pub use choices::{ActivationDtype, Dtype, EngineKind, GgufWeights, QuantizedWeights};
pub use device::DeviceArg;
pub use generated::Generated;
pub use http::HttpArgs;
pub use kv_events::KvEventsConfig;
pub(crate) use otlp::otel_variables;
pub use parsers::{Choice, ToolStrictLevelArg};
pub use part_dtypes::PartDtype;
pub use serve::{ModelLength, ServeArgs};
pub use speculative::{DraftModelConfig, SpeculativeConfig};

/// A drop-in replacement for `vllm serve` that keeps conversations exact, token by token.
///
/// Each turn continues from the token ids that the model sampled. Nothing is tokenized twice.
#[derive(Debug, Parser)]
#[command(name = "tito", bin_name = "tito", version, styles = Styles::plain(), max_term_width = 100,
          after_help = examples::OF_ALL)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Which lines to log, for example `debug` or `warn,tito=debug`.
    #[arg(long, global = true, env = "TITO_LOG", value_name = "FILTER")]
    pub log: Option<String>,

    /// Say which flags and which environment variables of vLLM have no effect, if there are any.
    #[arg(skip)]
    pub warnings: Vec<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model over HTTP.
    #[command(after_help = examples::OF_SERVE)]
    Serve(Box<ServeArgs>),
    /// Check whether this machine can serve a model, and how.
    ///
    /// Prints what `serve` would do with the same flags, without loading the weights. Exits with 0 if `serve` would start.
    /// Otherwise it prints the error of `serve`, and exits with 1.
    #[command(after_help = examples::OF_DOCTOR)]
    Doctor(Box<ServeArgs>),
    /// Convert a GGUF file to a Hugging Face directory, or merge a LoRA adapter into a model.
    ///
    /// Weights of a GGUF file are widened to bfloat16.
    #[command(after_help = examples::OF_CONVERT)]
    Convert {
        /// The GGUF file or, with --merge, the directory of the base model.
        model: PathBuf,
        /// The directory to create.
        directory: PathBuf,
        /// Merge this LoRA adapter into the weights. Each number is rounded once.
        #[arg(long, value_name = "ADAPTER")]
        merge: Option<PathBuf>,
    },
    /// Sample recorded turns again, and check that every bit is the same.
    ///
    /// It takes the flags of `serve` that say how the model is computed.
    #[command(after_help = examples::OF_REPLAY)]
    Replay {
        /// The file that `serve --capture` wrote.
        file: PathBuf,
        /// Replay only this trajectory [default: all of them]
        #[arg(long, value_name = "ID")]
        trajectory: Option<String>,
        /// How the model is computed.
        #[command(flatten)]
        model: Box<ServeArgs>,
    },
    /// Show recorded trajectories in a web page.
    ///
    /// This only reads the file, and needs no running model.
    #[command(after_help = examples::OF_INSPECT)]
    Inspect {
        /// The file that `serve --capture` wrote. No other process may have it open.
        file: PathBuf,
        /// The directory of the model or its tokenizer. The page then shows texts and drift beside the ids.
        model: Option<PathBuf>,
        /// The address to listen on.
        #[arg(long, default_value = "127.0.0.1")]
        host: String,
        /// The port to listen on; 0 takes any free port.
        #[arg(long, default_value_t = 8010)]
        port: u16,
    },
    /// Print the OpenAPI document of the HTTP API.
    Openapi,
    /// Print a man page, or completions for a shell; packages have what it prints.
    #[command(hide = true)]
    Generate {
        /// What to print.
        what: Generated,
        /// The command that a man page is of [default: tito itself]
        command: Option<String>,
    },
    /// Try a set of kernels on this machine; `serve` does so in a process of its own before it chooses one.
    #[command(hide = true)]
    TryKernels {
        /// The name of the set.
        set: String,
    },
}

impl Arguments {
    /// Reads a command line, and the file that it names. The error knows how to say what is wrong, and that `--help` is
    /// no error.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        for name in OF_SERVE {
            command = command.mut_subcommand(name, foreign::with_vllms_flags);
        }
        let names = command.find_subcommand("serve").map(foreign::names).unwrap_or_default();
        let arguments = argv::rewrite(arguments.into_iter().collect(), &names)
            .map_err(|reason| usage_error(&mut command, &reason))?;
        let matches = command.try_get_matches_from_mut(&arguments).map_err(|error| in_words(error, &arguments))?;
        let warnings = match OF_SERVE.iter().find_map(|name| matches.subcommand_matches(name)) {
            Some(matches) => judged(matches, &command).map_err(|reason| usage_error(&mut command, &reason))?,
            None => Vec::new(),
        };
        let mut arguments = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        arguments.warnings = warnings;
        Ok(arguments)
    }

    /// A man page of a command, or completions for a shell.
    pub fn generated(what: Generated, command: Option<&str>) -> std::io::Result<Vec<u8>> {
        what.of(Self::command(), command)
    }

    /// Which log lines are shown.
    pub fn log_filter(&self) -> String {
        match (&self.log, &self.command) {
            (Some(filter), _) => filter.clone(),
            (None, Command::Serve(args) | Command::Doctor(args)) => args.logs.filter(),
            (None, Command::Replay { model, .. }) => model.logs.filter(),
            (None, _) => "warn,tito=info".to_owned(),
        }
    }
}

/// What is to be said about what was given and does nothing, or why that cannot be.
fn judged(matches: &ArgMatches, command: &clap::Command) -> Result<Vec<String>, String> {
    let of_flags = foreign::judge(matches)?;
    let read = command.find_subcommand("serve").map(vllm_variables::read_by).unwrap_or_default();
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned()));
    let variables = vllm_variables::judge(std::env::vars_os().filter_map(text), &read);
    if matches.get_flag("fail_on_environ_validation") && !variables.unknown.is_empty() {
        let unknown = variables.unknown.join(", ");
        return Err(format!("unknown environment variables of vLLM, with --fail-on-environ-validation: {unknown}"));
    }
    Ok(of_flags.into_iter().chain(variables.warning()).collect())
}

/// The commands that take a command line of `vllm serve`.
const OF_SERVE: [&str; 3] = ["serve", "doctor", "replay"];

const NO_MODEL: &str = "no model is given; pass a hub id, a model directory or a .gguf file, for example: \
                        tito serve HuggingFaceTB/SmolLM2-135M-Instruct";

/// An error of the parser, said in one sentence where more is known than that a name is unknown or missing.
fn in_words(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let named: Vec<String> = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) => vec![name.clone()],
        Some(ContextValue::Strings(names)) => names.clone(),
        _ => Vec::new(),
    };
    let of_serve = arguments.get(1..).unwrap_or_default().iter().any(|word| OF_SERVE.iter().any(|name| word == name));
    let sentence = match error.kind() {
        _ if !of_serve => None,
        ErrorKind::MissingRequiredArgument if named.iter().any(|name| name == "<MODEL>") => Some(NO_MODEL.to_owned()),
        ErrorKind::UnknownArgument => named.first().and_then(|name| other_servers::answer(arguments, name)),
        // The parser takes `-hf` for `-h` and `-f`.
        ErrorKind::DisplayHelp => other_servers::answer(arguments, "-hf"),
        _ => None,
    };
    match sentence {
        Some(sentence) => clap::Error::raw(ErrorKind::InvalidValue, format!("{sentence}\n")),
        None => error,
    }
}

/// What is wrong with a command line of `serve`.
fn usage_error(command: &mut clap::Command, reason: &str) -> clap::Error {
    command.build();
    let serve = command.find_subcommand_mut("serve").expect("the command is declared above");
    serve.error(ErrorKind::InvalidValue, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::ToolParser;

    fn read(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::read(line.split_whitespace().map(OsString::from))
    }

    fn serve(line: &str) -> ServeArgs {
        match read(line).unwrap_or_else(|error| panic!("{error}")).command {
            Command::Serve(args) => *args,
            _ => panic!("not serve"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().mut_subcommand("serve", foreign::with_vllms_flags).debug_assert();
    }

    #[test]
    fn vllm_spellings_are_understood() {
        let args = serve(
            "tito serve model.gguf --host 127.0.0.1 --port 9 --served-model-name a b --max-model-len 4k \
             --max-logprobs -1 --logprobs-mode processed_logprobs --api-key k1 --dtype float32 \
             --return-tokens-as-token-ids --generation-config vllm --seed 7 --engine scripted \
             --enable-auto-tool-choice --tool-call-parser hermes --max-num-queued-reqs 3 --kv-cache-memory-bytes 4G",
        );
        assert_eq!(args.served_model_name, ["a", "b"]);
        assert_eq!(args.max_model_len, ModelLength::Tokens(4000));
        assert_eq!((args.max_logprobs, args.dtype), (-1, Dtype::Float32));
        assert_eq!(
            (args.enable_auto_tool_choice, args.tool_call_parser),
            (true, ToolParser::named("hermes").map(Choice::Named))
        );
        assert_eq!((args.max_waiting, args.kv_cache_memory), (3, Some(4 << 30)));
        let args = serve("tito serve m --tool-call-parser auto --reasoning-parser=auto");
        assert_eq!((args.tool_call_parser, args.reasoning_parser), (Some(Choice::Auto), Some(Choice::Auto)));
    }

    #[test]
    fn the_most_sequences_are_those_of_a_request_or_as_in_vllm_of_a_prompt() {
        for (line, of_request, of_prompt) in [
            ("", 16_384, 16_384),
            ("--max-request-sequences 8", 8, 8),
            ("--max-request-sequences 40K", 40_960, 40_960),
            // As if the environment said it.
            ("--vllm-max-n-sequences 4", 16_384, 4),
            ("--vllm-max-n-sequences 20000", 20_000, 20_000),
            ("--vllm-max-n-sequences 4 --max-request-sequences 8", 8, 8),
        ] {
            let args = serve(&format!("tito serve m {line}"));
            assert_eq!((args.max_sequences(), args.max_n()), (of_request, of_prompt), "{line}");
        }
    }

    #[test]
    fn a_collector_of_traces_is_an_address_or_none() {
        let collector = |flag: &str| {
            let args = serve(&format!("tito serve m {flag}"));
            args.logs.collector_of_traces().map(str::to_owned)
        };
        assert_eq!(collector("--otlp-traces-endpoint grpc://a:4317").as_deref(), Some("grpc://a:4317"));
        for none in ["", "--otlp-traces-endpoint=", "--otlp-traces-endpoint None", "--otlp_traces_endpoint null"] {
            assert_eq!(collector(none), None, "{none}");
        }
    }

    #[test]
    fn the_model_is_an_argument_or_a_flag_and_the_last_value_counts() {
        assert_eq!(serve("tito serve --model m --port 1 --port 2").model(), "m");
        assert_eq!(serve("tito serve m --port 1 --port 2").http.port, 2);
        assert_eq!(serve("tito serve m --max-model-len -1").max_model_len, ModelLength::Auto);
        assert!(read("tito serve m --model n").is_err());
        assert!(read("tito serve").is_err());
    }

    #[test]
    fn switches_can_be_switched_off_and_the_last_word_counts() {
        assert!(!serve("tito serve m --enable-log-requests --no-enable-log-requests").logs.enable_log_requests);
        assert!(serve("tito serve m --no-enable-log-requests --enable_log_requests").logs.enable_log_requests);
        assert!(read("tito serve m --enable-log-requests=true").is_err());
        for off in ["--no-enable-log-requests", "--disable-log-requests", "--disable_log_req"] {
            assert!(!serve(&format!("tito serve m --enable-log-requests {off}")).logs.enable_log_requests, "{off}");
            assert!(serve(&format!("tito serve m {off} --enable-log-requests")).logs.enable_log_requests, "{off}");
        }
        assert!(serve("tito serve m --disable-log-stats").logs.disable_log_stats);
        assert!(!serve("tito serve m --disable-log-stats --enable-log-stats").logs.disable_log_stats);
        assert!(serve("tito serve m --enable-per-request-metrics").enable_per_request_metrics);
        assert!(
            !serve("tito serve m --enable-per-request-metrics --disable-per-request-metrics")
                .enable_per_request_metrics
        );
        let others = "--disable-lora --disable-prefix-caching --disable-chunked-prefill --enable-sliding-window \
                      --disable-auto-tool-choice --disable-prompt-tokens-details --disable-force-include-usage";
        serve(&format!("tito serve m {others}"));
        // What vLLM never had is no flag.
        assert!(read("tito serve m --enable-enforce-eager").is_err());
        assert!(read("tito serve m --disable-enforce-eager").is_err());
    }

    #[test]
    fn json_is_read_and_checked() {
        let args = serve(
            r#"tito serve m --allowed-origins ["http://a"] --default-chat-template-kwargs.enable_thinking false"#,
        );
        assert_eq!(args.http.allowed_origins.0, ["http://a"]);
        let kwargs = args.default_chat_template_kwargs.unwrap();
        assert_eq!(kwargs["enable_thinking"], crate::json::Value::Bool(false));
        assert!(read("tito serve m --allowed-origins *").is_err());
        assert!(read("tito serve m --override-generation-config []").is_err());
        let fp8 = read("tito serve m --kv-cache-dtype fp8").unwrap_err().to_string();
        assert!(fp8.contains("keys and values always have the type of the arithmetic"), "{fp8}");
        assert!(read("tito serve m --lora-dtype float16").is_err());
    }

    #[test]
    fn log_levels_go_to_their_lines() {
        let arguments = read("tito serve m --uvicorn-log-level warning --log-level DEBUG").unwrap();
        let filter = arguments.log_filter();
        assert!(
            filter.starts_with("warn,") && filter.contains(",tito=debug,") && filter.ends_with("::server=warn"),
            "{filter}"
        );
        assert_eq!(read("tito --log trace serve m").unwrap().log_filter(), "trace");
    }
}
