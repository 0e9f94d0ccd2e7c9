//! The real control plane over a tiny model, whose steps the test allows one by one, and what it says of itself.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use bytes::Bytes;
use futures::{
    StreamExt,
    channel::mpsc::{UnboundedSender, unbounded},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use tito::{
    adapters::{AdapterError, AdapterPolicy, Adapters},
    control::{Control, ControlError, ControlPolicy, Update, Updated},
    engine::{
        AdapterLimits, EngineError, NewWeights, UpdateError, WeightDtype, WeightTensor,
        native::{NativeEngine, NativeSettings, StepGate},
    },
    weights::checksum::Checksum,
};

use super::{
    calls::{Call, Label, NUMBERS, Part, Place, Replacing, Tensor},
    loras::load,
    model::{Content, Fault, Outcome, Said, Weights},
};
use crate::it::{
    control::{MODEL, Served, engine_of, serve, settings},
    control_deltas::{publish, write},
};

/// What lies on disk for all control planes: checkpoints and deltas.
pub(super) struct Disk {
    directory: TempDir,
}

pub(super) static DISK: LazyLock<Disk> = LazyLock::new(Disk::new);

pub(super) fn checkpoint() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL)
}

impl Disk {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["step_5", "local"] {
            let copy = directory.path().join(name);
            std::fs::create_dir(&copy).unwrap();
            std::fs::copy(checkpoint().join("model.safetensors"), copy.join("model.safetensors")).unwrap();
        }
        for version in [1, 2] {
            let index = usize::try_from(version).unwrap();
            publish(&directory, version, (NUMBERS[index - 1], Some(NUMBERS[index])));
        }
        let misshapen = [0; 4];
        let header = json!({ Tensor::Norm.name(): { "dtype": "F32", "shape": [1], "data_offsets": [0, 4] } });
        write(&directory.path().join("misshapen.safetensors"), &header, &misshapen);
        Self { directory }
    }

    fn published(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    fn path(&self, place: Place) -> PathBuf {
        let name = match place {
            Place::Checkpoint => return checkpoint(),
            Place::Named => "step_5".to_owned(),
            Place::Local => "local".to_owned(),
            Place::Delta(version) => format!("weight_v{version:06}"),
            Place::Missing => "missing".to_owned(),
            Place::Misshapen => "misshapen.safetensors".to_owned(),
        };
        self.directory.path().join(name)
    }
}

pub(super) fn filled(tensor: Tensor, number: usize) -> WeightTensor {
    let bytes = NUMBERS[number].to_le_bytes().repeat(64).into();
    WeightTensor { name: tensor.name().to_owned(), dtype: WeightDtype::F32, shape: vec![64], bytes }
}

/// A file of safetensors with both tensors, in the pieces in which it comes.
fn pieces(numbers: [usize; 2]) -> Vec<Bytes> {
    let entry = |at: usize| json!({ "dtype": "F32", "shape": [64], "data_offsets": [256 * at, 256 * (at + 1)] });
    let [norm, first] = Tensor::ALL.map(Tensor::name);
    let header = json!({ norm: entry(0), first: entry(1) }).to_string();
    let header = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let data = numbers.map(|number| NUMBERS[number].to_le_bytes().repeat(64).into());
    [header.into()].into_iter().chain(data).collect()
}

/// A body of which only some has come.
pub(super) struct Body {
    sender: Option<UnboundedSender<Result<Bytes, String>>>,
    pieces: std::vec::IntoIter<Bytes>,
    /// Whether all that came was taken.
    is_hungry: Arc<AtomicBool>,
    answer: JoinHandle<Result<Option<Updated>, ControlError>>,
}

impl Body {
    fn begin(control: &Arc<Control>, label: Label, numbers: [usize; 2]) -> Self {
        let (sender, mut come) = unbounded();
        let is_hungry = Arc::new(AtomicBool::new(false));
        let come = {
            let is_hungry = Arc::clone(&is_hungry);
            futures::stream::poll_fn(move |context| {
                let next = come.poll_next_unpin(context);
                if next == Poll::Pending {
                    is_hungry.store(true, Ordering::Relaxed);
                }
                next
            })
        };
        let control = Arc::clone(control);
        let label = label.map(Into::into);
        let answer = tokio::spawn(async move { control.update_from_stream(come, label).await });
        Self { sender: Some(sender), pieces: pieces(numbers).into_iter(), is_hungry, answer }
    }

    /// Sends the next piece, or the end.
    pub(super) fn send_next(&mut self) {
        match self.pieces.next() {
            Some(piece) => self.send(Ok(piece)),
            None => _ = self.sender.take(),
        }
    }

