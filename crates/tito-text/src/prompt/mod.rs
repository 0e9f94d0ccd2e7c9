//! Messages to token ids: [`PromptRenderer::render`] is the only way, for every endpoint.
//!
//! Owns the chat template, the shape of messages that it sees, the splice of known ids and the length check.
//! Refuses HTTP, the engine, and the question which ids are known (`continuity`).

mod anchor;
mod anchor_pieces;
mod answer_edits;
mod answer_formats;
mod answers;
mod between;
mod comparison;
mod conversation;
mod edits;
mod eos_count;
mod error;
mod gathered_system;
mod guards;
mod harmony;
mod hidden;
mod images;
mod marks;
mod message_place;
mod messages;
mod rendered;
mod request;
mod seams;
mod short;
mod shown_text;
mod splice;
mod splice_context;
mod surplus;
mod tail;
pub mod template;
mod turn_markers;

use std::sync::Arc;

use crate::{
    TokenId,
    model::{EosTokens, TokenizerConfig},
    tokenizer::{Extent, Tokenizer},
};
pub use answer_formats::AnswerFormats;
use answers::thought_marks;
use comparison::{Comparison, Written};
use conversation::Conversation;
#[cfg(any(test, feature = "internals"))]
pub use eos_count::replace_prefix_tokens;
pub use error::{PromptError, UnprovableSplice};
use harmony::House;
pub use harmony::{Harmony, HarmonySettings};
pub use hidden::HiddenPart;
use images::{Collapsed, ImageWriting, Images, expanded_position};
pub use images::{ImageForm, ImageMarks, ImageTemplate};
pub use messages::{message_text, without_billing_header};
pub use rendered::{Drift, Edits, Provenance, RenderedPrompt};
pub use request::{ChatPrompt, Checks, KnownPrefix, OnUnprovable};
use seams::Seams;
use splice::Joined;
use splice_context::Splice;
use template::{ChatTemplate, TemplateError};
use turn_markers::Anchor;

/// The chat templates of a model.
#[derive(Debug, Default)]
pub struct Templates {
    /// The template for every conversation that the other one is not for.
    pub default: Option<ChatTemplate>,
    /// The template for conversations with tools, where the model has one of its own for them.
    pub tool_use: Option<ChatTemplate>,
}

/// The function by which a template writes the date.
const CLOCK: &str = "strftime_now";

/// Turns conversations into ids.
pub struct PromptRenderer {
    templates: Templates,
    tokenizer: Arc<Tokenizer>,
    seams: Seams,
    eos_token_id: Option<TokenId>,
    stop_token_ids: Vec<TokenId>,
    on_unprovable: OnUnprovable,
    /// How the model writes its answers.
    formats: AnswerFormats,
    /// What renders instead of the templates, for models that read Harmony.
    harmony: Option<Harmony>,
    /// How prompts show images, for models that read some.
    images: Option<ImageWriting>,
}

impl Templates {
    /// The templates that a model comes with, and the special tokens that they may print.
    pub fn of_model(config: &TokenizerConfig) -> Result<Self, TemplateError> {
        let compiled = |name| {
            let source = config.chat_templates.get(name);
            source.map(|source| ChatTemplate::new(source, config.special_tokens.clone())).transpose()
        };
        Ok(Self { default: compiled("default")?, tool_use: compiled("tool_use")? })
    }
}

impl PromptRenderer {
    /// A renderer for a model whose generations end with one of `eos`.
    pub fn new(templates: Templates, tokenizer: Arc<Tokenizer>, eos: &EosTokens, on_unprovable: OnUnprovable) -> Self {
        let stop_token_ids: Vec<_> = eos.primary.into_iter().chain(eos.others.iter().copied()).collect();
        let seams = Seams::new(tokenizer.added_tokens(), &stop_token_ids);
        Self {
            templates,
            tokenizer,
            seams,
            eos_token_id: eos.primary,
            stop_token_ids,
            on_unprovable,
            formats: AnswerFormats::default(),
            harmony: None,
            images: None,
        }
    }

    /// Has Harmony render conversations instead of the templates, as vLLM does for gpt-oss.
    #[must_use]
    pub fn with_harmony(self, harmony: Option<Harmony>) -> Self {
        Self { harmony, ..self }
    }

