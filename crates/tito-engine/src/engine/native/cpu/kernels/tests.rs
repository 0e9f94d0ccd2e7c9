//! Every kernel set against scalar arithmetic in f64, on shapes that fill no vector.

use super::*;
use crate::engine::native::backend::{
    Angles, AttentionShape, Gate, HeadRange, LogitShape, NormShape, Reach, Rotation, Span, Xielu,
};
use crate::engine::{WeightDtype, WeightTensor};

const PRECISIONS: [Precision; 2] = [Precision::Bf16, Precision::F32];

/// Numbers between -1 and 1 that bf16 holds exactly, so that only sums are rounded.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let number = |index: usize| {
        let hash = (index * 7_919 + seed * 104_729 + index * index * 31) % 255;
        (f32::from(u8::try_from(hash).unwrap()) - 127.0) / 128.0
    };
    (0..count).map(number).collect()
}

fn processor(set: KernelSet, threads: usize) -> Processor {
    Processor { set, pool: Pool::new(threads).unwrap() }
}

fn states(rows: usize, columns: usize, seed: usize) -> States {
    let mut states = States::default();
    states.reshape(rows, columns);
    for (row, values) in numbers(rows * columns, seed).chunks_exact(columns).enumerate() {
        states.row_mut(row).copy_from_slice(values);
    }
    states
}

/// The rows of states as an operand.
fn operand(precision: Precision, rows: &States) -> Operand {
    let mut operand = Operand::new(precision);
    operand.reshape(rows.rows(), rows.columns());
    for row in 0..rows.rows() {
        operand.write_row(row, rows.row(row));
    }
    operand
}

fn packed(precision: Precision, outputs: usize, inputs: usize, seed: usize) -> (Packed, Vec<f32>) {
    let values = numbers(outputs * inputs, seed);
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let (name, shape) = (String::new(), vec![outputs, inputs]);
    let tensor = WeightTensor { name, shape, dtype: WeightDtype::F32, bytes: bytes.into() };
    let mut packed = Packed::zeros(precision, outputs, inputs);
    packed.write_rows(&mut Pool::new(1).unwrap(), 0, &&tensor).unwrap();
    (packed, values)
}

fn dot(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(left, right)| f64::from(*left) * f64::from(*right)).sum()
}

#[test]
fn products_of_every_shape_agree_with_f64_and_do_not_depend_on_company() {
    let shapes = [(1, 1, 1), (1, 17, 33), (2, 48, 64), (7, 50, 31), (8, 16, 576), (9, 100, 40), (130, 65, 96)];
    for set in KernelSet::tested() {
        for precision in PRECISIONS {
            for (rows, outputs, inputs) in shapes {
                let (matrix, weights) = packed(precision, outputs, inputs, 3);
                let input = states(rows, inputs, 5);
                let operand = operand(precision, &input);
                for accumulate in [false, true] {
                    let mut out = states(rows, outputs, 7);
                    multiply(&mut processor(set, 3), &operand, &matrix, &mut out, accumulate);
                    let before = states(rows, outputs, 7);
                    for row in 0..rows {
                        for (output, weights) in weights.chunks_exact(inputs).enumerate() {
                            let base = if accumulate { f64::from(before.row(row)[output]) } else { 0.0 };
                            let error = (f64::from(out.row(row)[output]) - base - dot(weights, input.row(row))).abs();
                            assert!(error < 3e-5, "{set} {precision:?} {rows}x{outputs}x{inputs}: off by {error:e}");
                        }
                    }
                    let mut alone = states(rows, outputs, 7);
                    let last = rows - 1;
                    let mut picked = Operand::new(precision);
                    picked.gather(&operand, &[last]);
                    let base = alone.row(last).to_vec();
                    alone.reshape(1, outputs);
                    alone.row_mut(0).copy_from_slice(&base);
                    multiply(&mut processor(set, 1), &picked, &matrix, &mut alone, accumulate);
                    let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(alone.row(0)), bits(out.row(last)), "{set} {precision:?}");
                }
            }
        }
    }
}

