//! tito's own engine: continuous batching over a cache of shared prefixes, the same bits whatever else is computed.
//!
//! Owns a thread with the model, the queue of requests to it, and the streams of tokens back. Refuses text, and files
//! other than weights.

mod aside;
mod backend;
mod consumer;
mod control;
mod cpu;
mod cuda;
mod draft_model;
mod drafts;
mod executor;
mod gates;
mod images;
mod jobs;
mod kv_cache;
mod load_error;
mod model;
mod plan;
mod processor;
mod recurrence;
mod room;
mod routing;
mod scheduler;
mod settings;
mod shapes;
mod status;
mod step_gate;
#[cfg(test)]
mod tests;
mod weights;

use std::{
    collections::BTreeMap,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    task::{Context, Poll, ready},
    thread,
    time::Duration,
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tito_images::PatchShape;

pub use self::drafts::{Drafting, ModelDrafts, NgramLookup, Speculation, SuffixDecoding};
pub use self::load_error::LoadError;
pub use self::plan::{Plan, kept_gguf_bytes, plan};
pub use self::processor::{blocks_are_quick, try_kernels};
pub use self::settings::{
    Device, DraftModelSettings, Dtype, KernelName, KernelSet, Mismatch, ModelParts, NativeSettings, WeightsSource,
};
pub use self::step_gate::StepGate;
use self::{
    backend::{Backend, NoRoom},
    cpu::Pool,
    cuda::{Gpu, StepBytes},
    draft_model::DraftModel,
    executor::{Command, Entry, Executor},
    kv_cache::Told,
    model::{AdapterSites, Model, ModelShape, Room},
    room::{max_concurrency, memory_needs},
    scheduler::{Bounds, Scheduler},
    status::{Status, thread_is_gone},
    weights::Weights,
};
use super::{
    AdapterLimits, Engine, EngineAdapters, EngineControl, EngineError, EngineInfo, EngineLoad, EngineOutput,
    ImageReading, Party, Reservation, RouteShape, SequenceRequest, TensorInfo, Ticket, TokenStream,
    backlog::{Backlog, Bounds as BacklogBounds, Receiver},
    cache_events::{self, CacheEvents},
    meters::EngineMeters,
};
use crate::weights::peft::{PeftAdapter, PeftModule};

/// Whether this engine computes these parts of a model with this config.json; the reason if it does not.
pub fn supports(config: &Map<String, Value>, parts: ModelParts) -> Result<(), String> {
    plan::shape(config, parts).map(|_| ()).map_err(|error| error.to_string())
}

/// How many numbers the tensors of these parts of a model with this config.json have; the reason if this engine does not compute
/// them.
pub fn parameter_count(config: &Map<String, Value>, parts: ModelParts) -> Result<u64, String> {
    plan::shape(config, parts).map(|shape| model::parameter_count(&shape)).map_err(|error| error.to_string())
}

/// The share of the numbers of these parts of a model with this config.json that a token is computed with: neither the embeddings of
/// others, nor the experts that are not chosen.
pub fn share_read(config: &Map<String, Value>, parts: ModelParts) -> Result<f64, String> {
    plan::shape(config, parts).map(|shape| model::share_read(&shape)).map_err(|error| error.to_string())
}

/// Whether a directory has weights that can stay in their codes, FP8 or MXFP4.
pub fn has_codes(directory: &Path, config: &Map<String, Value>) -> Result<bool, LoadError> {
    Ok(weights::holds_codes(directory, config)?)
}

/// Whether a model with this config.json may have such weights, where they are not here to be looked at.
pub fn may_have_codes(config: &Map<String, Value>) -> Result<bool, LoadError> {
    Ok(weights::may_hold_codes(config)?)
}

/// How the weights of a directory are quantised, by the name that its files have for it; `None` if they are not.
pub fn quant_method(directory: &Path, config: &Map<String, Value>) -> Option<String> {
    weights::method(directory, config)
}

/// The modules of an adapter, by the names of the tensors that they change in a model with this config.json; the error is one
/// line.
pub fn adapted_tensors<'a>(
    config: &Map<String, Value>,
    adapter: &'a PeftAdapter,
) -> Result<BTreeMap<String, &'a PeftModule>, String> {
    // Adapters change the text alone.
    let shape = ModelShape::read_text(config).map_err(|error| error.to_string())?;
    AdapterSites::of(&shape).by_tensor(adapter)
}

/// A model that is about to be loaded, and who computes it.
struct Loading<'a> {
    settings: &'a NativeSettings,
    shape: ModelShape,
    weights: &'a dyn Weights,
    pool: Pool,
    draft: Option<ModelShape>,
    progress: &'a mut (dyn FnMut(u64, u64) + Send),
}

