//! Tokens that were sampled before, decoded and read as if they were sampled now.
//!
//! Owns nothing but the detour: the same decoder, stop strings and parsers as those of a generation, so that the text of
//! a recording is the text of the generation to the letter.

use std::sync::Arc;

use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};

use super::{
    Completion, EngineError, Event, EventStream, Finish, Generator, Loops, TextDecoder, TextOptions, events, parsed,
};
use crate::{
    TokenId,
    engine::{EngineOutput, FinishReason, SampledToken},
};

const CONTRADICTION: &str = "the tokens do not end as the finish and stop reasons say";

/// What a generation gave.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The prompt, or its last tokens: the text of the first tokens may depend on them.
    pub prompt_token_ids: Arc<[TokenId]>,
    /// How tokens become text.
    pub text: Arc<TextOptions>,
    /// Tokens before stop strings count.
    pub min_tokens: usize,
    /// Every sampled token, in order.
    pub tokens: Vec<SampledToken>,
    /// What ended it; `None` for one that goes on.
    pub finish: Option<Finish>,
}

impl Recording {
    /// The reason that the engine gave, where it gave one.
    fn reason(&self) -> Option<FinishReason> {
        match &self.finish {
            Some(Finish::Eos) => Some(FinishReason::Eos),
            Some(Finish::StopToken(id)) => Some(FinishReason::StopToken(*id)),
            Some(Finish::Length) => Some(FinishReason::Length),
            Some(Finish::Abort) => Some(FinishReason::Abort),
            Some(Finish::StopString(_) | Finish::Repetition) | None => None,
        }
    }

    /// The engine's stream as it was. The stream of a generation that goes on is silent at its end.
    fn outputs(&self) -> BoxStream<'static, Result<EngineOutput, EngineError>> {
        let tokens = self.tokens.iter().cloned().map(EngineOutput::Token);
        let outputs: Vec<_> = tokens.chain(self.reason().map(EngineOutput::Finished)).map(Ok).collect();
        let outputs = stream::iter(outputs);
        if self.finish.is_none() { outputs.chain(stream::pending()).boxed() } else { outputs.boxed() }
    }
}

impl Generator {
    /// What a recording says from token `from` on; nothing is generated or counted.
    ///
    /// Text that a generation would have held back at the end of a recording that goes on is held back here too. A
    /// recording that contradicts itself, such as one that goes on after a stop string, is an error with the reason.
    pub fn replay(&self, recording: &Recording, from: usize) -> Result<Completion, String> {
        if recording.finish == Some(Finish::Repetition) {
            // Where a loop was noticed, nothing was held back, just as where the tokens ran out.
            let cut = Recording { finish: Some(Finish::Length), ..recording.clone() };
            let replayed = self.replay(&cut, from)?;
            return Ok(Completion { finish: replayed.finish.map(|_| Finish::Repetition), ..replayed });
        }
        let mut events = self.replayed(recording)?;
        let (mut before, mut after) = (Completion::default(), Completion::default());
        // Nothing has to be waited for, since all tokens are there.
        while let Some(Some(event)) = events.next().now_or_never() {
            let event = event.map_err(|error| match &recording.finish {
                // Only the text ends such a recording.
                Some(Finish::StopString(_)) => CONTRADICTION.to_owned(),
                _ => error.to_string(),
            })?;
            // What a token says besides follows it in events without tokens.
            let begins = from == 0 || matches!(&event, Event::Delta(delta) if !delta.tokens.is_empty());
            if before.tokens.len() < from || (after.tokens.is_empty() && !begins) {
                before.push(event);
            } else {
                after.push(event);
            }
            if after.finish.is_some() || before.finish.is_some() {
                break;
            }
        }
        let replayed = before.tokens.len() + after.tokens.len();
        if replayed != recording.tokens.len() {
            return Err(format!("the tokens go on behind the end of the text, which is token {replayed}"));
        }
        let finish = after.finish.as_ref().or(before.finish.as_ref());
        if finish == recording.finish.as_ref() {
            return Ok(after);
        }
        Err(CONTRADICTION.to_owned())
    }

    fn replayed(&self, recording: &Recording) -> Result<EventStream, String> {
        let text = Arc::clone(&recording.text);
        let prompt = &recording.prompt_token_ids;
        let decoder = TextDecoder::new(&self.tokenizer, prompt, Arc::clone(&text), recording.min_tokens);
        let decoder = decoder.map_err(|error| error.to_string())?;
        let (count, reason) = (recording.tokens.len(), recording.reason());
        // An abort is not a token's doing.
        let reason = reason.filter(|reason| *reason != FinishReason::Abort);
        let ends = move |_: TokenId, sampled: usize| reason.filter(|_| sampled == count);
        let events = events(recording.outputs(), decoder, Loops::default(), ends);
        Ok(parsed::read(events, &text, &self.tokenizer, prompt))
    }
}
