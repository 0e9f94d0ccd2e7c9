//! Adapters: what they add to weight matrices, for the rows of a step that ask for it.
//!
//! An adapter has two thin matrices for a weight matrix that it changes. A row of the base costs nothing. The rows of
//! an adapter are gathered and go through both of its matrices. The result is added to the output of the weight matrix.
//! So each row is computed as if it were alone, and its bits do not depend on other rows of the step.
//!
//! Owns the thin matrices, in *slots*, and which rows of a step belong to which. Refuses to know which adapters there are
//! and when one moves into a slot: that is the scheduler's.

mod thin;

use std::collections::BTreeMap;

pub(super) use self::thin::{AddedModule, Addition, Form, Places};
use self::thin::{Putting, Thin, ThinMatrices};
use super::destinations::{Destination, InLayer};
use crate::{
    TokenId,
    engine::native::{
        backend::{Backend, NoRoom, Span},
        weights::WeightsError,
    },
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
    buffers: Buffers<B>,
}

/// What thin products are computed with.
struct Buffers<B: Backend> {
    gathered: B::Operand,
    narrow: B::States,
    rounded: B::Operand,
    added: B::States,
}

/// An adapter in its slot.
struct Loaded<B: Backend> {
    matrices: ThinMatrices<B>,
    /// By the matrices that they change.
    thin: BTreeMap<Destination, Thin>,
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
        let buffers = Buffers {
            gathered: backend.operand(),
            narrow: B::States::default(),
            rounded: backend.operand(),
            added: B::States::default(),
        };
        Self { slots: Vec::new(), groups: Vec::new(), layer: 0, buffers }
    }

    /// Puts an adapter into a slot, in the place of whichever was there.
    pub(super) fn put(
        &mut self,
        backend: &mut B,
        slot: AdapterSlot,
        additions: &[Addition<'_>],
    ) -> Result<(), WeightsError> {
        // Its memory is given back before the next one takes as much.
        self.clear(slot);
        let mut putting = Putting::new(backend);
        let thin = additions.iter().map(|addition| Ok((addition.whole, putting.put(addition)?)));
        let thin = thin.collect::<Result<_, WeightsError>>()?;
        let matrices = putting.done();
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some(Loaded { matrices, thin });
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
        self.add(backend, Destination::Layer(self.layer, weight.place), input, out);
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
        self.add(backend, Destination::Layer(self.layer, weight.place), input, out);
    }

    /// Adds to every row of `out` what its adapter adds to `matrix * row`.
    pub(super) fn add(&mut self, backend: &mut B, matrix: Destination, input: &B::Operand, out: &mut B::States) {
        add(backend, (&self.slots, &self.groups), matrix, input, (&mut self.buffers, out));
    }

    /// Adds to logits of some rows of the step what each row's adapter adds. `input` has these rows only.
    pub(super) fn add_logits(&mut self, backend: &mut B, rows: &[usize], input: &B::Operand, logits: &mut B::States) {
        let chosen: Vec<Group> = self.groups.iter().filter_map(|group| group.among(rows)).collect();
        add(backend, (&self.slots, &chosen), Destination::Head, input, (&mut self.buffers, logits));
    }

    /// Adds to the embedding of every token what the token's adapter adds, times the factor of embeddings.
    pub(super) fn add_embeddings(
        &mut self,
        backend: &mut B,
        table: Destination,
        (token_ids, factor): (&[TokenId], f32),
        out: &mut B::States,
    ) {
        let Self { slots, groups, buffers: Buffers { narrow, rounded, added, .. }, .. } = self;
        for (group, loaded, thin) in changing(slots, groups, table) {
            let token_ids: Vec<TokenId> = group.rows.iter().map(|row| token_ids[*row]).collect();
            loaded.matrices.embed(backend, thin, &token_ids, (narrow, rounded, added));
            backend.add_scaled(added, &group.picks(factor * thin.factor), out);
        }
    }
}

impl Group {
    /// The rows of the group that are among these, by their places there; `None` if none is.
    fn among(&self, chosen: &[usize]) -> Option<Self> {
        let places = chosen.iter().enumerate().filter(|(_, row)| self.rows.binary_search(row).is_ok());
        let rows: Vec<usize> = places.map(|(place, _)| place).collect();
        let (slot, is_whole) = (self.slot, rows.len() == chosen.len());
        (!rows.is_empty()).then_some(Self { slot, rows, is_whole })
    }

    fn picks(&self, factor: f32) -> Vec<(usize, f32)> {
        self.rows.iter().map(|row| (*row, factor)).collect()
    }
}

/// The groups whose adapter changes a matrix.
fn changing<'a, B: Backend>(
    slots: &'a [Option<Loaded<B>>],
    groups: &'a [Group],
    matrix: Destination,
) -> impl Iterator<Item = (&'a Group, &'a Loaded<B>, &'a Thin)> {
    groups.iter().filter_map(move |group| {
        let loaded = slots[group.slot].as_ref().expect("an adapter is in its slot before a row asks for it");
        loaded.thin.get(&matrix).map(|thin| (group, loaded, thin))
    })
}

fn add<B: Backend>(
    backend: &mut B,
    (slots, groups): (&[Option<Loaded<B>>], &[Group]),
    matrix: Destination,
    input: &B::Operand,
    (Buffers { gathered, narrow, rounded, added }, out): (&mut Buffers<B>, &mut B::States),
) {
    for (group, loaded, thin) in changing(slots, groups, matrix) {
        if group.is_whole {
            loaded.matrices.multiply(backend, thin, input, (narrow, rounded, added));
            backend.add(added, thin.factor, out);
        } else {
            backend.gather(input, &group.rows, gathered);
            loaded.matrices.multiply(backend, thin, gathered, (narrow, rounded, added));
            backend.add_scaled(added, &group.picks(thin.factor), out);
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
