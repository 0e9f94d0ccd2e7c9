//! What is done number by number: norms, rotations, gates.
//!
//! Each operation is one kernel on CUDA, and a handful of candle's elsewhere; both in f32.

use std::ops::Range;

use candle_core::{D, Result, Tensor};

use super::host;
use crate::engine::native::backend::{Gate, HeadRange, LogitShape, NormShape, Rotation, Xielu};

/// The norm of every row.
pub(super) fn norm(states: &Tensor, weight: &Tensor, norm: NormShape, out: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() {
        let kernel = if norm.centred { super::kernels::centred_norm } else { super::kernels::norm };
        return kernel(states, weight, norm, out);
    }
    out.slice_set(&normed(states, weight, norm)?.to_dtype(out.dtype())?, 0, 0)
}

/// Normalises some heads of every row in place; there are weights of one head or of all of them.
pub(super) fn head_norm(states: &Tensor, heads: HeadRange, weight: &Tensor, norm: NormShape) -> Result<()> {
    let HeadRange { first, count, width } = heads;
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() && !norm.centred && weight.dim(0)? == width {
        return super::kernels::head_norm(states, heads, weight, norm);
    }
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() && norm.centred && (weight.dim(0)?, states.dim(1)?) == (width, width) {
        return super::kernels::centred_norm(states, weight, norm, states);
    }
    let (rows, first, all) = (states.dim(0)?, first * width, count * width);
    let part = states.narrow(1, first, all)?.contiguous()?.reshape((rows, count, width))?;
    let weight = weight.reshape((weight.dim(0)? / width, width))?;
    states.slice_set(&normed(&part, &weight, norm)?.reshape((rows, all))?, 1, first)
}

/// Rotates heads of every row, in place; a row has a cosine and a sine for each pair of numbers of a head.
pub(super) fn rotate(states: &Tensor, rotation: Rotation, (cosines, sines): &(Tensor, Tensor)) -> Result<()> {
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() {
        return super::kernels::rotate(states, rotation, cosines, sines);
    }
    let Rotation { first: first_head, heads, head_dim, neighbours, .. } = rotation;
    let (rows, pairs) = cosines.dims2()?;
    let part =
        states.narrow(1, first_head * head_dim, heads * head_dim)?.contiguous()?.reshape((rows, heads, head_dim))?;
    let turned = part.narrow(2, 0, 2 * pairs)?.contiguous()?;
    // Pairs as the last dimension but one, or as the last.
    let (turned, apart) = if neighbours {
        (turned.reshape((rows, heads, pairs, 2))?, 3)
    } else {
        (turned.reshape((rows, heads, 2, pairs))?, 2)
    };
    let (first, second) = (turned.narrow(apart, 0, 1)?.squeeze(apart)?, turned.narrow(apart, 1, 1)?.squeeze(apart)?);
    let (cosines, sines) = (cosines.unsqueeze(1)?, sines.unsqueeze(1)?);
    let x = (first.broadcast_mul(&cosines)? - second.broadcast_mul(&sines)?)?;
    let y = (second.broadcast_mul(&cosines)? + first.broadcast_mul(&sines)?)?;
    let rotated = Tensor::stack(&[x, y], apart)?.reshape((rows, heads, 2 * pairs))?;
    let whole = match head_dim - 2 * pairs {
        0 => rotated,
        rest => Tensor::cat(&[rotated, part.narrow(2, 2 * pairs, rest)?], 2)?,
    };
    states.slice_set(&whole.reshape((rows, heads * head_dim))?, 1, first_head * head_dim)
}

/// Makes `width` numbers of every row, which holds as many gates and ups.
pub(super) fn gate(states: &Tensor, gate: Gate, width: usize, out: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() && !matches!(gate, Gate::GeluTanhAlone | Gate::Xielu(_)) {
        return super::kernels::gate(states, gate, width, out);
    }
    let halves = || Ok((states.narrow(1, 0, width)?, states.narrow(1, width, width)?));
    let gated = match gate {
        Gate::Silu => halves().and_then(|(gates, ups): (Tensor, Tensor)| gates.silu()? * ups),
        Gate::GeluTanh => halves().and_then(|(gates, ups)| gates.gelu()? * ups),
        Gate::Gelu => halves().and_then(|(gates, ups)| gates.gelu_erf()? * ups),
        Gate::Clamped { limit } => clamped(states, width, f64::from(limit)),
        Gate::SquaredRelu => states.narrow(1, 0, width).and_then(|numbers| numbers.relu()?.sqr()),
        Gate::GeluTanhAlone => states.narrow(1, 0, width).and_then(|numbers| numbers.gelu()),
        Gate::GeluAlone => states.narrow(1, 0, width).and_then(|numbers| numbers.gelu_erf()),
        Gate::Xielu(shape) => states.narrow(1, 0, width).and_then(|numbers| xielu(&numbers, shape)),
    };
    out.slice_set(&gated?.to_dtype(out.dtype())?, 0, 0)
}