#[test]
fn activations_in_f32_meet_weights_in_bf16_as_if_these_were_f32() {
    let shapes =
        [(1, 1, 1), (1, 17, 33), (2, 48, 64), (7, 50, 31), (8, 16, 576), (9, 100, 65), (130, 65, 96), (3, 20, 129)];
    for set in KernelSet::tested() {
        for (rows, outputs, inputs) in shapes {
            let (narrow, weights) = packed(Precision::Bf16, outputs, inputs, 3);
            let (wide, _) = packed(Precision::F32, outputs, inputs, 3);
            // Numbers that bf16 does not hold, of sizes whose sums depend on their order, and some so small that their products
            // are rounded to zeros of either sign.
            let mut input = states(rows, inputs, 5);
            for row in 0..rows {
                for (place, value) in input.row_mut(row).iter_mut().enumerate() {
                    *value *= [1.000_1, 3e4, 1e-43, -7e-5][(row + place) % 4];
                }
            }
            let operand = operand(Precision::F32, &input);
            for accumulate in [false, true] {
                let [mut found, mut expected] = [(); 2].map(|()| states(rows, outputs, 7));
                multiply(&mut processor(set, 3), &operand, &narrow, &mut found, accumulate);
                multiply(&mut processor(set, 1), &operand, &wide, &mut expected, accumulate);
                let before = states(rows, outputs, 7);
                let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                for row in 0..rows {
                    let case = format!("{set} {rows}x{outputs}x{inputs}, row {row}");
                    assert_eq!(bits(found.row(row)), bits(expected.row(row)), "{case}");
                    for (output, weights) in weights.chunks_exact(inputs).enumerate() {
                        let base = if accumulate { f64::from(before.row(row)[output]) } else { 0.0 };
                        let sizes: f64 = weights.iter().zip(input.row(row)).map(|(a, b)| f64::from(a * b).abs()).sum();
                        let error = (f64::from(found.row(row)[output]) - base - dot(weights, input.row(row))).abs();
                        assert!(error <= 1e-6 * (sizes + base.abs()), "{case}: off by {error:e}");
                    }
                    let mut picked = Operand::new(Precision::F32);
                    picked.gather(&operand, &[row]);
                    let mut alone = States::default();
                    alone.reshape(1, outputs);
                    alone.row_mut(0).copy_from_slice(before.row(row));
                    multiply(&mut processor(set, 2), &picked, &narrow, &mut alone, accumulate);
                    assert_eq!(bits(alone.row(0)), bits(found.row(row)), "{case} alone");
                }
            }
        }
    }
}

/// What is attended to, number by number.
struct Naive<'a> {
    query: &'a [f32],
    keys: &'a [Vec<f32>],
    values: &'a [Vec<f32>],
    scale: f64,
}

impl Naive<'_> {
    fn attend(&self) -> Vec<f64> {
        let scores: Vec<f64> = self.keys.iter().map(|key| dot(self.query, key) * self.scale).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
        let total: f64 = weights.iter().sum();
        let column = |index: usize| -> f64 {
            self.values.iter().zip(&weights).map(|(value, weight)| f64::from(value[index]) * weight).sum()
        };
        (0..self.query.len()).map(|index| column(index) / total).collect()
    }
}

#[test]
fn attention_over_scattered_blocks_agrees_with_f64() {
    for set in KernelSet::tested() {
        for precision in PRECISIONS {
            for (heads, kv_heads, head_dim) in [(4, 2, 16), (3, 1, 64), (2, 2, 40), (40, 1, 8)] {
                for (before, tokens, window) in [
                    (0, 1, None),
                    (0, 70, None),
                    (130, 1, None),
                    (250, 33, None),
                    (140, 40, Some(9)),
                    (300, 2, Some(140)),
                ] {
                    let layout = KvLayout { heads: kv_heads, head_dim, precision };
                    attention_case(set, layout, AttentionCase { heads, before, tokens, window });
                }
            }
        }
    }
}