/// The tokens of a block of keys and values.
pub const BLOCK_SIZE: usize = backend::BLOCK_TOKENS;

/// The engine.
pub struct NativeEngine {
    info: EngineInfo,
    commands: Sender<Command>,
    status: Arc<Status>,
    /// What was sampled and not read yet.
    backlog: Arc<Backlog>,
    seats: usize,
    longest_sequence: usize,
    /// What the model consists of.
    tensors: Arc<[TensorInfo]>,
    /// What a row of another model that drafts takes, beside one of the model.
    draft_cost: Option<f64>,
    /// Why weights cannot be replaced, if they cannot.
    irreplaceable: Option<String>,
    /// The mixtures of the model, where it has any.
    routes: Option<RouteShape>,
    /// Whether the routes of all tokens are kept, so that they can be reported.
    keeps_routes: bool,
    /// The matrices that adapters can change, and the bounds of adapters, where they are served.
    adapters: Option<(Arc<AdapterSites>, AdapterLimits)>,
    /// What images may be, where the model reads some.
    images: Option<ImageBounds>,
    /// What is cached, until somebody takes it to read it.
    cache_events: Mutex<Option<CacheEvents>>,
}

/// What images may be.
#[derive(Debug, Clone, Copy)]
struct ImageBounds {
    reading: ImageReading,
    /// The shape of their patches.
    patch: PatchShape,
    /// The most of them.
    most_patches: usize,
    /// The most placeholders of an image.
    most_at_once: usize,
}