    /// Reads answers in these formats, to compare known ids with messages. Without, calls are compared as texts.
    #[must_use]
    pub fn with_answer_formats(self, formats: AnswerFormats) -> Self {
        Self { formats, ..self }
    }

    /// Shows images in prompts between these marks. Without, a conversation with images is refused.
    #[must_use]
    pub fn with_images(self, marks: Option<ImageMarks>) -> Self {
        let images = marks.and_then(|marks| ImageWriting::new(marks, &self.tokenizer));
        Self { images, ..self }
    }

    /// How prompts show images, for models that read some.
    pub fn image_marks(&self) -> Option<ImageMarks> {
        self.images.as_ref().map(ImageWriting::marks)
    }

    /// Whether Harmony renders conversations, so that no template is asked.
    pub fn is_harmony(&self) -> bool {
        self.harmony.is_some()
    }

    /// The tokenizer that the ids belong to.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Compiles a template that a request brings, which may print the model's special tokens. A source that is only a
    /// name stands for the model's template of that name, as in transformers.
    pub fn compile(&self, source: &str) -> Result<Arc<ChatTemplate>, PromptError> {
        let Templates { default, tool_use } = &self.templates;
        let named = match (source, tool_use, default) {
            ("tool_use", Some(named), _) | ("default", Some(_), Some(named)) => Some(named),
            _ => None,
        };
        let source = named.map_or(source, ChatTemplate::source);
        let known = default.as_ref().or(tool_use.as_ref()).ok_or(PromptError::NoTemplate)?;
        Ok(Arc::new(known.with_source(source)?))
    }

    /// Renders a conversation, and encodes what is not known of it. Blocks for milliseconds if the conversation is
    /// long.
    pub fn render(&self, prompt: &ChatPrompt) -> Result<RenderedPrompt, PromptError> {
        self.render_part(prompt, Extent::Whole)
    }

    /// Renders a conversation as [`render`](Self::render) does. Where no ids of it are known, only as many ids are made
    /// as `extent` wants.
    pub fn render_part(&self, prompt: &ChatPrompt, extent: Extent) -> Result<RenderedPrompt, PromptError> {
        if let Some(harmony) = &self.harmony {
            return harmony.render(prompt, extent, self.house());
        }
        match &self.images {
            Some(writing) => self.render_with_images(&Images::of(writing, prompt)?, prompt, extent),
            None => self.render_plain(prompt, prompt.known.as_ref(), extent),
        }
    }

    /// The prompt of a conversation that the client gave whole, with the places of its images.
    pub fn given(&self, prompt: &ChatPrompt, token_ids: Vec<TokenId>) -> Result<RenderedPrompt, PromptError> {
        let images = self.images.as_ref().map(|writing| Images::of(writing, prompt)).transpose()?;
        let images = images.map(|images| images.given(&token_ids)).transpose().map_err(PromptError::Unprovable)?;
        Ok(RenderedPrompt { images: images.unwrap_or_default(), ..RenderedPrompt::from_ids(token_ids) })
    }

    /// Renders with one placeholder for each image, and puts the others in afterwards.
    fn render_with_images(
        &self,
        images: &Images<'_>,
        prompt: &ChatPrompt,
        extent: Extent,
    ) -> Result<RenderedPrompt, PromptError> {
        let known = prompt.known.as_ref().map(|known| images.collapse_known(known)).transpose();
        let (known, refused) = match known {
            Ok(known) => (known, None),
            Err(reason) if self.policy(prompt) == OnUnprovable::Retokenize => (None, Some(reason)),
            Err(reason) => return Err(PromptError::Unprovable(reason)),
        };
        // A part of the ids would lack the images behind it.
        let extent = if images.is_empty() { extent } else { Extent::Whole };
        let (known, start) = known.unzip();
        let mut rendered = self.render_plain(prompt, known.as_ref(), extent)?;
        let start = start.unwrap_or_default();
        let start = Self::kept(images, start, &rendered)?;
        if let Some(reason) = refused {
            rendered.provenance = Provenance::Retokenized(reason);
        }
        if images.is_empty() {
            return Ok(rendered);
        }
        let places = images.places(&start, &rendered.token_ids)?;
        let (token_ids, ranges) = images.expand(&rendered.token_ids, &places);
        let position = |position| expanded_position(position, &places, &ranges);
        if let Provenance::Spliced { reused, .. } = &mut rendered.provenance {
            *reused = position(*reused);
        }
        rendered.drift = rendered.drift.map(|drift| Drift { position: drift.position.map(position) });
        Ok(RenderedPrompt { token_ids: token_ids.into(), images: ranges, ..rendered })
    }

