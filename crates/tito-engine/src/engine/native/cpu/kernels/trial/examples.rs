//! One example of every shape that kernels tell apart, but for weights that stay in blocks or codes and for recurrences.

use super::{
    super::{
        Attention, BothWays, KvLayout, KvStore, Operand, Packed, Precision, Processor, States, add, add_scaled, attend,
        attend_within, gate, head_norm, kv::BLOCK_TOKENS, multiply, norm, rotate, shape_logits,
    },
    example::{Example, Tolerance},
};
use crate::engine::native::{
    backend::{
        Angles, AttentionShape, Gate, HeadRange, LogitShape, NormShape, Reach, Rotation, SegmentHeads, Span, Xielu,
    },
    weights::{Rows, WeightsError},
};

/// What one product of numbers up to 1 may add to the error of a sum in f32, whatever its order.
pub(super) const ERROR_OF_A_SUMMAND: f32 = 1e-6;
/// What attention may be off over values up to 1: weights and results are rounded to bf16 by both sides.
const ERROR_OF_BF16_ATTENTION: f32 = 0.016;
/// How far attention in f32 may be off.
const ERROR_OF_F32_ATTENTION: f32 = 4e-5;

const PRECISIONS: [Precision; 2] = [Precision::Bf16, Precision::F32];

/// Rows, outputs and inputs of products: a single row, as in decoding; a few; the heights at which tiles of 16 and 32
/// rows and passes of 128 end or begin; one to four blocks of 16 columns, filled up and not; an inner dimension of one
/// step, of a part of one, and of many.
const PRODUCTS: [(usize, usize, usize); 8] =
    [(1, 16, 32), (1, 61, 352), (3, 33, 40), (16, 48, 64), (17, 64, 31), (32, 20, 96), (33, 50, 64), (130, 17, 32)];

/// Heads of queries and of keys, and numbers of a head.
const HEADS: [(usize, usize, usize); 3] = [(4, 1, 64), (2, 2, 128), (3, 3, 40)];
/// Tokens that are there, tokens that are new, and the window.
const SPANS: [(usize, usize, Option<usize>); 3] = [(150, 1, None), (0, 40, None), (130, 3, Some(33))];

const GATES: [Gate; 8] = [
    Gate::Silu,
    Gate::GeluTanh,
    Gate::Gelu,
    Gate::Clamped { limit: 0.5 },
    Gate::SquaredRelu,
    Gate::GeluTanhAlone,
    Gate::GeluAlone,
    Gate::Xielu(Xielu { rising: 0.8, falling: 1.3, slope: 0.5, most: -1e-6 }),
];

/// All of them.
pub(super) fn all() -> Vec<Example> {
    let mut examples = Vec::new();
    for precision in PRECISIONS {
        for (rows, outputs, inputs) in PRODUCTS {
            let shape = (rows, outputs, inputs);
            examples.extend([false, true].map(|accumulate| product(precision, precision, shape, accumulate)));
        }
        for (heads, kv_heads, head_dim) in HEADS {
            let layout = KvLayout { heads: kv_heads, head_dim, precision };
            examples.extend(SPANS.map(|(before, tokens, window)| attention(layout, heads, before, tokens, window)));
        }
        examples.push(attention_in_both_directions(precision));
        examples.extend([false, true].map(|centred| norm_of_rows(precision, centred)));
        examples.extend(GATES.map(|kind| gated(precision, kind)));
    }
    for shape in PRODUCTS {
        examples.extend([false, true].map(|accumulate| product(Precision::F32, Precision::Bf16, shape, accumulate)));
    }
    examples.extend([rotation(false), rotation(true), norm_of_heads(), scaled_sum(), sum(), shaped_logits()]);
    examples
}

/// Numbers between -1 and 1 that bf16 holds exactly, so that only sums are rounded.
pub(super) fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [.., highest] = state.to_le_bytes();
        (f32::from(highest) - 127.5) / 128.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

pub(super) fn states(rows: usize, columns: usize, seed: u32) -> States {
    let mut states = States::default();
    states.reshape(rows, columns);
    for (row, values) in numbers(rows * columns, seed).chunks_exact(columns).enumerate() {
        states.row_mut(row).copy_from_slice(values);
    }
    states
}