/// Heads of queries, tokens that are there, tokens that are new, and the window.
#[derive(Debug, Clone, Copy)]
struct AttentionCase {
    heads: usize,
    before: usize,
    tokens: usize,
    window: Option<usize>,
}

fn attention_case(set: KernelSet, layout: KvLayout, case: AttentionCase) {
    let AttentionCase { heads, before, tokens, window } = case;
    let KvLayout { heads: kv_heads, head_dim, precision } = layout;
    let (width, all) = (kv_heads * head_dim, before + tokens);
    let keys: Vec<Vec<f32>> = (0..all).map(|position| numbers(width, position)).collect();
    let values: Vec<Vec<f32>> = (0..all).map(|position| numbers(width, position + 1_000)).collect();
    let count = all.div_ceil(BLOCK_TOKENS);
    // Blocks that hold others' numbers, then this sequence's in reverse order.
    let mut store = KvStore::new(layout, 2 * count).unwrap();
    let blocks: Vec<u32> = (0..count).rev().map(|block| u32::try_from(2 * block).unwrap()).collect();
    for (position, (key, value)) in keys.iter().zip(&values).enumerate() {
        let (block, slot) = (blocks[position / BLOCK_TOKENS], position % BLOCK_TOKENS);
        if slot == 0 {
            for slot in 0..BLOCK_TOKENS {
                let nan = vec![f32::NAN; width];
                assert!(!store.block_mut(block).write(KernelSet::PORTABLE, layout, slot, (&nan, &nan)));
            }
            store.block_mut(block).clear();
        }
        assert!(store.block_mut(block).write(KernelSet::PORTABLE, layout, slot, (key, value)));
    }
    let queries = states(tokens, heads * head_dim, 9);
    #[expect(clippy::cast_precision_loss, reason = "heads are small")]
    let scale = 1.0 / (head_dim as f32).sqrt();
    let shape = AttentionShape { heads, scale, reach: Reach::within(window), cap: None };
    let both_ways = &BothWays::default();
    let attention = Attention { states: &queries, store: &store, shape, sinks: None, both_ways };
    let span =
        Span { first_row: 0, tokens, first_position: before, blocks, slot: 0, adapter: None, snapshots: Vec::new() };
    let mut out = Operand::new(precision);
    attend(&mut processor(set, 2), &attention, &[span], &mut out);
    // Weights and results are rounded to bf16, one part in 256 each.
    let tolerance = if precision == Precision::Bf16 { 8e-3 } else { 2e-6 };
    for token in 0..tokens {
        let first = window.map_or(0, |window| (before + token + 1).saturating_sub(window));
        let found = out.read_row(token);
        for head in 0..heads {
            let at = head / (heads / kv_heads) * head_dim;
            let cut = |rows: &[Vec<f32>]| -> Vec<Vec<f32>> {
                rows[first..=before + token].iter().map(|row| row[at..at + head_dim].to_vec()).collect()
            };
            let (keys, values) = (cut(&keys), cut(&values));
            let query = &queries.row(token)[head * head_dim..][..head_dim];
            let expected = Naive { query, keys: &keys, values: &values, scale: f64::from(scale) }.attend();
            for (found, expected) in found[head * head_dim..].iter().zip(expected) {
                let error = (f64::from(*found) - expected).abs();
                assert!(error < tolerance, "{set} {layout:?} {case:?}: off by {error:e}");
            }
        }
    }
}

/// What a norm is defined as.
#[expect(clippy::cast_precision_loss, reason = "rows are short")]
fn normed(row: &[f32], weight: &[f32], NormShape { offset, centred, .. }: NormShape) -> Vec<f64> {
    let row: Vec<f64> = row.iter().copied().map(f64::from).collect();
    let mean = if centred { row.iter().sum::<f64>() / row.len() as f64 } else { 0.0 };
    let squares = row.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / row.len() as f64;
    let scale = 1.0 / (squares + 1e-5).sqrt();
    row.iter().zip(weight).map(|(number, weight)| (number - mean) * scale * f64::from(offset + *weight)).collect()
}