    /// The known ids that a prompt starts with.
    fn kept(images: &Images<'_>, known: Collapsed, rendered: &RenderedPrompt) -> Result<Collapsed, PromptError> {
        match rendered.provenance {
            Provenance::Spliced { anchor, .. } => {
                images.check_anchor(&known, anchor).map_err(PromptError::Unprovable)?;
                Ok(known)
            }
            // Nothing proves which images stand after end tokens that were counted.
            Provenance::SplicedByEosCount { .. } if !images.is_empty() => {
                Err(PromptError::Unprovable(UnprovableSplice::OtherImages))
            }
            Provenance::SplicedByEosCount { .. } => Ok(known),
            Provenance::Given | Provenance::Rendered | Provenance::Retokenized(_) => Ok(Collapsed::default()),
        }
    }

    /// Renders a conversation with one placeholder for each image, after known ids that are as short.
    fn render_plain(
        &self,
        prompt: &ChatPrompt,
        known: Option<&KnownPrefix>,
        extent: Extent,
    ) -> Result<RenderedPrompt, PromptError> {
        let template = self.template(prompt)?;
        let written = self.images.as_ref().and_then(ImageWriting::written);
        let (conversation, text) = Conversation::render(template, prompt, written)?;
        let Some(known) = known else {
            let token_ids = self.tokenizer.encode_part(&text, prompt.add_special_tokens, extent)?;
            let rendered = RenderedPrompt::new(token_ids, Provenance::Rendered);
            let drift = prompt.checks.drift.then_some(Drift { position: None });
            return Ok(RenderedPrompt { drift, text: Some(text), ..rendered });
        };
        let (mut rendered, answer) = self.continued(&conversation, &text, prompt, known)?;
        let anchor = match rendered.provenance {
            Provenance::Spliced { anchor, .. } => Some(anchor),
            _ => known.anchor,
        };
        if prompt.checks.drift {
            rendered.drift = Some(self.drift(&text, prompt, &rendered.token_ids)?);
        }
        if let Some(anchor) = anchor {
            let stops = self.stops(prompt);
            let dated = template.source().contains(CLOCK);
            let written = Some(Written { seams: &self.seams, prompt_ids: &rendered.token_ids, dated });
            let (tokenizer, stops, formats) = (&self.tokenizer, &stops, self.formats);
            let render = &text;
            let comparison = Comparison { tokenizer, prompt, known, anchor, answer, render, stops, formats, written };
            rendered.edits = edits::find(&comparison)?;
        }
        if matches!(rendered.provenance, Provenance::Retokenized(_)) {
            rendered.text = Some(text);
        }
        Ok(rendered)
    }

    /// The template of a conversation.
    fn template<'a>(&'a self, prompt: &'a ChatPrompt) -> Result<&'a ChatTemplate, PromptError> {
        let tool_use = self.templates.tool_use.as_ref().filter(|_| prompt.tools.is_some());
        let own = tool_use.or(self.templates.default.as_ref());
        prompt.template.as_deref().or(own).ok_or(PromptError::NoTemplate)
    }

    /// Ids that end a generation after this prompt.
    fn stops(&self, prompt: &ChatPrompt) -> Vec<TokenId> {
        [self.stop_token_ids.as_slice(), &prompt.stop_token_ids].concat()
    }

    /// What to do where known ids cannot be continued.
    fn policy(&self, prompt: &ChatPrompt) -> OnUnprovable {
        prompt.known.as_ref().and_then(|known| known.on_unprovable).unwrap_or(self.on_unprovable)
    }

