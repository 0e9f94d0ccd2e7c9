//! One request's way through the engine: queue, submission, end.
//!
//! A detached task per request drains the engine's responses whatever the client does, because the engine's thread must
//! never meet a full or a closed channel.

use std::sync::Arc;

use mistralrs_core::{Constraint, CustomLogitsProcessor, NormalRequest, Request, RequestMessage, Response};
use tokio::sync::mpsc;

use super::{
    panics::one_line,
    shared::Shared,
    tap::{Ending, Outputs, Tap, submitted},
};
use crate::{
    TokenId,
    engine::{EngineError, EngineOutput, FinishReason, SequenceRequest, admission::Place},
};

/// Responses carry text that nobody reads: one a token, a few more at the end.
const SPARE_RESPONSES: usize = 16;

/// Runs `request` from its `place` in the queue to its end.
pub(super) async fn run(shared: Arc<Shared>, mut place: Place, request: SequenceRequest, outputs: Outputs) {
    let seated = tokio::select! {
        seated = place.seated() => seated,
        () = outputs.closed() => return,
    };
    let ending = if seated {
        outputs.scheduled();
        generate(&shared, &place, request, &outputs).await
    } else {
        shared.alive().map(|()| FinishReason::Abort)
    };
    // The seat is given back before the client hears of the end.
    drop(place);
    // A client that is gone needs no end.
    let _ = outputs.send(ending.map(EngineOutput::Finished));
}

async fn generate(
    shared: &Shared,
    place: &Place,
    request: SequenceRequest,
    outputs: &Outputs,
) -> Result<FinishReason, EngineError> {
    if request.candidates.is_some() {
        // Of a server, no such request gets here: the API refuses it by the name that its field has.
        let reason = "the engine `mistralrs` cannot score tokens that are named for positions of a prompt; start the \
                      server with --engine native";
        return Err(EngineError::Unsupported(reason.to_owned()));
    }
    let prompt = submitted(&request.prompt_token_ids, request.prompt_logprobs).to_vec();
    let max_len = request.prompt_token_ids.len() - prompt.len() + request.sampling.max_tokens;
    let tap = Arc::new(Tap::new(request, shared.alphabet, outputs.clone()));
    let responses = submit(&shared.requests, prompt, max_len, tap.clone()).await.map_err(|()| shared.died())?;
    let drained = drain(responses);
    tokio::pin!(drained);
    let refusal = tokio::select! {
        refusal = &mut drained => refusal,
        () = async { tokio::select! { () = outputs.closed() => {}, () = place.dismissed() => {} } } => {
            tap.cancel();
            drained.await
        }
    };
    match (tap.ending(), refusal) {
        (Some(Ending::Finished(reason)), _) => Ok(reason),
        (Some(Ending::Unsampleable(error)), _) => Err(error.into()),
        (Some(Ending::Unread), _) => Err(EngineError::Unread),
        (Some(Ending::Failed(reason)), _) => Err(EngineError::Failed(reason)),
        (None, Some(refusal)) => Err(refusal),
        (None, None) => Err(shared.died()),
    }
}

/// Hands a sequence to the engine, which will call `processor` at most `max_len` times. `Err`: the engine is gone.
pub(super) async fn submit(
    requests: &mpsc::Sender<Request>,
    prompt: Vec<TokenId>,
    max_len: usize,
    processor: Arc<dyn CustomLogitsProcessor>,
) -> Result<mpsc::Receiver<Response>, ()> {
    let (response, responses) = mpsc::channel(max_len + SPARE_RESPONSES);
    let sampling_params = mistralrs_core::SamplingParams {
        // The engine takes the greatest of the processor's logits.
        temperature: Some(0.0),
        max_len: Some(max_len),
        ..mistralrs_core::SamplingParams::neutral()
    };
    let request = NormalRequest {
        messages: RequestMessage::CompletionTokens(prompt),
        sampling_params,
        response,
        return_logprobs: false,
        // A stream's receiver may go, in the worst case; the other kind's may not.
        is_streaming: true,
        id: 0,
        constraint: Constraint::None,
        suffix: None,
        tools: None,
        tool_choice: None,
        logits_processors: Some(vec![processor]),
        return_raw_logits: false,
        web_search_options: None,
        model_id: None,
        truncate_sequence: false,
    };
    requests.send(Request::Normal(Box::new(request))).await.map_err(|_| ())?;
    Ok(responses)
}

/// Waits until the engine has let go of the sequence, and returns the error if it reported one.
pub(super) async fn drain(mut responses: mpsc::Receiver<Response>) -> Option<EngineError> {
    let mut refusal = None;
    while let Some(response) = responses.recv().await {
        let error = match response {
            Response::Chunk(_) | Response::Done(_) | Response::CompletionChunk(_) | Response::CompletionDone(_) => {
                continue;
            }
            Response::ValidationError(error) => EngineError::Unsupported(error.to_string()),
            Response::InternalError(error) => EngineError::Failed(one_line(&error.to_string())),
            Response::ModelError(error, _) | Response::CompletionModelError(error, _) => {
                EngineError::Failed(one_line(&error))
            }
            _ => EngineError::Failed("the engine answered with something else than tokens".to_owned()),
        };
        refusal.get_or_insert(error);
    }
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn draining_ends_with_the_first_error() {
        let (sender, responses) = mpsc::channel(4);
        sender.send(Response::ValidationError("too long".into())).await.unwrap();
        sender.send(Response::InternalError("broken".into())).await.unwrap();
        drop(sender);
        assert_eq!(drain(responses).await, Some(EngineError::Unsupported("too long".to_owned())));
    }

    #[tokio::test]
    async fn an_engine_that_is_gone_takes_no_request() {
        let (requests, engine) = mpsc::channel(1);
        drop(engine);
        let processor = |logits: &candle_core::Tensor, _: &[TokenId]| Ok(logits.clone());
        assert!(submit(&requests, vec![1], 1, Arc::new(processor)).await.is_err());
    }
}
