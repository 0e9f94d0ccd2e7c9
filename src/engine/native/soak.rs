//! Many small requests, most of which do not go as planned: nothing stays behind.

use futures::{StreamExt, stream};

use super::{
    tests::{Random, blocks, engine, params, request, settings},
    *,
};
use crate::{
    TokenId,
    engine::{FinishReason, SamplingParams},
};

/// A day's worth in the release build.
const REQUESTS: u32 = if cfg!(debug_assertions) { 600 } else { 200_000 };
const AT_ONCE: usize = 100;
/// What the process may have grown by, beyond what its first tenth took.
const MOST_GROWTH_BYTES: u64 = 48 << 20;

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
    let asked = GenerateRequest {
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
            Some(Ok(EngineOutput::Prompt(_))) => {}
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

/// Memory of this process, where the system tells.
fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_leave_nothing_behind() {
    let engine = engine(&NativeSettings {
        kv_cache_bytes: blocks("llama", 60, Dtype::Bf16),
        max_num_seqs: 32,
        max_num_batched_tokens: 256,
        ..settings("llama")
    });
    let mut resident = None;
    for part in 0..10 {
        let numbers = part * (REQUESTS / 10)..(part + 1) * (REQUESTS / 10);
        stream::iter(numbers).for_each_concurrent(AT_ONCE, |number| run(&engine, number)).await;
        resident = resident.or_else(resident_bytes);
    }
    // Commands are obeyed in order: this one is answered after the last abort.
    assert!(engine.tell(Command::ResetPrefixCache).await.unwrap(), "a sequence holds blocks");
    assert_eq!(engine.load(), EngineLoad::default());
    assert_eq!(engine.status.present(), 0);
    if let (Some(before), Some(after)) = (resident, resident_bytes()) {
        assert!(after < before + MOST_GROWTH_BYTES, "{before} bytes became {after}");
    }
}
