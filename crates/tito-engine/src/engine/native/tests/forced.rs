//! Drafts of what a structured output leaves no choice about.

use super::{
    speculation::{NGRAM, change_no_bit, count, counted, counts_of, repetitive},
    *,
};
use crate::sampling::{ConstraintState, Foresight, SampleError, SharedConstraint, TokenConstraint, TokenMask};

/// How many tokens of a record there is no choice about.
const FIXED: usize = 6;

/// Records: one of three tokens, and then as many that there is no choice about. Its foresight says other tokens after
/// every `lies`-th record, and gives up after `gives_up` tokens.
#[derive(Debug, Clone, Copy)]
struct Records {
    lies: usize,
    gives_up: usize,
    place: usize,
}

impl Records {
    fn fixed(place: usize) -> TokenId {
        TokenId::try_from(place * 31 % 90).unwrap()
    }

    fn is_free(self) -> bool {
        self.place.is_multiple_of(FIXED + 1)
    }
}

impl TokenConstraint for Records {
    fn start(&self) -> Box<dyn ConstraintState> {
        Box::new(*self)
    }

    fn foresight(&self) -> Option<Box<dyn Foresight>> {
        Some(Box::new(*self))
    }
}

impl ConstraintState for Records {
    fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
        mask.clear();
        let choices = if self.is_free() { 3 } else { 1 };
        (0..choices).for_each(|step| mask.allow(Self::fixed(self.place) + step));
        Ok(false)
    }

    fn accept(&mut self, _: TokenId) -> Result<(), SampleError> {
        self.place += 1;
        Ok(())
    }
}

impl Foresight for Records {
    fn follow(&mut self, _: TokenId) -> bool {
        self.place += 1;
        self.place < self.gives_up
    }

    fn forced(&mut self) -> Vec<TokenId> {
        let record = self.place / (FIXED + 1);
        let lie = TokenId::from((record + 1).is_multiple_of(self.lies));
        let end = (record + 1) * (FIXED + 1);
        if self.is_free() { Vec::new() } else { (self.place..end).map(|place| Self::fixed(place) + lie).collect() }
    }
}

/// A request whose output keeps to a constraint.
pub(super) fn constrained(request: SequenceRequest, constraint: impl TokenConstraint + 'static) -> SequenceRequest {
    let sampling = SamplingParams {
        constraint: Some(SharedConstraint::new(Arc::new(constraint)).never_long()),
        // Both together might leave nothing.
        allowed_token_ids: None,
        stop_token_ids: Vec::new(),
        min_tokens: 0,
        ..SamplingParams::clone(&request.sampling)
    };
    SequenceRequest { sampling: sampling.valid(), ..request }
}

#[tokio::test]
async fn forced_drafts_change_no_bit_right_or_wrong() {
    let requests = repetitive(if cfg!(unoptimised) { 12 } else { 200 }).into_iter().enumerate();
    let kinds = [(usize::MAX, usize::MAX), (2, usize::MAX), (3, 20), (1, 40)];
    let requests: Vec<SequenceRequest> = requests
        .map(|(number, request)| match kinds.get(number % 5) {
            Some(&(lies, gives_up)) => constrained(request, Records { lies, gives_up, place: 0 }),
            None => request,
        })
        .collect();
    change_no_bit(NGRAM, &requests).await;
}

#[tokio::test]
async fn a_record_takes_two_steps() {
    let records = Records { lies: usize::MAX, gives_up: usize::MAX, place: 0 };
    // A sequence's own text makes no draft: no two tokens of it occur twice.
    let ngram = NgramLookup { num_speculative_tokens: 8, prompt_lookup_max: 5, prompt_lookup_min: 5, timed: false };
    let drafting = Drafting::Required(Speculation::Ngram(ngram));
    let (engine, metrics) = counted(&NativeSettings { drafting, ..settings("llama") });
    let sampling = SamplingParams { ignore_eos: true, ..params(10 * (FIXED + 1)) };
    let answer = collected(engine.generate(constrained(request(&[7; 8], sampling), records))).await;
    assert_eq!(answer.1.len(), 10 * (FIXED + 1));
    let [drafts, tokens, accepted] =
        ["num_drafts", "num_draft_tokens", "num_accepted_tokens"].map(|name| count(&metrics, name));
    // The first token, which is free, is sampled with the prompt; the last one of all is never a draft.
    let forced = 10 * FIXED as u64 - 1;
    assert_eq!((drafts, tokens, accepted), (10, forced, forced));
}

/// The same eight tokens over and over, of which it says the first four beforehand.
#[derive(Debug, Clone, Copy)]
struct Refrain(usize);

impl Refrain {
    fn token(place: usize) -> TokenId {
        TokenId::try_from(place % 8 * 11).unwrap()
    }
}

impl TokenConstraint for Refrain {
    fn start(&self) -> Box<dyn ConstraintState> {
        Box::new(*self)
    }

    fn foresight(&self) -> Option<Box<dyn Foresight>> {
        Some(Box::new(*self))
    }
}

impl ConstraintState for Refrain {
    fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
        mask.clear();
        mask.allow(Self::token(self.0));
        Ok(false)
    }

    fn accept(&mut self, _: TokenId) -> Result<(), SampleError> {
        self.0 += 1;
        Ok(())
    }
}

impl Foresight for Refrain {
    fn follow(&mut self, _: TokenId) -> bool {
        self.0 += 1;
        true
    }

    fn forced(&mut self) -> Vec<TokenId> {
        (self.0 % 8..4).map(Self::token).collect()
    }
}

#[tokio::test]
async fn texts_go_on_after_what_is_forced_in_the_same_draft() {
    let ngram = NgramLookup { num_speculative_tokens: 15, prompt_lookup_max: 3, prompt_lookup_min: 1, timed: false };
    let drafting = Drafting::Required(Speculation::Ngram(ngram));
    let plain = collected(engine(&settings("llama")).generate(refrain(160))).await;
    let (engine, metrics) = counted(&NativeSettings { drafting, ..settings("llama") });
    assert_eq!(bits(&collected(engine.generate(refrain(160))).await), bits(&plain));
    let [drafts, tokens, accepted] = counts_of(&metrics);
    // Without texts after what is forced, there would be two drafts for eight tokens.
    assert!(drafts < 25 && accepted == tokens && accepted + drafts > 150, "{drafts} drafts, {accepted} of {tokens}");
}

fn refrain(tokens: usize) -> SequenceRequest {
    constrained(request(&[95; 4], SamplingParams { ignore_eos: true, ..params(tokens) }), Refrain(0))
}