#[test]
fn norms_of_heads_agree_with_f64_with_weights_of_one_head_or_of_all() {
    for set in KernelSet::tested() {
        for (centred, weights) in [(false, 1), (true, 3), (false, 3)] {
            let heads = HeadRange { first: 1, count: 3, width: 19 };
            let (before, mut after) = (states(11, 5 * 19 + 2, 1), states(11, 5 * 19 + 2, 1));
            let weight = numbers(weights * 19, 2);
            let shape = NormShape { epsilon: 1e-5, offset: 0.0, centred };
            head_norm(&mut processor(set, 2), &mut after, heads, &weight, shape);
            for row in 0..11 {
                let mut expected: Vec<f64> = before.row(row).iter().copied().map(f64::from).collect();
                for head in 1..4 {
                    let weight = &weight[(head - 1) % weights * 19..][..19];
                    let own = head * 19..(head + 1) * 19;
                    expected[own.clone()].copy_from_slice(&normed(&before.row(row)[own], weight, shape));
                }
                for (found, expected) in after.row(row).iter().zip(expected) {
                    assert!((f64::from(*found) - expected).abs() < 2e-6, "{set}");
                }
            }
        }
    }
}

#[test]
fn norms_agree_with_f64() {
    for set in KernelSet::tested() {
        for (rows, columns, offset, centred) in [
            (1, 1, 0.0_f32, false),
            (3, 15, 1.0, false),
            (2, 64, 1.0, true),
            (20, 577, 0.0, false),
            (20, 577, 0.0, true),
        ] {
            let (input, weight) = (states(rows, columns, 1), numbers(columns, 2));
            let mut out = Operand::new(Precision::F32);
            let shape = NormShape { epsilon: 1e-5, offset, centred };
            norm(&mut processor(set, 2), &input, &weight, shape, &mut out);
            for row in 0..rows {
                let expected = normed(input.row(row), &weight, shape);
                for (found, expected) in out.read_row(row).iter().zip(expected) {
                    assert!((f64::from(*found) - expected).abs() < 1e-6, "{set}");
                }
            }
        }
    }
}

#[test]
fn rotations_agree_with_f64() {
    for set in KernelSet::tested() {
        for (neighbours, pairs) in [(false, 5), (true, 5), (false, 3), (true, 2)] {
            let (rows, heads, head_dim) = (11, 3, 10);
            let before = states(rows, heads * head_dim + 7, 4);
            let mut after = states(rows, heads * head_dim + 7, 4);
            let angles: Vec<f32> = numbers(rows * pairs, 6);
            let cosines = angles.iter().map(|angle| angle.cos()).collect();
            let sines = angles.iter().map(|angle| angle.sin()).collect();
            let rotation = Rotation { first: 0, heads, head_dim, neighbours, angles: 0 };
            rotate(&mut processor(set, 2), &mut after, rotation, &Angles { cosines, sines });
            for row in 0..rows {
                let mut expected: Vec<f64> = before.row(row).iter().map(|number| f64::from(*number)).collect();
                for head in expected[..heads * head_dim].chunks_exact_mut(head_dim) {
                    for pair in 0..pairs {
                        let (first, second) = if neighbours { (2 * pair, 2 * pair + 1) } else { (pair, pair + pairs) };
                        let (sine, cosine) = f64::from(angles[row * pairs + pair]).sin_cos();
                        let (x, y) = (head[first], head[second]);
                        (head[first], head[second]) = (x * cosine - y * sine, y * cosine + x * sine);
                    }
                }
                for (found, expected) in after.row(row).iter().zip(expected) {
                    assert!((f64::from(*found) - expected).abs() < 1e-6, "{set}");
                }
            }
        }
    }
}

