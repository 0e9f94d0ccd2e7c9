//! `tito serve`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::{
    adapters::AdapterArgs,
    admin::AdminArgs,
    capture::CaptureArgs,
    device::DeviceArg,
    efforts::{self, Efforts},
    harmony::HarmonyArgs,
    http::{HttpArgs, LogArgs},
    number::{human_readable_count, human_readable_int, human_readable_size, positive, share, store_size},
    parsers::{self, Choice, ToolStrictLevelArg},
    speculative::{self, SpeculativeConfig},
    structured_outputs::{self, StructuredOutputsConfig},
};
use crate::{
    json::{self, Object},
    parser::{ReasoningParser, ToolParser},
    prompt::{OnUnprovable, template::ContentFormat},
    sampling::LogprobsMode,
};

/// Serve a model over HTTP.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
#[expect(clippy::struct_excessive_bools, reason = "flags are independent")]
pub struct ServeArgs {
    /// A .gguf file, a Hugging Face model directory, or a hub id such as `org/name`.
    #[arg(help_heading = None, value_name = "MODEL", required_unless_present = "model_flag", conflicts_with = "model_flag")]
    model_tag: Option<String>,

    /// The model, as older command lines name it.
    #[arg(long = "model", value_name = "MODEL", hide = true)]
    model_flag: Option<String>,

    /// A YAML file with flags, by their names without dashes in front; those of the command line win.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Names that requests may use; the first one is in the answers. [default: MODEL]
    #[arg(long, num_args = 1.., value_name = "NAME")]
    pub served_model_name: Vec<String>,

