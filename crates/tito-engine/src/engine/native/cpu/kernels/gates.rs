//! What activation functions make of numbers: gates of feed-forward parts, and caps of scores and logits.

use super::{
    KernelSet, Operand, Processor, States,
    elementwise::for_each_row,
    exp::{exp_less_one, gelu, gelu_tanh, sigmoid, silu, tanh},
    instructions::Vectorized,
    packed::NumberParts,
    scratch::with_row,
};
use crate::engine::native::backend::{Gate, LogitShape, Xielu};

/// The slope of the gate of [`Gate::Clamped`].
const CLAMPED_SLOPE: f32 = 1.702;

/// One row of gates and ups.
struct Gated<'a> {
    row: &'a [f32],
    kind: Gate,
    out: &'a mut [f32],
}

impl Vectorized for Gated<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { row, kind, out } = self;
        let alone = out.iter_mut().zip(row);
        match kind {
            Gate::SquaredRelu => return alone.for_each(|(out, number)| *out = squared_relu(*number)),
            Gate::GeluTanhAlone => return alone.for_each(|(out, number)| *out = gelu_tanh(*number)),
            Gate::GeluAlone => return alone.for_each(|(out, number)| *out = gelu(*number)),
            Gate::Xielu(shape) => return alone.for_each(|(out, number)| *out = xielu(*number, shape)),
            _ => {}
        }
        let (gates, ups) = row.split_at(out.len());
        let apart = out.iter_mut().zip(gates.iter().zip(ups));
        match kind {
            Gate::SquaredRelu | Gate::GeluTanhAlone | Gate::GeluAlone | Gate::Xielu(_) => {
                unreachable!("it has no ups")
            }
            Gate::Silu => apart.for_each(|(out, (gate, up))| *out = silu(*gate) * up),
            Gate::GeluTanh => apart.for_each(|(out, (gate, up))| *out = gelu_tanh(*gate) * up),
            Gate::Gelu => apart.for_each(|(out, (gate, up))| *out = gelu(*gate) * up),
            Gate::Clamped { limit } => {
                let (pairs, _) = row.as_chunks::<2>();
                for (out, [gate, up]) in out.iter_mut().zip(pairs) {
                    *out = clamped(*gate, *up, limit);
                }
            }
        }
    }
}

/// As gpt-oss has it. What is not a number stays so.
#[inline(always)]
fn clamped(gate: f32, up: f32, limit: f32) -> f32 {
    let gate = if gate > limit { limit } else { gate };
    let up = up.clamp(-limit, limit);
    (up + 1.0) * (gate * sigmoid(CLAMPED_SLOPE * gate))
}

/// What is not a number stays so.
#[inline(always)]
fn squared_relu(number: f32) -> f32 {
    let number = if number < 0.0 { 0.0 } else { number };
    number * number
}

/// What is not a number stays so.
#[inline(always)]
fn xielu(number: f32, Xielu { rising, falling, slope, most }: Xielu) -> f32 {
    let low = if number < most { number } else { most };
    let curved = if number > 0.0 { rising * number * number } else { (exp_less_one(low) - number) * falling };
    curved + slope * number
}

/// Writes what a gate makes of every row to `out`; a row holds what that reads.
pub(crate) fn gate(
    Processor { set, pool }: &mut Processor,
    states: &States,
    kind: Gate,
    width: usize,
    out: &mut Operand,
) {
    out.reshape(states.rows, width);
    let (set, stride) = (*set, out.stride);
    let to = NumberParts::new(&mut out.numbers);
    for_each_row(pool, states.rows, &|index| {
        with_row(width, |row| {
            set.vectorize(Gated { row: &states.row(index)[..kind.inputs(width)], kind, out: row });
            // SAFETY: a row is worked on once.
            unsafe { to.write(set, index * stride, row) };
        });
    });
}

/// A row of logits that are scaled and capped.
struct Shaped<'a> {
    row: &'a mut [f32],
    factor: f32,
    cap: Option<f32>,
}

impl Vectorized for Shaped<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { row, factor, cap } = self;
        for number in &mut *row {
            *number *= factor;
        }
        if let Some(cap) = cap {
            for number in row {
                *number = capped(*number, cap);
            }
        }
    }
}

/// `cap * tanh(number / cap)`.
#[inline(always)]
pub(super) fn capped(number: f32, cap: f32) -> f32 {
    cap * tanh(number / cap)
}

/// Scales and caps a row of logits.
pub(crate) fn shape_logits(set: KernelSet, row: &mut [f32], LogitShape { factor, cap }: LogitShape) {
    if factor.to_bits() != 1.0_f32.to_bits() || cap.is_some() {
        set.vectorize(Shaped { row, factor, cap });
    }
}