    pub(super) fn send(&mut self, piece: Result<Bytes, String>) {
        self.is_hungry.store(false, Ordering::Relaxed);
        // Whoever has answered does not read it any more.
        if let Some(sender) = &self.sender {
            let _ = sender.unbounded_send(piece);
        }
    }

    /// Waits until it has taken what came, or answered.
    pub(super) async fn taken(&self) {
        while !self.is_hungry.load(Ordering::Relaxed) && !self.answer.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    pub(super) async fn outcome(self) -> Outcome {
        match self.answer.await.unwrap() {
            Ok(None) => Ok(Said::WasPart),
            other => said(other.map(|updated| updated.map_or(Said::Nothing, |updated| updated_says(&updated)))),
        }
    }
}

fn updated_says(updated: &Updated) -> Said {
    let (label, number) = (updated.version.label.to_string(), updated.version.number);
    Said::Updated { label, number, tensors: updated.written.tensors }
}

fn adapters_say(outcome: Result<Said, AdapterError>) -> Outcome {
    outcome.map_err(|error| match error {
        AdapterError::Taken(_) => Fault::Taken,
        AdapterError::Unknown(_) => Fault::Unknown,
        AdapterError::Rank { .. } | AdapterError::NotFound { .. } | AdapterError::Model(_) => Fault::Refused,
        AdapterError::Unsettled(_) | AdapterError::WithoutWeights(_) => Fault::NotNow,
        other => panic!("{other:?}"),
    })
}

fn said(outcome: Result<Said, ControlError>) -> Outcome {
    outcome.map_err(|error| match error {
        ControlError::State(_) => Fault::State,
        ControlError::EndsUpdate(_) => Fault::EndsUpdate,
        ControlError::Engine(EngineError::WithoutWeights { .. }) => Fault::WithoutWeights,
        ControlError::Update(UpdateError::OutOfOrder(_)) => Fault::OutOfOrder,
        ControlError::Update(UpdateError::Refused(_)) => Fault::Refused,
        ControlError::Update(UpdateError::Lost { .. }) => Fault::Lost,
        other => panic!("{other:?}"),
    })
}

/// An engine with fewer places for adapters than there may be adapters.
pub(super) fn engine() -> Arc<NativeEngine> {
    let limits = AdapterLimits { max_loras: 2, max_lora_rank: 1 };
    Arc::new(engine_of(&NativeSettings { adapters: Some(limits), ..settings() }))
}

/// A control plane and its engine.
pub(super) struct World {
    pub(super) served: Served,
    pub(super) adapters: Arc<Adapters>,
    pub(super) gate: StepGate,
    /// The checksums of the tensors as they were loaded.
    loaded: BTreeMap<String, Checksum>,
}

impl World {
    pub(super) async fn new(policy: ControlPolicy) -> Self {
        let engine = engine();
        let gate = engine.step_gate();
        gate.shut().await.unwrap();
        let adapters = Arc::new(Adapters::new(engine.clone(), AdapterPolicy::default()));
        let served = serve(engine, policy);
        let loaded = served.checksums().await.unwrap();
        Self { served, adapters, gate, loaded }
    }

    pub(super) fn tensors(&self) -> usize {
        self.loaded.len()
    }

    pub(super) fn body(&self, label: Label, numbers: [usize; 2]) -> Body {
        Body::begin(&self.served, label, numbers)
    }

    /// Begins a call.
    pub(super) fn call(&self, call: Call) -> JoinHandle<Outcome> {
        let (control, adapters) = (Arc::clone(&self.served), Arc::clone(&self.adapters));
        tokio::spawn(async move {
            match call {
                Call::Load(name, lora, replacing) => {
                    let before = adapters.load(load(name, lora, replacing)).await;
                    if let (Ok(Some(before)), Replacing::Abort) = (&before, replacing) {
                        control.abort_adapter(before.id());
                    }
                    let label = |before: Arc<tito::engine::Adapter>| before.label().to_string();
                    adapters_say(before.map(|before| Said::Loaded { before: before.map(label) }))
                }
                Call::Unload(name) => adapters_say(adapters.unload(name).await.map(|_| Said::Nothing)),
                call => said(done(&control, call).await),
            }
        })
    }

    /// Waits for all calls before.
    pub(super) async fn fence(&self) {
        self.served.cancel_update(Some(u64::MAX)).await.unwrap();
    }

