//! Images in prompts: one placeholder for each in a render, as many as it has parts in the ids.
//!
//! Everything between the two is done with one placeholder for each image. Known ids are collapsed before they are spliced,
//! and the prompt is expanded afterwards, so that the proof of a splice holds for prompts with images as for all others.
//! Which placeholders are images is never guessed: known ids must have, in order, the runs of the messages' images, between
//! the marks that the template puts around them; and a text that spells a placeholder is refused, so that all others are the
//! template's.

mod form;
mod written;

use std::ops::Range;

use super::{ChatPrompt, KnownPrefix, PromptError, UnprovableSplice, marks::any_text_in};
use crate::{
    TokenId,
    chat::{Content, ContentPart, FunctionTool, ImageSize, Message},
    json::{Object, Path, Value},
    tokenizer::Tokenizer,
};

pub use form::{ImageForm, ImageMarks, ImageTemplate};
pub(super) use written::WrittenImage;

/// The marks of a model, as ids and as text.
#[derive(Debug)]
pub(super) struct ImageWriting {
    marks: ImageMarks,
    /// The texts that stand for an image, or for a part of one.
    texts: Vec<String>,
    /// What is to be made of what templates write, where they do not write all marks.
    written: Option<WrittenImage>,
}

/// The images of one conversation, in the order of its messages.
pub(super) struct Images<'p> {
    writing: &'p ImageWriting,
    /// The message of each, and how large it is.
    images: Vec<(usize, ImageSize)>,
}

/// Ids with one placeholder for each image.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Collapsed {
    pub(super) token_ids: Vec<TokenId>,
    /// Where the placeholder of each image is.
    places: Vec<usize>,
}

impl ImageWriting {
    /// The marks of a model whose tokenizer spells them; `None` where it does not know those that templates write.
    pub(super) fn new(marks: ImageMarks, tokenizer: &Tokenizer) -> Option<Self> {
        let text = |id| tokenizer.token(id).filter(|text| !text.is_empty());
        let placeholder = text(marks.placeholder)?;
        let (texts, written) = match marks.form {
            ImageForm::Between { template: ImageTemplate::Marks, .. } => (vec![placeholder], None),
            ImageForm::Between { opens, closes, template: ImageTemplate::Opening } => {
                let opens = text(opens)?;
                let written = WrittenImage::new(&opens, &placeholder, &text(closes)?);
                (vec![opens, placeholder], Some(written))
            }
            ImageForm::Rows { breaks: first, ends: last } | ImageForm::Around { opens: first, closes: last } => {
                (vec![placeholder, text(first)?, text(last)?], None)
            }
        };
        Some(Self { marks, texts, written })
    }

    /// What is to be made of what templates write for an image; `None` where it stays.
    pub(super) fn written(&self) -> Option<&WrittenImage> {
        self.written.as_ref()
    }

    pub(super) fn marks(&self) -> ImageMarks {
        self.marks
    }
}

