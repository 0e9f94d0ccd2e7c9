//! What all layers of a step share: where rows go in the cache, angles, masks, and who attends in which way.
//!
//! Owns what is computed once a step and sent to the device once. Refuses tensors of layers.

#[cfg(feature = "cuda")]
use std::cell::Cell;
use std::{
    cell::{OnceCell, RefCell},
    collections::HashMap,
    ops::Range,
    rc::Rc,
    sync::Arc,
};

use candle_core::{DType, Device, Result, Tensor};

use super::{
    buffer::{Allocations, Buffer, TensorKind},
    draws::DrawsUnderway,
    inputs::StepInputs,
};
#[cfg(feature = "cuda")]
use super::{
    kernels::Coming,
    schedule::{DeviceSchedule, Schedule, ScheduleKey},
};
use crate::engine::native::{
    backend::{Angles, BLOCK_TOKENS, Batch, Reach, Span},
    images::SequenceImages,
};

/// Sequences with no more new tokens than this attend row by row, straight from the cache.
const SHORT_SPAN: usize = 16;

/// Consecutive rows that go to consecutive places of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) row: usize,
    pub(super) tokens: usize,
    pub(super) block: usize,
    pub(super) slot: usize,
}

/// Rows that each attend to their sequence's blocks on their own.
#[derive(Debug)]
pub(super) struct SingleRows {
    /// `(first, count)` of consecutive rows, ascending.
    pub(super) stretches: Vec<(usize, usize)>,
    /// How many tokens each row attends to.
    pub(super) lengths: Vec<u32>,
    /// The span of each row.
    pub(super) spans: Vec<usize>,
}

/// How the rows of a batch attend.
#[derive(Debug)]
pub(super) struct Division {
    pub(super) single: Option<SingleRows>,
    /// Spans that attend over gathered keys and values.
    pub(super) gathered: Vec<usize>,
    /// The tables of blocks of the rows in `single`.
    tables: OnceCell<Tables>,
}

/// What kernels read of rows that attend on their own, on the device.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only kernels read tables"))]
pub(super) struct Tables {
    /// The blocks of each row, filled up to the same number.
    pub(super) blocks: Tensor,
    /// How many tokens each row attends to.
    pub(super) lengths: Tensor,
    /// The most of them.
    pub(super) longest: usize,
}

/// How rows are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Policy {
    /// Whether rows may attend straight from the cache.
    pub(super) single: bool,
    /// Whether the way of a row may depend on nothing but its position.
    pub(super) invariant: bool,
}

/// Divisions by reach and policy.
type Divisions = HashMap<(Reach, Policy), Rc<Division>>;

#[cfg(feature = "cuda")]
type Schedules = HashMap<ScheduleKey, Rc<DeviceSchedule>>;

/// An image that is in the step as a whole, each row of which attends to all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WholeImage {
    /// The span that it is in.
    pub(super) span: usize,
    pub(super) positions: Range<usize>,
}

/// What the layers of a step share.
#[derive(Debug)]
pub(crate) struct StepShared {
    pub(super) device: Device,
    /// Whether nothing but the engine's own kernels attended so far.
    #[cfg(feature = "cuda")]
    pub(super) by_kernels: Cell<bool>,
    /// Where all that is told of the step lies.
    pub(super) inputs: RefCell<StepInputs>,
    pub(super) spans: Vec<Span>,
    pub(super) whole_images: Vec<WholeImage>,
    /// Cosines and sines, `[rows, pairs]` each.
    pub(super) angles: Vec<(Tensor, Tensor)>,
    /// A number for each row, which is 0 while all its keys and values are finite, and NaN otherwise.
    pub(super) broken: Tensor,
    /// What is on its way to the host of `broken`.
    #[cfg(feature = "cuda")]
    pub(super) coming: Option<Coming<f32>>,
    /// For each span whether its recurrent states are finite.
    pub(super) finite: Vec<bool>,
    /// What is being drawn, where the step is left to the device.
    pub(super) draws: Vec<DrawsUnderway>,
    runs: Vec<Run>,
    /// The slot of each row in the cache, on the device.
    slots: OnceCell<Tensor>,
    divisions: RefCell<Divisions>,
    masks: RefCell<HashMap<MaskShape, Tensor>>,
    /// The blocks of all spans, one after the other.
    #[cfg(feature = "cuda")]
    blocks: OnceCell<Tensor>,
    #[cfg(feature = "cuda")]
    schedules: RefCell<Schedules>,
}