impl NativeEngine {
    /// Loads a model and starts the engine; `progress` is called with the bytes of weights that are loaded, as the
    /// engine holds them, and with those of all.
    ///
    /// Takes seconds and blocks: not for an async thread.
    pub fn load(settings: &NativeSettings, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<Self, LoadError> {
        let plan::Checked { shape, weights, pool, draft } = plan::checked(settings)?;
        let loading = Loading { settings, shape, weights: &*weights, pool, draft, progress };
        match settings.device {
            Device::Cpu => Self::on_processor(loading),
            Device::Cuda { number, .. } => Self::on_gpu(loading, &Gpu::open(number)?),
        }
    }

    fn on_processor(loading: Loading<'_>) -> Result<Self, LoadError> {
        let Loading { settings, shape, weights, pool, draft, progress } = loading;
        let (device, backend) = plan::on_processor(settings, pool)?;
        let bytes = settings.kv_cache_bytes;
        let (room, of_draft) = plan::rooms(settings, &backend, &shape, draft.as_ref())?;
        let mut model = Model::load(backend, shape, weights, progress)?;
        let draft = match (of_draft, draft, &settings.draft_model) {
            (Some(plan::DraftPlan { backend, bounds }), Some(shape), Some(of_draft)) => {
                Some(DraftModel::load((**of_draft).clone(), (backend, shape), bounds, &mut model)?)
            }
            _ => None,
        };
        Self::serve(settings, device, (model, draft), bytes, room)
    }

    fn on_gpu(loading: Loading<'_>, gpu: &Gpu) -> Result<Self, LoadError> {
        // No other model drafts on a GPU, which was checked.
        let Loading { settings, shape, weights, pool, draft: _, progress } = loading;
        let Device::Cuda { memory_share, .. } = settings.device else { unreachable!("there is a GPU") };
        let backend = plan::on_gpu(settings, gpu, pool)?;
        let wanted = memory_needs(settings, &backend, &shape);
        if memory_share.is_none() {
            wanted.divide(settings.kv_cache_bytes)?;
        }
        let step = backend.step_bytes(&shape, settings.max_num_batched_tokens, settings.most_image_patches(&shape));
        let number = backend.dtype().size();
        let adapters = settings.adapters.map_or(0, |AdapterLimits { max_loras, max_lora_rank }| {
            AdapterSites::of(&shape).slot_bytes(max_lora_rank, number).saturating_mul(max_loras as u64)
        });
        let model = Model::load(backend, shape, weights, progress)?;
        plan::warn_of_idle_flags(settings, &model);
        let bytes = match memory_share {
            None => settings.kv_cache_bytes,
            Some(memory_share) => gpu.room_for_cache(memory_share, StepBytes { all: step.all + adapters, ..step })?,
        };
        Self::serve(settings, gpu.name(), (model, None), bytes, wanted.divide(bytes)?)
    }

    fn serve<B: Backend>(
        settings: &NativeSettings,
        device: String,
        (mut model, mut draft): (Model<B>, Option<DraftModel<B>>),
        bytes: u64,
        room: Room,
    ) -> Result<Self, LoadError> {
        model.allocate_cache(room).map_err(|NoRoom| LoadError::CacheTooLarge { bytes })?;
        if let Device::Cuda { .. } = settings.device {
            model.warm_up();
        }
        if let Some(draft) = &mut draft {
            draft.measure(&mut model);
        }
        let draft_cost = draft.as_ref().map(DraftModel::cost);
        EngineMeters::cache_config(backend::BLOCK_TOKENS, room.blocks, max_concurrency(room, settings.max_model_len));
        let besides = match settings.source.kept_by() {
            Some(_) => ", quantised weights",
            None if settings.widens_in_products() => ", f32 activations",
            None => "",
        };
        let info = EngineInfo {
            engine: "native",
            device,
            dtype: format!("{}{besides}", settings.dtype.name()),
            vocab_size: model.shape().vocab_size,
            max_model_len: settings.max_model_len,
            unproven: None,
        };
        let tensors = model.tensors().into();
        let routes = model.shape().routes();
        let images = model.shape().images.as_ref();
        let most_patches = settings.most_image_patches(model.shape());
        let images = images.map(|images| ImageBounds {
            reading: ImageReading { placeholder: images.placeholder, frame: images.frame },
            patch: images.tower.patch,
            most_patches,
            most_at_once: if images.both_ways { settings.max_num_batched_tokens } else { usize::MAX },
        });
        let adapters = settings.adapters.map(|limits| (Arc::clone(model.adapter_sites()), limits));
        let NativeSettings { max_num_seqs, max_num_batched_tokens, max_waiting, .. } = *settings;
        let scheduler =
            Scheduler::new(Bounds { max_num_seqs, max_num_batched_tokens }, model.room().blocks, model.room().slots)
                .with_adapters(settings.adapters.map_or(0, |limits| limits.max_loras))
                .speculating(plan::speculation(settings, model.shape())?, draft_cost);
        let longest_sequence = scheduler.longest_sequence();
        let status = Arc::new(Status::new(max_num_seqs.saturating_add(max_waiting)));
        let (commands, received) = channel();
        let (told, cache_events) = settings.cache_events.map(|bound| tell(bound, commands.clone())).unzip();
        let scheduler = match told {
            Some(told) => scheduler.telling(told),
            None => scheduler,
        };
        let executor = Executor::new(model, scheduler, (commands.clone(), received), Arc::clone(&status));
        let mut executor = executor.drafting_by(draft).loaded_from(settings);
        if let (true, Some(shape)) = (settings.return_routed_experts, &routes) {
            executor = executor.keeping_routes(shape.width());
        }
        let work = move || executor.run();
        thread::Builder::new().name("engine".to_owned()).spawn(work).map_err(LoadError::Thread)?;
        Ok(Self {
            info,
            commands,
            status,
            backlog: Backlog::new(BacklogBounds::default()),
            seats: max_num_seqs,
            longest_sequence,
            tensors,
            draft_cost,
            irreplaceable: settings.irreplaceable(),
            keeps_routes: settings.return_routed_experts,
            routes,
            adapters,
            images,
            cache_events: Mutex::new(cache_events),
        })
    }

    /// What the cache of prefixes holds, from the start on; `None` where nobody is to be told, or somebody took it already.
    pub fn cache_events(&self) -> Option<CacheEvents> {
        self.cache_events.lock().take()
    }

    /// Returns the most tokens of a sequence that the cache of keys and values holds; the context may be longer.
    pub fn longest_sequence(&self) -> usize {
        self.longest_sequence
    }

    /// What a row of a model that drafts takes, as a share of what a row of the model takes; infinite where it has no room to
    /// draft. `None` where no model drafts.
    pub fn draft_cost(&self) -> Option<f64> {
        self.draft_cost
    }

    /// The same engine with other bounds of what may wait for clients.
    #[cfg(test)]
    fn with_backlog(mut self, bounds: BacklogBounds) -> Self {
        self.backlog = Backlog::new(bounds);
        self
    }

    /// A gate before the engine's steps, for tests.
    pub fn step_gate(&self) -> StepGate {
        StepGate::new(self.commands.clone())
    }

    /// Refuses images whose patches are not those that the tower reads, or are too many for it.
    fn check_images(&self, SequenceRequest { images, .. }: &SequenceRequest) -> Result<(), EngineError> {
        let Some(ImageBounds { patch: read, most_patches: most, most_at_once, .. }) = self.images else {
            return Ok(());
        };
        for (number, image) in images.iter().map(|image| &image.image).enumerate() {
            let (shape, patches) = (image.shape(), image.grid().patches());
            if shape != read {
                return Err(EngineError::Unsupported(format!(
                    "image {number} of the prompt was prepared as {shape:?}, and the model reads {read:?}"
                )));
            }
            if patches > most {
                return Err(EngineError::Unsupported(format!(
                    "image {number} of the prompt has {patches} patches, and the model reads at most {most}"
                )));
            }
            let placeholders = image.placeholders();
            if placeholders > most_at_once {
                return Err(EngineError::Unsupported(format!(
                    "image {number} of the prompt has {placeholders} tokens, which are computed at once, and a step has \
                     {most_at_once}; start the server with a larger --max-num-batched-tokens"
                )));
            }
        }
        Ok(())
    }

    fn begin(&self, ticket: Ticket, request: SequenceRequest) -> Result<Outputs, EngineError> {
        self.status.health()?;
        self.info.check(&request, self)?;
        if request.routing.shown_from.is_some() && !self.keeps_routes {
            return Err(EngineError::Unsupported("the server was not started to report routed experts".to_owned()));
        }
        self.check_images(&request)?;
        let length = request.prompt_token_ids.len().saturating_add(request.sampling.max_tokens);
        // The last token is sampled, not computed.
        if length > self.longest_sequence + 1 {
            let longest = self.longest_sequence;
            return Err(EngineError::Unsupported(format!(
                "prompt and max_completion_tokens are {length} tokens together, more than the {longest} that the KV cache holds; \
                 start the server with a larger --kv-cache-memory"
            )));
        }
        let id = ticket.number;
        let resume = self.commands.clone();
        // If the thread is gone, there is nothing that could go on.
        let on_room = move || _ = resume.send(Command::Resume(id));
        let (sender, receiver) = self.backlog.channel(request.prompt_token_ids.len(), ticket.arrived, on_room);
        let sender = sender.timed(request.timed);
        let (commands, status) = (self.commands.clone(), Arc::clone(&self.status));
        let entry = Entry { id, claimant: ticket.claimant.clone() };
        let outputs = Outputs { ticket, receiver, commands, status, ended: false };
        let start = Command::Start { entry, request, outputs: sender };
        self.commands.send(start).map_err(|_| self.status.health().err().unwrap_or_else(thread_is_gone))?;
        Ok(outputs)
    }
}

/// Who is told what is cached, and who reads it; at most `bound` batches wait to be read.
fn tell(bound: usize, commands: Sender<Command>) -> (Told, CacheEvents) {
    // If the thread is gone, there is nothing more to tell.
    let wake = move || _ = commands.send(Command::Control(Box::new(|_| ())));
    let (sender, events) = cache_events::channel(bound, backend::BLOCK_TOKENS, wake);
    (Told::new(sender), events)
}

/// The outputs of a sequence. Dropping them aborts the sequence.
struct Outputs {
    /// The place of the sequence in the engine, for as long as somebody reads it.
    ticket: Ticket,
    receiver: Receiver,
    commands: Sender<Command>,
    status: Arc<Status>,
    /// Whether the last output was read.
    ended: bool,
}

impl Stream for Outputs {
    type Item = Result<EngineOutput, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let output = ready!(self.receiver.poll_next_unpin(context));
        let output = match output {
            // A request that is sent while the thread ends may be lost with the thread; its stream must not end as if
            // all were well.
            None if !self.ended => Some(Err(self.status.health().err().unwrap_or_else(thread_is_gone))),
            output => output,
        };
        self.ended |= matches!(output, Some(Ok(EngineOutput::Finished(_)) | Err(_)));
        Poll::Ready(output)
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        // If the thread is gone, there is nothing to abort.
        let _ = self.commands.send(Command::Abort(self.ticket.number));
    }
}

