//! One conversation as text: the template, its messages and its variables, rendered as often as a proof needs.

use std::borrow::Cow;

use memchr::memmem;
use time::OffsetDateTime;

use super::{
    ChatPrompt, PromptError,
    gathered_system::Instructions,
    images::WrittenImage,
    marks::{any_text_in, ends_alike, with_all},
    messages::{ArgumentsForm, template_messages, template_tool},
    template::{ChatTemplate, Patience, TemplateError, Variable, strip_spaces, strip_spaces_at_end},
};
use crate::json::{Members, Object, Value};

/// What transformers appends to the message to be continued (`apply_chat_template`); templates may trim its space.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// A conversation ready to render. Every render of it sees the same clock.
pub(super) struct Conversation<'a> {
    template: &'a ChatTemplate,
    messages: Vec<Cow<'a, Object>>,
    /// The messages in the template's own form, which all renders share.
    shown: Vec<Variable>,
    /// Where each message of the request went, when system and developer messages were gathered at the front, or earlier
    /// ones left out.
    places: Vec<usize>,
    variables: Members<Variable>,
    continue_final_message: bool,
    now: OffsetDateTime,
    patience: Patience,
    /// What is to be made of images as the template writes them.
    written: Option<&'a WrittenImage>,
}

impl<'a> Conversation<'a> {
    /// Prepares `prompt` for `template` and renders it once; a template that cannot take tool arguments as objects
    /// gets them as text, and one that takes nothing else gets an empty object for those that cannot be one.
    pub(super) fn render(
        template: &'a ChatTemplate,
        prompt: &ChatPrompt,
        written: Option<&'a WrittenImage>,
    ) -> Result<(Self, String), PromptError> {
        let rendered = |form| Self::rendered(template, prompt, written, form);
        let mut last = rendered(ArgumentsForm::Mapping);
        let others = [ArgumentsForm::Text, ArgumentsForm::MappingOnly];
        for form in others.into_iter().filter(|_| prompt.has_tool_calls()) {
            if !matches!(last, Err(PromptError::Template(TemplateError::Render(_)))) {
                break;
            }
            last = rendered(form);
        }
        last
    }

    fn rendered(
        template: &'a ChatTemplate,
        prompt: &ChatPrompt,
        written: Option<&'a WrittenImage>,
        arguments: ArgumentsForm,
    ) -> Result<(Self, String), PromptError> {
        let conversation = Self { written, ..Self::new(template, prompt, arguments)? };
        let text = conversation.text()?;
        Ok((conversation, text))
    }

    fn new(template: &'a ChatTemplate, prompt: &ChatPrompt, arguments: ArgumentsForm) -> Result<Self, PromptError> {
        let format = template.content_format();
        let messages = template_messages(&prompt.messages, format, arguments)?;
        let instructions = Instructions { source: template.source(), format, system_first: prompt.system_first };
        let (messages, places) = instructions.gather(messages);
        Ok(Self {
            template,
            shown: messages.iter().map(Variable::from).collect(),
            messages: messages.into_iter().map(Cow::Owned).collect(),
            places,
            variables: variables(prompt).iter().map(|(name, value)| (name.clone(), value.into())).collect(),
            continue_final_message: prompt.continue_final_message,
            now: prompt.now,
            patience: prompt.patience.clone(),
            written: None,
        })
    }

    /// The whole conversation.
    pub(super) fn text(&self) -> Result<String, PromptError> {
        self.render_shown(self.shown.clone(), self.last())
    }

    /// The whole conversation with another message in the place of message `index` of the request, and `later`, where
    /// given, in the place of what every message after it says.
    pub(super) fn text_with(&self, index: usize, message: Object, later: Option<&str>) -> Result<String, PromptError> {
        let place = self.places[index];
        let mut changed = vec![(place, message)];
        if let Some(word) = later {
            let later = self.messages.iter().enumerate().skip(place + 1);
            changed.extend(later.map(|(place, message)| (place, with_all(message, word))));
        }
        self.render_changed(&changed)
    }

    /// The whole conversation with words in the place of what assistants say, which `word` makes by their number.
    pub(super) fn text_with_assistants(&self, word: impl Fn(usize) -> String) -> Result<String, PromptError> {
        let assistants = self.messages.iter().enumerate().filter(|(_, message)| is_assistant(message));
        let changed =
            assistants.enumerate().map(|(number, (place, message))| (place, with_all(message, &word(number))));
        self.render_changed(&changed.collect::<Vec<_>>())
    }

    /// A render that ends with the start of an assistant message, and the byte at which what the template adds for that
    /// begins.
    pub(super) fn generation_prompt(&self) -> Result<(String, usize), PromptError> {
        let text = |add| {
            let mut variables = self.variables.clone();
            variables.insert("add_generation_prompt".to_owned(), Variable::from(&Value::Bool(add)));
            self.fill(self.shown.clone(), &variables)
        };
        let (with, without) = (text(true)?, text(false)?);
        let start = common_prefix(&with, &without);
        Ok((with, start))
    }

