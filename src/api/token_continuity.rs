//! What became of the ids of earlier turns, on the wire; and remembering answers as they end.

use axum::{
    http::{HeaderName, HeaderValue},
    response::{IntoResponse, Response},
};
use futures::{Stream, TryStreamExt};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    TokenId,
    chat::{self, Content, ContentPart, Message},
    continuity::{Outcome, Recorder, Verdict},
    generation::{Delta, Event},
    json::Object,
    parser::ToolCall,
};

/// What became of the ids of earlier turns, see docs/token-continuity.md.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct TokenContinuity {
    /// Where the known ids came from: `none`, `message`, `required_prefix`, `cache` or `prompt_override`.
    source: &'static str,
    /// `fresh`, `exact`, `partial`, `unproven` or `retokenized`.
    outcome: &'static str,
    /// Why the latest assistant message was not continued from its ids.
    reason: Option<&'static str>,
    /// The index of the message that the known ids end with.
    anchor: Option<usize>,
    /// Known ids at the start of the prompt.
    reused_ids: usize,
    /// Ids behind them.
    new_ids: usize,
    /// `anchored_tail`, `open_message`, `eos_count` or `whole_prompt`.
    proof: Option<&'static str>,
    /// How the cache found the ids: by `session`, `tool_call` or `messages`.
    matched_by: Option<&'static str>,
    /// What speaks against the known ids.
    warnings: Vec<&'static str>,
    /// Whether encoding the whole conversation would have given other ids; null unless asked for.
    drift: Option<Drift>,
}

/// What encoding the whole conversation would have given.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
struct Drift {
    /// Whether it would have been other ids.
    differs: bool,
    /// The first position that differs.
    position: Option<usize>,
}

impl From<&Verdict> for TokenContinuity {
    fn from(verdict: &Verdict) -> Self {
        Self {
            source: verdict.source.into(),
            outcome: verdict.outcome.into(),
            reason: verdict.reason,
            anchor: verdict.anchor,
            reused_ids: verdict.reused,
            new_ids: verdict.new,
            proof: verdict.proof.map(Into::into),
            matched_by: verdict.matched_by.map(Into::into),
            warnings: verdict.warnings.iter().map(Into::into).collect(),
            drift: verdict.drift.map(|drift| Drift { differs: drift.position.is_some(), position: drift.position }),
        }
    }
}

const HEADER: HeaderName = HeaderName::from_static("x-token-continuity");

impl TokenContinuity {
    /// `cache; outcome=exact; reused=812; new=31; anchor=3`, then what else there is.
    fn header(&self) -> String {
        let mut text =
            format!("{}; outcome={}; reused={}; new={}", self.source, self.outcome, self.reused_ids, self.new_ids);
        let anchor = self.anchor.map(|anchor| anchor.to_string());
        let warnings = (!self.warnings.is_empty()).then(|| self.warnings.join(","));
        let reason = self.reason.map(str::to_owned);
        for (name, value) in [("anchor", anchor), ("reason", reason), ("warnings", warnings)] {
            text.extend(value.map(|value| format!("; {name}={value}")));
        }
        text
    }

    /// Whether there was a turn to continue.
    pub(super) fn says_something(&self) -> bool {
        self.outcome != <&str>::from(Outcome::Fresh)
    }

    /// The response, with the verdict in short in its header.
    pub(super) fn announce(&self, response: impl IntoResponse) -> Response {
        let mut response = response.into_response();
        if let Ok(value) = HeaderValue::from_str(&self.header()) {
            response.headers_mut().insert(HEADER, value);
        }
        response
    }
}

/// What a client has of one answer so far.
#[derive(Default)]
struct Answer {
    text: String,
    /// Where the text goes on behind a thought or a call.
    breaks: Vec<usize>,
    interrupted: bool,
    reasoning: Option<String>,
    tool_calls: Vec<ToolCall>,
    token_ids: Vec<TokenId>,
}

impl Answer {
    fn push(&mut self, delta: &Delta) {
        if let Some(reasoning) = &delta.reasoning {
            self.interrupted |= !reasoning.is_empty();
            self.reasoning.get_or_insert_default().push_str(reasoning);
        }
        if !delta.text.is_empty() {
            if std::mem::take(&mut self.interrupted) && !self.text.is_empty() {
                self.breaks.push(self.text.len());
            }
            self.text.push_str(&delta.text);
        }
        self.interrupted |= !delta.tool_calls.is_empty();
        self.tool_calls.extend(delta.tool_calls.iter().cloned());
        self.token_ids.extend(delta.tokens.iter().map(|token| token.id));
    }

    /// Makes the pieces of the text parts of the message, for the dialect that has them as blocks.
    fn content(&self) -> Content {
        let (mut parts, mut start) = (Vec::new(), 0);
        for end in self.breaks.iter().copied().chain([self.text.len()]) {
            parts.push(ContentPart::Text(self.text[start..end].to_owned()));
            start = end;
        }
        Content::Parts(parts)
    }

    fn into_message(self) -> (Message, Vec<TokenId>) {
        let call = |call: ToolCall| chat::ToolCall {
            id: call.id,
            name: call.name,
            arguments: Some(call.arguments),
            function_extras: Object::new(),
            extras: Object::new(),
        };
        let tool_calls = Some(self.tool_calls.into_iter().map(call).collect());
        let message = Message { tool_calls, reasoning: self.reasoning, ..Message::text("assistant", self.text) };
        (message, self.token_ids)
    }
}

/// The events of `n` answers, each of which is remembered before its last event goes out.
pub(super) fn recorded<E>(
    events: impl Stream<Item = Result<(usize, Event), E>>,
    recorder: Option<Recorder>,
    n: usize,
) -> impl Stream<Item = Result<(usize, Event), E>> {
    remembered(events, vec![recorder], n, |_| None)
}

/// The events of one answer for each of `recorders`, likewise.
pub(super) fn recorded_each<E>(
    events: impl Stream<Item = Result<(usize, Event), E>>,
    recorders: Vec<Option<Recorder>>,
) -> impl Stream<Item = Result<(usize, Event), E>> {
    let n = recorders.len();
    remembered(events, recorders, n, |_| None)
}

/// The events of one answer whose client has its text in blocks, between which are thoughts and calls.
pub(super) fn recorded_in_blocks<E>(
    events: impl Stream<Item = Result<(usize, Event), E>>,
    recorder: Option<Recorder>,
) -> impl Stream<Item = Result<(usize, Event), E>> {
    remembered(events, vec![recorder], 1, |answer| (!answer.breaks.is_empty()).then(|| answer.content()))
}

/// `recorders` has one for each answer, or one for all of them.
fn remembered<E>(
    events: impl Stream<Item = Result<(usize, Event), E>>,
    recorders: Vec<Option<Recorder>>,
    n: usize,
    in_parts: fn(&Answer) -> Option<Content>,
) -> impl Stream<Item = Result<(usize, Event), E>> {
    let mut answers: Vec<Answer> = std::iter::repeat_with(Answer::default).take(n).collect();
    events.inspect_ok(move |(index, event)| {
        let recorder = recorders.get(*index).or(recorders.first()).and_then(Option::as_ref);
        let (Some(recorder), Event::Delta(delta)) = (recorder, event) else { return };
        let answer = &mut answers[*index];
        answer.push(delta);
        if delta.finish.is_some() {
            let answer = std::mem::take(answer);
            let content = in_parts(&answer);
            let (mut message, token_ids) = answer.into_message();
            message.content = content.unwrap_or(message.content);
            recorder.remember(message, &token_ids);
        }
    })
}
