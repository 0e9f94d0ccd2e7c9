//! Recurrent states, which stay in the system's memory: the processor computes them, with the same kernels as everywhere.
//!
//! Rows come from the device and go back to it. That is exact and takes time; a kernel of the device would keep them there.

use candle_core::{Result, Tensor};

use super::{
    buffer::{Buffer, TensorKind},
    device::DeviceBackend,
    host,
};
use crate::engine::native::{
    backend::{Backend, Learnt, Span},
    cpu::{RecurrentStore, States, Taps, convolve, recur},
    recurrence::{ConvolutionShape, GatedNormShape, RecurrenceShape},
};

impl DeviceBackend {
    /// Convolves columns of every row with those of the tokens before, which a recurrent state keeps; the rows then.
    pub(super) fn convolve_on_host(
        &mut self,
        states: &Tensor,
        (weight, bias, shape): (&Tensor, Option<&Tensor>, ConvolutionShape),
        recurrent: &mut RecurrentStore,
        (spans, finite): (&[Span], &mut [bool]),
    ) -> Result<States> {
        let mut rows = fetched(states)?;
        let (weight, bias) = (self.read_vector(weight), bias.map(|bias| self.read_vector(bias)));
        let taps = Taps { weight: &weight, bias: bias.as_deref() };
        convolve(&mut self.processor, &mut rows, taps, shape, recurrent, (spans, finite));
        Ok(rows)
    }

    /// Has every token change its sequence's recurrent state; what all heads read of it.
    pub(super) fn recur_on_host(
        &mut self,
        states: &Tensor,
        (learnt, shape): (&Learnt<'_, Tensor>, &RecurrenceShape),
        recurrent: &mut RecurrentStore,
        (spans, finite): (&[Span], &mut [bool]),
    ) -> Result<States> {
        let (rows, mut read) = (fetched(states)?, States::default());
        let [decay, bias] = [learnt.decay, learnt.bias].map(|vector| self.read_vector(vector));
        let skip = learnt.skip.map(|skip| self.read_vector(skip));
        let learnt = Learnt { decay: &decay, bias: &bias, skip: skip.as_ref() };
        recur(&mut self.processor, &rows, &learnt, shape, recurrent, (spans, finite), &mut read);
        Ok(read)
    }
}

/// Rows of the device, in the system's memory.
pub(super) fn fetched(rows: &Tensor) -> Result<States> {
    let (count, columns) = rows.dims2()?;
    let mut states = States::default();
    states.reshape(count, columns);
    let numbers: Vec<f32> = host::numbers_of(rows)?;
    for (row, numbers) in numbers.chunks_exact(columns).enumerate() {
        states.row_mut(row).copy_from_slice(numbers);
    }
    Ok(states)
}

/// Sends rows to the device.
pub(super) fn send(states: &States, kind: TensorKind<'_>, out: &mut Buffer) -> Result<()> {
    let (rows, columns) = (states.rows(), states.columns());
    let numbers: Vec<f32> = (0..rows).flat_map(|row| states.row(row)).copied().collect();
    let sent = Tensor::from_vec(numbers, (rows, columns), kind.device)?;
    out.reshape(kind, rows, columns)?.slice_set(&sent, 0, 0)
}

/// Normalises groups of every row and multiplies them by gates.
pub(super) fn gated_norm(
    states: &Tensor,
    gates: &Tensor,
    weight: Option<&Tensor>,
    shape: GatedNormShape,
) -> Result<Tensor> {
    let (rows, columns) = states.dims2()?;
    let gates = gates.narrow(1, shape.gates, columns)?.contiguous()?;
    let gates = if shape.silu { gates.silu()? } else { sigmoid(&gates)? };
    let mut numbers = if shape.gate_first { (states * &gates)? } else { states.clone() };
    if let Some(weight) = weight {
        let groups = numbers.reshape((rows, columns / shape.group, shape.group))?;
        let mean = groups.sqr()?.mean_keepdim(2)?;
        let normed = groups.broadcast_div(&(mean + f64::from(shape.epsilon))?.sqrt()?)?;
        let weight = weight.reshape((1, 1, weight.dim(0)?))?;
        let repeated = normed.reshape((rows, columns / weight.dim(2)?, weight.dim(2)?))?;
        numbers = repeated.broadcast_mul(&weight)?.reshape((rows, columns))?;
    }
    if shape.gate_first { Ok(numbers) } else { numbers * gates }
}

pub(super) fn sigmoid(numbers: &Tensor) -> Result<Tensor> {
    (numbers.neg()?.exp()? + 1.0)?.recip()
}
