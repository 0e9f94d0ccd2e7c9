//! What a generation yields, one part after the other.

use crate::{
    TokenId,
    engine::{FinishReason, PromptOutput, RequestTimes, Routes, SampledToken, WeightsInUse},
    parser::ToolCall,
};

/// What ended a generation, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its turn.
    Eos,
    /// Another stop token was sampled.
    StopToken(TokenId),
    /// A stop string was completed.
    StopString(String),
    /// The tokens to generate ran out.
    Length,
    /// What was sampled went round in circles.
    Repetition,
    /// The server ended the generation; what was sampled is valid.
    Abort,
}

impl From<FinishReason> for Finish {
    fn from(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Eos => Self::Eos,
            FinishReason::StopToken(id) => Self::StopToken(id),
            FinishReason::Length => Self::Length,
            FinishReason::Abort => Self::Abort,
        }
    }
}

/// A piece of a generation.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "all events but the first are deltas")]
pub enum Event {
    /// What the engine says about the prompt; first of all events.
    Prompt(PromptOutput),
    /// What one engine output added.
    Delta(Delta),
}

/// What one engine output added to a generation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Delta {
    /// Sampled tokens; none in the last delta of an aborted generation.
    pub tokens: Vec<SampledToken>,
    /// From which of these tokens on other weights computed than before; usually none.
    pub weights: Vec<(usize, WeightsInUse)>,
    /// The experts of the tokens that were computed for these, where they were asked for.
    pub routes: Option<Routes>,
    /// How long the sequence was in each phase up to the last of these tokens, where that was asked for.
    pub times: Option<RequestTimes>,
    /// Text that became certain, which may lag behind the tokens. Where reasoning and calls are read out of the text,
    /// it has none of them.
    pub text: String,
    /// What the model thought, where that is read; it may be empty.
    pub reasoning: Option<String>,
    /// How many of the tokens were reasoning, where that is read.
    pub reasoning_tokens: usize,
    /// After how many of the tokens thoughts ended, their mark included, if a token of its own marks their end.
    pub thoughts_end: Option<usize>,
    /// The calls that the text makes, where they are read.
    pub tool_calls: Vec<ToolCall>,
    /// The names of calls that are left out, because the request wants one only; in the last delta.
    pub dropped_calls: Vec<String>,
    /// Set in the last delta.
    pub finish: Option<Finish>,
}

impl Delta {
    /// Whether the next delta can be [pushed](Self::push) and nothing changes its place: a delta says thoughts before text,
    /// and text before calls.
    pub fn is_followed_by(&self, next: &Self) -> bool {
        let says = |delta: &Self| {
            [
                delta.reasoning.as_ref().is_some_and(|thoughts| !thoughts.is_empty()),
                !delta.text.is_empty(),
                !delta.tool_calls.is_empty(),
            ]
        };
        let last = says(self).into_iter().rposition(|said| said);
        let first = says(next).into_iter().position(|said| said);
        first.is_none() || last <= first
    }

    /// Adds what the next engine output added, which [follows](Self::is_followed_by) where the order is to stay.
    pub fn push(&mut self, next: Self) {
        let Self {
            tokens,
            weights,
            routes,
            times,
            text,
            reasoning,
            reasoning_tokens,
            thoughts_end,
            tool_calls,
            dropped_calls,
            finish,
        } = next;
        let before = self.tokens.len();
        self.thoughts_end = thoughts_end.map(|end| before + end).or(self.thoughts_end);
        self.weights.extend(weights.into_iter().map(|(token, weights)| (before + token, weights)));
        self.tokens.extend(tokens);
        Routes::join(&mut self.routes, routes);
        self.times = times.or(self.times);
        self.text.push_str(&text);
        if let Some(reasoning) = reasoning {
            self.reasoning.get_or_insert_default().push_str(&reasoning);
        }
        self.reasoning_tokens += reasoning_tokens;
        self.tool_calls.extend(tool_calls);
        self.dropped_calls.extend(dropped_calls);
        self.finish = finish.or(self.finish.take());
    }
}
