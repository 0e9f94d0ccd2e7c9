//! Recurrences and their neighbours against their definitions in f64, in one piece and in several.

#![expect(clippy::cast_precision_loss, reason = "small numbers")]

use super::{
    super::{KernelSet, Pool, Processor, States},
    *,
};
use crate::engine::native::{
    backend::Learnt,
    cpu::kernels::{Operand, Precision},
    recurrence::{ConvolutionShape, GatedNormShape, RecurrenceShape, Rule},
};

fn number(place: usize) -> f32 {
    let number = ((place * 7919 + 13) % 10_007) as f32;
    number / 5_000.0 - 1.0
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|place| number(place + seed * 1_000)).collect()
}

fn rows(count: usize, columns: usize) -> States {
    let mut states = States::default();
    states.reshape(count, columns);
    for row in 0..count {
        states.row_mut(row).copy_from_slice(&numbers(columns, row + 1));
    }
    states
}

fn part(states: &States, range: std::ops::Range<usize>) -> States {
    let mut part = States::default();
    part.reshape(range.len(), states.columns());
    for (to, from) in range.enumerate() {
        part.row_mut(to).copy_from_slice(states.row(from));
    }
    part
}

fn processor(set: KernelSet, threads: usize) -> Processor {
    Processor { set, pool: Pool::new(threads).unwrap() }
}

fn span(first_row: usize, tokens: usize, first_position: usize, slot: SlotId) -> Span {
    Span { first_row, tokens, first_position, blocks: Vec::new(), slot, adapter: None, snapshots: Vec::new() }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn close(found: f32, expected: f64, what: &str) {
    let error = (f64::from(found) - expected).abs() / expected.abs().max(1.0);
    assert!(error < 2e-5, "{what}: {found} is not {expected}");
}

const TOKENS: usize = 11;

/// A shape, and its columns one after the other.
fn shape(rule: Rule) -> (RecurrenceShape, usize) {
    let (heads, groups, key, value) = (6, 3, 10, 163);
    let steps = if rule == (Rule::Delta { by_key: true }) { heads * key } else { heads };
    let (keys, values) = (groups * key, 2 * groups * key);
    let strengths = values + heads * value;
    let shape = RecurrenceShape {
        rule,
        heads,
        groups,
        key,
        value,
        queries: 0,
        keys,
        values,
        strengths,
        steps: strengths + heads,
    };
    (shape, strengths + heads + steps)
}

struct Vectors {
    decay: Vec<f32>,
    bias: Vec<f32>,
    skip: Vec<f32>,
}

impl Vectors {
    fn new(shape: &RecurrenceShape) -> Self {
        Self { decay: numbers(shape.heads, 3), bias: numbers(shape.step_count(), 5), skip: numbers(shape.heads, 7) }
    }

    fn learnt(&self, shape: &RecurrenceShape) -> Learnt<'_, Vec<f32>> {
        let skip = matches!(shape.rule, Rule::Scan { .. }).then_some(&self.skip);
        Learnt { decay: &self.decay, bias: &self.bias, skip }
    }
}

