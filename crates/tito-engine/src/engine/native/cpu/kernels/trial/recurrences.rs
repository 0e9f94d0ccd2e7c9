//! Examples of what recurrent layers compute: convolutions, every rule, and their gates.

use super::{
    super::{Operand, Precision, Processor, RecurrentStore, States, Taps, convolve, gated_norm, open, recur},
    example::Example,
    examples::{exact, numbers, numbers_of_operand, numbers_of_states, states},
};
use crate::engine::native::{
    backend::{Learnt, Span},
    recurrence::{ConvolutionShape, GatedNormShape, RecurrenceShape, RecurrentShape, Rule},
};

const RULES: [Rule; 3] =
    [Rule::Delta { by_key: false }, Rule::Delta { by_key: true }, Rule::Scan { least: 0.001, most: 0.7 }];

/// All of them.
pub(super) fn all() -> Vec<Example> {
    let mut examples: Vec<Example> = RULES.into_iter().map(recurrence).collect();
    examples.extend([false, true].map(convolution));
    for gate_first in [false, true] {
        examples.extend([false, true].map(|silu| norm_and_gates(gate_first, silu)));
    }
    examples.push(opened());
    examples
}

/// A prompt of some tokens, and one more token after it.
fn spans() -> [Span; 2] {
    let span = |first_position, tokens| Span {
        first_row: first_position,
        tokens,
        first_position,
        blocks: Vec::new(),
        slot: 0,
        adapter: None,
        snapshots: Vec::new(),
    };
    [span(0, 5), span(5, 1)]
}

fn recurrence(rule: Rule) -> Example {
    let (heads, groups, key, value) = (4, 2, 20, 37);
    let step_count = if rule == (Rule::Delta { by_key: true }) { heads * key } else { heads };
    let (keys, values) = (groups * key, 2 * groups * key);
    let strengths = values + heads * value;
    let steps = strengths + heads;
    let shape = RecurrenceShape { rule, heads, groups, key, value, queries: 0, keys, values, steps, strengths };
    exact(&format!("the rule {rule:?} over tables of {key} x {value} numbers"), move |processor| {
        let store = RecurrentStore::new(RecurrentShape { channels: 0, before: 0, heads, key, value }, 1);
        let Ok(mut store) = store else { return Vec::new() };
        let (decay, bias, skip) = (numbers(heads, 41), numbers(step_count, 42), numbers(heads, 43));
        let skip = matches!(rule, Rule::Scan { .. }).then_some(&skip);
        let learnt = Learnt { decay: &decay, bias: &bias, skip };
        let (rows, mut out) = (states(6, steps + step_count, 44), States::default());
        let mut all = Vec::new();
        for span in spans() {
            recur(processor, &rows, &learnt, &shape, &mut store, (std::slice::from_ref(&span), &mut [true]), &mut out);
            all.extend((0..span.tokens).flat_map(|token| out.row(span.first_row + token).to_vec()));
        }
        all
    })
}

fn convolution(activated: bool) -> Example {
    let kind = if activated { "activated" } else { "plain" };
    exact(&format!("a convolution of 77 channels over four tokens, {kind}"), move |processor| {
        let shape = ConvolutionShape { first: 3, channels: 77, taps: 4, activated };
        let store = RecurrentStore::new(RecurrentShape { channels: 77, before: 3, heads: 0, key: 0, value: 0 }, 1);
        let Ok(mut store) = store else { return Vec::new() };
        let (weight, bias) = (numbers(77 * 4, 45), numbers(77, 46));
        let mut rows = states(6, 85, 47);
        for span in spans() {
            let taps = Taps { weight: &weight, bias: Some(&bias) };
            convolve(processor, &mut rows, taps, shape, &mut store, (&[span], &mut [true]));
        }
        numbers_of_states(&rows)
    })
}

fn norm_and_gates(gate_first: bool, silu: bool) -> Example {
    let order = if gate_first { "after" } else { "before" };
    let kind = if silu { "silu" } else { "sigmoid" };
    exact(&format!("the norm of groups of 37 numbers {order} gates of {kind}"), move |processor| {
        let shape = GatedNormShape { group: 37, epsilon: 1e-6, gate_first, silu, gates: 2 };
        let mut out = Operand::new(Precision::Bf16);
        let weight = numbers(37, 48);
        gated_norm(processor, &states(5, 74, 49), &states(5, 78, 50), Some(&weight), shape, &mut out);
        numbers_of_operand(&out)
    })
}

fn opened() -> Example {
    exact("rows of 77 numbers times the sigmoids of their gates", |processor: &mut Processor| {
        let mut out = Operand::new(Precision::F32);
        out.reshape(5, 77);
        for (row, values) in numbers(5 * 77, 51).chunks_exact(77).enumerate() {
            out.write_row(row, values);
        }
        open(processor, &states(5, 77, 52), &mut out);
        numbers_of_operand(&out)
    })
}
