//! Rows of logits on their way to samplers: tokens that were drawn on the device, or sums over rows and a few blocks of them,
//! rather than all logits.
//!
//! A row that the device draws from sends its token and four numbers to the host; the device edits it before, where a sampler asks
//! for that. One that is taken in parts sends three numbers for every 256 logits, then the blocks that the draw and the
//! alternatives need, then, where these do not tell it, one count. Others go as a whole: edited ones whose draw is truncated, or
//! that have alternatives.

use std::ops::Range;

use candle_core::{DType, Result, Tensor};

use super::{draw_memory::DrawMemory, draws::draw, host, summaries::Summaries};
use crate::{
    engine::native::{
        backend::{AfterBlocks, Consumer},
        cpu::Pool,
    },
    sampling::{DeviceDraw, DevicePick, OwnedSummary, SKIM_BLOCK, Summary},
};

/// Gives the consumer all rows of `logits`, the first of which is its row `first`.
pub(super) fn consume(
    logits: &Tensor,
    first: usize,
    (pool, memory): (&mut Pool, &mut DrawMemory),
    consumer: &dyn Consumer,
) -> Result<()> {
    let (rows, width) = logits.dims2()?;
    let (mut drawn, mut parts, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for (row, draw) in draws_of(consumer, first..first + rows, width, pool).into_iter().enumerate() {
        if let Some(draw) = draw {
            drawn.push((row, draw));
        } else if let Some(temperature) = consumer.temperature(first + row) {
            parts.push((row, temperature));
        } else {
            whole.push(row);
        }
    }
    let tokens = draw(logits, &drawn, memory)?;
    let refused = drawn.iter().zip(tokens).filter(|((row, _), token)| !consumer.take_drawn(first + *row, *token));
    whole.extend(refused.map(|((row, _), _)| *row));
    whole.extend(consume_parts(logits, first, &parts, pool, consumer)?);
    if whole.is_empty() {
        return Ok(());
    }
    let mut numbers: Vec<f32> = host::numbers_of(&rows_of(logits, &whole)?)?;
    let mut whole: Vec<(usize, &mut [f32])> = whole.into_iter().zip(numbers.chunks_exact_mut(width)).collect();
    pool.for_each_mut(&mut whole, &|_, (row, logits)| consumer.take_row(first + *row, logits));
    Ok(())
}

/// How the device draws from rows, where it does. To know what is left of a structured output takes a while: threads share that,
/// and the device still computes the logits.
fn draws_of(consumer: &dyn Consumer, rows: Range<usize>, width: usize, pool: &mut Pool) -> Vec<Option<DeviceDraw>> {
    let has_token = |draw: &DeviceDraw| !matches!(draw.pick, DevicePick::Given(id) if id as usize >= width);
    let first = rows.start;
    let mut draws = vec![None; rows.len()];
    pool.for_each_mut(&mut draws, &|row, draw| *draw = consumer.draw(first + row).filter(has_token));
    draws
}

/// These rows.
fn rows_of(logits: &Tensor, rows: &[usize]) -> Result<Tensor> {
    if rows.len() == logits.dim(0)? && rows.is_sorted() {
        return Ok(logits.clone());
    }
    logits.index_select(&host::picked(rows.iter().copied(), logits.device())?, 0)
}

/// A row that is taken in parts.
struct Parted {
    row: usize,
    blocks: Option<Vec<u32>>,
    logits: Vec<f32>,
    after: AfterBlocks,
}

/// Takes rows in parts, and returns the rows that have to be taken as a whole after all.
fn consume_parts(
    logits: &Tensor,
    first: usize,
    rows: &[(usize, f64)],
    pool: &mut Pool,
    consumer: &dyn Consumer,
) -> Result<Vec<usize>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let summaries = summarize(logits, rows)?;
    let vocab_size = logits.dim(1)?;
    let blocks = vocab_size.div_ceil(SKIM_BLOCK);
    let begin =
        |row: &(usize, f64)| Parted { row: row.0, blocks: None, logits: Vec::new(), after: AfterBlocks::Nothing };
    let mut parted: Vec<Parted> = rows.iter().map(begin).collect();
    pool.for_each_mut(&mut parted, &|index, part| {
        let own = index * blocks..(index + 1) * blocks;
        let summary = Summary {
            maxima: &summaries.maxima[own.clone()],
            raw: &summaries.raw[own.clone()],
            scaled: &summaries.scaled[own],
            vocab_size,
        };
        part.blocks = consumer.summary(first + part.row, summary);
    });
    let mut whole = taken_out(&mut parted, |part| part.blocks.is_some());
    if parted.is_empty() {
        return Ok(whole);
    }
    read_blocks(logits, &mut parted)?;
    pool.for_each_mut(&mut parted, &|_, part| part.after = consumer.blocks(first + part.row, &part.logits));
    whole.extend(taken_out(&mut parted, |part| part.after != AfterBlocks::Whole));
    let counted = |part: &Parted| match part.after {
        AfterBlocks::AtLeast(logit) => Some((part.row, logit)),
        AfterBlocks::Nothing | AfterBlocks::Whole => None,
    };
    let counted: Vec<(usize, f32)> = parted.iter().filter_map(counted).collect();
    if !counted.is_empty() {
        for ((row, _), count) in counted.iter().zip(count_at_least(logits, &counted)?) {
            consumer.at_least(first + *row, count);
        }
    }
    Ok(whole)
}