    /// The messages up to and including message `index` of the request, without a generation prompt.
    pub(super) fn text_through(&self, index: usize) -> Result<String, PromptError> {
        let mut variables = self.variables.clone();
        variables.insert("add_generation_prompt".to_owned(), Variable::from(&Value::Bool(false)));
        self.fill(self.shown[..=self.places[index]].to_vec(), &variables)
    }

    /// The conversation from the last question before message `index` of the request on, or `None` if that is most of
    /// the whole.  The system prompt stays, and so does everything from that message on. Between them stay the question
    /// and, after it, the last answer of an assistant with what tools said to it, all of which say `word`.
    pub(super) fn shortened(&self, index: usize, word: &str) -> Option<Conversation<'_>> {
        let place = self.places[index];
        let instructions = self.messages[..place].iter().take_while(|message| instructs(message)).count();
        let question = (instructions..place).rfind(|&earlier| role(&self.messages[earlier]) == Some("user"))?;
        let answer = (question..place).rfind(|&earlier| is_assistant(&self.messages[earlier])).unwrap_or(place);
        let earlier: Vec<usize> = std::iter::once(question).chain(answer..place).collect();
        let left_out = place - instructions - earlier.len();
        if left_out * 4 < self.messages.len() {
            return None;
        }
        let saying_word = |&earlier: &usize| {
            let message = with_all(&self.messages[earlier], word);
            let shown = Variable::from(&message);
            (Cow::Owned(message), shown)
        };
        let stays = |place: usize| (Cow::Borrowed(&*self.messages[place]), self.shown[place].clone());
        let later = (place..self.messages.len()).map(stays);
        let messages = (0..instructions).map(stays).chain(earlier.iter().map(saying_word)).chain(later);
        let (messages, shown) = messages.unzip();
        let mut places = vec![0; self.places.len()];
        places[index] = instructions + earlier.len();
        Some(Conversation {
            template: self.template,
            messages,
            shown,
            places,
            variables: self.variables.clone(),
            continue_final_message: self.continue_final_message,
            now: self.now,
            patience: self.patience.clone(),
            written: self.written,
        })
    }

    /// Whether another message could look like message `index` of the request.
    pub(super) fn repeats(&self, index: usize) -> bool {
        let place = self.places[index];
        let others = self.messages.iter().enumerate().filter(|&(other, _)| other != place);
        others.map(|(_, other)| other).any(|other| ends_alike(other, &self.messages[place]))
    }

    /// Whether a message has `text` anywhere in it.
    pub(super) fn spells(&self, text: &str) -> bool {
        let finder = memmem::Finder::new(text);
        let spells = |text: &str| finder.find(text.as_bytes()).is_some();
        self.messages.iter().any(|message| any_text_in(message, &spells))
    }

    /// The template's view of message `index` of the request.
    pub(super) fn message(&self, index: usize) -> &Object {
        &self.messages[self.places[index]]
    }

    /// Whether the template sees messages on the other side of message `index` than the request has them: system messages
    /// join the first one where the template wants that, and developer messages where it does not know their role.
    pub(super) fn reorders(&self, index: usize) -> bool {
        let place = self.places[index];
        let (before, rest) = self.places.split_at(index);
        before.iter().any(|&other| other > place) || rest.iter().skip(1).any(|&other| other <= place)
    }

    /// Whether nothing follows message `index` of the request.
    pub(super) fn is_last(&self, index: usize) -> bool {
        self.places[index] + 1 == self.messages.len()
    }

    fn last(&self) -> Option<&Object> {
        self.messages.last().map(AsRef::as_ref)
    }

    /// How many assistant messages there are.
    pub(super) fn assistants(&self) -> usize {
        self.messages.iter().filter(|message| is_assistant(message)).count()
    }

    /// Whether the render ends inside message `index` of the request.
    pub(super) fn continues(&self, index: usize) -> bool {
        self.continue_final_message && self.is_last(index)
    }

    /// Renders the conversation with other messages in some places.
    fn render_changed(&self, changed: &[(usize, Object)]) -> Result<String, PromptError> {
        let mut shown = self.shown.clone();
        let mut last = self.last();
        for (place, message) in changed {
            shown[*place] = Variable::from(message);
            if place + 1 == shown.len() {
                last = Some(message);
            }
        }
        self.render_shown(shown, last)
    }

    /// Renders the messages of which `last` is the last one.
    fn render_shown(&self, mut shown: Vec<Variable>, last: Option<&Object>) -> Result<String, PromptError> {
        if !self.continue_final_message {
            return self.fill(shown, &self.variables);
        }
        let mut last = last.ok_or(PromptError::ContinueFinalMessage(NOTHING_TO_CONTINUE))?.clone();
        if !self.template.source().contains("content") {
            return Err(PromptError::ContinueFinalMessage(CONTENT_NOT_RENDERED));
        }
        if last.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty()) {
            return Err(PromptError::ContinueFinalMessage(CALLS_AFTER_CONTENT));
        }
        let said = append_to_content(&mut last, CONTINUE_TAG)?;
        shown.pop();
        shown.push(Variable::from(&last));
        cut_at_tag(&self.fill(shown, &self.variables)?, &said)
    }

    fn fill(&self, shown: Vec<Variable>, variables: &Members<Variable>) -> Result<String, PromptError> {
        let variables = variables.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let variables = variables.chain([("messages", Variable::list(shown))]);
        let text = self.template.render(variables, self.now, &self.patience).map_err(PromptError::Template)?;
        Ok(match self.written {
            Some(written) => written.whole_in(text),
            None => text,
        })
    }
}

