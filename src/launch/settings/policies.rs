//! What the server decides about requests, their answers, and what is kept of them.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use serde_json::{Map, Value};

use crate::{
    config::{Choice, ServeArgs, ToolStrictLevelArg},
    continuity::{ContinuityPolicy, MemoryBounds},
    continuity_store::{StoreAddress, StoreSettings},
    generation::RequestLog,
    model::{EosTokens, GenerationConfig, ModelFiles},
    parser::{ReasoningParser, ToolParser},
    sampling::LogprobsMode,
    structured::JsonOptions,
    turn::{RESERVED_TEMPLATE_VARIABLES, RequestPolicy, SamplingMaskPolicy, SamplingPolicy, ToolStrictLevel},
};

/// Room for responses, and for trajectories, in memory, unless the flags say otherwise.
pub(super) const STORE_BYTES_IN_MEMORY: u64 = 512 << 20;
/// Room for them on a disk, unless the flags say otherwise.
pub(super) const STORE_BYTES_ON_DISK: u64 = 4 << 30;

/// What is logged of requests.
pub(super) fn request_log(args: &ServeArgs) -> Option<RequestLog> {
    args.logs.enable_log_requests.then_some(RequestLog { max_ids: args.logs.max_log_len })
}

/// Whether answers tell how long they took. Like vLLM, this refuses a server that is to keep no statistics.
pub(super) fn request_metrics(args: &ServeArgs) -> anyhow::Result<bool> {
    if args.enable_per_request_metrics && args.logs.disable_log_stats {
        anyhow::bail!(
            "--enable-per-request-metrics and --disable-log-stats do not go together, as in vLLM; leave one of them out"
        );
    }
    Ok(args.enable_per_request_metrics)
}

/// What is decided about conversations and their answers.
pub(super) fn requests(args: &ServeArgs) -> anyhow::Result<RequestPolicy> {
    let default_chat_template_kwargs = args.default_chat_template_kwargs.clone().unwrap_or_default();
    if let Some(name) =
        RESERVED_TEMPLATE_VARIABLES.iter().find(|name| default_chat_template_kwargs.contains_key(**name))
    {
        anyhow::bail!("--default-chat-template-kwargs cannot set `{name}`, which the server sets itself");
    }
    Ok(RequestPolicy {
        response_role: args.response_role.clone(),
        trust_request_chat_template: args.trust_request_chat_template,
        default_chat_template_kwargs,
        reasoning_effort_map: args.reasoning_effort_map.clone().unwrap_or_default(),
        stream_interval: args.stream_interval,
        force_include_usage: args.enable_force_include_usage,
        exclude_tools_when_tool_choice_none: args.exclude_tools_when_tool_choice_none,
        return_routed_experts: args.enable_return_routed_experts,
        max_prompts: args.max_request_prompts,
        max_sequences: args.max_sequences(),
    })
}

/// What flags say of how answers are read; `auto` depends on the model's chat template.
#[derive(Clone, Copy)]
pub(in crate::launch) struct ParserSettings {
    /// The format of calls.
    pub(in crate::launch) calls: Option<Choice<ToolParser>>,
    /// Whether requests may let the model decide whether to call a tool.
    pub(in crate::launch) auto_tool_choice: bool,
    /// The format of reasoning.
    pub(in crate::launch) reasoning: Option<Choice<ReasoningParser>>,
    /// How far calls that the model makes by itself are held.
    pub(in crate::launch) strict_level: ToolStrictLevel,
}

/// How answers are read.
pub(super) fn parsers(args: &ServeArgs) -> ParserSettings {
    ParserSettings {
        calls: args.tool_call_parser,
        auto_tool_choice: args.enable_auto_tool_choice,
        reasoning: args.reasoning_parser,
        strict_level: strict_level(args.tool_strict_level),
    }
}

fn strict_level(asked: ToolStrictLevelArg) -> ToolStrictLevel {
    match asked {
        ToolStrictLevelArg::Auto => ToolStrictLevel::Auto,
        ToolStrictLevelArg::Function => ToolStrictLevel::Function,
        ToolStrictLevelArg::Parameter => ToolStrictLevel::Parameter,
    }
}

/// What is decided about the ids of earlier turns.
pub(super) fn continuity(args: &ServeArgs) -> ContinuityPolicy {
    let ttl = Duration::from_secs(args.continuity_ttl);
    ContinuityPolicy {
        memory: Some(MemoryBounds { bytes: args.continuity_cache_size, ttl }),
        strict: args.strict_continuity,
        check_drift: args.check_drift,
    }
}

