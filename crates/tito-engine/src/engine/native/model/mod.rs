//! One definition of all models: decoders of layers that attend, that have recurrent states, and feed-forward parts.
//!
//! Owns the order of operations. Refuses tensors, which are the backend's, and sequences, which are the scheduler's.
//!
//! A family is data: a file of `families` makes a [`ModelShape`] of its config.json, and everything else follows from it.

mod adapter_sites;
mod adapter_slots;
mod adapters;
mod angles;
mod attention;
mod both;
mod checked;
mod dense;
mod destinations;
mod expected;
mod families;
mod further;
mod images;
mod inputs;
mod latent;
mod layer;
mod memory;
mod mixture;
mod names;
mod recurrent;
mod rope;
mod routes;
mod settings;
mod shape;
mod stacks;
mod target;
mod targets;
mod tensor;
mod tensors;
mod tied;
mod tower;
mod underway;
mod update;
mod warm_up;
mod workspace;
mod write;

pub(crate) use adapter_sites::AdapterSites;
pub(crate) use adapters::AdapterSlot;
pub(crate) use checked::{Checked, check_weights};
pub(crate) use further::FurtherLayers;
pub(crate) use memory::{Model, Room};
pub(crate) use routes::RoutedRow;
pub(crate) use settings::ConfigError;
pub(crate) use shape::{ModelShape, TowerShape};
pub(crate) use tensors::{parameter_count, share_read};
pub(crate) use tied::Head;
pub(crate) use update::Undo;

use std::{collections::BTreeSet, sync::Arc};

use super::{
    backend::{Backend, Batch, Consumer, LogitShape},
    weights::{Weights, WeightsError},
};
use crate::TokenId;
use angles::KnownAngles;
use destinations::Destination;
use images::{angles_of, parts_of};
use layer::{Layer, Past};
use memory::Parameters;
use tensors::Tensors;
use tower::Embeddings;
use workspace::Workspace;

/// How many rows have their logits in memory at a time.
pub(super) const LOGIT_ROWS: usize = 256;

