//! Adapters of the text beside images, as those who ask for them see them.

use super::{
    super::*,
    adapters::{with, with_slots},
    images::requests,
    recurrent::{self, hybrid, settings_of},
    *,
};
use crate::engine::{Adapter, native::model::tests::adapters::Adapted};

/// One of each family, and the blocks and states of a small cache.
const MODELS: [(&str, [usize; 2]); 7] = [
    ("gemma3_plain", [8, 0]),
    ("internvl_plain", [8, 0]),
    ("mistral3_plain", [8, 0]),
    ("qwen2_5_vl_plain", [8, 0]),
    ("qwen3_5_plain", [12, 6]),
    ("qwen3_vl_moe_plain", [8, 0]),
    ("qwen3_vl_plain", [8, 0]),
];

fn adapters(adapted: &Adapted) -> Vec<Arc<Adapter>> {
    (0..3).map(|seed| Adapter::new(&format!("a{seed}"), 1, adapted.adapter(Some(seed)))).collect()
}

#[tokio::test]
async fn company_of_other_adapters_and_images_cache_pieces_and_preemption_change_no_bit() {
    for (name, places) in MODELS.into_iter().step_by(if cfg!(unoptimised) { 2 } else { 1 }) {
        let adapted = Adapted::beside_images(name);
        let adapters = adapters(&adapted);
        // Prompts that begin with the same images are asked of several adapters and of the base.
        let all = requests(&adapted.golden).into_iter().enumerate();
        let asked = all.map(|(number, request)| with(adapters.get((number + number / 4) % 4), request));
        let asked: Vec<SequenceRequest> = asked.collect();
        let few = recurrent::bytes(&adapted.golden, places[0], places[1]);
        let companies = [(64, 512, 1, 64 << 20), (8, 16, 2, 64 << 20), (5, 33, 3, few)];
        for (company, max_loras) in companies.into_iter().zip([3, 2, 1]) {
            let base = with_slots(max_loras, settings_of(&adapted.golden));
            compare_in(&[company], &base, &asked, |settings| hybrid(&adapted.golden, settings)).await;
        }
    }
}

#[tokio::test]
async fn what_is_cached_of_a_prompt_with_images_is_found_by_the_same_adapter_only() {
    for (name, _) in MODELS {
        let adapted = Adapted::beside_images(name);
        let adapters = adapters(&adapted);
        let engine = hybrid(&adapted.golden, &with_slots(2, settings_of(&adapted.golden)));
        let all = requests(&adapted.golden);
        // Over two blocks, with an image.
        let prompt = all.iter().find(|request| request.prompt_token_ids.len() > 68 && !request.images.is_empty());
        let prompt = SequenceRequest { prompt_logprobs: None, ..prompt.unwrap().clone() };
        let again = Adapter::new("a0", 2, adapters[0].weights().clone());
        let everyone = [None, Some(&adapters[0]), Some(&adapters[1]), Some(&again)];
        let mut anew = Vec::new();
        for adapter in everyone {
            let output = prompt_output(&engine, with(adapter, prompt.clone())).await;
            assert_eq!(output.cached_tokens, 0, "{name}: {adapter:?}");
        }
        for adapter in everyone {
            let output = prompt_output(&engine, with(adapter, prompt.clone())).await;
            assert!(output.cached_tokens >= 32, "{name}: {} for {adapter:?}", output.cached_tokens);
            anew.push(bits(&collected(engine.generate(with(adapter, prompt.clone()))).await));
        }
        for (adapter, cached) in everyone.into_iter().zip(&anew) {
            assert!(engine.reset_prefix_cache(false).await.unwrap());
            assert!(bits(&collected(engine.generate(with(adapter, prompt.clone()))).await) == *cached, "{name}");
        }
        assert!(anew[1] == anew[3] && anew[0] != anew[1] && anew[1] != anew[2] && anew[0] != anew[2], "{name}");
    }
}
