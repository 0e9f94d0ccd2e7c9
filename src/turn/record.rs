//! Remembers answers as they end, for the turns that come after them.

use std::sync::Arc;

use futures::{Stream, TryStreamExt, future};

use crate::{
    TokenId,
    chat::{self, Content, ContentPart, Message},
    continuity::{Recorder, SharedTurn, TextRecorder},
    continuity_store::ContinuityStore,
    generation::{Delta, Event, WeightSpans},
    json::Object,
    parser::ToolCall,
};

/// The form in which a client has the text of an answer, and so in which it sends the text back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// As one string.
    Whole,
    /// As blocks, with reasoning and calls between them.
    Blocks,
}

/// The part of one answer that a client has so far.
#[derive(Default)]
struct Answer {
    text: String,
    /// The positions at which the text goes on after reasoning or a call.
    breaks: Vec<usize>,
    interrupted: bool,
    reasoning: Option<String>,
    tool_calls: Vec<ToolCall>,
    token_ids: Vec<TokenId>,
    weights: WeightSpans,
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
        self.weights.push(delta);
        self.token_ids.extend(delta.tokens.iter().map(|token| token.id));
    }

    /// Returns the text as blocks, if it is several.
    fn blocks(&self) -> Option<Content> {
        if self.breaks.is_empty() {
            return None;
        }
        let (mut parts, mut start) = (Vec::new(), 0);
        for end in self.breaks.iter().copied().chain([self.text.len()]) {
            parts.push(ContentPart::Text(self.text[start..end].to_owned()));
            start = end;
        }
        Some(Content::Parts(parts))
    }

    /// The messages as which the answer may be sent back: with its blocks joined to one text, as other dialects have it, and
    /// last as the client has it.
    fn into_messages(self, form: TextForm) -> (Vec<Message>, Vec<TokenId>) {
        let blocks = if form == TextForm::Blocks { self.blocks() } else { None };
        let content = Content::Text(self.text);
        let call = |call: ToolCall| chat::ToolCall {
            id: call.id,
            name: call.name,
            arguments: Some(call.arguments),
            function_extras: Object::default(),
            extras: Object::default(),
        };
        let tool_calls = Some(self.tool_calls.into_iter().map(call).collect());
        let whole = Message { content, tool_calls, reasoning: self.reasoning, ..Message::text("assistant", "") };
        let in_blocks = blocks.map(|content| Message { content, ..whole.clone() });
        (std::iter::once(whole).chain(in_blocks).collect(), self.token_ids)
    }
}

/// What remembers the answers to a prompt.
#[derive(Debug, Clone)]
pub(super) enum Remembering {
    /// As a message of a conversation, in the form in which the client has its text.
    Message(Arc<Recorder>, TextForm),
    /// As the text that goes on from the prompt's.
    Text(Arc<TextRecorder>),
}

impl Remembering {
    /// Remembers an answer, and returns what a store is to keep, where there is one.
    fn remember(&self, answer: Answer) -> Option<SharedTurn> {
        match self {
            Self::Message(recorder, form) => {
                let weights = answer.weights.latest();
                let (messages, token_ids) = answer.into_messages(*form);
                recorder.remember(messages, &token_ids, weights)
            }
            Self::Text(recorder) => {
                recorder.remember(&answer.text, &answer.token_ids);
                None
            }
        }
    }
}

/// Passes on the events of several answers, each of which is remembered before its last event goes out. `recorders` has
/// one entry for each answer, `None` where it is not to be remembered. The last event also waits until `store` has the
/// answer, for as long as that lets a turn wait.
pub(super) fn recorded<E>(
    events: impl Stream<Item = Result<(usize, Event), E>>,
    recorders: Vec<Option<Remembering>>,
    store: Option<Arc<ContinuityStore>>,
) -> impl Stream<Item = Result<(usize, Event), E>> {
    let mut answers: Vec<Answer> = std::iter::repeat_with(Answer::default).take(recorders.len()).collect();
    let mut remember = move |(index, event): &(usize, Event)| {
        let (Some(recorder), Event::Delta(delta)) = (&recorders[*index], event) else { return None };
        let answer = &mut answers[*index];
        answer.push(delta);
        if delta.finish.is_some() { recorder.remember(std::mem::take(answer)) } else { None }
    };
    events.and_then(move |item| {
        let shared = remember(&item).zip(store.clone());
        let Some((turn, store)) = shared else { return future::Either::Left(future::ok(item)) };
        future::Either::Right(async move {
            store.keep(turn).await;
            Ok(item)
        })
    })
}
