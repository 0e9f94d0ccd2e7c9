//! Drafts from recent texts: the same bits with them and without, and whose texts they come from.

use super::{
    recurrent,
    speculation::{Counts, change_no_bit, count, counted, repetitive},
    weights::{norm, replace},
    *,
};
use crate::{
    engine::native::{model::tests::families::Golden, plan},
    sampling::{ConstraintState, SampleError, SharedConstraint, TokenConstraint, TokenMask},
};

const SETTINGS: SuffixDecoding = SuffixDecoding {
    num_speculative_tokens: 24,
    max_tree_depth: 24,
    max_cached_requests: 50,
    max_spec_factor: 1.0,
    min_token_prob: 0.1,
    timed: false,
};
const SUFFIX: Speculation = Speculation::Suffix(SETTINGS);
/// The most right tokens that drafts have by chance, where a text is random.
const CHANCE: u64 = 6;

fn with(suffix: SuffixDecoding) -> NativeSettings {
    NativeSettings { drafting: Drafting::Required(Speculation::Suffix(suffix)), ..settings("llama") }
}

fn accepted(counts: &Counts) -> u64 {
    count(counts, "num_accepted_tokens")
}

/// A text of so many tokens that hardly repeats itself, the same each time for a `number`.
fn random_text(number: u32, tokens: usize) -> SequenceRequest {
    let prompt: Vec<TokenId> = (0..40).map(|place| (place * 29 + number * 7) % 96).collect();
    let sampling = SamplingParams { seed: Some(u64::from(number)), ignore_eos: true, ..params(tokens) };
    request(&prompt, sampling)
}

/// Leaves at each position three tokens that depend on the one before it.
#[derive(Debug, Clone, Default)]
struct Neighbours(TokenId);

impl TokenConstraint for Neighbours {
    fn start(&self) -> Box<dyn ConstraintState> {
        Box::new(self.clone())
    }
}

impl ConstraintState for Neighbours {
    fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
        mask.clear();
        (0..3).for_each(|step| mask.allow((self.0 * 5 + step * 11 + 1) % 96));
        Ok(false)
    }

    fn accept(&mut self, id: TokenId) -> Result<(), SampleError> {
        self.0 = id;
        Ok(())
    }
}

/// Groups of three samples of a prompt, some under a grammar and some with a salt.
fn groups(count: u32) -> Vec<SequenceRequest> {
    let grammar = SharedConstraint::new(Arc::new(Neighbours::default()));
    let siblings = |(group, request): (usize, SequenceRequest)| {
        let constraint = (group % 3 == 1).then(|| grammar.clone());
        let cache_salt = (group % 4 == 2).then(|| "salt".into());
        (0..3).map(move |sibling| {
            let mut sampling = SamplingParams::clone(&request.sampling);
            if constraint.is_some() {
                // Both together might leave nothing.
                sampling.allowed_token_ids = None;
            }
            // Two of them sample the same.
            let seed = Some(group as u64 * 2 + sibling / 2);
            let sampling = SamplingParams { seed, constraint: constraint.clone(), ..sampling };
            SequenceRequest { sampling: sampling.valid(), cache_salt: cache_salt.clone(), ..request.clone() }
        })
    };
    repetitive(count).into_iter().enumerate().flat_map(siblings).collect()
}

#[tokio::test]
async fn drafts_of_siblings_change_no_bit_in_company_in_pieces_and_under_preemption() {
    change_no_bit(SUFFIX, &groups(if cfg!(unoptimised) { 8 } else { 300 })).await;
}

#[tokio::test]
async fn long_and_unlikely_drafts_change_no_bit() {
    let eager = SuffixDecoding {
        max_tree_depth: 128,
        max_spec_factor: 8.0,
        min_token_prob: 0.0,
        max_cached_requests: 3,
        ..SETTINGS
    };
    change_no_bit(Speculation::Suffix(eager), &groups(if cfg!(unoptimised) { 3 } else { 100 })).await;
}

#[tokio::test]
async fn a_text_that_was_sampled_before_is_drafted_from_it() {
    let expected = collected(engine(&settings("llama")).generate(random_text(1, 60))).await;
    for (max_cached_requests, drafted) in [(50, 30..60), (0, 0..CHANCE)] {
        let (engine, metrics) = counted(&with(SuffixDecoding { max_cached_requests, ..SETTINGS }));
        for _ in 0..2 {
            assert_eq!(bits(&collected(engine.generate(random_text(1, 60))).await), bits(&expected));
        }
        let accepted = accepted(&metrics);
        assert!(drafted.contains(&accepted), "{accepted} tokens with {max_cached_requests} texts");
    }
}

