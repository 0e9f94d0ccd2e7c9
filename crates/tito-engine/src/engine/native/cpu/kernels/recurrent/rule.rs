//! Tables of numbers that tokens are written to and read from.

use super::{
    super::{
        KernelSet, Pool, Processor, States,
        elementwise::{for_each_row, sum_of_squares},
        exp::{exp_nonpositive, sigmoid},
        instructions::Vectorized,
        parts::Parts,
    },
    Finite, RecurrentStore,
};
use crate::engine::native::{
    backend::{Learnt, Span},
    recurrence::{RecurrenceShape, Rule},
};

/// What is added to the squared length of a query or key before it is divided by its length.
const LENGTH_EPSILON: f32 = 1e-6;
/// Columns of a table that are computed together: as many as the largest registers hold. A table whose rows are read as a
/// whole comes faster from memory.
const WIDE: usize = 128;
/// The same where fewer are left.
const NARROW: usize = 32;

/// `ln(1 + e^x)`.
fn softplus(x: f32) -> f32 {
    x.max(0.0) + exp_nonpositive(-x.abs()).ln_1p()
}

/// What a row says, ready for the tables: queries, keys, what each table is multiplied by, and how strongly the token
/// is written to it.
#[derive(Default)]
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
    /// `rates` has how fast the table of each head is forgotten, `bias` what is added to each step.
    fn of(set: KernelSet, row: &[f32], (rates, bias): (&[f32], &[f32]), shape: &RecurrenceShape) -> Self {
        let RecurrenceShape { rule, heads, groups, key, queries, keys, steps, strengths, .. } = *shape;
        let mut queries = row[queries..][..groups * key].to_vec();
        let mut keys = row[keys..][..groups * key].to_vec();
        let steps = row[steps..][..shape.step_count()].iter().zip(bias).map(|(step, bias)| softplus(step + bias));
        let of_head = shape.step_count() / heads;
        let decayed = |(index, step): (usize, f32)| exp_nonpositive(-(rates[index / of_head] * step));
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
    query: &'a [f32],
    key: &'a [f32],
    /// One for each row, or one.
    decay: &'a [f32],
    strength: f32,
    value: &'a [f32],
    out: &'a mut [f32],
}

/// Some tokens of a table, one after the other.
struct Tokens<'a> {
    table: &'a mut [f32],
    all: Vec<Token<'a>>,
    /// Whether what the table says of a key already is taken from its value.
    delta: bool,
    skip: f32,
}

impl Tokens<'_> {
    /// Computes `N` columns from `first` on, of all tokens, and says how many these are.
    #[inline(always)]
    fn columns<const N: usize>(&mut self, width: usize, first: usize) -> usize {
        let Self { table, all, delta, skip } = self;
        for Token { query, key, decay, strength, value, out } in all {
            let decay = |row: usize| decay[if decay.len() == 1 { 0 } else { row }];
            let value: [f32; N] = value[first..first + N].try_into().expect("as many");
            let mut known = [0.0; N];
            if *delta {
                for (row, key) in key.iter().enumerate() {
                    let decay = decay(row);
                    let numbers: &[f32; N] = table[row * width + first..][..N].try_into().expect("as many");
                    for (known, number) in known.iter_mut().zip(numbers) {
                        *known += key * (decay * number);
                    }
                }
            }
            let mut written = [0.0; N];
            for ((written, value), known) in written.iter_mut().zip(value).zip(known) {
                *written = *strength * (value - known);
            }
            let mut sum = [0.0; N];
            for (row, (key, query)) in key.iter().zip(*query).enumerate() {
                let decay = decay(row);
                let numbers: &mut [f32; N] = (&mut table[row * width + first..][..N]).try_into().expect("as many");
                for ((number, written), sum) in numbers.iter_mut().zip(&written).zip(&mut sum) {
                    *number = decay * *number + key * written;
                    *sum += query * *number;
                }
            }
            for ((out, sum), value) in out[first..first + N].iter_mut().zip(sum).zip(value) {
                *out = sum + *skip * value;
            }
        }
        N
    }
}

impl Vectorized for Tokens<'_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let width = self.all.first().map_or(0, |token| token.value.len());
        let mut first = 0;
        while first < width {
            let columns = match width - first {
                WIDE.. => self.columns::<WIDE>(width, first),
                NARROW.. => self.columns::<NARROW>(width, first),
                _ => self.columns::<1>(width, first),
            };
            first += columns;
        }
    }
}

/// Has every token of every span read and write the tables; `out` has the outputs of all heads.
#[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
pub(crate) fn recur(
    Processor { set, pool }: &mut Processor,
    states: &States,
    learnt: &Learnt<'_, Vec<f32>>,
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
    let (set, prepared) = (*set, prepared(*set, pool, states, learnt, shape));
    let (stride, slot_len, table_len) = (out.stride, kept.numbers(), kept.table());
    let (outs, slots) = (Parts::new(&mut out.numbers), Parts::new(&mut store.numbers));
    let finite = Finite::new(finite);
    let token = |row: usize, head: usize| {
        let (group, Prepared { queries, keys, decays, strengths }) = (head / (heads / groups), &prepared[row]);
        let of_head = decays.len() / heads;
        Token {
            query: &queries[group * key..][..key],
            key: &keys[group * key..][..key],
            decay: &decays[head * of_head..][..of_head],
            strength: strengths[head],
            value: &states.row(row)[shape.values + head * value..][..value],
            // SAFETY: a head of a row is one item's.
            out: unsafe { outs.part(row * stride + head * value, value) },
        }
    };
    pool.for_each(spans.len() * heads, &|item| {
        let (number, head) = (item / heads, item % heads);
        let span = &spans[number];
        let start = |slot: u32| slot as usize * slot_len + kept.window() + head * table_len;
        // SAFETY: a head of a slot is one item's, since no two spans share a slot.
        let table = unsafe { slots.part(start(span.slot), table_len) };
        if span.first_position == 0 {
            table.fill(0.0);
        }
        let (delta, skip) = (matches!(rule, Rule::Delta { .. }), learnt.skip.map_or(0.0, |skip| skip[head]));
        let mut done = 0;
        let ends = span.snapshots.iter().map(|(computed, slot)| (computed - span.first_position, Some(*slot)));
        for (end, copy) in ends.chain([(span.tokens, None)]) {
            let all = (done..end).map(|place| token(span.first_row + place, head)).collect();
            set.vectorize(Tokens { table: &mut *table, all, delta, skip });
            if let Some(slot) = copy {
                // SAFETY: as above.
                unsafe { slots.part(start(slot), table_len) }.copy_from_slice(table);
            }
            done = end;
        }
        finite.look_at(number, table);
    });
}

/// Every row, ready for the tables.
fn prepared(
    set: KernelSet,
    pool: &mut Pool,
    states: &States,
    learnt: &Learnt<'_, Vec<f32>>,
    shape: &RecurrenceShape,
) -> Vec<Prepared> {
    let mut prepared: Vec<Prepared> = (0..states.rows).map(|_| Prepared::default()).collect();
    let rates: Vec<f32> = learnt.decay.iter().map(|decay| decay.exp()).collect();
    let to = Parts::new(&mut prepared);
    for_each_row(pool, states.rows, &|row| {
        // SAFETY: a row is worked on once.
        let prepared = unsafe { to.part(row, 1) };
        prepared[0] = Prepared::of(set, states.row(row), (&rates, learnt.bias), shape);
    });
    prepared
}
