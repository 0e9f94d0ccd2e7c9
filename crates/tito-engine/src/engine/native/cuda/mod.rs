//! Models on a device of candle's: a GPU, or for its tests the processor.
//!
//! Owns the operations of [`Backend`] as a few large tensor operations. Nearly all of it is the same code on every
//! device. An operation that has a CUDA kernel is dispatched in one place, beside the same operation written with
//! candle's own. Tests compare the latter with the CPU engine.
//!
//! # Reproducible
//! The same requests in the same batches give the same bits. Other company may change the last bits of a row: cuBLAS
//! chooses its kernels by the number of rows. Attention in bf16 does not: a row's bits depend on its own context only.
//! `deterministic` gives every product one shape, so that company, cached prefixes and pieces of prompts change nothing;
//! that costs time. In f32 attention does depend on the longest sequence of a batch, unless `deterministic` gives every
//! row one way of it. Tests show all of it, on the processor, on an H100 and on an H200.

mod attention;
mod buffer;
mod cache;
mod cache_writes;
mod coded;
mod device;
mod draw_memory;
mod draws;
mod elementwise;
mod embedding;
#[cfg(feature = "cuda")]
mod experts;
mod failure;
mod finiteness;
mod gpu;
#[cfg(feature = "cuda")]
mod graphs;
mod host;
mod inputs;
#[cfg(feature = "cuda")]
mod kernels;
mod landings;
mod logits;
mod matrix;
#[cfg(feature = "cuda")]
mod mixture;
mod packing;
mod products;
mod reading;
#[cfg(feature = "cuda")]
mod recording;
mod recurrent;
#[cfg(any(feature = "cuda", test))]
mod schedule;
mod segments;
mod shared;
mod summaries;
#[cfg(test)]
mod tests;
mod underway;
#[cfg(test)]
#[cfg(feature = "cuda")]
mod work;

pub(crate) use self::{
    device::DeviceBackend,
    gpu::{Gpu, StepBytes},
};

use std::ops::Range;

use candle_core::{DType, Tensor};

use self::{
    buffer::{Buffer, TensorKind},
    cache::Cache,
    failure::{done, with_room},
    inputs::StepInputs,
    matrix::Matrix,
    shared::StepShared,
    underway::Underway,
};
use super::{
    backend::{
        Angles, AttentionShape, Backend, Batch, CacheShape, Consumer, Gate, HeadRange, Learnt, LogitShape, NoRoom,
        NormShape, Rotation, RowDraws, SegmentHeads,
    },
    cpu::RecurrentStore,
    recurrence::{ConvolutionShape, GatedNormShape, RecurrenceShape, RecurrentShape, SlotId},
    weights::{Rows, WeightsError},
};
#[cfg(feature = "cuda")]
use super::{
    backend::{HeadPreparation, MixtureBuffers, prepare_one_by_one},
    routing::{ExpertShape, Experts, Leaning, Routing},
};
use crate::{TokenId, engine::WeightDtype, sampling::Drawn};

/// The experts that rows go through.
#[cfg(feature = "cuda")]
type Chosen = mixture::Chosen;
#[cfg(not(feature = "cuda"))]
type Chosen = std::convert::Infallible;

impl Backend for DeviceBackend {
    type Matrix = Matrix;
    type Vector = Tensor;
    type Saved = Tensor;
    type States = Buffer;
    type Operand = Buffer;
    type Cache = Cache;
    type Recurrent = RecurrentStore;
    type StepShared = StepShared;
    type Chosen = Chosen;
    type Underway = Underway;

    #[cfg(feature = "cuda")]
    fn enter_thread(&self) {
        done(kernels::bind_to_thread(&self.device));
    }

    #[cfg(feature = "cuda")]
    fn return_freed_memory(&self) {
        done(kernels::return_freed_memory(&self.device));
    }

    fn matrix(&self, outputs: usize, inputs: usize) -> std::result::Result<Matrix, NoRoom> {
        if self.keeps_codes {
            return Ok(Matrix::Unwritten { outputs, inputs });
        }
        Matrix::zeros(self.numbers(), outputs, inputs)
    }