impl Engine for NativeEngine {
    fn reserve(&self, party: Option<Party>, sequences: usize) -> Result<Reservation, EngineError> {
        self.status.reserve(party, sequences)
    }

    fn start(&self, ticket: Ticket, request: SequenceRequest) -> TokenStream {
        match self.begin(ticket, request) {
            Ok(outputs) => outputs.boxed(),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    fn seats(&self) -> usize {
        self.seats
    }

    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn load(&self) -> EngineLoad {
        self.status.load()
    }

    fn health(&self) -> Result<(), EngineError> {
        self.status.health()
    }

    fn route_shape(&self) -> Option<&RouteShape> {
        self.routes.as_ref()
    }

    fn images(&self) -> Option<ImageReading> {
        self.images.map(|images| images.reading)
    }

    fn control(&self) -> Option<&dyn EngineControl> {
        Some(self)
    }

    fn adapters(&self) -> Option<&dyn EngineAdapters> {
        self.adapters.as_ref().map(|_| self as &dyn EngineAdapters)
    }

    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ()> {
        self.status.close(None);
        let _ = self.commands.send(Command::Stop);
        self.status.ended(grace).boxed()
    }
}

impl Drop for NativeEngine {
    fn drop(&mut self) {
        // The thread may outlive the engine, since a stream that is still read holds a sender of commands.
        let _ = self.commands.send(Command::Stop);
    }
}
