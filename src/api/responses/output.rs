//! Turns a generation's events into items, and into the events that report them. A JSON answer is the response of the
//! last event.
//!
//! Items stand in vLLM's order: reasoning, text, then calls. A call is whole when it has been parsed, and waits for the
//! end of the generation, so that it is known which item is the last: that one carries the ids.

use std::{mem, sync::Arc};

use super::{
    names::{CallNames, SpokenName},
    tools::custom_input,
};
use crate::{
    TokenId,
    engine::SampledToken,
    generation::{Completion, Delta, Event, Finish},
    parser::ToolCall,
    state::Api,
    wire::{
        answer::{
            output::{TokenSpelling, shown_alternatives},
            weight_versions::weight_versions,
        },
        error::ApiError,
        responses::{
            events::StreamEvent,
            types::{
                ContentPart, IncompleteDetails, InputTokensDetails, ItemKind, ItemTokens, Logprob, OutputItem,
                OutputTokensDetails, RawMessage, ResponseObject, ResponseUsage, Status, TopLogprob,
            },
        },
    },
};

/// The choices of a request about what its answer shows besides items.
#[derive(Debug, Clone)]
pub(super) struct ShownInResponse {
    /// Whether the last item shows the ids.
    pub(super) token_ids: bool,
    /// How the log-probs of the text are shown; `None` if they are not.
    pub(super) logprobs: Option<ShownLogprobs>,
    /// Whether the answer is also shown as text and ids.
    pub(super) messages: bool,
    /// Whether the response says which weights sampled which tokens.
    pub(super) weight_versions: bool,
    /// The number of tokens in a delta.
    pub(super) stream_interval: usize,
    /// The names that the tools have in calls.
    pub(super) names: CallNames,
}

/// How log-probs are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShownLogprobs {
    /// The number of alternatives of each token; `None` for all that were reported.
    pub(super) top: Option<usize>,
    /// Whether tokens are named by their ids.
    pub(super) as_ids: bool,
}

/// Makes a fresh id in vLLM's form.
pub(super) fn fresh_id(prefix: &str) -> String {
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("{prefix}_{}", &random[..16])
}

/// The item that is being written.
struct OpenItem {
    id: String,
    text: String,
    /// The end of the text, which no event has reported yet.
    untold: String,
    /// Whether the item is reasoning, rather than text.
    reasoning: bool,
    /// The index of its first token.
    from: usize,
}

/// Writes one response.
pub(super) struct Writer {
    api: Arc<Api>,
    response: ResponseObject,
    prompt_token_ids: Arc<[TokenId]>,
    shown: ShownInResponse,
    completion: Completion,
    /// The number of tokens before those that were added last. An item that is followed by another one ends there.
    before: usize,
    /// The number of tokens up to the mark that ended the last thoughts, if one did.
    thoughts_end: Option<usize>,
    open: Option<OpenItem>,
    /// The number of tokens that events have reported.
    told: usize,
    /// Whether later turns start with the ids.
    keeps_ids: bool,
    events: Vec<StreamEvent>,
}

/// A response that has ended.
pub(super) struct Written {
    /// The events that have not been sent yet; the last one reports the response.
    pub(super) events: Vec<StreamEvent>,
    /// The response as the client gets it.
    pub(super) response: ResponseObject,
    /// The items of the response, with their ids.
    pub(super) items: Vec<OutputItem>,
}

impl Writer {
    /// Makes a writer of the answer, which starts as `response`.
    pub(super) fn new(
        api: Arc<Api>,
        response: ResponseObject,
        prompt_token_ids: Arc<[TokenId]>,
        shown: ShownInResponse,
    ) -> Self {
        Self {
            api,
            response,
            prompt_token_ids,
            shown,
            completion: Completion::default(),
            before: 0,
            thoughts_end: None,
            open: None,
            told: 0,
            keeps_ids: true,
            events: Vec::new(),
        }
    }

    /// Forgets the ids: they are not those of the whole conversation, with which later turns start.
    pub(super) fn forget_ids(&mut self) {
        self.keeps_ids = false;
    }

    /// Returns the response so far.
    pub(super) fn response(&self) -> &ResponseObject {
        &self.response
    }

