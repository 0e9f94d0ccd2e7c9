//! `tito serve`.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};

use super::{
    adapters::AdapterArgs,
    admin::AdminArgs,
    capture::CaptureArgs,
    choices::{ActivationDtype, ContentFormatArg, Dtype, EngineKind, GgufWeights, LogprobsModeArg, QuantizedWeights},
    device::DeviceArg,
    efforts::{self, Efforts},
    harmony::HarmonyArgs,
    http::{HttpArgs, LogArgs},
    hub::HubArgs,
    images::ImageArgs,
    kv_events::{self, KvEventsArg},
    number::{human_readable_count, human_readable_int, human_readable_size, positive, share, store_size},
    parsers::{self, Choice, ToolStrictLevelArg},
    part_dtypes::PartDtypeArgs,
    speculative::{self, SpeculativeConfig},
    structured_outputs::{self, StructuredOutputsConfig},
};
use crate::{
    json::{self, Object},
    parser::{ReasoningParser, ToolParser},
    prompt::OnUnprovable,
};

/// Serve a model over HTTP.
#[derive(Debug, Args)]
#[command(next_help_heading = MODEL)]
#[expect(clippy::struct_excessive_bools, reason = "flags are independent")]
pub struct ServeArgs {
    /// The model: a hub id such as `org/name`, a directory, or a .gguf file.
    #[arg(help_heading = None, value_name = "MODEL", required_unless_present = "model_flag", conflicts_with = "model_flag")]
    model_tag: Option<String>,

    /// The model, as older command lines name it.
    #[arg(long = "model", value_name = "MODEL", hide = true)]
    model_flag: Option<String>,

    /// Read flags from this YAML file.
    ///
    /// Its keys are names of flags, without the leading dashes. Flags on the command line override it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// The names that requests may use for the model [default: MODEL]
    ///
    /// Responses show the first one.
    #[arg(long, num_args = 1.., value_name = "NAME")]
    pub served_model_name: Vec<String>,