/// As Apertus has it.
fn xielu(numbers: &Tensor, Xielu { rising, falling, slope, most }: Xielu) -> Result<Tensor> {
    let risen = (numbers.sqr()? * f64::from(rising))?;
    let fallen = (((numbers.minimum(f64::from(most))?.exp()? - 1.0)? - numbers)? * f64::from(falling))?;
    numbers.gt(0.0_f32)?.where_cond(&risen, &fallen)? + (numbers * f64::from(slope))?
}

/// As gpt-oss has it: each gate has its up after it.
fn clamped(states: &Tensor, width: usize, limit: f64) -> Result<Tensor> {
    let pairs = states.narrow(1, 0, 2 * width)?.contiguous()?.reshape((states.dim(0)?, width, 2))?;
    let part = |place| pairs.narrow(2, place, 1)?.squeeze(2)?.contiguous();
    let (gates, ups) = (part(0)?.minimum(limit)?, part(1)?.clamp(-limit, limit)?);
    let sigmoid = ((&gates * -1.702)?.exp()? + 1.0)?.recip()?;
    (ups + 1.0)? * (gates * sigmoid)?
}

/// Scales and caps rows of logits, in place.
pub(super) fn shape_logits(logits: &Tensor, LogitShape { factor, cap }: LogitShape) -> Result<()> {
    let shaped = match cap.map(f64::from) {
        None if factor.to_bits() == 1.0_f32.to_bits() => return Ok(()),
        None => (logits * f64::from(factor))?,
        Some(cap) => (((logits * f64::from(factor))? / cap)?.tanh()? * cap)?,
    };
    logits.slice_set(&shaped, 0, 0)
}

/// Multiplies some columns of every row by a factor, in place.
pub(super) fn scale_columns(states: &Tensor, columns: Range<usize>, factor: f32) -> Result<()> {
    if factor.to_bits() == 1.0_f32.to_bits() {
        return Ok(());
    }
    let part = states.narrow(1, columns.start, columns.len())?.contiguous()?;
    states.slice_set(&scaled(part, factor)?, 1, columns.start)
}

/// Multiplies columns of every row, from `first` on, by others of them, in place.
pub(super) fn multiply_columns(states: &Tensor, by: Range<usize>, first: usize) -> Result<()> {
    let product = (states.narrow(1, first, by.len())? * states.narrow(1, by.start, by.len())?)?;
    states.slice_set(&product.contiguous()?, 1, first)
}

/// Adds every row of `from`, times a factor, to that of `to`.
pub(super) fn add(from: &Tensor, factor: f32, to: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if to.device().is_cuda() {
        return super::kernels::add_rows(from, factor, to);
    }
    to.slice_set(&(to + scaled(from.clone(), factor)?)?, 0, 0)
}

/// Writes a vector to every row, or adds it.
pub(super) fn put_vector(vector: &Tensor, out: &Tensor, added: bool) -> Result<()> {
    #[cfg(feature = "cuda")]
    if out.device().is_cuda() {
        return super::kernels::put_vector(vector, out, added);
    }
    let rows = if added { out.broadcast_add(vector)? } else { vector.broadcast_as(out.shape())?.contiguous()? };
    out.slice_set(&rows, 0, 0)
}

/// Multiplies every row by a vector, number by number.
pub(super) fn multiply_vector(vector: &Tensor, to: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if to.device().is_cuda() {
        return super::kernels::multiply_vector(vector, to);
    }
    to.slice_set(&to.broadcast_mul(vector)?, 0, 0)
}