/// Where several servers share what they remember.
pub(super) fn continuity_store(args: &ServeArgs) -> anyhow::Result<Option<StoreSettings>> {
    let Some(url) = &args.continuity_store else { return Ok(None) };
    let address = StoreAddress::parse(url).map_err(|reason| anyhow::anyhow!("--continuity-store {reason}"))?;
    anyhow::ensure!(
        args.continuity_cache_size > 0,
        "--continuity-store needs the cache in memory: leave out --continuity-cache-size 0"
    );
    let timeout = Duration::from_millis(args.continuity_store_timeout_ms);
    Ok(Some(StoreSettings { address, timeout, ttl: Duration::from_secs(args.continuity_ttl) }))
}

/// Where responses are kept, and how many bytes of them.
pub(in crate::launch) enum Store {
    /// In memory, each for a time.
    Memory {
        /// The most bytes.
        bytes: u64,
        /// For how long.
        ttl: Duration,
    },
    /// On a disk.
    Disk {
        /// The file.
        path: PathBuf,
        /// The most bytes.
        bytes: u64,
    },
}

/// Where responses are to be kept.
pub(super) fn store(args: &ServeArgs) -> Store {
    match &args.response_store {
        None => Store::Memory {
            bytes: args.response_store_size.unwrap_or(STORE_BYTES_IN_MEMORY),
            ttl: Duration::from_secs(args.response_store_ttl),
        },
        Some(path) => {
            Store::Disk { path: path.clone(), bytes: args.response_store_size.unwrap_or(STORE_BYTES_ON_DISK) }
        }
    }
}

/// How JSON is written in structured outputs.
pub(super) fn json(args: &ServeArgs) -> JsonOptions {
    let config = &args.structured_outputs_config;
    JsonOptions {
        compact: config.disable_any_whitespace,
        closed: config.disable_additional_properties,
        ..JsonOptions::default()
    }
}

/// What flags say of sampling; some of it is about what the model says.
pub(in crate::launch) struct SamplingSettings {
    defaults: Defaults,
    /// What takes the place of defaults.
    over: Map<String, Value>,
    max_logprobs: Option<usize>,
    logprobs_mode: LogprobsMode,
    return_tokens_as_token_ids: bool,
    sampling_mask: SamplingMaskPolicy,
    max_n: usize,
}

/// Where defaults of sampling come from.
#[derive(PartialEq)]
enum Defaults {
    OfModel,
    None,
    Of(PathBuf),
}

/// What flags say of sampling.
pub(super) fn sampling(args: &ServeArgs) -> SamplingSettings {
    SamplingSettings {
        defaults: match args.generation_config.as_str() {
            "auto" => Defaults::OfModel,
            "vllm" => Defaults::None,
            directory => Defaults::Of(directory.into()),
        },
        over: args.override_generation_config.clone().unwrap_or_default(),
        max_logprobs: usize::try_from(args.max_logprobs).ok(),
        logprobs_mode: args.logprobs_mode.into(),
        return_tokens_as_token_ids: args.return_tokens_as_token_ids,
        sampling_mask: SamplingMaskPolicy {
            most: args.sampling_mask_max_tokens,
            on_generate: args.return_sampling_mask,
        },
        max_n: args.max_n(),
    }
}

impl SamplingSettings {
    /// Has the directory that was named say what the model says otherwise, its end tokens included.
    pub(in crate::launch) fn take_over(&self, files: &mut ModelFiles) -> anyhow::Result<()> {
        let Defaults::Of(directory) = &self.defaults else { return Ok(()) };
        files.set_generation(directory).with_context(|| {
            format!("--generation-config {} is neither auto, vllm nor a usable directory", directory.display())
        })
    }

    /// What is decided about sampling.
    pub(in crate::launch) fn policy(&self, files: &ModelFiles, eos: &EosTokens) -> anyhow::Result<SamplingPolicy> {
        let defaults = match self.defaults {
            Defaults::None => GenerationConfig::default(),
            Defaults::OfModel | Defaults::Of(_) => files.generation.clone(),
        };
        let defaults = defaults.overridden(&self.over).context("--override-generation-config")?;
        // As in vLLM, the tokens of a file that was named, or of a flag, are no default but a limit.
        let is_limit = matches!(self.defaults, Defaults::Of(_)) || self.over.contains_key("max_new_tokens");
        Ok(SamplingPolicy {
            most_tokens: defaults.max_new_tokens.filter(|_| is_limit),
            defaults,
            eos_token_id: eos.primary,
            extra_eos_token_ids: eos.others.clone(),
            max_logprobs: self.max_logprobs,
            logprobs_mode: self.logprobs_mode,
            return_tokens_as_token_ids: self.return_tokens_as_token_ids,
            sampling_mask: self.sampling_mask,
            max_n: self.max_n,
        })
    }
}