/// What a mask depends on: first position and number of queries and of keys, and to which tokens a query attends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct MaskShape {
    pub(super) first_query: usize,
    pub(super) queries: usize,
    pub(super) first_key: usize,
    pub(super) keys: usize,
    pub(super) reach: Reach,
    /// The position after the last key of every query; `None` where each query's is the one after its own.
    pub(super) common_end: Option<usize>,
}

/// What is added to a score that does not count. It is finite, since a row may meet keys that count only in a later
/// tile, and minus infinity less itself is not a number.
const MASKED: f32 = -1e30;

impl StepShared {
    pub(super) fn new(device: &Device, batch: &Batch, angles: Vec<Angles>, mut inputs: StepInputs) -> Result<Self> {
        let rows = batch.token_ids.len();
        let StepInputs { allocations, angles: rotations, broken, .. } = &mut inputs;
        let kind = TensorKind { device, dtype: DType::F32, allocations };
        rotations.resize_with(angles.len().max(rotations.len()), Buffer::default);
        // Both go in one copy.
        let sent = |(Angles { mut cosines, sines }, memory): (Angles, &mut Buffer)| {
            let pairs = cosines.len() / rows;
            cosines.extend(sines);
            let both = memory.write(kind, &cosines, (2 * rows, pairs))?;
            Ok((both.narrow(0, 0, rows)?, both.narrow(0, rows, rows)?))
        };
        Ok(Self {
            spans: batch.spans.clone(),
            whole_images: whole_images(batch),
            angles: angles.into_iter().zip(rotations).map(sent).collect::<Result<_>>()?,
            broken: broken.write(kind, &vec![0.0_f32; rows], (1, rows))?.squeeze(0)?,
            #[cfg(feature = "cuda")]
            coming: None,
            finite: vec![true; batch.spans.len()],
            draws: Vec::new(),
            runs: runs(&batch.spans),
            slots: OnceCell::new(),
            divisions: RefCell::default(),
            masks: RefCell::default(),
            #[cfg(feature = "cuda")]
            blocks: OnceCell::new(),
            #[cfg(feature = "cuda")]
            schedules: RefCell::default(),
            #[cfg(feature = "cuda")]
            by_kernels: Cell::new(true),
            inputs: RefCell::new(inputs),
            device: device.clone(),
        })
    }

    /// Where rows go, block by block.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Where each row goes: its block's number times the tokens of a block, and the place in the block.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only kernels ask for slots"))]
    pub(super) fn slots(&self) -> Result<Tensor> {
        once(&self.slots, || {
            let StepInputs { allocations, slots: memory, .. } = &mut *self.inputs.borrow_mut();
            let (kind, slots) = (self.kind(DType::I64, allocations), slots(&self.runs));
            memory.write(kind, &slots, (1, slots.len()))?.squeeze(0)
        })
    }

    /// How many rows the step has.
    #[cfg(feature = "cuda")]
    pub(super) fn rows(&self) -> usize {
        self.spans.last().map_or(0, |span| span.first_row + span.tokens)
    }

    /// The blocks of all spans, one after the other.
    #[cfg(feature = "cuda")]
    pub(super) fn blocks(&self) -> Result<Tensor> {
        once(&self.blocks, || {
            let joined: Vec<u32> = self.spans.iter().flat_map(|span| span.blocks.iter().copied()).collect();
            let StepInputs { allocations, blocks: memory, .. } = &mut *self.inputs.borrow_mut();
            memory.write(self.kind(DType::U32, allocations), &joined, (1, joined.len()))?.squeeze(0)
        })
    }

    /// Numbers of this type on the device.
    fn kind<'a>(&'a self, dtype: DType, allocations: &'a Allocations) -> TensorKind<'a> {
        TensorKind { device: &self.device, dtype, allocations }
    }

