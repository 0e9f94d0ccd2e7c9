//! Makes the events of a message from the events of a generation.

use std::sync::Arc;

use uuid::Uuid;

use crate::{
    TokenId,
    engine::{RouteShape, Routes},
    generation::{Delta, Event, Finish, WeightSpans},
    json::{Object, Value},
    parser::ToolCall,
    request_fields::tools::{ParserCounter, ToolChoice},
    state::Api,
    turn::{Prompted, Sampling},
    wire::{
        answer::{
            output::{FinishReason, finish_fields},
            token_continuity::TokenContinuity,
            tool_notices::ToolNotices,
            weight_versions::weight_versions,
        },
        messages::{
            answer::{AnswerMessage, Block, BlockDelta, MessageDelta, MessageEvent, SampledIds, StopReason, Usage},
            tool_input::input_text,
        },
        routed_experts::of_nemo_rl,
    },
};

/// Returns why a message ended. As in a chat, calls are the reason only if the model ended the message.
fn stop_reason(finish: &Finish, called: bool, choice: &ToolChoice) -> Option<StopReason> {
    let calls = called
        && match choice {
            ToolChoice::None => false,
            ToolChoice::Auto | ToolChoice::Required | ToolChoice::Named(_) => {
                finish_fields(finish).0 == FinishReason::Stop
            }
        };
    match finish {
        _ if calls => Some(StopReason::ToolUse),
        Finish::Eos | Finish::StopToken(_) => Some(StopReason::EndTurn),
        Finish::StopString(_) => Some(StopReason::StopSequence),
        Finish::Length => Some(StopReason::MaxTokens),
        Finish::Repetition | Finish::Abort => None,
    }
}

/// The block that is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenBlock {
    Text,
    Thinking,
}

/// The writer of one message's events.
pub(super) struct Blocks {
    id: String,
    model: String,
    prompt_token_ids: Arc<[TokenId]>,
    token_continuity: Option<TokenContinuity>,
    tool_choice: ToolChoice,
    notices: ToolNotices,
    /// The sampled ids, if the client wants to see them.
    sampled: Option<SampledIds>,
    /// The experts that the tokens went through, if there are any to see.
    routes: Option<Routes>,
    route_shape: Option<RouteShape>,
    /// The weights that sampled the tokens, if the client wants to see them.
    weights: Option<WeightSpans>,
    calls_read: Option<ParserCounter>,
    started: bool,
    open: Option<OpenBlock>,
    /// The index of the block that is open, or of the next one if none is.
    index: usize,
    called: bool,
    output_tokens: usize,
    /// Whether usage says how much of the prompt was cached.
    tells_cached: bool,
    cached_tokens: Option<usize>,
}

impl Blocks {
    pub(super) fn new(
        api: &Api,
        id: String,
        prompt: &Prompted,
        sampling: &Sampling,
        (tool_choice, notices): (ToolChoice, ToolNotices),
    ) -> Self {
        let shows_ids = sampling.return_token_ids || sampling.tokens_as_ids;
        let token_continuity =
            (prompt.asks_for_continuity || shows_ids).then(|| TokenContinuity::from(&prompt.verdict));
        Self {
            id,
            model: api.models.answering(sampling.adapter.as_ref()),
            prompt_token_ids: Arc::clone(&prompt.token_ids),
            token_continuity,
            tool_choice,
            notices,
            sampled: shows_ids.then(SampledIds::default),
            routes: None,
            route_shape: api.turns.generator.engine().route_shape().cloned(),
            weights: sampling.return_weight_versions.then(WeightSpans::default),
            calls_read: sampling.text.format.tools.is_some().then_some(ParserCounter::Chat),
            started: false,
            open: None,
            index: 0,
            called: false,
            output_tokens: 0,
            tells_cached: api.prompt_tokens_details,
            cached_tokens: None,
        }
    }