    fn write_rows(
        &mut self,
        matrix: &mut Matrix,
        first: usize,
        rows: &dyn Rows,
    ) -> std::result::Result<(), WeightsError> {
        let kind = TensorKind { device: &self.device, dtype: self.dtype, allocations: &self.allocations };
        matrix.prepare(kind, rows, &mut self.widened)?;
        matrix.write_rows(&mut self.processor.pool, first, rows)
    }

    fn vector(&self, len: usize) -> std::result::Result<Tensor, NoRoom> {
        self.allocations.count();
        with_room(Tensor::zeros(len, DType::F32, &self.device))
    }

    fn write_vector(&mut self, vector: &mut Tensor, first: usize, numbers: &[f32]) -> std::result::Result<(), NoRoom> {
        let numbers = with_room(Tensor::new(numbers, &self.device))?;
        done(vector.slice_set(&numbers, 0, first));
        Ok(())
    }

    fn dtype(&self) -> WeightDtype {
        if self.dtype == DType::BF16 { WeightDtype::Bf16 } else { WeightDtype::F32 }
    }

    fn matrix_bytes(&self, matrix: &Matrix) -> u64 {
        matrix.bytes()
    }

    fn save(&mut self, matrix: &Matrix) -> std::result::Result<Tensor, NoRoom> {
        matrix.save()
    }

    fn put_back(&mut self, matrix: &mut Matrix, saved: Tensor) -> std::result::Result<(), NoRoom> {
        matrix.put_back(&saved)
    }

    fn read_rows(&mut self, matrix: &Matrix, rows: Range<usize>, out: &mut [u8]) -> std::result::Result<(), NoRoom> {
        done(matrix.read_rows(rows, self.numbers(), out));
        Ok(())
    }

    fn read_vector(&self, vector: &Tensor) -> Vec<f32> {
        done(host::numbers_of(vector))
    }

    fn vector_bytes(&self, vector: &Tensor) -> u64 {
        (vector.elem_count() * DType::F32.size_in_bytes()) as u64
    }

    fn operand(&self) -> Buffer {
        Buffer::default()
    }

    fn cache(&self, shape: CacheShape, blocks: usize) -> std::result::Result<Cache, NoRoom> {
        Cache::new(self.numbers(), shape, blocks)
    }

    fn block_bytes(&self, shape: CacheShape) -> usize {
        Cache::block_bytes(self.dtype, shape)
    }

    fn copy_block(&mut self, cache: &mut Cache, from: u32, to: u32) {
        done(cache.copy_block(from, to));
    }

    fn recurrent(&self, shape: RecurrentShape, slots: usize) -> std::result::Result<RecurrentStore, NoRoom> {
        RecurrentStore::new(shape, slots)
    }

    fn copy_slot(&mut self, recurrent: &mut RecurrentStore, from: SlotId, to: SlotId) {
        recurrent.copy(from, to);
    }

    fn embed(&mut self, table: &Matrix, token_ids: &[TokenId], factor: f32, out: &mut Buffer) {
        done(self.sent_ids(token_ids).and_then(|ids| self.look_up(table, &ids, factor, out)));
    }

    fn embed_drawn(&mut self, table: &Matrix, rows: &[usize], factor: f32, out: &mut Buffer) {
        done(self.drawn_ids(rows).and_then(|ids| self.look_up(table, &ids, factor, out)));
    }

    fn norm(&mut self, states: &Buffer, weight: &Tensor, norm: NormShape, out: &mut Buffer) {
        let states = states.tensor();
        let out = done(states.dims2().and_then(|(rows, columns)| out.reshape(self.numbers(), rows, columns)));
        done(elementwise::norm(states, weight, norm, out));
    }

    fn head_norm(&mut self, states: &mut Buffer, heads: HeadRange, weight: &Tensor, norm: NormShape) {
        done(elementwise::head_norm(states.tensor(), heads, weight, norm));
    }

    fn round(&mut self, states: &Buffer, columns: Range<usize>, out: &mut Buffer) {
        let part = done(states.tensor().narrow(1, columns.start, columns.len()));
        let out = done(part.dim(0).and_then(|rows| out.reshape(self.numbers(), rows, columns.len())));
        done(part.to_dtype(self.dtype).and_then(|rounded| out.slice_set(&rounded.contiguous()?, 0, 0)));
    }

