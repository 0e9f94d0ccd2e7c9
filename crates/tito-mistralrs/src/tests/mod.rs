//! The adapter over a stand-in for mistral.rs, which calls processors and closes channels as mistral.rs does.

mod real_model;

use candle_core::{Device, Tensor};
use mistralrs_core::{NormalRequest, RequestMessage, Response};

use super::*;
use crate::{
    TokenId,
    engine::{EngineOutput, FinishReason, Routing, SamplingParams},
};

const VOCAB_SIZE: usize = 8;
const EOS: TokenId = 2;

/// What the stand-in does with a request.
#[derive(Clone, Copy)]
enum Conduct {
    /// Computes every sequence.
    Serve,
    /// Refuses every sequence.
    Refuse,
    /// Ends with the first sequence, without a word.
    Die,
}

async fn engine_thread(mut requests: mpsc::Receiver<Request>, conduct: Conduct) {
    while let Some(Request::Normal(request)) = requests.recv().await {
        match conduct {
            Conduct::Serve => serve(*request).await,
            Conduct::Refuse => request.response.send(Response::ValidationError("no".into())).await.unwrap(),
            Conduct::Die => return,
        }
    }
}

/// The next token is the last one and one more.
async fn serve(request: NormalRequest) {
    let RequestMessage::CompletionTokens(mut context) = request.messages else { panic!("text") };
    let [tap] = &request.logits_processors.unwrap()[..] else { panic!("one processor") };
    loop {
        let next = (context.last().unwrap() + 1) as usize % VOCAB_SIZE;
        let mut logits = [0.0_f32; VOCAB_SIZE];
        logits[next] = 9.0;
        let answer = tap.apply(&Tensor::new(&logits, &Device::Cpu).unwrap(), &context).unwrap();
        let id = answer.to_vec1::<f32>().unwrap().iter().position(|logit| *logit > 0.0).unwrap();
        if id == VOCAB_SIZE {
            return;
        }
        context.push(TokenId::try_from(id).unwrap());
        tokio::task::yield_now().await;
    }
}

fn engine(conduct: Conduct) -> MistralRsEngine {
    let (requests, received) = mpsc::channel(8);
    tokio::spawn(engine_thread(received, conduct));
    let info = EngineInfo {
        engine: "mistralrs",
        device: "cpu".to_owned(),
        dtype: "f32".to_owned(),
        vocab_size: VOCAB_SIZE,
        max_model_len: 100_000,
        unproven: None,
    };
    MistralRsEngine::over(info, Alphabet::new(VOCAB_SIZE).unwrap(), 65_536, requests, Box::new(()))
}

fn greedy(max_tokens: usize) -> SamplingParams {
    SamplingParams { temperature: 0.0, max_tokens, eos_token_id: Some(EOS), ..SamplingParams::default() }
}

fn request(prompt: &[TokenId], max_tokens: usize) -> SequenceRequest {
    SequenceRequest {
        prompt_token_ids: prompt.into(),
        sampling: greedy(max_tokens).valid(),
        prompt_logprobs: None,
        candidates: None,
        cache_salt: None,
        adapter: None,
        routing: Routing::default(),
        images: Arc::default(),
        timed: false,
    }
}

/// Ends after 90 000 tokens: never, for a test.
fn endless() -> SequenceRequest {
    let sampling = SamplingParams { ignore_eos: true, ..greedy(90_000) };
    SequenceRequest { sampling: sampling.valid(), ..request(&[1], 90_000) }
}

async fn outcome(stream: TokenStream) -> (Vec<TokenId>, Result<FinishReason, EngineError>) {
    let (mut ids, mut end) = (Vec::new(), None);
    for output in stream.collect::<Vec<_>>().await {
        assert!(end.is_none(), "something follows the end");
        match output {
            Ok(EngineOutput::Token(token)) => ids.push(token.id),
            Ok(EngineOutput::Weights(_) | EngineOutput::Routes(_) | EngineOutput::Times(_)) => panic!("it has none"),
            Ok(EngineOutput::Prompt(prompt)) => ids.extend(prompt.logprobs.iter().map(|score| score.id)),
            Ok(EngineOutput::Finished(reason)) => end = Some(Ok(reason)),
            Err(error) => end = Some(Err(error)),
        }
    }
    (ids, end.expect("a stream has an end"))
}

