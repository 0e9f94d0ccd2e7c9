//! `tito serve`.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};

use crate::{
    continuity::{ContinuityPolicy, MemoryBounds},
    parser::{ReasoningParser, ToolParser},
    prompt::OnUnprovable,
    sampling::LogprobsMode,
};

/// Serve a model over HTTP.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags are independent")]
pub struct ServeArgs {
    /// A .gguf file, a Hugging Face model directory, or a hub id such as `org/name`.
    pub model: String,

    /// Address to listen on.
    #[arg(long, default_value = "0.0.0.0")]
    pub host: IpAddr,

    /// Port to listen on.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,

    /// Names that requests may use; the first one is in the answers. [default: MODEL]
    #[arg(long, num_args = 1.., value_name = "NAME")]
    pub served_model_name: Vec<String>,

    /// Longest sequence, prompt and output together: a number, `4k` (4000) or `4K` (4096). [default: the model's]
    #[arg(long, value_parser = human_readable_int, value_name = "TOKENS")]
    pub max_model_len: Option<usize>,

    /// Sequences computed at the same time; the mistralrs engine computes one at a time whatever is asked.
    #[arg(long, default_value = "256", value_parser = human_readable_int, value_name = "N")]
    pub max_num_seqs: usize,

    /// Most tokens of a step, prompts and outputs of all sequences together.
    #[arg(long, default_value = "512", value_parser = human_readable_int, value_name = "TOKENS")]
    pub max_num_batched_tokens: usize,

    /// Sequences that may wait for a seat; one more is answered with 503.
    #[arg(long, default_value = "64K", value_parser = human_readable_int, value_name = "N")]
    pub max_waiting: usize,

    /// Memory for keys and values, such as `4G`. [default: a quarter of the free memory]
    #[arg(long, value_parser = human_readable_size, value_name = "BYTES")]
    pub kv_cache_memory: Option<u64>,

    /// Threads that compute. [default: one for each core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub threads: Option<usize>,

    /// Instructions that compute, for tests. [default: the fastest that the machine has]
    #[arg(long, value_name = "SET", hide = true)]
    pub kernels: Option<String>,

    /// Type of weights and arithmetic; `auto` is that of the weights.
    #[arg(long, value_enum, default_value_t)]
    pub dtype: Dtype,

    /// Weights of a .gguf file: as they are, or widened to bfloat16; `auto` widens what it can and memory holds.
    #[arg(long, value_enum, default_value_t)]
    pub gguf_weights: GgufWeights,

    /// Base of the seeds of requests that bring none.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Key that opens /v1; repeatable.
    #[arg(long, num_args = 1.., value_name = "KEY", env = "VLLM_API_KEY", hide_env_values = true)]
    pub api_key: Vec<String>,

    /// Chat template: a file, or the template itself. [default: the model's]
    #[arg(long, value_name = "FILE|TEMPLATE")]
    pub chat_template: Option<String>,

    /// Read tool calls out of answers to requests with tools, unless they say otherwise; needs --tool-call-parser.
    #[arg(long, requires = "tool_call_parser")]
    pub enable_auto_tool_choice: bool,

    /// Format in which the model writes tool calls.
    #[arg(long, value_name = "NAME", value_parser = tool_parser())]
    pub tool_call_parser: Option<ToolParser>,

    /// Format in which the model writes what it thinks.
    #[arg(long, value_name = "NAME", value_parser = reasoning_parser())]
    pub reasoning_parser: Option<ReasoningParser>,

    /// Where sampling defaults come from: `auto` (the model), `vllm` (none), or a directory with
    /// `generation_config.json`.
    #[arg(long, default_value = "auto", value_name = "auto|vllm|DIR")]
    pub generation_config: String,

    /// Report in usage how many tokens of a prompt were cached.
    #[arg(long)]
    pub enable_prompt_tokens_details: bool,

    /// Spell log-prob tokens as `token_id:N` unless a request says otherwise.
    #[arg(long)]
    pub return_tokens_as_token_ids: bool,

    /// Most log-probs a position; -1 is no limit.
    #[arg(long, default_value_t = 20, allow_negative_numbers = true, value_name = "N",
          value_parser = clap::value_parser!(i64).range(-1..))]
    pub max_logprobs: i64,

    /// Log-probs of the model itself, or of the distribution that was sampled from.
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub logprobs_mode: LogprobsModeArg,

    /// What runs the model.
    #[arg(long, value_enum, default_value_t)]
    pub engine: EngineKind,

    /// What the scripted engine samples, answer by answer: a JSON string or a list of token ids a line. The last line
    /// also serves every later answer.
    #[arg(long, value_name = "FILE", hide = true)]
    pub script: Option<PathBuf>,

    /// When known ids cannot be provably continued: refuse, count end tokens as NeMo-RL does, or ignore them.
    #[arg(long, value_enum, default_value_t, value_name = "POLICY")]
    pub on_unprovable: OnUnprovable,

    /// Bytes of the cache that continues conversations of clients which send no ids; 0 turns it off.
    #[arg(long, default_value = "512M", value_parser = human_readable_size, value_name = "BYTES")]
    pub continuity_cache_size: u64,

    /// Seconds that the cache keeps a turn after its last use.
    #[arg(long, default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    pub continuity_ttl: u64,

    /// Refuse requests whose ids are in doubt: ambiguous, or not those of their messages. [default: tell]
    #[arg(long)]
    pub strict_continuity: bool,

    /// Tell with every answer whether encoding the whole conversation again would have given other ids; costs that.
    #[arg(long)]
    pub check_drift: bool,

    /// Seconds that requests may go on after the server was asked to stop.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub shutdown_timeout: u64,

    /// Never reach for the hub.
    #[arg(long, env = "HF_HUB_OFFLINE", value_parser = clap::builder::FalseyValueParser::new(), hide = true,
          action = clap::ArgAction::Set, default_value = "false")]
    pub hub_offline: bool,

    /// The hub's cache lies in `hub` under it.
    #[arg(long, env = "HF_HOME", hide = true)]
    pub hub_home: Option<PathBuf>,

    /// Another hub.
    #[arg(long, env = "HF_ENDPOINT", hide = true)]
    pub hub_endpoint: Option<String>,

    /// Branch, tag or commit of a model of the hub.
    #[arg(long)]
    pub revision: Option<String>,

    /// Opens private models of the hub.
    #[arg(long, env = "HF_TOKEN", hide = true, hide_env_values = true)]
    pub hub_token: Option<String>,
}