    /// Returns the events that come before all others.
    pub(super) fn begin(&mut self) -> Vec<StreamEvent> {
        self.response.status = Status::InProgress;
        let response = Box::new(self.response.clone());
        vec![StreamEvent::Created { response: response.clone() }, StreamEvent::InProgress { response }]
    }

    /// Adds one event of the generation.
    pub(super) fn push(&mut self, event: Event) -> Result<Vec<StreamEvent>, ApiError> {
        let (reasoning, text) = match &event {
            Event::Delta(delta) => (delta.reasoning.clone().unwrap_or_default(), delta.text.clone()),
            Event::Prompt(_) => Default::default(),
        };
        self.before = self.completion.tokens.len();
        if let Event::Delta(Delta { thoughts_end: Some(end), .. }) = &event {
            self.thoughts_end = Some(self.before + end);
        }
        self.completion.push(event);
        self.add(true, &reasoning)?;
        self.add(false, &text)?;
        Ok(mem::take(&mut self.events))
    }

    /// Ends the response.
    pub(super) fn finish(mut self) -> Result<Written, ApiError> {
        let calls = mem::take(&mut self.completion.tool_calls);
        self.before = self.completion.tokens.len();
        if self.open.is_none() && self.response.output.is_empty() && calls.is_empty() {
            self.open(false);
        }
        let last_call = calls.len().checked_sub(1);
        if last_call.is_some() || self.open.is_some() {
            self.close(last_call.is_none())?;
        }
        for (index, call) in calls.into_iter().enumerate() {
            self.call(call, Some(index) == last_call);
        }
        let mut items = self.response.output.clone();
        if let Some(last) = items.last_mut() {
            last.tokens = self.keeps_ids.then(|| self.tokens());
        }
        self.conclude()?;
        let response = Box::new(self.response.clone());
        self.events.push(match response.status {
            Status::Incomplete => StreamEvent::Incomplete { response },
            _ => StreamEvent::Completed { response },
        });
        Ok(Written { events: self.events, response: self.response, items })
    }

    /// Sets the status and the usage.
    fn conclude(&mut self) -> Result<(), ApiError> {
        let finish = self.completion.finish.as_ref().ok_or_else(|| ApiError::internal("a response did not end"))?;
        self.response.status = match finish {
            Finish::Length | Finish::Repetition => Status::Incomplete,
            Finish::Abort => Status::Cancelled,
            Finish::Eos | Finish::StopToken(_) | Finish::StopString(_) => Status::Completed,
        };
        self.response.incomplete_details = match finish {
            Finish::Length => Some(IncompleteDetails { reason: "max_output_tokens" }),
            Finish::Repetition => Some(IncompleteDetails { reason: "repetition" }),
            _ => None,
        };
        let (input, output) = (self.prompt_token_ids.len(), self.completion.tokens.len());
        // The number is always reported, as in vLLM, even if nothing was cached.
        let cached_tokens = self.completion.prompt.as_ref().map_or(0, |prompt| prompt.cached_tokens);
        let reasoning_tokens = self.completion.reasoning_tokens;
        self.response.usage = Some(ResponseUsage {
            input_tokens: input,
            input_tokens_details: InputTokensDetails { cached_tokens, ..InputTokensDetails::default() },
            output_tokens: output,
            output_tokens_details: OutputTokensDetails { reasoning_tokens, ..OutputTokensDetails::default() },
            total_tokens: input + output,
        });
        self.response.metrics = self.api.metrics([(self.completion.times, output)].into_iter());
        self.response.weight_versions = self.shown.weight_versions.then(|| weight_versions(&self.completion.weights));
        self.response.dropped_tool_calls = mem::take(&mut self.completion.dropped_calls);
        if self.shown.messages {
            let tokens = self.completion.token_ids();
            let message = self.api.turns.tokenizer().decode(&tokens, true)?;
            self.response.output_messages = Some(vec![RawMessage { message, tokens, kind: "raw_message_tokens" }]);
        }
        Ok(())
    }

    fn tokens(&self) -> ItemTokens {
        ItemTokens {
            prompt_token_ids: self.prompt_token_ids.to_vec(),
            generation_token_ids: self.completion.token_ids(),
            generation_log_probs: self.completion.tokens.iter().map(|token| token.logprob).collect(),
            routed_experts: self.api.routed_experts_of_message(self.completion.routes.as_ref()),
        }
    }

    /// Returns the index of the item that is being written, or of the next one.
    fn output_index(&self) -> usize {
        self.response.output.len()
    }

