//! What the engine is told when it starts.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::engine::AdapterLimits;

pub use super::cpu::{KernelName, KernelSet, Mismatch};
use super::{drafts::Drafting, model::ModelShape};

/// The type of the weights and of what is cached; sums are in f32 with both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    /// bfloat16.
    Bf16,
    /// float32.
    F32,
}

impl Dtype {
    /// The type of the weights, by their config.json, or by what it says of text. What bf16 cannot hold is widened to f32.
    pub fn stored(config: &Map<String, Value>) -> Self {
        let said = |config: &Map<String, Value>| {
            ["dtype", "torch_dtype"].iter().find_map(|key| config.get(*key)?.as_str().map(str::to_owned))
        };
        let of_text = || said(config.get("text_config")?.as_object()?);
        match said(config).or_else(of_text).as_deref() {
            Some("bfloat16") => Self::Bf16,
            _ => Self::F32,
        }
    }

    /// Its short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        }
    }
}

/// Where weights are, and what becomes of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightsSource {
    /// A directory with safetensors.
    Directory(PathBuf),
    /// A directory with quantised safetensors, whose weights stay in their codes, FP8 or MXFP4, as far as they are in these.
    /// What is computed is the same, to the bit.
    Coded(PathBuf),
    /// A GGUF file.
    Gguf {
        /// The file.
        path: PathBuf,
        /// Keep its weights in their quantised blocks as far as they are in blocks. Its numbers are rounded to bf16 either way:
        /// what is computed is the same, to the bit.
        keep_blocks: bool,
    },
}

impl WeightsSource {
    /// The flag that would have weights widened which stay quantised now.
    pub(super) fn kept_by(&self) -> Option<&'static str> {
        match self {
            Self::Coded(_) => Some("--quantized-weights"),
            Self::Gguf { keep_blocks: true, .. } => Some("--gguf-weights"),
            Self::Directory(_) | Self::Gguf { .. } => None,
        }
    }
}

/// Where the model is computed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Device {
    /// This machine's processor.
    #[default]
    Cpu,
    /// A GPU.
    Cuda {
        /// Its number among those that the driver shows.
        number: usize,
        /// Whether every sequence gets the bits that it would have alone.
        deterministic: bool,
        /// Whether steps whose shape comes back are recorded.
        records_steps: bool,
        /// Whether a step is begun before the tokens of the one before are on the host, where that can be.
        goes_ahead: bool,
        /// The share of its memory to use, where that decides how much keys and values get.
        memory_share: Option<f64>,
    },
}

/// What of a model is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelParts {
    /// All that this engine computes of it.
    All,
    /// The text. What reads images is left out, and may be any.
    Text,
}

impl ModelParts {
    /// What is computed where images may have so many patches, see [`NativeSettings::image_patches`].
    pub fn reading(image_patches: Option<usize>) -> Self {
        if image_patches.is_some() { Self::All } else { Self::Text }
    }
}

/// A second, smaller model, whose guesses the model checks.
#[derive(Debug, Clone)]
pub struct DraftModelSettings {
    /// Where its weights are.
    pub source: WeightsSource,
    /// The content of its config.json.
    pub config: Map<String, Value>,
    /// The type of its weights, and of what is cached.
    pub dtype: Dtype,
    /// Beyond so many tokens of a sequence, nothing is drafted.
    pub max_model_len: usize,
}

impl DraftModelSettings {
    /// Whether its weights stay in blocks or codes.
    pub fn stays_quantized(&self) -> bool {
        self.source.kept_by().is_some()
    }

    /// The file or directory of its weights.
    pub fn path(&self) -> &Path {
        match &self.source {
            WeightsSource::Directory(path) | WeightsSource::Coded(path) | WeightsSource::Gguf { path, .. } => path,
        }
    }
}

