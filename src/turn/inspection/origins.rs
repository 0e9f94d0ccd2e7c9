//! Where ids came from: a template, a message, ids that were known, or the model.

use std::{ops::Range, sync::Arc};

use memchr::memmem;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::texts::Vocabulary;
use crate::{
    TokenId,
    trajectory::{ContinuityFound, Sequence, SequenceTurn},
};

/// Where ids came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The chat template wrote them.
    Template,
    /// They are the text of a message.
    Message,
    /// They stood in a prompt whose texts are not known.
    Prompt,
    /// They came as ids, and not from a turn that the trajectory has.
    Reused,
    /// The model sampled them in a turn of the trajectory.
    Sampled,
}

/// Ids that stand beside each other and came from the same place.
#[derive(Debug, Clone, PartialEq)]
pub struct OriginSpan {
    /// Which ids they are.
    pub range: Range<usize>,
    /// Where they came from.
    pub origin: Origin,
    /// Whose message they are the text of.
    pub role: Option<String>,
    /// The turn that brought them.
    pub turn: Arc<str>,
    /// By what they were known as ids: to the turn that brought them if they are reused, else to the turn that follows.
    pub source: Option<String>,
    /// What the weights are called that sampled them.
    pub weights: Option<Arc<str>>,
    /// Where an adapter sampled them, what the weights of the base are called.
    pub base: Option<Arc<str>>,
    /// The adapter that sampled them, with its version.
    pub adapter: Option<Arc<str>>,
}

/// The origins of a sequence's ids, without gaps.
pub(super) fn spans(sequence: &Sequence, mut vocabulary: Option<&mut Vocabulary<'_>>) -> Vec<OriginSpan> {
    let (mut spans, mut begun) = (Vec::new(), 0);
    for (index, turn) in sequence.turns.iter().enumerate() {
        let first = spans.len();
        let known = turn.generation.continuity.as_ref().filter(|found| found.reused > begun);
        let reused = known.map_or(begun, |found| found.reused.min(turn.start));
        if let Some(found) = known {
            spans.push(OriginSpan { source: Some(found.source.clone()), ..span(turn, begun..reused, Origin::Reused) });
        }
        let said = added_texts(turn);
        match &mut vocabulary {
            Some(vocabulary) if !said.is_empty() => {
                let ids = &sequence.token_ids[reused..turn.start];
                spans.extend(written(turn, vocabulary, ids, &said).into_iter().map(|found| moved(found, reused)));
            }
            _ => spans.push(span(turn, reused..turn.start, Origin::Prompt)),
        }
        spans.extend(sampled(turn));
        if let Some(next) = sequence.turns.get(index + 1).and_then(|turn| turn.generation.continuity.as_ref()) {
            let own = spans.split_off(first);
            spans.extend(own.into_iter().flat_map(|found| known_to(found, next)));
        }
        begun = turn.end;
    }
    spans.retain(|span| !span.range.is_empty());
    spans
}

fn span(turn: &SequenceTurn, range: Range<usize>, origin: Origin) -> OriginSpan {
    let turn = Arc::clone(&turn.place.id);
    OriginSpan { range, origin, role: None, turn, source: None, weights: None, base: None, adapter: None }
}

fn moved(found: OriginSpan, by: usize) -> OriginSpan {
    OriginSpan { range: found.range.start + by..found.range.end + by, ..found }
}

/// What a turn sampled, by the weights that did.
fn sampled(turn: &SequenceTurn) -> Vec<OriginSpan> {
    let whole = span(turn, turn.start..turn.end, Origin::Sampled);
    let adapter = turn.generation.adapter.as_ref().map(|adapter| Arc::clone(&adapter.label));
    let whole = OriginSpan { adapter, ..whole };
    let used = &turn.generation.weights;
    if used.is_empty() {
        return vec![whole];
    }
    let of = |used: &crate::trajectory::WeightsUsed| OriginSpan {
        range: turn.start + used.start..(turn.start + used.end).min(turn.end),
        weights: Some(Arc::clone(&used.version)),
        base: used.base_version.clone(),
        ..whole.clone()
    };
    used.iter().map(of).collect()
}

/// Says by what the turn that follows knew ids, as far as it did.
fn known_to(found: OriginSpan, next: &ContinuityFound) -> Vec<OriginSpan> {
    if found.origin == Origin::Reused || next.reused <= found.range.start {
        return vec![found];
    }
    let end = next.reused.min(found.range.end);
    let known = OriginSpan { range: found.range.start..end, source: Some(next.source.clone()), ..found.clone() };
    vec![known, OriginSpan { range: end..found.range.end, ..found }]
}

/// A text of a message, and whose it is.
struct MessageText {
    role: String,
    text: String,
}

/// A message as it is kept; what else it has does not matter here.
#[derive(Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    reasoning: Option<String>,
}

/// The texts that a turn's prompt adds. The answer that it continues stands in front of its messages, and not in what its
/// prompt adds.
fn added_texts(turn: &SequenceTurn) -> Vec<MessageText> {
    let continues = turn.place.parent.is_some();
    let messages = turn.generation.messages.iter().filter_map(read);
    let added = messages.skip_while(|message| continues && message.role == "assistant");
    let texts = added.flat_map(|message| {
        let Message { role, content, reasoning } = message;
        let texts = reasoning.into_iter().chain(texts(content)).filter(|text| !text.trim().is_empty());
        texts.map(|text| MessageText { role: role.clone(), text }).collect::<Vec<_>>()
    });
    texts.collect()
}

fn read(message: &Arc<RawValue>) -> Option<Message> {
    serde_json::from_str(message.get()).ok()
}

/// The texts of a content, in order.
fn texts(content: Value) -> Vec<String> {
    match content {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts.into_iter().flat_map(texts).collect(),
        Value::Object(mut part) => match part.remove("text") {
            Some(Value::String(text)) => vec![text],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Finds the texts of messages, one behind the other, in what the template wrote. A text that is not there as it was sent,
/// nor without the blanks around it, is the template's own for all that can be told.
fn written(
    turn: &SequenceTurn,
    vocabulary: &mut Vocabulary<'_>,
    ids: &[TokenId],
    said: &[MessageText],
) -> Vec<OriginSpan> {
    let (bytes, ends) = vocabulary.all(ids);
    let (mut spans, mut from, mut next) = (Vec::new(), 0, 0);
    for MessageText { role, text } in said {
        let find =
            |text: &str| memmem::find(&bytes[from..], text.as_bytes()).map(|at| from + at..from + at + text.len());
        let Some(found) = find(text).or_else(|| find(text.trim())) else { continue };
        from = found.end;
        // Every id that has a byte of the text.
        let first = next + ends[next..].partition_point(|end| *end <= found.start);
        let last = next + ends[next..].partition_point(|end| *end < found.end);
        let last = (last + 1).min(ids.len());
        if first >= last {
            continue;
        }
        spans.push(span(turn, next..first, Origin::Template));
        spans.push(OriginSpan { role: Some(role.clone()), ..span(turn, first..last, Origin::Message) });
        next = last;
    }
    spans.push(span(turn, next..ids.len(), Origin::Template));
    spans
}
