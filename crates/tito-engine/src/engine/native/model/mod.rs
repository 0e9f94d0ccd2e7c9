//! One definition of all models: decoders of layers that attend, that have recurrent states, and feed-forward parts.
//!
//! Owns the order of operations. Refuses tensors, which are the backend's, and sequences, which are the scheduler's.
//!
//! A family is data: a file of `families` makes a [`ModelShape`] of its config.json, and everything else follows from it.

mod adapter_sites;
mod adapters;
mod angles;
mod attention;
mod both;
mod dense;
mod destinations;
mod expected;
mod families;
mod images;
mod inputs;
mod latent;
mod layer;
mod mixture;
mod names;
mod recurrent;
mod rope;
mod routes;
mod settings;
mod shape;
mod stacks;
mod tensor;
mod tensors;
mod tied;
mod tower;
mod update;
mod warm_up;
mod workspace;

pub(crate) use adapter_sites::AdapterSites;
pub(crate) use adapters::AdapterSlot;
pub(crate) use routes::{RoutedRow, StepRoutes};
pub(crate) use settings::ConfigError;
pub(crate) use shape::{ModelShape, TowerShape};
pub(crate) use tensors::{Checked, parameter_count};
pub(crate) use tied::Head;
pub(crate) use update::Undo;

use std::{collections::BTreeSet, sync::Arc};

use super::{
    backend::{Backend, Batch, Consumer, NoRoom},
    recurrence::SlotId,
    weights::{Weights, WeightsError},
};
use crate::engine::WeightDtype;
use angles::KnownAngles;
use destinations::Destination;
use images::{angles_of, parts_of};
use inputs::Inputs;
use layer::{Layer, Past};
use shape::LayerShape;
use tensor::Tensor;
use tensors::Tensors;
use tower::{Embeddings, Tower};
use workspace::Workspace;

/// How many rows have their logits in memory at a time.
pub(super) const LOGIT_ROWS: usize = 256;

/// A model on a backend, with its cache of keys and values.
pub(crate) struct Model<B: Backend> {
    shape: ModelShape,
    backend: B,
    tensors: Arc<Tensors>,
    adapter_sites: Arc<AdapterSites>,
    /// `None` while their memory is given back.
    parameters: Option<Parameters<B>>,
    /// Tensors that are to be written before anything can be computed.
    lacking: BTreeSet<String>,
    /// Keys and values of each layer that makes its own.
    caches: Vec<Option<B::Cache>>,
    /// The recurrent states of each layer that has some.
    recurrents: Vec<Option<B::Recurrent>>,
    room: Room,
    workspace: Workspace<B>,
    /// For each way of rotating, the angles of positions so far.
    angles: Vec<KnownAngles>,
    /// What the tower made of images, with the present weights.
    embeddings: Embeddings,
}

/// How much of the past there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Room {
    /// Blocks of keys and values, of each layer.
    pub(crate) blocks: usize,
    /// Slots of recurrent states, of each layer that has some; 0 in a model without them.
    pub(crate) slots: usize,
}

/// All that was learnt.
struct Parameters<B: Backend> {
    embedding: B::Matrix,
    inputs: Option<Inputs<B>>,
    layers: Vec<Layer<B>>,
    norm: B::Vector,
    /// The head; `None` where the embeddings are the head too.
    head: Option<B::Matrix>,
    /// What reads images, where the model does.
    tower: Option<Tower<B>>,
}

impl<B: Backend> Model<B> {
    /// The type in which a tensor is held.
    fn dtype(&self, tensor: &Tensor) -> WeightDtype {
        if tensor.is_vector() { WeightDtype::F32 } else { self.backend.dtype() }
    }

    /// The bytes of a tensor in that type.
    fn held_bytes(&self, tensor: &Tensor) -> u64 {
        (tensor.numbers() * self.dtype(tensor).size()) as u64
    }

    /// Loads all of a model's weights; `progress` is called with the bytes that are there, and with those of all.
    pub(crate) fn load(
        backend: B,
        shape: ModelShape,
        weights: &dyn Weights,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, WeightsError> {
        let tensors = Arc::new(Tensors::of(&shape));
        let checked = Checked::new(&tensors, weights, true)?;
        let mut model = Self {
            adapter_sites: Arc::new(AdapterSites::new(Arc::clone(&tensors))),
            tensors,
            parameters: Some(Parameters::zeros(&backend, &shape)?),
            lacking: BTreeSet::new(),
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
        Ok(model)
    }

    /// Compares tensors with the model's, by name and shape.
    pub(crate) fn check<'a>(&self, weights: &'a dyn Weights) -> Result<Checked<'a>, WeightsError> {
        Checked::new(&self.tensors, weights, false)
    }

    /// The arithmetic.
    pub(crate) fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The matrices that adapters can change.
    pub(crate) fn adapter_sites(&self) -> &Arc<AdapterSites> {
        &self.adapter_sites
    }

    /// The memory of one block of all layers, in bytes.
    pub(crate) fn block_bytes(backend: &B, shape: &ModelShape) -> usize {
        let attentions = shape.layers.iter().filter_map(LayerShape::keeping);
        attentions.map(|attention| backend.block_bytes(attention.kept)).sum()
    }

    /// The memory of one slot of all layers that have a recurrent state, in bytes; 0 where none has.
    pub(crate) fn slot_bytes(shape: &ModelShape) -> usize {
        let recurrents = shape.layers.iter().filter_map(|layer| layer.recurrent.as_ref());
        recurrents.map(|recurrent| recurrent.state().numbers() * size_of::<f32>()).sum()
    }

