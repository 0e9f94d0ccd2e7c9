//! Drafts beside none, on a device where every row has the bits that it has alone.

use std::sync::Arc;

use candle_core::DType;
use futures::future::join_all;
use serde_json::{Value, json};

use super::{super::DeviceBackend, processor, test_device};
use crate::{
    TokenId,
    engine::{
        Engine, SamplingParams, SequenceRequest,
        native::{
            Device, Drafting, Dtype, NativeEngine, NativeSettings,
            backend::BLOCK_TOKENS,
            model::{Room, tests::made_up::made_up_to_add},
            tests::{
                bits, collected, request, settings,
                speculation::{NGRAM, counted_by, counts_of},
            },
        },
    },
};

/// Requests whose sampled texts repeat themselves.
fn requests() -> Vec<SequenceRequest> {
    let one = |number: u32| {
        let period = number % 3 + 2;
        let prompt: Vec<TokenId> = (0..20 + 13 * number).map(|place| place % period * 11).collect();
        let sampling = SamplingParams {
            temperature: [0.0, 1.0][number as usize % 2],
            seed: Some(u64::from(number)),
            frequency_penalty: [0.0, 0.0, 0.3][number as usize % 3],
            allowed_token_ids: (number % 2 == 1).then(|| vec![3, 5, 8]),
            ignore_eos: true,
            max_tokens: 12 + number as usize,
            logprobs: Some(crate::sampling::Logprobs::Top(2)),
            ..SamplingParams::default()
        };
        request(&prompt, sampling)
    };
    (0..5).map(one).collect()
}

/// A model whose block of keys and values takes 16 KiB in bf16.
pub(super) fn config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 96,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
        "hidden_act": "silu",
    })
}

/// An engine whose heads have the size that a GPU's kernels of attention serve.
pub(super) fn engine(drafting: Drafting, dtype: DType) -> NativeEngine {
    let config = config();
    let backend = DeviceBackend::new(test_device(), dtype, processor(1)).deterministic();
    let room = Room { blocks: 5 * 256 / BLOCK_TOKENS, slots: 0 };
    let model = made_up_to_add(&config, backend, room);
    let settings = NativeSettings {
        config: config.as_object().unwrap().clone(),
        dtype: if dtype == DType::BF16 { Dtype::Bf16 } else { Dtype::F32 },
        device: Device::Cuda {
            number: 0,
            deterministic: true,
            records_steps: false,
            goes_ahead: false,
            memory_share: None,
        },
        drafting,
        ..settings("llama")
    };
    NativeEngine::serve(&settings, "of a test".to_owned(), (model, None), 1, room).unwrap()
}

#[tokio::test]
async fn drafts_change_no_bit_where_company_changes_none() {
    for dtype in [DType::BF16, DType::F32] {
        let plain = engine(Drafting::Off, dtype);
        let mut expected = Vec::new();
        for request in requests() {
            expected.push(collected(plain.generate(request)).await);
        }
        let (drafting, counts) = counted_by(|| engine(Drafting::Required(NGRAM), dtype));
        let drafting = Arc::new(drafting);
        let found = join_all(requests().into_iter().map(|request| collected(drafting.generate(request)))).await;
        for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(bits(found), bits(expected), "request {number}, {dtype:?}");
        }
        let [drafts, tokens, accepted] = counts_of(&counts);
        assert!(drafts > 0 && accepted > 0 && accepted < tokens, "{drafts} drafts, {accepted} of {tokens}");
    }
}
