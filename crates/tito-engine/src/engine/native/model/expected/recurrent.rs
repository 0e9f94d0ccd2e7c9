//! The tensors of parts with recurrent states.

use super::{
    super::{
        destinations::{Destination, InLayer, InRecurrent},
        names::InputNames,
        shape::{Mixing, RecurrentLayer},
    },
    list::Expected,
};
use crate::engine::native::recurrence::RecurrenceShape;

impl Expected<'_> {
    pub(super) fn recurrent(&mut self, part: &RecurrentLayer) {
        let (names, hidden) = (self.shape.names.recurrent, self.shape.hidden);
        let prefix = names.prefix;
        match (names.inputs, part.mixing) {
            (InputNames::ByKeyHead(names), Mixing::Tables { recurrence, .. }) => {
                self.inputs_by_key_head(names, &recurrence);
            }
            (InputNames::Each(names) | InputNames::ByKeyHead(names), _) => self.inputs(names, part),
        }
        self.convolution(part);
        if let Some(rank) = part.rank {
            self.low_rank(part, rank);
        }
        if let Mixing::Tables { recurrence, skip, norm_weights, .. } = part.mixing {
            let heads = recurrence.heads;
            let decay = if names.decay_is_deep { vec![1, 1, heads, 1] } else { vec![heads] };
            self.one(&format!("{prefix}.A_log"), &decay, self.recurrent_place(InRecurrent::Decay));
            let steps = recurrence.step_count();
            self.one(&format!("{prefix}.dt_bias"), &[steps], self.recurrent_place(InRecurrent::StepBias));
            if skip {
                self.one(&format!("{prefix}.D"), &[heads], self.recurrent_place(InRecurrent::Skip));
            }
            if let Some(len) = norm_weights {
                self.vector(&format!("{prefix}.{}", names.norm), len, self.recurrent_place(InRecurrent::Norm));
            }
        }
        let output = format!("{prefix}.{}", names.output);
        self.table(&output, hidden, part.output_width(), self.recurrent_place(InRecurrent::Output));
        if part.output_bias {
            self.one(&format!("{output}.bias"), &[hidden], self.recurrent_place(InRecurrent::OutputBias));
        }
    }

    fn recurrent_place(&self, place: InRecurrent) -> Destination {
        Destination::Layer(self.layer, InLayer::Recurrent(place))
    }

    /// What makes rows, one tensor after the other.
    fn inputs(&mut self, names: &[&str], part: &RecurrentLayer) {
        let mut first = 0;
        for (name, rows) in names.iter().zip(&part.inputs) {
            let name = format!("{}.{name}", self.shape.names.recurrent.prefix);
            self.table(&name, *rows, self.shape.hidden, self.recurrent_place(InRecurrent::Input(first)));
            if part.input_bias {
                self.one(&format!("{name}.bias"), &[*rows], self.recurrent_place(InRecurrent::InputBias(first)));
            }
            first += rows;
        }
    }

    /// The tensors of Qwen3-Next: for each head of keys the query, the key, the values and the gates that belong to it; and
    /// its strengths and steps.
    fn inputs_by_key_head(&mut self, names: &[&str], recurrence: &RecurrenceShape) {
        let RecurrenceShape { heads, groups, key, value, queries, keys, values, steps, strengths, .. } = *recurrence;
        let (hidden, prefix, shared) = (self.shape.hidden, self.shape.names.recurrent.prefix, heads / groups);
        let gates = values + heads * value;
        let rows = |all: Vec<(usize, usize, usize)>| -> Vec<(usize, Destination)> {
            let of_head = |head: usize| all.iter().map(move |(rows, first, of_each)| (*rows, first + head * of_each));
            let all = (0..groups).flat_map(of_head);
            all.map(|(rows, first)| (rows, self.recurrent_place(InRecurrent::Input(first)))).collect()
        };
        let of_head = shared * value;
        let wide =
            rows(vec![(key, queries, key), (key, keys, key), (of_head, values, of_head), (of_head, gates, of_head)]);
        let narrow = rows(vec![(shared, strengths, shared), (shared, steps, shared)]);
        for (name, places) in names.iter().zip([wide, narrow]) {
            let count = places.iter().map(|(rows, _)| rows).sum();
            self.slices(&format!("{prefix}.{name}.weight"), &[count, hidden], places);
        }
    }

    fn convolution(&mut self, part: &RecurrentLayer) {
        let names = self.shape.names.recurrent;
        let (taps, channels) = (part.convolution.taps, part.convolution.channels / names.convolution.len());
        for (index, name) in names.convolution.iter().enumerate() {
            let (name, first) = (format!("{}.{name}", names.prefix), index * channels);
            let place = self.recurrent_place(InRecurrent::Convolution(first * taps));
            self.one(&format!("{name}.weight"), &[channels, 1, taps], place);
            if part.convolution_bias {
                let place = self.recurrent_place(InRecurrent::ConvolutionBias(first));
                self.one(&format!("{name}.bias"), &[channels], place);
            }
        }
    }

    /// What makes steps and gates in two products each.
    fn low_rank(&mut self, part: &RecurrentLayer, rank: usize) {
        let (hidden, prefix) = (self.shape.hidden, self.shape.names.recurrent.prefix);
        let steps = part.row_width() - part.input_width() - part.output_width();
        for (index, (name, width)) in [("f", steps), ("g", part.output_width())].into_iter().enumerate() {
            let (down, up) = (InRecurrent::Down(index), InRecurrent::Up(index));
            self.table(&format!("{prefix}.{name}_a_proj"), rank, hidden, self.recurrent_place(down));
            self.table(&format!("{prefix}.{name}_b_proj"), width, rank, self.recurrent_place(up));
        }
    }
}
