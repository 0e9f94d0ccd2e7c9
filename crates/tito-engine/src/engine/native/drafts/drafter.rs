//! What drafts: one of several ways, and what it keeps.

use std::time::Duration;

use super::{
    confidence::{Confidence, Reputation, least_probability, least_probability_by_model},
    gains::Gains,
    ngram::NgramLookup,
    suffix::SuffixDecoding,
    texts::{RecentTexts, RecordedText},
    trials::Trials,
};
use crate::TokenId;

/// Where drafts come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speculation {
    /// From the sequence's own text.
    Ngram(NgramLookup),
    /// From the sequence's own text and from recent ones of others, by counts.
    Suffix(SuffixDecoding),
    /// From another model, the settings' [draft](crate::engine::native::NativeSettings::draft_model).
    Model(ModelDrafts),
}

/// Drafts by another model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelDrafts {
    /// The most tokens of a draft, at least 1.
    pub num_speculative_tokens: usize,
    /// What a row of the other model takes, as a share of what a row of the model takes; `None` to measure it once both are
    /// loaded. Drafts are as long as this makes them worth it. Where it is measured, so is what steps with drafts take: where
    /// they are slower than steps without, there are none.
    pub cost: Option<f64>,
}

impl ModelDrafts {
    /// Whether a draft of another model can be worth it at this cost, at the best.
    pub fn can_be_worth(cost: f64) -> bool {
        Confidence::in_estimates().worth_at(least_probability_by_model(1, 1, cost), 1) > 0
    }
}

/// Whether tokens are drafted, which changes no bit. It is not possible for models with recurrent states, in which there is
/// no going back, nor on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Drafting {
    /// No token is.
    #[default]
    Off,
    /// As far as it is possible.
    WherePossible(Speculation),
    /// A model or a device for which it is not possible is refused.
    Required(Speculation),
}

/// A sequence that may have a draft.
pub(crate) struct DraftContext<'a> {
    /// Its text among the recent ones, once it has begun.
    pub(crate) text: &'a mut Option<RecordedText>,
    /// Sequences find texts only of those with the same salt.
    pub(crate) salt: Option<&'a str>,
    /// Prompt and output.
    pub(crate) token_ids: &'a [TokenId],
}

/// Where a draft comes from, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DraftSource {
    /// A structured output that leaves no choice.
    Forced,
    /// What was sampled before.
    Texts,
    /// Another model.
    Model,
}

/// Whether a step has drafts from a source that it could have them from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) source: DraftSource,
    /// How many sequences may have drafts.
    pub(crate) sequences: usize,
    /// Whether it has them.
    pub(crate) drafts: bool,
}

/// Drafts for all sequences of an engine.
#[derive(Debug)]
pub(crate) struct Drafter {
    speculation: Speculation,
    texts: Option<RecentTexts>,
    /// What is expected of another model that drafts.
    reputation: Reputation,
    /// What a row of another model takes; infinite if that is not known.
    cost: f64,
    /// What steps take with drafts and without, unless estimates are to be believed.
    clock: Option<Clock>,
}

/// What steps take with drafts and without, for each source.
#[derive(Debug)]
struct Clock {
    forced: Trials,
    texts: Trials,
    model: Gains,
}

impl Default for Clock {
    fn default() -> Self {
        // Different lots: a step that tries to do without drafts from texts has those that are forced.
        Self { forced: Trials::seeded(1), texts: Trials::seeded(2), model: Gains::default() }
    }
}

impl Drafter {
    /// `measured` is the cost of another model that drafts, where none is given.
    pub(crate) fn new(speculation: Speculation, measured: Option<f64>) -> Self {
        let (given, timed) = match speculation {
            Speculation::Model(drafts) => (drafts.cost, drafts.cost.is_none()),
            Speculation::Ngram(ngram) => (None, ngram.timed),
            Speculation::Suffix(suffix) => (None, suffix.timed),
        };
        let cost = given.or(measured).unwrap_or(f64::INFINITY);
        let clock = timed.then(Clock::default);
        let most_texts = match speculation {
            Speculation::Ngram(_) | Speculation::Model(_) => 0,
            Speculation::Suffix(suffix) => suffix.most_texts(),
        };
        let texts = (most_texts > 0).then(|| RecentTexts::new(most_texts));
        Self { speculation, texts, reputation: Reputation::default(), cost, clock }
    }

    /// The most tokens of a draft.
    pub(crate) fn longest_draft(&self) -> usize {
        match self.speculation {
            Speculation::Ngram(ngram) => ngram.num_speculative_tokens,
            Speculation::Suffix(suffix) => suffix.num_speculative_tokens,
            Speculation::Model(drafts) => drafts.num_speculative_tokens,
        }
    }