/// What to load, and the bounds to keep.
#[derive(Debug, Clone)]
pub struct NativeSettings {
    /// Where the weights are.
    pub source: WeightsSource,
    /// The content of its config.json.
    pub config: Map<String, Value>,
    /// See [`Dtype`].
    pub dtype: Dtype,
    /// Multiply weights in bf16 with activations in f32, and keep keys and values in f32: the numbers, to the bit, of
    /// [`Dtype::F32`] with these weights, in half of the memory for them. Only on the processor, and not with weights in blocks
    /// or codes. With [`Dtype::F32`] it is so in any case.
    pub f32_activations: bool,
    /// The longest sequence, prompt and output together, in tokens.
    pub max_model_len: usize,
    /// Sequences that run at a time.
    pub max_num_seqs: usize,
    /// Tokens of a step, over all sequences.
    pub max_num_batched_tokens: usize,
    /// Sequences that may wait. The next one gets [`EngineError::Overloaded`](crate::engine::EngineError::Overloaded).
    pub max_waiting: usize,
    /// Keep the experts of all tokens, so that requests can ask for them.
    pub return_routed_experts: bool,
    /// Whether tokens are drafted, and from what.
    pub drafting: Drafting,
    /// What drafts with [`Speculation::Model`](super::Speculation::Model); loaded with that alone.
    pub draft_model: Option<Box<DraftModelSettings>>,
    /// The bounds of adapters; `None` where none are served.
    pub adapters: Option<AdapterLimits>,
    /// The most patches that an image may have, where the model reads images; `None` to load what reads text alone. A GPU
    /// keeps memory free for so many.
    pub image_patches: Option<usize>,
    /// Have [`NativeEngine::cache_events`](super::NativeEngine::cache_events) tell what is cached, with so many batches of events that
    /// may wait to be read; `None` to tell nobody. Not for models with recurrent states.
    pub cache_events: Option<usize>,
    /// See [`Device`].
    pub device: Device,
    /// Bytes for keys and values and for recurrent states, unless a share of a GPU's memory is to decide. Memory of the
    /// system is taken as it is needed.
    pub kv_cache_bytes: u64,
    /// Threads that compute; `None` for one on each core.
    pub threads: Option<usize>,
    /// The instructions that are to compute; `None` for the fastest that the machine has and that compute what they
    /// should.
    pub kernels: Option<KernelName>,
    /// Instructions that were found not to work, and are not chosen.
    pub unusable_kernels: Vec<KernelSet>,
}

impl NativeSettings {
    /// Settings for a program of its own: the type of the weights, all cores of this machine's processor, 64 sequences at a
    /// time, 2,048 tokens each, and a gigabyte for keys and values.
    pub fn new(source: WeightsSource, config: Map<String, Value>) -> Self {
        Self {
            source,
            dtype: Dtype::stored(&config),
            f32_activations: false,
            config,
            max_model_len: 2_048,
            max_num_seqs: 64,
            max_num_batched_tokens: 512,
            max_waiting: 1_024,
            return_routed_experts: false,
            drafting: Drafting::Off,
            draft_model: None,
            adapters: None,
            image_patches: Some(usize::MAX),
            cache_events: None,
            device: Device::Cpu,
            kv_cache_bytes: 1 << 30,
            threads: None,
            kernels: None,
            unusable_kernels: Vec::new(),
        }
    }

    /// What of the model is wanted.
    pub fn parts(&self) -> ModelParts {
        ModelParts::reading(self.image_patches)
    }

    /// The most patches of an image that a sequence has room for; 0 where no images are read.
    pub(super) fn most_image_patches(&self, shape: &ModelShape) -> usize {
        let Some(images) = &shape.images else { return 0 };
        let joined = images.tower.patch.merge * images.tower.patch.merge;
        self.image_patches.unwrap_or(0).min(self.max_model_len.saturating_mul(joined))
    }

    /// Whether weights are narrower than what they are multiplied with.
    pub(super) fn widens_in_products(&self) -> bool {
        self.f32_activations && self.dtype == Dtype::Bf16
    }