    fn place(&mut self, from: &Buffer, columns: Range<usize>, to: &mut Buffer, first: usize) {
        let part = from.tensor().narrow(1, columns.start, columns.len()).and_then(|part| part.contiguous());
        done(part.and_then(|part| to.tensor().slice_set(&part, 1, first)));
    }

    fn pick(&mut self, input: &Buffer, columns: Range<usize>, out: &mut Buffer) {
        let part = done(input.tensor().narrow(1, columns.start, columns.len()).and_then(|part| part.contiguous()));
        let out = done(part.dim(0).and_then(|rows| out.reshape(self.numbers(), rows, columns.len())));
        done(out.slice_set(&part, 0, 0));
    }

    fn zeros(&mut self, like: &Buffer, columns: usize, out: &mut Buffer) {
        let rows = done(like.tensor().dim(0));
        let out = done(out.reshape(self.sums(), rows, columns));
        done(out.zeros_like().and_then(|zeros| out.slice_set(&zeros, 0, 0)));
    }

    fn scale(&mut self, states: &mut Buffer, columns: Range<usize>, factor: f32) {
        done(elementwise::scale_columns(states.tensor(), columns, factor));
    }

    fn add(&mut self, from: &Buffer, factor: f32, to: &mut Buffer) {
        done(elementwise::add(from.tensor(), factor, to.tensor()));
    }

    fn linear(&mut self, input: &Buffer, matrix: &Matrix, bias: Option<&Tensor>, out: &mut Buffer) {
        let (input, outputs) = (input.tensor(), matrix.shape().0);
        let out = done(input.dim(0).and_then(|rows| out.reshape(self.sums(), rows, outputs)));
        done(self.multiply(input, matrix, bias, out, false));
    }

    fn add_linear(&mut self, input: &Buffer, matrix: &Matrix, bias: Option<&Tensor>, out: &mut Buffer) {
        done(self.multiply(input.tensor(), matrix, bias, out.tensor(), true));
    }

    fn begin_step(&mut self, batch: &Batch, angles: Vec<Angles>) -> StepShared {
        #[cfg(feature = "cuda")]
        done(kernels::bind_to_thread(&self.device));
        let inputs = StepInputs { allocations: self.allocations.clone(), ..std::mem::take(&mut self.inputs) };
        done(StepShared::new(&self.device, batch, angles, inputs))
    }

    #[cfg(feature = "cuda")]
    fn repeat(&mut self, shared: &mut StepShared, compute: &mut dyn FnMut(&mut Self, &mut StepShared)) {
        self.compute_or_launch(shared, compute);
    }

    fn rotate(&mut self, states: &mut Buffer, rotation: Rotation, shared: &StepShared) {
        done(elementwise::rotate(states.tensor(), rotation, &shared.angles[rotation.angles]));
    }

    fn write_cache(&mut self, states: &Buffer, first: usize, cache: &mut Cache, shared: &mut StepShared) {
        done(cache.write(states.tensor(), first, shared));
    }

    fn attend(
        &mut self,
        states: &Buffer,
        cache: &Cache,
        shape: AttentionShape,
        sinks: Option<&Tensor>,
        shared: &StepShared,
        out: &mut Buffer,
    ) {
        let out = self.attended(states.tensor(), cache, shape, out);
        done(self.attend_all(states.tensor(), cache, self.setting(shape, sinks), shared, out));
    }

    #[cfg(feature = "cuda")]
    fn prepare_and_attend(
        &mut self,
        states: &mut Buffer,
        preparation: &HeadPreparation<'_, Tensor>,
        cache: &mut Cache,
        shape: AttentionShape,
        sinks: Option<&Tensor>,
        shared: &mut StepShared,
        out: &mut Buffer,
    ) {
        if !kernels::serve_paged(cache) {
            prepare_one_by_one(self, states, preparation, cache, shared);
            return self.attend(states, cache, shape, sinks, shared, out);
        }
        let out = self.attended(states.tensor(), cache, shape, out);
        let setting = self.setting(shape, sinks);
        done(self.prepare_and_attend_paged(states.tensor(), preparation, cache, setting, shared, out));
    }

