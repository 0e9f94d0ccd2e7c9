//! A part with a recurrent state: its parameters, and the order of its operations.

use std::ops::Range;

use super::{
    adapters::Weight,
    destinations::{InLayer, InRecurrent},
    shape::{Mixing, RecurrentLayer},
    workspace::Workspace,
};
use crate::engine::native::{
    backend::{Backend, Learnt, NoRoom},
    recurrence::{GatedNormShape, RecurrenceShape},
};

/// What such a part has learnt.
pub(super) struct Recurrent<B: Backend> {
    shape: RecurrentLayer,
    pub(super) input: Weight<B>,
    pub(super) input_bias: Option<B::Vector>,
    /// What makes steps, and what makes gates, where the input does not make them.
    pub(super) low_rank: Option<[LowRank<B>; 2]>,
    pub(super) convolution: B::Vector,
    pub(super) convolution_bias: Option<B::Vector>,
    pub(super) tables: Option<Tables<B>>,
    pub(super) output: Weight<B>,
    pub(super) output_bias: Option<B::Vector>,
}

/// Two matrices, one after the other.
pub(super) struct LowRank<B: Backend> {
    pub(super) down: Weight<B>,
    pub(super) up: Weight<B>,
}

/// What a recurrence over tables has learnt.
pub(super) struct Tables<B: Backend> {
    pub(super) decay: B::Vector,
    pub(super) step_bias: B::Vector,
    pub(super) skip: Option<B::Vector>,
    pub(super) norm: Option<B::Vector>,
}

/// The columns of gates, values, keys, queries and steps.
fn sections(shape: &RecurrenceShape, norm: GatedNormShape) -> [Range<usize>; 5] {
    let (values, keys) = (shape.heads * shape.value, shape.groups * shape.key);
    [
        (norm.gates, values),
        (shape.values, values),
        (shape.keys, keys),
        (shape.queries, keys),
        (shape.steps, shape.step_count()),
    ]
    .map(|(first, count)| first..first + count)
}

fn weight<B: Backend>(backend: &B, place: InRecurrent, outputs: usize, inputs: usize) -> Result<Weight<B>, NoRoom> {
    Weight::zeros(backend, InLayer::Recurrent(place), outputs, inputs)
}

impl<B: Backend> LowRank<B> {
    fn zeros(backend: &B, index: usize, [hidden, rank, width]: [usize; 3]) -> Result<Self, NoRoom> {
        Ok(Self {
            down: weight(backend, InRecurrent::Down(index), rank, hidden)?,
            up: weight(backend, InRecurrent::Up(index), width, rank)?,
        })
    }
}

impl<B: Backend> Recurrent<B> {
    pub(super) fn zeros(backend: &B, hidden: usize, shape: &RecurrentLayer) -> Result<Self, NoRoom> {
        let vector = |given: bool, len| given.then(|| backend.vector(len)).transpose();
        let (width, channels) = (shape.output_width(), shape.convolution.channels);
        let (tables, steps) = match shape.mixing {
            Mixing::Gates => (None, 0),
            Mixing::Tables { recurrence, skip, norm_weights, .. } => {
                let tables = Tables {
                    decay: backend.vector(recurrence.heads)?,
                    step_bias: backend.vector(recurrence.step_count())?,
                    skip: vector(skip, recurrence.heads)?,
                    norm: norm_weights.map(|len| backend.vector(len)).transpose()?,
                };
                (Some(tables), recurrence.step_count())
            }
        };
        let low_rank = |rank| -> Result<_, NoRoom> {
            Ok([LowRank::zeros(backend, 0, [hidden, rank, steps])?, LowRank::zeros(backend, 1, [hidden, rank, width])?])
        };
        Ok(Self {
            shape: shape.clone(),
            input: weight(backend, InRecurrent::Input(0), shape.input_width(), hidden)?,
            input_bias: vector(shape.input_bias, shape.input_width())?,
            low_rank: shape.rank.map(low_rank).transpose()?,
            convolution: backend.vector(channels * shape.convolution.taps)?,
            convolution_bias: vector(shape.convolution_bias, channels)?,
            tables,
            output: weight(backend, InRecurrent::Output, hidden, width)?,
            output_bias: vector(shape.output_bias, hidden)?,
        })
    }

    /// Has every row of the input change its sequence's state; what is to be brought back is in `attended` then.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    pub(super) fn mix(
        &self,
        backend: &mut B,
        factors: [f32; 5],
        workspace: &mut Workspace<B>,
        state: &mut B::Recurrent,
        shared: &mut B::StepShared,
    ) {
        self.project(backend, workspace);
        let Workspace { wide, out, attended, .. } = workspace;
        let (weight, bias, shape) = (&self.convolution, self.convolution_bias.as_ref(), self.shape.convolution);
        if let (Mixing::Tables { recurrence, norm, .. }, Some(tables)) = (self.shape.mixing, &self.tables) {
            for (columns, factor) in sections(&recurrence, norm).into_iter().zip(factors) {
                backend.scale(wide, columns, factor);
            }
            backend.convolve(wide, weight, bias, shape, state, shared);
            let learnt = Learnt { decay: &tables.decay, bias: &tables.step_bias, skip: tables.skip.as_ref() };
            backend.recur(wide, learnt, &recurrence, state, shared, out);
            backend.gated_norm(out, wide, tables.norm.as_ref(), norm, attended);
        } else {
            let (width, first) = (shape.channels, shape.first);
            backend.multiply_columns(wide, 0..width, first);
            backend.convolve(wide, weight, bias, shape, state, shared);
            backend.multiply_columns(wide, width..2 * width, first);
            backend.round(wide, first..first + width, attended);
        }
    }

    /// Makes rows of the input.
    fn project(&self, backend: &mut B, workspace: &mut Workspace<B>) {
        let Workspace { wide, out, sum, input, picked, adapters, .. } = workspace;
        let Some(low_rank) = &self.low_rank else {
            return adapters.linear(backend, input, &self.input, self.input_bias.as_ref(), wide);
        };
        adapters.linear(backend, input, &self.input, self.input_bias.as_ref(), out);
        backend.zeros(out, self.shape.row_width(), wide);
        let mut done = self.shape.input_width();
        backend.place(out, 0..done, wide, 0);
        let Some(rank) = self.shape.rank else { return };
        let widths = [self.shape.row_width() - done - self.shape.output_width(), self.shape.output_width()];
        for (LowRank { down, up }, width) in low_rank.iter().zip(widths) {
            adapters.linear(backend, input, down, None, out);
            backend.round(out, 0..rank, picked);
            adapters.linear(backend, picked, up, None, sum);
            backend.place(sum, 0..width, wide, done);
            done += width;
        }
    }
}