    /// Which blocks of threads attend for which rows.
    #[cfg(feature = "cuda")]
    pub(super) fn schedule(&self, key: ScheduleKey) -> Result<Rc<DeviceSchedule>> {
        if let Some(schedule) = self.schedules.borrow().get(&key) {
            return Ok(Rc::clone(schedule));
        }
        let starts = self.spans.iter().scan(0, |next, span| Some(std::mem::replace(next, *next + span.blocks.len())));
        let schedule = Schedule::new(&self.spans, &starts.collect::<Vec<_>>(), key);
        let StepInputs { allocations, schedules: memory, .. } = &mut *self.inputs.borrow_mut();
        let memory = memory.entry(key).or_default();
        let schedule = Rc::new(schedule.send(self.kind(DType::U32, allocations), key, memory)?);
        self.schedules.borrow_mut().insert(key, Rc::clone(&schedule));
        Ok(schedule)
    }

    /// The schedules that were asked for so far.
    #[cfg(feature = "cuda")]
    pub(super) fn asked(&self) -> Vec<ScheduleKey> {
        self.schedules.borrow().keys().copied().collect()
    }

    /// How rows attend.
    pub(super) fn division(&self, reach: Reach, policy: Policy) -> Rc<Division> {
        let mut divisions = self.divisions.borrow_mut();
        let division = || Rc::new(Division::new(&self.spans, reach, policy));
        Rc::clone(divisions.entry((reach, policy)).or_insert_with(division))
    }

    /// What is added to scores, `[queries, keys]`; `None` where every key counts for every query.
    pub(super) fn mask(&self, shape: MaskShape) -> Result<Option<Tensor>> {
        let MaskShape { first_query, queries, first_key, keys, reach, common_end } = shape;
        let none_is_later = first_key + keys <= common_end.unwrap_or(first_query + 1);
        if none_is_later && reach.first_key(first_query + queries - 1) <= first_key {
            return Ok(None);
        }
        if let Some(mask) = self.masks.borrow().get(&shape) {
            return Ok(Some(mask.clone()));
        }
        let mask = mask(shape, &self.device)?;
        self.masks.borrow_mut().insert(shape, mask.clone());
        Ok(Some(mask))
    }
}

impl Division {
    fn new(spans: &[Span], reach: Reach, Policy { single, invariant }: Policy) -> Self {
        let alone = |span: &Span| {
            let within = reach.first_key(span.first_position + span.tokens - 1) == 0;
            single && if invariant { reach == Reach::All } else { within && span.tokens <= SHORT_SPAN }
        };
        let mut rows = SingleRows { stretches: Vec::new(), lengths: Vec::new(), spans: Vec::new() };
        let mut gathered = Vec::new();
        for (index, span) in spans.iter().enumerate() {
            if !alone(span) {
                gathered.push(index);
                continue;
            }
            match rows.stretches.last_mut() {
                Some((first, count)) if *first + *count == span.first_row => *count += span.tokens,
                _ => rows.stretches.push((span.first_row, span.tokens)),
            }
            for token in 0..span.tokens {
                rows.lengths.push(u32::try_from(span.first_position + token + 1).expect("positions are 32 bits wide"));
                rows.spans.push(index);
            }
        }
        Self { single: (!rows.spans.is_empty()).then_some(rows), gathered, tables: OnceCell::new() }
    }

    /// What kernels read of the single rows.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only kernels ask for tables"))]
    pub(super) fn tables(&self, spans: &[Span], device: &Device) -> Result<Tables> {
        once(&self.tables, || {
            let (table, lengths) = tables(self.single.as_ref().expect("asked for single rows only"), spans);
            let rows = lengths.len();
            let columns = table.len() / rows;
            Ok(Tables {
                longest: lengths.iter().max().map_or(0, |longest| *longest as usize),
                blocks: Tensor::from_vec(table, (rows, columns), device)?,
                lengths: Tensor::from_vec(lengths, rows, device)?,
            })
        })
    }
}

/// What was sent to the device already, or is sent now.
fn once<T: Clone>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T>) -> Result<T> {
    if let Some(value) = cell.get() {
        return Ok(value.clone());
    }
    let value = make()?;
    Ok(cell.get_or_init(|| value).clone())
}