impl ServeArgs {
    /// What the flags say about continuity.
    pub fn continuity(&self) -> ContinuityPolicy {
        let ttl = Duration::from_secs(self.continuity_ttl);
        ContinuityPolicy {
            memory: Some(MemoryBounds { bytes: self.continuity_cache_size, ttl }),
            strict: self.strict_continuity,
            check_drift: self.check_drift,
        }
    }

    /// Where models of the hub are kept: `hub` under `HF_HOME`, which is a directory of the user's cache by default.
    pub fn hub_cache_dir(&self) -> PathBuf {
        let home = self.hub_home.clone().or_else(|| Some(std::env::home_dir()?.join(".cache/huggingface")));
        home.unwrap_or_default().join("hub")
    }
}

/// Type of weights and arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Dtype {
    /// What the device does best.
    #[default]
    Auto,
    /// IEEE half precision.
    #[value(alias = "half")]
    Float16,
    /// Brain floating point.
    Bfloat16,
    /// IEEE single precision.
    #[value(alias = "float")]
    Float32,
}

/// What becomes of the weights of a GGUF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum GgufWeights {
    /// Widened where the converter knows the model and memory holds it, else as they are.
    #[default]
    Auto,
    /// Computed with as they are: less memory, and activations rounded to 8 bits.
    Native,
    /// Widened to bfloat16, and computed with like any other model.
    Widened,
}

/// What runs the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum EngineKind {
    /// tito's own where it knows the model, else mistral.rs.
    #[default]
    Auto,
    /// tito's own.
    Native,
    /// mistral.rs.
    Mistralrs,
    /// No model at all: deterministic nonsense for tests and benches.
    Scripted,
}

/// vLLM's names of [`LogprobsMode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogprobsModeArg {
    /// Before penalties, masks and temperature.
    #[default]
    #[value(name = "raw_logprobs", alias = "raw")]
    Raw,
    /// After them.
    #[value(name = "processed_logprobs", alias = "processed")]
    Processed,
}

impl From<LogprobsModeArg> for LogprobsMode {
    fn from(mode: LogprobsModeArg) -> Self {
        match mode {
            LogprobsModeArg::Raw => Self::Raw,
            LogprobsModeArg::Processed => Self::Processed,
        }
    }
}

/// vLLM's names of formats.
fn tool_parser() -> impl TypedValueParser<Value = ToolParser> {
    PossibleValuesParser::new(ToolParser::names()).try_map(|name| ToolParser::named(&name).ok_or("no such parser"))
}

/// vLLM's names of ways to think.
fn reasoning_parser() -> impl TypedValueParser<Value = ReasoningParser> {
    PossibleValuesParser::new(ReasoningParser::names())
        .try_map(|name| ReasoningParser::named(&name).ok_or("no such parser"))
}

/// vLLM's numbers: `1k` is 1000, `1K` is 1024, likewise m, M, g, G; `25.6k` is 25600.
fn human_readable_int(text: &str) -> Result<usize, String> {
    let error = || format!("expected a number such as 4096, 4k (4000) or 4K (4096), got {text:?}");
    let (digits, unit) = match text.chars().last() {
        Some('k') => (&text[..text.len() - 1], 1000_u64),
        Some('K') => (&text[..text.len() - 1], 1 << 10),
        Some('m') => (&text[..text.len() - 1], 1_000_000),
        Some('M') => (&text[..text.len() - 1], 1 << 20),
        Some('g') => (&text[..text.len() - 1], 1_000_000_000),
        Some('G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let number = match digits.parse::<u64>() {
        Ok(number) => number.checked_mul(unit).ok_or_else(error)?,
        Err(_) => decimal(digits, unit).ok_or_else(error)?,
    };
    match usize::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(error()),
    }
}

/// A number over 0.
fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("expected a number over 0, got {text:?}"))
}

/// The same numbers, and 0.
fn human_readable_size(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { human_readable_int(text).map(|number| number as u64) }
}

/// A decimal fraction of a decimal unit that is a whole number.
fn decimal(digits: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = digits.split_once('.')?;
    let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    if !unit.is_multiple_of(scale) || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    whole.checked_add(fraction.parse::<u64>().ok()? * (unit / scale))
}

#[cfg(test)]
mod tests {
    use super::human_readable_int;

    #[test]
    fn numbers_are_read_as_vllm_reads_them() {
        for (text, number) in [("7", 7), ("1k", 1000), ("1K", 1024), ("25.6k", 25_600), ("1M", 1 << 20)] {
            assert_eq!(human_readable_int(text), Ok(number), "{text}");
        }
        for text in ["", "0", "-1", "k", "1.5", "1.5K", "1e3", "99999999999999999999", "1.k"] {
            assert!(human_readable_int(text).is_err(), "{text}");
        }
    }
}
