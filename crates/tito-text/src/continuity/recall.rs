//! Finding a conversation in the cache.

use std::sync::Arc;

use super::{
    Carriers, Gap, MatchedBy, Warning,
    fingerprint::{Fingerprint, Fingerprints},
    lookup::{Lookup, Scope},
    memory::{Memory, Origin, Recall},
    shared::Namespace,
    turn::{Turn, are_two},
};
use crate::{TokenId, chat::Message, prompt::ChatPrompt};

/// What the cache has for a conversation.
#[derive(Debug, Default)]
pub(super) struct Recalled {
    /// The latest turn that is known: the index of its message, how it was recognised, its ids.
    pub(super) turn: Option<(usize, MatchedBy, Arc<Turn>)>,
    /// Why a later assistant message is not known.
    pub(super) gap: Option<Gap>,
}

/// The key of a turn: a conversation up to and including an assistant message, and what that thought, if it is told.
pub(super) fn turn_key(
    scope: Scope,
    through: Fingerprint,
    context: Fingerprint,
    thought: Option<Fingerprint>,
) -> Fingerprint {
    let purpose: &[u8] = if thought.is_some() { b"turn with thought" } else { b"turn" };
    let parts = [scope.fingerprint(), through, context];
    Fingerprint::joined(purpose, &[&parts, thought.as_slice()].concat())
}

/// The key that all turns of a conversation share, whatever their tools and template variables.
pub(super) fn any_context_key(scope: Scope, through: Fingerprint, thought: Option<Fingerprint>) -> Fingerprint {
    let purpose: &[u8] = if thought.is_some() { b"any context with thought" } else { b"any context" };
    Fingerprint::joined(purpose, &[&[scope.fingerprint(), through], thought.as_slice()].concat())
}

/// Ids as they are known under a salt: whoever brings ids of another salt learns nothing of where they come from.
pub(super) fn under(salt: Fingerprint, ids: Fingerprint) -> Fingerprint {
    Fingerprint::joined(b"ids under a salt", &[salt, ids])
}

/// The fingerprint of what a message thought, if it says so.
pub(super) fn thought(message: &Message) -> Option<Fingerprint> {
    let reasoning = message.reasoning.as_deref().filter(|reasoning| !reasoning.is_empty());
    reasoning.map(|reasoning| Fingerprint::of_text(b"thought", reasoning))
}

/// Whether an assistant message makes calls whose ids no other answer has. Some models write the ids of their calls themselves, and
/// write the same in every conversation: `functions.f:0` (Kimi K2), `0` (Cohere's).
pub(super) fn makes_unique_calls(message: &Message) -> bool {
    let is_counted = |id: &str| {
        let number = id.rsplit_once(':').map_or(id, |(_, number)| number);
        number.chars().all(char::is_numeric)
    };
    message.tool_calls.iter().flatten().any(|call| !is_counted(&call.id))
}

impl Lookup {
    pub(super) fn new(
        memory: &Arc<Memory>,
        namespace: Option<Namespace>,
        prompt: &ChatPrompt,
        carriers: &Carriers,
    ) -> Self {
        let assistants = prompt.messages.iter().filter(|message| message.role.is_assistant());
        let salt = Fingerprint::of_salt(carriers.salt.as_deref(), carriers.adapter.as_deref());
        Self {
            memory: Arc::clone(memory),
            namespace,
            scope: Scope::of(carriers.session.as_deref(), salt),
            salt,
            fingerprints: Fingerprints::of(prompt, salt),
            thoughts: assistants.map(thought).collect(),
            parent: None,
            own: true,
        }
    }

    /// The latest turn of the conversation that is remembered. Earlier ones are looked up too, which keeps them.
    pub(super) fn recall(&self, prompt: &ChatPrompt) -> Recalled {
        let mut recalled = Recalled::default();
        let assistants: Vec<usize> = prompt.assistants().collect();
        for (number, anchor) in assistants.into_iter().enumerate().rev() {
            let found = self.recall_turn(&prompt.messages[anchor], anchor, &self.thoughts[..=number]);
            if recalled.turn.is_some() {
                continue;
            }
            match found {
                Ok((matched_by, turn)) => recalled.turn = Some((anchor, matched_by, turn)),
                Err(gap) => recalled.gap = recalled.gap.max(Some(gap)),
            }
        }
        let outcome = match &recalled {
            Recalled { gap: None, .. } => "hit",
            Recalled { turn: Some(_), .. } => "earlier",
            Recalled { gap: Some(gap), .. } => <&str>::from(gap),
        };
        metrics::counter!("tito:continuity_cache_lookups_total", "outcome" => outcome).increment(1);
        recalled
    }

    /// The keys of all turns of the conversation, the latest first.
    pub(super) fn keys(&self, prompt: &ChatPrompt) -> impl Iterator<Item = Fingerprint> {
        let assistants: Vec<(usize, Option<Fingerprint>)> =
            prompt.assistants().zip(self.thoughts.iter().copied()).collect();
        assistants.into_iter().rev().flat_map(|(anchor, thought)| {
            let (through, context) = (self.fingerprints.through(anchor), self.fingerprints.context);
            let scopes = self.scopes(makes_unique_calls(&prompt.messages[anchor]));
            scopes.map(move |(scope, _)| turn_key(scope, through, context, thought))
        })
    }