    /// Whether another model drafts.
    pub(crate) fn asks_a_model(&self) -> bool {
        matches!(self.speculation, Speculation::Model(_))
    }

    /// Whether a step of so many sequences that may have drafts should have those of a source. Not all steps are learnt from.
    pub(crate) fn should_ask(&mut self, source: DraftSource, sequences: usize, is_learnt_from: bool) -> bool {
        let Some(clock) = &mut self.clock else { return true };
        match source {
            DraftSource::Forced => clock.forced.drafts(sequences, is_learnt_from),
            DraftSource::Texts => clock.texts.drafts(sequences, is_learnt_from),
            DraftSource::Model => clock.model.drafts(sequences),
        }
    }

    /// Learns what a step took that had drafts from a source or had not, and how many tokens it gave.
    pub(crate) fn learn_gain(&mut self, asked: Asked, tokens: usize, took: Duration) {
        let Some(clock) = &mut self.clock else { return };
        let Asked { source, sequences, drafts } = asked;
        match source {
            DraftSource::Forced => clock.forced.learn(sequences, drafts, tokens, took),
            DraftSource::Texts => clock.texts.learn(sequences, drafts, tokens, took),
            DraftSource::Model => clock.model.learn(sequences, drafts, tokens, took),
        }
    }

    /// How many tokens of another model, at most `most`, are worth their rows: in a step that has `rows` without drafts, and
    /// `drafting` sequences that may have one.
    pub(crate) fn worth_of_model(&self, confidence: Confidence, most: usize, rows: usize, drafting: usize) -> usize {
        confidence.worth_at(least_probability_by_model(rows, drafting, self.cost), most)
    }

    /// Learns how many tokens of another model's draft were right.
    pub(crate) fn learn(&mut self, drafted: usize, accepted: usize) {
        self.reputation.learn(drafted, accepted);
    }

    /// Takes note of a token for which no draft of another model was worth it.
    pub(crate) fn forget(&mut self) {
        self.reputation.forget();
    }

    /// Expects of another model what is expected of a new one.
    pub(crate) fn renew(&mut self) {
        self.reputation = Reputation::default();
    }

    /// What is expected of a sequence's drafts before anything is known.
    pub(crate) fn confidence(&self) -> Confidence {
        match self.speculation {
            Speculation::Ngram(_) => Confidence::default(),
            Speculation::Suffix(_) => Confidence::in_estimates(),
            Speculation::Model(_) => self.reputation.confidence(),
        }
    }

    /// At most `most` tokens that may follow in a sequence, in a step that has `rows` without them.
    pub(crate) fn draft(&mut self, sequence: DraftContext<'_>, most: usize, rows: usize) -> Vec<TokenId> {
        let suffix = match self.speculation {
            Speculation::Ngram(ngram) => return ngram.draft(sequence.token_ids, most),
            Speculation::Suffix(suffix) => suffix,
            // It is asked once the step is planned.
            Speculation::Model(_) => return Vec::new(),
        };
        let token_ids = sequence.token_ids;
        let Some(allowance) = suffix.allowance(most, least_probability(rows)) else { return Vec::new() };
        let elsewhere = match &mut self.texts {
            Some(texts) => {
                let text = begun(texts, suffix, sequence);
                let last = &token_ids[token_ids.len().saturating_sub(suffix.longest_lookup())..];
                texts.occurrences(text, last, allowance.shortest)
            }
            None => Vec::new(),
        };
        suffix.draft(token_ids, elsewhere, allowance)
    }

    /// Records a token that was sampled after those of the sequence.
    pub(crate) fn record(&mut self, sequence: DraftContext<'_>, token: TokenId) {
        if let (Speculation::Suffix(suffix), Some(texts)) = (self.speculation, &mut self.texts) {
            let text = begun(texts, suffix, sequence);
            texts.push(text, token);
        }
    }
}

/// The text of a sequence. It begins with as much of the prompt as is looked up: so the samples of a prompt find each
/// other's beginnings, and prompts take no memory.
fn begun(texts: &mut RecentTexts, suffix: SuffixDecoding, sequence: DraftContext<'_>) -> RecordedText {
    let DraftContext { text, salt, token_ids } = sequence;
    *text.get_or_insert_with(|| {
        let last = token_ids.len().saturating_sub(suffix.longest_lookup());
        texts.begin(salt, &token_ids[last..])
    })
}
