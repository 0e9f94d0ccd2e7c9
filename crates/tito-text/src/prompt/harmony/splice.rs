//! Known ids, then what follows the message that they end with.
//!
//! Harmony's messages are known one by one, so that nothing has to be found out by rendering: what closes the message of
//! an assistant is a token of the format, and the messages after it do not depend on what stands before them, the date in
//! the system message least of all.

use super::{Harmony, marks::Mark, spoken::Spoken};
use crate::{
    TokenId,
    chat::{Content, ContentPart, Message},
    prompt::{
        ChatPrompt, PromptError, UnprovableSplice,
        comparison::decode,
        splice::{Joined, join as join_ids},
    },
    tokenizer::{Extent, Tokenizer},
};

/// Everything that known ids are continued with.
#[derive(Clone, Copy)]
pub(super) struct Continued<'a> {
    pub(super) harmony: &'a Harmony,
    pub(super) prompt: &'a ChatPrompt,
    /// The messages of the whole conversation.
    pub(super) spoken: &'a [Spoken],
    /// The ids that the model saw and sampled.
    pub(super) known: &'a [TokenId],
    /// How many of the last were sampled, at the most.
    pub(super) sampled: usize,
    pub(super) tokenizer: &'a Tokenizer,
}

/// A message in ids, from its start on.
struct Segment<'k> {
    ids: &'k [TokenId],
    author: String,
}

impl Continued<'_> {
    /// Joins the known ids, which end with message `anchor` of the request, with everything after it.
    pub(super) fn join(&self, anchor: usize, stops: &[TokenId]) -> Result<Joined, PromptError> {
        let Self { harmony, spoken, known, tokenizer, .. } = *self;
        let message = &self.prompt.messages[anchor];
        let is_shown = message.role.is_assistant() || spoken.iter().any(|spoken| spoken.source == Some(anchor));
        if !is_shown {
            return Err(PromptError::Unprovable(UnprovableSplice::AnchorNotRendered));
        }
        let later = spoken.iter().position(|spoken| spoken.source.is_some_and(|source| source > anchor));
        let later = harmony.ids(&spoken[later.unwrap_or(spoken.len())..], tokenizer, Extent::Whole)?;
        let suffix = [vec![harmony.id(close_of(message))], later, harmony.opening(tokenizer)?].concat();
        let (before, sampled) = known.split_at(known.len() - self.sampled);
        Ok(join_ids(before, sampled, &suffix, 1, stops))
    }

    /// Finds the one of `assistants` that the known ids end with: the one before which as many messages of others stand as
    /// in the ids, of which the last is the same, and whose text the ids after that have. If another one fits too, there is
    /// none.
    pub(super) fn find_anchor(&self, assistants: &[usize]) -> Result<usize, PromptError> {
        let segments = self.segments()?;
        if segments.is_empty() {
            // The ids show no conversation at all, so nothing speaks against what the client says.
            return Ok(assistants[assistants.len() - 1]);
        }
        let lead = segments.iter().take_while(|segment| instructs(&segment.author)).count();
        let others: Vec<usize> = (lead..segments.len()).filter(|&at| segments[at].author != "assistant").collect();
        let after = others.last().map_or(lead, |last| last + 1);
        let said: Vec<TokenId> = segments[after..].iter().flat_map(|segment| segment.ids).copied().collect();
        let said = decode(self.tokenizer, &said, false)?;
        let last = others.last().map(|&last| segments[last].ids);
        let mut found = Vec::new();
        for &candidate in assistants {
            let text = said_by(&self.prompt.messages[candidate]).trim();
            if said.contains(text) && self.follows(candidate, others.len(), last)? {
                found.push(candidate);
            }
        }
        match found[..] {
            [only] => Ok(only),
            _ => Err(PromptError::Unprovable(UnprovableSplice::AnchorNotFound)),
        }
    }

    /// Whether `count` messages of others than the model stand before message `candidate`, after the instructions that the
    /// conversation begins with, and whether the last of them has the ids `last`.
    fn follows(&self, candidate: usize, count: usize, last: Option<&[TokenId]>) -> Result<bool, PromptError> {
        let is_before = |message: &&Spoken| message.source.is_some_and(|source| source < candidate);
        let before = self.spoken.iter().skip_while(|message| instructs(&message.author));
        let before: Vec<&Spoken> = before.filter(is_before).filter(|message| !message.is_by_assistant()).collect();
        if before.len() != count {
            return Ok(false);
        }
        let ids = |message: &&Spoken| self.harmony.ids(std::slice::from_ref(*message), self.tokenizer, Extent::Whole);
        Ok(before.last().map(ids).transpose()?.as_deref() == last)
    }

    /// The known messages, one after the other.
    fn segments(&self) -> Result<Vec<Segment<'_>>, PromptError> {
        let id = |mark| self.harmony.id(mark);
        let starts = |(place, &token): (usize, &TokenId)| (token == id(Mark::Start)).then_some(place);
        let places: Vec<usize> = self.known.iter().enumerate().filter_map(starts).collect();
        let ends = places.iter().skip(1).copied().chain([self.known.len()]);
        let segment = |(&from, to): (&usize, usize)| {
            let ids = &self.known[from..to];
            let header = &ids[1..];
            let ends = [id(Mark::Channel), id(Mark::Message)];
            let length = header.iter().position(|id| ends.contains(id)).unwrap_or(header.len());
            let author = decode(self.tokenizer, &header[..length], false)?;
            let author = author.split(" to=").next().unwrap_or_default().to_owned();
            Ok(Segment { ids, author })
        };
        places.iter().zip(ends).map(segment).collect()
    }
}

/// Whether it is a message of instructions.
fn instructs(author: &str) -> bool {
    matches!(author, "system" | "developer")
}

/// The token that ends the last message of Harmony that a message becomes.
fn close_of(message: &Message) -> Mark {
    if message.makes_calls() { Mark::Call } else { Mark::End }
}

/// The last text that a message says.
fn said_by(message: &Message) -> &str {
    match &message.content {
        Content::Empty => "",
        Content::Text(text) => text,
        Content::Parts(parts) => parts.last().map_or("", |part| match part {
            ContentPart::Text(text) => text,
            ContentPart::Object { fields, .. } => fields.get("text").and_then(|text| text.as_str()).unwrap_or_default(),
            ContentPart::Image(_) => "",
        }),
    }
}
