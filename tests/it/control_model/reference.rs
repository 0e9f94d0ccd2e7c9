//! Which token weights and an adapter sample: computed anew by an engine that never had others, once for all control planes.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use parking_lot::Mutex;

use tito::{
    TokenId,
    adapters::{AdapterPolicy, Adapters},
    control::ControlPolicy,
    engine::{Adapter, NewWeights, SampledToken, SamplingParams},
    generation::{GenerationRequest, collect},
};

use super::{
    calls::{Lora, Replacing, Tensor},
    loras::load,
    model::{Content, Weights},
    world::{engine, filled},
};
use crate::it::control::{Events, Served, generation, serve};

/// What a token is sampled from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    pub(super) weights: Weights,
    pub(super) lora: Option<Lora>,
    /// The tokens before it, but for the prompt's.
    pub(super) before: Vec<TokenId>,
}

/// A token, and the bits of its log-prob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sampled {
    pub(super) id: TokenId,
    logprob: u32,
}

impl Sampled {
    pub(super) fn of(token: &SampledToken) -> Self {
        Self { id: token.id, logprob: token.logprob.to_bits() }
    }
}

static KNOWN: LazyLock<Mutex<HashMap<Seen, Sampled>>> = LazyLock::new(Mutex::default);

/// Asks for `tokens` tokens after some of an answer, the most probable ones.
pub(super) fn ask(
    served: &Served,
    before: &[TokenId],
    tokens: usize,
    adapter: Option<Arc<Adapter>>,
    id: &str,
) -> Events {
    let plain = generation(tokens);
    let sampling =
        SamplingParams { max_tokens: tokens, ignore_eos: true, temperature: 0.0, ..SamplingParams::default() };
    served.generate(GenerationRequest {
        prompt_token_ids: plain.prompt_token_ids.iter().chain(before).copied().collect(),
        sampling: Arc::new(sampling.validated(128).unwrap()),
        adapter,
        request_ids: [id.into()].into(),
        ..plain
    })
}

/// Compares a token with the one that should come.
pub(super) async fn compare(seen: Seen, sampled: Sampled) {
    let known = KNOWN.lock().get(&seen).copied();
    let expected = match known {
        Some(known) => known,
        None => computed(&seen).await,
    };
    assert_eq!(sampled, expected, "{seen:?}");
    KNOWN.lock().insert(seen, expected);
}

async fn computed(seen: &Seen) -> Sampled {
    let engine = engine();
    let adapters = Adapters::new(engine.clone(), AdapterPolicy::default());
    let served = serve(engine, ControlPolicy::default());
    if let Some(lora) = seen.lora {
        adapters.load(load("reference", lora, Replacing::Never)).await.unwrap();
    }
    let contents = [(Tensor::Norm, seen.weights.norm), (Tensor::First, seen.weights.first)];
    let tensors: Vec<_> = contents
        .into_iter()
        .filter_map(|(tensor, content)| match content {
            Content::Filled(number) => Some(filled(tensor, number)),
            Content::Loaded | Content::Gone => None,
        })
        .collect();
    if !tensors.is_empty() {
        served.start_update().await.unwrap();
        served.write_weights(NewWeights::Tensors(tensors)).await.unwrap();
        served.finish_update(None).await.unwrap();
    }
    let events = ask(&served, &seen.before, 1, adapters.get("reference"), "reference");
    let events = futures::StreamExt::map(events, |event| event.map(|event| (0, event)));
    let completion = collect(events, 1).await.unwrap().remove(0);
    Sampled::of(&completion.tokens[0])
}