/// Which token each row of a batch is.
#[derive(Clone, Copy)]
enum RowIds<'a> {
    Given(&'a [TokenId]),
    /// The tokens that the step begun last draws, by their rows of logits.
    Drawn(&'a [usize]),
}

/// Is called with the states that a layer leaves.
type AfterLayer<'a, B> = dyn FnMut(&mut B, &<B as Backend>::States) + 'a;

impl<B: Backend> Model<B> {
    /// Loads all of a model's weights; `progress` is called with the bytes that are there, and with those of all.
    pub(crate) fn load(
        backend: B,
        shape: ModelShape,
        weights: &dyn Weights,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, WeightsError> {
        let tensors = Arc::new(Tensors::of(&shape));
        let checked = Checked::new(&tensors, weights, true)?;
        let parameters = Parameters::zeros(&backend, &shape)?;
        let mut model = Self {
            adapter_sites: Arc::new(AdapterSites::new(Arc::clone(&tensors))),
            tensors,
            follows_from_shape: parameters.layers.iter().all(Layer::follows_from_shape),
            parameters: Some(parameters),
            lacking: BTreeSet::new(),
            predicting: BTreeSet::new(),
            caches: Vec::new(),
            recurrents: Vec::new(),
            room: Room::default(),
            workspace: Workspace::new(&backend),
            angles: shape.ropes.iter().map(|_| KnownAngles::default()).collect(),
            embeddings: Embeddings::default(),
            backend,
            shape,
        };
        model.write(&checked, progress)?;
        model.check_read_heads(&checked)?;
        model.check_further(checked.further())?;
        weights.check_unchanged()?;
        Ok(model)
    }

    /// Whether a backend may [repeat](Backend::repeat) the layers of a step.
    pub(crate) fn follows_from_shape(&self) -> bool {
        self.follows_from_shape
    }

    /// Compares tensors with the model's, by name and shape.
    pub(crate) fn check<'a>(&self, weights: &'a dyn Weights) -> Result<Checked<'a>, WeightsError> {
        Checked::new(&self.tensors, weights, false)
    }

    /// The same for weights that have to be all of them.
    pub(crate) fn check_whole(&self, weights: &dyn Weights) -> Result<(), WeightsError> {
        Checked::new(&self.tensors, weights, true).map(drop)
    }

    /// Computes a batch; gives the consumer the logits of each row of `batch.logit_rows`, by its place there.
    ///
    /// Answers for each span whether all its new keys and values are finite. Where they are not, nobody else may use
    /// its new blocks: even tokens before the broken one multiply it with zero, which makes NaN of infinity.
    pub(crate) fn forward(&mut self, batch: &Batch, consumer: &dyn Consumer) -> Vec<bool> {
        self.forward_watched(batch, consumer, None)
    }

    /// The same, which calls `after_layer` with the states that each layer leaves.
    fn forward_watched(
        &mut self,
        batch: &Batch,
        consumer: &dyn Consumer,
        after_layer: Option<&mut AfterLayer<'_, B>>,
    ) -> Vec<bool> {
        let mut shared = self.layers(batch, RowIds::Given(&batch.token_ids), after_layer);
        if batch.logit_rows.is_empty() {
            return self.backend.finite(shared);
        }
        self.backend.bring_finite(&mut shared);
        self.head(batch, |backend, logits, first, shape| backend.hand_on(logits, first, shape, consumer));
        self.backend.finite(shared)
    }

    /// Computes all layers of a batch, whose rows have these ids.
    fn layers(
        &mut self,
        batch: &Batch,
        ids: RowIds<'_>,
        mut after_layer: Option<&mut AfterLayer<'_, B>>,
    ) -> B::StepShared {
        let Self {
            shape,
            backend,
            parameters,
            caches,
            recurrents,
            workspace,
            angles,
            embeddings,
            follows_from_shape,
            ..
        } = self;
        let parameters = parameters.as_ref().expect("nothing is computed without weights");
        let Parameters { embedding, inputs, layers, tower, .. } = parameters;
        let kept = (caches.len(), recurrents.len());
        assert_eq!(kept, (layers.len(), layers.len()), "nothing is computed without room for what each layer keeps");
        let angles = angles_of(angles, shape, batch);
        let images = parts_of(backend, tower.as_ref(), embeddings, batch);
        let mut shared = backend.begin_step(batch, angles);
        workspace.adapters.begin(&batch.spans);
        let Workspace { hidden, adapters, .. } = &mut *workspace;
        match ids {
            RowIds::Given(ids) => backend.embed(embedding, ids, shape.embedding_factor, hidden),
            RowIds::Drawn(rows) => backend.embed_drawn(embedding, rows, shape.embedding_factor, hidden),
        }
        adapters.add_embeddings(backend, Destination::Embedding, (&batch.token_ids, shape.embedding_factor), hidden);
        for part in &images {
            part.embed(backend, hidden);
        }
        if let Some(inputs) = inputs {
            inputs.make(backend, &batch.token_ids, workspace);
        }
        let adapted = batch.spans.iter().any(|span| span.adapter.is_some());
        let repeats =
            images.is_empty() && !adapted && workspace.routes.is_idle() && after_layer.is_none() && *follows_from_shape;
        let mut compute = |backend: &mut B, shared: &mut B::StepShared| {
            for (number, (layer, state)) in layers.iter().zip(&mut *recurrents).enumerate() {
                let cache = caches[shape.layers[number].cache().unwrap_or(number)].as_mut();
                workspace.adapters.enter(number);
                layer.mix(backend, workspace, Past { cache, state: state.as_mut() }, shared);
                layer.feed_forward(backend, workspace);
                layer.finish(backend, number, workspace);
                for part in &images {
                    part.add(backend, number, &mut workspace.hidden);
                }
                if let Some(after_layer) = &mut after_layer {
                    after_layer(backend, &workspace.hidden);
                }
            }
        };
        if repeats {
            backend.repeat(&mut shared, &mut compute);
        } else {
            compute(backend, &mut shared);
        }
        shared
    }

    /// Computes what the head gives for the rows of a batch whose logits are wanted; calls `take` with some of them at a time, the
    /// number of the first, and what is made of them.
    fn head(&mut self, batch: &Batch, mut take: impl FnMut(&mut B, &mut B::States, usize, LogitShape)) {
        let Self { shape, backend, parameters, workspace, .. } = self;
        let parameters = parameters.as_ref().expect("nothing is computed without weights");
        let Parameters { embedding, norm, head, .. } = parameters;
        let Workspace { hidden, input, picked, logits, adapters, .. } = &mut *workspace;
        backend.norm(hidden, norm, shape.norm, input);
        let head = head.as_ref().unwrap_or(embedding);
        for (first, rows) in (0..).step_by(LOGIT_ROWS).zip(batch.logit_rows.chunks(LOGIT_ROWS)) {
            backend.gather(input, rows, picked);
            backend.linear(picked, head, None, logits);
            adapters.add_logits(backend, rows, picked, logits);
            take(backend, logits, first, shape.logits);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