/// Adds rows of `from`, each times its weight, to those of `to` that `picks` names.
///
/// Where rows that follow each other are named, each as often and one after the other, there is no need to look for their places,
/// which a GPU does slowly.
pub(super) fn add_scaled(from: &Tensor, picks: &[(usize, f32)], to: &Tensor) -> Result<()> {
    let weights: Vec<f32> = picks.iter().map(|(_, weight)| *weight).collect();
    let (from, columns) = (from.narrow(0, 0, picks.len())?, to.dim(1)?);
    if let Some(Stretch { rows, times }) = stretch_of(picks) {
        let (first, rows) = (rows.start, rows.len());
        let weights = Tensor::from_vec(weights, (rows, times), to.device())?;
        let (from, own) = (from.reshape((rows, times * columns))?, to.narrow(0, first, rows)?);
        for number in 0..times {
            let part = from.narrow(1, number * columns, columns)?.broadcast_mul(&weights.narrow(1, number, 1)?)?;
            to.slice_set(&(&own + part)?, 0, first)?;
        }
        return Ok(());
    }
    let scaled = from.broadcast_mul(&Tensor::from_vec(weights, (picks.len(), 1), to.device())?)?;
    let places = host::picked(picks.iter().map(|(row, _)| *row), to.device())?;
    to.slice_set(&to.index_add(&places, &scaled, 0)?, 0, 0)
}

/// Rows that follow each other, and how often each is named.
#[derive(Debug, PartialEq, Eq)]
struct Stretch {
    rows: Range<usize>,
    times: usize,
}

/// The rows that are named, if they are such a stretch.
fn stretch_of(picks: &[(usize, f32)]) -> Option<Stretch> {
    let (first, last) = (picks.first()?.0, picks.last()?.0);
    let rows = first..last.checked_add(1)?;
    let times = picks.len().checked_div(rows.len()).filter(|times| times * rows.len() == picks.len())?;
    let is_one = picks.iter().enumerate().all(|(number, (row, _))| *row == first + number / times);
    is_one.then_some(Stretch { rows, times })
}

/// A tensor times a factor.
pub(super) fn scaled(tensor: Tensor, factor: f32) -> Result<Tensor> {
    if factor.to_bits() == 1.0_f32.to_bits() { Ok(tensor) } else { tensor * f64::from(factor) }
}