/// Tables of blocks, filled up to the same length, and how many tokens each row attends to.
fn tables(rows: &SingleRows, spans: &[Span]) -> (Vec<u32>, Vec<u32>) {
    let blocks = |length: &u32| (*length as usize).div_ceil(BLOCK_TOKENS);
    let columns = rows.lengths.iter().map(blocks).max().unwrap_or(0);
    let mut table = Vec::with_capacity(columns * rows.lengths.len());
    for (length, span) in rows.lengths.iter().zip(&rows.spans) {
        let own = &spans[*span].blocks[..blocks(length)];
        table.extend_from_slice(own);
        table.extend(std::iter::repeat_n(0, columns - own.len()));
    }
    (table, rows.lengths.clone())
}

/// The images of a batch that are seen both ways.
fn whole_images(batch: &Batch) -> Vec<WholeImage> {
    let of_span = |(span, images): &(usize, Arc<SequenceImages>)| {
        let (span, Span { first_position, tokens, .. }) = (*span, &batch.spans[*span]);
        let seen = images.both_ways_within(*first_position..first_position + tokens);
        seen.into_iter().map(move |positions| WholeImage { span, positions })
    };
    batch.images.iter().flat_map(of_span).collect()
}

/// The places that the rows of all spans go to, block by block.
fn runs(spans: &[Span]) -> Vec<Run> {
    let mut runs = Vec::new();
    for span in spans {
        let mut done = 0;
        while done < span.tokens {
            let position = span.first_position + done;
            let (index, slot) = (position / BLOCK_TOKENS, position % BLOCK_TOKENS);
            let tokens = (BLOCK_TOKENS - slot).min(span.tokens - done);
            runs.push(Run { row: span.first_row + done, tokens, block: span.blocks[index] as usize, slot });
            done += tokens;
        }
    }
    runs
}

fn slots(runs: &[Run]) -> Vec<i64> {
    let slots = runs.iter().flat_map(|run| {
        let first = run.block * BLOCK_TOKENS + run.slot;
        first..first + run.tokens
    });
    slots.map(|slot| i64::try_from(slot).expect("memory is smaller")).collect()
}

