//! What is to be made of rows of logits: tokens of sequences, and scores of tokens of prompts.
//!
//! Owns which rows a device may give in parts. Refuses to know sequences.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use super::backend::{AfterBlocks, Consumer};
use crate::{
    TokenId,
    sampling::{DeviceDraw, Drawn, SampleError, Score, SequenceSampler, Skim, Skimmed, Step, Summary, score},
};

/// What is to be made of a row of logits.
pub(super) enum Job<'a> {
    Sample(&'a Mutex<SequenceSampler>),
    /// The row of this number of a sequence with a draft: it is sampled from once all rows before it were, if these gave
    /// the draft.
    Verify {
        chain: Arc<Chain<'a>>,
        row: usize,
    },
    /// The token that follows, with the number of its alternatives, where it is asked for; and candidates.
    Score {
        token: Option<(TokenId, usize)>,
        candidates: &'a [TokenId],
    },
}

/// What was made of a row of logits.
#[derive(Debug)]
pub(super) enum Made {
    Step(Step),
    Score(Score),
    /// Nothing: the row comes after a draft that is not what was sampled.
    Rejected,
}

/// A sequence with a draft, whose rows are sampled from one after the other, whichever is computed first.
pub(super) struct Chain<'a> {
    sampler: &'a Mutex<SequenceSampler>,
    drafts: &'a [TokenId],
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// What was made of the first rows.
    made: Vec<Result<Made, SampleError>>,
    /// Whether no more rows are sampled from.
    ended: bool,
    /// Rows that came before their turn.
    early: BTreeMap<usize, Early>,
}

/// What there is of a row.
enum Early {
    Logits(Vec<f32>),
    Drawn(Drawn),
}

impl<'a> Chain<'a> {
    /// The rows of a sequence: one before the first of its `drafts`, and one after each.
    pub(super) fn new(sampler: &'a Mutex<SequenceSampler>, drafts: &'a [TokenId]) -> Self {
        Self { sampler, drafts, progress: Mutex::default() }
    }

    fn take(&self, row: usize, logits: &mut [f32]) {
        let mut progress = self.progress.lock();
        if progress.ended {
            return;
        }
        if row != progress.made.len() {
            progress.early.insert(row, Early::Logits(logits.to_vec()));
            return;
        }
        self.sample(&mut progress, logits);
        self.take_early(&mut progress);
    }

    /// How a device draws the token of a row, if it can, whichever rows were sampled from so far.
    fn draw(&self, row: usize) -> Option<DeviceDraw> {
        let progress = self.progress.lock();
        self.sampler.lock().device_draw_ahead(row.saturating_sub(progress.made.len()))
    }

    /// Takes what a device drew of a row; `false` if all its logits are needed.
    fn take_drawn(&self, row: usize, drawn: Drawn) -> bool {
        let mut progress = self.progress.lock();
        if progress.ended {
            return true;
        }
        if !drawn.is_in_order() {
            return false;
        }
        progress.early.insert(row, Early::Drawn(drawn));
        self.take_early(&mut progress);
        true
    }

    /// Samples from rows whose turn has come.
    fn take_early(&self, progress: &mut Progress) {
        while !progress.ended
            && let Some(early) = progress.early.remove(&progress.made.len())
        {
            match early {
                Early::Logits(mut logits) => self.sample(progress, &mut logits),
                Early::Drawn(drawn) => {
                    let mut sampler = self.sampler.lock();
                    let step = sampler.take_drawn(drawn).expect("it was looked at when it came");
                    self.note(progress, &sampler, Ok(step));
                }
            }
        }
    }

    fn sample(&self, progress: &mut Progress, logits: &mut [f32]) {
        let mut sampler = self.sampler.lock();
        let step = sampler.step(logits);
        self.note(progress, &sampler, step);
    }

    /// Notes what was made of the next row.
    fn note(&self, progress: &mut Progress, sampler: &SequenceSampler, step: Result<Step, SampleError>) {
        let draft = self.drafts.get(progress.made.len());
        let is_right = matches!(&step, Ok(step) if step.finish.is_none() && Some(&step.token.id) == draft);
        // What takes long is prepared aside.
        progress.ended = !is_right || sampler.is_slow();
        progress.made.push(step.map(Made::Step));
    }

    fn made(&self, row: usize) -> Result<Made, SampleError> {
        let mut progress = self.progress.lock();
        progress.made.get_mut(row).map_or(Ok(Made::Rejected), |made| std::mem::replace(made, Ok(Made::Rejected)))
    }
}

