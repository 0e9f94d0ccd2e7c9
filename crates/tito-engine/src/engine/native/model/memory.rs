//! What a model holds: its weights, its cache of keys and values, its recurrent states.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    adapter_sites::AdapterSites,
    angles::KnownAngles,
    inputs::Inputs,
    layer::Layer,
    routes::StepRoutes,
    shape::{LayerShape, ModelShape},
    tensor::Tensor,
    tensors::Tensors,
    tower::{Embeddings, Tower},
    workspace::Workspace,
};
use crate::engine::{
    WeightDtype,
    native::{
        backend::{Backend, NoRoom},
        recurrence::SlotId,
    },
};

/// A model on a backend, with its cache of keys and values.
pub(crate) struct Model<B: Backend> {
    pub(super) shape: ModelShape,
    pub(super) backend: B,
    pub(super) tensors: Arc<Tensors>,
    pub(super) adapter_sites: Arc<AdapterSites>,
    /// `None` while their memory is given back.
    pub(super) parameters: Option<Parameters<B>>,
    /// Whether all layers [follow from the shape of a step](Layer::follows_from_shape).
    pub(super) follows_from_shape: bool,
    /// Tensors that are to be written before anything can be computed.
    pub(super) lacking: BTreeSet<String>,
    /// The layers after the last one that are known to predict further tokens.
    pub(super) predicting: BTreeSet<usize>,
    /// Keys and values of each layer that makes its own.
    pub(super) caches: Vec<Option<B::Cache>>,
    /// The recurrent states of each layer that has some.
    pub(super) recurrents: Vec<Option<B::Recurrent>>,
    pub(super) room: Room,
    pub(super) workspace: Workspace<B>,
    /// For each way of rotating, the angles of positions so far.
    pub(super) angles: Vec<KnownAngles>,
    /// What the tower made of images, with the present weights.
    pub(super) embeddings: Embeddings,
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
pub(super) struct Parameters<B: Backend> {
    pub(super) embedding: B::Matrix,
    pub(super) inputs: Option<Inputs<B>>,
    pub(super) layers: Vec<Layer<B>>,
    pub(super) norm: B::Vector,
    /// The head; `None` where the embeddings are the head too.
    pub(super) head: Option<B::Matrix>,
    /// What reads images, where the model does.
    pub(super) tower: Option<Tower<B>>,
}

impl<B: Backend> Model<B> {
    /// The type in which a tensor is held.
    pub(super) fn dtype(&self, tensor: &Tensor) -> WeightDtype {
        if tensor.is_vector() { WeightDtype::F32 } else { self.backend.dtype() }
    }

    /// The bytes of a tensor in that type.
    pub(super) fn held_bytes(&self, tensor: &Tensor) -> u64 {
        (tensor.numbers() * self.dtype(tensor).size()) as u64
    }

    /// Whether tokens of an image attend to all of it, also to later ones.
    pub(crate) fn sees_images_both_ways(&self) -> bool {
        self.shape.images.as_ref().is_some_and(|images| images.both_ways)
    }

    /// The arithmetic.
    pub(crate) fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The matrices that adapters can change.
    pub(crate) fn adapter_sites(&self) -> &Arc<AdapterSites> {
        &self.adapter_sites
    }

    /// Has another backend compute with this one's threads, and this one with the other's.
    pub(crate) fn swap_threads(&mut self, other: &mut B) {
        self.backend.swap_threads(other);
    }

    /// Is called by each thread that works with the model, before all else.
    pub(crate) fn enter_thread(&self) {
        self.backend.enter_thread();
    }

    /// What computes.
    pub(crate) fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
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

    /// Makes room for blocks of keys and values and for recurrent states; whatever was cached is gone. Where there is no
    /// room for all of them, none is there afterwards, so that another try cannot take a part for the whole.
    pub(crate) fn allocate_cache(&mut self, room: Room) -> Result<(), NoRoom> {
        self.discard_cache();
        let Self { shape, backend, .. } = self;
        let cache = |layer: &LayerShape| {
            layer.keeping().map(|attention| backend.cache(attention.kept, room.blocks)).transpose()
        };
        let recurrent = |layer: &LayerShape| {
            layer.recurrent.as_ref().map(|recurrent| backend.recurrent(recurrent.state(), room.slots)).transpose()
        };
        let caches = shape.layers.iter().map(cache).collect::<Result<_, _>>()?;
        let recurrents = shape.layers.iter().map(recurrent).collect::<Result<_, _>>()?;
        (self.caches, self.recurrents, self.room) = (caches, recurrents, room);
        Ok(())
    }
}

impl<B: Backend> Parameters<B> {
    pub(super) fn zeros(backend: &B, shape: &ModelShape) -> Result<Self, NoRoom> {
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