fn mask(shape: MaskShape, device: &Device) -> Result<Tensor> {
    let MaskShape { first_query, queries, first_key, keys, reach, common_end } = shape;
    #[expect(clippy::cast_precision_loss, reason = "a context has fewer than 2^24 positions")]
    let of = |positions: Vec<usize>| Tensor::from_iter(positions.into_iter().map(|position| position as f32), device);
    let positions = first_query..first_query + queries;
    let firsts = of(positions.clone().map(|position| reach.first_key(position)).collect())?.unsqueeze(1)?;
    let lasts = of(positions.map(|position| common_end.map_or(position, |end| end - 1)).collect())?.unsqueeze(1)?;
    let keys = of((first_key..first_key + keys).collect())?.unsqueeze(0)?;
    let ahead = keys.broadcast_sub(&lasts)?;
    let (zero, hidden) = (ahead.zeros_like()?, (ahead.zeros_like()? + f64::from(MASKED))?);
    let mask = ahead.gt(0.0_f32)?.where_cond(&hidden, &zero)?;
    keys.broadcast_sub(&firsts)?.lt(0.0_f32)?.where_cond(&hidden, &mask)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::test_device, *};

    fn span(first_row: usize, tokens: usize, first_position: usize, blocks: &[u32]) -> Span {
        Span {
            first_row,
            tokens,
            first_position,
            blocks: blocks.to_vec(),
            slot: 0,
            adapter: None,
            snapshots: Vec::new(),
        }
    }

    /// Queries at the positions 4 and 5.
    fn shape(keys: std::ops::Range<usize>, reach: Reach) -> MaskShape {
        MaskShape { first_query: 4, queries: 2, first_key: keys.start, keys: keys.len(), reach, common_end: None }
    }

    #[test]
    fn rows_go_to_their_blocks_in_runs() {
        let spans = [span(0, 1, 31, &[7]), span(1, 40, 30, &[4, 2, 9])];
        let run = |row, tokens, block, slot| Run { row, tokens, block, slot };
        let found = runs(&spans);
        assert_eq!(found, [run(0, 1, 7, 31), run(1, 2, 4, 30), run(3, 32, 2, 0), run(35, 6, 9, 0)]);
        let slots = slots(&found);
        assert_eq!(
            (slots.len(), slots[0], slots[1], slots[3], slots[40]),
            (41, 7 * 32 + 31, 4 * 32 + 30, 64, 9 * 32 + 5)
        );
    }

    #[test]
    fn short_spans_attend_row_by_row_and_long_ones_over_gathered_keys() {
        let spans = [span(0, 1, 5, &[1]), span(1, 2, 31, &[2, 3]), span(3, 17, 0, &[4]), span(20, 1, 0, &[5])];
        let policy = Policy { single: true, invariant: false };
        let division = Division::new(&spans, Reach::All, policy);
        let single = division.single.unwrap();
        assert_eq!(single.stretches, [(0, 3), (20, 1)]);
        assert_eq!(single.spans, [0, 1, 1, 3]);
        let (table, lengths) = tables(&single, &spans);
        assert_eq!((table, lengths), (vec![1, 0, 2, 0, 2, 3, 5, 0], vec![6, 32, 33, 1]));
        assert_eq!(division.gathered, [2]);
        // A window that ends before the first token of the sequence needs another way.
        assert_eq!(Division::new(&spans, Reach::Window(32), policy).gathered, [1, 2]);
        assert_eq!(Division::new(&spans, Reach::All, Policy { single: false, ..policy }).gathered, [0, 1, 2, 3]);
        let invariant = Policy { invariant: true, ..policy };
        assert_eq!(Division::new(&spans, Reach::All, invariant).gathered, [] as [usize; 0]);
        assert_eq!(Division::new(&spans, Reach::Window(100), invariant).gathered, [0, 1, 2, 3]);
    }

    #[test]
    fn a_mask_leaves_what_is_before_a_query_and_within_its_window() {
        let mask = |keys, reach| mask(shape(keys, reach), &test_device()).unwrap().to_vec2::<f32>().unwrap();
        let (o, x) = (0.0, MASKED);
        assert_eq!(mask(3..7, Reach::All), [[o, o, x, x], [o, o, o, x]]);
        assert_eq!(mask(2..6, Reach::Window(2)), [[x, o, o, x], [x, x, o, o]]);
        assert_eq!(mask(2..6, Reach::Chunk(5)), [[o, o, o, x], [x, x, x, o]]);
    }

    #[test]
    fn a_mask_of_an_image_leaves_what_is_before_its_end() {
        let shape = |keys, reach| MaskShape { common_end: Some(7), ..shape(keys, reach) };
        let mask = |keys, reach| mask(shape(keys, reach), &test_device()).unwrap().to_vec2::<f32>().unwrap();
        let (o, x) = (0.0, MASKED);
        assert_eq!(mask(3..8, Reach::All), [[o, o, o, o, x], [o, o, o, o, x]]);
        assert_eq!(mask(3..8, Reach::Window(2)), [[o, o, o, o, x], [x, o, o, o, x]]);
        let batch = Batch { token_ids: vec![0], spans: vec![span(0, 1, 0, &[0])], ..Batch::default() };
        let shared = StepShared::new(&test_device(), &batch, Vec::new(), StepInputs::default()).unwrap();
        let is_masked = |keys, reach| shared.mask(shape(keys, reach)).unwrap().is_some();
        assert!(!is_masked(3..7, Reach::All) && is_masked(3..8, Reach::All) && is_masked(3..7, Reach::Window(2)));
    }

    #[test]
    fn where_every_key_counts_there_is_no_mask() {
        let batch =
            Batch { token_ids: vec![0], spans: vec![span(0, 1, 0, &[0])], logit_rows: Vec::new(), images: Vec::new() };
        let shared = StepShared::new(&test_device(), &batch, Vec::new(), StepInputs::default()).unwrap();
        let is_masked = |keys, reach| shared.mask(shape(keys, reach)).unwrap().is_some();
        assert!(!is_masked(0..5, Reach::All));
        assert!(is_masked(0..6, Reach::All));
        assert!(!is_masked(1..5, Reach::Window(5)));
        assert!(is_masked(0..4, Reach::Window(5)));
        assert!(!is_masked(3..5, Reach::Chunk(3)));
        assert!(is_masked(2..5, Reach::Chunk(3)));
    }
}