/// What a gate is defined as, of a row of gates and ups.
fn gated(kind: Gate, row: &[f64], width: usize, index: usize) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match kind {
        Gate::Silu => row[index] * sigmoid(row[index]) * row[width + index],
        Gate::GeluTanh => {
            let x = row[index];
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh()) * row[width + index]
        }
        Gate::Gelu => {
            let erf = super::exp::tests::erf(row[index] / std::f64::consts::SQRT_2);
            0.5 * row[index] * (1.0 + erf) * row[width + index]
        }
        Gate::GeluTanhAlone => gated(Gate::GeluTanh, &[&row[index..=index], &[1.0]].concat(), 1, 0),
        Gate::GeluAlone => gated(Gate::Gelu, &[&row[index..=index], &[1.0]].concat(), 1, 0),
        Gate::SquaredRelu => row[index].max(0.0).powi(2),
        Gate::Xielu(shape) => {
            let [rising, falling, slope, most] = [shape.rising, shape.falling, shape.slope, shape.most].map(f64::from);
            let x = row[index];
            slope * x + if x > 0.0 { rising * x * x } else { falling * (x.min(most).exp_m1() - x) }
        }
        Gate::Clamped { limit } => {
            let limit = f64::from(limit);
            let (gate, up) = (row[2 * index].min(limit), row[2 * index + 1].clamp(-limit, limit));
            gate * sigmoid(1.702 * gate) * (up + 1.0)
        }
    }
}

#[test]
fn gates_and_shaped_logits_agree_with_f64() {
    for set in KernelSet::tested() {
        let input = states(11, 37, 4);
        let xielu = Gate::Xielu(Xielu { rising: 0.8, falling: 1.3, slope: 0.5, most: -1e-6 });
        let alone = [Gate::GeluTanhAlone, Gate::GeluAlone, Gate::SquaredRelu, xielu];
        for kind in [Gate::Silu, Gate::GeluTanh, Gate::Gelu, Gate::Clamped { limit: 0.7 }].into_iter().chain(alone) {
            let mut out = Operand::new(Precision::F32);
            gate(&mut processor(set, 2), &input, kind, 18, &mut out);
            for row in 0..11 {
                let wide: Vec<f64> = input.row(row).iter().map(|number| f64::from(*number)).collect();
                for (index, found) in out.read_row(row).iter().enumerate() {
                    let error = (f64::from(*found) - gated(kind, &wide, 18, index)).abs();
                    assert!(error < 1e-6, "{set}, {kind:?}: off by {error:e}");
                }
            }
        }
        let mut logits = numbers(37, 5);
        let before = logits.clone();
        shape_logits(set, &mut logits, LogitShape { factor: 0.5, cap: Some(0.3) });
        for (found, before) in logits.iter().zip(before) {
            let expected = 0.3 * (f64::from(before) * 0.5 / 0.3).tanh();
            assert!((f64::from(*found) - expected).abs() < 1e-6, "{set}");
        }
    }
}

#[test]
fn rows_are_rounded_scaled_and_added() {
    for set in KernelSet::tested() {
        let mut processor = processor(set, 2);
        let (from, mut to) = (states(20, 33, 4), states(20, 33, 5));
        let before = states(20, 33, 5);
        let columns = 0..to.columns();
        scale(&mut processor, &mut to, columns, 3.0);
        add(&mut processor, &from, -0.25, &mut to);
        let mut rounded = Operand::new(Precision::F32);
        round(&mut processor, &from, 3..29, &mut rounded);
        let mut picked = Operand::new(Precision::F32);
        picked.pick(&rounded, 2..9);
        for row in 0..20 {
            assert_eq!(rounded.read_row(row), from.row(row)[3..29]);
            assert_eq!(picked.read_row(row), from.row(row)[5..12]);
            for ((found, to), from) in to.row(row).iter().zip(before.row(row)).zip(from.row(row)) {
                let expected = 3.0 * f64::from(*to) - 0.25 * f64::from(*from);
                assert!((f64::from(*found) - expected).abs() < 1e-6, "{set}");
            }
        }
    }
}