impl Job<'_> {
    fn run(&self, logits: &mut [f32]) -> Result<Made, SampleError> {
        match self {
            Self::Sample(sampler) => sampler.lock().step(logits).map(Made::Step),
            Self::Verify { chain, row } => {
                chain.take(*row, logits);
                Ok(Made::Rejected)
            }
            Self::Score { token, candidates } => score(logits, *token, candidates).map(Made::Score),
        }
    }

    /// How a device draws the token, if it can.
    fn draw(&self) -> Option<DeviceDraw> {
        match self {
            Self::Sample(sampler) => sampler.lock().device_draw(),
            Self::Verify { chain, row } => chain.draw(*row),
            Self::Score { token: Some((id, top)), candidates: [] } => DeviceDraw::of_token(*id, *top),
            Self::Score { .. } => None,
        }
    }

    /// What is made of what a device drew; `None` where all logits are needed.
    fn take_drawn(&self, drawn: Drawn) -> Option<Made> {
        match self {
            Self::Sample(sampler) => sampler.lock().take_drawn(drawn).map(Made::Step),
            Self::Verify { chain, row } => chain.take_drawn(*row, drawn).then_some(Made::Rejected),
            Self::Score { .. } => Some(Made::Score(Score { token: Some(drawn.token(1.0)?), candidates: Vec::new() })),
        }
    }

    /// The temperature of the summary from which it can be made, if any.
    fn temperature(&self) -> Option<f64> {
        match self {
            Self::Sample(sampler) => sampler.lock().skims(),
            Self::Score { token: Some(_), candidates: [] } => Some(1.0),
            Self::Verify { .. } | Self::Score { .. } => None,
        }
    }

    /// Looks at a summary; `None` where all logits are needed.
    fn skim(&self, summary: Summary<'_>) -> Option<Skim> {
        match self {
            Self::Sample(sampler) => sampler.lock().skim(summary),
            Self::Score { token: Some((id, top)), .. } => Skim::of_token(summary, *id, *top),
            Self::Verify { .. } | Self::Score { .. } => None,
        }
    }

    /// The token, from the logits of the blocks that were asked for; `None` where all logits are needed after all.
    fn pick(&self, skim: &Skim, logits: &[f32]) -> Option<Skimmed> {
        match self {
            Self::Sample(sampler) => sampler.lock().pick(skim, logits),
            Self::Score { .. } => Some(skim.given(logits)),
            Self::Verify { .. } => unreachable!("a draft is verified with all logits"),
        }
    }

    /// What was made of a row that was taken in parts; so many logits are at least that of the token.
    fn conclude(&self, skimmed: Skimmed, at_least: u32) -> Made {
        match self {
            Self::Sample(sampler) => Made::Step(sampler.lock().conclude(skimmed, at_least)),
            Self::Score { .. } => Made::Score(Score { token: Some(skimmed.token(at_least)), candidates: Vec::new() }),
            Self::Verify { .. } => unreachable!("a draft is verified with all logits"),
        }
    }
}

/// Which part of a row comes next, where the row is taken in parts.
#[derive(Debug, Default)]
enum RowPart {
    #[default]
    Nothing,
    Summary(Skim),
    Token(Skimmed),
}

/// A row of logits, and how far it has come.
struct Row<'a> {
    job: Job<'a>,
    part: Mutex<RowPart>,
    made: OnceLock<Result<Made, SampleError>>,
}

/// One job for each row of logits.
pub(super) struct Jobs<'a>(Vec<Row<'a>>);

impl<'a> Jobs<'a> {
    pub(super) fn new(jobs: impl Iterator<Item = Job<'a>>) -> Self {
        Self(jobs.map(|job| Row { job, part: Mutex::default(), made: OnceLock::new() }).collect())
    }

    /// What was made of each row, once all rows are computed.
    pub(super) fn made(self) -> Vec<Result<Made, SampleError>> {
        let made = |row: Row<'_>| {
            let made = row.made.into_inner().expect("every row is computed");
            match row.job {
                // What was made of it may have been made with a later row.
                Job::Verify { chain, row } => chain.made(row),
                Job::Sample(_) | Job::Score { .. } => made,
            }
        };
        self.0.into_iter().map(made).collect()
    }
}

impl Row<'_> {
    fn set(&self, made: Result<Made, SampleError>) {
        self.made.set(made).expect("a row is computed once");
    }
}

impl Consumer for Jobs<'_> {
    fn take_row(&self, row: usize, logits: &mut [f32]) {
        let row = &self.0[row];
        row.set(row.job.run(logits));
    }

    fn draw(&self, row: usize) -> Option<DeviceDraw> {
        self.0[row].job.draw()
    }

    fn take_drawn(&self, row: usize, drawn: Drawn) -> bool {
        let row = &self.0[row];
        row.job.take_drawn(drawn).map(|made| row.set(Ok(made))).is_some()
    }

    fn temperature(&self, row: usize) -> Option<f64> {
        self.0[row].job.temperature()
    }

    fn summary(&self, row: usize, summary: Summary<'_>) -> Option<Vec<u32>> {
        let row = &self.0[row];
        let skim = row.job.skim(summary)?;
        let blocks = skim.blocks().to_vec();
        *row.part.lock() = RowPart::Summary(skim);
        Some(blocks)
    }

    fn blocks(&self, row: usize, logits: &[f32]) -> AfterBlocks {
        let row = &self.0[row];
        let mut part = row.part.lock();
        let RowPart::Summary(skim) = std::mem::take(&mut *part) else { unreachable!("blocks follow a summary") };
        let Some(skimmed) = row.job.pick(&skim, logits) else { return AfterBlocks::Whole };
        if let Some(count) = skimmed.at_least() {
            row.set(Ok(row.job.conclude(skimmed, count)));
            return AfterBlocks::Nothing;
        }
        let logit = skimmed.logit();
        *part = RowPart::Token(skimmed);
        AfterBlocks::AtLeast(logit)
    }

    fn at_least(&self, row: usize, count: u32) {
        let row = &self.0[row];
        let RowPart::Token(skimmed) = std::mem::take(&mut *row.part.lock()) else {
            unreachable!("a count follows a token")
        };
        row.set(Ok(row.job.conclude(skimmed, count)));
    }
}
