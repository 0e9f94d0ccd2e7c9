//! The fold of a generation's events: what a JSON answer is made of.

use futures::{Stream, StreamExt};

use super::{Event, Finish, WeightSpans};
use crate::{
    TokenId,
    engine::{PromptOutput, RequestTimes, Routes, SampledToken},
    parser::ToolCall,
};

/// A generation so far; whole once `finish` is set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Completion {
    /// What the engine said about the prompt, if it did.
    pub prompt: Option<PromptOutput>,
    /// Every sampled token.
    pub tokens: Vec<SampledToken>,
    /// The weights that computed them.
    pub weights: WeightSpans,
    /// The experts of the tokens but for the last one, from the position on from which they were asked for.
    pub routes: Option<Routes>,
    /// How long the sequence was in each phase up to its last token, where that was asked for.
    pub times: Option<RequestTimes>,
    /// The text of the tokens, without stop token and stop string unless they were asked for.
    pub text: String,
    /// What the model thought, if that was read out of the text.
    pub reasoning: Option<String>,
    /// How many of the tokens were reasoning.
    pub reasoning_tokens: usize,
    /// The calls that were read out of the text, if they were asked for.
    pub tool_calls: Vec<ToolCall>,
    /// The names of calls that are left out, because the request wants one only.
    pub dropped_calls: Vec<String>,
    /// How it ended.
    pub finish: Option<Finish>,
}

impl Completion {
    /// Adds the next event.
    pub fn push(&mut self, event: Event) {
        match event {
            Event::Prompt(prompt) => self.prompt = Some(prompt),
            Event::Delta(delta) => {
                self.weights.push(&delta);
                self.tokens.extend(delta.tokens);
                Routes::join(&mut self.routes, delta.routes);
                self.times = delta.times.or(self.times);
                self.text.push_str(&delta.text);
                if let Some(reasoning) = delta.reasoning {
                    self.reasoning.get_or_insert_default().push_str(&reasoning);
                }
                self.reasoning_tokens += delta.reasoning_tokens;
                self.tool_calls.extend(delta.tool_calls);
                self.dropped_calls.extend(delta.dropped_calls);
                self.finish = delta.finish.or(self.finish.take());
            }
        }
    }

    /// The ids of the sampled tokens.
    pub fn token_ids(&self) -> Vec<TokenId> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

/// Folds the events of several generations, each with the index of its own; the first error is the result.
pub async fn collect<E>(
    events: impl Stream<Item = Result<(usize, Event), E>>,
    generations: usize,
) -> Result<Vec<Completion>, E> {
    let mut events = std::pin::pin!(events);
    let mut completions = vec![Completion::default(); generations];
    while let Some(item) = events.next().await {
        let (index, event) = item?;
        completions[index].push(event);
    }
    Ok(completions)
}
