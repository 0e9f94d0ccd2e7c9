//! What runs the model, and how.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::{
    config::{
        ActivationDtype, DeviceArg, DraftModelConfig, Dtype as Asked, EngineKind, GgufWeights, KvEventsConfig,
        PartDtype, QuantizedWeights, ServeArgs, SpeculativeConfig,
    },
    engine::{
        AdapterLimits,
        native::{self, Drafting, Dtype, ModelDrafts, NgramLookup, Speculation, SuffixDecoding},
    },
    launch::device::Device,
};

/// The share of the free memory that keys and values may take unless told otherwise.
const KV_CACHE_SHARE: u64 = 4;
/// What they may take where the system does not say how much memory is free.
const KV_CACHE_BYTES: u64 = 4 << 30;
/// The share of a GPU's memory that may be taken unless told otherwise.
const GPU_SHARE: f64 = 0.92;
/// Tokens of a step unless told otherwise: those that keep a processor busy, and those that keep a GPU busy.
const STEP_TOKENS: usize = 512;
const GPU_STEP_TOKENS: usize = 8192;

/// What runs the model, and how.
pub(in crate::launch) struct EngineSettings {
    /// Which engine.
    pub(in crate::launch) kind: EngineKind,
    /// Where it computes.
    pub(in crate::launch) device: DeviceArg,
    /// The type of its arithmetic.
    pub(in crate::launch) dtype: Asked,
    /// The type of what weights are multiplied with.
    activation_dtype: ActivationDtype,
    kv_cache_dtype: PartDtype,
    lora_dtype: PartDtype,
    /// Sequences that run at a time.
    pub(in crate::launch) max_num_seqs: usize,
    /// Sequences that may wait.
    pub(in crate::launch) max_waiting: usize,
    /// What becomes of the weights of a GGUF file.
    pub(in crate::launch) gguf_weights: GgufWeights,
    /// What becomes of those of a quantised directory.
    pub(in crate::launch) quantized_weights: QuantizedWeights,
    /// How the checkpoint has to be quantised.
    pub(in crate::launch) quantization: Option<String>,
    /// Bytes for keys and values, where that was said.
    pub(in crate::launch) kv_cache_memory: Option<u64>,
    /// Threads that compute; `None` for one on each core.
    pub(in crate::launch) threads: Option<usize>,
    /// The name of the instructions that compute.
    pub(in crate::launch) kernels: Option<String>,
    /// The socket by which a test lets steps be computed.
    pub(in crate::launch) step_gate: Option<PathBuf>,
    /// Keep the experts of all tokens.
    pub(in crate::launch) return_routed_experts: bool,
    /// Drafts; `None` for none.
    pub(in crate::launch) drafting: Drafting,
    /// The model that drafts, if one does.
    pub(in crate::launch) draft_model: Option<DraftModelConfig>,
    /// The bounds of adapters; `None` where none are served.
    pub(in crate::launch) adapters: Option<AdapterLimits>,
    /// Let mistral.rs serve what it has not been shown to compute right.
    pub(in crate::launch) unproven_models: bool,
    /// Where events of the cache are published, if they are.
    pub(in crate::launch) kv_events: Option<KvEventsConfig>,
    /// What the scripted engine samples.
    pub(in crate::launch) script: Option<PathBuf>,
    max_num_batched_tokens: Option<usize>,
    on_gpu: GpuSettings,
}

/// What only a GPU asks for.
struct GpuSettings {
    deterministic: bool,
    cuda_graphs: bool,
    async_scheduling: bool,
    memory_utilization: Option<f64>,
}

impl EngineSettings {
    /// Tokens of a step.
    pub(in crate::launch) fn step_tokens(&self, device: Device) -> usize {
        let default = if device == Device::Cpu { STEP_TOKENS } else { GPU_STEP_TOKENS };
        self.max_num_batched_tokens.unwrap_or(default)
    }