    /// Longest sequence, prompt and output together: a number, `4k` (4000) or `4K` (4096). [default: the model's]
    #[arg(long, value_parser = model_length, value_name = "TOKENS", default_value = "auto", hide_default_value = true,
          allow_negative_numbers = true)]
    pub max_model_len: ModelLength,

    /// Sequences computed at the same time; the mistralrs engine computes one at a time whatever is asked.
    #[arg(long, help_heading = COMPUTING, default_value = "256", value_parser = human_readable_int, value_name = "N")]
    pub max_num_seqs: usize,

    /// Most tokens of a step, prompts and outputs of all sequences together. [default: 512, on a GPU 8192]
    #[arg(long, help_heading = COMPUTING, value_parser = human_readable_int, value_name = "TOKENS")]
    pub max_num_batched_tokens: Option<usize>,

    /// Drafts that change no bit, on the CPU, as JSON: `{"method":"ngram","num_speculative_tokens":5}`.
    #[arg(long, help_heading = COMPUTING, value_name = "JSON", value_parser = speculative::parse)]
    pub speculative_config: Option<SpeculativeConfig>,

    /// Sequences that may wait for a seat; one more is answered with 503.
    #[arg(long, help_heading = COMPUTING, default_value = "64K", value_parser = human_readable_count, value_name = "N",
          visible_alias = "max-num-queued-reqs")]
    pub max_waiting: usize,

    /// Memory for keys and values, such as `4G`. [default: a quarter of the free memory, on a GPU what
    /// --gpu-memory-utilization leaves]
    #[arg(long, help_heading = COMPUTING, value_parser = human_readable_size, value_name = "BYTES", visible_alias = "kv-cache-memory-bytes")]
    pub kv_cache_memory: Option<u64>,

    /// Where the model is computed: `cpu`, `cuda` or `cuda:N`; `auto` is the first GPU if there is one and this build
    /// can use it.
    #[arg(long, help_heading = COMPUTING, default_value_t, value_name = "DEVICE")]
    pub device: DeviceArg,

    /// Share of a GPU's memory that weights, keys and values and the room of a step may take together. [default: 0.92]
    #[arg(long, help_heading = COMPUTING, value_parser = share, value_name = "SHARE",
          visible_alias = "device-memory-utilization")]
    pub gpu_memory_utilization: Option<f64>,

    /// On a GPU, give every sequence the bits that it would have alone; slower. The CPU does so anyway.
    #[arg(long, help_heading = COMPUTING)]
    pub deterministic: bool,

    /// Threads that compute. [default: one for each core]
    #[arg(long, help_heading = COMPUTING, value_name = "N", value_parser = positive)]
    pub threads: Option<usize>,

    /// Instructions that compute, for tests. [default: the fastest that the machine has]
    #[arg(long, value_name = "SET", hide = true)]
    pub kernels: Option<String>,

    /// Socket by which a test lets single steps be computed: docs/native-engine.md.
    #[arg(long, value_name = "PATH", hide = true)]
    pub step_gate: Option<PathBuf>,

    /// Type of weights and arithmetic; `auto` is that of the weights.
    #[arg(long, value_enum, default_value_t)]
    pub dtype: Dtype,

    /// Weights of a .gguf file: as they are, or widened to bfloat16; `auto` widens what it can and memory holds.
    #[arg(long, value_enum, default_value_t)]
    pub gguf_weights: GgufWeights,

    /// FP8 and MXFP4 weights of a quantised directory: kept as they are, or widened; both compute the same bits. `auto`
    /// widens them where the machine's memory holds it, so that they can be replaced.
    #[arg(long, value_enum, default_value_t)]
    pub quantized_weights: QuantizedWeights,

    /// How the checkpoint is quantised, such as `fp8` or `gptq`: what it says itself. tito quantises nothing.
    #[arg(long, value_name = "METHOD")]
    pub quantization: Option<String>,

    /// Base of the seeds of requests that bring none.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Connections.
    #[command(flatten)]
    pub http: HttpArgs,

    /// Chat template: a file, or the template itself. [default: the model's]
    #[arg(long, help_heading = ANSWERS, value_name = "FILE|TEMPLATE")]
    pub chat_template: Option<String>,

    /// Read tool calls out of answers to requests with tools, unless they say otherwise; needs --tool-call-parser.
    #[arg(long, help_heading = ANSWERS, requires = "tool_call_parser")]
    pub enable_auto_tool_choice: bool,

    /// Format in which the model writes tool calls; `auto` looks at its chat template.
    #[arg(long, help_heading = ANSWERS, value_name = "NAME", value_parser = parsers::tool_parser())]
    pub tool_call_parser: Option<Choice<ToolParser>>,

    /// How far calls that the model makes by itself are held: as tools say by `strict`, to the form of calls, or to the
    /// schemas of all tools.
    #[arg(long, value_enum, default_value_t, value_name = "LEVEL", help_heading = ANSWERS)]
    pub tool_strict_level: ToolStrictLevelArg,

    /// Format in which the model writes what it thinks; `auto` looks at its chat template.
    #[arg(long, value_name = "NAME", value_parser = parsers::reasoning_parser(), help_heading = ANSWERS)]
    pub reasoning_parser: Option<Choice<ReasoningParser>>,

    /// What templates take a message's content for: text, or a list of parts; `auto` looks at the template.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = ANSWERS)]
    pub chat_template_content_format: ContentFormatArg,

    /// Variables of the template unless a request brings its own, a JSON object.
    #[arg(long, value_name = "JSON", value_parser = template_variables, help_heading = ANSWERS)]
    pub default_chat_template_kwargs: Option<Object>,

    /// Efforts that the template is told instead of those that requests ask for, a JSON object.
    #[arg(long, value_name = "JSON", value_parser = efforts::parse, help_heading = ANSWERS)]
    pub reasoning_effort_map: Option<Efforts>,

    /// Take chat templates from requests.
    #[arg(long, help_heading = ANSWERS)]
    pub trust_request_chat_template: bool,

    /// Role of the messages that are generated.
    #[arg(long, default_value = "assistant", value_name = "ROLE", help_heading = ANSWERS)]
    pub response_role: String,

    /// Do not show tools to the model where `tool_choice` is `none`.
    #[arg(long, help_heading = ANSWERS)]
    pub exclude_tools_when_tool_choice_none: bool,

    /// Fewest tokens of an event in the middle of a stream.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive, help_heading = ANSWERS)]
    pub stream_interval: usize,

    /// Most prompts of a completion, and most conversations of a batch.
    #[arg(long, value_name = "N", default_value = "1024", value_parser = human_readable_int, help_heading = ANSWERS)]
    pub max_request_prompts: usize,

    /// Most sequences of a request: `n` for each of its prompts.
    #[arg(long, value_name = "N", default_value = "16384", value_parser = human_readable_int, help_heading = ANSWERS)]
    pub max_request_sequences: usize,

    /// End every stream with its usage.
    #[arg(long, help_heading = ANSWERS)]
    pub enable_force_include_usage: bool,

    /// Let /load count the requests that are being served.
    #[arg(long, help_heading = ANSWERS)]
    pub enable_server_load_tracking: bool,

    /// Let `/tokenizer_info` show the tokenizer and the chat template.
    #[arg(long, help_heading = ANSWERS)]
    pub enable_tokenizer_info_endpoint: bool,

    /// Serve sampling clients of the Python package `tinker`, under /api/v1.
    #[arg(long, help_heading = ANSWERS)]
    pub tinker_api: bool,

    /// Sampling defaults over those of --generation-config, a JSON object.
    #[arg(long, value_name = "JSON", value_parser = json_object, help_heading = ANSWERS)]
    pub override_generation_config: Option<Map<String, Value>>,

    /// Where sampling defaults come from: `auto` (the model), `vllm` (none), or a directory with
    /// `generation_config.json`.
    #[arg(long, help_heading = ANSWERS, default_value = "auto", value_name = "auto|vllm|DIR")]
    pub generation_config: String,

    /// Report in usage how many tokens of a prompt were cached.
    #[arg(long, help_heading = ANSWERS)]
    pub enable_prompt_tokens_details: bool,

    /// Spell log-prob tokens as `token_id:N` unless a request says otherwise.
    #[arg(long, help_heading = ANSWERS)]
    pub return_tokens_as_token_ids: bool,

    /// Answer on /inference/v1/generate with the tokens that each token was drawn from, unless a request says otherwise.
    #[arg(long, help_heading = ANSWERS)]
    pub return_sampling_mask: bool,

    /// Most tokens that each token may be drawn from, where an answer lists them.
    #[arg(long, help_heading = ANSWERS, default_value_t = 4096, value_name = "N", value_parser = positive)]
    pub sampling_mask_max_tokens: usize,

    /// Answer with the experts that each token went through, of models with mixtures of experts.
    #[arg(long, help_heading = ANSWERS)]
    pub enable_return_routed_experts: bool,

    /// How structured outputs are written, a JSON object: `disable_any_whitespace`, `disable_additional_properties`.
    #[arg(long, help_heading = ANSWERS, default_value = "{}", hide_default_value = true, value_name = "JSON",
          value_parser = structured_outputs::parse)]
    pub structured_outputs_config: StructuredOutputsConfig,

    /// Most log-probs a position; -1 is no limit.
    #[arg(long, help_heading = ANSWERS, default_value_t = 20, allow_negative_numbers = true, value_name = "N",
          value_parser = clap::value_parser!(i64).range(-1..))]
    pub max_logprobs: i64,

    /// Log-probs of the model itself, or of the distribution that was sampled from.
    #[arg(long, help_heading = ANSWERS, value_enum, default_value_t, value_name = "MODE")]
    pub logprobs_mode: LogprobsModeArg,

    /// What runs the model.
    #[arg(long, help_heading = COMPUTING, value_enum, default_value_t)]
    pub engine: EngineKind,

    /// Let mistral.rs serve models that it has not been shown to compute right; /v1/models says so.
    #[arg(long, help_heading = COMPUTING)]
    pub unproven_models: bool,

    /// What the scripted engine samples, answer by answer: a JSON string or a list of token ids a line. The last line
    /// also serves every later answer.
    #[arg(long, value_name = "FILE", hide = true)]
    pub script: Option<PathBuf>,

    /// Adapters.
    #[command(flatten)]
    pub adapters: AdapterArgs,

    /// Trajectories.
    #[command(flatten)]
    pub capture: CaptureArgs,

    /// When known ids cannot be provably continued: refuse, count end tokens as NeMo-RL does, or ignore them.
    #[arg(long, help_heading = CONTINUITY, value_enum, default_value_t, value_name = "POLICY")]
    pub on_unprovable: OnUnprovable,

    /// Bytes of the cache that continues conversations of clients which send no ids; 0 turns it off.
    #[arg(long, help_heading = CONTINUITY, default_value = "512M", value_parser = human_readable_size, value_name = "BYTES")]
    pub continuity_cache_size: u64,

    /// Seconds that the cache keeps a turn after its last use.
    #[arg(long, help_heading = CONTINUITY, default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    pub continuity_ttl: u64,

    /// Refuse requests whose ids are in doubt: ambiguous, or not those of their messages. [default: tell]
    #[arg(long, help_heading = CONTINUITY)]
    pub strict_continuity: bool,

    /// Tell with every answer whether encoding the whole conversation again would have given other ids; costs that.
    #[arg(long, help_heading = CONTINUITY)]
    pub check_drift: bool,

    /// Keep responses in this file, so that a restart loses none. [default: in memory]
    #[arg(long, help_heading = STORE, value_name = "FILE")]
    pub response_store: Option<PathBuf>,

    /// Room for responses; the oldest leave first. [default: 512M, or 4G in a file]
    #[arg(long, help_heading = STORE, value_name = "BYTES", value_parser = store_size)]
    pub response_store_size: Option<u64>,

    /// Seconds that a response is kept in memory after its last use; in a file it stays.
    #[arg(long, help_heading = STORE, default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    pub response_store_ttl: u64,

    /// Never reach for the hub.
    #[arg(long, env = "HF_HUB_OFFLINE", value_parser = clap::builder::FalseyValueParser::new(), hide = true,
          action = clap::ArgAction::Set, default_value = "false")]
    pub hub_offline: bool,

    /// The hub's cache lies in `hub` under it.
    #[arg(long, env = "HF_HOME", hide = true)]
    pub hub_home: Option<PathBuf>,

    /// The address of another hub than Hugging Face.
    #[arg(long, env = "HF_ENDPOINT", hide = true)]
    pub hub_endpoint: Option<String>,

    /// Branch, tag or commit of a model of the hub.
    #[arg(long)]
    pub revision: Option<String>,

    /// Opens private models of the hub; without a value, the one that was stored by logging in.
    #[arg(long = "hf-token", alias = "hub-token", env = "HF_TOKEN", hide_env_values = true, num_args = 0..=1,
          default_missing_value = "", value_name = "TOKEN")]
    pub hub_token: Option<String>,

    /// Keeps models of the hub instead of its own cache.
    #[arg(long, value_name = "DIR")]
    pub download_dir: Option<PathBuf>,

    /// Tokenizer and chat template of another model. [default: the model's]
    #[arg(long, value_name = "MODEL")]
    pub tokenizer: Option<String>,

    /// The control plane.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// Prompts of gpt-oss.
    #[command(flatten)]
    pub harmony: HarmonyArgs,

    /// Logs.
    #[command(flatten)]
    pub logs: LogArgs,
}

