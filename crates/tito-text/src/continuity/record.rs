//! Remembering answers.

use std::sync::Arc;

use super::{
    fingerprint::{Fingerprint, followed_by},
    lookup::{Lookup, Scope},
    memory::{Memory, Origin},
    recall::{any_context_key, makes_unique_calls, thought, turn_key, under},
    shared::{Namespace, SharedTurn},
    turn::Turn,
};
use crate::{
    TokenId,
    chat::{Content, Message},
    prompt::{ChatPrompt, Provenance, RenderedPrompt},
};

/// Remembers the answers to one prompt.
#[derive(Debug)]
pub struct Recorder {
    memory: Arc<Memory>,
    /// What a store keeps its answers under, where there is one.
    namespace: Option<Namespace>,
    scope: Scope,
    salt: Fingerprint,
    own: bool,
    /// The conversation that the answer is added to.
    before: Fingerprint,
    context: Fingerprint,
    /// The images of the conversation.
    images: Fingerprint,
    /// What earlier assistant messages thought.
    thoughts: Vec<Option<Fingerprint>>,
    /// The message that the answer continues, if it continues one.
    begun: Option<Message>,
    parent: Option<Arc<Turn>>,
    /// The ids of the prompt that follow those of the parent.
    prompt: Arc<[TokenId]>,
}

impl Lookup {
    /// What remembers the answers to a prompt; `None` if they are no assistant messages.
    pub(super) fn recorder(self, prompt: &ChatPrompt, rendered: &RenderedPrompt) -> Option<Recorder> {
        let mut thoughts = self.thoughts;
        let (before, begun) = if prompt.continue_final_message {
            let last = prompt.messages.len() - 1;
            let begun = &prompt.messages[last];
            if !is_text(begun) {
                return None;
            }
            thoughts.pop();
            (self.fingerprints.before(last), Some(begun.clone()))
        } else if prompt.add_generation_prompt {
            (self.fingerprints.before(prompt.messages.len()), None)
        } else {
            return None;
        };
        let images = self.fingerprints.images_before(prompt.messages.len());
        let token_ids = &rendered.token_ids;
        // If the prompt was rendered after all, it does not start with the ids that were remembered.
        let parent = self.parent.filter(|parent| parent.begins(token_ids));
        if let Some(parent) = &parent {
            for (thought, remembered) in thoughts.iter_mut().zip(parent.thoughts()) {
                *thought = thought.or(*remembered);
            }
        }
        // Nothing proves that such a prompt says what its messages say.
        let proven = !matches!(rendered.provenance, Provenance::SplicedByEosCount { .. });
        let prompt = match &parent {
            Some(parent) => token_ids[parent.len()..].into(),
            None => Arc::clone(token_ids),
        };
        Some(Recorder {
            memory: self.memory,
            namespace: self.namespace,
            scope: self.scope,
            salt: self.salt,
            own: self.own && proven,
            before,
            context: self.fingerprints.context,
            images,
            thoughts,
            begun,
            parent,
            prompt,
        })
    }
}

/// Whether an assistant message is one text without calls, so that an answer can be appended to it.
fn is_text(message: &Message) -> bool {
    matches!(message.content, Content::Text(_)) && message.role.is_assistant() && !message.makes_calls()
}

/// The message that `begun` becomes once `answer` is appended to it; `None` for an answer of several parts, of which nobody
/// knows how its client joins them to the beginning.
fn continued(begun: &Message, answer: Message) -> Option<Message> {
    let content = match (&begun.content, answer.content) {
        (Content::Text(begun), Content::Text(text)) => Content::Text(format!("{begun}{text}")),
        (begun, Content::Empty) => begun.clone(),
        _ => return None,
    };
    Some(Message { content, tool_calls: answer.tool_calls, ..begun.clone() })
}

impl Recorder {
    /// Remembers an answer with the ids that were sampled for it. To be called before the client can have the whole answer:
    /// its next request may come at once. `forms` are the messages as which it may be sent back, the last of them as the
    /// client gets it; they differ in their content only. `weights` is what the weights are called that sampled the last of
    /// the ids. Returns what a store is to keep, where there is one.
    pub fn remember(&self, forms: Vec<Message>, sampled: &[TokenId], weights: Option<Arc<str>>) -> Option<SharedTurn> {
        let forms: Vec<Message> = match &self.begun {
            Some(begun) => forms.into_iter().filter_map(|answer| continued(begun, answer)).collect(),
            None => forms,
        };
        let mut thoughts = self.thoughts.clone();
        thoughts.push(thought(forms.last()?));
        let own_thought = thoughts.last().copied().flatten();
        let turn = Turn::new(self.parent.as_ref(), Arc::clone(&self.prompt), sampled.into(), thoughts, self.own);
        let turn = Arc::new(turn.sampled_by(weights));
        let ids = under(self.salt, turn.ids);
        let keys: Vec<Fingerprint> = forms.iter().flat_map(|form| self.mark(form, own_thought, ids)).collect();
        for key in &keys {
            self.memory.remember(*key, &turn);
        }
        self.namespace.filter(|_| !keys.is_empty()).and_then(|namespace| namespace.turn(&keys, ids, &turn))
    }

    /// Notes that the ids end with this message, and returns the keys by which they are found from its text.
    ///
    /// An answer that adds nothing to the message that it continues has none: that message is the request's own, and the same
    /// request is to get the same prompt again.
    fn mark(&self, answer: &Message, own_thought: Option<Fingerprint>, ids: Fingerprint) -> Vec<Fingerprint> {
        let Self { before, context, images, own, .. } = *self;
        let through = followed_by(before, answer);
        self.memory.remember_origin(ids, Origin { through, before, context, images, thought: own_thought, own });
        if self.begun.as_ref().is_some_and(|begun| followed_by(before, begun) == through) {
            return Vec::new();
        }
        let mut keys = Vec::new();
        for scope in self.scopes(answer) {
            keys.push(turn_key(scope, through, context, None));
            keys.extend(own_thought.map(|thought| turn_key(scope, through, context, Some(thought))));
            self.memory.mark(any_context_key(scope, through, None));
            if own_thought.is_some() {
                self.memory.mark(any_context_key(scope, through, own_thought));
            }
            scope.marker().into_iter().for_each(|key| self.memory.mark(key));
        }
        keys
    }

    /// Who may be given the answer. Without a session, only those whose ids cannot have been made up by another client:
    /// the server's own, or those of a call that only this answer has.
    fn scopes(&self, answer: &Message) -> impl Iterator<Item = Scope> {
        let session = (self.scope != Scope::Open).then_some(self.scope);
        let open = makes_unique_calls(answer) || (self.scope == Scope::Open && self.own);
        session.into_iter().chain(open.then_some(Scope::Open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ContentPart;

    #[test]
    fn an_answer_is_appended_to_the_beginning_of_its_message_where_that_makes_one_text() {
        let message = |content| Message { content, ..Message::text("assistant", "") };
        let begun = message(Content::Text("well, ".to_owned()));
        let parts = Content::Parts(vec![ContentPart::Text("hello".to_owned())]);
        for (answer, whole) in
            [(Content::Text("hello".to_owned()), Some("well, hello")), (Content::Empty, Some("well, ")), (parts, None)]
        {
            let whole = whole.map(|text| Content::Text(text.to_owned()));
            assert_eq!(continued(&begun, message(answer)).map(|message| message.content), whole);
        }
    }
}