/// Takes out the rows that do not stay, and returns their numbers.
fn taken_out(parted: &mut Vec<Parted>, stays: impl Fn(&Parted) -> bool) -> Vec<usize> {
    let out = parted.iter().filter(|part| !stays(part)).map(|part| part.row).collect();
    parted.retain(stays);
    out
}

/// Reads the blocks that each row asks for.
fn read_blocks(logits: &Tensor, parted: &mut [Parted]) -> Result<()> {
    let width = logits.dim(1)?;
    let wanted: Vec<(usize, u32)> =
        parted.iter().flat_map(|part| part.blocks.iter().flatten().map(|block| (part.row, *block))).collect();
    let read = blocks_of(logits, &wanted)?;
    let mut read = read.chunks_exact(SKIM_BLOCK);
    for part in parted {
        for (block, numbers) in part.blocks.iter().flatten().zip(&mut read) {
            // Numbers after the end of the vocabulary are no logits.
            let len = SKIM_BLOCK.min(width - *block as usize * SKIM_BLOCK);
            part.logits.extend_from_slice(&numbers[..len]);
        }
    }
    Ok(())
}

/// Summaries of some rows, each at its temperature.
fn summarize(logits: &Tensor, rows: &[(usize, f64)]) -> Result<Summaries> {
    #[cfg(feature = "cuda")]
    if logits.device().is_cuda() {
        return super::kernels::summarize(logits, rows);
    }
    let mut all = Summaries { maxima: Vec::new(), raw: Vec::new(), scaled: Vec::new() };
    for (row, temperature) in rows {
        let summary = OwnedSummary::new(&host::row_of(logits, *row)?, *temperature);
        let Summary { maxima, raw, scaled, .. } = summary.get();
        all.maxima.extend_from_slice(maxima);
        all.raw.extend_from_slice(raw);
        all.scaled.extend_from_slice(scaled);
    }
    Ok(all)
}

/// The logits of `(row, block)`, one block after another; a block that ends after the last logit is filled up.
fn blocks_of(logits: &Tensor, wanted: &[(usize, u32)]) -> Result<Vec<f32>> {
    #[cfg(feature = "cuda")]
    if logits.device().is_cuda() {
        return super::kernels::blocks_of(logits, wanted);
    }
    let mut read = Vec::with_capacity(wanted.len() * SKIM_BLOCK);
    for (row, block) in wanted {
        let numbers = host::row_of(logits, *row)?;
        let end = read.len() + SKIM_BLOCK;
        read.extend(numbers.into_iter().skip(*block as usize * SKIM_BLOCK).take(SKIM_BLOCK));
        read.resize(end, f32::NEG_INFINITY);
    }
    Ok(read)
}

