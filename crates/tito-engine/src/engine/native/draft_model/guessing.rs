//! How a draft model guesses: all sequences of a step together, a token of each in turn.

use parking_lot::Mutex;

use super::DraftModel;
use crate::{
    TokenId,
    engine::native::{
        backend::{Backend, Batch, Span},
        model::Model,
        scheduler::SequenceId,
    },
    sampling::SequenceSampler,
};

/// Tokens of a sequence that may be computed at any time, because they are few.
const FEW: usize = 8;
/// What is spent on the text of a sequence before anything is guessed, for each token that was sampled, in rows of the
/// model: answers that end soon cost nothing, and the others no more than this share.
const SPENT_PER_TOKEN: f64 = 2.0;

/// A sequence of which some tokens are to be guessed.
pub(in crate::engine::native) struct Ask<'a> {
    pub(in crate::engine::native) id: SequenceId,
    /// Prompt and output.
    pub(in crate::engine::native) token_ids: &'a [TokenId],
    /// How much of them is the prompt.
    pub(in crate::engine::native) prompt_len: usize,
    /// What is drafted already, because a structured output forces it: guesses come after that.
    pub(in crate::engine::native) forced: &'a [TokenId],
    /// The most tokens to guess, at least 1.
    pub(in crate::engine::native) most: usize,
    /// What would sample them.
    pub(in crate::engine::native) sampler: &'a Mutex<SequenceSampler>,
}

/// What was guessed.
#[derive(Debug, Default)]
pub(in crate::engine::native) struct Guesses {
    /// What comes after what is forced; none is empty.
    pub(in crate::engine::native) drafts: Vec<(SequenceId, Vec<TokenId>)>,
    /// Whether texts were read that had not been followed before, which takes longer than guessing.
    pub(in crate::engine::native) caught_up: bool,
}

/// A sequence of which tokens are being guessed.
struct Guessed<'a> {
    ask: &'a Ask<'a>,
    /// The most guesses, with what is forced.
    most: usize,
    /// The position of the tokens to compute next.
    first: usize,
    next: Vec<TokenId>,
    /// What is forced comes first.
    guesses: Vec<TokenId>,
}

impl Guessed<'_> {
    /// Whether the logits of the next tokens give a guess: they do not if more of the text is to be computed.
    fn guesses(&self) -> bool {
        self.first + self.next.len() >= self.ask.token_ids.len()
    }
}

