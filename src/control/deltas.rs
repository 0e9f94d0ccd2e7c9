//! Weights on disk: a checkpoint, or what changed since the weights that are there.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use half::{bf16, f16};
use parking_lot::Mutex;

use super::{Control, ControlError, State};
use crate::{
    engine::{EngineControl, NewWeights, TensorInfo, UpdateError, Visit, WeightDtype, WeightTensor, Written},
    weights::delta::{Chain, Delta, DeltaError, Start, Version},
};

/// Tensors of about so many bytes are read, changed and written at a time.
const PART_BYTES: usize = 256 << 20;

/// Where an update gets its weights from.
#[derive(Debug)]
pub(super) enum Source {
    /// Tensors that are in memory.
    Tensors(Vec<WeightTensor>),
    /// A file or directory of safetensors.
    Checkpoint(PathBuf),
    /// Deltas, which lead to a version.
    Deltas(Arc<Chain>, u64),
}

fn refused(error: &DeltaError) -> UpdateError {
    UpdateError::Refused(error.to_string())
}

/// Does what reads files away from the threads that serve connections.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, UpdateError> + Send + 'static,
) -> Result<T, UpdateError> {
    let lost = |error| UpdateError::Refused(format!("the thread that reads the weights is gone: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(lost)?
}

impl Control {
    /// Looks what a path is: a checkpoint, a delta that a trainer has published, or a directory that it had brought up to
    /// a version.
    pub(super) async fn source(&self, state: &State, path: PathBuf) -> Result<Source, UpdateError> {
        let (from, pulled) = (state.trained, state.pulled.get(&path).cloned());
        blocking(move || match pulled {
            Some((directory, to)) => chain(&directory, from, to),
            None => match delta_version(&path).map_err(|error| refused(&error))? {
                Some((directory, to)) => chain(&directory, from, to),
                None => Ok(Source::Checkpoint(path)),
            },
        })
        .await
    }

    /// Brings the directory `local` up to a version whose deltas are in `published`: it is enough to know that all of
    /// them are there and whole. The next update from `local` then applies them to the weights that are there; those
    /// after it take `local` for what is in it.
    ///
    /// # Errors
    ///
    /// If a delta is missing or damaged.
    pub async fn pull(&self, local: PathBuf, published: PathBuf, version: u64) -> Result<(), ControlError> {
        let mut state = self.state.lock().await;
        versions(&state, published.clone(), version).await?;
        state.pulled.insert(local, (published, version));
        Ok(())
    }

    /// Looks whether all deltas that lead to a version are there and whole.
    ///
    /// # Errors
    ///
    /// If a delta is missing or damaged.
    pub async fn check_version(&self, published: PathBuf, version: u64) -> Result<(), ControlError> {
        let state = self.state.lock().await;
        versions(&state, published, version).await?;
        Ok(())
    }
}

/// Finds the deltas that lead from the weights that are there to a version.
pub(super) async fn versions(state: &State, published: PathBuf, version: u64) -> Result<Source, UpdateError> {
    let from = state.trained;
    blocking(move || chain(&published, from, version)).await
}

/// The directory and version of a path that is a delta.
fn delta_version(path: &Path) -> Result<Option<(PathBuf, u64)>, DeltaError> {
    let there = |name: &str| path.join(name).exists();
    if !there("manifest.json") && !there("model.safetensors.index.json") {
        return Ok(None);
    }
    match Version::open(path)? {
        Version::Delta(delta) => {
            let parent = path.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
            Ok(Some((parent, delta.version())))
        }
        Version::Checkpoint => Ok(None),
    }
}

fn chain(directory: &Path, from: Option<u64>, to: u64) -> Result<Source, UpdateError> {
    let Some(from) = from else {
        return Err(UpdateError::Refused(format!(
            "{} holds what changed since other weights, and it is not known which of them are there: replace all weights \
             once, with a version that is a number",
            directory.display()
        )));
    };
    let chain = Chain::find(directory, from, to).map_err(|error| refused(&error))?;
    Ok(Source::Deltas(Arc::new(chain), to))
}

impl Source {
    /// The number that a trainer gives to the weights, where it says one.
    pub(super) fn version(&self) -> Option<u64> {
        match self {
            Self::Tensors(_) => None,
            Self::Checkpoint(path) => {
                let name = path.file_name()?.to_str()?;
                name.strip_prefix("weight_v").or_else(|| name.strip_prefix("step_"))?.parse().ok()
            }
            Self::Deltas(_, version) => Some(*version),
        }
    }

    /// Writes the weights, in an update that was begun.
    pub(super) async fn write(self, engine: &dyn EngineControl) -> Result<Written, UpdateError> {
        let chain = match self {
            Self::Tensors(tensors) => return engine.write_weights(NewWeights::Tensors(tensors)).await,
            Self::Checkpoint(path) => return engine.write_weights(NewWeights::Path(path)).await,
            Self::Deltas(chain, _) => chain,
        };
        let mut all = match chain.start() {
            Start::Current => Written::default(),
            Start::Checkpoint(path) => engine.write_weights(NewWeights::Path(path.clone())).await?,
        };
        for names in parts(&engine.tensors(), &chain)? {
            let held = read(engine, names).await?;
            let chain = Arc::clone(&chain);
            let changed = blocking(move || held.into_iter().map(|tensor| changed(&chain, &tensor)).collect()).await?;
            let written = engine.write_weights(NewWeights::Tensors(changed)).await?;
            all.tensors += written.tensors;
            all.bytes += written.bytes;
        }
        Ok(all)
    }
}

/// The tensors that a chain changes, in parts that fit into memory.
fn parts(tensors: &[TensorInfo], chain: &Chain) -> Result<Vec<Vec<String>>, UpdateError> {
    let known: BTreeMap<&str, &TensorInfo> = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    let (mut parts, mut bytes) = (Vec::new(), PART_BYTES);
    for name in chain.changed() {
        let Some(tensor) = known.get(name) else {
            return Err(UpdateError::Refused(format!("the model does not have `{name}`, which a delta changes")));
        };
        if bytes >= PART_BYTES {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += tensor.shape.iter().product::<usize>() * tensor.dtype.size();
        parts.last_mut().expect("a part was begun").push(name.to_owned());
    }
    Ok(parts)
}

/// The tensors of these names, as the engine holds them.
async fn read(engine: &dyn EngineControl, names: Vec<String>) -> Result<Vec<WeightTensor>, UpdateError> {
    let read = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&read);
    let visit: Visit = Box::new(move |tensor: &TensorInfo, bytes: &[u8]| {
        let TensorInfo { name, dtype, shape } = tensor.clone();
        kept.lock().push(WeightTensor { name, dtype, shape, bytes: bytes.to_vec().into() });
    });
    engine.read_weights(names, visit).await?;
    let read = std::mem::take(&mut *read.lock());
    Ok(read)
}

/// A tensor after all deltas. They change the bytes of the checkpoint, whose type the engine may hold in another one: the
/// checksum says whether a type was the right one.
fn changed(chain: &Chain, held: &WeightTensor) -> Result<WeightTensor, UpdateError> {
    let said = chain.deltas().iter().flat_map(Delta::tensors).find(|tensor| tensor.name == held.name);
    let said = said.and_then(|tensor| tensor.layout).map(|layout| layout.dtype);
    let types = match said {
        Some(dtype) => vec![dtype],
        None => vec![WeightDtype::Bf16, held.dtype, WeightDtype::F16, WeightDtype::F32],
    };
    let mut first = None;
    for dtype in types {
        let Some(bytes) = in_type(held, dtype) else { continue };
        let tensor = WeightTensor { dtype, bytes: bytes.into(), ..held.clone() };
        match chain.apply_to(tensor) {
            Ok(tensor) => return Ok(tensor),
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    Err(first.map_or_else(
        || UpdateError::Refused(format!("the server does not hold tensor {} to the bit of its checkpoint", held.name)),
        |error| refused(&error),
    ))
}

/// The same numbers in another type; `None` where that loses some.
fn in_type(tensor: &WeightTensor, dtype: WeightDtype) -> Option<Vec<u8>> {
    let bytes = &tensor.bytes;
    let halves = || bytes.as_chunks::<2>().0.iter();
    let wholes = || bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four));
    match (tensor.dtype, dtype) {
        (from, to) if from == to => Some(bytes.to_vec()),
        (WeightDtype::Bf16, WeightDtype::F32) => {
            Some(halves().flat_map(|two| bf16::from_le_bytes(*two).to_f32().to_le_bytes()).collect())
        }
        (WeightDtype::F32, WeightDtype::Bf16) => {
            let narrow =
                |number| Some(bf16::from_f32(number)).filter(|half| half.to_f32().to_bits() == number.to_bits());
            let halves: Option<Vec<bf16>> = wholes().map(narrow).collect();
            Some(halves?.into_iter().flat_map(bf16::to_le_bytes).collect())
        }
        (WeightDtype::F32, WeightDtype::F16) => {
            let narrow =
                |number| Some(f16::from_f32(number)).filter(|half| half.to_f32().to_bits() == number.to_bits());
            let halves: Option<Vec<f16>> = wholes().map(narrow).collect();
            Some(halves?.into_iter().flat_map(f16::to_le_bytes).collect())
        }
        _ => None,
    }
}
