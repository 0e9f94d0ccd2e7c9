//! Clients that do not read, or read late: their sequences pause, hold nothing that others need, and lose no bit.

use futures::FutureExt;

use super::{super::*, Random, bits, blocks, collected, engine, params, request, settings};
use crate::engine::{FinishReason, SamplingParams};

/// Room for a few tokens of a sequence.
const FEW: BacklogBounds = BacklogBounds { sequence: 500, all: 1 << 20, spared: 0 };

fn endless(prompt: u32) -> SequenceRequest {
    request(&[prompt; 40], SamplingParams { ignore_eos: true, ..params(200) })
}

/// Waits until nothing is computed: all sequences pause or have ended. Those that pause have no blocks then.
async fn still(engine: &NativeEngine) {
    // Commands are obeyed in order: all that was sent before has begun.
    engine.reset_prefix_cache(false).await.unwrap();
    idle(engine).await;
}

async fn idle(engine: &NativeEngine) {
    let idle = async {
        // Looked at together: between two looks, who waited may run.
        while matches!(engine.load(), EngineLoad { running, waiting, .. } if running + waiting > 0) {
            tokio::task::yield_now().await;
        }
    };
    let came = tokio::time::timeout(std::time::Duration::from_mins(4), idle).await.is_ok();
    assert!(came, "still not idle: {:?}", engine.load());
}

#[tokio::test]
async fn streams_that_nobody_reads_hold_no_seat_and_no_block_that_others_need() {
    let engine = engine(&NativeSettings {
        kv_cache_bytes: blocks("llama", 8, Dtype::Bf16),
        max_num_seqs: 2,
        ..settings("llama")
    })
    .with_backlog(FEW);
    let unread: Vec<TokenStream> = (0..6).map(|prompt| engine.generate(endless(prompt))).collect();
    still(&engine).await;
    assert_eq!((engine.load().paused, engine.load().running), (6, 0));
    let waiting = engine.backlog.bytes();
    assert!((6 * FEW.sequence..6 * (FEW.sequence + 300)).contains(&waiting), "{waiting}");
    // As long as all blocks together.
    let long = request(&[9; 80], SamplingParams { ignore_eos: true, ..params(176) });
    let (_, tokens, end) = collected(engine.generate(long)).await;
    assert_eq!((tokens.len(), end), (176, FinishReason::Length));
    assert!(engine.reset_prefix_cache(false).await.unwrap(), "who pauses does not hold up a reset");
    assert_eq!(engine.load().paused, 6);
    drop(unread);
    assert!(engine.reset_prefix_cache(false).await.unwrap());
    assert_eq!((engine.load(), engine.backlog.bytes()), (EngineLoad::default(), 0));
}

#[tokio::test]
async fn beyond_the_bound_over_all_who_reads_is_served_like_before() {
    let bounds = BacklogBounds { sequence: 1 << 20, all: 1_000, spared: 0 };
    let engine = engine(&settings("llama")).with_backlog(bounds);
    let _unread: Vec<TokenStream> = (0..20).map(|prompt| engine.generate(endless(prompt))).collect();
    still(&engine).await;
    let waiting = engine.backlog.bytes();
    assert!((1_000..1_000 + 20 * 400).contains(&waiting), "one step more for each: {waiting}");
    assert_eq!(collected(engine.generate(endless(30))).await.1.len(), 200);
}

#[tokio::test]
async fn shutdown_ends_sequences_that_pause() {
    let engine = engine(&settings("llama")).with_backlog(FEW);
    let unread = engine.generate(endless(3));
    still(&engine).await;
    engine.shutdown(Duration::from_mins(1)).await;
    let (_, tokens, end) = collected(unread).await;
    assert!((1..200).contains(&tokens.len()));
    assert_eq!(end, FinishReason::Abort);
}

/// Reads some streams now and others later, in an order of chance, and only when nothing is computed any more; how often
/// a sequence paused.
async fn read_late(
    engine: &NativeEngine,
    streams: &mut [TokenStream],
    random: &mut Random,
) -> (Vec<Vec<Result<EngineOutput, EngineError>>>, usize) {
    let mut outputs = vec![Vec::new(); streams.len()];
    let mut ended = vec![false; streams.len()];
    let mut pauses = 0;
    while ended.contains(&false) {
        // With their blocks, or without.
        if random.below(2) == 0 {
            still(engine).await;
        } else {
            idle(engine).await;
        }
        pauses += engine.load().paused;
        for (index, stream) in streams.iter_mut().enumerate() {
            let most = if random.below(2) == 0 { 0 } else { random.below(40) };
            for _ in 0..most {
                match stream.next().now_or_never() {
                    Some(Some(output)) => outputs[index].push(output),
                    Some(None) => ended[index] = true,
                    None => break,
                }
            }
        }
    }
    (outputs, pauses)
}

#[tokio::test]
async fn who_reads_late_gets_the_same_bits() {
    let mut random = Random::seeded(4);
    let penalised = |request: SequenceRequest, random: &mut Random| {
        let sampling = SamplingParams {
            repetition_penalty: [1.0, 1.2][random.below(2) as usize],
            frequency_penalty: [0.0, 0.5][random.below(2) as usize],
            ..SamplingParams::clone(&request.sampling)
        };
        SequenceRequest { sampling: sampling.valid(), ..request }
    };
    let requests: Vec<SequenceRequest> = (0..8)
        .map(|_| {
            let request = random.request();
            penalised(request, &mut random)
        })
        .collect();
    let alone = engine(&NativeSettings { max_num_seqs: 1, ..settings("llama") });
    let mut expected = Vec::new();
    for request in &requests {
        assert!(alone.reset_prefix_cache(false).await.unwrap());
        expected.push(collected(alone.generate(request.clone())).await);
    }
    for (max_num_seqs, max_num_batched_tokens, kv_blocks) in [(64, 512, 2_000), (2, 16, 2_000), (3, 33, 6)] {
        let settings = NativeSettings {
            max_num_seqs,
            max_num_batched_tokens,
            kv_cache_bytes: blocks("llama", kv_blocks, Dtype::Bf16),
            ..settings("llama")
        };
        let engine = engine(&settings).with_backlog(BacklogBounds { sequence: 300, all: 2_000, spared: 0 });
        let mut streams: Vec<TokenStream> = requests.iter().map(|request| engine.generate(request.clone())).collect();
        let (outputs, pauses) = read_late(&engine, &mut streams, &mut random).await;
        assert!(pauses > 8, "{pauses}");
        for (index, (outputs, expected)) in outputs.into_iter().zip(&expected).enumerate() {
            let found = collected(stream::iter(outputs).boxed()).await;
            assert_eq!((bits(&found), found.2), (bits(expected), expected.2), "request {index}, {settings:?}");
        }
    }
}