impl<B: Backend> DraftModel<B> {
    /// Guesses tokens of these sequences, of each as many as it asks for or fewer. Where not much else is to be done, it
    /// `catches_up` on texts of which it knows nothing yet, in pieces. The threads of `model` do the work.
    pub(in crate::engine::native) fn guess(
        &mut self,
        asks: &[Ask<'_>],
        model: &mut Model<B>,
        catches_up: bool,
    ) -> Guesses {
        if !self.has_cache || self.model.lacking() > 0 {
            return Guesses::default();
        }
        let mut budget = self.step_tokens;
        let mut going: Vec<Guessed<'_>> =
            asks.iter().filter_map(|ask| self.begin(ask, catches_up, &mut budget)).collect();
        let caught_up = going.iter().any(|one| one.next.len() - one.guesses.len() > FEW);
        let mut guessed = Vec::new();
        let vocab_size = model.shape().vocab_size;
        model.swap_threads(self.model.backend_mut());
        while !going.is_empty() {
            let (ended, others): (Vec<_>, _) =
                self.step(going, vocab_size).into_iter().partition(|one| one.next.is_empty());
            guessed.extend(ended);
            going = others;
        }
        model.swap_threads(self.model.backend_mut());
        let done = guessed.into_iter().map(|Guessed { ask, mut guesses, .. }| {
            ask.sampler.lock().forget_guesses();
            guesses.drain(..ask.forced.len().min(guesses.len()));
            (ask.id, guesses)
        });
        Guesses { drafts: done.filter(|(_, guesses)| !guesses.is_empty()).collect(), caught_up }
    }

    /// What is to be computed of a sequence first; `None` if nothing is, now or ever.
    fn begin<'a>(&mut self, ask: &'a Ask<'a>, catches_up: bool, budget: &mut usize) -> Option<Guessed<'a>> {
        let Ask { token_ids: text, forced, .. } = *ask;
        // The last guess is not computed.
        let most = (forced.len() + ask.most).min((self.settings.max_model_len + 1).saturating_sub(text.len()));
        if most <= forced.len() {
            return None;
        }
        let first = self.sequences.computed(ask.id, text)?;
        let left = &text[first..];
        if left.len() > FEW && !(catches_up && self.is_worth_catching_up(left.len(), text.len() - ask.prompt_len)) {
            return None;
        }
        let known = self.model.shape().vocab_size;
        if left.iter().any(|id| *id as usize >= known) {
            self.sequences.lose(ask.id);
            return None;
        }
        let next = left[..left.len().min(*budget)].to_vec();
        let mut guessed = Guessed { ask, most, first, next, guesses: Vec::new() };
        let ahead = if guessed.guesses() { most - 1 } else { 0 };
        if guessed.next.is_empty() || !self.sequences.reserve(ask.id, first + guessed.next.len() + ahead) {
            return None;
        }
        if ahead > 0 && !forced.is_empty() {
            let is_known = forced.iter().all(|id| (*id as usize) < known);
            if !is_known || left.len() + forced.len() > *budget || !guess_forced(ask) {
                return None;
            }
            guessed.next.extend(forced);
            guessed.guesses.extend(forced);
        }
        *budget -= guessed.next.len();
        Some(guessed)
    }

    #[expect(clippy::cast_precision_loss, reason = "no text has 2^52 tokens")]
    fn is_worth_catching_up(&self, left: usize, sampled: usize) -> bool {
        left as f64 * self.cost <= sampled as f64 * SPENT_PER_TOKEN
    }

    /// Computes the next tokens of all of these sequences, and guesses one of each whose text is computed.
    fn step<'a>(&mut self, mut going: Vec<Guessed<'a>>, vocab_size: usize) -> Vec<Guessed<'a>> {
        let mut batch = Batch::default();
        let mut guessing = Vec::new();
        for (number, one) in going.iter().enumerate() {
            let (first_row, tokens) = (batch.token_ids.len(), one.next.len());
            batch.token_ids.extend(&one.next);
            if one.guesses() {
                batch.logit_rows.push(batch.token_ids.len() - 1);
                guessing.push((number, one.ask, one.most - one.guesses.len(), Mutex::new(Vec::new())));
            }
            batch.spans.push(Span {
                first_row,
                tokens,
                first_position: one.first,
                blocks: self.sequences.blocks(one.ask.id, one.first + tokens),
                slot: 0,
                adapter: None,
                snapshots: Vec::new(),
            });
        }
        let finite = self.model.forward(&batch, &|row: usize, logits: &mut [f32]| {
            let (_, ask, most, found) = &guessing[row];
            // Tokens that the model does not have are none of its samples.
            let known = logits.len().min(vocab_size);
            *found.lock() = ask.sampler.lock().guess(&mut logits[..known], *most);
        });
        let mut found = vec![Vec::new(); going.len()];
        for (number, _, _, guesses) in guessing {
            found[number] = guesses.into_inner();
        }
        for ((one, finite), found) in going.iter_mut().zip(finite).zip(found) {
            self.take(one, finite, found, vocab_size);
        }
        going
    }

    /// Takes note of what was computed of a sequence, and of the guess that it gave, with what a structured output forces after
    /// that. Without anything to compute next, the sequence is done.
    fn take(&mut self, one: &mut Guessed<'_>, finite: bool, found: Vec<TokenId>, vocab_size: usize) {
        let id = one.ask.id;
        let computed = std::mem::take(&mut one.next);
        if !finite {
            self.sequences.lose(id);
            return;
        }
        let text = one.ask.token_ids.len().saturating_sub(one.first).min(computed.len());
        if text > 0 {
            self.sequences.advance(id, one.first + text);
        }
        for guess in &computed[text..] {
            self.sequences.guess(id, *guess);
        }
        one.first += computed.len();
        // What is forced may be a token that one of the models does not have.
        let has = |vocab_size: usize| found.iter().take_while(|id| (**id as usize) < vocab_size).count();
        let (known, computable) = (has(vocab_size), has(self.model.shape().vocab_size));
        one.guesses.extend(&found[..known]);
        if one.guesses.len() < one.most && known == found.len() && computable == found.len() {
            one.next = found;
        }
    }
}

/// Has a sampler take what is forced for guessed; `false` if nothing is to be guessed after it.
fn guess_forced(ask: &Ask<'_>) -> bool {
    let mut sampler = ask.sampler.lock();
    let follows = sampler.guess_forced(ask.forced);
    if !follows {
        sampler.forget_guesses();
    }
    follows
}