    /// What is to be said about flags that have no effect on this device.
    pub(in crate::launch) fn idle_on(&self, device: Device) -> Option<String> {
        let given = [
            (
                self.on_gpu.memory_utilization.is_some(),
                "--gpu-memory-utilization; --kv-cache-memory bounds keys and values",
            ),
            (self.on_gpu.async_scheduling, "--async-scheduling"),
        ];
        let idle: Vec<&str> = given.into_iter().filter_map(|(given, flag)| given.then_some(flag)).collect();
        let is_said = device == Device::Cpu && !idle.is_empty();
        is_said.then(|| format!("ignored flags, without effect on the CPU: {}", idle.join("; ")))
    }

    /// Bytes for keys and values, as much memory as is free now.
    pub(in crate::launch) fn kv_cache_bytes(&self) -> u64 {
        let share = || crate::memory::available().map_or(KV_CACHE_BYTES, |bytes| bytes / KV_CACHE_SHARE);
        self.kv_cache_memory.unwrap_or_else(share)
    }

    /// The device, as the native engine is told.
    pub(in crate::launch) fn native_device(&self, device: Device) -> native::Device {
        match device {
            Device::Cpu => native::Device::Cpu,
            Device::Cuda(number) => native::Device::Cuda {
                number,
                deterministic: self.on_gpu.deterministic,
                records_steps: self.on_gpu.cuda_graphs,
                goes_ahead: self.on_gpu.async_scheduling,
                memory_share: self
                    .kv_cache_memory
                    .is_none()
                    .then(|| self.on_gpu.memory_utilization.unwrap_or(GPU_SHARE)),
            },
        }
    }

    /// Whether activations stay in float32, whatever the type of the weights.
    pub(in crate::launch) fn f32_activations(&self) -> bool {
        self.activation_dtype == ActivationDtype::Float32
    }

    /// The type of the native engine's matrices for a model's config.json.
    pub(in crate::launch) fn native_dtype(&self, config: &Map<String, Value>) -> Dtype {
        match self.dtype {
            Asked::Auto => Dtype::stored(config),
            Asked::Bfloat16 => Dtype::Bf16,
            // There is no arithmetic in float16, and float32 holds all of its numbers.
            Asked::Float16 | Asked::Float32 => Dtype::F32,
        }
    }
}

impl EngineSettings {
    /// Whether the types of keys and values or of adapters are asked for, which only the native engine knows.
    pub(in crate::launch) fn asks_for_part_dtypes(&self) -> bool {
        [self.kv_cache_dtype, self.lora_dtype].iter().any(|asked| *asked != PartDtype::Auto)
    }

    /// Refuses types that keys and values, or adapters, do not have where the weights have `dtype`.
    pub(in crate::launch) fn check_part_dtypes(&self, dtype: Dtype) -> anyhow::Result<()> {
        let of_cache = if self.f32_activations() { Dtype::F32 } else { dtype };
        for (flag, asked, has) in
            [("--kv-cache-dtype", self.kv_cache_dtype, of_cache), ("--lora-dtype", self.lora_dtype, dtype)]
        {
            let has = if has == Dtype::Bf16 { PartDtype::Bfloat16 } else { PartDtype::Float32 };
            if asked != PartDtype::Auto && asked != has {
                let name = |dtype| if dtype == PartDtype::Bfloat16 { "bfloat16" } else { "float32" };
                let (asked, has) = (name(asked), name(has));
                anyhow::bail!(
                    "{flag} {asked} is not what is computed, which is {has}, see --dtype; leave it out, or pass auto"
                );
            }
        }
        Ok(())
    }
}