const NOTHING_TO_CONTINUE: &str = "continue_final_message is set but the final message has no \"content\" to continue!";
const CALLS_AFTER_CONTENT: &str = "continue_final_message is set but the final message makes calls, which stand after the content and \
                                   would be lost";
const CONTENT_NOT_RENDERED: &str = "continue_final_message is set to \"content\" but this is not an accepted field in \
                                    the chat_template";
const TAG_NOT_RENDERED: &str = "continue_final_message is set but the final message does not appear in the chat after \
                                applying the chat template! This can happen if the chat template deletes portions of \
                                the final message.";

/// Appends `tag` to the content of a message, and returns what the content said before.
fn append_to_content(message: &mut Object, tag: &str) -> Result<String, PromptError> {
    let text = match message.get_mut("content") {
        Some(Value::String(text)) => Some(text),
        Some(Value::Array(parts)) => parts.iter_mut().rev().find_map(|part| match part {
            Value::Object(part) => match part.get_mut("text") {
                Some(Value::String(text)) => Some(text),
                _ => None,
            },
            _ => None,
        }),
        _ => None,
    };
    let text = text.ok_or(PromptError::ContinueFinalMessage(NOTHING_TO_CONTINUE))?;
    let said = text.clone();
    text.push_str(tag);
    Ok(said)
}

/// Cuts at the last tag; where the template trimmed the tag's own space, it would have trimmed the content's too.
/// Refuses a template that shows the message otherwise than it was said.
fn cut_at_tag(text: &str, said: &str) -> Result<String, PromptError> {
    let stripped = CONTINUE_TAG.trim_end();
    let place = text.rfind(stripped).filter(|_| text.contains(strip_spaces(said)));
    let place = place.ok_or(PromptError::ContinueFinalMessage(TAG_NOT_RENDERED))?;
    let head = &text[..place];
    if text[place..].starts_with(CONTINUE_TAG) { Ok(head.to_owned()) } else { Ok(strip_spaces_at_end(head).to_owned()) }
}

fn role(message: &Object) -> Option<&str> {
    message.get("role").and_then(Value::as_str)
}

fn instructs(message: &Object) -> bool {
    matches!(role(message), Some("system" | "developer"))
}

fn is_assistant(message: &Object) -> bool {
    role(message) == Some("assistant")
}

/// How many bytes two texts start with in common, in whole characters.
pub(super) fn common_prefix(left: &str, right: &str) -> usize {
    let same = left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count();
    (0..=same).rev().find(|&length| left.is_char_boundary(length)).unwrap_or(0)
}

impl ChatPrompt {
    /// The variables of the template that a request sets: its kwargs, and what vLLM makes of its reasoning effort.
    pub fn template_variables(&self) -> Object {
        let mut variables = self.template_kwargs.clone();
        if let Some(effort) = &self.reasoning_effort {
            variables.entry("enable_thinking".to_owned()).or_insert(Value::Bool(effort != "none"));
            variables.insert("reasoning_effort".to_owned(), Value::from(effort.as_str()));
        }
        variables
    }
}

/// The template's variables: those of the request, then the fields that vLLM lets override them.
fn variables(prompt: &ChatPrompt) -> Object {
    let mut variables = prompt.template_variables();
    let list = |values: &[Value]| Value::Array(values.to_vec());
    let tools = prompt.tools.as_ref().map(|tools| tools.iter().map(template_tool).collect::<Vec<_>>());
    variables.insert("tools".to_owned(), tools.as_deref().map_or(Value::Null, list));
    if let Some(documents) = &prompt.documents {
        variables.insert("documents".to_owned(), list(documents));
    } else {
        variables.entry("documents".to_owned()).or_insert(Value::Null);
    }
    variables.insert("add_generation_prompt".to_owned(), Value::Bool(prompt.add_generation_prompt));
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, said: &str) -> Option<String> {
        cut_at_tag(text, said).ok()
    }

    #[test]
    fn a_render_is_cut_where_the_message_ends() {
        assert_eq!(cut("<a>said CONTINUE_FINAL_MESSAGE_TAG </a>", "said ").as_deref(), Some("<a>said "));
        assert_eq!(cut("<a>said CONTINUE_FINAL_MESSAGE_TAG</a>", "said ").as_deref(), Some("<a>said"));
        assert_eq!(cut("<a>said\u{1c}CONTINUE_FINAL_MESSAGE_TAG</a>", "said\u{1c}").as_deref(), Some("<a>said"));
    }

    #[test]
    fn a_message_that_is_shown_otherwise_is_not_continued() {
        assert_eq!(cut("<a>b CONTINUE_FINAL_MESSAGE_TAG </a>", "<think>a</think>b "), None);
        assert_eq!(cut("<a>b</a>", "b"), None);
    }
}
