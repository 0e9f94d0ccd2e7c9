//! The experts that requests gave are kept beside all else that a record has.

use super::*;

/// Experts of so many tokens, two mixtures with two experts each; a model chose those of every third token.
fn given(tokens: u16) -> GivenExperts {
    let of_token = |token: u16| {
        let number =
            |at: u16| if token.is_multiple_of(3) { GivenExperts::CHOSEN_BY_THE_MODEL } else { token % 50 + at };
        [0, 1, 2, 3].map(number)
    };
    GivenExperts { mixtures: 2, per_token: 2, experts: (0..tokens).flat_map(of_token).collect() }
}

fn used() -> SamplingUsed {
    SamplingUsed::new(&crate::sampling::SamplingParams::default(), None, true)
}

/// The last turn of the only sequence.
fn last_turn(trajectories: &Trajectories) -> SequenceTurn {
    let key = keys(trajectories, &None, Unit::Leaf).pop().unwrap();
    trajectories.sequence(&key, 1000).unwrap().turns.pop().unwrap()
}

#[test]
fn experts_come_out_as_they_went_in_with_masks_and_without() {
    for length in 1..7 {
        for tokens in 0..=length {
            let trajectories = opened(&a_store(), POLICY);
            let prompt: Vec<TokenId> = (0..u32::from(length)).collect();
            let plain = generation(&prompt, &[5, 9]);
            let experts = Generation { given_experts: given(tokens), sampling: Some(used()), ..plain.clone() };
            trajectories.capture(experts).unwrap();
            let turn = last_turn(&trajectories);
            let expected = (tokens > 0).then(|| given(tokens));
            assert_eq!(trajectories.given_experts(&turn).unwrap(), expected);
            let key = keys(&trajectories, &None, Unit::Leaf).pop().unwrap();
            let sequence = trajectories.sequence(&key, 1000).unwrap();
            assert_eq!(sequence.masks.of(turn.start, turn.end), plain.masks);
            assert_eq!(turn.generation.entropies, plain.entropies);
            assert_eq!(turn.generation.ranks, plain.ranks);
            assert!(turn.generation.given_experts.is_empty(), "they are read when they are asked for");
        }
    }
}

#[test]
fn experts_that_are_none_of_the_prompt_are_refused() {
    let refused = |given_experts: GivenExperts| {
        let trajectories = opened(&a_store(), POLICY);
        let generation = Generation { given_experts, sampling: Some(used()), ..generation(&[1, 2], &[5]) };
        trajectories.capture(generation).unwrap();
        trajectories.given_experts(&last_turn(&trajectories)).unwrap_err().to_string()
    };
    for wrong in [
        given(3),
        GivenExperts { mixtures: 3, ..given(2) },
        GivenExperts { mixtures: 0, ..given(2) },
        GivenExperts { mixtures: u32::MAX, per_token: u32::MAX, ..given(1) },
    ] {
        assert!(refused(wrong.clone()).contains("experts that are none of its prompt"), "{wrong:?}");
    }
}

#[test]
fn a_record_that_is_cut_short_is_refused() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    trajectories
        .capture(Generation { given_experts: given(2), sampling: Some(used()), ..generation(&[1, 2, 3], &[5]) })
        .unwrap();
    let turn = last_turn(&trajectories);
    let id = store.ids().unwrap().remove(0);
    let written = store.read(&id).unwrap().unwrap();
    for length in 0..written.len() {
        store.write(&[], &[(&id, &written[..length])]).unwrap();
        let error = trajectories.given_experts(&turn).unwrap_err().to_string();
        assert!(error.contains("has not the length") || error.contains("has format"), "{length}: {error}");
    }
}

#[test]
fn a_conversation_keeps_the_experts_of_its_history_once() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    let tokens_of = |turn: u16| 400 * (turn + 1);
    let varied = |tokens: u16| {
        let expert = |at: u16| u16::try_from((u32::from(at).wrapping_mul(2_654_435_761) >> 20) % 64).unwrap();
        GivenExperts { mixtures: 2, per_token: 2, experts: (0..4 * tokens).map(expert).collect() }
    };
    for turn in 0..20 {
        let prompt: Vec<TokenId> = (0..u32::from(tokens_of(turn))).collect();
        let experts =
            Generation { given_experts: varied(tokens_of(turn)), sampling: Some(used()), ..generation(&prompt, &[5]) };
        trajectories.capture(experts).unwrap();
    }
    // 20 turns of 400 tokens more each, by 8 bytes: 64 kB of the last one, 672 kB if each had its own. Prompts are as many bytes
    // again in half.
    let taken = store.kept_bytes().unwrap();
    assert!(taken < 400_000, "{taken}");
}
