//! Remembering answers.

use std::sync::Arc;

use super::{
    Fingerprint, Record,
    fingerprint::followed_by,
    memory::{Memory, Origin, Turn},
    recall::{Scope, any_context_key, makes_calls, thought, turn_key},
};
use crate::{
    TokenId,
    chat::{Content, Message},
    prompt::{ChatPrompt, RenderedPrompt},
};

/// Remembers the answers to one prompt.
#[derive(Debug)]
pub struct Recorder {
    memory: Arc<Memory>,
    scope: Scope,
    own: bool,
    /// The conversation that the answer is added to.
    before: Fingerprint,
    context: Fingerprint,
    /// What earlier assistant messages thought.
    thoughts: Vec<Option<Fingerprint>>,
    /// What the message that is continued says already.
    begun: Option<String>,
    parent: Option<Arc<Turn>>,
    /// The ids behind the parent's.
    prompt: Arc<[TokenId]>,
}

impl Record {
    /// What remembers the answers to a prompt; `None` if they are no assistant messages.
    pub(super) fn recorder(self, prompt: &ChatPrompt, rendered: &RenderedPrompt) -> Option<Recorder> {
        let mut thoughts = self.thoughts;
        let (before, begun) = if prompt.continue_final_message {
            let last = prompt.messages.len() - 1;
            let begun = begun(&prompt.messages[last])?;
            thoughts.pop();
            (self.fingerprints.before(last), Some(begun))
        } else if prompt.add_generation_prompt {
            (self.fingerprints.before(prompt.messages.len()), None)
        } else {
            return None;
        };
        if let Some(parent) = &self.parent {
            for (thought, remembered) in thoughts.iter_mut().zip(parent.thoughts()) {
                *thought = thought.or(*remembered);
            }
        }
        let token_ids = &rendered.token_ids;
        // A prompt that was rendered after all does not start with the ids that were remembered.
        let parent = self.parent.filter(|parent| parent.begins(token_ids));
        let prompt = match &parent {
            Some(parent) => token_ids[parent.len()..].into(),
            None => Arc::clone(token_ids),
        };
        Some(Recorder {
            memory: self.memory,
            scope: self.scope,
            own: self.own,
            before,
            context: self.fingerprints.context,
            thoughts,
            begun,
            parent,
            prompt,
        })
    }
}

/// The text of a message that is to be continued, where it is one text and nothing else.
fn begun(message: &Message) -> Option<String> {
    match &message.content {
        Content::Text(text) if message.role.is_assistant() && !makes_calls(message) => Some(text.clone()),
        _ => None,
    }
}

impl Recorder {
    /// Remembers an answer, as the client gets it, with the ids that were sampled for it. To be called before the client
    /// can have the whole answer: its next request may come at once.
    pub fn remember(&self, mut answer: Message, sampled: &[TokenId]) {
        if let (Some(begun), Content::Text(text)) = (&self.begun, &mut answer.content) {
            text.insert_str(0, begun);
        }
        let through = followed_by(self.before, &answer);
        let mut thoughts = self.thoughts.clone();
        thoughts.push(thought(&answer));
        let own_thought = thoughts.last().copied().flatten();
        let turn = Turn::new(self.parent.as_deref(), Arc::clone(&self.prompt), sampled.into(), thoughts, self.own);
        let turn = Arc::new(turn);
        for scope in self.scopes(&answer) {
            self.memory.remember(turn_key(scope, through, self.context, None), &turn);
            if own_thought.is_some() {
                self.memory.remember(turn_key(scope, through, self.context, own_thought), &turn);
            }
            self.memory.mark(any_context_key(scope, through));
            scope.marker().into_iter().for_each(|key| self.memory.mark(key));
        }
        let origin = Origin { through, before: self.before, context: self.context, own: self.own };
        self.memory.remember_origin(turn.ids, origin);
    }

    /// Who may be given the answer. Without a session, only those whose ids cannot have been made up by another client:
    /// the server's own, or those of a call that only this answer has.
    fn scopes(&self, answer: &Message) -> impl Iterator<Item = Scope> {
        let session = (self.scope != Scope::Open).then_some(self.scope);
        let open = makes_calls(answer) || (self.scope == Scope::Open && self.own);
        session.into_iter().chain(open.then_some(Scope::Open))
    }
}
