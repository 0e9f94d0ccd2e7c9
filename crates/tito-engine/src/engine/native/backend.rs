//! What a model asks of the device that it runs on.
//!
//! Owns the shape of a batch and the list of operations. Refuses to say how a device lays anything out: matrices,
//! activations and caches are the backend's own types.

use std::{ops::Range, sync::Arc};

pub(crate) use super::consumer::{AfterBlocks, Consumer, RowDraws};
pub(crate) use super::gates::{Gate, Xielu};
pub(crate) use super::shapes::{
    AttentionShape, CacheShape, HeadRange, LogitShape, NormShape, Reach, Rotation, SegmentHeads,
};
use super::{
    images::SequenceImages,
    recurrence::{ConvolutionShape, GatedNormShape, RecurrenceShape, RecurrentShape, SlotId},
    routing::{ExpertShape, Experts, Leaning, Routing},
    weights::{Rows, WeightsError},
};
use crate::{TokenId, engine::WeightDtype, sampling::Drawn};

/// Tokens of a block of keys and values.
pub(crate) const BLOCK_TOKENS: usize = 32;

/// The new tokens of one sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// The row of the first new token; those of the others follow.
    pub(crate) first_row: usize,
    /// How many tokens there are; at least one.
    pub(crate) tokens: usize,
    /// The position of the first new token, which is how many tokens of the sequence are in the cache.
    pub(crate) first_position: usize,
    /// The blocks of the sequence, from its first position to at least its last new one.
    pub(crate) blocks: Vec<u32>,
    /// The slot of its recurrent state, which counts as zero at its first position; 0 in a model without such states.
    pub(crate) slot: SlotId,
    /// The slot of the adapter that its rows go through; `None` for the base.
    pub(crate) adapter: Option<usize>,
    /// Slots that the state is to be copied to once so many tokens of the sequence are computed, ascending; all are new ones.
    pub(crate) snapshots: Vec<(usize, SlotId)>,
}

/// What a step computes: one row for each new token of any sequence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The id of each row.
    pub(crate) token_ids: Vec<TokenId>,
    /// The sequences, in the order of their rows.
    pub(crate) spans: Vec<Span>,
    /// The rows of which logits are wanted, ascending.
    pub(crate) logit_rows: Vec<usize>,
    /// The images of sequences that have some, by the number of the span, ascending.
    pub(crate) images: Vec<(usize, Arc<SequenceImages>)>,
}

/// What is done to the queries, keys and values of every row between their product and attention, in this order: norms of
/// heads, a rotation, and the writing of keys and values to the cache.
pub(crate) struct HeadPreparation<'a, V> {
    /// Heads of queries, which come first in a row; keys and values follow.
    pub(crate) heads: usize,
    /// Heads of keys, of as many values, and the numbers of each head.
    pub(crate) kept: CacheShape,
    /// The weights of the norm of each head of queries, and of keys.
    pub(crate) norms: [Option<&'a V>; 2],
    pub(crate) norm: NormShape,
    /// The rotation of all queries and keys.
    pub(crate) rotation: Rotation,
}

/// What a recurrence has learnt, in vectors of the backend.
pub(crate) struct Learnt<'a, V> {
    /// For each head the logarithm of how fast it decays.
    pub(crate) decay: &'a V,
    /// What is added to each step.
    pub(crate) bias: &'a V,
    /// For each head how much of a value goes straight to the output.
    pub(crate) skip: Option<&'a V>,
}

/// Cosines and sines: one of each for every pair of numbers of a head that is rotated, row by row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Angles {
    /// Cosines, row by row.
    pub(crate) cosines: Vec<f32>,
    /// Sines, row by row.
    pub(crate) sines: Vec<f32>,
}

/// A device has no room for what was asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system has no room for as much")]
pub(crate) struct NoRoom;

impl From<NoRoom> for WeightsError {
    fn from(NoRoom: NoRoom) -> Self {
        Self::NoRoom
    }
}

/// What all experts of a mixture are computed with.
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU takes a mixture"))]
pub(crate) struct MixtureBuffers<'a, B: Backend + ?Sized> {
    /// Gates and ups of all rows of all experts.
    pub(crate) wide: &'a mut B::States,
    /// What comes out of the gates.
    pub(crate) gated: &'a mut B::Operand,
    /// What the experts give.
    pub(crate) out: &'a mut B::States,
}

