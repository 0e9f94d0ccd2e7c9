//! Drafts and guesses that follow a structured output: the same bits with them and without, and more of them right.

use super::{
    draft_model::drafted_by,
    forced::constrained,
    speculation::{NGRAM, counted, counts_of, no_bit_changes, repetitive},
    *,
};
use crate::sampling::{ConstraintState, Foresight, SampleError, SharedConstraint, TokenConstraint, TokenMask};

/// Leaves four tokens at most places, and one at every fourth, all of which depend on the place.
#[derive(Debug, Clone, Copy)]
struct Narrow {
    place: usize,
    /// Whether it says what there is no choice about, and guesses can follow it.
    guides: bool,
    /// Whether those that do are told something wrong now and then.
    lies: bool,
}

impl Narrow {
    const TRUE: Self = Self { place: 0, guides: true, lies: false };

    fn tokens(self) -> Vec<TokenId> {
        let first = TokenId::try_from(self.place * 5 % 24).unwrap();
        if self.place % 4 == 3 { vec![first] } else { (first..first + 4).collect() }
    }

    fn write(self, mask: &mut TokenMask) {
        mask.clear();
        self.tokens().into_iter().for_each(|id| mask.allow(id));
    }

    fn lie(self) -> Self {
        let lies = self.lies && self.place.is_multiple_of(5);
        Self { place: self.place + usize::from(lies), ..self }
    }
}

impl TokenConstraint for Narrow {
    fn start(&self) -> Box<dyn ConstraintState> {
        Box::new(*self)
    }

    fn foresight(&self) -> Option<Box<dyn Foresight>> {
        Some(Box::new(*self))
    }
}

impl ConstraintState for Narrow {
    fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
        self.write(mask);
        Ok(false)
    }

    fn accept(&mut self, _: TokenId) -> Result<(), SampleError> {
        self.place += 1;
        Ok(())
    }
}

impl Foresight for Narrow {
    fn follow(&mut self, _: TokenId) -> bool {
        self.place += 1;
        true
    }

    fn forced(&mut self) -> Vec<TokenId> {
        let tokens = self.lie().tokens();
        if self.guides && tokens.len() == 1 { tokens } else { Vec::new() }
    }

    fn accepts(&mut self, ids: &[TokenId]) -> usize {
        let fits =
            |(step, id): &(usize, &TokenId)| Self { place: self.place + step, ..*self }.lie().tokens().contains(*id);
        if self.guides { ids.iter().enumerate().take_while(fits).count() } else { ids.len() }
    }

    fn allow(&mut self, mask: &mut TokenMask) -> Option<bool> {
        self.lie().write(mask);
        Some(false)
    }

    fn ahead(&self) -> Option<Box<dyn Foresight>> {
        self.guides.then(|| Box::new(*self) as Box<dyn Foresight>)
    }
}

#[tokio::test]
async fn guided_drafts_change_no_bit_right_or_wrong() {
    let requests = repetitive(if cfg!(unoptimised) { 12 } else { 200 }).into_iter().enumerate();
    let requests: Vec<SequenceRequest> = requests
        .map(|(number, request)| match number % 4 {
            0 => constrained(request, Narrow::TRUE),
            1 => constrained(request, Narrow { lies: true, ..Narrow::TRUE }),
            2 => constrained(request, Narrow { guides: false, ..Narrow::TRUE }),
            _ => request,
        })
        .collect();
    let texts = |plain| NativeSettings { drafting: Drafting::Required(NGRAM), ..plain };
    let model = |plain: NativeSettings| {
        let kv_cache_bytes = 2 * plain.kv_cache_bytes;
        drafted_by("llama", NativeSettings { kv_cache_bytes, ..plain })
    };
    for [drafts, tokens, accepted] in
        [no_bit_changes("llama", texts, &requests).await, no_bit_changes("llama", model, &requests).await].concat()
    {
        assert!(drafts > 0 && accepted > 0 && accepted < tokens, "{drafts} drafts, {accepted} of {tokens}");
    }
}

/// How many drafts a long answer under a structured output has, of how many tokens, and how many of these are right.
async fn counts(settings: &NativeSettings, narrow: Narrow) -> [u64; 3] {
    let (engine, metrics) = counted(settings);
    // What followed a token before is often refused after it: the same tokens come at other places.
    let prompt: Vec<TokenId> = (0..28).collect();
    let sampling = SamplingParams { ignore_eos: true, ..params(200) };
    let answer = collected(engine.generate(constrained(request(&prompt, sampling), narrow))).await;
    assert_eq!(answer.1.len(), 200);
    counts_of(&metrics)
}

#[tokio::test]
async fn a_model_that_drafts_for_itself_is_right_under_a_structured_output() {
    let settings = drafted_by("llama", settings("llama"));
    let [_, unguided, right] = counts(&settings, Narrow { guides: false, ..Narrow::TRUE }).await;
    let [drafts, tokens, accepted] = counts(&settings, Narrow::TRUE).await;
    println!("right and drafted: {right} of {unguided}, guided {accepted} of {tokens} in {drafts} drafts");
    assert!(right * 2 < unguided, "{right} of {unguided}");
    // Five tokens in each draft, also in those that begin with what is forced.
    assert!(accepted == tokens && tokens > 150 && drafts < 40, "{accepted} of {tokens} in {drafts} drafts");
}

#[tokio::test]
async fn what_a_structured_output_refuses_of_a_text_is_not_computed() {
    let settings = NativeSettings { drafting: Drafting::Required(NGRAM), ..settings("llama") };
    let [_, unguided, right] = counts(&settings, Narrow { guides: false, ..Narrow::TRUE }).await;
    let [_, tokens, accepted] = counts(&settings, Narrow::TRUE).await;
    println!("right and drafted: {right} of {unguided}, guided {accepted} of {tokens}");
    assert!(accepted > right && accepted * unguided > right * tokens, "{right} of {unguided}, {accepted} of {tokens}");
}

#[tokio::test]
async fn a_slow_structured_output_is_left_alone() {
    let slow = |request: SequenceRequest| {
        let request = constrained(request, Narrow::TRUE);
        let mut sampling = SamplingParams::clone(&request.sampling);
        sampling.constraint = sampling.constraint.map(SharedConstraint::always_long);
        SequenceRequest { sampling: sampling.valid(), ..request }
    };
    let sampling = SamplingParams { ignore_eos: true, ..params(40) };
    let plain = collected(engine(&settings("llama")).generate(slow(request(&[5, 7, 4], sampling.clone())))).await;
    let engine = engine(&drafted_by("llama", settings("llama")));
    assert_eq!(bits(&collected(engine.generate(slow(request(&[5, 7, 4], sampling)))).await), bits(&plain));
}