    /// Returns the usage as Anthropic counts it: cached tokens are not part of the input.
    fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.prompt_token_ids.len().saturating_sub(self.cached_tokens.unwrap_or(0)),
            output_tokens: self.output_tokens,
            cache_read_input_tokens: self.cached_tokens,
        }
    }

    fn message(&self) -> AnswerMessage {
        AnswerMessage {
            id: self.id.clone(),
            kind: "message",
            role: "assistant",
            content: Vec::new(),
            model: self.model.clone(),
            stop_reason: Some(None),
            stop_sequence: Some(None),
            usage: self.usage(),
            prompt_token_ids: self.sampled.is_some().then(|| self.prompt_token_ids.to_vec()),
            sampled: None,
            weight_versions: None,
            dropped_tool_calls: Vec::new(),
            token_continuity: self.token_continuity.clone(),
            notices: self.notices.clone(),
        }
    }

    /// Counts what the parser of calls found; for a JSON answer, when the answer is whole.
    pub(super) fn count_calls(&self, mode: &'static str, called: bool) {
        if let Some(counter) = self.calls_read {
            counter.count(mode, called);
        }
    }

    /// Returns the events that one event of the generation becomes.
    pub(super) fn push(&mut self, event: Event) -> Vec<MessageEvent> {
        let mut events = Vec::with_capacity(2);
        if let Event::Prompt(prompt) = &event {
            self.cached_tokens = self.tells_cached.then_some(prompt.cached_tokens);
        }
        if !std::mem::replace(&mut self.started, true) {
            events.push(MessageEvent::MessageStart { message: Box::new(self.message()) });
        }
        if let Event::Delta(delta) = event {
            self.delta(delta, &mut events);
        }
        events
    }

    fn delta(&mut self, delta: Delta, events: &mut Vec<MessageEvent>) {
        self.output_tokens += delta.tokens.len();
        if let Some(weights) = &mut self.weights {
            weights.push(&delta);
        }
        if let Some(sampled) = &mut self.sampled {
            sampled.generation_token_ids.extend(delta.tokens.iter().map(|token| token.id));
            sampled.generation_log_probs.extend(delta.tokens.iter().map(|token| token.logprob));
            Routes::join(&mut self.routes, delta.routes);
        }
        if let Some(thinking) = delta.reasoning.filter(|thinking| !thinking.is_empty()) {
            self.write(OpenBlock::Thinking, BlockDelta::ThinkingDelta { thinking }, events);
        }
        if !delta.text.is_empty() {
            self.write(OpenBlock::Text, BlockDelta::TextDelta { text: delta.text }, events);
        }
        for call in delta.tool_calls {
            self.call(call, events);
        }
        if let Some(finish) = &delta.finish {
            self.finish(finish, delta.dropped_calls, events);
        }
    }

    /// Adds to a block, and begins it if it is not the open one.
    fn write(&mut self, kind: OpenBlock, delta: BlockDelta, events: &mut Vec<MessageEvent>) {
        if self.open != Some(kind) {
            self.close(events);
            let content_block = match kind {
                OpenBlock::Text => Block::Text { text: String::new() },
                OpenBlock::Thinking => Block::Thinking { thinking: String::new(), signature: None },
            };
            events.push(MessageEvent::ContentBlockStart { index: self.index, content_block });
            self.open = Some(kind);
        }
        events.push(MessageEvent::ContentBlockDelta { index: self.index, delta });
    }

    fn close(&mut self, events: &mut Vec<MessageEvent>) {
        let Some(open) = self.open.take() else { return };
        let index = self.index;
        if open == OpenBlock::Thinking {
            let delta = BlockDelta::SignatureDelta { signature: Uuid::new_v4().simple().to_string() };
            events.push(MessageEvent::ContentBlockDelta { index, delta });
        }
        events.push(MessageEvent::ContentBlockStop { index });
        self.index += 1;
    }

    fn call(&mut self, call: ToolCall, events: &mut Vec<MessageEvent>) {
        self.close(events);
        let index = self.index;
        let partial_json = input_text(&call.arguments);
        let content_block = Block::ToolUse { id: call.id, name: call.name, input: Value::Object(Object::default()) };
        events.push(MessageEvent::ContentBlockStart { index, content_block });
        if !partial_json.trim().is_empty() {
            events.push(MessageEvent::ContentBlockDelta { index, delta: BlockDelta::InputJsonDelta { partial_json } });
        }
        events.push(MessageEvent::ContentBlockStop { index });
        self.index += 1;
        self.called = true;
    }

    fn finish(&mut self, finish: &Finish, dropped_tool_calls: Vec<String>, events: &mut Vec<MessageEvent>) {
        self.close(events);
        // Clients look at the first block of any answer, so there has to be one.
        if self.index == 0 {
            events
                .push(MessageEvent::ContentBlockStart { index: 0, content_block: Block::Text { text: String::new() } });
            events.push(MessageEvent::ContentBlockStop { index: 0 });
        }
        let stop_reason = stop_reason(finish, self.called, &self.tool_choice);
        let stop_sequence = match finish {
            Finish::StopString(stop) if stop_reason == Some(StopReason::StopSequence) => Some(stop.clone()),
            _ => None,
        };
        let weight_versions = self.weights.take().as_ref().map(weight_versions);
        let mut sampled = self.sampled.take();
        if let (Some(sampled), Some(shape), Some(routes)) = (&mut sampled, &self.route_shape, &self.routes) {
            sampled.routed_experts = Some(of_nemo_rl(shape, routes));
        }
        let delta = MessageDelta { stop_reason, stop_sequence, sampled, weight_versions, dropped_tool_calls };
        events.push(MessageEvent::MessageDelta { delta, usage: self.usage() });
        events.push(MessageEvent::MessageStop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_message_ends_with_depends_on_who_chose_to_call() {
        let named = ToolChoice::Named("f".to_owned());
        for (choice, called, finish, reason) in [
            (&ToolChoice::None, false, Finish::Eos, Some(StopReason::EndTurn)),
            (&ToolChoice::None, false, Finish::StopString("x".to_owned()), Some(StopReason::StopSequence)),
            (&ToolChoice::Auto, false, Finish::StopToken(1), Some(StopReason::EndTurn)),
            (&ToolChoice::Auto, true, Finish::StopString("x".to_owned()), Some(StopReason::ToolUse)),
            (&ToolChoice::Auto, true, Finish::Length, Some(StopReason::MaxTokens)),
            (&ToolChoice::Auto, true, Finish::Repetition, None),
            (&ToolChoice::Auto, true, Finish::Abort, None),
            (&ToolChoice::Required, true, Finish::Eos, Some(StopReason::ToolUse)),
            (&ToolChoice::Required, false, Finish::Eos, Some(StopReason::EndTurn)),
            (&named, true, Finish::Eos, Some(StopReason::ToolUse)),
            (&named, true, Finish::Length, Some(StopReason::MaxTokens)),
            (&named, false, Finish::StopString("x".to_owned()), Some(StopReason::StopSequence)),
            (&ToolChoice::None, false, Finish::Repetition, None),
        ] {
            assert_eq!(stop_reason(&finish, called, choice), reason, "{choice:?} {called} {finish:?}");
        }
    }
}