    fn convolve(
        &mut self,
        states: &mut Buffer,
        weight: &Tensor,
        bias: Option<&Tensor>,
        shape: ConvolutionShape,
        recurrent: &mut RecurrentStore,
        StepShared { spans, finite, .. }: &mut StepShared,
    ) {
        let rows = done(self.convolve_on_host(states.tensor(), (weight, bias, shape), recurrent, (spans, finite)));
        done(recurrent::send(&rows, self.sums(), states));
    }

    fn recur(
        &mut self,
        states: &Buffer,
        learnt: Learnt<'_, Tensor>,
        shape: &RecurrenceShape,
        recurrent: &mut RecurrentStore,
        StepShared { spans, finite, .. }: &mut StepShared,
        out: &mut Buffer,
    ) {
        let read = done(self.recur_on_host(states.tensor(), (&learnt, shape), recurrent, (spans, finite)));
        done(recurrent::send(&read, self.sums(), out));
    }

    fn gated_norm(
        &mut self,
        states: &Buffer,
        gates: &Buffer,
        weight: Option<&Tensor>,
        shape: GatedNormShape,
        out: &mut Buffer,
    ) {
        let numbers = done(recurrent::gated_norm(states.tensor(), gates.tensor(), weight, shape));
        let out = done(numbers.dims2().and_then(|(rows, columns)| out.reshape(self.numbers(), rows, columns)));
        done(numbers.to_dtype(self.dtype).and_then(|numbers| out.slice_set(&numbers, 0, 0)));
    }

    fn open(&mut self, gates: &Buffer, out: &mut Buffer) {
        let out = out.tensor();
        let gates = recurrent::sigmoid(gates.tensor());
        let opened = gates.and_then(|gates| (out.to_dtype(DType::F32)? * gates)?.to_dtype(self.dtype));
        done(opened.and_then(|opened| out.slice_set(&opened, 0, 0)));
    }

    fn multiply_columns(&mut self, states: &mut Buffer, by: Range<usize>, first: usize) {
        done(elementwise::multiply_columns(states.tensor(), by, first));
    }

    #[cfg(feature = "cuda")]
    fn bring_finite(&mut self, shared: &mut StepShared) {
        done(shared.bring_finite(&mut self.landings));
    }

    fn finite(&mut self, shared: StepShared) -> Vec<bool> {
        let (finite, inputs) = done(shared.finiteness());
        self.inputs = inputs;
        done(finite.land(&mut self.landings))
    }

    fn gate(&mut self, states: &Buffer, gate: Gate, width: usize, out: &mut Buffer) {
        let states = states.tensor();
        let out = done(states.dim(0).and_then(|rows| out.reshape(self.numbers(), rows, width)));
        done(elementwise::gate(states, gate, width, out));
    }

    fn gather(&mut self, input: &Buffer, picks: &[usize], out: &mut Buffer) {
        let input = input.tensor();
        // Nothing is picked out of a step in which every row is asked for.
        let is_all = done(input.dim(0)) == picks.len() && picks.iter().copied().eq(0..picks.len());
        let rows = if is_all {
            Ok(input.clone())
        } else {
            host::picked(picks.iter().copied(), &self.device).and_then(|picks| input.index_select(&picks, 0))
        };
        let out = input.dim(1).and_then(|columns| out.reshape(self.numbers(), picks.len(), columns));
        done(out.and_then(|out| out.slice_set(&rows?, 0, 0)));
    }

    fn add_scaled(&mut self, from: &Buffer, picks: &[(usize, f32)], to: &mut Buffer) {
        done(elementwise::add_scaled(from.tensor(), picks, to.tensor()));
    }

    #[cfg(feature = "cuda")]
    fn takes_mixture(&self, routing: Routing, experts: ExpertShape) -> bool {
        self.device.is_cuda() && mixture::is_served(self.dtype, routing, experts)
    }

    #[cfg(feature = "cuda")]
    fn choose_experts(&mut self, scores: &Buffer, routing: Routing, leaning: Leaning<'_, Tensor>) -> Chosen {
        let scores = scores.tensor();
        let tile_rows = done(scores.dim(0).map(|rows| mixture::tile_rows(rows, routing, self.dtype)));
        done(mixture::choose(scores, routing, leaning, tile_rows, (&mut self.chosen, &self.allocations)))
    }