/// Drafts are there by default, as they change no bit. Where steps are counted by a gate, each samples a single token.
fn drafting(args: &ServeArgs) -> Drafting {
    let (config, of): (_, fn(Speculation) -> Drafting) = match args.speculative_config.clone() {
        Some(config) => (config, Drafting::Required),
        None if args.step_gate.is_some() => return Drafting::Off,
        None => (SpeculativeConfig::default(), Drafting::WherePossible),
    };
    match config {
        SpeculativeConfig::Off => Drafting::Off,
        SpeculativeConfig::Ngram { num_speculative_tokens, prompt_lookup_max, prompt_lookup_min } => {
            let timed = true;
            of(Speculation::Ngram(NgramLookup { num_speculative_tokens, prompt_lookup_max, prompt_lookup_min, timed }))
        }
        SpeculativeConfig::Suffix {
            num_speculative_tokens,
            max_tree_depth,
            max_cached_requests,
            max_spec_factor,
            min_token_prob,
        } => of(Speculation::Suffix(SuffixDecoding {
            num_speculative_tokens,
            max_tree_depth,
            max_cached_requests,
            max_spec_factor,
            min_token_prob,
            timed: true,
        })),
        // What it costs is measured once it is loaded.
        SpeculativeConfig::DraftModel(DraftModelConfig { num_speculative_tokens, .. }) => {
            of(Speculation::Model(ModelDrafts { num_speculative_tokens, cost: None }))
        }
    }
}

fn draft_model(args: &ServeArgs) -> Option<DraftModelConfig> {
    match &args.speculative_config {
        Some(SpeculativeConfig::DraftModel(config)) => Some(config.clone()),
        _ => None,
    }
}

/// What flags say of the engine.
pub(super) fn settings(args: &ServeArgs) -> EngineSettings {
    EngineSettings {
        kind: args.engine,
        device: args.device,
        dtype: args.dtype,
        activation_dtype: args.activation_dtype,
        kv_cache_dtype: args.part_dtypes.kv_cache_dtype,
        lora_dtype: args.part_dtypes.lora_dtype,
        max_num_seqs: args.max_num_seqs,
        max_waiting: args.max_waiting,
        gguf_weights: args.gguf_weights,
        quantized_weights: args.quantized_weights,
        quantization: args.quantization.clone(),
        kv_cache_memory: args.kv_cache_memory,
        threads: args.threads,
        kernels: args.kernels.clone(),
        step_gate: args.step_gate.clone(),
        return_routed_experts: args.enable_return_routed_experts,
        drafting: drafting(args),
        draft_model: draft_model(args),
        adapters: super::adapters::limits(&args.adapters),
        unproven_models: args.unproven_models,
        kv_events: args.kv_events_config.0.clone(),
        script: args.script.clone(),
        max_num_batched_tokens: args.max_num_batched_tokens,
        on_gpu: GpuSettings {
            deterministic: args.deterministic,
            cuda_graphs: args.cuda_graphs,
            async_scheduling: args.async_scheduling,
            memory_utilization: args.gpu_memory_utilization,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Arguments, Command};

    fn checked(flags: &str, dtype: Dtype) -> Result<(), String> {
        let line = format!("tito serve m {flags}");
        let Command::Serve(args) = Arguments::read(line.split_whitespace().map(Into::into)).unwrap().command else {
            panic!("{line} does not serve");
        };
        settings(&args).check_part_dtypes(dtype).map_err(|error| error.to_string())
    }

    #[test]
    fn parts_may_be_asked_for_in_the_types_that_they_have() {
        for (flags, dtype) in [
            ("", Dtype::F32),
            ("--kv-cache-dtype auto --lora-dtype auto", Dtype::Bf16),
            ("--kv-cache-dtype bfloat16 --lora-dtype bfloat16", Dtype::Bf16),
            ("--kv-cache-dtype float32 --activation-dtype float32 --lora-dtype bfloat16", Dtype::Bf16),
        ] {
            assert_eq!(checked(flags, dtype), Ok(()), "{flags}");
        }
        for (flags, dtype, words) in [
            (
                "--kv-cache-dtype bfloat16",
                Dtype::F32,
                "--kv-cache-dtype bfloat16 is not what is computed, which is float32",
            ),
            ("--kv-cache-dtype bfloat16 --activation-dtype float32", Dtype::Bf16, "which is float32"),
            ("--lora-dtype float32", Dtype::Bf16, "--lora-dtype float32 is not what is computed, which is bfloat16"),
        ] {
            let error = checked(flags, dtype).unwrap_err();
            assert!(error.contains(words) && error.ends_with("leave it out, or pass auto"), "{error}");
        }
    }
}