const COMPUTING: &str = "Memory and speed";
const ANSWERS: &str = "Answers";
const CONTINUITY: &str = "Token continuity";
const STORE: &str = "Stored responses";

impl ServeArgs {
    /// What to serve; the parser wants one of the two.
    pub fn model(&self) -> &str {
        self.model_tag.as_deref().or(self.model_flag.as_deref()).unwrap_or_default()
    }

    /// Where models of the hub are kept: `hub` under `HF_HOME`, which is a directory of the user's cache by default.
    pub fn hub_cache_dir(&self) -> PathBuf {
        if let Some(directory) = &self.download_dir {
            return directory.clone();
        }
        let home = self.hub_home.clone().or_else(|| Some(std::env::home_dir()?.join(".cache/huggingface")));
        home.unwrap_or_default().join("hub")
    }
}

/// The longest sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelLength {
    /// The model's.
    Auto,
    /// Prompt and output together.
    Tokens(usize),
}

fn model_length(text: &str) -> Result<ModelLength, String> {
    match text.trim() {
        "-1" => Ok(ModelLength::Auto),
        auto if auto.eq_ignore_ascii_case("auto") => Ok(ModelLength::Auto),
        number => human_readable_int(number).map(ModelLength::Tokens),
    }
}

/// vLLM's names of [`ContentFormat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ContentFormatArg {
    /// As the template reads it.
    #[default]
    Auto,
    /// Contents are one string.
    String,
    /// A list of parts as in OpenAI's API.
    Openai,
}

impl From<ContentFormatArg> for Option<ContentFormat> {
    fn from(format: ContentFormatArg) -> Self {
        match format {
            ContentFormatArg::Auto => None,
            ContentFormatArg::String => Some(ContentFormat::String),
            ContentFormatArg::Openai => Some(ContentFormat::OpenAi),
        }
    }
}

fn json_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a JSON object: {error}"))
}

fn template_variables(text: &str) -> Result<Object, String> {
    match json::Value::parse(text) {
        Ok(json::Value::Object(object)) => Ok(object),
        Ok(_) => Err("expected a JSON object".to_owned()),
        Err(error) => Err(format!("expected a JSON object: {error}")),
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

/// What becomes of the weights of a quantised directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum QuantizedWeights {
    /// Widened where memory holds it, else kept.
    #[default]
    Auto,
    /// Kept in their codes, and widened inside of the products: less memory, and the same bits.
    Kept,
    /// Widened to the type of the engine's matrices.
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
