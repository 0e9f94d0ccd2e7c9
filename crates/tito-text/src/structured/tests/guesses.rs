//! Guesses and drafts under a grammar: they follow it, and change nothing of what is sampled.

use super::{forced::constraints, *};
use crate::{
    sampling::Step,
    structured::{ReasoningEnd, after_reasoning},
};

/// The most tokens that are guessed at a time.
const MOST: usize = 6;

/// The logits of a position: they differ from one to the next, and long tokens are likelier, as models spell.
fn logits(model: &Model, position: usize) -> Vec<f32> {
    let of = |id: usize| {
        let id = TokenId::try_from(id).unwrap();
        let length = model.tokenizer.token_bytes(id).map_or(0, |bytes| bytes.len().min(20));
        let noise = (id as usize * 7_919 + position * 104_729) % 1_009;
        f32::from(u16::try_from(noise).unwrap()) / 200.0 + 2.0 * f32::from(u16::try_from(length).unwrap())
    };
    (0..model.tokenizer.vocab_size()).map(of).collect()
}

fn sampler(constraint: &SharedConstraint, seed: u64) -> SequenceSampler {
    let params = SamplingParams {
        constraint: Some(constraint.clone()),
        eos_token_id: Some(IM_END),
        seed: Some(seed),
        max_tokens: 60,
        presence_penalty: 0.2,
        ..SamplingParams::default()
    };
    SequenceSampler::new(params.valid(), Arc::new([]))
}

/// Guesses from the logits that come.
fn guessed(model: &Model, sampler: &mut SequenceSampler, position: usize) -> Vec<TokenId> {
    let mut guesses = Vec::new();
    while guesses.len() < MOST {
        let more = sampler.guess(&mut logits(model, position + guesses.len()), MOST - guesses.len());
        if more.is_empty() {
            break;
        }
        guesses.extend(more);
    }
    sampler.forget_guesses();
    guesses
}

/// How many tokens were guessed, and how many of these were sampled, where every position but the first is guessed at.
fn counts(model: &Model, constraint: &SharedConstraint, seed: u64, foresees: bool) -> [usize; 2] {
    let (mut plain, mut guessing) = (sampler(constraint, seed), sampler(constraint, seed));
    if foresees {
        guessing = guessing.foreseeing();
    }
    let (mut ids, mut found) = (Vec::new(), Vec::new());
    loop {
        let position = ids.len();
        let [expected, step]: [Step; 2] =
            [&mut plain, &mut guessing].map(|sampler| sampler.step(&mut logits(model, position)).unwrap());
        assert_eq!((&step.token, step.finish), (&expected.token, expected.finish), "guesses change nothing");
        ids.push(step.token.id);
        if step.finish.is_some() {
            break;
        }
        found.push((position + 1, guessed(model, &mut guessing, position + 1)));
    }
    let mut counts = [0; 2];
    for (position, guesses) in found {
        let agreeing = guesses.iter().zip(&ids[position..]).take_while(|(guess, id)| guess == id).count();
        counts[0] += guesses.len();
        counts[1] += agreeing;
        if foresees {
            let text: Vec<TokenId> = ids[..position].iter().chain(&guesses).copied().collect();
            let mut state = constraint.foresight().unwrap();
            assert!(text.iter().all(|id| state.follow(*id)), "{guesses:?} after {:?}", &ids[..position]);
        }
    }
    counts
}

#[test]
fn guesses_that_follow_a_grammar_are_what_is_sampled() {
    let model = Model::new();
    let person = schema(json!({
        "type": "object", "required": ["name", "age", "tags"],
        "properties": {
            "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3}
        }
    }));
    let mut all = [[0; 2]; 2];
    for constraint in constraints().into_iter().chain([person]) {
        let compiled = model.compile(&constraint).never_long();
        for seed in 0..4 {
            for (sums, foresees) in all.iter_mut().zip([false, true]) {
                let [guessed, right] = counts(&model, &compiled, seed, foresees);
                sums[0] += guessed;
                sums[1] += right;
            }
        }
    }
    println!("guessed and right without the grammar, and with it: {all:?}");
    let [[before, right_before], [after, right]] = all;
    assert!(before > 500 && right_before * 5 < before, "{all:?}");
    assert!(after > 500 && right * 10 > after * 9, "{all:?}");
}

#[test]
fn drafts_end_where_a_grammar_refuses_them_or_go_on_as_it_forces() {
    let model = Model::new();
    let ids = |text: &str| text.bytes().map(|byte| model.bytes[&byte]).collect::<Vec<_>>();
    let text = |ids: &[TokenId]| model.tokenizer.decode(ids, false).unwrap();
    let choice = |choices: &[&str]| Constraint::Choice(choices.iter().map(|&choice| choice.to_owned()).collect());
    let compiled = model.compile(&choice(&["abcd then end", "abxy"])).never_long();
    let mut sampler = sampler(&compiled, 1).foreseeing();
    assert_eq!(sampler.guided(&ids("bc")), None, "nothing is known before the first token");
    let mut only_a = vec![0.0; model.tokenizer.vocab_size()];
    only_a[model.bytes[&b'a'] as usize] = 90.0;
    assert_eq!(sampler.step(&mut only_a).unwrap().token.id, model.bytes[&b'a']);
    for right in ["b", "bc", "bcd then", "bxy"] {
        assert_eq!(sampler.guided(&ids(right)), None, "{right}");
    }
    let guided = |sampler: &mut SequenceSampler, draft: &[TokenId]| text(&sampler.guided(draft).unwrap());
    assert_eq!(guided(&mut sampler, &ids("bz")), "b", "there is a choice");
    assert_eq!(guided(&mut sampler, &ids("q")), "b", "what is forced comes instead");
    assert!("bcd then end".starts_with(&guided(&mut sampler, &ids("bcdzz"))), "it is not longer");
    assert!(guided(&mut sampler, &ids("bczzzz")).starts_with("bcd t"));
    assert_eq!(guided(&mut sampler, &[&ids("b")[..], &[TokenId::MAX]].concat()), "b", "no such token");
    assert!(sampler.step(&mut vec![0.0; only_a.len()]).is_ok(), "the sampler is where it was");
}

#[test]
fn drafts_of_thoughts_are_free_and_what_follows_them_is_not() {
    let model = Model::new();
    let end = model.bytes[&b'!'];
    let answer = Constraint::Choice(vec!["yes".to_owned(), "no".to_owned()]);
    let ids = |text: &str| text.bytes().map(|byte| model.bytes[&byte]).collect::<Vec<_>>();
    for call in [None, Some(model.bytes[&b'n'])] {
        let compiled =
            after_reasoning(model.compile(&answer), ReasoningEnd { end, call }, model.tokenizer.vocab_size());
        let mut foresight = compiled.foresight().unwrap();
        let mut accepted = |text: &str| foresight.accepts(&ids(text));
        assert_eq!(["abc", "ab!", "ab!yes", "ab!yet", "!q"].map(&mut accepted), [3, 3, 6, 5, 1]);
        assert_eq!(accepted("anoz"), if call.is_some() { 3 } else { 4 });
        let mut mask = TokenMask::default();
        assert_eq!(foresight.allow(&mut mask), None);
        let mut ahead = foresight.ahead().unwrap();
        assert!(ahead.follow(end));
        assert_eq!(ahead.allow(&mut mask), Some(false));
        assert!(mask.allows(model.bytes[&b'y']) && !mask.allows(model.bytes[&b'q']));
        assert_eq!(foresight.allow(&mut mask), None, "it stays where it was");
    }
}