    fn open(&mut self, reasoning: bool) {
        // Thoughts that say nothing have no item.
        self.told = self.told.max(self.thoughts_end.unwrap_or_default());
        let open = OpenItem {
            id: fresh_id(if reasoning { "rs" } else { "msg" }),
            text: String::new(),
            untold: String::new(),
            reasoning,
            from: self.told,
        };
        let output_index = self.output_index();
        let item = open.item(Vec::new(), Status::InProgress);
        self.events.push(StreamEvent::ItemAdded { item: Box::new(item), output_index });
        let (item_id, part) = (open.id.clone(), open.part(Some(Vec::new())));
        self.events.push(StreamEvent::PartAdded { item_id, output_index, content_index: 0, part });
        self.open = Some(open);
    }

    fn add(&mut self, reasoning: bool, delta: &str) -> Result<(), ApiError> {
        if delta.is_empty() {
            return Ok(());
        }
        if self.open.as_ref().is_some_and(|open| open.reasoning != reasoning) {
            self.close(false)?;
        }
        if self.open.is_none() {
            self.open(reasoning);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        open.text.push_str(delta);
        let begins = open.text.len() == delta.len();
        open.untold.push_str(delta);
        let sampled = self.completion.tokens.len();
        if begins || sampled - self.told >= self.shown.stream_interval {
            let up_to = if reasoning { self.thoughts_up_to(sampled) } else { sampled };
            return self.tell(up_to);
        }
        Ok(())
    }

    /// The end of the tokens of thoughts: their mark, if that has come, or else `sampled`. The text after it may lag behind.
    fn thoughts_up_to(&self, sampled: usize) -> usize {
        self.thoughts_end.filter(|&end| end >= self.told).unwrap_or(sampled)
    }

    /// Reports the rest of the item's text, and the item's tokens up to `up_to`.
    fn tell(&mut self, up_to: usize) -> Result<(), ApiError> {
        let output_index = self.output_index();
        let Some(open) = &mut self.open else { return Ok(()) };
        // Tokens without text have log-probs too.
        let shows_tokens = !open.reasoning && self.shown.logprobs.is_some() && self.told < up_to;
        if open.untold.is_empty() && !shows_tokens {
            return Ok(());
        }
        let (item_id, delta, reasoning) = (open.id.clone(), mem::take(&mut open.untold), open.reasoning);
        let told = mem::replace(&mut self.told, up_to);
        self.events.push(if reasoning {
            StreamEvent::ReasoningDelta { item_id, output_index, content_index: 0, delta }
        } else {
            let logprobs = self.logprobs(told, up_to)?.unwrap_or_default();
            StreamEvent::TextDelta { item_id, output_index, content_index: 0, delta, logprobs }
        });
        Ok(())
    }

    /// Ends the item that is being written; the last item carries the ids.
    fn close(&mut self, last: bool) -> Result<(), ApiError> {
        let is_reasoning = self.open.as_ref().is_some_and(|open| open.reasoning);
        let up_to = if is_reasoning { self.thoughts_up_to(self.before) } else { self.before }.max(self.told);
        self.tell(up_to)?;
        let Some(open) = self.open.take() else { return Ok(()) };
        let logprobs = if open.reasoning { None } else { self.logprobs(open.from, up_to)? };
        self.told = up_to;
        let output_index = self.output_index();
        let (item_id, text) = (open.id.clone(), open.text.clone());
        self.events.push(if open.reasoning {
            StreamEvent::ReasoningDone { item_id, output_index, content_index: 0, text }
        } else {
            let logprobs = logprobs.clone().unwrap_or_default();
            StreamEvent::TextDone { item_id, output_index, content_index: 0, text, logprobs }
        });
        let part = open.part(logprobs);
        let item_id = open.id.clone();
        self.events.push(StreamEvent::PartDone { item_id, output_index, content_index: 0, part: part.clone() });
        self.done(open.item(vec![part], self.item_status(last)), last);
        Ok(())
    }

    /// Returns the status of an item that has ended: only the last one can have been cut off.
    fn item_status(&self, last: bool) -> Status {
        let finish = self.completion.finish.as_ref();
        let is_cut = last && matches!(finish, Some(Finish::Length | Finish::Repetition | Finish::Abort));
        if is_cut { Status::Incomplete } else { Status::Completed }
    }

    /// Writes a call, which is always whole.
    fn call(&mut self, call: ToolCall, last: bool) {
        let output_index = self.output_index();
        let SpokenName { namespace, name, is_custom } = self.shown.names.spoken(&call.name);
        // What is no text, or was cut off, would not come back as the same arguments: it is told as any function's call.
        let input = if is_custom { custom_input(&call.arguments) } else { None };
        let is_custom = input.is_some();
        let (id, said) = input.map_or_else(|| (fresh_id("fc"), call.arguments), |input| (fresh_id("ctc"), input));
        let item = |said: String, status| OutputItem {
            id: id.clone(),
            kind: if is_custom {
                let (call_id, name, namespace) = (call.id.clone(), name.clone(), namespace.clone());
                ItemKind::CustomToolCall { call_id, name, input: said, namespace, status }
            } else {
                ItemKind::FunctionCall {
                    arguments: said,
                    call_id: call.id.clone(),
                    name: name.clone(),
                    is_async: None,
                    caller: None,
                    namespace: namespace.clone(),
                    status,
                }
            },
            tokens: None,
        };
        let added = item(String::new(), Status::InProgress);
        self.events.push(StreamEvent::ItemAdded { item: Box::new(added), output_index });
        let (item_id, delta) = (id.clone(), said.clone());
        let told = if is_custom {
            let delta = StreamEvent::CustomInputDelta { item_id: item_id.clone(), output_index, delta };
            [delta, StreamEvent::CustomInputDone { item_id, output_index, input: said.clone() }]
        } else {
            let delta = StreamEvent::ArgumentsDelta { item_id: item_id.clone(), output_index, delta };
            let (name, arguments) = (name.clone(), said.clone());
            [delta, StreamEvent::ArgumentsDone { item_id, output_index, name, arguments }]
        };
        self.events.extend(told);
        let item = item(said, self.item_status(last));
        self.done(item, last);
    }

    fn done(&mut self, item: OutputItem, last: bool) {
        let tokens = (last && self.shown.token_ids && self.keeps_ids).then(|| self.tokens());
        let item = OutputItem { tokens, ..item };
        let output_index = self.output_index();
        self.response.output.push(item.clone());
        self.events.push(StreamEvent::ItemDone { item: Box::new(item), output_index });
    }

    /// Returns the log-probs of the tokens in a range, if they are shown.
    fn logprobs(&self, from: usize, up_to: usize) -> Result<Option<Vec<Logprob>>, ApiError> {
        let Some(shown) = self.shown.logprobs else { return Ok(None) };
        let tokens = self.completion.tokens.get(from..up_to).unwrap_or_default();
        tokens.iter().map(|token| self.logprob(token, shown)).collect::<Result<_, _>>().map(Some)
    }

    fn logprob(&self, token: &SampledToken, shown: ShownLogprobs) -> Result<Logprob, ApiError> {
        let tokenizer = self.api.turns.tokenizer();
        let spelling = TokenSpelling { tokenizer, as_ids: shown.as_ids };
        let named = |id, logprob| {
            Ok::<_, ApiError>(TopLogprob { token: spelling.name(id)?, logprob, bytes: spelling.bytes(id)? })
        };
        let alternatives = shown_alternatives(token, shown.top);
        let top_logprobs = alternatives.into_iter().map(|other| named(other.id, other.logprob));
        Ok(Logprob { token: named(token.id, token.logprob)?, top_logprobs: top_logprobs.collect::<Result<_, _>>()? })
    }
}

impl OpenItem {
    fn part(&self, logprobs: Option<Vec<Logprob>>) -> ContentPart {
        let text = self.text.clone();
        if self.reasoning {
            return ContentPart::ReasoningText { text };
        }
        ContentPart::OutputText { annotations: [], text, logprobs }
    }

    fn item(&self, content: Vec<ContentPart>, status: Status) -> OutputItem {
        let kind = if self.reasoning {
            // A finished item of reasoning has no status, as in vLLM.
            let status = (status != Status::Completed).then_some(status);
            ItemKind::Reasoning { summary: [], content, encrypted_content: None, status }
        } else {
            ItemKind::Message { content, role: "assistant", status, phase: None }
        };
        OutputItem { id: self.id.clone(), kind, tokens: None }
    }
}
