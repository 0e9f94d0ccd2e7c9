//! A second, smaller model, which guesses what the model will sample.
//!
//! Owns its weights, and what it has computed of each sequence. Refuses to be exact: a wrong guess costs time and nothing
//! else, since the model checks all of them. So whatever goes wrong here only has the effect that nothing is guessed.

mod cost;
mod guessing;
mod sequences;

use std::path::Path;

use self::sequences::Sequences;
use super::{
    LoadError,
    backend::Backend,
    model::{Model, ModelShape, Room, Undo},
    plan,
    room::DraftBounds,
    scheduler::SequenceId,
    settings::DraftModelSettings,
    weights::{Weights, WeightsError, open_any},
};
use crate::engine::{UpdateError, Written};

pub(super) use self::guessing::Ask;

/// A draft model that is loaded.
pub(super) struct DraftModel<B: Backend> {
    model: Model<B>,
    settings: DraftModelSettings,
    sequences: Sequences,
    /// Its room for keys and values.
    room: Room,
    /// Whether that room is there.
    has_cache: bool,
    /// Tokens of a step.
    step_tokens: usize,
    /// See [`ModelDrafts`](super::drafts::ModelDrafts); infinite until it is known.
    cost: f64,
}

impl<B: Backend> DraftModel<B> {
    /// Loads the weights into a backend that has no threads of its own; those of `model` do the work.
    pub(super) fn load(
        settings: DraftModelSettings,
        (mut backend, shape): (B, ModelShape),
        bounds: DraftBounds,
        model: &mut Model<B>,
    ) -> Result<Self, LoadError> {
        let unusable = |error: &dyn std::fmt::Display| plan::unusable(&settings, &error.to_string());
        let weights = plan::open(&settings.source, &settings.config).map_err(|error| unusable(&error))?;
        model.swap_threads(&mut backend);
        let loaded = Model::load(backend, shape, &*weights, &mut |_, _| ());
        let mut draft = loaded.map_err(|error| unusable(&error))?;
        model.swap_threads(draft.backend_mut());
        let DraftBounds { blocks, step_tokens, cost } = bounds;
        let room = Room { blocks, slots: 0 };
        draft.allocate_cache(room).map_err(|error| unusable(&error))?;
        Ok(Self {
            model: draft,
            settings,
            sequences: Sequences::new(blocks),
            room,
            has_cache: true,
            step_tokens,
            cost: cost.unwrap_or(f64::INFINITY),
        })
    }

    /// Keeps what is computed of some sequences alone.
    pub(super) fn retain(&mut self, keeps: impl Fn(SequenceId) -> bool) {
        self.sequences.retain(keeps);
    }

    /// Gives the memory of keys and values back.
    pub(super) fn discard_cache(&mut self) {
        self.sequences.clear();
        self.model.discard_cache();
        self.has_cache = false;
    }

    /// Takes it again; where there is none, nothing is guessed.
    pub(super) fn restore_cache(&mut self) {
        if self.has_cache {
            return;
        }
        self.has_cache = self.model.allocate_cache(self.room).is_ok();
        if !self.has_cache {
            self.model.discard_cache();
            tracing::warn!("{NO_ROOM}; nothing is drafted");
        }
    }

    /// Gives the memory of the weights back.
    pub(super) fn discard_weights(&mut self) {
        self.sequences.clear();
        self.model.discard_weights();
    }

    /// Takes it again, and reads the weights from where they were at the start; where that fails, nothing is guessed.
    pub(super) fn restore_weights(&mut self, model: &mut Model<B>) {
        if self.model.has_room_for_weights() {
            return;
        }
        if let Err(error) = self.read_again(model) {
            self.model.discard_weights();
            tracing::warn!("the weights of the draft model cannot be read again, and nothing is drafted: {error}");
        }
    }

    /// Replaces weights by those of a directory or file; where that fails, the old ones are there again.
    pub(super) fn update(&mut self, path: &Path, model: &mut Model<B>) -> Result<Written, UpdateError> {
        if let Some(flag) = self.settings.source.kept_by() {
            return Err(UpdateError::Refused(format!(
                "weights of a draft model that stay quantised cannot be replaced; start the server with {flag} widened"
            )));
        }
        if !self.model.has_room_for_weights() {
            return Err(UpdateError::OutOfOrder("the memory of the draft model's weights was given back"));
        }
        let refused = |error: WeightsError| {
            let refused = if error.is_passing() { UpdateError::NotNow } else { UpdateError::Refused };
            refused(format!("the draft model: {error}"))
        };
        let weights = open_any(path).map_err(refused)?;
        let mut undo = Undo::default();
        model.swap_threads(self.model.backend_mut());
        let written = self.replace(&*weights, &mut undo).map_err(refused);
        let undone = if written.is_err() { self.model.undo(undo) } else { Ok(()) };
        model.swap_threads(self.model.backend_mut());
        if undone.is_err() {
            self.model.lose_weights();
            tracing::warn!("the weights of the draft model are lost, and nothing is drafted");
        }
        // What the old ones computed would only make guesses worse.
        self.sequences.clear();
        written
    }

    fn replace(&mut self, weights: &dyn Weights, undo: &mut Undo<B>) -> Result<Written, WeightsError> {
        let checked = self.model.check(weights)?;
        let heads = self.model.heads_of(&checked)?;
        let bytes = self.model.replace(&checked, Some(undo))?;
        self.model.check_heads(&heads)?;
        self.model.check_further(checked.further())?;
        Ok(Written { tensors: checked.count(), bytes })
    }

    fn read_again(&mut self, model: &mut Model<B>) -> Result<(), LoadError> {
        self.model.restore_weights().map_err(WeightsError::from)?;
        let weights = plan::open(&self.settings.source, &self.settings.config)?;
        let checked = self.model.check(&*weights)?;
        model.swap_threads(self.model.backend_mut());
        let replaced = self.model.replace(&checked, None);
        model.swap_threads(self.model.backend_mut());
        replaced?;
        Ok(())
    }
}

const NO_ROOM: &str = "the system has no room for the keys and values of the draft model";
