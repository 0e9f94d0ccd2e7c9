//! What is decided before any weight is read: whether the settings fit the model, what computes, and how much of the past
//! there is room for.

use std::{num::NonZero, path::Path, thread};

use serde_json::{Map, Value};

use super::{
    Device, DraftModelSettings, Dtype, LoadError, ModelParts, NativeSettings, WeightsSource,
    backend::{BLOCK_TOKENS, Backend},
    cpu::{CpuBackend, Matrix, Pool, Precision},
    cuda::{DeviceBackend, Gpu},
    drafts::{Drafting, ModelDrafts, Speculation},
    model::{ConfigError, Model, ModelShape, Room, check_weights},
    processor,
    room::{DraftBounds, memory_needs},
    weights::{self, GgufWeights, Rounded, Weights, WeightsError},
};
use crate::gguf::GgufFile;

/// What would compute a model, and what of the past it could keep.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What computes, such as `cpu (avx2, 4 threads)`.
    pub device: String,
    /// Tokens whose keys and values there is room for; `None` on a GPU where its memory decides once the weights are there.
    pub cached_tokens: Option<usize>,
    /// Bytes of a recurrent state, of which a sequence has one; 0 in a model without them.
    pub state_bytes: usize,
    /// Tokens of which a draft model can keep keys and values, if there is one.
    pub draft_tokens: Option<usize>,
}

/// Decides what [`NativeEngine::load`](super::NativeEngine::load) decides before it reads weights, and fails as it would.
/// Of the weights, only what their files say of them is read, and nothing if they are not `there` yet.
pub fn plan(settings: &NativeSettings, there: bool) -> Result<Plan, LoadError> {
    let shape = checked_shape(settings)?;
    let draft = draft_shape(settings)?;
    if there {
        check_weights(&shape, &*open(&settings.source, &settings.config)?)?;
        if let Some((settings, shape)) = settings.draft_model.as_ref().zip(draft.as_ref()) {
            let opened = open(&settings.source, &settings.config);
            let checked = opened.and_then(|weights| Ok(check_weights(shape, &*weights)?));
            checked.map_err(|error| unusable(settings, &error.to_string()))?;
        }
    }
    let pool = pool(settings)?;
    match settings.device {
        Device::Cpu => {
            let (device, backend) = on_processor(settings, pool)?;
            let state_bytes = memory_needs(settings, &backend, &shape).slot_bytes;
            let (room, draft) = rooms(settings, &backend, &shape, draft.as_ref())?;
            let cached_tokens = Some(room.blocks.saturating_mul(BLOCK_TOKENS));
            let draft_tokens = draft.map(|draft| draft.bounds.blocks.saturating_mul(BLOCK_TOKENS));
            Ok(Plan { device, cached_tokens, state_bytes, draft_tokens })
        }
        Device::Cuda { number, .. } => {
            processor::choose(settings, pool)?;
            let device = Gpu::open(number)?.name();
            Ok(Plan { device, cached_tokens: None, state_bytes: 0, draft_tokens: None })
        }
    }
}

/// What is left of the settings once they are checked.
pub(super) struct Checked {
    pub(super) shape: ModelShape,
    pub(super) weights: Box<dyn Weights>,
    pub(super) pool: Pool,
    /// The arithmetic of the draft model, where there is one.
    pub(super) draft: Option<ModelShape>,
}

/// Refuses what the engine does not do, and opens the files.
pub(super) fn checked(settings: &NativeSettings) -> Result<Checked, LoadError> {
    let (shape, draft) = (checked_shape(settings)?, draft_shape(settings)?);
    let weights = open(&settings.source, &settings.config)?;
    Ok(Checked { shape, weights, pool: pool(settings)?, draft })
}

fn pool(settings: &NativeSettings) -> Result<Pool, LoadError> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    Pool::new(settings.threads.unwrap_or(cores).max(1)).map_err(LoadError::Thread)
}

/// What config.json says of these parts of a model.
pub(super) fn shape(config: &Map<String, Value>, parts: ModelParts) -> Result<ModelShape, ConfigError> {
    match parts {
        ModelParts::All => ModelShape::read(config),
        ModelParts::Text => ModelShape::read_text(config),
    }
}

fn checked_shape(settings: &NativeSettings) -> Result<ModelShape, LoadError> {
    let shape = shape(&settings.config, settings.parts())?;
    shape.check_length(settings.max_model_len)?;
    if let Some(reason) = settings.rounds_activations() {
        return Err(LoadError::Unsupported(reason.to_owned()));
    }
    if settings.return_routed_experts && shape.routes().is_none() {
        return Err(LoadError::Unsupported(
            "--enable-return-routed-experts is for models with mixtures of experts, and this one has none".to_owned(),
        ));
    }
    speculation(settings, &shape)?;
    if settings.cache_events.is_some() && shape.layers.iter().any(|layer| layer.recurrent.is_some()) {
        return Err(LoadError::Unsupported(
            "--kv-events-config is not for models with recurrent states: their blocks of keys and values are of use only as far as a \
             copy of the state is kept, of which vLLM's events say nothing"
                .to_owned(),
        ));
    }
    Ok(shape)
}

