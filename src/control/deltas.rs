//! Weights on disk: a checkpoint, or what changed since the weights that are there.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Control, ControlError, pulled,
    reading::{PART_BYTES, Reading, blocking, on_all_cores, parts, read},
    state::State,
};
use crate::{
    engine::{EngineControl, NewWeights, TensorChanges, UpdateError, WeightDtype, WeightTensor, Written},
    weights::delta::{Chain, Delta, DeltaError, Start, Version},
};

/// Where an update gets its weights from.
#[derive(Debug)]
pub(super) enum Source {
    /// Weights that are in memory.
    Given(NewWeights),
    /// A file or directory of safetensors.
    Checkpoint(PathBuf),
    /// Deltas, which lead to a version.
    Deltas(Arc<Chain>, Held, u64),
}

/// What is known of the weights that are there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// The number that a trainer gives to them.
    trained: Option<u64>,
    /// Whether they are those that the server was started with.
    as_loaded: bool,
}

/// The types in which a checkpoint may hold a tensor of which a delta does not say it.
const TYPES: [WeightDtype; 3] = [WeightDtype::Bf16, WeightDtype::F32, WeightDtype::F16];

fn refused(error: &DeltaError) -> UpdateError {
    UpdateError::Refused(error.to_string())
}

impl Control {
    /// Looks what a path is: a checkpoint, a delta that a trainer has published, or a directory that it had brought up to
    /// a version.
    pub(super) async fn source(&self, state: &State, path: PathBuf) -> Result<Source, UpdateError> {
        let (named, held) = (path.clone(), self.held_weights(state));
        let place = blocking(move || Ok(pulled::place(&named))).await?;
        let pulled = state.pulled.get(&place);
        blocking(move || match pulled.filter(|pulled| pulled.is_at(&place)) {
            Some(pulled) => chain(&pulled.published, held, pulled.version),
            None => match delta_version(&path).map_err(|error| refused(&error))? {
                Some((directory, to)) => chain(&directory, held, to),
                None => Ok(Source::Checkpoint(path)),
            },
        })
        .await
    }

    /// What is known of the weights that are there, also after parts of an update.
    pub(super) fn held_weights(&self, state: &State) -> Held {
        match state.update.as_ref().filter(|phase| phase.written.tensors > 0) {
            Some(phase) => Held { trained: phase.trained, as_loaded: false },
            None => Held { trained: state.trained, as_loaded: self.weights().number == state.loaded },
        }
    }

    /// Brings the directory `local` up to a version whose deltas are in `published`: it is enough to know that all of
    /// them are there and whole. Updates from `local` then apply them to the weights that are there, until somebody writes
    /// to `local`.
    ///
    /// # Errors
    ///
    /// If a delta is missing or damaged.
    pub async fn pull(&self, local: PathBuf, published: PathBuf, version: u64) -> Result<(), ControlError> {
        let mut state = self.state.lock().await;
        self.check_versions(&state, published.clone(), version).await?;
        let (place, pulled) = blocking(move || {
            let place = pulled::place(&local);
            let pulled = pulled::PulledVersion::new(&place, published, version);
            Ok((place, pulled))
        })
        .await?;
        state.pulled.insert(place, pulled);
        Ok(())
    }

    /// Looks whether all deltas that lead to a version are there and whole.
    ///
    /// # Errors
    ///
    /// If a delta is missing or damaged.
    pub async fn check_version(&self, published: PathBuf, version: u64) -> Result<(), ControlError> {
        let state = self.state.lock().await;
        self.check_versions(&state, published, version).await
    }

    async fn check_versions(&self, state: &State, published: PathBuf, version: u64) -> Result<(), ControlError> {
        let source = versions(self.held_weights(state), published, version).await?;
        match (source.start(), self.engine.control()) {
            (Some(start), Some(engine)) => Ok(check_start(engine, start).await?),
            _ => Ok(()),
        }
    }
}

/// Refuses a checkpoint from which deltas go on, or that is the last of the versions, if it lacks tensors: they would stay
/// as they are, and the deltas before it are not applied to them. Only one that a caller names itself may be partial.
async fn check_start(engine: &dyn EngineControl, checkpoint: &Path) -> Result<(), UpdateError> {
    let said =
        |reason: String| format!("the checkpoint {} cannot stand for its version: {reason}", checkpoint.display());
    engine.check_whole(checkpoint.to_owned()).await.map_err(|error| match error {
        UpdateError::Refused(reason) => UpdateError::Refused(said(reason)),
        other => other,
    })
}

