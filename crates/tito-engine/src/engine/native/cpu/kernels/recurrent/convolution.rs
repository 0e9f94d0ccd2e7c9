//! Causal convolutions of channels.

use super::{
    super::{Processor, States, exp::silu, instructions::Vectorized, parts::Parts},
    Finite, RecurrentStore,
};
use crate::engine::native::{
    backend::Span,
    recurrence::{ConvolutionShape, SlotId},
};

/// Channels that one thread takes at a time.
const CHANNELS: usize = 256;

/// What a convolution has learnt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taps<'a> {
    /// For each channel the factors of its tokens, that of the present one last.
    pub(crate) weight: &'a [f32],
    /// A number to begin with, for each channel.
    pub(crate) bias: Option<&'a [f32]>,
}

/// Some channels of one token: `inputs` has those of the tokens before it, the oldest first, and then its own.
struct Convolved<'a> {
    inputs: &'a [f32],
    /// For each of these tokens the factors of the channels.
    factors: &'a [f32],
    bias: Option<&'a [f32]>,
    activated: bool,
    out: &'a mut [f32],
}

impl Vectorized for Convolved<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { inputs, factors, bias, activated, out } = self;
        match bias {
            Some(bias) => out.copy_from_slice(bias),
            None => out.fill(0.0),
        }
        let width = out.len();
        for (inputs, factors) in inputs.chunks_exact(width).zip(factors.chunks_exact(width)) {
            for ((out, input), factor) in out.iter_mut().zip(inputs).zip(factors) {
                *out += factor * input;
            }
        }
        if activated {
            for out in out {
                *out = silu(*out);
            }
        }
    }
}

/// The factors of some channels, token after token: channels that stand beside each other are computed together.
fn by_token(weight: &[f32], taps: usize) -> Vec<f32> {
    (0..taps).flat_map(|tap| weight[tap..].iter().step_by(taps).copied()).collect()
}

/// The slots that the state is to be copied to after this token of a span.
fn copied_after(span: &Span, token: usize) -> impl Iterator<Item = SlotId> {
    let computed = span.first_position + token + 1;
    span.snapshots.iter().filter(move |(tokens, _)| *tokens == computed).map(|(_, slot)| *slot)
}

/// Convolves some channels of every row in place.
#[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
pub(crate) fn convolve(
    Processor { set, pool }: &mut Processor,
    states: &mut States,
    taps: Taps<'_>,
    shape: ConvolutionShape,
    store: &mut RecurrentStore,
    (spans, finite): (&[Span], &mut [bool]),
) {
    let ConvolutionShape { first, channels, taps: length, activated } = shape;
    assert!(first + channels <= states.columns, "the channels are in the row");
    assert_eq!((store.shape.channels, store.shape.before), (channels, length - 1), "a state of this convolution");
    assert_eq!(taps.weight.len(), channels * length, "a factor for each token of each channel");
    store.check(spans);
    let (set, stride, slot_len) = (*set, states.stride, store.shape.numbers());
    let (rows, slots) = (Parts::new(&mut states.numbers), Parts::new(&mut store.numbers));
    let finite = Finite::new(finite);
    let parts = channels.div_ceil(CHANNELS);
    pool.for_each(spans.len() * parts, &|item| {
        let (span, from) = (item / parts, item % parts * CHANNELS);
        let width = CHANNELS.min(channels - from);
        let own = from..from + width;
        let (number, span) = (span, &spans[span]);
        let factors = by_token(&taps.weight[own.start * length..own.end * length], length);
        let bias = taps.bias.map(|bias| &bias[own]);
        let mut inputs = vec![0.0; length * width];
        // SAFETY: the channels of a slot's tokens that this item has are nobody else's, since no two spans share a slot.
        let kept =
            |slot: u32, before| unsafe { slots.part(slot as usize * slot_len + before * channels + from, width) };
        if span.first_position > 0 {
            for (before, input) in inputs.chunks_exact_mut(width).take(length - 1).enumerate() {
                input.copy_from_slice(kept(span.slot, before));
            }
        }
        let keep = |slot: u32, inputs: &[f32]| {
            for (before, input) in inputs.chunks_exact(width).skip(1).enumerate() {
                kept(slot, before).copy_from_slice(input);
            }
        };
        for token in 0..span.tokens {
            // SAFETY: the channels of a row that this item has are nobody else's.
            let row = unsafe { rows.part((span.first_row + token) * stride + first + from, width) };
            if token > 0 {
                inputs.copy_within(width.., 0);
            }
            inputs[(length - 1) * width..].copy_from_slice(row);
            set.vectorize(Convolved { inputs: &inputs, factors: &factors, bias, activated, out: row });
            copied_after(span, token).for_each(|slot| keep(slot, &inputs));
        }
        keep(span.slot, &inputs);
        finite.look_at(number, &inputs);
    });
}
