//! What is done number by number: norms, rotations, gates.
//!
//! Each operation is one kernel on CUDA, and a handful of candle's elsewhere; both in f32.

use std::ops::Range;

use candle_core::{D, Result, Tensor};

/// Root-mean-square norm of every row.
pub(super) fn norm(states: &Tensor, weight: &Tensor, epsilon: f32, out: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() {
        return super::kernels::norm(states, weight, epsilon, out);
    }
    out.slice_set(&normed(states, weight, epsilon)?.to_dtype(out.dtype())?, 0, 0)
}

/// Normalises some heads of every row in place; a head has the weight's length.
pub(super) fn head_norm(states: &Tensor, heads: Range<usize>, weight: &Tensor, epsilon: f32) -> Result<()> {
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() {
        return super::kernels::head_norm(states, heads, weight, epsilon);
    }
    let (rows, head_dim) = (states.dim(0)?, weight.dim(0)?);
    let (first, width) = (heads.start * head_dim, heads.len() * head_dim);
    let part = states.narrow(1, first, width)?.contiguous()?.reshape((rows * heads.len(), head_dim))?;
    states.slice_set(&normed(&part, weight, epsilon)?.reshape((rows, width))?, 1, first)
}

/// Rotates the first half of each of the first `heads` heads against its second half, in place; a row has `head_dim / 2`
/// cosines and sines.
pub(super) fn rotate(states: &Tensor, heads: usize, cosines: &Tensor, sines: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() {
        return super::kernels::rotate(states, heads, cosines, sines);
    }
    let (rows, half) = cosines.dims2()?;
    let part = states.narrow(1, 0, heads * 2 * half)?.contiguous()?.reshape((rows, heads, 2 * half))?;
    let (first, second) = (part.narrow(2, 0, half)?, part.narrow(2, half, half)?);
    let (cosines, sines) = (cosines.unsqueeze(1)?, sines.unsqueeze(1)?);
    let x = (first.broadcast_mul(&cosines)? - second.broadcast_mul(&sines)?)?;
    let y = (second.broadcast_mul(&cosines)? + first.broadcast_mul(&sines)?)?;
    let rotated = Tensor::cat(&[x, y], 2)?;
    states.slice_set(&rotated.reshape((rows, heads * 2 * half))?, 1, 0)
}

/// `silu(gate) * up` of every row, which holds `width` gates and then as many ups.
pub(super) fn gated_silu(states: &Tensor, width: usize, out: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if states.device().is_cuda() {
        return super::kernels::gated_silu(states, width, out);
    }
    let gated = (states.narrow(1, 0, width)?.silu()? * states.narrow(1, width, width)?)?;
    out.slice_set(&gated.to_dtype(out.dtype())?, 0, 0)
}

fn normed(rows: &Tensor, weight: &Tensor, epsilon: f32) -> Result<Tensor> {
    let mean = rows.sqr()?.mean_keepdim(D::Minus1)?;
    let scale = (mean + f64::from(epsilon))?.sqrt()?.recip()?;
    rows.broadcast_mul(&scale)?.broadcast_mul(weight)
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
mod tests {
    use candle_core::DType;

    use super::{super::tests::test_device, *};

    const EPSILON: f32 = 1e-5;

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

    fn normed_exactly(row: &[f64], weight: &[f64]) -> Vec<f64> {
        let mean = row.iter().map(|number| number * number).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean + f64::from(EPSILON)).sqrt();
        row.iter().zip(weight).map(|(number, weight)| number * scale * weight).collect()
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
        for width in [31, 576, 1500] {
            let ((states, rows), (weight, factors)) = (table(5, width), vector(width));
            let expected: Vec<_> = rows.iter().map(|row| normed_exactly(row, &factors)).collect();
            for (out, tolerance) in results(5, width) {
                norm(&states, &weight, EPSILON, &out).unwrap();
                assert_close(&out, &expected, tolerance);
            }
        }
    }

    #[test]
    fn norms_of_some_heads_leave_the_others_as_they_are() {
        for head_dim in [16, 80, 128] {
            let ((states, mut rows), (weight, factors)) = (table(3, 7 * head_dim), vector(head_dim));
            for row in &mut rows {
                for head in 2..6 {
                    let own = head * head_dim..(head + 1) * head_dim;
                    let normed = normed_exactly(&row[own.clone()], &factors);
                    row[own].copy_from_slice(&normed);
                }
            }
            head_norm(&states, 2..6, &weight, EPSILON).unwrap();
            assert_close(&states, &rows, 1e-5);
        }
    }

    #[test]
    fn a_rotation_turns_the_first_heads_only() {
        for pairs in [8, 40, 64] {
            let (states, mut rows) = table(4, 5 * 2 * pairs);
            let ((cosines, cosine_rows), (sines, sine_rows)) = (table(4, pairs), table(4, 2 * pairs));
            let sines = sines.narrow(1, pairs, pairs).unwrap().contiguous().unwrap();
            for (row, (cosines, sines)) in rows.iter_mut().zip(cosine_rows.iter().zip(&sine_rows)) {
                for head in row.chunks_exact_mut(2 * pairs).take(3) {
                    for pair in 0..pairs {
                        let (x, y) = (head[pair], head[pair + pairs]);
                        let (cosine, sine) = (cosines[pair], sines[pairs + pair]);
                        (head[pair], head[pair + pairs]) = (x * cosine - y * sine, y * cosine + x * sine);
                    }
                }
            }
            rotate(&states, 3, &cosines, &sines).unwrap();
            assert_close(&states, &rows, 1e-5);
        }
    }

    #[test]
    fn gates_of_any_width_are_what_they_are_defined_as() {
        for width in [48, 1024, 2500] {
            let (states, rows) = table(3, 2 * width);
            let gated = |row: &Vec<f64>| {
                row[..width].iter().zip(&row[width..]).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect()
            };
            let expected: Vec<Vec<f64>> = rows.iter().map(gated).collect();
            for (out, tolerance) in results(3, width) {
                gated_silu(&states, width, &out).unwrap();
                assert_close(&out, &expected, tolerance);
            }
        }
    }
}