/// What one head reads of its table, token by token.
fn defined(rows: &States, vectors: &Vectors, shape: &RecurrenceShape, head: usize) -> Vec<Vec<f64>> {
    let RecurrenceShape { key, value, .. } = *shape;
    let group = head / (shape.heads / shape.groups);
    let mut table = vec![vec![0.0_f64; value]; key];
    let token = |row: usize| -> Vec<f64> {
        let at = |first: usize, len: usize| -> Vec<f64> {
            rows.row(row)[first..first + len].iter().copied().map(f64::from).collect()
        };
        let (mut query, mut own) = (at(shape.queries + group * key, key), at(shape.keys + group * key, key));
        let values = at(shape.values + head * value, value);
        let of_head = shape.step_count() / shape.heads;
        let softplus = |step: f64| step.exp().ln_1p();
        let steps: Vec<f64> = at(shape.steps + head * of_head, of_head)
            .into_iter()
            .zip(&vectors.bias[head * of_head..])
            .map(|(step, bias)| softplus(step + f64::from(*bias)))
            .collect();
        let rate = f64::from(vectors.decay[head]).exp();
        let strength = match shape.rule {
            Rule::Delta { .. } => {
                for (vector, factor) in [(&mut query, (key as f64).sqrt()), (&mut own, 1.0)] {
                    let length = (vector.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                    for number in vector {
                        *number /= length * factor;
                    }
                }
                sigmoid(at(shape.strengths + head, 1)[0])
            }
            Rule::Scan { least, most } => steps[0].clamp(f64::from(least), f64::from(most)),
        };
        for (row, numbers) in table.iter_mut().enumerate() {
            let step = if matches!(shape.rule, Rule::Scan { .. }) { strength } else { steps[row % of_head] };
            for number in numbers {
                *number *= (-rate * step).exp();
            }
        }
        let known = |column: usize| -> f64 { table.iter().zip(&own).map(|(row, key)| key * row[column]).sum() };
        let written: Vec<f64> = match shape.rule {
            Rule::Delta { .. } => (0..value).map(|column| strength * (values[column] - known(column))).collect(),
            Rule::Scan { .. } => values.iter().map(|value| strength * value).collect(),
        };
        for (numbers, key) in table.iter_mut().zip(&own) {
            numbers.iter_mut().zip(&written).for_each(|(number, written)| *number += key * written);
        }
        let skip = if matches!(shape.rule, Rule::Scan { .. }) { f64::from(vectors.skip[head]) } else { 0.0 };
        let read = |column: usize| -> f64 { table.iter().zip(&query).map(|(row, query)| query * row[column]).sum() };
        (0..value).map(|column| read(column) + skip * values[column]).collect()
    };
    (0..rows.rows()).map(token).collect()
}

const RULES: [Rule; 4] = [
    Rule::Delta { by_key: false },
    Rule::Delta { by_key: true },
    Rule::Scan { least: 0.0, most: f32::INFINITY },
    Rule::Scan { least: 0.4, most: 0.9 },
];

fn store(shape: &RecurrenceShape) -> RecurrentStore {
    let RecurrenceShape { heads, key, value, .. } = *shape;
    RecurrentStore::new(RecurrentShape { channels: 0, before: 0, heads, key, value }, 4).unwrap()
}

#[test]
fn recurrences_are_what_they_are_defined_as() {
    for set in KernelSet::tested() {
        for (shape, columns) in RULES.map(shape) {
            let (states, vectors, mut out) = (rows(TOKENS, columns), Vectors::new(&shape), States::default());
            let mut finite = [true];
            let spans = [span(0, TOKENS, 0, 2)];
            let mut store = store(&shape);
            recur(
                &mut processor(set, 2),
                &states,
                &vectors.learnt(&shape),
                &shape,
                &mut store,
                (&spans, &mut finite),
                &mut out,
            );
            assert!(finite[0]);
            for head in 0..shape.heads {
                for (token, expected) in defined(&states, &vectors, &shape, head).into_iter().enumerate() {
                    for (column, expected) in expected.into_iter().enumerate() {
                        let what = format!("{:?}, head {head}, token {token}, column {column}", shape.rule);
                        close(out.row(token)[head * shape.value + column], expected, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn a_sequence_in_pieces_in_company_and_from_a_copy_has_the_same_bits() {
    for (shape, columns) in RULES.map(shape) {
        let (states, vectors, mut whole) = (rows(TOKENS, columns), Vectors::new(&shape), States::default());
        let mut alone = processor(KernelSet::available()[0], 1);
        let mut kept = store(&shape);
        // What is left over in a slot counts for nothing.
        kept.numbers.fill(f32::NAN);
        let first = Span { snapshots: vec![(4, 3), (TOKENS, 0)], ..span(0, TOKENS, 0, 1) };
        recur(&mut alone, &states, &vectors.learnt(&shape), &shape, &mut kept, (&[first], &mut [true]), &mut whole);
        let bits =
            |states: &States, row: usize| states.row(row).iter().map(|number| number.to_bits()).collect::<Vec<_>>();
        let mut several = processor(KernelSet::available()[0], 3);
        let mut pieces = store(&shape);
        let mut read = States::default();
        for (first, tokens) in [(0, 4), (4, 1), (5, 6)] {
            // The company is another sequence, whose rows come first.
            let mut both = part(&states, 0..2);
            let own = part(&states, first..first + tokens);
            both.reshape(2 + tokens, columns);
            for row in 0..tokens {
                both.row_mut(2 + row).copy_from_slice(own.row(row));
            }
            let spans = [span(0, 2, 0, 0), span(2, tokens, first, 1)];
            let learnt = &vectors.learnt(&shape);
            recur(&mut several, &both, learnt, &shape, &mut pieces, (&spans, &mut [true, true]), &mut read);
            for row in 0..tokens {
                assert_eq!(bits(&read, 2 + row), bits(&whole, first + row), "{:?}, token {}", shape.rule, first + row);
            }
        }
        kept.copy(3, 2);
        let rest = part(&states, 4..TOKENS);
        let spans = [span(0, TOKENS - 4, 4, 2)];
        recur(&mut several, &rest, &vectors.learnt(&shape), &shape, &mut kept, (&spans, &mut [true]), &mut read);
        for row in 4..TOKENS {
            assert_eq!(bits(&read, row - 4), bits(&whole, row));
        }
        let len = kept.shape.numbers();
        assert_eq!(kept.numbers[..len], kept.numbers[len..2 * len], "the last copy is the state itself");
    }
}

#[test]
fn a_state_that_is_not_finite_is_told() {
    let (shape, columns) = shape(Rule::Delta { by_key: false });
    let (mut states, vectors, mut out) = (rows(2, columns), Vectors::new(&shape), States::default());
    states.row_mut(1)[shape.values] = f32::INFINITY;
    let (spans, mut finite) = ([span(0, 1, 0, 0), span(1, 1, 0, 1)], [true, true]);
    let (mut store, mut processor) = (store(&shape), processor(KernelSet::PORTABLE, 1));
    recur(&mut processor, &states, &vectors.learnt(&shape), &shape, &mut store, (&spans, &mut finite), &mut out);
    assert_eq!(finite, [true, false]);
}

#[test]
fn convolutions_are_what_they_are_defined_as_however_they_are_cut() {
    let (channels, taps) = (300, 4);
    let shape = ConvolutionShape { first: 5, channels, taps, activated: true };
    let (weight, bias) = (numbers(channels * taps, 2), numbers(channels, 4));
    for (set, bias) in KernelSet::tested().into_iter().flat_map(|set| [(set, None), (set, Some(&bias[..]))]) {
        let before = rows(TOKENS, channels + 9);
        let state = RecurrentShape { channels, before: taps - 1, heads: 0, key: 0, value: 0 };
        let store = || RecurrentStore::new(state, 2).unwrap();
        let (mut whole, mut kept, given) = (rows(TOKENS, channels + 9), store(), Taps { weight: &weight, bias });
        kept.numbers.fill(f32::NAN);
        let spans = [span(0, TOKENS, 0, 1)];
        convolve(&mut processor(set, 2), &mut whole, given, shape, &mut kept, (&spans, &mut [true]));
        for row in 0..TOKENS {
            for channel in 0..channels {
                let of_tap = |tap: usize| {
                    let input = (row + tap + 1).checked_sub(taps).map_or(0.0, |from| before.row(from)[5 + channel]);
                    f64::from(weight[channel * taps + tap]) * f64::from(input)
                };
                let sum = (0..taps).map(of_tap).sum::<f64>() + bias.map_or(0.0, |bias| f64::from(bias[channel]));
                close(whole.row(row)[5 + channel], sum * sigmoid(sum), "a convolution");
            }
            assert_eq!(whole.row(row)[..5], before.row(row)[..5]);
            assert_eq!(whole.row(row)[5 + channels..], before.row(row)[5 + channels..]);
        }
        let mut pieces = store();
        for (first, tokens) in [(0, 1), (1, 2), (3, 8)] {
            let mut piece = part(&before, first..first + tokens);
            let spans = [span(0, tokens, first, 0)];
            convolve(&mut processor(set, 3), &mut piece, given, shape, &mut pieces, (&spans, &mut [true]));
            for row in 0..tokens {
                assert_eq!(piece.row(row), whole.row(first + row), "token {}", first + row);
            }
        }
    }
}

#[test]
fn gated_norms_are_what_they_are_defined_as() {
    let (width, group) = (48, 12);
    let (states, gates, weights) = (rows(9, width), rows(9, width + 7), numbers(24, 9));
    for (gate_first, silu, weight) in
        [(true, true, Some(&weights[..])), (false, false, Some(&weights[..12])), (false, true, None)]
    {
        let shape = GatedNormShape { group, epsilon: 1e-5, gate_first, silu, gates: 3 };
        let mut out = Operand::new(Precision::F32);
        gated_norm(&mut processor(KernelSet::available()[0], 2), &states, &gates, weight, shape, &mut out);
        for row in 0..9 {
            let gate = |place: usize| {
                let gate = f64::from(gates.row(row)[3 + place]);
                sigmoid(gate) * if silu { gate } else { 1.0 }
            };
            let number = |place: usize| f64::from(states.row(row)[place]) * if gate_first { gate(place) } else { 1.0 };
            for place in 0..width {
                let first = place / group * group;
                let mean = (first..first + group).map(|place| number(place).powi(2)).sum::<f64>() / group as f64;
                let norm = weight.map_or(1.0, |weight| f64::from(weight[place % weight.len()]) / (mean + 1e-5).sqrt());
                let expected = number(place) * norm * if gate_first { 1.0 } else { gate(place) };
                close(out.read_row(row)[place], expected, "a gated norm");
            }
        }
    }
}

#[test]
fn numbers_are_opened_and_columns_multiplied() {
    let mut processor = processor(KernelSet::available()[0], 2);
    let (states, gates) = (rows(9, 20), rows(9, 20));
    let mut out = Operand::new(Precision::F32);
    super::super::round(&mut processor, &states, 0..20, &mut out);
    open(&mut processor, &gates, &mut out);
    let mut product = rows(9, 20);
    multiply_columns(&mut processor, &mut product, 15..20, 4);
    for row in 0..9 {
        let (own, opened) = (states.row(row), out.read_row(row));
        for place in 0..20 {
            close(opened[place], f64::from(own[place]) * sigmoid(f64::from(own[place])), "an opened number");
            let factor = if (4..9).contains(&place) { own[place + 11] } else { 1.0 };
            assert_eq!(product.row(row)[place].to_bits(), (own[place] * factor).to_bits());
        }
    }
}
