//! Tables of numbers that tokens are written to and read from.

use super::{
    super::{
        KernelSet, Processor, States,
        elementwise::{for_each_row, sum_of_squares},
        exp::{exp_nonpositive, sigmoid},
        instructions::Vectorized,
        parts::Parts,
    },
    Finite, RecurrentStore, copied_after,
};
use crate::engine::native::{
    backend::{Learnt, Span},
    recurrence::{RecurrenceShape, Rule},
};

/// What is added to the squared length of a query or key before it is divided by its length.
const LENGTH_EPSILON: f32 = 1e-6;
/// Columns of a table that are computed together: as many as registers hold, so that a table is read once or twice.
const COLUMNS: usize = 32;

/// `ln(1 + e^x)`.
fn softplus(x: f32) -> f32 {
    x.max(0.0) + exp_nonpositive(-x.abs()).ln_1p()
}

/// What a row says, ready for the tables: queries, keys, what each table is multiplied by, and how strongly the token
/// is written to it.
struct Prepared {
    queries: Vec<f32>,
    keys: Vec<f32>,
    decays: Vec<f32>,
    strengths: Vec<f32>,
}

/// Divides every vector by its length, and multiplies it.
struct Unit<'a> {
    vectors: &'a mut [f32],
    len: usize,
    factor: f32,
}

impl Vectorized for Unit<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for vector in self.vectors.chunks_exact_mut(self.len) {
            let scale = self.factor / (sum_of_squares(vector) + LENGTH_EPSILON).sqrt();
            for number in vector {
                *number *= scale;
            }
        }
    }
}

impl Prepared {
    fn of(
        set: KernelSet,
        row: &[f32],
        Learnt { decay, bias, .. }: &Learnt<'_, Vec<f32>>,
        shape: &RecurrenceShape,
    ) -> Self {
        let RecurrenceShape { rule, heads, groups, key, queries, keys, steps, strengths, .. } = *shape;
        let mut queries = row[queries..][..groups * key].to_vec();
        let mut keys = row[keys..][..groups * key].to_vec();
        let steps =
            row[steps..][..shape.step_count()].iter().zip(bias.iter()).map(|(step, bias)| softplus(step + bias));
        let of_head = shape.step_count() / heads;
        let rate = |index: usize| decay[index / of_head].exp();
        let decayed = |(index, step): (usize, f32)| exp_nonpositive(-(rate(index) * step));
        match rule {
            Rule::Delta { .. } => {
                #[expect(clippy::cast_precision_loss, reason = "keys are short")]
                let factor = 1.0 / (key as f32).sqrt();
                set.vectorize(Unit { vectors: &mut queries, len: key, factor });
                set.vectorize(Unit { vectors: &mut keys, len: key, factor: 1.0 });
                let strengths = row[strengths..][..heads].iter().map(|strength| sigmoid(*strength)).collect();
                Self { queries, keys, decays: steps.enumerate().map(decayed).collect(), strengths }
            }
            Rule::Scan { least, most } => {
                let strengths: Vec<f32> = steps.map(|step| clamped(step, least, most)).collect();
                let decays = strengths.iter().copied().enumerate().map(decayed).collect();
                Self { queries, keys, decays, strengths }
            }
        }
    }
}

/// What is not a number stays so.
fn clamped(step: f32, least: f32, most: f32) -> f32 {
    let step = if step < least { least } else { step };
    if step > most { most } else { step }
}

/// One token of a table.
struct Token<'a> {
    table: &'a mut [f32],
    query: &'a [f32],
    key: &'a [f32],
    /// One for each row, or one.
    decay: &'a [f32],
    strength: f32,
    value: &'a [f32],
    /// Whether what the table says of the key already is taken from the value.
    delta: bool,
    skip: f32,
    out: &'a mut [f32],
}