#[tokio::test]
async fn sequences_are_served_one_after_the_other() {
    let engine = engine(Conduct::Serve);
    let streams = [(5, 9), (7, 2), (1, 1)].map(|(id, max_tokens)| engine.generate(request(&[id], max_tokens)));
    assert_eq!(engine.load(), EngineLoad { running: 1, waiting: 2, ..EngineLoad::default() });
    let [first, second, third] = streams.map(outcome);
    assert_eq!(third.await, (vec![2], Ok(FinishReason::Eos)));
    assert_eq!(second.await, (vec![0, 1], Ok(FinishReason::Length)));
    assert_eq!(first.await, (vec![6, 7, 0, 1, 2], Ok(FinishReason::Eos)));
    assert_eq!(engine.load(), EngineLoad::default());
}

#[tokio::test]
async fn a_scored_prompt_comes_before_its_continuation() {
    let scored = SequenceRequest { prompt_logprobs: Some(0), ..request(&[5, EOS, 4], 2) };
    assert_eq!(outcome(engine(Conduct::Serve).generate(scored)).await, (vec![EOS, 4, 5, 6], Ok(FinishReason::Length)));
}

#[tokio::test]
async fn a_dropped_stream_makes_room_for_the_next() {
    let engine = engine(Conduct::Serve);
    let mut dropped = engine.generate(endless());
    let waiting = engine.generate(endless());
    let next = engine.generate(request(&[5], 1));
    assert!(matches!(dropped.next().await, Some(Ok(EngineOutput::Token(_)))));
    drop(waiting);
    drop(dropped);
    assert_eq!(outcome(next).await, (vec![6], Ok(FinishReason::Length)));
    assert_eq!(engine.load(), EngineLoad::default());
}

#[tokio::test]
async fn shutdown_aborts_what_runs_and_what_waits() {
    let engine = engine(Conduct::Serve);
    let [mut running, waiting] = [endless(), endless()].map(|request| engine.generate(request));
    assert!(matches!(running.next().await, Some(Ok(EngineOutput::Token(_)))));
    engine.shutdown(Duration::MAX).await;
    assert_eq!(engine.load(), EngineLoad::default());
    assert_eq!(outcome(running).await.1, Ok(FinishReason::Abort));
    assert_eq!(outcome(waiting).await, (Vec::new(), Ok(FinishReason::Abort)));
    assert_eq!(outcome(engine.generate(request(&[5], 1))).await.1, Err(EngineError::ShutDown));
    assert_eq!(engine.health(), Err(EngineError::ShutDown));
}

#[tokio::test]
async fn a_refused_request_leaves_the_engine_healthy() {
    let engine = engine(Conduct::Refuse);
    let refused = outcome(engine.generate(request(&[5], 1))).await;
    assert_eq!(refused, (Vec::new(), Err(EngineError::Unsupported("no".to_owned()))));
    assert_eq!(engine.health(), Ok(()));
}

#[tokio::test]
async fn an_engine_that_died_fails_everyone_and_says_so() {
    let engine = engine(Conduct::Die);
    let [first, second] = [endless(), endless()].map(|request| engine.generate(request));
    let died = EngineError::Failed("the thread of the engine ended unexpectedly".to_owned());
    assert_eq!(outcome(first).await, (Vec::new(), Err(died.clone())));
    assert_eq!(outcome(second).await, (Vec::new(), Err(died.clone())));
    assert_eq!(engine.health(), Err(died.clone()));
    assert_eq!(outcome(engine.generate(endless())).await, (Vec::new(), Err(died)));
}