fn normed(rows: &Tensor, weight: &Tensor, NormShape { epsilon, offset, centred }: NormShape) -> Result<Tensor> {
    let rows = if centred { rows.broadcast_sub(&rows.mean_keepdim(D::Minus1)?)? } else { rows.clone() };
    let mean = rows.sqr()?.mean_keepdim(D::Minus1)?;
    let scale = (mean + f64::from(epsilon))?.sqrt()?.recip()?;
    let weight = if offset == 0.0 { weight.clone() } else { (weight + f64::from(offset))? };
    rows.broadcast_mul(&scale)?.broadcast_mul(&weight)
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
mod tests {
    use candle_core::DType;

    use super::{super::tests::test_device, *};

    const NORM: NormShape = NormShape { epsilon: 1e-5, offset: 0.0, centred: false };
    const GATES: [Gate; 8] = [
        Gate::Silu,
        Gate::GeluTanh,
        Gate::Gelu,
        Gate::Clamped { limit: 1.5 },
        Gate::SquaredRelu,
        Gate::GeluTanhAlone,
        Gate::GeluAlone,
        Gate::Xielu(Xielu { rising: 0.8, falling: 1.3, slope: 0.5, most: -1e-6 }),
    ];
    const ONE_MORE: NormShape = NormShape { offset: 1.0, ..NORM };
    const CENTRED: NormShape = NormShape { centred: true, ..NORM };

    fn number(place: usize) -> f32 {
        ((place * 7919 + 13) % 10_007) as f32 / 2_500.0 - 2.0
    }

    fn table(rows: usize, columns: usize) -> (Tensor, Vec<Vec<f64>>) {
        let rows: Vec<Vec<f32>> =
            (0..rows).map(|row| (0..columns).map(|column| number(row * columns + column)).collect()).collect();
        let exact = rows.iter().map(|row| row.iter().copied().map(f64::from).collect()).collect();
        (Tensor::new(rows, &test_device()).unwrap(), exact)
    }

    fn vector(len: usize) -> (Tensor, Vec<f64>) {
        let (table, exact) = table(1, len);
        (table.squeeze(0).unwrap(), exact.into_iter().next().unwrap())
    }

    fn assert_close(found: &Tensor, expected: &[Vec<f64>], tolerance: f64) {
        let found = found.to_dtype(DType::F32).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(found.len(), expected.len());
        for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert_eq!(found.len(), expected.len());
            for (column, (found, expected)) in found.iter().zip(expected).enumerate() {
                let error = (f64::from(*found) - expected).abs() / expected.abs().max(1.0);
                assert!(error < tolerance, "row {row}, column {column}: {found} is not {expected}");
            }
        }
    }

    fn normed_exactly(row: &[f64], weight: &[f64], NormShape { epsilon, offset, centred }: NormShape) -> Vec<f64> {
        let centre = if centred { row.iter().sum::<f64>() / row.len() as f64 } else { 0.0 };
        let row: Vec<f64> = row.iter().map(|number| number - centre).collect();
        let mean = row.iter().map(|number| number * number).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean + f64::from(epsilon)).sqrt();
        row.iter().zip(weight).map(|(number, weight)| number * scale * (f64::from(offset) + weight)).collect()
    }

    /// Rows to write to, filled with what has to be overwritten.
    fn results(rows: usize, columns: usize) -> [(Tensor, f64); 2] {
        [(DType::F32, 1e-5), (DType::BF16, 4e-3)].map(|(dtype, tolerance)| {
            let nothing = Tensor::full(f32::NAN, (rows, columns), &test_device()).unwrap();
            (nothing.to_dtype(dtype).unwrap(), tolerance)
        })
    }

    #[test]
    fn norms_are_what_they_are_defined_as() {
        for (width, shape) in [(31, NORM), (576, ONE_MORE), (576, CENTRED), (1500, NORM)] {
            let ((states, rows), (weight, factors)) = (table(5, width), vector(width));
            let expected: Vec<_> = rows.iter().map(|row| normed_exactly(row, &factors, shape)).collect();
            for (out, tolerance) in results(5, width) {
                norm(&states, &weight, shape, &out).unwrap();
                assert_close(&out, &expected, tolerance);
            }
        }
    }

    #[test]
    fn norms_of_some_heads_leave_the_others_as_they_are() {
        for (head_dim, weights, shape) in
            [(16, 1, NORM), (80, 1, ONE_MORE), (128, 1, NORM), (48, 4, NORM), (48, 4, CENTRED), (48, 1, CENTRED)]
        {
            let ((states, mut rows), (weight, factors)) = (table(3, 7 * head_dim), vector(weights * head_dim));
            for row in &mut rows {
                for head in 2..6 {
                    let own = head * head_dim..(head + 1) * head_dim;
                    let factors = &factors[(head - 2) % weights * head_dim..][..head_dim];
                    let normed = normed_exactly(&row[own.clone()], factors, shape);
                    row[own].copy_from_slice(&normed);
                }
            }
            head_norm(&states, HeadRange { first: 2, count: 4, width: head_dim }, &weight, shape).unwrap();
            assert_close(&states, &rows, 1e-5);
        }
    }

    #[test]
    fn a_rotation_turns_pairs_of_its_heads_only() {
        for (pairs, head_dim, neighbours) in
            [(8, 16, false), (40, 80, true), (64, 128, false), (16, 64, true), (5, 12, false)]
        {
            let (states, mut rows) = table(4, 5 * head_dim);
            let ((cosines, cosine_rows), (sines, sine_rows)) = (table(4, pairs), table(4, 2 * pairs));
            let sines = sines.narrow(1, pairs, pairs).unwrap().contiguous().unwrap();
            for (row, (cosines, sines)) in rows.iter_mut().zip(cosine_rows.iter().zip(&sine_rows)) {
                for head in row.chunks_exact_mut(head_dim).skip(1).take(3) {
                    for pair in 0..pairs {
                        let (first, second) = if neighbours { (2 * pair, 2 * pair + 1) } else { (pair, pair + pairs) };
                        let (x, y, cosine, sine) = (head[first], head[second], cosines[pair], sines[pairs + pair]);
                        (head[first], head[second]) = (x * cosine - y * sine, y * cosine + x * sine);
                    }
                }
            }
            let rotation = Rotation { first: 1, heads: 3, head_dim, neighbours, angles: 0 };
            rotate(&states, rotation, &(cosines, sines)).unwrap();
            assert_close(&states, &rows, 1e-5);
        }
    }

    /// What a gate is defined as, for one place of a row.
    fn gated_exactly(kind: Gate, row: &[f64], place: usize) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let (gate, up) = (row[place], row[(row.len() / 2 + place) % row.len()]);
        match kind {
            Gate::Silu => gate * sigmoid(gate) * up,
            Gate::GeluTanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3));
                0.5 * gate * (1.0 + inner.tanh()) * up
            }
            Gate::Gelu => 0.5 * gate * (1.0 + candle_core::cpu::erf::erf_f64(gate / std::f64::consts::SQRT_2)) * up,
            Gate::GeluTanhAlone => gated_exactly(Gate::GeluTanh, &[gate, 1.0], 0),
            Gate::GeluAlone => gated_exactly(Gate::Gelu, &[gate, 1.0], 0),
            Gate::SquaredRelu => row[place].max(0.0).powi(2),
            Gate::Xielu(shape) => {
                let [rising, falling, slope, most] =
                    [shape.rising, shape.falling, shape.slope, shape.most].map(f64::from);
                let curved = if gate > 0.0 { rising * gate * gate } else { falling * (gate.min(most).exp_m1() - gate) };
                curved + slope * gate
            }
            Gate::Clamped { limit } => {
                let limit = f64::from(limit);
                let (gate, up) = (row[2 * place].min(limit), row[2 * place + 1].clamp(-limit, limit));
                gate * sigmoid(1.702 * gate) * (up + 1.0)
            }
        }
    }

    #[test]
    fn gates_of_any_width_are_what_they_are_defined_as() {
        for (width, kind) in [48, 1024, 2500].into_iter().flat_map(|width| GATES.map(|kind| (width, kind))) {
            let (states, rows) = table(3, kind.inputs(width));
            let expected: Vec<Vec<f64>> =
                rows.iter().map(|row| (0..width).map(|place| gated_exactly(kind, row, place)).collect()).collect();
            for (out, tolerance) in results(3, width) {
                gate(&states, kind, width, &out).unwrap();
                assert_close(&out, &expected, tolerance);
            }
        }
    }

    #[test]
    fn rows_are_added_times_a_factor() {
        for factor in [1.0, -0.22] {
            let ((from, added), (to, mut rows)) = (table(3, 1500), table(3, 1500));
            for (number, added) in rows.iter_mut().flatten().zip(added.iter().flatten()) {
                *number += added * f64::from(factor);
            }
            add(&from, factor, &to).unwrap();
            assert_close(&to, &rows, 1e-6);
        }
    }

    #[test]
    fn rows_of_any_width_are_multiplied_by_a_vector() {
        for width in [1, 48, 1024, 2500] {
            let ((states, mut rows), (by, factors)) = (table(3, width), vector(width));
            for row in &mut rows {
                row.iter_mut().zip(&factors).for_each(|(number, factor)| *number *= factor);
            }
            multiply_vector(&by, &states).unwrap();
            assert_close(&states, &rows, 1e-6);
        }
    }

    #[test]
    fn rows_are_added_to_those_that_are_named() {
        for named in [&[0, 0, 1, 1, 2, 2, 3, 3][..], &[1, 2, 3], &[1, 1, 2, 2], &[3, 1], &[2, 2, 2], &[0, 2, 2, 3]] {
            let ((from, added), (to, mut rows)) = (table(8, 1500), table(4, 1500));
            let picks: Vec<(usize, f32)> =
                named.iter().enumerate().map(|(number, row)| (*row, number as f32 - 1.5)).collect();
            for ((row, weight), added) in picks.iter().zip(&added) {
                for (number, added) in rows[*row].iter_mut().zip(added) {
                    *number += added * f64::from(*weight);
                }
            }
            add_scaled(&from, &picks, &to).unwrap();
            assert_close(&to, &rows, 1e-5);
        }
    }

    #[test]
    fn a_stretch_is_of_rows_that_follow_each_other_and_are_named_as_often() {
        let of = |rows: &[usize]| stretch_of(&rows.iter().map(|row| (*row, 1.0)).collect::<Vec<_>>());
        assert_eq!(of(&[1, 1, 2, 2]), Some(Stretch { rows: 1..3, times: 2 }));
        assert_eq!(of(&[5]), Some(Stretch { rows: 5..6, times: 1 }));
        for other in [&[][..], &[2, 1], &[0, 2], &[0, 1, 1], &[0, 1, 0, 1], &[1, 1, 1, 2], &[3, 4, 5, 0]] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    #[test]
    fn logits_are_scaled_and_then_capped() {
        let (logits, rows) = table(3, 77);
        shape_logits(&logits, LogitShape { factor: 1.0, cap: None }).unwrap();
        assert_close(&logits, &rows, 1e-9);
        shape_logits(&logits, LogitShape { factor: 3.0, cap: Some(2.0) }).unwrap();
        let expected: Vec<Vec<f64>> =
            rows.iter().map(|row| row.iter().map(|number| 2.0 * (number * 3.0 / 2.0).tanh()).collect()).collect();
        assert_close(&logits, &expected, 1e-5);
    }
}