    /// Whose turns may be given, and how they are recognised then; `calls` says whether the message makes calls with ids of their own.
    fn scopes(&self, calls: bool) -> impl Iterator<Item = (Scope, MatchedBy)> + use<> {
        let scopes = match self.scope {
            Scope::Open => [Some((Scope::Open, if calls { MatchedBy::ToolCall } else { MatchedBy::Messages })), None],
            session @ Scope::Session(_) => {
                [Some((session, MatchedBy::Session)), calls.then_some((Scope::Open, MatchedBy::ToolCall))]
            }
        };
        scopes.into_iter().flatten()
    }

    fn recall_turn(
        &self,
        message: &Message,
        anchor: usize,
        thoughts: &[Option<Fingerprint>],
    ) -> Result<(MatchedBy, Arc<Turn>), Gap> {
        let (through, context) = (self.fingerprints.through(anchor), self.fingerprints.context);
        let mut gap = Gap::Unknown;
        for (scope, matched_by) in self.scopes(makes_unique_calls(message)) {
            let thought = thoughts.last().copied().flatten();
            let key = turn_key(scope, through, context, thought);
            let any_context = any_context_key(scope, through, thought);
            gap = gap.max(match self.memory.recall(key) {
                Recall::Known(turn) if turn.agrees(thoughts) => return Ok((matched_by, turn)),
                Recall::Known(_) => Gap::HistoryEdited,
                Recall::Ambiguous => Gap::Ambiguous,
                Recall::Forgotten => Gap::Forgotten,
                Recall::Unknown if self.memory.is_marked(any_context) => Gap::ContextChanged,
                Recall::Unknown if scope.marker().is_some_and(|key| self.memory.is_marked(key)) => Gap::HistoryEdited,
                Recall::Unknown => Gap::Unknown,
            });
        }
        Err(gap)
    }

    /// The message that ids end with which a request carries beside its messages, if the cache knows them. It is in this
    /// conversation.
    pub(super) fn place(&self, token_ids: &[TokenId], prompt: &ChatPrompt) -> Option<usize> {
        let ids = Fingerprint::of_ids([token_ids]);
        let origin = self.memory.origin(under(self.salt, ids))?;
        let ends = |anchor: &usize| self.origin_at(*anchor, ids).is_some();
        let ended = |anchor: &usize| self.fingerprints.through(*anchor) == origin.through;
        prompt.assistants().find(ends).or_else(|| prompt.assistants().find(ended))
    }

    /// Compares ids that a request carries, and that end with message `anchor`, with what the cache knows of them; `None`
    /// if they are not known at all.
    pub(super) fn compare(
        &mut self,
        token_ids: &[TokenId],
        anchor: usize,
        prompt: &ChatPrompt,
        warnings: &mut Vec<Warning>,
    ) -> Option<Origin> {
        let ids = Fingerprint::of_ids([token_ids]);
        let (before, through) = (self.fingerprints.before(anchor), self.fingerprints.through(anchor));
        let origin = self.origin_at(anchor, ids);
        match self.recall_through(anchor, prompt) {
            Recall::Known(turn) if turn.ids == ids => self.parent = Some(turn),
            Recall::Known(_) if origin.is_none() => warnings.push(Warning::CacheConflict),
            Recall::Known(_) | Recall::Ambiguous | Recall::Forgotten | Recall::Unknown => {}
        }
        let origin = origin.or_else(|| self.memory.origin(under(self.salt, ids)))?;
        let earlier = prompt.assistants().take_while(|index| *index < anchor).count();
        let thought = self.thoughts.get(earlier).copied().flatten();
        let edited = origin.through != through || are_two(origin.thought, thought);
        if origin.before != before || self.contradicts(ids, through, &self.thoughts[..earlier]) {
            warnings.push(Warning::HistoryEdited);
        } else if edited {
            warnings.push(Warning::MessageEdited);
        }
        if origin.context != self.fingerprints.context {
            warnings.push(Warning::ContextChanged);
        }
        if origin.images != self.fingerprints.images_before(anchor) {
            warnings.push(Warning::ImagesEdited);
        }
        self.own = origin.own && !edited && origin.context == self.fingerprints.context;
        Some(origin)
    }

    /// Whether earlier messages of a request thought something else than those of the remembered turn with these ids.
    fn contradicts(&self, ids: Fingerprint, through: Fingerprint, thoughts: &[Option<Fingerprint>]) -> bool {
        let key = turn_key(self.scope, through, self.fingerprints.context, None);
        let told = thoughts.iter().any(Option::is_some);
        let Some(Recall::Known(turn)) = told.then(|| self.memory.recall(key)) else { return false };
        turn.ids == ids && turn.contradicts(thoughts)
    }

    /// The turn that ends with message `anchor`. Earlier ones are looked up after it, since they have the ids that it
    /// shares with them: the least recently used must be the one that needs them.
    fn recall_through(&self, anchor: usize, prompt: &ChatPrompt) -> Recall {
        let assistants = prompt.assistants().zip(&self.thoughts).take_while(|(index, _)| *index <= anchor);
        let keys = assistants.map(|(index, thought)| {
            turn_key(self.scope, self.fingerprints.through(index), self.fingerprints.context, *thought)
        });
        let mut found = None;
        for key in keys.collect::<Vec<_>>().into_iter().rev() {
            let recalled = self.memory.recall(key);
            found = found.or(Some(recalled));
        }
        found.unwrap_or(Recall::Unknown)
    }

    /// Where ids come from, if it is this conversation up to and including message `anchor`.
    fn origin_at(&self, anchor: usize, ids: Fingerprint) -> Option<Origin> {
        self.memory.origin_in(under(self.salt, ids), self.fingerprints.through(anchor), self.fingerprints.context)
    }
}
