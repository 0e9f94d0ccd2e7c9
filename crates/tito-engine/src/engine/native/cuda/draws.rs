//! Rows of logits whose tokens the device draws by itself.
//!
//! What a draw has to give is [`Drawn::of`]; on a GPU a kernel computes it, with the same bits.

use candle_core::{Device, Result, Tensor};

#[cfg(feature = "cuda")]
use super::kernels::Coming;
use super::{draw_memory::DrawMemory, host, landings::Landings};
use crate::{
    TokenId,
    engine::native::backend::RowDraws,
    sampling::{DeviceDraw, Drawn},
};

/// Has the device draw from rows of `logits`, each given by its number.
#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "only kernels are told of draws"))]
pub(super) fn draw(logits: &Tensor, draws: &[(usize, DeviceDraw)], memory: &mut DrawMemory) -> Result<Vec<Drawn>> {
    #[cfg(feature = "cuda")]
    if logits.device().is_cuda() {
        return super::kernels::draw_tokens(logits, draws, memory);
    }
    draws.iter().map(|(row, draw)| Ok(Drawn::of(&host::row_of(logits, *row)?, draw))).collect()
}

/// What was drawn of rows of logits, or is on its way to the host.
#[derive(Debug)]
pub(super) enum DrawsUnderway {
    There(Vec<Drawn>),
    #[cfg(feature = "cuda")]
    Coming(Coming<u32>),
}

/// Has the device begin to draw from all rows of `logits`.
#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "only what a GPU draws has to land"))]
pub(super) fn begin(
    logits: &Tensor,
    RowDraws { draws, first, rows }: RowDraws<'_>,
    memory: &mut DrawMemory,
    landings: &mut Landings,
) -> Result<DrawsUnderway> {
    let draws: Vec<(usize, DeviceDraw)> = draws.iter().cloned().enumerate().collect();
    #[cfg(feature = "cuda")]
    if logits.device().is_cuda() {
        let coming = super::kernels::begin_tokens(logits, &draws, (first, rows), memory, landings)?;
        return Ok(DrawsUnderway::Coming(coming));
    }
    let tokens = draw(logits, &draws, memory)?;
    memory.ids.resize(rows, 0);
    for (id, token) in memory.ids[first..].iter_mut().zip(&tokens) {
        *id = token.id;
    }
    Ok(DrawsUnderway::There(tokens))
}

impl DrawsUnderway {
    /// What was drawn, once it is there.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(unused_variables, clippy::unnecessary_wraps, reason = "nothing has to land")
    )]
    pub(super) fn land(self, landings: &mut Landings) -> Result<Vec<Drawn>> {
        match self {
            Self::There(tokens) => Ok(tokens),
            #[cfg(feature = "cuda")]
            Self::Coming(coming) => coming.land(landings).map(|words| super::kernels::drawn_of(&words)),
        }
    }
}

/// The ids of tokens that were drawn last, on the device, by their rows of logits.
pub(super) fn drawn_ids(rows: &[usize], memory: &DrawMemory, device: &Device) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if device.is_cuda() {
        return super::kernels::drawn_ids(rows, memory, device);
    }
    let ids: Vec<TokenId> = rows.iter().map(|row| memory.ids[*row]).collect();
    Tensor::new(ids, device)
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
mod tests {
    use super::{super::tests::test_device, *};
    use crate::sampling::{DevicePick, LogprobsMode, PenaltyFactors, RowEdits, TokenMask};

    /// Logits of which some are equal, some far below the others and some minus infinity.
    fn logits(row: usize, width: usize) -> Vec<f32> {
        let logit = |column: usize| match (row * 31 + column * 7919) % 1013 {
            0..5 => f32::NEG_INFINITY,
            place @ 5..900 => f32::from(u16::try_from(place).unwrap()) / 64.0,
            place => -f32::from(u16::try_from(place).unwrap()),
        };
        (0..width).map(|column| if column == 0 { 0.5 } else { logit(column) }).collect()
    }

    fn pick_of(row: usize, width: usize, temperature: f64) -> DevicePick {
        match row % 3 {
            0 => DevicePick::Best,
            1 => DevicePick::Given(u32::try_from(row * 97 % width).unwrap()),
            // Near 0 and 1 too.
            _ => DevicePick::Share { temperature, uniform: (row as f64 / 40.0).min(1.0 - f64::EPSILON / 2.0) },
        }
    }

