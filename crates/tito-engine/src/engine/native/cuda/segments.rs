//! Attention in both directions within segments of rows: what the tower of images computes.
//!
//! As on the processor, weights are made in f32, and sum to 1 before they are rounded to the precision of the products. Segments
//! as long as those beside them are computed at once, and a long one in tiles of its queries, so that scores take no more memory
//! than a tile of them. Shapes depend on the segments only: an image has the same bits whatever is computed beside it.

use std::ops::Range;

use candle_core::{D, Result, Tensor};

use super::{
    attention::MOST_SCORES,
    products::{batched, batched_transposed},
};
use crate::engine::native::backend::SegmentHeads;

/// Segments that follow each other and are as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    first_row: usize,
    /// How many segments.
    count: usize,
    /// Rows of each.
    rows: usize,
}

/// Has every row attend to all rows of its segment, also to later ones, and writes to the rows of `out`, `[rows, heads *
/// head_dim]`. A row of `states` holds the queries of all heads, then their keys, then their values, in f32. Every row is in one
/// segment.
pub(super) fn attend_within(
    states: &Tensor,
    shape: SegmentHeads,
    segments: &[Range<usize>],
    out: &Tensor,
) -> Result<()> {
    for stretch in stretches(segments, shape.heads) {
        let Stretch { first_row, count, rows } = stretch;
        let part = states.narrow(0, first_row, count * rows)?;
        let [queries, keys, values] = [0, 1, 2].map(|number| by_head(&part, number, stretch, shape, out));
        let (queries, keys, values) = (queries?, keys?, values?);
        let at_once = (MOST_SCORES / (count * shape.heads * rows)).clamp(1, rows);
        for first in (0..rows).step_by(at_once) {
            let tile = at_once.min(rows - first);
            let scores = batched_transposed(&queries.narrow(1, first, tile)?, &keys)?;
            let attended = batched(&weights(&scores, shape.scale, out)?, &values)?;
            write(&attended, Stretch { first_row: first_row + first, count, rows: tile }, shape, out)?;
        }
    }
    Ok(())
}

/// Stretches with room for the scores of all of their segments, or of one segment each.
fn stretches(segments: &[Range<usize>], heads: usize) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        let (first_row, rows) = (segment.start, segment.len());
        match stretches.last_mut() {
            Some(last)
                if last.rows == rows
                    && last.first_row + last.count * rows == first_row
                    && (last.count + 1) * heads * rows * rows <= MOST_SCORES =>
            {
                last.count += 1;
            }
            _ => stretches.push(Stretch { first_row, count: 1, rows }),
        }
    }
    stretches
}

/// Queries, keys or values, by their number: `[count * heads, rows, head_dim]` in the type of `out`.
fn by_head(
    part: &Tensor,
    number: usize,
    Stretch { count, rows, .. }: Stretch,
    shape: SegmentHeads,
    out: &Tensor,
) -> Result<Tensor> {
    let SegmentHeads { heads, head_dim, .. } = shape;
    let width = heads * head_dim;
    #[cfg(feature = "cuda")]
    if part.device().is_cuda() {
        return super::kernels::split_heads(part, number * width, rows, shape, out.dtype());
    }
    let part = part.narrow(1, number * width, width)?.to_dtype(out.dtype())?.contiguous()?;
    let by_head = part.reshape((count, rows, heads, head_dim))?.transpose(1, 2)?.contiguous()?;
    by_head.reshape((count * heads, rows, head_dim))
}

/// What each query takes of each key, in sum 1 before it is rounded to the type of `out`.
fn weights(scores: &Tensor, scale: f32, out: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if scores.device().is_cuda() {
        return super::kernels::weights(scores, scale, out.dtype());
    }
    let scores = (scores * f64::from(scale))?;
    let weights = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
    weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?.to_dtype(out.dtype())
}