/// What computes on a GPU.
pub(super) fn on_gpu(settings: &NativeSettings, gpu: &Gpu, pool: Pool) -> Result<DeviceBackend, LoadError> {
    let Device::Cuda { deterministic, records_steps, goes_ahead, .. } = settings.device else {
        unreachable!("there is a GPU")
    };
    if let WeightsSource::Gguf { keep_blocks: true, .. } = settings.source {
        return Err(LoadError::Unsupported(
            "weights stay in the blocks of a GGUF file on the CPU only; --gguf-weights widened computes with them in \
             bfloat16 on a GPU"
                .to_owned(),
        ));
    }
    let backend = gpu.backend(settings.dtype, processor::choose(settings, pool)?);
    let backend = if deterministic { backend.deterministic() } else { backend };
    let is_coded = matches!(settings.source, WeightsSource::Coded(_));
    let backend = if is_coded { backend.keeping_codes() } else { backend };
    let backend = if goes_ahead { backend.going_ahead() } else { backend };
    Ok(if records_steps { backend.recording() } else { backend })
}

/// Says which flags for a GPU have no effect on a model.
pub(super) fn warn_of_idle_flags<B: Backend>(settings: &NativeSettings, model: &Model<B>) {
    let Device::Cuda { records_steps, goes_ahead, .. } = settings.device else { return };
    if records_steps && !model.follows_from_shape() {
        tracing::warn!(
            "--cuda-graphs has no effect: a part of this model's layers is computed in ways that are not recorded"
        );
    }
    if !goes_ahead {
        return;
    }
    let reason = if !model.goes_ahead() {
        "a part of this model's layers waits for the host, or reads the ids of tokens"
    } else if settings.return_routed_experts {
        "--enable-return-routed-experts has the host read the routes of each step"
    } else if matches!(speculation(settings, model.shape()), Ok(Some(_))) {
        "sequences have drafts; --speculative-config null turns them off"
    } else {
        return;
    };
    tracing::warn!("--async-scheduling has no effect: {reason}");
}

/// This machine's processor, in words and as it computes.
pub(super) fn on_processor(settings: &NativeSettings, pool: Pool) -> Result<(String, CpuBackend), LoadError> {
    let processor = processor::choose(settings, pool)?;
    let precision = precision(settings.dtype);
    let device = format!("cpu ({}, {} threads)", processor.set, processor.pool.threads());
    let backend = CpuBackend::new(processor, precision);
    let backend = if settings.f32_activations { backend.with_f32_activations() } else { backend };
    let backend = if settings.source.kept_by().is_some() { backend.keeping_quantized() } else { backend };
    Ok((device, backend))
}

fn precision(dtype: Dtype) -> Precision {
    match dtype {
        Dtype::Bf16 => Precision::Bf16,
        Dtype::F32 => Precision::F32,
    }
}

/// The arithmetic of the draft model, where there is one; refuses what cannot draft.
fn draft_shape(settings: &NativeSettings) -> Result<Option<ModelShape>, LoadError> {
    let Some(draft) = &settings.draft_model else {
        return match settings.drafting {
            Drafting::Required(Speculation::Model(_)) | Drafting::WherePossible(Speculation::Model(_)) => {
                Err(LoadError::Unsupported("there is no draft model to draft with".to_owned()))
            }
            _ => Ok(None),
        };
    };
    let refused = |reason: &str| Err(unusable(draft, reason));
    let shape = match ModelShape::read(&draft.config) {
        Ok(shape) => shape,
        Err(error) => return refused(&error.to_string()),
    };
    if shape.images.is_some() {
        return refused("it reads images, and a draft model is to read text alone");
    }
    if shape.layers.iter().any(|layer| layer.recurrent.is_some()) {
        return refused("it has recurrent states, which cannot go back over a draft");
    }
    match shape.check_length(draft.max_model_len) {
        Ok(()) => Ok(Some(shape)),
        Err(error) => refused(&error.to_string()),
    }
}

/// What is said of a draft model that does not serve.
pub(super) fn unusable(draft: &DraftModelSettings, reason: &str) -> LoadError {
    LoadError::Unsupported(format!("the draft model {} cannot be used: {reason}", draft.path().display()))
}

/// What computes a draft model, and what it may take.
pub(super) struct DraftPlan {
    pub(super) backend: CpuBackend,
    pub(super) bounds: DraftBounds,
}