    /// Makes room for blocks of keys and values and for recurrent states; whatever was cached is gone.
    pub(crate) fn allocate_cache(&mut self, room: Room) -> Result<(), NoRoom> {
        let Self { shape, backend, .. } = self;
        let cache = |layer: &LayerShape| {
            layer.keeping().map(|attention| backend.cache(attention.kept, room.blocks)).transpose()
        };
        let recurrent = |layer: &LayerShape| {
            layer.recurrent.as_ref().map(|recurrent| backend.recurrent(recurrent.state(), room.slots)).transpose()
        };
        self.caches = shape.layers.iter().map(cache).collect::<Result<_, _>>()?;
        self.recurrents = shape.layers.iter().map(recurrent).collect::<Result<_, _>>()?;
        self.room = room;
        Ok(())
    }

    /// What there is room for.
    pub(crate) fn room(&self) -> Room {
        self.room
    }

    /// Copies recurrent states from slot to slot, `(from, to)`, in this order.
    pub(crate) fn copy_slots(&mut self, copies: &[(SlotId, SlotId)]) {
        for (from, to) in copies {
            for recurrent in self.recurrents.iter_mut().flatten() {
                self.backend.copy_slot(recurrent, *from, *to);
            }
        }
    }

    /// Copies blocks, `(from, to)`.
    pub(crate) fn copy_blocks(&mut self, copies: &[(u32, u32)]) {
        for (from, to) in copies {
            for cache in self.caches.iter_mut().flatten() {
                self.backend.copy_block(cache, *from, *to);
            }
        }
    }

    /// The routes of the next step.
    pub(crate) fn routes(&mut self) -> &mut StepRoutes {
        &mut self.workspace.routes
    }

    /// Computes a batch; gives the consumer the logits of each row of `batch.logit_rows`, by its place there.
    ///
    /// Answers for each span whether all its new keys and values are finite. Where they are not, nobody else may use
    /// its new blocks: even tokens before the broken one multiply it with zero, which makes NaN of infinity.
    pub(crate) fn forward(&mut self, batch: &Batch, consumer: &dyn Consumer) -> Vec<bool> {
        self.forward_watched(batch, consumer, |_, _| ())
    }

    /// The same, which calls `after_layer` with the states that each layer leaves.
    fn forward_watched(
        &mut self,
        batch: &Batch,
        consumer: &dyn Consumer,
        mut after_layer: impl FnMut(&mut B, &B::States),
    ) -> Vec<bool> {
        let Self { shape, backend, parameters, caches, recurrents, workspace, angles, embeddings, .. } = self;
        let parameters = parameters.as_ref().expect("nothing is computed without weights");
        let Parameters { embedding, inputs, layers, norm, head, tower } = parameters;
        let angles = angles_of(angles, shape, batch);
        let images = parts_of(backend, tower.as_ref(), embeddings, batch);
        let mut shared = backend.begin_step(batch, angles);
        workspace.adapters.begin(&batch.spans);
        let Workspace { hidden, adapters, .. } = &mut *workspace;
        backend.embed(embedding, &batch.token_ids, shape.embedding_factor, hidden);
        adapters.add_embeddings(backend, Destination::Embedding, (&batch.token_ids, shape.embedding_factor), hidden);
        for part in &images {
            part.embed(backend, hidden);
        }
        if let Some(inputs) = inputs {
            inputs.make(backend, &batch.token_ids, workspace);
        }
        for (number, (layer, state)) in layers.iter().zip(recurrents).enumerate() {
            let cache = caches[shape.layers[number].cache().unwrap_or(number)].as_mut();
            workspace.adapters.enter(number);
            layer.mix(backend, workspace, Past { cache, state: state.as_mut() }, &mut shared);
            layer.feed_forward(backend, workspace);
            layer.finish(backend, number, workspace);
            for part in &images {
                part.add(backend, number, &mut workspace.hidden);
            }
            after_layer(backend, &workspace.hidden);
        }
        if batch.logit_rows.is_empty() {
            return backend.finite(shared);
        }
        let Workspace { hidden, input, picked, logits, adapters, .. } = &mut *workspace;
        backend.norm(hidden, norm, shape.norm, input);
        let head = head.as_ref().unwrap_or(embedding);
        for (first, rows) in (0..).step_by(LOGIT_ROWS).zip(batch.logit_rows.chunks(LOGIT_ROWS)) {
            backend.gather(input, rows, picked);
            backend.linear(picked, head, None, logits);
            adapters.add_logits(backend, rows, picked, logits);
            backend.hand_on(logits, first, shape.logits, consumer);
        }
        backend.finite(shared)
    }
}

impl<B: Backend> Parameters<B> {
    fn zeros(backend: &B, shape: &ModelShape) -> Result<Self, NoRoom> {
        let matrix = || backend.matrix(shape.vocab_size, shape.hidden);
        let layer = |layer| Layer::zeros(backend, shape, layer);
        Ok(Self {
            embedding: matrix()?,
            inputs: shape.inputs.map(|inputs| Inputs::zeros(backend, shape, inputs)).transpose()?,
            layers: shape.layers.iter().map(layer).collect::<Result<_, _>>()?,
            norm: backend.vector(shape.hidden)?,
            head: (!shape.tied).then(matrix).transpose()?,
            tower: shape.images.as_ref().map(|images| Tower::zeros(backend, images)).transpose()?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests;