impl<'p> Images<'p> {
    /// The images of a conversation.
    ///
    /// # Errors
    ///
    /// If a text of the conversation spells a placeholder, which nobody could tell from an image's, or if an image is where
    /// none can be.
    pub(super) fn of(writing: &'p ImageWriting, prompt: &ChatPrompt) -> Result<Self, PromptError> {
        writing.refuse_spelled(prompt)?;
        let mut images = Vec::new();
        for (index, message) in prompt.messages.iter().enumerate() {
            for (place, image) in message.content.images() {
                let role = message.role.as_str();
                // Templates read what an assistant says as a text, and developers' messages may be moved.
                let is_moved = role == "developer" || (role == "system" && prompt.system_first);
                if message.role.is_assistant() || is_moved {
                    let why = if role == "system" { ", where several of them are joined" } else { "" };
                    let message = format!("a message of the role '{role}' cannot have images{why}");
                    return Err(PromptError::Content { field: place_of(index).then("content").then(place), message });
                }
                images.push((index, image.size));
            }
        }
        Ok(Self { writing, images })
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// Ids that were computed with the first images of the conversation, with one placeholder for each. Whatever else is a
    /// placeholder in them was sampled, and stays as it is.
    pub(super) fn collapse(&self, token_ids: &[TokenId]) -> Result<Collapsed, UnprovableSplice> {
        let marks = self.writing.marks;
        let runs = marks.runs(token_ids);
        let is_image = |(number, run): (usize, &Range<usize>)| {
            self.images.get(number).is_some_and(|(_, size)| marks.shows(&token_ids[run.clone()], *size))
        };
        if !runs.iter().enumerate().all(is_image) {
            return Err(UnprovableSplice::OtherImages);
        }
        let (token_ids, ranges) = marks.replaced(token_ids, runs.into_iter().map(|run| (run, None)));
        Ok(Collapsed { token_ids, places: ranges.into_iter().map(|range| range.start).collect() })
    }

    /// Known ids with one placeholder for each image.
    pub(super) fn collapse_known(&self, known: &KnownPrefix) -> Result<(KnownPrefix, Collapsed), UnprovableSplice> {
        let collapsed = self.collapse(&known.token_ids)?;
        if let Some(anchor) = known.anchor {
            self.check_anchor(&collapsed, anchor)?;
        }
        let before = known.token_ids.len() - known.sampled;
        // Nobody samples an image. Where it is not said how many ids were sampled, it is all of them.
        let marks = self.writing.marks;
        if before > 0 && marks.runs(&known.token_ids).iter().any(|run| marks.end(run) > before) {
            return Err(UnprovableSplice::OtherImages);
        }
        let sampled = known.sampled.min(collapsed.token_ids.len());
        let known = KnownPrefix { token_ids: collapsed.token_ids.clone(), sampled, ..known.clone() };
        Ok((known, collapsed))
    }

    /// Checks that ids stand for the messages up to `anchor`, whose images they have.
    pub(super) fn check_anchor(&self, known: &Collapsed, anchor: usize) -> Result<(), UnprovableSplice> {
        let images = self.images.iter().filter(|(message, _)| *message <= anchor).count();
        if images == known.places.len() { Ok(()) } else { Err(UnprovableSplice::OtherImages) }
    }

    /// Where the images are in a prompt that starts with `known`: behind it, every placeholder is one.
    pub(super) fn places(&self, known: &Collapsed, prompt: &[TokenId]) -> Result<Vec<usize>, PromptError> {
        let rest = prompt.iter().enumerate().skip(known.token_ids.len());
        let rest = rest.filter(|(_, id)| **id == self.writing.marks.placeholder).map(|(place, _)| place);
        let places: Vec<usize> = known.places.iter().copied().chain(rest).collect();
        if places.len() == self.images.len() {
            return Ok(places);
        }
        let known = known.places.len();
        Err(PromptError::ImagesNotShown {
            shown: places.len() - known,
            images: self.images.len().saturating_sub(known),
        })
    }

    /// The prompt with as many placeholders for each image as it has parts, and where these are.
    pub(super) fn expand(&self, prompt: &[TokenId], places: &[usize]) -> (Vec<TokenId>, Vec<Range<usize>>) {
        let sizes = self.images.iter().map(|(_, size)| Some(*size));
        let images = places.iter().map(|&place| place..place + 1).zip(sizes);
        self.writing.marks.replaced(prompt, images)
    }

    /// Where the images are in a prompt that the client gave whole.
    pub(super) fn given(&self, prompt: &[TokenId]) -> Result<Vec<Range<usize>>, UnprovableSplice> {
        let marks = self.writing.marks;
        let runs = marks.runs(prompt);
        let mut images = runs.iter().zip(&self.images);
        let fit = images.all(|(run, (_, size))| marks.shows(&prompt[run.clone()], *size));
        if fit && runs.len() == self.images.len() { Ok(runs) } else { Err(UnprovableSplice::OtherImages) }
    }
}

/// A position of a prompt with one placeholder for each image, in the expanded prompt.
pub(super) fn expanded_position(position: usize, places: &[usize], ranges: &[Range<usize>]) -> usize {
    let before = places.iter().zip(ranges).filter(|(place, _)| **place < position);
    position + before.map(|(_, range)| range.len() - 1).sum::<usize>()
}

impl ImageWriting {
    /// Refuses a conversation of which a text that a template may show spells a placeholder.
    fn refuse_spelled(&self, prompt: &ChatPrompt) -> Result<(), PromptError> {
        for text in &self.texts {
            if let Some(field) = Spelling(text).place(prompt) {
                let message =
                    format!("has the text {text:?}, which stands for an image; send the image as a content part");
                return Err(PromptError::Content { field, message });
            }
        }
        Ok(())
    }
}

/// A text that stands for an image.
struct Spelling<'a>(&'a str);

