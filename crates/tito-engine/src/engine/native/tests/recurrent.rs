//! Models whose layers have recurrent states, as their users see them.

use super::{super::*, *};
use crate::engine::{
    Memory,
    native::{
        cpu::{CpuBackend, Precision},
        model::tests::families::Golden,
        room::MemoryNeeds,
    },
};

/// Gated delta rules with attention and experts, Mamba 2 with attention, short convolutions with attention.
const MODELS: [&str; 3] = ["families/qwen3_next_plain", "families/nemotron_h_plain", "families/lfm2_plain"];

pub(super) fn settings_of(golden: &Golden) -> NativeSettings {
    NativeSettings { config: golden.config().clone(), ..settings("llama") }
}

pub(super) fn hybrid(golden: &Golden, settings: &NativeSettings) -> NativeEngine {
    let loading = Loading {
        draft: None,
        settings,
        shape: ModelShape::read(golden.config()).unwrap(),
        weights: &golden.weights(),
        pool: Pool::new(settings.threads.unwrap()).unwrap(),
        progress: &mut |_, _| (),
    };
    NativeEngine::on_processor(loading).unwrap()
}

/// The bytes of so many blocks and slots.
pub(super) fn bytes(golden: &Golden, blocks: usize, slots: usize) -> u64 {
    let shape = ModelShape::read(golden.config()).unwrap();
    let settings = settings_of(golden);
    let processor = processor::choose(&settings, Pool::new(1).unwrap()).unwrap();
    let backend = CpuBackend::new(processor, Precision::Bf16);
    let MemoryNeeds { block_bytes, slot_bytes, .. } = memory_needs(&settings, &backend, &shape);
    (blocks * block_bytes + slots * slot_bytes) as u64
}

#[tokio::test]
async fn company_copies_of_states_and_preemption_change_no_bit() {
    for name in MODELS {
        let golden = Golden::named(name);
        let few = bytes(&golden, 12, 6);
        let companies =
            [(64, 512, 1, 64 << 20), (8, 16, 2, 64 << 20), (3, 64, 3, few), (64, 33, 2, few), (5, 128, 1, few)];
        compare_in(&companies, &settings_of(&golden), &requests(REQUESTS), |settings| hybrid(&golden, settings)).await;
    }
}

#[tokio::test]
async fn a_turn_pays_for_the_tokens_after_the_last_state_only() {
    let golden = Golden::named(MODELS[0]);
    let engine = hybrid(&golden, &settings_of(&golden));
    let prompt: Vec<TokenId> = (0..40).collect();
    let (_, sampled, _) = collected(engine.generate(request(&prompt, params(60)))).await;
    let turn: Vec<TokenId> = prompt.iter().copied().chain(sampled.iter().map(|token| token.id)).chain(50..60).collect();
    for (prompt, cached) in [(&turn, 96), (&prompt, 32)] {
        let output = prompt_output(&engine, request(prompt, params(1))).await;
        assert_eq!(output.cached_tokens, cached);
    }
    let found = bits(&collected(engine.generate(request(&turn, params(9)))).await);
    assert!(engine.reset_prefix_cache(false).await.unwrap());
    assert_eq!(bits(&collected(engine.generate(request(&turn, params(9)))).await), found);
}

#[tokio::test]
async fn a_state_that_is_not_finite_spoils_no_other() {
    // The embeddings of the third are its head too, so that nothing of it would be finite.
    for name in &MODELS[..2] {
        let golden = Golden::named(name);
        let engine = hybrid(&golden, &NativeSettings { max_num_batched_tokens: 24, ..settings_of(&golden) });
        break_some(&engine).await;
    }
}

#[tokio::test]
async fn states_whose_memory_was_given_back_are_computed_anew() {
    let golden = Golden::named(MODELS[0]);
    let engine = hybrid(&golden, &settings_of(&golden));
    let asked = || request(&(0..90).collect::<Vec<_>>(), params(20));
    let expected = bits(&collected(engine.generate(asked())).await);
    engine.discard(Memory::KvCache).await.unwrap();
    engine.restore(Memory::KvCache).await.unwrap();
    assert_eq!(prompt_output(&engine, asked()).await.cached_tokens, 0);
    assert_eq!(bits(&collected(engine.generate(asked())).await), expected);
}