/// Writes `[count * heads, rows, head_dim]` to these rows; a stretch of several segments is written whole.
fn write(
    attended: &Tensor,
    Stretch { first_row, count, rows }: Stretch,
    shape: SegmentHeads,
    out: &Tensor,
) -> Result<()> {
    #[cfg(feature = "cuda")]
    if attended.device().is_cuda() {
        return super::kernels::join_heads(attended, shape, &out.narrow(0, first_row, count * rows)?);
    }
    let SegmentHeads { heads, head_dim, .. } = shape;
    let by_row = attended.reshape((count, heads, rows, head_dim))?.transpose(1, 2)?.to_dtype(out.dtype())?;
    out.slice_set(&by_row.contiguous()?.reshape((count * rows, heads * head_dim))?, 0, first_row)
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
mod tests {
    use candle_core::DType;

    use super::{super::tests::test_device, *};

    #[test]
    fn segments_of_one_length_are_computed_at_once_as_far_as_there_is_room() {
        let stretch = |first_row, count, rows| Stretch { first_row, count, rows };
        let found = stretches(&[0..4, 4..8, 8..8, 8..10, 10..12, 14..16], 2);
        assert_eq!(found, [stretch(0, 2, 4), stretch(8, 2, 2), stretch(14, 1, 2)]);
        let long = 1 << 12;
        let found = stretches(&[0..long, long..2 * long, 2 * long..3 * long], 2);
        assert_eq!(found, [stretch(0, 2, long), stretch(2 * long, 1, long)]);
    }

    fn exact(rows: &[Vec<f32>], shape: SegmentHeads, segments: &[Range<usize>]) -> Vec<Vec<f64>> {
        let SegmentHeads { heads, head_dim, scale } = shape;
        let width = heads * head_dim;
        let mut out = vec![vec![0.0; width]; rows.len()];
        for segment in segments {
            for (query, head) in segment.clone().flat_map(|row| (0..heads).map(move |head| (row, head))) {
                let part = |row: usize, number: usize| &rows[row][number * width + head * head_dim..][..head_dim];
                let scores: Vec<f64> = segment
                    .clone()
                    .map(|key| {
                        part(query, 0).iter().zip(part(key, 1)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
                    })
                    .map(|score: f64| score * f64::from(scale))
                    .collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|score| (score - most).exp()).sum();
                for (key, score) in segment.clone().zip(&scores) {
                    let weight = (score - most).exp() / total;
                    for (out, value) in out[query][head * head_dim..].iter_mut().zip(part(key, 2)) {
                        *out += weight * f64::from(*value);
                    }
                }
            }
        }
        out
    }

    #[test]
    fn rows_attend_to_all_rows_of_their_segment_and_to_no_other() {
        let windows = [0..64, 64..128, 128..144, 144..208, 208..209];
        let whole = std::slice::from_ref(&(0..209));
        for (shape, segments) in [
            (SegmentHeads { heads: 2, head_dim: 80, scale: 0.11 }, &windows[..]),
            (SegmentHeads { heads: 3, head_dim: 72, scale: 0.3 }, whole),
            (SegmentHeads { heads: 1, head_dim: 6, scale: 1.0 }, &windows[..]),
        ] {
            let width = shape.heads * shape.head_dim;
            let number =
                |row: usize, column: usize| (((row * 3 * width + column) * 7919 + 13) % 10_007) as f32 / 5e3 - 1.0;
            let rows: Vec<Vec<f32>> =
                (0..209).map(|row| (0..3 * width).map(|column| number(row, column)).collect()).collect();
            let expected = exact(&rows, shape, segments);
            let states = Tensor::new(rows, &test_device()).unwrap();
            for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::BF16, 2e-2)] {
                let out = Tensor::full(f32::NAN, (209, width), &test_device()).unwrap().to_dtype(dtype).unwrap();
                attend_within(&states, shape, segments, &out).unwrap();
                let found = out.to_dtype(DType::F32).unwrap().to_vec2::<f32>().unwrap();
                for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let far = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
                    assert!(far < tolerance, "row {row} of {shape:?} in {dtype:?} is off by {far}");
                }
            }
        }
    }
}
