//! Rows of logits whose tokens the device draws by itself.
//!
//! What a draw has to give is [`Drawn::of`]; on a GPU a kernel computes it, with the same bits.

use candle_core::{Result, Tensor};

use super::{draw_memory::DrawMemory, host};
use crate::sampling::{DeviceDraw, Drawn};

/// Has the device draw from rows of `logits`, each given by its number.
#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "only kernels are told of draws"))]
pub(super) fn draw(logits: &Tensor, draws: &[(usize, DeviceDraw)], memory: &mut DrawMemory) -> Result<Vec<Drawn>> {
    #[cfg(feature = "cuda")]
    if logits.device().is_cuda() {
        return super::kernels::draw_tokens(logits, draws, memory);
    }
    draws.iter().map(|(row, draw)| Ok(Drawn::of(&host::row_of(logits, *row)?, *draw))).collect()
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
mod tests {
    use super::{super::tests::test_device, *};

    /// Logits of which some are equal, some far below the others and some minus infinity.
    fn logits(row: usize, width: usize) -> Vec<f32> {
        let logit = |column: usize| match (row * 31 + column * 7919) % 1013 {
            0..5 => f32::NEG_INFINITY,
            place @ 5..900 => f32::from(u16::try_from(place).unwrap()) / 64.0,
            place => -f32::from(u16::try_from(place).unwrap()),
        };
        (0..width).map(|column| if column == 0 { 0.5 } else { logit(column) }).collect()
    }

    fn draw_of(row: usize, width: usize, temperature: f64) -> DeviceDraw {
        match row % 3 {
            0 => DeviceDraw::Best,
            1 => DeviceDraw::Given(u32::try_from(row * 97 % width).unwrap()),
            // Near 0 and 1 too.
            _ => DeviceDraw::Share { temperature, uniform: (row as f64 / 40.0).min(1.0 - f64::EPSILON / 2.0) },
        }
    }

    #[test]
    fn the_device_draws_what_is_defined() {
        let mut memory = DrawMemory::default();
        for (width, temperature) in [(1, 1.0), (255, 0.6), (256, 1.0), (257, 1.3), (1100, 0.7), (263_000, 0.9)] {
            let rows: Vec<Vec<f32>> = (0..41).map(|row| logits(row, width)).collect();
            let table = Tensor::new(rows.clone(), &test_device()).unwrap();
            // Not in the order of rows, and one of them twice.
            let draws: Vec<_> = (0..41).rev().chain([7]).map(|row| (row, draw_of(row, width, temperature))).collect();
            let tokens = draw(&table, &draws, &mut memory).unwrap();
            for ((row, draw), token) in draws.iter().zip(tokens) {
                assert_eq!(token, Drawn::of(&rows[*row], *draw), "row {row} of {width}: {draw:?}");
            }
        }
    }

    #[test]
    fn logits_that_are_not_in_order_are_said_to_be() {
        let width = 700;
        let mut rows: Vec<Vec<f32>> = (0..9).map(|row| logits(row, width)).collect();
        for (row, bad) in [(0, f32::NAN), (1, f32::NAN), (2, f32::NAN), (3, f32::INFINITY), (4, f32::INFINITY)] {
            rows[row][600 + row] = bad;
        }
        rows[5].fill(f32::NEG_INFINITY);
        rows[8].fill(f32::NAN);
        let table = Tensor::new(rows, &test_device()).unwrap();
        let draws: Vec<_> = (0..9).map(|row| (row, draw_of(row, width, 0.8))).collect();
        let tokens = draw(&table, &draws, &mut DrawMemory::default()).unwrap();
        let in_order: Vec<usize> = (0..9).filter(|row| tokens[*row].token().is_some()).collect();
        assert_eq!(in_order, [6, 7]);
    }
}
