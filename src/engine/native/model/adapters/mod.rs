//! Adapters: what they add to weight matrices, for the rows of a step that ask for it.
//!
//! An adapter has two thin matrices for a weight matrix that it changes. A row of the base costs nothing. The rows of an
//! adapter are gathered, go through both of its matrices, and what comes out is added to what the weight matrix gave. So
//! each of them is computed as if it were alone, and its bits do not depend on who else is in the step.
//!
//! Owns the thin matrices, in *slots*, and which rows of a step belong to which. Refuses to know which adapters there are
//! and when one moves into a slot: that is the scheduler's.

mod thin;

use std::collections::BTreeMap;

use self::thin::Thin;
pub(super) use self::thin::{AddedModule, Addition};
use super::destinations::{Destination, InLayer};
use crate::engine::native::{
    backend::{Backend, NoRoom, Span},
    weights::WeightsError,
};

/// The number of a place for an adapter.
pub(crate) type AdapterSlot = usize;

/// A weight matrix that adapters may change, and how they find it.
pub(super) struct Weight<B: Backend> {
    pub(super) matrix: B::Matrix,
    place: InLayer,
}

impl<B: Backend> Weight<B> {
    /// A matrix of zeros.
    pub(super) fn zeros(backend: &B, place: InLayer, outputs: usize, inputs: usize) -> Result<Self, NoRoom> {
        Ok(Self { matrix: backend.matrix(outputs, inputs)?, place })
    }
}

/// The adapters in their slots, and the rows of the present step.
pub(super) struct Adapters<B: Backend> {
    slots: Vec<Option<Loaded<B>>>,
    groups: Vec<Group>,
    /// The layer that is being computed.
    layer: usize,
    gathered: B::Operand,
    narrow: B::States,
    rounded: B::Operand,
    added: B::States,
}

/// An adapter in its slot.
struct Loaded<B: Backend> {
    layers: Vec<BTreeMap<InLayer, Thin<B>>>,
}

/// The rows of a step that go through one adapter.
#[derive(Debug, Default, PartialEq, Eq)]
struct Group {
    slot: AdapterSlot,
    rows: Vec<usize>,
    /// Whether they are all rows of the step.
    is_whole: bool,
}

impl<B: Backend> Adapters<B> {
    pub(super) fn new(backend: &B) -> Self {
        Self {
            slots: Vec::new(),
            groups: Vec::new(),
            layer: 0,
            gathered: backend.operand(),
            narrow: B::States::default(),
            rounded: backend.operand(),
            added: B::States::default(),
        }
    }

    /// Puts an adapter into a slot, in the place of whichever was there.
    pub(super) fn put(
        &mut self,
        backend: &mut B,
        slot: AdapterSlot,
        additions: Vec<Addition<'_>>,
    ) -> Result<(), WeightsError> {
        // Its memory is given back before the next one takes as much.
        self.clear(slot);
        let mut loaded = Loaded { layers: Vec::new() };
        for addition in additions {
            let Destination::Layer(layer, place) = addition.whole else {
                unreachable!("adapters change matrices of layers")
            };
            if loaded.layers.len() <= layer {
                loaded.layers.resize_with(layer + 1, BTreeMap::new);
            }
            loaded.layers[layer].insert(place, Thin::make(backend, &addition)?);
        }
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some(loaded);
        Ok(())
    }

    /// Gives the memory of a slot back.
    pub(super) fn clear(&mut self, slot: AdapterSlot) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = None;
        }
    }

    /// Begins a step over these sequences.
    pub(super) fn begin(&mut self, spans: &[Span]) {
        self.groups = groups(spans);
    }

    /// Comes to the layer of this number.
    pub(super) fn enter(&mut self, layer: usize) {
        self.layer = layer;
    }

    /// `weight * row (+ bias)` for every row, and what the row's adapter adds.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    pub(super) fn linear(
        &mut self,
        backend: &mut B,
        input: &B::Operand,
        weight: &Weight<B>,
        bias: Option<&B::Vector>,
        out: &mut B::States,
    ) {
        backend.linear(input, &weight.matrix, bias, out);
        self.add(backend, weight.place, input, out);
    }

    /// Adds the same to every row of `out`.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    pub(super) fn add_linear(
        &mut self,
        backend: &mut B,
        input: &B::Operand,
        weight: &Weight<B>,
        bias: Option<&B::Vector>,
        out: &mut B::States,
    ) {
        backend.add_linear(input, &weight.matrix, bias, out);
        self.add(backend, weight.place, input, out);
    }

    fn add(&mut self, backend: &mut B, place: InLayer, input: &B::Operand, out: &mut B::States) {
        let Self { slots, groups, layer, gathered, narrow, rounded, added } = self;
        for group in groups {
            let loaded = slots[group.slot].as_ref().expect("an adapter is in its slot before a row asks for it");
            let Some(thin) = loaded.layers.get(*layer).and_then(|layer| layer.get(&place)) else { continue };
            if group.is_whole {
                thin.multiply(backend, input, (narrow, rounded), added);
                backend.add(added, thin.factor, out);
            } else {
                backend.gather(input, &group.rows, gathered);
                thin.multiply(backend, gathered, (narrow, rounded), added);
                let picks: Vec<(usize, f32)> = group.rows.iter().map(|row| (*row, thin.factor)).collect();
                backend.add_scaled(added, &picks, out);
            }
        }
    }
}

/// The rows of each adapter, in the order of the slots.
fn groups(spans: &[Span]) -> Vec<Group> {
    let mut rows: BTreeMap<AdapterSlot, Vec<usize>> = BTreeMap::new();
    for span in spans {
        if let Some(slot) = span.adapter {
            rows.entry(slot).or_default().extend(span.first_row..span.first_row + span.tokens);
        }
    }
    let all: usize = spans.iter().map(|span| span.tokens).sum();
    rows.into_iter().map(|(slot, rows)| Group { slot, is_whole: rows.len() == all, rows }).collect()
}