impl Token<'_> {
    /// The columns from `first` on.
    #[inline(always)]
    fn columns<const N: usize>(&mut self, first: usize) {
        let width = self.value.len();
        let value: [f32; N] = self.value[first..first + N].try_into().expect("as many");
        let mut written = value.map(|value| self.strength * value);
        if self.delta {
            let mut known = [0.0; N];
            for (row, key) in self.key.iter().enumerate() {
                let decay = self.decay[if self.decay.len() == 1 { 0 } else { row }];
                let numbers = &mut self.table[row * width + first..][..N];
                for (number, known) in numbers.iter_mut().zip(&mut known) {
                    *number *= decay;
                    *known += key * *number;
                }
            }
            for ((written, value), known) in written.iter_mut().zip(value).zip(known) {
                *written = self.strength * (value - known);
            }
        }
        let decay = if self.delta { 1.0 } else { self.decay[0] };
        let mut sum = [0.0; N];
        for (row, (key, query)) in self.key.iter().zip(self.query).enumerate() {
            let numbers = &mut self.table[row * width + first..][..N];
            for ((number, written), sum) in numbers.iter_mut().zip(&written).zip(&mut sum) {
                *number = decay * *number + key * written;
                *sum += query * *number;
            }
        }
        for ((out, sum), value) in self.out[first..first + N].iter_mut().zip(sum).zip(value) {
            *out = sum + self.skip * value;
        }
    }
}

impl Vectorized for Token<'_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let whole = self.value.len() / COLUMNS * COLUMNS;
        for first in (0..whole).step_by(COLUMNS) {
            self.columns::<COLUMNS>(first);
        }
        for first in whole..self.value.len() {
            self.columns::<1>(first);
        }
    }
}

/// Has every token of every span read and write the tables; `out` has the outputs of all heads.
#[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
pub(crate) fn recur(
    Processor { set, pool }: &mut Processor,
    states: &States,
    learnt: Learnt<'_, Vec<f32>>,
    shape: &RecurrenceShape,
    store: &mut RecurrentStore,
    (spans, finite): (&[Span], &mut [bool]),
    out: &mut States,
) {
    let RecurrenceShape { rule, heads, groups, key, value, .. } = *shape;
    let kept = store.shape;
    assert_eq!((kept.heads, kept.key, kept.value), (heads, key, value), "a state of this recurrence");
    assert_eq!((learnt.decay.len(), learnt.bias.len()), (heads, shape.step_count()), "a decay for each head");
    store.check(spans);
    out.reshape(states.rows, heads * value);
    let set = *set;
    let mut prepared: Vec<Option<Prepared>> = (0..states.rows).map(|_| None).collect();
    let to = Parts::new(&mut prepared);
    for_each_row(pool, states.rows, &|row| {
        // SAFETY: a row is worked on once.
        let prepared = unsafe { to.part(row, 1) };
        prepared[0] = Some(Prepared::of(set, states.row(row), &learnt, shape));
    });
    let (stride, slot_len, table_len) = (out.stride, kept.numbers(), kept.table());
    let (outs, slots) = (Parts::new(&mut out.numbers), Parts::new(&mut store.numbers));
    let finite = Finite::new(finite);
    pool.for_each(spans.len() * heads, &|item| {
        let (number, head) = (item / heads, item % heads);
        let (span, group) = (&spans[number], head / (heads / groups));
        let start = |slot: u32| slot as usize * slot_len + kept.window() + head * table_len;
        // SAFETY: a head of a slot is one item's, since no two spans share a slot.
        let table = unsafe { slots.part(start(span.slot), table_len) };
        if span.first_position == 0 {
            table.fill(0.0);
        }
        for token in 0..span.tokens {
            let row = span.first_row + token;
            let Some(Prepared { queries, keys, decays, strengths }) = &prepared[row] else {
                unreachable!("all rows are")
            };
            let of_head = decays.len() / heads;
            set.vectorize(Token {
                table: &mut *table,
                query: &queries[group * key..][..key],
                key: &keys[group * key..][..key],
                decay: &decays[head * of_head..][..of_head],
                strength: strengths[head],
                value: &states.row(row)[shape.values + head * value..][..value],
                delta: matches!(rule, Rule::Delta { .. }),
                skip: learnt.skip.map_or(0.0, |skip| skip[head]),
                // SAFETY: a head of a row is one item's.
                out: unsafe { outs.part(row * stride + head * value, value) },
            });
            for slot in copied_after(span, token) {
                // SAFETY: as above.
                unsafe { slots.part(start(slot), table_len) }.copy_from_slice(table);
            }
        }
        finite.look_at(number, table);
    });
}
