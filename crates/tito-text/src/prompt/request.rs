//! What is to become a prompt.

use std::sync::Arc;

use time::OffsetDateTime;

use super::template::{ChatTemplate, Patience};
use crate::{
    TokenId,
    chat::{FunctionTool, Message},
    json::{Object, Value},
};

/// A conversation to be put into ids.
#[expect(clippy::struct_excessive_bools, reason = "each is a wish that requests have or have not")]
#[derive(Debug, Clone)]
pub struct ChatPrompt {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// Tools that the template may show.
    pub tools: Option<Vec<FunctionTool>>,
    /// Documents that the template may show.
    pub documents: Option<Vec<Value>>,
    /// Whether the prompt ends with the start of an assistant message.
    pub add_generation_prompt: bool,
    /// Whether the prompt ends inside the last message, which is to be continued.
    pub continue_final_message: bool,
    /// Whether the template refuses system messages that are not the first, so that all are gathered there.
    pub system_first: bool,
    /// A template to use instead of the model's.
    pub template: Option<Arc<ChatTemplate>>,
    /// Further variables of the template.
    pub template_kwargs: Object,
    /// How much the model is to think, for templates that read it.
    pub reasoning_effort: Option<String>,
    /// Whether the tokenizer adds its own special tokens; usually the template writes them.
    pub add_special_tokens: bool,
    /// Further ids that end a generation, besides the model's own.
    pub stop_token_ids: Vec<TokenId>,
    /// Texts that end a generation, which messages are without.
    pub stop_strings: Vec<String>,
    /// Ids that the conversation is known to start with.
    pub known: Option<KnownPrefix>,
    /// The template's clock, in the server's time zone.
    pub now: OffsetDateTime,
    /// What to find out besides the ids.
    pub checks: Checks,
    /// For how long renders of it are wanted.
    pub patience: Patience,
}

/// Whether a variable of the template can only be a switch, which nothing is repeated by.
fn is_switch(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(_))
}

/// What to find out about a prompt besides its ids; each costs time that grows with what it looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checks {
    /// Whether encoding the whole conversation would give other ids.
    pub drift: bool,
    /// Whether the known ids say what the message says that they end with.
    pub message: bool,
    /// Whether the known ids say what the messages before that one say.
    pub history: bool,
}

/// Ids that the model saw and sampled, and the message of the conversation that they end with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPrefix {
    /// The ids, of which there is at least one.
    pub token_ids: Vec<TokenId>,
    /// The index of the message; `None` where the client does not say, so that it has to be found.
    pub anchor: Option<usize>,
    /// How many of the last ids were sampled for that message; where the client does not say, it is all of them.
    pub sampled: usize,
    /// What to do if the ids cannot be continued, where that is not the server's default.
    pub on_unprovable: Option<OnUnprovable>,
}

/// What to do when known ids cannot be provably joined with the rest of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum OnUnprovable {
    /// Refuse the request.
    #[default]
    Error,
    /// Count end tokens, as NeMo-RL does; refuse the request if that fails too.
    EosCount,
    /// Ignore the known ids, and encode the whole conversation again.
    Retokenize,
}

impl ChatPrompt {
    /// A prompt of messages that an answer is to follow, and of nothing else. The template's clock shows UTC.
    pub fn new(messages: Vec<Message>) -> Self {
        Self {
            messages,
            tools: None,
            documents: None,
            add_generation_prompt: true,
            continue_final_message: false,
            system_first: false,
            template: None,
            template_kwargs: Object::default(),
            reasoning_effort: None,
            add_special_tokens: false,
            stop_token_ids: Vec::new(),
            stop_strings: Vec::new(),
            known: None,
            now: OffsetDateTime::now_utc(),
            checks: Checks::default(),
            patience: Patience::default(),
        }
    }

    /// The indices of the messages that the model, or someone in its name, wrote.
    pub fn assistants(&self) -> impl Iterator<Item = usize> {
        self.messages.iter().enumerate().filter(|(_, message)| message.role.is_assistant()).map(|(index, _)| index)
    }

    /// A text of at most so many bytes is short.
    pub const SHORT: usize = 2048;
    const FEW_MESSAGES: usize = 8;

    /// Whether it takes but a moment to put into ids: a few short texts under the model's own template, and nothing that is to be
    /// proven of them.
    pub fn is_short(&self) -> bool {
        let is_plain =
            self.tools.is_none() && self.documents.is_none() && self.template.is_none() && self.known.is_none();
        let few = self.messages.len() <= Self::FEW_MESSAGES && self.template_kwargs.values().all(is_switch);
        let texts = || self.messages.iter().map(|message| message.plain_text().map(str::len)).sum::<Option<usize>>();
        is_plain && few && texts().is_some_and(|bytes| bytes <= Self::SHORT)
    }

    pub(super) fn has_tool_calls(&self) -> bool {
        self.messages.iter().any(Message::makes_calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(texts: &[usize]) -> ChatPrompt {
        ChatPrompt::new(texts.iter().map(|bytes| Message::text("user", "a".repeat(*bytes))).collect())
    }

    #[test]
    fn a_few_short_texts_are_short_and_whatever_may_take_long_is_not() {
        assert!(prompt(&[10, 20, 0]).is_short() && prompt(&[ChatPrompt::SHORT]).is_short());
        assert!(!prompt(&[ChatPrompt::SHORT, 1]).is_short(), "all texts together count");
        assert!(!prompt(&[1; 9]).is_short());
        let changed = |change: fn(&mut ChatPrompt)| {
            let mut prompt = prompt(&[10]);
            change(&mut prompt);
            prompt.is_short()
        };
        assert!(changed(|prompt| _ = prompt.template_kwargs.insert("enable_thinking".to_owned(), Value::Bool(false))));
        assert!(!changed(|prompt| _ = prompt.template_kwargs.insert("times".to_owned(), Value::from(1_000_000))));
        assert!(!changed(|prompt| prompt.tools = Some(Vec::new())));
        assert!(!changed(|prompt| prompt.documents = Some(Vec::new())));
        let known = KnownPrefix { token_ids: vec![1], anchor: None, sampled: 1, on_unprovable: None };
        assert!(!changed(|prompt| prompt.messages[0].reasoning = Some("thought".to_owned())));
        assert!(!changed(|prompt| prompt.messages[0].content = crate::chat::Content::Parts(Vec::new())));
        assert!(!ChatPrompt { known: Some(known), ..prompt(&[10]) }.is_short());
    }
}