    /// The longest sequence, with prompt and output, in tokens [default: the model's]
    ///
    /// Numbers may have units: `4k` is 4000, and `4K` is 4096.
    #[arg(long, value_parser = model_length, value_name = "TOKENS", default_value = "auto", hide_default_value = true,
          allow_negative_numbers = true)]
    pub max_model_len: ModelLength,

    /// The most sequences that are computed at the same time.
    ///
    /// The mistralrs engine always computes one at a time.
    #[arg(long, help_heading = COMPUTING, default_value = "256", value_parser = human_readable_int, value_name = "N")]
    pub max_num_seqs: usize,

    /// The most tokens in one step, over all sequences [default: 512; on a GPU, 8192]
    ///
    /// Tokens of prompts and tokens of outputs count alike.
    #[arg(long, help_heading = COMPUTING, value_parser = human_readable_int, value_name = "TOKENS")]
    pub max_num_batched_tokens: Option<usize>,

    /// Draft several tokens and check them in one step, as JSON.
    ///
    /// For example `{"method":"ngram","num_speculative_tokens":5}`. The default is `{"method":"suffix"}` where drafts are
    /// possible: on the CPU, and on a GPU with `--deterministic`, for models without recurrent states. They change no bit of the
    /// output. `null` turns them off. `{"method":"draft_model","model":"DIR","num_speculative_tokens":4}` has a smaller model draft.
    #[arg(long, help_heading = COMPUTING, value_name = "JSON", value_parser = speculative::parse)]
    pub speculative_config: Option<SpeculativeConfig>,

    /// Publish what the cache of prefixes holds, for routers, as a JSON object like vLLM's.
    ///
    /// For example `{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557"}`. It needs the native engine.
    #[arg(long, help_heading = COMPUTING, default_value = "{}", hide_default_value = true, value_name = "JSON",
          value_parser = kv_events::parse)]
    pub kv_events_config: KvEventsArg,

    /// The most sequences that may wait to be computed.
    ///
    /// A request that would exceed this gets a 503.
    #[arg(long, help_heading = COMPUTING, default_value = "64K", value_parser = human_readable_count, value_name = "N",
          visible_alias = "max-num-queued-reqs")]
    pub max_waiting: usize,

    /// Memory for keys and values, such as `4G` [default: a quarter of the free memory; on a GPU, what
    /// --gpu-memory-utilization leaves]
    #[arg(long, help_heading = COMPUTING, value_parser = human_readable_size, value_name = "BYTES", visible_alias = "kv-cache-memory-bytes")]
    pub kv_cache_memory: Option<u64>,

    /// Where to compute the model: `auto`, `cpu`, `cuda` or `cuda:N`.
    ///
    /// `auto` takes the first GPU if there is one and this build can use it. Otherwise it takes the CPU.
    #[arg(long, help_heading = COMPUTING, default_value_t, value_name = "DEVICE")]
    pub device: DeviceArg,

    /// The share of the GPU's memory that tito may use [default: 0.92]
    ///
    /// This covers the weights, the keys and values, and the working memory of a step.
    #[arg(long, help_heading = COMPUTING, value_parser = share, value_name = "SHARE",
          visible_alias = "device-memory-utilization")]
    pub gpu_memory_utilization: Option<f64>,

    /// On a GPU, compute every sequence to the same bits as if it were alone.
    ///
    /// This is slower. The CPU always does it.
    #[arg(long, help_heading = COMPUTING)]
    pub deterministic: bool,

    /// On a GPU, record steps whose shape comes back as CUDA graphs. Small models get faster.
    ///
    /// The answers keep every bit. This was shown on an emulated GPU only. The CPU has nothing to record.
    #[arg(long, help_heading = COMPUTING)]
    pub cuda_graphs: bool,

    /// On a GPU, begin each step before the tokens of the one before are known, where that can be.
    ///
    /// The GPU then does not wait for the server. This was shown on an emulated GPU only. On the CPU it has no effect.
    #[arg(long, help_heading = COMPUTING)]
    pub async_scheduling: bool,

    /// The number of threads that compute [default: one for each core]
    #[arg(long, help_heading = COMPUTING, value_name = "N", value_parser = positive)]
    pub threads: Option<usize>,

    /// Instructions that compute, for tests [default: the fastest that the machine has]
    #[arg(long, value_name = "SET", hide = true)]
    pub kernels: Option<String>,

    /// Socket by which a test lets single steps be computed: docs/native-engine.md.
    #[arg(long, value_name = "PATH", hide = true)]
    pub step_gate: Option<PathBuf>,

    /// The type of the weights and the arithmetic.
    #[arg(long, value_enum, default_value_t)]
    pub dtype: Dtype,

    /// The type of what the weights are multiplied with.
    ///
    /// `float32` with weights in bfloat16 gives the numbers of `--dtype float32` in half of the memory for weights. Only tito's
    /// own engine does it, on the CPU.
    #[arg(long, value_enum, default_value_t)]
    pub activation_dtype: ActivationDtype,

    /// Types of other parts.
    #[command(flatten)]
    pub part_dtypes: PartDtypeArgs,

    /// How to compute with the weights of a .gguf file.
    ///
    /// `auto` widens those of the model if there is memory for that, and keeps those of a model that drafts where that is as fast.
    #[arg(long, value_enum, default_value_t)]
    pub gguf_weights: GgufWeights,

    /// How to hold the FP8 or MXFP4 weights of a quantised directory.
    ///
    /// All choices compute the same bits. Only widened weights can be replaced by a training loop.
    #[arg(long, value_enum, default_value_t)]
    pub quantized_weights: QuantizedWeights,

    /// The quantisation method of the checkpoint, such as `fp8` or `gptq`.
    ///
    /// It must be the one that the checkpoint names, because tito quantises nothing. You can leave it out.
    #[arg(long, value_name = "METHOD")]
    pub quantization: Option<String>,

    /// The seed from which requests without a seed get theirs.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Connections.
    #[command(flatten)]
    pub http: HttpArgs,

    /// The chat template: a file, or the template itself [default: the model's]
    #[arg(long, help_heading = CHAT, value_name = "FILE|TEMPLATE")]
    pub chat_template: Option<String>,

    /// Parse tool calls for `tool_choice: "auto"`; needs --tool-call-parser.
    ///
    /// `auto` is also what a request with tools means if it has no `tool_choice`.
    #[arg(long, help_heading = CHAT, requires = "tool_call_parser")]
    pub enable_auto_tool_choice: bool,

    /// The format in which the model writes tool calls.
    ///
    /// `auto` finds the format from the model's chat template.
    #[arg(long, help_heading = CHAT, value_name = "NAME", value_parser = parsers::tool_parser())]
    pub tool_call_parser: Option<Choice<ToolParser>>,

    /// How strictly the model is held to the format of tool calls under `tool_choice: "auto"`.
    #[arg(long, value_enum, default_value_t, value_name = "LEVEL", help_heading = CHAT)]
    pub tool_strict_level: ToolStrictLevelArg,

    /// The format in which the model writes its reasoning.
    ///
    /// `auto` finds the format from the model's chat template.
    #[arg(long, value_name = "NAME", value_parser = parsers::reasoning_parser(), help_heading = CHAT)]
    pub reasoning_parser: Option<Choice<ReasoningParser>>,

    /// The form in which the chat template expects the `content` of messages.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = CHAT)]
    pub chat_template_content_format: ContentFormatArg,

    /// Variables for the chat template, as a JSON object.
    ///
    /// Variables in a request override these.
    #[arg(long, value_name = "JSON", value_parser = template_variables, help_heading = CHAT)]
    pub default_chat_template_kwargs: Option<Object>,

    /// Reasoning efforts that requests name, and what to tell the template instead, as a JSON object.
    ///
    /// For example `{"medium":"low","xhigh":"max"}`.
    #[arg(long, value_name = "JSON", value_parser = efforts::parse, help_heading = CHAT)]
    pub reasoning_effort_map: Option<Efforts>,

    /// Accept chat templates in requests.
    #[arg(long, help_heading = CHAT)]
    pub trust_request_chat_template: bool,

    /// The role of the messages that the model writes.
    #[arg(long, default_value = "assistant", value_name = "ROLE", help_heading = CHAT)]
    pub response_role: String,

    /// Leave the tools out of the prompt if `tool_choice` is `none`.
    #[arg(long, help_heading = CHAT)]
    pub exclude_tools_when_tool_choice_none: bool,

    /// Where sampling defaults come from.
    ///
    /// `auto` takes those of the model, and `vllm` takes none of them. A directory must have a
    /// `generation_config.json`.
    #[arg(long, help_heading = SAMPLING, default_value = "auto", value_name = "auto|vllm|DIR")]
    pub generation_config: String,

    /// Sampling defaults that override those of --generation-config, as a JSON object.
    #[arg(long, value_name = "JSON", value_parser = json_object, help_heading = SAMPLING)]
    pub override_generation_config: Option<Map<String, Value>>,

    /// Write tokens in log-probs as `token_id:N`, unless a request says otherwise.
    #[arg(long, help_heading = SAMPLING)]
    pub return_tokens_as_token_ids: bool,

    /// On /inference/v1/generate, return the tokens that each token was drawn from.
    ///
    /// A request may say otherwise.
    #[arg(long, help_heading = SAMPLING)]
    pub return_sampling_mask: bool,

    /// The most tokens that such a list may have for one sampled token.
    ///
    /// A request that would need a longer one ends with an error.
    #[arg(long, help_heading = SAMPLING, default_value_t = 4096, value_name = "N", value_parser = positive)]
    pub sampling_mask_max_tokens: usize,

    /// Return the experts that each token went through, for mixture-of-experts models.
    #[arg(long, help_heading = SAMPLING)]
    pub enable_return_routed_experts: bool,

    /// How structured outputs are written, as a JSON object.
    ///
    /// Its keys are `disable_any_whitespace` and `disable_additional_properties`.
    #[arg(long, help_heading = SAMPLING, default_value = "{}", hide_default_value = true, value_name = "JSON",
          value_parser = structured_outputs::parse)]
    pub structured_outputs_config: StructuredOutputsConfig,

    /// The most log-probs that a request may ask for at each position; -1 sets no limit.
    #[arg(long, help_heading = SAMPLING, default_value_t = 20, allow_negative_numbers = true, value_name = "N",
          value_parser = clap::value_parser!(i64).range(-1..))]
    pub max_logprobs: i64,

    /// Which distribution log-probs describe.
    #[arg(long, help_heading = SAMPLING, value_enum, default_value_t, value_name = "MODE")]
    pub logprobs_mode: LogprobsModeArg,

    /// The fewest tokens to send in one event of a stream.
    ///
    /// The first and the last event may have fewer.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive, help_heading = REQUESTS)]
    pub stream_interval: usize,

    /// The most prompts in a completion request, and the most conversations in a batch.
    #[arg(long, value_name = "N", default_value = "1024", value_parser = human_readable_int, help_heading = REQUESTS,
          env = "VLLM_MAX_COMPLETION_PROMPTS")]
    pub max_request_prompts: usize,

    /// The most sequences of one request: its prompts times its `n` [default: 16384]
    #[arg(long, value_name = "N", value_parser = human_readable_int, help_heading = REQUESTS)]
    max_request_sequences: Option<usize>,

    /// The most sequences of each prompt, unless the flag says it of the whole request.
    #[arg(long, hide = true, value_name = "N", value_parser = human_readable_int, env = "VLLM_MAX_N_SEQUENCES")]
    vllm_max_n_sequences: Option<usize>,

    /// Report token usage in every stream, even if the request does not ask for it.
    #[arg(long, help_heading = REQUESTS)]
    pub enable_force_include_usage: bool,

    /// Report in `usage` how many tokens of the prompt were cached.
    #[arg(long, help_heading = REQUESTS)]
    pub enable_prompt_tokens_details: bool,

    /// Report in answers of one sequence how long it took.
    ///
    /// `metrics` of chats, completions and responses has the milliseconds in the queue, to the first token and to the last
    /// one. A stream has it where it reports usage.
    #[arg(long, help_heading = REQUESTS)]
    pub enable_per_request_metrics: bool,

    /// Do not start where an environment variable begins like those of vLLM, and vLLM does not know it.
    #[arg(long, help_heading = REQUESTS)]
    pub fail_on_environ_validation: bool,

    /// Count running requests for /load.
    #[arg(long, help_heading = REQUESTS)]
    pub enable_server_load_tracking: bool,

    /// Serve `/tokenizer_info`, which shows the tokenizer's settings and the chat template.
    #[arg(long, help_heading = REQUESTS)]
    pub enable_tokenizer_info_endpoint: bool,

    /// Serve sampling clients of the Python package `tinker`, under /api/v1.
    #[arg(long, help_heading = REQUESTS)]
    pub tinker_api: bool,

    /// The engine that computes the model.
    #[arg(long, help_heading = COMPUTING, value_enum, default_value_t)]
    pub engine: EngineKind,

    /// Let mistral.rs serve models that have not been compared with Transformers.
    ///
    /// The log warns about such a model, and /v1/models marks it.
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

    /// What to do if a conversation cannot provably continue from its known token ids.
    #[arg(long, help_heading = CONTINUITY, value_enum, default_value_t, value_name = "POLICY")]
    pub on_unprovable: OnUnprovable,

    /// Memory for the ids of earlier turns, such as `1G`; 0 turns this cache off.
    ///
    /// It lets a conversation continue from the sampled ids even if its client sends only texts.
    #[arg(long, help_heading = CONTINUITY, default_value = "512M", value_parser = human_readable_size, value_name = "BYTES")]
    pub continuity_cache_size: u64,

    /// How many seconds a turn stays in that cache after its last use.
    #[arg(long, help_heading = CONTINUITY, default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    pub continuity_ttl: u64,

    /// Share that cache with other servers of the model, by the Redis or Valkey server at this address.
    ///
    /// A conversation then continues from its ids on each of them. The form is
    /// `redis://[NAME][:PASSWORD@]HOST[:PORT][/DATABASE]` or `unix://PATH`.
    #[arg(long, help_heading = CONTINUITY, value_name = "URL", env = "TITO_CONTINUITY_STORE", hide_env_values = true)]
    pub continuity_store: Option<String>,

    /// A secret that the servers have in common, so that nobody else can write what they take.
    #[arg(long, help_heading = CONTINUITY, value_name = "SECRET", env = "TITO_CONTINUITY_STORE_SECRET", hide_env_values = true)]
    pub continuity_store_secret: Option<String>,

    /// How many milliseconds a turn waits for that server, before its prompt and again before its last event.
    #[arg(long, help_heading = CONTINUITY, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000), value_name = "MILLISECONDS")]
    pub continuity_store_timeout_ms: u64,

    /// Refuse requests whose ids are ambiguous, or do not match their messages.
    ///
    /// Otherwise the response reports such a doubt.
    #[arg(long, help_heading = CONTINUITY)]
    pub strict_continuity: bool,

    /// Report whether encoding the whole conversation again would give other ids.
    ///
    /// This costs the time of that encoding in every request.
    #[arg(long, help_heading = CONTINUITY)]
    pub check_drift: bool,

    /// Keep stored responses in this file, so that they survive a restart [default: in memory]
    #[arg(long, help_heading = STORE, value_name = "FILE")]
    pub response_store: Option<PathBuf>,

    /// Room for stored responses [default: 512M, or 4G in a file]
    ///
    /// The oldest ones are removed first.
    #[arg(long, help_heading = STORE, value_name = "BYTES", value_parser = store_size)]
    pub response_store_size: Option<u64>,

    /// How many seconds a response stays in memory after its last use.
    ///
    /// In a file, responses do not expire.
    #[arg(long, help_heading = STORE, default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    pub response_store_ttl: u64,

    /// Models of the hub.
    #[command(flatten)]
    pub hub: HubArgs,

    /// Take the tokenizer and the chat template of another model [default: the model's]
    #[arg(long, help_heading = MODEL, value_name = "MODEL")]
    pub tokenizer: Option<String>,

    /// The control plane.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// Prompts of gpt-oss.
    #[command(flatten)]
    pub harmony: HarmonyArgs,

    /// Images in requests.
    #[command(flatten)]
    pub images: ImageArgs,

    /// Logs.
    #[command(flatten)]
    pub logs: LogArgs,
}

const MODEL: &str = "Model";
const COMPUTING: &str = "Memory and speed";
const CHAT: &str = "Chat and tools";
const SAMPLING: &str = "Sampling and log-probs";
const REQUESTS: &str = "Requests and responses";
const CONTINUITY: &str = "Token continuity";
const STORE: &str = "Stored responses";

impl ServeArgs {
    /// What to serve; the parser wants one of the two.
    pub fn model(&self) -> &str {
        self.model_tag.as_deref().or(self.model_flag.as_deref()).unwrap_or_default()
    }

    /// The most sequences of one request.
    pub fn max_sequences(&self) -> usize {
        self.max_request_sequences.unwrap_or_else(|| MAX_SEQUENCES.max(self.max_n()))
    }

    /// The most sequences of one prompt. vLLM has a bound for these only, in the environment; a flag is stronger.
    pub fn max_n(&self) -> usize {
        self.max_request_sequences.or(self.vllm_max_n_sequences).unwrap_or(MAX_SEQUENCES)
    }
}

/// The most sequences of one request, unless a flag says otherwise: vLLM's bound of one prompt.
const MAX_SEQUENCES: usize = 16_384;

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