    /// Compares the weights with those that should be there, to the bit.
    pub(super) async fn compare(&self, weights: Weights, is_updating: bool) {
        let sums = self.served.checksums().await;
        if is_updating {
            assert!(!self.served.status().updating || is_unsettled(&sums), "{sums:?}");
            self.compare_amid(weights).await;
            return;
        }
        if [weights.norm, weights.first, weights.others].contains(&Content::Gone) {
            let is_said = matches!(sums, Err(ControlError::Engine(EngineError::WithoutWeights { .. })));
            assert!(is_said, "{sums:?} of {weights:?}");
            return;
        }
        let mut expected = self.loaded.clone();
        for (tensor, content) in [(Tensor::Norm, weights.norm), (Tensor::First, weights.first)] {
            if let Content::Filled(number) = content {
                let sum = Checksum::of_tensor(&filled(tensor, number));
                expected.insert(tensor.name().to_owned(), sum);
            }
        }
        assert!(sums.unwrap() == expected, "the weights are not {weights:?}");
    }

    /// Compares what an update has written, of which nobody else sees anything.
    async fn compare_amid(&self, weights: Weights) {
        for (tensor, content) in [(Tensor::Norm, weights.norm), (Tensor::First, weights.first)] {
            let expected = match content {
                Content::Filled(number) => Checksum::of_tensor(&filled(tensor, number)),
                Content::Loaded => self.loaded[tensor.name()],
                Content::Gone => continue,
            };
            let (sender, receiver) = std::sync::mpsc::channel();
            let visit = Box::new(move |info: &tito::engine::TensorInfo, bytes: Vec<u8>| {
                let tito::engine::TensorInfo { name, dtype, shape } = info.clone();
                let _ = sender.send(Checksum::of_tensor(&WeightTensor { name, dtype, shape, bytes: bytes.into() }));
            });
            let engine = self.served.engine().control().unwrap();
            engine.read_weights_amid_update(vec![tensor.name().to_owned()], visit).await.unwrap();
            assert!(receiver.recv().unwrap() == expected, "{} is not {content:?}", tensor.name());
        }
    }
}

fn is_unsettled(sums: &Result<BTreeMap<String, Checksum>, ControlError>) -> bool {
    // Without weights it is an update of a server that lacks some.
    matches!(
        sums,
        Err(ControlError::Update(UpdateError::Unsettled) | ControlError::Engine(EngineError::WithoutWeights { .. }))
    )
}

async fn done(control: &Arc<Control>, call: Call) -> Result<Said, ControlError> {
    match call {
        Call::Pause(mode, newcomers) => control.pause(mode, newcomers).await?,
        Call::Resume => control.resume().await?,
        Call::Sleep(level, mode) => _ = control.sleep(level, mode).await?,
        Call::Wake(tag) => {
            let tags = tag.map(|tag| [tag]);
            let awakened = control.wake_up(tags.as_ref().map(|tags| &tags[..])).await?;
            return Ok(Said::Awake { awake: awakened.awake, lacking: awakened.lacking });
        }
        Call::Start => control.start_update().await?,
        Call::Write(part) => return written(control, part).await,
        Call::Finish(label) => {
            return control.finish_update(label.map(Into::into)).await.map(|updated| updated_says(&updated));
        }
        Call::Cancel(call) => control.cancel_update(call).await?,
        Call::Update(place, label) => {
            let update = Update { path: DISK.path(place), label: label.map(Into::into), aborts: false };
            return control.update(update).await.map(|updated| updated_says(&updated));
        }
        Call::Pull(version) => control.pull(DISK.path(Place::Local), DISK.published(), version).await?,
        Call::CheckVersion(version) => control.check_version(DISK.published(), version).await?,
        Call::Relabel(label) => _ = control.relabel(label.into(), false).await?,
        Call::ResetWeights => control.reset_weights().await?,
        Call::ResetCache(running) => _ = control.reset_prefix_cache(running).await?,
        Call::AbortAll => return Ok(Said::Aborts(control.abort(None))),
        Call::Abort(id) => return Ok(Said::Aborts(control.abort(Some(&[id.to_owned()])))),
        Call::Load(..) | Call::Unload(_) => unreachable!("adapters are not the control plane's: {call:?}"),
    }
    Ok(Said::Nothing)
}

async fn written(control: &Arc<Control>, part: Part) -> Result<Said, ControlError> {
    let written = match part {
        Part::At(place) => control.write_paths(vec![DISK.path(place)]).await?,
        Part::Version(version) => control.write_version(DISK.published(), version).await?,
        Part::Filled(tensor, number) => {
            control.write_weights(NewWeights::Tensors(vec![filled(tensor, number)])).await?
        }
        Part::Empty => control.write_weights(NewWeights::Tensors(Vec::new())).await?,
    };
    Ok(Said::Wrote { tensors: written.tensors })
}