#[tokio::test]
async fn a_draft_that_ends_its_text_is_accepted_whole() {
    let (engine, metrics) = counted(&with(SETTINGS));
    let text = collected(engine.generate(random_text(1, 60))).await;
    let ids: Vec<TokenId> = text.1.iter().map(|token| token.id).collect();
    let last = (20..60).find(|last| !ids[..*last].contains(&ids[*last])).expect("a token that comes late");
    let mut again = random_text(1, 60);
    let ends = SamplingParams { stop_token_ids: vec![ids[last]], ..SamplingParams::clone(&again.sampling) };
    again.sampling = ends.valid();
    let gate = engine.step_gate();
    gate.shut().await.unwrap();
    let (stream, before, mut steps) = (engine.generate(again), accepted(&metrics), 0);
    while steps == 0 || gate.sequences().await.unwrap() > 0 {
        gate.step().await.unwrap();
        steps += 1;
    }
    gate.open().await.unwrap();
    assert_eq!(collected(stream).await.2, FinishReason::StopToken(ids[last]));
    // Each step has a token of its own beside its draft, but the one that ended with its draft.
    let sampled = last as u64 + 1;
    assert_eq!(accepted(&metrics) - before, sampled - (steps - 1), "{steps} steps");
}

#[tokio::test]
async fn siblings_that_run_together_draft_from_each_other() {
    let (engine, metrics) = counted(&with(SETTINGS));
    let gate = engine.step_gate();
    gate.shut().await.unwrap();
    let first = engine.generate(random_text(1, 80));
    for _ in 0..30 {
        gate.step().await.unwrap();
    }
    assert!(accepted(&metrics) < CHANCE);
    let second = engine.generate(random_text(1, 80));
    for _ in 0..12 {
        gate.step().await.unwrap();
    }
    assert_eq!(gate.sequences().await.unwrap(), 2, "both run");
    let accepted = accepted(&metrics);
    assert!(accepted > 12, "{accepted} tokens of 12 steps");
    gate.open().await.unwrap();
    let (first, second) = (collected(first).await, collected(second).await);
    assert_eq!(bits(&first), bits(&second));
}

#[tokio::test]
async fn drafts_come_only_from_texts_of_the_same_salt() {
    let salted = |salt: Option<&str>| SequenceRequest { cache_salt: salt.map(Into::into), ..random_text(1, 60) };
    let (engine, metrics) = counted(&with(SETTINGS));
    for salt in [None, Some("a"), Some("b"), Some("")] {
        collected(engine.generate(salted(salt))).await;
    }
    let of_others = accepted(&metrics);
    assert!(of_others < 4 * CHANCE, "{of_others} tokens");
    for salt in [None, Some("a"), Some("b"), Some("")] {
        let before = accepted(&metrics);
        collected(engine.generate(salted(salt))).await;
        let drafted = accepted(&metrics) - before;
        assert!(drafted > 30, "{drafted} tokens of {salt:?}");
    }
}

#[tokio::test]
async fn the_oldest_text_is_forgotten_first() {
    let (engine, metrics) = counted(&with(SuffixDecoding { max_cached_requests: 2, ..SETTINGS }));
    for number in [1, 2, 3] {
        collected(engine.generate(random_text(number, 60))).await;
    }
    let before = accepted(&metrics);
    collected(engine.generate(random_text(1, 60))).await;
    let forgotten = accepted(&metrics) - before;
    assert!(forgotten < CHANCE, "{forgotten} tokens");
    // 3 and 1 are there now, and a text that is sampled takes the place of the oldest one when it begins.
    let before = accepted(&metrics);
    collected(engine.generate(random_text(1, 60))).await;
    assert!(accepted(&metrics) - before > 30);
}

#[tokio::test]
async fn texts_of_earlier_weights_are_drafted_from_and_change_no_bit() {
    let (engine, metrics) = counted(&with(SETTINGS));
    let plain = super::engine(&settings("llama"));
    collected(engine.generate(random_text(1, 60))).await;
    for engine in [&engine, &plain] {
        // Barely another distribution, so that texts begin alike.
        replace(engine, norm(1.01)).await.unwrap();
    }
    let before = count(&metrics, "num_draft_tokens");
    let (found, expected) = (engine.generate(random_text(1, 60)), plain.generate(random_text(1, 60)));
    assert_eq!(bits(&collected(found).await), bits(&collected(expected).await));
    assert!(count(&metrics, "num_draft_tokens") > before);
}

#[test]
fn models_with_recurrent_states_are_refused() {
    let golden = Golden::named("families/qwen3_next_plain");
    let hybrid = NativeSettings { drafting: Drafting::Required(SUFFIX), ..recurrent::settings_of(&golden) };
    let shape = ModelShape::read(&hybrid.config).unwrap();
    assert!(plan::speculation(&hybrid, &shape).unwrap_err().to_string().contains("recurrent states"));
}