/// For each `(row, logit)` how many logits of the row are at least that.
fn count_at_least(logits: &Tensor, chosen: &[(usize, f32)]) -> Result<Vec<u32>> {
    #[cfg(feature = "cuda")]
    if logits.device().is_cuda() {
        return super::kernels::count_at_least(logits, chosen);
    }
    let count = |(row, chosen): &(usize, f32)| {
        logits.narrow(0, *row, 1)?.ge(*chosen)?.to_dtype(DType::U32)?.sum_all()?.to_scalar()
    };
    chosen.iter().map(count).collect()
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::{super::tests::test_device, *};
    use crate::{
        engine::native::jobs::{Chain, Job, Jobs, Made},
        sampling::{Logprobs, LogprobsMode, SampleError, SampledToken, SamplingParams, SequenceSampler, score_token},
    };

    const WIDTH: usize = 1100;

    fn logits(row: usize) -> Vec<f32> {
        (0..WIDTH).map(|column| (((row * WIDTH + column) * 7919) % 1013) as f32 / 100.0).collect()
    }

    fn params(row: usize) -> SamplingParams {
        let base = SamplingParams { max_tokens: 9, seed: Some(row as u64), ..SamplingParams::default() };
        match row % 7 {
            0 => base,
            1 => SamplingParams { temperature: 0.0, logprobs: Some(Logprobs::Top(4)), ..base },
            2 => SamplingParams { top_p: 0.5, ..base },
            3 => SamplingParams { temperature: 0.7, logprobs: Some(Logprobs::Top(1)), ..base },
            4 => SamplingParams { temperature: 0.7, frequency_penalty: 0.5, logit_bias: vec![(3, 4.0)], ..base },
            5 => SamplingParams { temperature: 1.2, logprobs_mode: LogprobsMode::Processed, min_tokens: 2, ..base },
            _ => SamplingParams { presence_penalty: 1.0, logprobs: Some(Logprobs::All), ..base },
        }
    }

    /// All made, whatever it is.
    fn tokens(made: Vec<std::result::Result<Made, SampleError>>) -> Vec<SampledToken> {
        let token = |made| match made {
            Made::Step(step) => step.token,
            Made::Score(score) => score.token.expect("it was asked for"),
            Made::Rejected => unreachable!("nothing is drafted"),
        };
        made.into_iter().map(|made| token(made.unwrap())).collect()
    }

    #[test]
    fn rows_in_parts_and_whole_ones_give_what_samplers_make_of_all_logits() {
        let rows = 15;
        let numbers: Vec<Vec<f32>> = (0..rows).map(logits).collect();
        let table = Tensor::new(numbers.clone(), &test_device()).unwrap();
        let sampler = |row| SequenceSampler::new(params(row).valid(), Arc::new([]));
        let samplers: Vec<Mutex<SequenceSampler>> = (0..rows - 1).map(|row| Mutex::new(sampler(row))).collect();
        let scored = |id, top| Job::Score { token: Some((id, top)), candidates: &[] };
        // The consumer has two rows before these, and the last one is of a prompt.
        let jobs = || {
            let before = [0, 1].map(|id| scored(id, 0));
            let drawn = samplers.iter().map(Job::Sample);
            Jobs::new(before.into_iter().chain(drawn).chain([scored(5, 3)]))
        };
        let mut memory = DrawMemory::default();
        for _ in 0..3 {
            let jobs = jobs();
            jobs.take_row(0, &mut logits(0));
            jobs.take_row(1, &mut logits(0));
            consume(&table, 2, (&mut Pool::new(2).unwrap(), &mut memory), &jobs).unwrap();
            let found = tokens(jobs.made());
            let last = score_token(&numbers[rows - 1], 5, 3).unwrap();
            assert_eq!(found.last(), Some(&last));
        }
        let again: Vec<_> = (0..rows - 1).map(sampler).collect();
        let jobs = jobs();
        jobs.take_row(0, &mut logits(0));
        jobs.take_row(1, &mut logits(0));
        consume(&table, 2, (&mut Pool::new(1).unwrap(), &mut memory), &jobs).unwrap();
        let found = tokens(jobs.made());
        for (row, mut sampler) in again.into_iter().enumerate() {
            let expected = (0..4).map(|_| sampler.step(&mut logits(row)).unwrap().token).last();
            assert_eq!(Some(&found[2 + row]), expected.as_ref(), "row {row}");
        }
    }
    #[test]
    fn rows_of_a_draft_give_what_the_sampler_gives_one_after_the_other() {
        let rows = 8;
        let table = Tensor::new((0..rows).map(logits).collect::<Vec<_>>(), &test_device()).unwrap();
        for (kind, wrong) in [(0, rows), (1, rows), (0, 3), (3, 5), (2, 6), (4, 5), (5, rows)] {
            let params = SamplingParams { max_tokens: 20, logprobs: None, ..params(kind) };
            let sampler = || SequenceSampler::new(params.clone().valid(), Arc::new([]));
            let mut alone = sampler();
            let expected: Vec<SampledToken> =
                (0..rows).map(|row| alone.step(&mut logits(row)).unwrap().token).collect();
            let mut drafts: Vec<u32> = expected[..rows - 1].iter().map(|token| token.id).collect();
            if let Some(draft) = drafts.get_mut(wrong) {
                *draft += 1;
            }
            let sampler = Mutex::new(sampler());
            let chain = Arc::new(Chain::new(&sampler, &drafts));
            let jobs = Jobs::new((0..rows).map(|row| Job::Verify { chain: Arc::clone(&chain), row }));
            // In two parts, as many rows are.
            let (mut pool, mut memory) = (Pool::new(2).unwrap(), DrawMemory::default());
            for (first, count) in [(0, 3), (3, rows - 3)] {
                consume(&table.narrow(0, first, count).unwrap(), first, (&mut pool, &mut memory), &jobs).unwrap();
            }
            drop(chain);
            let made = jobs.made().into_iter().map(|made| match made.unwrap() {
                Made::Step(step) => Some(step.token),
                Made::Score(_) | Made::Rejected => None,
            });
            let expected = expected.into_iter().enumerate().map(|(row, token)| (row <= wrong).then_some(token));
            assert_eq!(made.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "kind {kind}, wrong at {wrong}");
        }
    }
}