    #[cfg(feature = "cuda")]
    fn read_chosen(&mut self, chosen: &Chosen) -> Vec<u32> {
        done(chosen.read())
    }

    #[cfg(feature = "cuda")]
    fn add_experts(
        &mut self,
        input: &Buffer,
        chosen: &Chosen,
        experts: &Experts<'_, Matrix, Tensor>,
        factor: f32,
        buffers: MixtureBuffers<'_, Self>,
        sum: &mut Buffer,
    ) {
        done(self.compute_experts(input.tensor(), (chosen, experts, factor), buffers, sum.tensor()));
    }

    fn put(&mut self, numbers: &[f32], columns: usize, out: &mut Buffer) {
        done(out.reshape(self.sums(), numbers.len() / columns, columns));
        self.put_rows(numbers, 0, out);
    }

    fn put_rows(&mut self, numbers: &[f32], first: usize, to: &mut Buffer) {
        let to = to.tensor();
        done(host::sent(numbers, to).and_then(|rows| to.slice_set(&rows, 0, first)));
    }

    fn add_rows(&mut self, numbers: &[f32], first: usize, to: &mut Buffer) {
        let to = to.tensor();
        let sum = host::sent(numbers, to).and_then(|rows| to.narrow(0, first, rows.dim(0)?)? + rows);
        done(sum.and_then(|sum| to.slice_set(&sum, 0, first)));
    }

    fn add_vector(&mut self, vector: &Tensor, to: &mut Buffer) {
        done(elementwise::put_vector(vector, to.tensor(), true));
    }

    fn multiply_vector(&mut self, vector: &Tensor, to: &mut Buffer) {
        done(elementwise::multiply_vector(vector, to.tensor()));
    }

    fn join(&mut self, from: &Buffer, count: usize, to: &mut Buffer) {
        let (rows, columns) = done(from.tensor().dims2());
        let out = done(to.reshape(self.sums(), rows / count, count * columns));
        done(from.tensor().reshape(out.shape()).and_then(|joined| out.slice_set(&joined, 0, 0)));
    }

    fn interleave(&mut self, from: &Buffer, count: usize, to: &mut Buffer) {
        let (rows, columns) = done(from.tensor().dims2());
        let out = done(to.reshape(self.sums(), rows / count, count * columns));
        let turned =
            from.tensor().reshape((rows / count, count, columns)).and_then(|rows| rows.transpose(1, 2)?.contiguous());
        done(turned.and_then(|turned| out.slice_set(&turned.reshape(out.shape())?, 0, 0)));
    }

    fn attend_within(&mut self, states: &Buffer, shape: SegmentHeads, segments: &[Range<usize>], out: &mut Buffer) {
        let (states, width) = (states.tensor(), shape.heads * shape.head_dim);
        let out = done(states.dim(0).and_then(|rows| out.reshape(self.numbers(), rows, width)));
        done(segments::attend_within(states, shape, segments, out));
    }

    fn read(&mut self, states: &Buffer, columns: usize) -> Vec<f32> {
        done(states.tensor().narrow(1, 0, columns).and_then(|part| host::numbers_of(&part)))
    }

    fn hand_on(&mut self, logits: &mut Buffer, first: usize, shape: LogitShape, consumer: &dyn Consumer) {
        let logits = logits.tensor();
        done(elementwise::shape_logits(logits, shape));
        done(logits::consume(logits, first, (&mut self.processor.pool, &mut self.draws), consumer));
    }

    fn goes_ahead(&self) -> bool {
        self.goes_ahead
    }

    fn begin_draws(&mut self, logits: &mut Buffer, shape: LogitShape, draws: RowDraws<'_>, shared: &mut StepShared) {
        done(elementwise::shape_logits(logits.tensor(), shape));
        done(self.begin_to_draw(logits.tensor(), draws, shared));
    }

    fn leave_underway(&mut self, shared: StepShared) -> Underway {
        done(self.leave(shared))
    }

    fn land(&mut self, underway: Underway) -> (Vec<Drawn>, Vec<bool>) {
        done(self.landed(underway))
    }
}