fn unknown(name: &str) -> UpdateError {
    UpdateError::Refused(format!("the model does not have `{name}`, which a delta changes"))
}

/// Finds the deltas that lead from the weights that are there to a version.
pub(super) async fn versions(held: Held, published: PathBuf, version: u64) -> Result<Source, UpdateError> {
    blocking(move || chain(&published, held, version)).await
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

fn chain(directory: &Path, held: Held, to: u64) -> Result<Source, UpdateError> {
    let Some(from) = held.trained else {
        return Err(UpdateError::Refused(format!(
            "{} holds what changed since other weights, and it is not known which of them are there: replace all weights \
             once, with a version that is a number",
            directory.display()
        )));
    };
    let chain = Chain::find(directory, from, to).map_err(|error| refused(&error))?;
    Ok(Source::Deltas(Arc::new(chain), held, to))
}

impl Source {
    /// The number that a trainer gives to the weights, where it says one.
    pub(super) fn version(&self) -> Option<u64> {
        match self {
            Self::Given(_) => None,
            Self::Checkpoint(path) => {
                let name = path.file_name()?.to_str()?;
                name.strip_prefix("weight_v").or_else(|| name.strip_prefix("step_"))?.parse().ok()
            }
            Self::Deltas(_, _, version) => Some(*version),
        }
    }

    /// The checkpoint from which deltas go on, where one was published in between.
    fn start(&self) -> Option<&Path> {
        match self {
            Self::Deltas(chain, ..) => match chain.start() {
                Start::Checkpoint(path) => Some(path),
                Start::Current => None,
            },
            Self::Given(_) | Self::Checkpoint(_) => None,
        }
    }

    /// Whether the weights that are there were known to be of a version from which this one leads on, so that what it brings
    /// has its number whatever came before.
    pub(super) fn builds_on_what_is_there(&self) -> bool {
        matches!(self, Self::Deltas(..))
    }

    /// Whether nothing is written: the weights that are there are said to be that version, and
    /// [`write`](Self::write) looks whether they are.
    pub(super) fn proves(&self) -> bool {
        matches!(self, Self::Deltas(chain, ..) if chain.is_empty())
    }

    /// Writes the weights, in an update that was begun.
    pub(super) async fn write(self, engine: &dyn EngineControl) -> Result<Written, UpdateError> {
        let (chain, held, version) = match self {
            Self::Given(weights) => return engine.write_weights(weights).await,
            Self::Checkpoint(path) => return engine.write_weights(NewWeights::Path(path)).await,
            Self::Deltas(chain, held, version) => (chain, held, version),
        };
        let lacking = engine.lacking();
        if lacking > 0 && matches!(chain.start(), Start::Current) {
            return Err(UpdateError::Refused(format!(
                "{lacking} tensors of the weights are lost, and a delta is for weights that are there: replace all of them first"
            )));
        }
        if chain.is_empty() {
            return prove(engine, &chain, held, version).await.map(|()| Written::default());
        }
        let mut all = match chain.start() {
            Start::Current => Written::default(),
            Start::Checkpoint(path) => {
                check_start(engine, path).await?;
                engine.write_weights(NewWeights::Path(path.clone())).await?
            }
        };
        let (mut changes, mut bytes) = (Changes::default(), 0);
        for names in parts(&engine.tensors(), chain.changed()).map_err(|name| unknown(&name))? {
            let held = read(engine, names, Reading::Amid).await?;
            let applied = Arc::clone(&chain);
            let part = blocking(move || on_all_cores(held, |tensor| changed(&applied, &tensor))).await?;
            bytes += part.iter().map(Change::bytes).sum::<usize>();
            changes.add(part);
            if bytes >= PART_BYTES {
                std::mem::take(&mut changes).write(engine, &mut all).await?;
                bytes = 0;
            }
        }
        changes.write(engine, &mut all).await?;
        if all.tensors == 0 {
            let reason =
                format!("what leads to version {version} changes no tensor, so that nothing shows what was applied");
            return Err(UpdateError::Refused(reason));
        }
        Ok(all)
    }
}

/// Looks whether the weights that are there are those of a version, which they are said to be.
async fn prove(
    engine: &dyn EngineControl,
    chain: &Arc<Chain>,
    Held { as_loaded, .. }: Held,
    version: u64,
) -> Result<(), UpdateError> {
    let not_proven = |reason: &str| {
        let remedy = "replace all weights once, with a version that is a number";
        UpdateError::Refused(format!("the weights are called version {version} already, and {reason}: {remedy}"))
    };
    let Some(last) = chain.last() else {
        let reason = "nothing says whether they are what the server was started with";
        return if as_loaded { Ok(()) } else { Err(not_proven(reason)) };
    };
    if last.tensors().len() == 0 {
        return Err(not_proven("the delta of that version has no tensor to compare"));
    }
    for names in parts(&engine.tensors(), last.tensors().map(|tensor| tensor.name)).map_err(|name| unknown(&name))? {
        let tensors = read(engine, names, Reading::Amid).await?;
        let compared = Arc::clone(chain);
        let differ = blocking(move || on_all_cores(tensors, |tensor| Ok(other_than(&compared, &tensor)))).await?;
        if let Some(name) = differ.into_iter().flatten().next() {
            return Err(not_proven(&format!("tensor {name} is not what the delta of that version makes of it")));
        }
    }
    Ok(())
}

/// The name of a tensor that is not what the last delta of a chain makes of it.
fn other_than(chain: &Chain, held: &WeightTensor) -> Option<String> {
    let is_made = |dtype| held.in_type(dtype).is_some_and(|tensor| chain.last().is_some_and(|last| last.made(&tensor)));
    let made = TYPES.into_iter().any(is_made);
    (!made).then(|| held.name.clone())
}

/// What a tensor becomes.
enum Change {
    /// Some of its numbers change.
    Numbers(TensorChanges),
    /// So many change, or in such a type, that it is written as a whole.
    Whole(WeightTensor),
}

impl Change {
    fn bytes(&self) -> usize {
        match self {
            Self::Numbers(changes) => changes.bytes(),
            Self::Whole(tensor) => tensor.bytes.len(),
        }
    }
}

/// Changes whose checksums were compared, and that are not written yet.
#[derive(Default)]
struct Changes {
    numbers: Vec<TensorChanges>,
    wholes: Vec<WeightTensor>,
}

impl Changes {
    fn add(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Numbers(changes) => self.numbers.push(changes),
                Change::Whole(tensor) => self.wholes.push(tensor),
            }
        }
    }

    async fn write(self, engine: &dyn EngineControl, all: &mut Written) -> Result<(), UpdateError> {
        let mut parts = Vec::new();
        if !self.numbers.is_empty() {
            parts.push(NewWeights::Changes(self.numbers));
        }
        if !self.wholes.is_empty() {
            parts.push(NewWeights::Tensors(self.wholes));
        }
        for part in parts {
            *all += engine.write_weights(part).await?;
        }
        Ok(())
    }
}

/// What becomes of a tensor after all deltas. They change the bytes of the checkpoint, whose type the engine may hold in
/// another one: the checksum says whether a type was the right one.
fn changed(chain: &Chain, held: &WeightTensor) -> Result<Change, UpdateError> {
    let said = chain.deltas().iter().flat_map(Delta::tensors).find(|tensor| tensor.name == held.name);
    let said = said.and_then(|tensor| tensor.layout).map(|layout| layout.dtype);
    let types = match said {
        Some(dtype) => vec![dtype],
        None => TYPES.to_vec(),
    };
    let mut first = None;
    for dtype in types {
        let Some(tensor) = held.in_type(dtype) else { continue };
        match chain.apply_to(tensor) {
            Ok(tensor) => return Ok(since(held, tensor)),
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    Err(first.map_or_else(
        || UpdateError::Refused(format!("the server does not hold tensor {} to the bit of its checkpoint", held.name)),
        |error| refused(&error),
    ))
}

fn since(held: &WeightTensor, new: WeightTensor) -> Change {
    let same_type = new.in_type(held.dtype);
    match same_type.and_then(|new| new.changes_since(&held.bytes)) {
        Some(changes) => Change::Numbers(changes),
        None => Change::Whole(new),
    }
}