    fn draw_of(row: usize, width: usize, temperature: f64) -> DeviceDraw {
        let logprobs_mode = if row % 7 > 4 { LogprobsMode::Processed } else { LogprobsMode::Raw };
        DeviceDraw { logprobs_mode, ..DeviceDraw::unedited(pick_of(row, width, temperature)) }
    }

    /// Edits of several kinds, some of tokens that have no logit. The first token stays.
    fn edits_of(row: usize, width: usize) -> RowEdits {
        let width = u32::try_from(width).unwrap();
        let some = |step: usize| (1..width + 9).step_by(1 + row % step).filter(|id| id % 3 != 1).take(300);
        let mut mask = TokenMask::default();
        (0..width + 40).filter(|id| id % 5 < 3).for_each(|id| mask.allow(id));
        let [is_masked, is_forbidden, is_biased, is_penalised] = [2, 3, 4, 5].map(|step| row % step >= step / 2);
        RowEdits {
            mask: is_masked.then_some(mask),
            forbidden: if is_forbidden { some(7).chain([1, 1]).collect() } else { Vec::new() },
            biases: if is_biased { some(5).map(|id| (id, id as f32 / 100.0 - 1.3)).collect() } else { Vec::new() },
            penalties: is_penalised.then_some(PenaltyFactors { presence: 0.3, frequency: -0.2, repetition: 1.1 }),
            occurrences: if is_penalised { some(4).map(|id| (id, id % 4)).collect() } else { Vec::new() },
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
                assert_eq!(token, Drawn::of(&rows[*row], draw), "row {row} of {width}: {draw:?}");
            }
        }
    }

    #[test]
    fn the_device_draws_what_is_defined_from_rows_that_are_edited() {
        let mut memory = DrawMemory::default();
        for (width, temperature) in [(1, 1.0), (40, 1.0), (257, 1.3), (1100, 0.7), (70_000, 0.9)] {
            let rows: Vec<Vec<f32>> = (0..77).map(|row| logits(row, width)).collect();
            let table = Tensor::new(rows.clone(), &test_device()).unwrap();
            // More than are edited at once, and others between them.
            let edits = |row: usize| if row % 6 == 5 { RowEdits::default() } else { edits_of(row, width) };
            let draw_of = |row| DeviceDraw { edits: edits(row), ..draw_of(row, width, temperature) };
            let draws: Vec<_> = (0..77).rev().map(|row| (row, draw_of(row))).collect();
            let tokens = draw(&table, &draws, &mut memory).unwrap();
            for ((row, draw), token) in draws.iter().zip(tokens) {
                assert_eq!(token, Drawn::of(&rows[*row], draw), "row {row} of {width}: {:?}", draw.pick);
            }
        }
    }

    #[test]
    fn edits_that_leave_nothing_are_said_to() {
        let width = 700;
        let table = Tensor::new(vec![logits(3, width); 4], &test_device()).unwrap();
        let overflow = vec![(600, f32::MAX), (601, 1.0)];
        let edits = [
            RowEdits { mask: Some(TokenMask::default()), ..RowEdits::default() },
            RowEdits { forbidden: (0..800).collect(), ..RowEdits::default() },
            RowEdits { biases: overflow.clone(), penalties: None, ..RowEdits::default() },
            RowEdits {
                biases: overflow,
                penalties: Some(PenaltyFactors { repetition: 0.5, ..PenaltyFactors::NONE }),
                occurrences: vec![(600, 1)],
                ..RowEdits::default()
            },
        ];
        let pick = DevicePick::Share { temperature: 0.8, uniform: 0.3 };
        let draw_of = |edits| DeviceDraw { edits, ..DeviceDraw::unedited(pick) };
        let draws: Vec<_> = edits.into_iter().map(draw_of).enumerate().collect();
        let tokens = draw(&table, &draws, &mut DrawMemory::default()).unwrap();
        let in_order: Vec<bool> = tokens.iter().map(Drawn::is_in_order).collect();
        assert_eq!(in_order, [false, false, true, false]);
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
        for edits in [RowEdits::default(), RowEdits { forbidden: (600..610).collect(), ..RowEdits::default() }] {
            let draw_of = |row| DeviceDraw { edits: edits.clone(), ..DeviceDraw::unedited(pick_of(row, width, 0.8)) };
            let draws: Vec<_> = (0..9).map(|row| (row, draw_of(row))).collect();
            let tokens = draw(&table, &draws, &mut DrawMemory::default()).unwrap();
            let in_order: Vec<usize> = (0..9).filter(|row| tokens[*row].is_in_order()).collect();
            assert_eq!(in_order, [6, 7]);
        }
    }
}
