//! What is to be made of rows of logits: tokens of sequences, and scores of tokens of prompts.
//!
//! Owns which rows a device may give in parts. Refuses to know sequences.

use std::sync::OnceLock;

use parking_lot::Mutex;

use super::backend::Consumer;
use crate::{
    TokenId,
    sampling::{SampleError, Score, SequenceSampler, Skim, Skimmed, Step, Summary, score},
};

/// What is to be made of a row of logits.
pub(super) enum Job<'a> {
    Sample(&'a Mutex<SequenceSampler>),
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
}

impl Job<'_> {
    fn run(&self, logits: &mut [f32]) -> Result<Made, SampleError> {
        match self {
            Self::Sample(sampler) => sampler.lock().step(logits).map(Made::Step),
            Self::Score { token, candidates } => score(logits, *token, candidates).map(Made::Score),
        }
    }

    fn sampler(&self) -> Option<&Mutex<SequenceSampler>> {
        match self {
            Self::Sample(sampler) => Some(sampler),
            Self::Score { .. } => None,
        }
    }
}

/// Which part of a row comes next, where the row is taken in parts.
#[derive(Debug, Default)]
enum Part {
    #[default]
    Nothing,
    Summary(Skim),
    Token(Skimmed),
}

/// A row of logits, and how far it has come.
struct Row<'a> {
    job: Job<'a>,
    part: Mutex<Part>,
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
        self.0.into_iter().map(|row| row.made.into_inner().expect("every row is computed")).collect()
    }
}

impl Row<'_> {
    fn set(&self, made: Result<Made, SampleError>) {
        self.made.set(made).expect("a row is computed once");
    }
}

impl Consumer for Jobs<'_> {
    fn whole(&self, row: usize, logits: &mut [f32]) {
        let row = &self.0[row];
        row.set(row.job.run(logits));
    }

    fn temperature(&self, row: usize) -> Option<f64> {
        self.0[row].job.sampler()?.lock().skims()
    }

    fn summary(&self, row: usize, summary: Summary<'_>) -> Option<Vec<u32>> {
        let row = &self.0[row];
        let skim = row.job.sampler()?.lock().skim(summary)?;
        let blocks = skim.blocks().to_vec();
        *row.part.lock() = Part::Summary(skim);
        Some(blocks)
    }

    fn blocks(&self, row: usize, logits: &[f32]) -> f32 {
        let row = &self.0[row];
        let mut part = row.part.lock();
        let Part::Summary(skim) = &*part else { unreachable!("blocks follow a summary") };
        let skimmed = skim.pick(logits);
        let logit = skimmed.logit();
        *part = Part::Token(skimmed);
        logit
    }

    fn at_least(&self, row: usize, count: u32) {
        let row = &self.0[row];
        let (Part::Token(skimmed), Some(sampler)) = (std::mem::take(&mut *row.part.lock()), row.job.sampler()) else {
            unreachable!("a count follows a token")
        };
        row.set(Ok(Made::Step(sampler.lock().conclude(skimmed, count))));
    }
}
