//! From weights to a running engine, on a thread of its own: mistral.rs blocks, and panics on what it does not expect.

use std::{
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

use candle_core::Device;
use mistralrs_core::{
    DefaultSchedulerMethod, DeviceMapSetting, MistralRs, MistralRsBuilder, ModelDType, ModelPaths, Pipeline, Request,
    SchedulerConfig,
};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{
    alphabet::Alphabet,
    error::LoadError,
    panics::panic_text,
    spec::{Dtype, LoadSpec},
    weights::Weights,
};

/// mistral.rs grows its key-value cache by this many positions at a time, and only up to the model's own limit.
const CACHE_STEP: usize = 512;
/// Starting the engine races with the engine's own thread for a lock and panics when it loses.
const START_ATTEMPTS: usize = 3;

/// A running engine.
pub(super) struct Loaded {
    /// Owns the engine's thread: dropping it ends the thread.
    pub(super) engine: Arc<MistralRs>,
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) device: String,
    pub(super) dtype: String,
}

/// Loads `spec` and starts the engine.
pub(super) async fn load(spec: LoadSpec, alphabet: Alphabet) -> Result<Loaded, LoadError> {
    let (done, loaded) = oneshot::channel();
    let work = move || {
        let outcome = catch_unwind(|| load_blocking(&spec, alphabet));
        // Nobody waits for an engine any more if the receiver is gone.
        let _ = done.send(outcome.unwrap_or_else(|panic| Err(LoadError::Engine(panic_text(&*panic)))));
    };
    thread::Builder::new().name("load-model".to_owned()).spawn(work).map_err(LoadError::Thread)?;
    loaded.await.unwrap_or_else(|_| Err(LoadError::Engine("the loading thread vanished".to_owned())))
}

fn load_blocking(spec: &LoadSpec, alphabet: Alphabet) -> Result<Loaded, LoadError> {
    let (device, device_name) = device(spec.gpu)?;
    let dtype = arithmetic(spec.dtype, &device)?;
    let weights = Weights::find(&spec.source, alphabet)?;
    let paths: Box<dyn ModelPaths> = Box::new(weights.paths);
    let pipeline = weights
        .loader
        .load_model_from_path(&paths, &dtype, &device, true, DeviceMapSetting::dummy(), None, None)
        .map_err(|error| LoadError::Engine(format!("{error:#}")))?;
    check(&pipeline, spec, alphabet)?;
    let engine = start(&pipeline)?;
    let requests = engine.get_sender(None).map_err(|error| LoadError::Engine(error.to_string()))?;
    Ok(Loaded {
        engine,
        requests,
        device: device_name,
        dtype: weights.quantisation.unwrap_or_else(|| dtype.to_string()),
    })
}

fn device(gpu: Option<usize>) -> Result<(Device, String), LoadError> {
    let Some(number) = gpu else { return Ok((Device::Cpu, "cpu".to_owned())) };
    let unusable = |error| LoadError::Engine(format!("cuda:{number} cannot be used: {error}"));
    Ok((Device::new_cuda(number).map_err(unusable)?, format!("cuda:{number}")))
}

fn arithmetic(dtype: Dtype, device: &Device) -> Result<ModelDType, LoadError> {
    match dtype {
        Dtype::F32 => Ok(ModelDType::F32),
        Dtype::Auto if device.is_cpu() => Ok(ModelDType::F32),
        // mistral.rs multiplies no bf16 matrices on a CPU, and f16 overflows where the model was trained in bf16.
        Dtype::F16 | Dtype::Bf16 if device.is_cpu() => Err(LoadError::Dtype { dtype }),
        Dtype::F16 => Ok(ModelDType::F16),
        Dtype::Bf16 | Dtype::Auto => Ok(ModelDType::BF16),
    }
}

/// Compares what was loaded with what was meant.
fn check(pipeline: &Mutex<dyn Pipeline + Send + Sync>, spec: &LoadSpec, alphabet: Alphabet) -> Result<(), LoadError> {
    let metadata = pipeline.blocking_lock().get_metadata();
    let longest = longest_sequence(metadata.max_seq_len);
    if spec.max_model_len > longest {
        return Err(LoadError::ContextTooLong { requested: spec.max_model_len, longest });
    }
    if metadata.eos_tok != [alphabet.end()] {
        return Err(LoadError::Engine(format!("the engine's own end tokens are {:?}", metadata.eos_tok)));
    }
    Ok(())
}

/// The longest sequence for which the key-value cache can grow.
fn longest_sequence(max_seq_len: usize) -> usize {
    if max_seq_len < CACHE_STEP { max_seq_len } else { max_seq_len / CACHE_STEP * CACHE_STEP }
}

fn start(pipeline: &Arc<Mutex<dyn Pipeline + Send + Sync>>) -> Result<Arc<MistralRs>, LoadError> {
    // A runtime without worker threads spares the warm-up request; ours follows, and looks at the answer.
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(LoadError::Thread)?;
    let mut reason = String::new();
    for _ in 0..START_ATTEMPTS {
        let method = DefaultSchedulerMethod::Fixed(NonZeroUsize::MIN);
        let scheduler = SchedulerConfig::DefaultScheduler { method };
        // The prefix cache hands out positions that were never computed.
        let engine = MistralRsBuilder::new(pipeline.clone(), scheduler, false, None).with_no_prefix_cache(true);
        match catch_unwind(AssertUnwindSafe(|| runtime.block_on(engine.build()))) {
            Ok(engine) => return Ok(engine),
            Err(panic) => reason = panic_text(&*panic),
        }
    }
    Err(LoadError::Engine(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_computes_in_f32_only() {
        assert_eq!(arithmetic(Dtype::Auto, &Device::Cpu).unwrap(), ModelDType::F32);
        assert_eq!(arithmetic(Dtype::F32, &Device::Cpu).unwrap(), ModelDType::F32);
        let refusal = arithmetic(Dtype::Bf16, &Device::Cpu).unwrap_err().to_string();
        assert_eq!(refusal, "dtype bfloat16 is not supported on a CPU, use float32");
    }

    #[test]
    fn sequences_end_where_the_cache_cannot_grow() {
        assert_eq!([8_192, 8_191, 512, 511, 100].map(longest_sequence), [8_192, 7_680, 512, 511, 100]);
    }
}