pub(super) fn numbers_of_states(states: &States) -> Vec<f32> {
    (0..states.rows()).flat_map(|row| states.row(row).to_vec()).collect()
}

pub(super) fn numbers_of_operand(operand: &Operand) -> Vec<f32> {
    (0..operand.rows()).flat_map(|row| operand.read_row(row)).collect()
}

/// Rows of a weight matrix.
struct Weight {
    columns: usize,
    numbers: Vec<f32>,
}

impl Rows for Weight {
    fn rows(&self) -> usize {
        self.numbers.len() / self.columns
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn read(&self, rows: std::ops::Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        out.extend_from_slice(&self.numbers[rows.start * self.columns..rows.end * self.columns]);
        Ok(())
    }
}

/// A product of activations with weights; the last row, where there are several, is not a number.
fn product(
    activations: Precision,
    weights: Precision,
    (rows, outputs, inputs): (usize, usize, usize),
    accumulate: bool,
) -> Example {
    let compute = move |processor: &mut Processor| {
        let weight = Weight { columns: inputs, numbers: numbers(outputs * inputs, 1) };
        let mut matrix = Packed::zeros(weights, outputs, inputs);
        matrix.write_rows(&mut processor.pool, 0, &weight).expect("numbers in memory can be read");
        let mut input = Operand::new(activations);
        input.reshape(rows, inputs);
        for (row, values) in numbers(rows * inputs, 2).chunks_exact_mut(inputs).enumerate() {
            if row > 0 && row + 1 == rows {
                values[inputs / 2] = f32::NAN;
            }
            input.write_row(row, values);
        }
        let mut out = states(rows, outputs, 3);
        multiply(processor, &input, &matrix, &mut out, accumulate);
        numbers_of_states(&out)
    };
    #[expect(clippy::cast_precision_loss, reason = "the inner dimension is small")]
    let most = ERROR_OF_A_SUMMAND * (inputs + 32) as f32;
    Example {
        operation: format!(
            "a product of {rows} x {inputs} numbers in {activations:?} and {inputs} x {outputs} in {weights:?}"
        ),
        tolerance: Tolerance::Within(most),
        compute: Box::new(compute),
    }
}

/// Attention of `tokens` new tokens after `before` others.
fn attention(layout: KvLayout, heads: usize, before: usize, tokens: usize, window: Option<usize>) -> Example {
    let KvLayout { heads: kv_heads, head_dim, precision } = layout;
    let compute = move |processor: &mut Processor| {
        let (width, all) = (kv_heads * head_dim, before + tokens);
        let count = all.div_ceil(BLOCK_TOKENS);
        let Ok(mut store) = KvStore::new(layout, count) else { return Vec::new() };
        // Blocks out of order, as a cache gives them out.
        let blocks: Vec<u32> = (0..).take(count).collect::<Vec<_>>().into_iter().rev().collect();
        let (keys, values) = (numbers(all * width, 4), numbers(all * width, 5));
        for (position, (key, value)) in keys.chunks_exact(width).zip(values.chunks_exact(width)).enumerate() {
            let (block, slot) = (blocks[position / BLOCK_TOKENS], position % BLOCK_TOKENS);
            if slot == 0 {
                store.block_mut(block).clear();
            }
            store.block_mut(block).write(processor.set, layout, slot, (key, value));
        }
        let queries = states(tokens, heads * head_dim, 6);
        // Scores far apart: over many keys of like weight, what is right and what is wrong would differ by little.
        let shape = AttentionShape { heads, scale: 1.0, reach: Reach::within(window), cap: window.map(|_| 20.0) };
        let sinks = numbers(heads, 17);
        let (sinks, both_ways) = (window.map(|_| &sinks[..]), &BothWays::default());
        let attention = Attention { states: &queries, store: &store, shape, sinks, both_ways };
        let span = Span {
            first_row: 0,
            tokens,
            first_position: before,
            blocks,
            slot: 0,
            adapter: None,
            snapshots: Vec::new(),
        };
        let mut out = Operand::new(precision);
        attend(processor, &attention, &[span], &mut out);
        numbers_of_operand(&out)
    };
    let most = if precision == Precision::Bf16 { ERROR_OF_BF16_ATTENTION } else { ERROR_OF_F32_ATTENTION };
    Example {
        operation: format!(
            "attention of {tokens} tokens after {before}, {heads} heads on {kv_heads} of {head_dim} numbers in \
             {precision:?}"
        ),
        tolerance: Tolerance::Within(most),
        compute: Box::new(compute),
    }
}

fn attention_in_both_directions(precision: Precision) -> Example {
    let compute = move |processor: &mut Processor| {
        let mut out = Operand::new(precision);
        let shape = SegmentHeads { heads: 2, head_dim: 72, scale: 1.0 };
        attend_within(processor, &states(70, 3 * 2 * 72, 21), shape, &[0..66, 66..70], &mut out);
        numbers_of_operand(&out)
    };
    let most = if precision == Precision::Bf16 { ERROR_OF_BF16_ATTENTION } else { ERROR_OF_F32_ATTENTION };
    Example {
        operation: format!("attention in both directions within 66 and 4 rows, 2 heads of 72 numbers in {precision:?}"),
        tolerance: Tolerance::Within(most),
        compute: Box::new(compute),
    }
}

pub(super) fn exact(operation: &str, compute: impl Fn(&mut Processor) -> Vec<f32> + 'static) -> Example {
    Example { operation: operation.to_owned(), tolerance: Tolerance::SameBits, compute: Box::new(compute) }
}

fn norm_of_rows(precision: Precision, centred: bool) -> Example {
    let kind = if centred { "centred norm" } else { "norm" };
    exact(&format!("the {kind} of rows of 77 numbers, written in {precision:?}"), move |processor| {
        let mut out = Operand::new(precision);
        let shape = NormShape { epsilon: 1e-5, offset: 1.0, centred };
        norm(processor, &states(11, 77, 7), &numbers(77, 8), shape, &mut out);
        numbers_of_operand(&out)
    })
}

fn gated(precision: Precision, kind: Gate) -> Example {
    exact(&format!("{kind:?} gates of rows of 37 numbers, written in {precision:?}"), move |processor| {
        let mut out = Operand::new(precision);
        gate(processor, &states(9, 74, 9), kind, 37, &mut out);
        numbers_of_operand(&out)
    })
}

fn norm_of_heads() -> Example {
    exact("the norm of heads of 40 numbers", |processor| {
        let mut rows = states(9, 4 * 40, 10);
        let heads = HeadRange { first: 1, count: 2, width: 40 };
        let shape = NormShape { epsilon: 1e-6, offset: 0.0, centred: false };
        head_norm(processor, &mut rows, heads, &numbers(40, 11), shape);
        numbers_of_states(&rows)
    })
}

fn rotation(neighbours: bool) -> Example {
    let pairs = if neighbours { "neighbours" } else { "halves" };
    exact(&format!("the rotation of 16 of 20 numbers of a head, in pairs of {pairs}"), move |processor| {
        let mut rows = states(9, 3 * 20, 12);
        let angles = Angles { cosines: numbers(9 * 8, 13), sines: numbers(9 * 8, 14) };
        let rotation = Rotation { first: 1, heads: 2, head_dim: 20, neighbours, angles: 0 };
        rotate(processor, &mut rows, rotation, &angles);
        numbers_of_states(&rows)
    })
}

fn sum() -> Example {
    exact("sums of rows of 50 numbers", |processor| {
        let mut to = states(9, 50, 18);
        add(processor, &states(9, 50, 19), 0.7, &mut to);
        numbers_of_states(&to)
    })
}

fn shaped_logits() -> Example {
    exact("a row of 77 logits, scaled and capped", |processor| {
        let mut row = numbers(77, 20);
        shape_logits(processor.set, &mut row, LogitShape { factor: 40.0, cap: Some(30.0) });
        row
    })
}

fn scaled_sum() -> Example {
    exact("a scaled sum of rows of 50 numbers", |processor| {
        let mut to = states(3, 50, 15);
        add_scaled(processor.set, &states(4, 50, 16), &[(0, 0.3), (2, -0.7), (2, 0.1), (1, 0.9)], &mut to);
        numbers_of_states(&to)
    })
}