/// Room for the past of sequences: that of the model, and that of a draft model where there is one.
pub(super) fn rooms(
    settings: &NativeSettings,
    backend: &CpuBackend,
    shape: &ModelShape,
    draft: Option<&ModelShape>,
) -> Result<(Room, Option<DraftPlan>), LoadError> {
    let wanted = memory_needs(settings, backend, shape);
    let (Some(draft), Some(of_draft), Some(Speculation::Model(ModelDrafts { cost, .. }))) =
        (draft, &settings.draft_model, speculation(settings, shape)?)
    else {
        return Ok((wanted.divide(settings.kv_cache_bytes)?, None));
    };
    let keeps_quantized = of_draft.source.kept_by().is_some();
    let beside = backend.beside(precision(of_draft.dtype), keeps_quantized).map_err(LoadError::Thread)?;
    let longest = of_draft.max_model_len.min(settings.max_model_len);
    let block_bytes = Model::block_bytes(&beside, draft);
    let (room, blocks) = wanted.divide_with_draft(settings.kv_cache_bytes, block_bytes, longest)?;
    let bounds = DraftBounds { blocks, step_tokens: settings.max_num_batched_tokens, cost };
    Ok((room, Some(DraftPlan { backend: beside, bounds })))
}

/// Opens the files of a model's weights.
pub(super) fn open(source: &WeightsSource, config: &Map<String, Value>) -> Result<Box<dyn Weights>, LoadError> {
    match source {
        WeightsSource::Directory(path) => Ok(weights::open_directory(path, config)?),
        WeightsSource::Coded(path) => Ok(weights::open_coded(path, config)?),
        WeightsSource::Gguf { path, keep_blocks } => Ok(Box::new(open_gguf(path, *keep_blocks)?)),
    }
}

fn open_gguf(path: &Path, keep_blocks: bool) -> Result<Rounded<GgufWeights>, LoadError> {
    let file = GgufFile::open(path).map_err(WeightsError::from)?;
    let weights = GgufWeights::open(&file)?;
    Ok(Rounded(if keep_blocks { weights.giving_codes() } else { weights }))
}

/// What the weights of a GGUF file take in memory where blocks and codes are kept on the CPU, and all else is widened.
///
/// # Errors
/// If the file cannot be read, or has other tensors than its model.
pub fn kept_gguf_bytes(path: &Path, dtype: Dtype) -> Result<u64, LoadError> {
    let (weights, each) = (open_gguf(path, true)?, if dtype == Dtype::Bf16 { 2 } else { 4 });
    // Tables of several matrices are widened, unless they are codes.
    let bytes = |(name, shape): (&str, &[usize])| -> Result<u64, LoadError> {
        let rows = weights.rows(name)?;
        let is_widened = shape.len() > 2 && rows.coded().is_none();
        let widened = || shape.iter().map(|len| *len as u64).product::<u64>() * each;
        Ok(if is_widened { widened() } else { Matrix::kept_bytes(&*rows, each) })
    };
    weights.tensors().into_iter().map(bytes).sum()
}

/// What drafts, if anything does. Refuses what is required where drafts would change bits, or cannot be taken back.
pub(super) fn speculation(settings: &NativeSettings, shape: &ModelShape) -> Result<Option<Speculation>, LoadError> {
    let is_recurrent = shape.layers.iter().any(|layer| layer.recurrent.is_some());
    let impossible = match (settings.device, settings.drafting) {
        (Device::Cuda { deterministic: false, .. }, _) => Some(
            "--speculative-config needs --deterministic on a GPU: without it, the bits of a token may depend on the drafts beside it",
        ),
        (
            Device::Cuda { .. },
            Drafting::WherePossible(Speculation::Model(_)) | Drafting::Required(Speculation::Model(_)),
        ) => Some("a draft model computes on the CPU, and this model on a GPU"),
        _ if is_recurrent => {
            Some("--speculative-config is not for models with recurrent states, which cannot go back over a draft")
        }
        _ => None,
    };
    match (settings.drafting, impossible) {
        (Drafting::Off, _) | (Drafting::WherePossible(_), Some(_)) => Ok(None),
        (Drafting::Required(_), Some(reason)) => Err(LoadError::Unsupported(reason.to_owned())),
        (Drafting::WherePossible(speculation) | Drafting::Required(speculation), None) => Ok(Some(speculation)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_gguf_file_count_as_they_are_held() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/gguf_mxfp4/model.gguf");
        let weights = open_gguf(&path, true).unwrap();
        let [mut coded, mut others] = [0, 0];
        for (name, shape) in weights.tensors() {
            let numbers = shape.iter().map(|len| *len as u64).product::<u64>();
            *(if weights.rows(name).unwrap().coded().is_some() { &mut coded } else { &mut others }) += numbers;
        }
        // Experts are 3 matrices of 2 times 64 by 32. Half a byte for each number, and two bytes for each 32.
        assert_eq!(coded, 3 * 2 * 64 * 32);
        for (dtype, each) in [(Dtype::Bf16, 2), (Dtype::F32, 4)] {
            assert_eq!(kept_gguf_bytes(&path, dtype).unwrap(), coded * 9 / 16 + others * each);
        }
    }
}