    /// The prompt of a conversation with known ids, and where these begin the last answer, if that had to be found.
    fn continued(
        &self,
        conversation: &Conversation<'_>,
        text: &str,
        prompt: &ChatPrompt,
        known: &KnownPrefix,
    ) -> Result<(RenderedPrompt, Option<usize>), PromptError> {
        let stops = self.stops(prompt);
        let splice = Splice {
            conversation,
            tokenizer: &self.tokenizer,
            seams: &self.seams,
            stops: &stops,
            render: text,
            known: &known.token_ids,
            sampled: known.sampled,
        };
        match self.splice(splice, prompt, known) {
            Ok((Anchor { message, answer }, joined)) => {
                let reused = known.token_ids.len();
                let foreign_stop = joined.foreign_stop;
                let provenance = Provenance::Spliced { anchor: message, reused, foreign_stop };
                Ok((RenderedPrompt::new(joined.token_ids, provenance), answer))
            }
            Err(PromptError::Unprovable(reason)) => match known.on_unprovable.unwrap_or(self.on_unprovable) {
                OnUnprovable::Error => Err(PromptError::Unprovable(reason)),
                OnUnprovable::EosCount => Ok((self.count_eos(conversation, text, prompt, known)?, None)),
                OnUnprovable::Retokenize => Ok((self.encode(text, prompt, Provenance::Retokenized(reason))?, None)),
            },
            Err(error) => Err(error),
        }
    }

    /// Joins known ids with the rest, finding the message that they end with if need be.
    fn splice(
        &self,
        splice: Splice<'_>,
        prompt: &ChatPrompt,
        known: &KnownPrefix,
    ) -> Result<(Anchor, Joined), PromptError> {
        if prompt.add_special_tokens && self.tokenizer_ends_text()? {
            return Err(PromptError::Unprovable(UnprovableSplice::TokenizerEndsText));
        }
        let marks = thought_marks(self.formats);
        let anchor = match (known.anchor, prompt.assistants().collect::<Vec<_>>().as_slice()) {
            (Some(anchor), _) => Anchor { message: anchor, answer: None },
            (None, []) => Anchor { message: prompt.messages.len() - 1, answer: None },
            (None, only @ [message]) => {
                let calls = prompt.checks.message && prompt.messages[*message].makes_calls();
                let answer = if calls { splice.find_answer(only, marks)? } else { None };
                Anchor { message: *message, answer }
            }
            (None, several) => splice.find_anchor(several, marks)?,
        };
        Ok((anchor, splice.join(anchor.message)?))
    }

    /// Whether encoding with special tokens puts some after a text.
    fn tokenizer_ends_text(&self) -> Result<bool, PromptError> {
        const TEXT: &str = "a";
        let plain = self.tokenizer.encode(TEXT, false)?;
        Ok(!self.tokenizer.encode(TEXT, true)?.ends_with(&plain))
    }

    fn encode(&self, text: &str, prompt: &ChatPrompt, provenance: Provenance) -> Result<RenderedPrompt, PromptError> {
        let token_ids = self.tokenizer.encode(text, prompt.add_special_tokens)?;
        Ok(RenderedPrompt::new(token_ids, provenance))
    }

    fn drift(&self, text: &str, prompt: &ChatPrompt, token_ids: &[TokenId]) -> Result<Drift, PromptError> {
        Ok(Drift::between(&self.tokenizer.encode(text, prompt.add_special_tokens)?, token_ids))
    }

    fn house(&self) -> House<'_> {
        let Self { eos_token_id, on_unprovable, formats, .. } = *self;
        House { tokenizer: &self.tokenizer, eos_token_id, stop_token_ids: &self.stop_token_ids, on_unprovable, formats }
    }

    fn count_eos(
        &self,
        conversation: &Conversation<'_>,
        text: &str,
        prompt: &ChatPrompt,
        known: &KnownPrefix,
    ) -> Result<RenderedPrompt, PromptError> {
        let last = || prompt.assistants().last().unwrap_or(prompt.messages.len() - 1);
        let prefix = conversation.text_through(known.anchor.unwrap_or_else(last))?;
        let prefix = self.tokenizer.encode(&prefix, false)?;
        let template = self.tokenizer.encode(text, false)?;
        let token_ids = eos_count::replace_prefix_tokens(self.eos_token_id, &known.token_ids, &prefix, &template)
            .map_err(PromptError::Unprovable)?;
        let reused = token_ids.iter().zip(&known.token_ids).take_while(|(id, known)| id == known).count();
        Ok(RenderedPrompt::new(token_ids, Provenance::SplicedByEosCount { reused }))
    }
}
