//! What drafts: one of several ways, and what it keeps.

use super::{
    confidence::{Confidence, Reputation, least_probability, least_probability_by_model},
    ngram::NgramLookup,
    suffix::SuffixDecoding,
    texts::{RecentTexts, RecordedText},
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
    /// loaded. Drafts are as long as this makes them worth it.
    pub cost: Option<f64>,
}

impl ModelDrafts {
    /// Whether a draft of another model can be worth it at this cost, at the best.
    pub fn can_be_worth(cost: f64) -> bool {
        Confidence::in_estimates().worth_at(least_probability_by_model(1, 1, cost), 1) > 0
    }

    /// How many tokens of at most `most` are worth their rows, in a step that has `rows` without drafts, and `drafting`
    /// sequences that may have one.
    pub(crate) fn worth(self, confidence: Confidence, most: usize, rows: usize, drafting: usize) -> usize {
        // One that was not measured is not asked.
        let cost = self.cost.unwrap_or(f64::INFINITY);
        confidence.worth_at(least_probability_by_model(rows, drafting, cost), most)
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

/// Drafts for all sequences of an engine.
#[derive(Debug)]
pub(crate) struct Drafter {
    speculation: Speculation,
    texts: Option<RecentTexts>,
    /// What is expected of another model that drafts.
    reputation: Reputation,
}

impl Speculation {
    /// The same, with what was measured of another model where nothing is given.
    pub(crate) fn measured(self, cost: Option<f64>) -> Self {
        match self {
            Self::Model(drafts) => Self::Model(ModelDrafts { cost: drafts.cost.or(cost), ..drafts }),
            Self::Ngram(_) | Self::Suffix(_) => self,
        }
    }
}

impl Drafter {
    pub(crate) fn new(speculation: Speculation) -> Self {
        let most_texts = match speculation {
            Speculation::Ngram(_) | Speculation::Model(_) => 0,
            Speculation::Suffix(suffix) => suffix.most_texts(),
        };
        let texts = (most_texts > 0).then(|| RecentTexts::new(most_texts));
        Self { speculation, texts, reputation: Reputation::default() }
    }

    /// The most tokens of a draft.
    pub(crate) fn longest_draft(&self) -> usize {
        match self.speculation {
            Speculation::Ngram(ngram) => ngram.num_speculative_tokens,
            Speculation::Suffix(suffix) => suffix.num_speculative_tokens,
            Speculation::Model(drafts) => drafts.num_speculative_tokens,
        }
    }

    /// How another model drafts, if one does.
    pub(crate) fn by_model(&self) -> Option<ModelDrafts> {
        match self.speculation {
            Speculation::Model(drafts) => Some(drafts),
            Speculation::Ngram(_) | Speculation::Suffix(_) => None,
        }
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
