//! What layers remember of a sequence besides keys and values, as data.
//!
//! Such a layer reads the tokens of a sequence one after the other. What it keeps of all of them is its *recurrent state*:
//! the last inputs of a convolution and, for each head, a table of numbers. A state is as large for a long sequence as
//! for a short one, and there is no going back in it. States are kept in *slots*, one of which belongs to each sequence that
//! runs; others hold copies of states at the borders of blocks, from which sequences with the same beginning go on.
//!
//! Every recurrence is computed token by token, so that its bits are the same however a prompt was cut.

/// The number of a slot.
pub(crate) type SlotId = u32;

/// What a layer keeps of a sequence, all of it in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecurrentShape {
    /// Numbers of a token that are convolved.
    pub(crate) channels: usize,
    /// How many tokens before a token its convolution reads.
    pub(crate) before: usize,
    /// Tables.
    pub(crate) heads: usize,
    /// Rows of a table: numbers of a key.
    pub(crate) key: usize,
    /// Columns of a table: numbers of a value.
    pub(crate) value: usize,
}

impl RecurrentShape {
    /// Numbers of the inputs of the convolution that are kept.
    pub(crate) fn window(self) -> usize {
        self.channels * self.before
    }

    /// Numbers of a table.
    pub(crate) fn table(self) -> usize {
        self.key * self.value
    }

    /// Numbers of a slot: first the inputs, token by token, then the tables, row by row.
    pub(crate) fn numbers(self) -> usize {
        self.window() + self.heads * self.table()
    }
}

/// A causal convolution of each of some channels of a row with the tokens before it; zero stands before the first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConvolutionShape {
    /// The column of the first channel.
    pub(crate) first: usize,
    /// How many channels there are.
    pub(crate) channels: usize,
    /// Tokens that a sum is over, the present one among them.
    pub(crate) taps: usize,
    /// Whether `silu` of the sum is taken.
    pub(crate) activated: bool,
}

/// How a token changes tables, and what it reads of them. Each head has a table `S` of `key` rows and `value` columns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rule {
    /// The gated delta rule, with the query and the key divided by their lengths, the query by the root of its numbers too:
    /// `S *= exp(-exp(decay) * softplus(step + bias))`, then `S += key (sigmoid(strength) * (value - key S))`, and
    /// the output is `query S`.
    Delta {
        /// Whether every number of a key has a step of its own, which decays its row; otherwise a head has one.
        by_key: bool,
    },
    /// Mamba 2: with `t = softplus(step + bias)`, no less than `least` and no more than `most`, `S *= exp(-exp(decay) * t)`,
    /// then `S += key (t * value)`, and the output is `query S + skip * value`.
    Scan {
        /// The least step.
        least: f32,
        /// The greatest step.
        most: f32,
    },
}

/// A recurrence over the tokens of a sequence, and where a row has what goes into it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RecurrenceShape {
    /// What is computed.
    pub(crate) rule: Rule,
    /// Tables, and heads of values.
    pub(crate) heads: usize,
    /// Heads of queries and of keys; so many consecutive tables share one as there are heads to one of these.
    pub(crate) groups: usize,
    /// Numbers of a query and of a key.
    pub(crate) key: usize,
    /// Numbers of a value.
    pub(crate) value: usize,
    /// The column of the first query.
    pub(crate) queries: usize,
    /// The column of the first key.
    pub(crate) keys: usize,
    /// The column of the first value.
    pub(crate) values: usize,
    /// The column of the first step: one for each head, or for each number of each head's key.
    pub(crate) steps: usize,
    /// The column of the first strength, one for each head; of no meaning for a scan.
    pub(crate) strengths: usize,
}

impl RecurrenceShape {
    /// Steps of a row.
    pub(crate) fn step_count(&self) -> usize {
        self.heads * if self.rule == (Rule::Delta { by_key: true }) { self.key } else { 1 }
    }
}

/// A root-mean-square norm of groups of numbers, and a gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GatedNormShape {
    /// Numbers that are normalised together.
    pub(crate) group: usize,
    /// What is added to the mean of the squares.
    pub(crate) epsilon: f32,
    /// Whether numbers are multiplied by the gate before they are normalised; otherwise after it.
    pub(crate) gate_first: bool,
    /// Whether the gate is `silu` of its number; otherwise it is the sigmoid.
    pub(crate) silu: bool,
    /// The column of the first gate.
    pub(crate) gates: usize,
}
