//! The state of the thread, and how a sequence leaves it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        mpsc::{Receiver, Sender},
    },
};

use serde_json::{Map, Value};

use super::{active::Active, command::Command, routes::RouteStore, standing::Standing, steps::Steps};
use crate::engine::{
    meters::{DraftMeters, EngineMeters},
    native::{
        aside::Aside,
        backend::Backend,
        draft_model::DraftModel,
        model::Model,
        scheduler::{Scheduler, SequenceId},
        settings::{NativeSettings, WeightsSource},
        status::Status,
    },
};

/// The state of the thread.
pub(in crate::engine::native) struct Executor<B: Backend> {
    pub(super) model: Model<B>,
    /// What guesses what the model samples, where another model does.
    pub(super) draft_model: Option<DraftModel<B>>,
    pub(super) scheduler: Scheduler,
    pub(super) active: HashMap<SequenceId, Active>,
    pub(super) commands: Receiver<Command>,
    /// A sender into `commands`, for what the thread tells itself.
    pub(super) own: Sender<Command>,
    pub(super) aside: Aside,
    pub(super) standing: Standing<B>,
    pub(super) steps: Steps,
    pub(super) status: Arc<Status>,
    pub(super) meters: EngineMeters,
    pub(super) draft_meters: Option<DraftMeters>,
    /// Where routes are kept.
    pub(super) routes: Option<RouteStore>,
    /// The config.json of a model that was loaded from a GGUF file.
    pub(super) config_of_gguf: Option<Map<String, Value>>,
}

impl<B: Backend> Executor<B> {
    /// `own` and `commands` are the two ends of a channel.
    pub(in crate::engine::native) fn new(
        model: Model<B>,
        scheduler: Scheduler,
        (own, commands): (Sender<Command>, Receiver<Command>),
        status: Arc<Status>,
    ) -> Self {
        let (active, aside, meters) = (HashMap::new(), Aside::default(), EngineMeters::of_recorder());
        let standing = Standing::new(status.weights());
        let draft_meters = scheduler.longest_draft().map(DraftMeters::new);
        let (steps, routes) = (Steps::default(), None);
        Self {
            model,
            draft_model: None,
            scheduler,
            active,
            commands,
            own,
            aside,
            standing,
            steps,
            status,
            meters,
            draft_meters,
            routes,
            config_of_gguf: None,
        }
    }

    /// Keeps the routes of all tokens, which go through `width` experts.
    pub(in crate::engine::native) fn keeping_routes(self, width: usize) -> Self {
        Self { routes: Some(RouteStore::new(width)), ..self }
    }

    /// Has another model draft.
    pub(in crate::engine::native) fn drafting_by(self, draft_model: Option<DraftModel<B>>) -> Self {
        Self { draft_model, ..self }
    }

    /// Refuses GGUF files of models with another config.json, where the model is from one.
    pub(in crate::engine::native) fn loaded_from(self, settings: &NativeSettings) -> Self {
        let is_gguf = matches!(settings.source, WeightsSource::Gguf { .. });
        Self { config_of_gguf: is_gguf.then(|| settings.config.clone()), ..self }
    }

    /// Ends a sequence.
    pub(super) fn end(&mut self, id: SequenceId) {
        drop(self.ended(id));
    }

    /// Takes out a sequence that has ended, and counts it.
    pub(super) fn ended(&mut self, id: SequenceId) -> Option<Active> {
        let preemptions = self.scheduler.preemptions(id);
        self.scheduler.remove(id);
        let active = self.active.remove(&id)?;
        self.meters.finished(active.outputs.times(), preemptions);
        Some(active)
    }
}