impl Spelling<'_> {
    /// Where a conversation spells it, if it does.
    fn place(&self, prompt: &ChatPrompt) -> Option<Path> {
        if let Some(index) = prompt.messages.iter().position(|message| self.spelled_in_message(message)) {
            return Some(place_of(index));
        }
        let tools = prompt.tools.iter().flatten();
        if tools.into_iter().any(|tool| self.spelled_in_tool(tool)) {
            return Some("tools".into());
        }
        if prompt.documents.iter().flatten().any(|document| self.spelled_in_value(document)) {
            return Some("documents".into());
        }
        self.spelled_in(&prompt.template_kwargs).then(|| "chat_template_kwargs".into())
    }

    fn is_in(&self, text: &str) -> bool {
        text.contains(self.0)
    }

    fn spelled_in(&self, object: &Object) -> bool {
        any_text_in(object, &|text| self.is_in(text))
    }

    fn spelled_in_value(&self, value: &Value) -> bool {
        self.spelled_in(&Object::from_iter([(String::new(), value.clone())]))
    }

    fn spelled_in_tool(&self, tool: &FunctionTool) -> bool {
        let texts = [Some(tool.name.as_str()), tool.description.as_deref()];
        texts.into_iter().flatten().any(|text| self.is_in(text))
            || tool.parameters.as_ref().is_some_and(|parameters| self.spelled_in_value(parameters))
    }

    fn spelled_in_message(&self, message: &Message) -> bool {
        let texts = [message.name.as_deref(), message.tool_call_id.as_deref(), message.reasoning.as_deref()];
        let texts = texts.into_iter().chain([message.task.as_deref(), Some(message.role.as_str())]);
        let content = match &message.content {
            Content::Empty => false,
            Content::Text(text) => self.is_in(text),
            Content::Parts(parts) => parts.iter().any(|part| match part {
                ContentPart::Text(text) => self.is_in(text),
                ContentPart::Object { fields, .. } => self.spelled_in(fields),
                ContentPart::Image(image) => self.spelled_in(&image.extras),
            }),
        };
        let calls = message.tool_calls.iter().flatten().any(|call| {
            let texts = [Some(call.id.as_str()), Some(call.name.as_str()), call.arguments.as_deref()];
            texts.into_iter().flatten().any(|text| self.is_in(text))
                // Escapes of JSON may spell it too, and templates show what they stand for.
                || call.arguments.as_deref().is_some_and(|text| {
                    text.contains('\\') && Value::parse(text).is_ok_and(|value| self.spelled_in_value(&value))
                })
                || self.spelled_in(&call.function_extras)
                || self.spelled_in(&call.extras)
        });
        content
            || calls
            || texts.flatten().any(|text| self.is_in(text))
            || message.tools.as_ref().is_some_and(|tools| self.spelled_in_value(tools))
    }
}

fn place_of(message: usize) -> Path {
    Path::from("messages").then(message)
}

#[cfg(test)]
mod tests;
