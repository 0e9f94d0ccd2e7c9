//! From flags to settings: what each room of the server is told, but the engines, which have files of their own.

use std::{path::Path, time::Duration};

use anyhow::Context;
use serde_json::Map;

use super::memory;
use crate::{
    config::{AdminArgs, ServeArgs, Undo, WeightsChange},
    continuity::{ContinuityPolicy, MemoryBounds},
    control::ControlPolicy,
    engine::{OnWeightsChange, UndoPolicy},
    generation::RequestLog,
    model::{EosTokens, GenerationConfig, ModelFiles},
    server::{AccessLog, ApiKeys, Cors, ServerConfig},
    structured::JsonOptions,
    turn::{RequestPolicy, SamplingPolicy},
};

/// Room for responses in memory, unless the flags say otherwise.
const STORE_BYTES_IN_MEMORY: u64 = 512 << 20;
/// Room for them on a disk, unless the flags say otherwise.
const STORE_BYTES_ON_DISK: u64 = 4 << 30;

/// What surrounds the API.
pub(super) fn server(args: &ServeArgs) -> ServerConfig {
    let (http, logs) = (&args.http, &args.logs);
    ServerConfig {
        api_keys: ApiKeys::new(&http.api_key).shared(http.share_between_api_keys),
        cors: Cors {
            origins: http.allowed_origins.0.clone(),
            methods: http.allowed_methods.0.clone(),
            headers: http.allowed_headers.0.clone(),
            credentials: http.allow_credentials,
        },
        root_path: http.root_path.clone(),
        docs: !http.disable_fastapi_docs,
        request_id_headers: http.enable_request_id_headers,
        max_request_bytes: http.max_request_bytes,
        max_bytes_in_flight: http.max_bytes_in_flight.unwrap_or_else(memory::for_bytes_in_flight),
        stream_comments: Some(http.sse_keep_alive_interval).filter(|seconds| *seconds > 0).map(Duration::from_secs),
        stream_stall_timeout: Some(http.stream_stall_timeout).filter(|seconds| *seconds > 0).map(Duration::from_secs),
        access_log: AccessLog { enabled: !logs.disable_uvicorn_access_log, silent_paths: logs.silent_paths() },
        request_spans: logs.enable_log_requests,
        request_patience: ServerConfig::default().request_patience,
        shutdown_timeout: Duration::from_secs(http.shutdown_timeout),
    }
}

/// What is logged of requests.
pub(super) fn request_log(args: &ServeArgs) -> Option<RequestLog> {
    args.logs.enable_log_requests.then_some(RequestLog { max_ids: args.logs.max_log_len })
}

/// What the server decides about conversations and their answers.
pub(super) fn requests(args: &ServeArgs) -> RequestPolicy {
    RequestPolicy {
        response_role: args.response_role.clone(),
        trust_request_chat_template: args.trust_request_chat_template,
        default_chat_template_kwargs: args.default_chat_template_kwargs.clone().unwrap_or_default(),
        reasoning_effort_map: args.reasoning_effort_map.clone().unwrap_or_default(),
        stream_interval: args.stream_interval,
        force_include_usage: args.enable_force_include_usage,
        exclude_tools_when_tool_choice_none: args.exclude_tools_when_tool_choice_none,
        return_routed_experts: args.enable_return_routed_experts,
        max_prompts: args.max_request_prompts,
        max_sequences: args.max_request_sequences,
    }
}

/// What the server decides about the ids of earlier turns.
pub(super) fn continuity(args: &ServeArgs) -> ContinuityPolicy {
    let ttl = Duration::from_secs(args.continuity_ttl);
    ContinuityPolicy {
        memory: Some(MemoryBounds { bytes: args.continuity_cache_size, ttl }),
        strict: args.strict_continuity,
        check_drift: args.check_drift,
    }
}

/// Where responses are kept, and how many bytes of them.
#[derive(Clone, Copy)]
pub(super) enum Store<'a> {
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
        path: &'a Path,
        /// The most bytes.
        bytes: u64,
    },
}

/// Where responses are to be kept.
pub(super) fn store(args: &ServeArgs) -> Store<'_> {
    match &args.response_store {
        None => Store::Memory {
            bytes: args.response_store_size.unwrap_or(STORE_BYTES_IN_MEMORY),
            ttl: Duration::from_secs(args.response_store_ttl),
        },
        Some(path) => Store::Disk { path, bytes: args.response_store_size.unwrap_or(STORE_BYTES_ON_DISK) },
    }
}

/// What the server decides about new weights, and about requests while they come.
pub(super) fn control(args: &AdminArgs) -> ControlPolicy {
    ControlPolicy {
        queue_while_paused: args.queue_while_paused,
        on_weights_change: match args.on_weights_change {
            WeightsChange::Recompute => OnWeightsChange::Recompute,
            WeightsChange::Reuse => OnWeightsChange::Reuse,
        },
        undo: match args.weights_undo {
            Undo::Memory => UndoPolicy::Memory,
            Undo::Nothing => UndoPolicy::Nothing,
        },
        update_timeout: Duration::from_secs(args.weight_update_timeout),
    }
}

/// How JSON is written in structured outputs.
pub(super) fn json(args: &ServeArgs) -> JsonOptions {
    let config = &args.structured_outputs_config;
    JsonOptions {
        compact: config.disable_any_whitespace,
        closed: config.disable_additional_properties,
        whitespace: None,
    }
}

/// Has what `--generation-config` says take the place of what the model says, its end tokens included.
pub(super) fn take_generation_config(args: &ServeArgs, files: &mut ModelFiles) -> anyhow::Result<()> {
    match args.generation_config.as_str() {
        "auto" | "vllm" => Ok(()),
        directory => files
            .set_generation(Path::new(directory))
            .with_context(|| format!("--generation-config {directory} is neither auto, vllm nor a usable directory")),
    }
}

/// What the server decides about sampling.
pub(super) fn sampling(args: &ServeArgs, files: &ModelFiles, eos: &EosTokens) -> anyhow::Result<SamplingPolicy> {
    let (defaults, is_named) = match args.generation_config.as_str() {
        "auto" => (files.generation.clone(), false),
        "vllm" => (GenerationConfig::default(), false),
        _ => (files.generation.clone(), true),
    };
    let nothing = Map::new();
    let over = args.override_generation_config.as_ref().unwrap_or(&nothing);
    let defaults = defaults.overridden(over).context("--override-generation-config")?;
    // As in vLLM, the tokens of a file that was named, or of a flag, are no default but a limit.
    let is_limit = is_named || over.contains_key("max_new_tokens");
    Ok(SamplingPolicy {
        most_tokens: defaults.max_new_tokens.filter(|_| is_limit),
        defaults,
        eos_token_id: eos.primary,
        extra_eos_token_ids: eos.others.clone(),
        max_logprobs: usize::try_from(args.max_logprobs).ok(),
        logprobs_mode: args.logprobs_mode.into(),
        return_tokens_as_token_ids: args.return_tokens_as_token_ids,
    })
}
