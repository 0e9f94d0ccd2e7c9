//! Many small requests, most of which do not go as planned: nothing stays behind.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::{StreamExt, stream};

use super::{
    super::*, Random, allocated::bytes_in_use, blocks, engine, in_company, params, request, settings, weights::norm,
};
use crate::{
    TokenId,
    engine::{FinishReason, NewWeights, OnWeightsChange, SamplingParams, UndoPolicy},
};

const REQUESTS: u32 = if cfg!(unoptimised) { 600 } else { 40_000 };
const ROUNDS: u32 = if cfg!(unoptimised) { 3 } else { 300 };
const AT_ONCE: usize = 100;
/// What all requests but the first tenth may leave in use: less than 30 bytes each. A queue that grows once more, since threads
/// were scheduled otherwise, takes some 100 kB.
const MOST_GROWTH_BYTES: usize = 1 << 20;

/// Runs one request as the number says: to its end, to a stop token, or until its client has had enough.
async fn run(engine: &NativeEngine, number: u32) {
    let mut random = Random::seeded(number / 3);
    // Three requests in a row have the same prompt.
    let prompt: Vec<TokenId> = (0..=random.below(90)).map(|_| random.below(96)).collect();
    let mut random = Random::seeded(number);
    let max_tokens = random.below(20) as usize + 1;
    let sampling = SamplingParams {
        seed: Some(u64::from(number)),
        logprobs: None,
        stop_token_ids: (0..random.below(12)).collect(),
        ..params(max_tokens)
    };
    let asked = SequenceRequest {
        prompt_logprobs: (random.below(20) == 0).then_some(1),
        cache_salt: (random.below(10) == 0).then(|| "salt".into()),
        ..request(&prompt, sampling)
    };
    let mut stream = engine.generate(asked);
    let patience = if random.below(4) == 0 { random.below(6) as usize } else { usize::MAX };
    let (mut tokens, mut end) = (0, None);
    for _ in 0..patience {
        match stream.next().await {
            Some(Ok(EngineOutput::Token(_))) => tokens += 1,
            Some(Ok(
                EngineOutput::Prompt(_) | EngineOutput::Weights(_) | EngineOutput::Routes(_) | EngineOutput::Times(_),
            )) => {}
            Some(Ok(EngineOutput::Finished(reason))) => end = Some(reason),
            Some(Err(error)) => panic!("request {number}: {error}"),
            None => break,
        }
    }
    match end {
        Some(FinishReason::Length) => assert_eq!(tokens, max_tokens),
        Some(FinishReason::StopToken(_)) => assert!(tokens <= max_tokens),
        Some(other) => panic!("request {number}: {other:?}"),
        None => assert_ne!(patience, usize::MAX, "request {number} ended without a reason"),
    }
}

/// Reads a stream to its end, which has to be told; calls `each` after each output.
async fn read_to_the_end(mut stream: TokenStream, asked: &SequenceRequest, each: impl Fn()) {
    let scores = asked.prompt_logprobs.map_or(0, |_| asked.prompt_token_ids.len() - 1);
    let (mut prompts, mut tokens, mut end) = (0, 0, None);
    while let Some(output) = stream.next().await {
        each();
        assert_eq!(end, None, "nothing follows the end");
        match output.unwrap() {
            EngineOutput::Prompt(output) => {
                assert_eq!((prompts, tokens, output.logprobs.len()), (0, 0, scores));
                assert!(output.cached_tokens < asked.prompt_token_ids.len());
                prompts += 1;
            }
            EngineOutput::Token(_) => {
                assert_eq!(prompts, 1);
                tokens += 1;
            }
            EngineOutput::Weights(_) | EngineOutput::Routes(_) | EngineOutput::Times(_) => {}
            EngineOutput::Finished(reason) => end = Some(reason),
        }
    }
    match end {
        Some(FinishReason::Length) => assert_eq!(tokens, asked.sampling.max_tokens),
        Some(FinishReason::Abort) => {}
        other => panic!("{other:?}"),
    }
}

/// A request that makes others give way, and nothing but its length or a shutdown ends.
fn large_request(random: &mut Random) -> SequenceRequest {
    let kinds = 2 + random.below(2);
    let prompt: Vec<TokenId> = (0..=random.below(90)).map(|place| place % kinds).collect();
    let sampling = SamplingParams { ignore_eos: true, ..params(random.below(60) as usize + 1) };
    SequenceRequest { prompt_logprobs: (random.below(3) == 0).then_some(1), ..request(&prompt, sampling) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stream_says_how_it_ended_whatever_is_done_meanwhile() {
    for round in 0..ROUNDS {
        let mut random = Random::seeded(round);
        let engine = engine(&NativeSettings {
            kv_cache_bytes: blocks("llama", 9, Dtype::Bf16),
            max_num_seqs: 8,
            max_num_batched_tokens: 40,
            ..settings("llama")
        });
        // Readers that are late by a few tokens.
        let bounds = BacklogBounds { sequence: [1 << 20, 400][round as usize % 2], ..BacklogBounds::default() };
        let engine = engine.with_backlog(bounds);
        let requests: Vec<SequenceRequest> = (0..16).map(|_| large_request(&mut random)).collect();
        let streams = in_company(&engine, &requests);
        let (stop_after, seen) = (u64::from(random.below(700)), AtomicU64::new(0));
        // Whoever reads an output does something to the engine.
        let each = || {
            let seen = seen.fetch_add(1, Ordering::Relaxed);
            if seen % 70 == 7 {
                drop(engine.begin_update(UndoPolicy::Memory));
                drop(engine.write_weights(NewWeights::Tensors(norm(1.0))));
                drop(engine.finish_update(None, OnWeightsChange::Recompute));
                drop(engine.reset_prefix_cache(false));
            }
            if seen == stop_after {
                drop(engine.shutdown(Duration::ZERO));
            }
        };
        let all = streams.into_iter().zip(&requests).map(|(stream, asked)| read_to_the_end(stream, asked, &each));
        futures::future::join_all(all).await;
        engine.shutdown(Duration::from_mins(1)).await;
        assert_eq!((engine.load(), engine.status.present()), (EngineLoad::default(), 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_leave_nothing_behind() {
    let engine = engine(&NativeSettings {
        kv_cache_bytes: blocks("llama", 60, Dtype::Bf16),
        max_num_seqs: 32,
        max_num_batched_tokens: 256,
        ..settings("llama")
    });
    let mut in_use = Vec::new();
    for part in 0..10 {
        let numbers = part * (REQUESTS / 10)..(part + 1) * (REQUESTS / 10);
        stream::iter(numbers).for_each_concurrent(AT_ONCE, |number| run(&engine, number)).await;
        // Commands are obeyed in order: this one is answered after the last abort.
        assert!(engine.reset_prefix_cache(false).await.unwrap(), "a sequence holds blocks");
        assert_eq!(engine.load(), EngineLoad::default());
        assert_eq!(engine.status.present(), 0);
        in_use.extend(bytes_in_use());
    }
    println!("bytes in use after each tenth: {in_use:?}");
    let (Some(before), Some(after)) = (in_use.first(), in_use.last()) else {
        println!("SKIPPED: what is in use is only known in a process of its own");
        return;
    };
    assert!(*after < before + MOST_GROWTH_BYTES, "{in_use:?}");
}