/// Prepares heads by the operations of a backend, one after the other.
pub(crate) fn prepare_one_by_one<B: Backend + ?Sized>(
    backend: &mut B,
    states: &mut B::States,
    preparation: &HeadPreparation<'_, B::Vector>,
    cache: &mut B::Cache,
    shared: &mut B::StepShared,
) {
    let HeadPreparation { heads, kept, norms, norm, rotation } = *preparation;
    for (weight, (first, count)) in norms.into_iter().zip([(0, heads), (heads, kept.heads)]) {
        if let Some(weight) = weight {
            backend.head_norm(states, HeadRange { first, count, width: kept.head_dim }, weight, norm);
        }
    }
    backend.rotate(states, rotation, shared);
    backend.write_cache(states, heads * kept.head_dim, cache, shared);
}

/// A device, and its memory.
///
/// *States* are rows of numbers in f32; an *operand* is what matrices are multiplied with, rounded to their precision.
/// On the processor, and elsewhere where a backend is told so, every operation gives the same bits for a row whatever
/// other rows are there.
pub(crate) trait Backend: Send + 'static {
    /// A weight matrix.
    type Matrix: Send;
    /// A vector of weights: a norm or a bias.
    type Vector: Send;
    /// The numbers of a matrix, in the system's memory.
    type Saved: Send;
    /// Rows of f32.
    type States: Send + Default;
    /// Rows in the precision of the matrices.
    type Operand: Send;
    /// Keys and values of one layer.
    type Cache: Send;
    /// Recurrent states of one layer, in slots.
    type Recurrent: Send;
    /// What all layers of a step share.
    type StepShared;
    /// The experts that rows go through, where the backend chooses them.
    type Chosen;
    /// A step that was begun and not waited for.
    type Underway;

    /// Is called by each thread that works with the backend, before all else.
    fn enter_thread(&self) {}
    /// Has the system get back what was freed, as far as anybody keeps it for later.
    fn return_freed_memory(&self) {}
    /// A matrix of zeros, `outputs` rows of `inputs` numbers.
    fn matrix(&self, outputs: usize, inputs: usize) -> Result<Self::Matrix, NoRoom>;
    /// Likewise, for an adapter, which may be held in more than weights are.
    fn adapter_matrix(&self, outputs: usize, inputs: usize) -> Result<Self::Matrix, NoRoom> {
        self.matrix(outputs, inputs)
    }
    /// Overwrites rows of a matrix from `first` on with all of `rows`.
    fn write_rows(&mut self, matrix: &mut Self::Matrix, first: usize, rows: &dyn Rows) -> Result<(), WeightsError>;
    /// A vector of zeros.
    fn vector(&self, len: usize) -> Result<Self::Vector, NoRoom>;
    /// Overwrites numbers of a vector from `first` on.
    fn write_vector(&mut self, vector: &mut Self::Vector, first: usize, numbers: &[f32]) -> Result<(), NoRoom>;
    /// The type in which matrices hold their numbers.
    fn dtype(&self) -> WeightDtype;
    /// The bytes that a copy of a matrix takes.
    fn matrix_bytes(&self, matrix: &Self::Matrix) -> u64;
    /// Copies a matrix.
    fn save(&mut self, matrix: &Self::Matrix) -> Result<Self::Saved, NoRoom>;
    /// Keeps what a matrix holds, all rows of which are about to be overwritten: it may hold anything afterwards.
    fn set_aside(&mut self, matrix: &mut Self::Matrix) -> Result<Self::Saved, NoRoom> {
        self.save(matrix)
    }
    /// Overwrites a matrix with a copy of it.
    fn put_back(&mut self, matrix: &mut Self::Matrix, saved: Self::Saved) -> Result<(), NoRoom>;
    /// Reads some rows of a matrix, one after the other, little-endian in the [type](Self::dtype) of matrices.
    fn read_rows(&mut self, matrix: &Self::Matrix, rows: Range<usize>, out: &mut [u8]) -> Result<(), NoRoom>;
    /// Whether numbers of a matrix whose rows were [written](Self::write_rows) can be [exchanged](Self::exchange).
    fn exchanges(&self) -> bool {
        false
    }
    /// Exchanges numbers of a matrix, little-endian in the [type](Self::dtype) of matrices, with those that are given. The
    /// places ascend, and are counted row by row from the beginning of row `first` on. `false` where this backend cannot
    /// reach single numbers; nothing has changed then.
    fn exchange(&mut self, _matrix: &mut Self::Matrix, _first: usize, _places: &[u32], _numbers: &mut [u8]) -> bool {
        false
    }
    /// The numbers of a vector.
    fn read_vector(&self, vector: &Self::Vector) -> Vec<f32>;
    /// The bytes that a copy of a vector takes.
    fn vector_bytes(&self, vector: &Self::Vector) -> u64;
    /// An operand without rows.
    fn operand(&self) -> Self::Operand;
    /// A cache with room for `blocks` blocks.
    fn cache(&self, shape: CacheShape, blocks: usize) -> Result<Self::Cache, NoRoom>;
    /// The memory of a block of one layer, in bytes.
    fn block_bytes(&self, shape: CacheShape) -> usize;
    /// Copies a block.
    fn copy_block(&mut self, cache: &mut Self::Cache, from: u32, to: u32);
    /// Room for recurrent states in so many slots.
    fn recurrent(&self, shape: RecurrentShape, slots: usize) -> Result<Self::Recurrent, NoRoom>;
    /// Copies a slot.
    fn copy_slot(&mut self, recurrent: &mut Self::Recurrent, from: SlotId, to: SlotId);

    /// Looks up one row of `table` for each id, times `factor`.
    fn embed(&mut self, table: &Self::Matrix, token_ids: &[TokenId], factor: f32, out: &mut Self::States);
    /// The norm of every row.
    fn norm(&mut self, states: &Self::States, weight: &Self::Vector, norm: NormShape, out: &mut Self::Operand);
    /// Normalises each of some heads of every row in place. The weights are those of one head, which all of them have, or
    /// those of all of them one after the other.
    fn head_norm(&mut self, states: &mut Self::States, heads: HeadRange, weight: &Self::Vector, norm: NormShape);
    /// Some columns of every row as they are, in the precision of the matrices.
    fn round(&mut self, states: &Self::States, columns: Range<usize>, out: &mut Self::Operand);
    /// Makes as many rows of so many zeros.
    fn zeros(&mut self, like: &Self::States, columns: usize, out: &mut Self::States);
    /// Writes some columns of every row of `from` over those of `to` from `first` on.
    fn place(&mut self, from: &Self::States, columns: Range<usize>, to: &mut Self::States, first: usize);
    /// Copies some columns of every row.
    fn pick(&mut self, input: &Self::Operand, columns: Range<usize>, out: &mut Self::Operand);
    /// Multiplies some columns of every row by a factor.
    fn scale(&mut self, states: &mut Self::States, columns: Range<usize>, factor: f32);
    /// Adds every row of `from`, times `factor`, to that of `to`.
    fn add(&mut self, from: &Self::States, factor: f32, to: &mut Self::States);
    /// `matrix * row (+ bias)` for every row.
    fn linear(
        &mut self,
        input: &Self::Operand,
        matrix: &Self::Matrix,
        bias: Option<&Self::Vector>,
        out: &mut Self::States,
    );
    /// Adds `matrix * row (+ bias)` to every row of `out`.
    fn add_linear(
        &mut self,
        input: &Self::Operand,
        matrix: &Self::Matrix,
        bias: Option<&Self::Vector>,
        out: &mut Self::States,
    );
    /// Prepares a step over a batch whose rows have these angles.
    fn begin_step(&mut self, batch: &Batch, angles: Vec<Angles>) -> Self::StepShared;
    /// Has `compute` compute the layers of a step, all of whose operations and their arguments follow from the step's shape,
    /// while memory stays where it is. A backend may launch what they did in a step of the same shape, and not call it.
    fn repeat(&mut self, shared: &mut Self::StepShared, compute: &mut dyn FnMut(&mut Self, &mut Self::StepShared)) {
        compute(self, shared);
    }
    /// Rotates heads of every row.
    fn rotate(&mut self, states: &mut Self::States, rotation: Rotation, shared: &Self::StepShared);
    /// Writes the keys and values of all new tokens: those of a row begin at number `first`.
    fn write_cache(
        &mut self,
        states: &Self::States,
        first: usize,
        cache: &mut Self::Cache,
        shared: &mut Self::StepShared,
    );
    /// Has every row attend; its queries come first in it. `sinks` has a score for each head of queries, which takes
    /// weight from the keys and adds no value.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn attend(
        &mut self,
        states: &Self::States,
        cache: &Self::Cache,
        shape: AttentionShape,
        sinks: Option<&Self::Vector>,
        shared: &Self::StepShared,
        out: &mut Self::Operand,
    );
    /// Prepares queries, keys and values of all rows, and then has every row attend; nothing of `states` may be read after it. A
    /// backend that has no single operation for it does one after the other.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn prepare_and_attend(
        &mut self,
        states: &mut Self::States,
        preparation: &HeadPreparation<'_, Self::Vector>,
        cache: &mut Self::Cache,
        shape: AttentionShape,
        sinks: Option<&Self::Vector>,
        shared: &mut Self::StepShared,
        out: &mut Self::Operand,
    ) {
        prepare_one_by_one(self, states, preparation, cache, shared);
        self.attend(states, cache, shape, sinks, shared, out);
    }
    /// Convolves columns of every row with those of the tokens before, which a recurrent state keeps, in place. The weight
    /// has for each channel the factors of its tokens, the present one's last.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn convolve(
        &mut self,
        states: &mut Self::States,
        weight: &Self::Vector,
        bias: Option<&Self::Vector>,
        shape: ConvolutionShape,
        recurrent: &mut Self::Recurrent,
        shared: &mut Self::StepShared,
    );
    /// Has every token change its sequence's recurrent state, and writes what all heads read of it to `out`.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn recur(
        &mut self,
        states: &Self::States,
        learnt: Learnt<'_, Self::Vector>,
        shape: &RecurrenceShape,
        recurrent: &mut Self::Recurrent,
        shared: &mut Self::StepShared,
        out: &mut Self::States,
    );
    /// Normalises groups of every row and multiplies them by gates, which are columns of `gates`. A weight is for as many
    /// numbers as it has, and then for the next ones; without it there is no norm.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn gated_norm(
        &mut self,
        states: &Self::States,
        gates: &Self::States,
        weight: Option<&Self::Vector>,
        shape: GatedNormShape,
        out: &mut Self::Operand,
    );
    /// Multiplies every number by the sigmoid of its gate.
    fn open(&mut self, gates: &Self::States, out: &mut Self::Operand);
    /// Multiplies columns of every row, from `first` on, by others of them.
    fn multiply_columns(&mut self, states: &mut Self::States, by: Range<usize>, first: usize);
    /// Begins to bring what [`finite`](Self::finite) tells, so that it comes while logits are computed. The layers of the step
    /// are computed then.
    fn bring_finite(&mut self, _shared: &mut Self::StepShared) {}
    /// For each span of the batch whether all keys and values that the step wrote of it are finite, and its recurrent state.
    fn finite(&mut self, shared: Self::StepShared) -> Vec<bool>;
    /// Makes `width` numbers of every row, which holds as many gates and ups, or just as many numbers.
    fn gate(&mut self, states: &Self::States, gate: Gate, width: usize, out: &mut Self::Operand);
    /// Copies the rows that `picks` lists.
    fn gather(&mut self, input: &Self::Operand, picks: &[usize], out: &mut Self::Operand);
    /// Adds row `i` of `from`, times its weight, to the row of `to` that `picks[i]` names.
    fn add_scaled(&mut self, from: &Self::States, picks: &[(usize, f32)], to: &mut Self::States);
    /// Whether this backend chooses experts by itself and computes all of them at once. Where it does not, it is told of one
    /// expert after the other.
    fn takes_mixture(&self, _routing: Routing, _experts: ExpertShape) -> bool {
        false
    }
    /// Chooses the experts of all rows by their scores, as [`choose`](super::routing::choose) does.
    fn choose_experts(
        &mut self,
        _scores: &Self::States,
        _routing: Routing,
        _leaning: Leaning<'_, Self::Vector>,
    ) -> Self::Chosen {
        unreachable!("this backend takes no mixture")
    }
    /// The experts of all rows, row by row, from the best to the worst of each.
    fn read_chosen(&mut self, _chosen: &Self::Chosen) -> Vec<u32> {
        unreachable!("this backend takes no mixture")
    }
    /// Adds to every row of `sum` what its experts make of the input, each times its weight and the factor, in the order of
    /// their numbers.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn add_experts(
        &mut self,
        _input: &Self::Operand,
        _chosen: &Self::Chosen,
        _experts: &Experts<'_, Self::Matrix, Self::Vector>,
        _factor: f32,
        _buffers: MixtureBuffers<'_, Self>,
        _sum: &mut Self::States,
    ) {
        unreachable!("this backend takes no mixture")
    }
    /// Makes rows of so many numbers of the host's.
    fn put(&mut self, _numbers: &[f32], _columns: usize, _out: &mut Self::States) {
        unreachable!("this backend reads no images")
    }
    /// Overwrites rows, from `first` on, with numbers of the host's.
    fn put_rows(&mut self, _numbers: &[f32], _first: usize, _to: &mut Self::States) {
        unreachable!("this backend reads no images")
    }
    /// Adds numbers of the host's to rows, from `first` on.
    fn add_rows(&mut self, _numbers: &[f32], _first: usize, _to: &mut Self::States) {
        unreachable!("this backend reads no images")
    }
    /// Adds a vector to every row.
    fn add_vector(&mut self, _vector: &Self::Vector, _to: &mut Self::States) {
        unreachable!("this backend reads no images")
    }
    /// Multiplies every row by a vector, number by number.
    fn multiply_vector(&mut self, _vector: &Self::Vector, _to: &mut Self::States) {
        unreachable!("this backend reads no images")
    }
    /// Makes one row of every `count` rows.
    fn join(&mut self, _from: &Self::States, _count: usize, _to: &mut Self::States) {
        unreachable!("this backend reads no images")
    }
    /// The same, but with the first numbers of all these rows beside one another, then their second ones, and so on.
    fn interleave(&mut self, _from: &Self::States, _count: usize, _to: &mut Self::States) {
        unreachable!("this backend joins rows one after the other")
    }
    /// Has every row attend to all rows of its segment, also to later ones. A row holds the queries of all heads, then their
    /// keys, then their values.
    fn attend_within(
        &mut self,
        _states: &Self::States,
        _shape: SegmentHeads,
        _segments: &[Range<usize>],
        _out: &mut Self::Operand,
    ) {
        unreachable!("this backend reads no images")
    }
    /// Exchanges the threads that compute with those of another backend, where the system's threads do.
    fn swap_threads(&mut self, _other: &mut Self) {}
    /// The first `columns` numbers of all rows, on the host, row by row.
    fn read(&mut self, states: &Self::States, columns: usize) -> Vec<f32>;
    /// Makes logits of what the head gave, in place, and hands all rows on; the consumer's number of the first is `first`.
    fn hand_on(&mut self, logits: &mut Self::States, first: usize, shape: LogitShape, consumer: &dyn Consumer);
    /// Whether steps can be [begun](Self::leave_underway) whose tokens the host does not wait for.
    fn goes_ahead(&self) -> bool {
        false
    }
    /// Looks up one row of `table` for each of some tokens that the step begun last draws, each given by its row of logits,
    /// times `factor`.
    fn embed_drawn(&mut self, _table: &Self::Matrix, _rows: &[usize], _factor: f32, _out: &mut Self::States) {
        unreachable!("this backend waits for all tokens")
    }
    /// Makes logits of what the head gave, in place, and begins to draw a token of each row.
    fn begin_draws(
        &mut self,
        _logits: &mut Self::States,
        _shape: LogitShape,
        _draws: RowDraws<'_>,
        _shared: &mut Self::StepShared,
    ) {
        unreachable!("this backend waits for all tokens")
    }
    /// Leaves a step to itself, all of which was begun. Another one may be begun before this one [lands](Self::land).
    fn leave_underway(&mut self, _shared: Self::StepShared) -> Self::Underway {
        unreachable!("this backend waits for all tokens")
    }
    /// Waits for the step that was begun first: what it drew of each row of logits; and what [`finite`](Self::finite) says of it.
    fn land(&mut self, _underway: Self::Underway) -> (Vec<Drawn>, Vec<bool>) {
        unreachable!("this backend waits for all tokens")
    }
}