    /// Why activations are not in f32, where that is asked for and would not be so.
    pub(super) fn rounds_activations(&self) -> Option<&'static str> {
        let in_f32 = self.dtype == Dtype::F32;
        match (&self.source, self.device) {
            _ if !self.f32_activations => None,
            _ if in_f32 => None,
            (WeightsSource::Coded(_), _) => Some(
                "--activation-dtype float32 is for weights in bfloat16, and these stay in their codes; --dtype float32 \
                 multiplies the same codes with activations in float32, and --quantized-weights widened makes them bfloat16",
            ),
            (_, Device::Cuda { .. }) => Some(
                "--activation-dtype float32 is for the CPU: on a GPU, activations are rounded to the type of the weights; \
                 --dtype float32 computes in float32 there, with twice the memory for weights",
            ),
            _ => None,
        }
    }

    /// Why trainers' weights cannot take the place of these, if they cannot.
    pub(super) fn irreplaceable(&self) -> Option<String> {
        if let Some(flag) = self.source.kept_by() {
            return Some(format!(
                "weights that stay quantised cannot be replaced; start the server with {flag} widened"
            ));
        }
        let is_gguf = matches!(self.source, WeightsSource::Gguf { .. });
        (is_gguf && self.config.get("model_type").is_some_and(|kind| kind == "falcon_h1")).then(|| {
            "weights of a Falcon H1 in GGUF are multiplied by its factors, which those of a trainer are not, and cannot be \
             replaced; start the server with the directory of the model"
                .to_owned()
        })
    }

    /// What it takes to load a model and little more: one sequence, one thread, a megabyte of keys and values.
    pub fn least(source: WeightsSource, config: Map<String, Value>) -> Self {
        Self {
            source,
            config,
            dtype: Dtype::Bf16,
            f32_activations: false,
            max_model_len: 1,
            max_num_seqs: 1,
            max_num_batched_tokens: 1,
            max_waiting: 0,
            return_routed_experts: false,
            drafting: Drafting::Off,
            draft_model: None,
            adapters: None,
            image_patches: Some(usize::MAX),
            cache_events: None,
            device: Device::Cpu,
            kv_cache_bytes: 1 << 20,
            threads: Some(1),
            kernels: Some(KernelName::Portable),
            unusable_kernels: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn activations_in_f32_are_refused_where_something_would_round_them() {
        let path = PathBuf::from("model");
        let directory = WeightsSource::Directory(path.clone());
        let coded = WeightsSource::Coded(path.clone());
        let gguf = |keep_blocks| WeightsSource::Gguf { path: path.clone(), keep_blocks };
        let gpu = Device::Cuda {
            number: 0,
            deterministic: true,
            records_steps: false,
            goes_ahead: false,
            memory_share: None,
        };
        let cases = [
            (&directory, Device::Cpu, None, None),
            (&gguf(false), Device::Cpu, None, None),
            (&gguf(true), Device::Cpu, None, None),
            (&coded, Device::Cpu, Some("--dtype float32"), None),
            (&coded, gpu, Some("--dtype float32"), None),
            (&directory, gpu, Some("is for the CPU"), None),
        ];
        for (source, device, in_bf16, in_f32) in cases {
            for (dtype, expected) in [(Dtype::Bf16, in_bf16), (Dtype::F32, in_f32)] {
                let plain = NativeSettings { dtype, device, ..NativeSettings::new(source.clone(), Map::new()) };
                assert_eq!(plain.rounds_activations(), None, "it was not asked for");
                let found = NativeSettings { f32_activations: true, ..plain }.rounds_activations();
                assert!(
                    found.is_some() == expected.is_some() && found.unwrap_or("").contains(expected.unwrap_or("")),
                    "{source:?} {device:?} {dtype:?}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn weights_in_blocks_and_those_that_hold_factors_are_not_replaced() {
        let reason = |keep_blocks: Option<bool>, model_type: &str| {
            let path = PathBuf::from("model");
            let source = match keep_blocks {
                Some(keep_blocks) => WeightsSource::Gguf { path, keep_blocks },
                None => WeightsSource::Directory(path),
            };
            let config = json!({"model_type": model_type}).as_object().cloned().unwrap();
            NativeSettings::new(source, config).irreplaceable()
        };
        assert!(reason(Some(true), "llama").unwrap().contains("--gguf-weights widened"));
        assert!(reason(Some(false), "falcon_h1").unwrap().contains("the directory of the model"));
        assert_eq!(reason(Some(false), "llama"), None);
        assert_eq!(reason(None, "falcon_h1"), None);
    }
}
