//! Messages to token ids: [`PromptRenderer::render`] is the only way, for every endpoint.
//!
//! Owns the chat template, the shape of messages that it sees, the splice of known ids and the length check.
//! Refuses HTTP, the engine, and the question which ids are known (`continuity`).

mod anchor;
mod conversation;
mod edits;
mod eos_count;
mod guards;
mod harmony;
mod marks;
mod messages;
mod seams;
mod short;
mod splice;
mod splice_context;
mod tail;
pub mod template;

use std::sync::Arc;

use time::OffsetDateTime;

use crate::{
    TokenId,
    chat::{FunctionTool, Message},
    json::{Object, Path, Value},
    model::{EosTokens, TokenizerConfig},
    tokenizer::{Extent, Tokenizer, TokenizerError},
};
use conversation::Conversation;
#[cfg(any(test, feature = "internals"))]
pub use eos_count::replace_prefix_tokens;
use harmony::House;
pub use harmony::{Harmony, HarmonySettings};
pub use messages::{message_text, without_billing_header};
use seams::Seams;
use splice::Joined;
use splice_context::Splice;
use template::{ChatTemplate, Patience, TemplateError};

/// A conversation to be put into ids.
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
    /// Ids that the conversation is known to start with.
    pub known: Option<KnownPrefix>,
    /// The template's clock, in the server's time zone.
    pub now: OffsetDateTime,
    /// What to find out besides the ids.
    pub checks: Checks,
    /// For how long renders of it are wanted.
    pub patience: Patience,
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

/// How the ids of a prompt came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provenance {
    /// The client gave all of them.
    Given,
    /// Encoded from the render; no ids were known.
    Rendered,
    /// Known ids, then the tail of the render, proven.
    Spliced {
        /// The message that the known ids end with.
        anchor: usize,
        /// Known ids at the start of the prompt.
        reused: usize,
        /// The known ids end with a stop token that the template does not close messages with.
        foreign_stop: bool,
    },
    /// Known ids, then what follows as many end tokens of the render; not proven.
    SplicedByEosCount {
        /// Known ids at the start of the prompt.
        reused: usize,
    },
    /// Known ids could not be joined and were left out, as configured.
    Retokenized(UnprovableSplice),
}

/// A prompt in ids.
#[derive(Debug, Clone)]
pub struct RenderedPrompt {
    /// The ids, as the engine gets them.
    pub token_ids: Arc<[TokenId]>,
    /// How the ids came about.
    pub provenance: Provenance,
    /// The whole conversation as the template wrote it, where the ids are those of that text.
    pub text: Option<String>,
    /// How the whole conversation would have been encoded, if that was asked.
    pub drift: Option<Drift>,
    /// Where the known ids say something else than the messages, as far as that was asked.
    pub edits: Edits,
}

/// What encoding a whole conversation gives, compared with its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drift {
    /// The first position at which the two differ, or at which one of them has ended; `None` if the ids are the same.
    pub position: Option<usize>,
}

/// Where known ids say something else than the messages that they stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Edits {
    /// Whether they differ in the message that they end with.
    pub message: bool,
    /// Whether they differ in a message before that one.
    pub history: bool,
}

/// Why known ids could not be joined with the rest of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, thiserror::Error)]
#[strum(serialize_all = "snake_case")]
pub enum UnprovableSplice {
    /// No render shows where the message ends.
    #[error("the chat template does not render the message that the known ids end with exactly once")]
    AnchorNotRendered,
    /// Something other than a special token follows the message.
    #[error("the chat template does not close the message that the known ids end with by a special token")]
    NoClose,
    /// The tail depends on what the message says.
    #[error("what the chat template writes after the known ids depends on the text of the message they end with")]
    TailDiffers,
    /// Later messages are shown before the known ids end.
    #[error("the chat template moves messages that follow the known ids in front of them")]
    MessagesMoved,
    /// The ids are those of no turn of this conversation, or of more than one.
    #[error("no assistant message is provably the one that they end with; send them on that message instead")]
    AnchorNotFound,
    /// The tokenizer does not isolate the token at the seam.
    #[error("the tokenizer does not keep the special token at which the known ids would be continued")]
    TokenizerMovesSeam,
    /// The tokenizer puts tokens after a text.
    #[error("the tokenizer ends texts with special tokens when `add_special_tokens` is set")]
    TokenizerEndsText,
    /// A message that ended with a stop token is to be continued.
    #[error("the final message ended with a stop token and cannot be continued after its ids")]
    ContinuesClosedMessage,
    /// A message that was changed is to be continued.
    #[error("the final message does not say what its ids say, so it cannot be continued after them")]
    ContinuesOtherText,
    /// End tokens cannot be counted, since the tokenizer has none.
    #[error("the tokenizer has no end-of-sequence token to count")]
    NoEosToken,
    /// The render has fewer end tokens than its own start.
    #[error("end-of-sequence token #{count} was not found in the template's ids")]
    EosNotFound {
        /// The number of the end token that was looked for.
        count: usize,
    },
}

/// Why a conversation has no prompt.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The model has no template.
    #[error(
        "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if \
         the tokenizer does not define one."
    )]
    NoTemplate,
    /// The template failed or refused.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A message says something that tito cannot show.
    #[error("{message}")]
    Content {
        /// Where it stands in the request.
        field: Path,
        /// What is wrong.
        message: String,
    },
    /// The final message cannot be continued, for this reason.
    #[error("{0}")]
    ContinueFinalMessage(&'static str),
    /// Known ids cannot be joined.
    #[error("the given token ids cannot be continued exactly: {0}")]
    Unprovable(UnprovableSplice),
    /// The tokenizer failed.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

/// The chat templates of a model.
#[derive(Debug, Default)]
pub struct Templates {
    /// The template for every conversation that the other one is not for.
    pub default: Option<ChatTemplate>,
    /// The template for conversations with tools, where the model has one of its own for them.
    pub tool_use: Option<ChatTemplate>,
}

/// Turns conversations into ids.
pub struct PromptRenderer {
    templates: Templates,
    tokenizer: Arc<Tokenizer>,
    seams: Seams,
    eos_token_id: Option<TokenId>,
    stop_token_ids: Vec<TokenId>,
    on_unprovable: OnUnprovable,
    /// What renders instead of the templates, for models that read Harmony.
    harmony: Option<Harmony>,
}

impl RenderedPrompt {
    /// A prompt that needs no render, since the client gave all its ids.
    pub fn from_ids(token_ids: Vec<TokenId>) -> Self {
        Self::new(token_ids, Provenance::Given)
    }

    fn new(token_ids: Vec<TokenId>, provenance: Provenance) -> Self {
        Self { token_ids: token_ids.into(), provenance, text: None, drift: None, edits: Edits::default() }
    }
}

impl Drift {
    /// What is different between the ids of a whole conversation and its prompt.
    fn between(encoded: &[TokenId], prompt: &[TokenId]) -> Self {
        let same = encoded.iter().zip(prompt).take_while(|(encoded, id)| encoded == id).count();
        Self { position: (same < encoded.len().max(prompt.len())).then_some(same) }
    }
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
            template: None,
            template_kwargs: Object::new(),
            reasoning_effort: None,
            add_special_tokens: false,
            stop_token_ids: Vec::new(),
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

    fn has_tool_calls(&self) -> bool {
        self.messages.iter().any(|message| message.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty()))
    }
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
        Self { templates, tokenizer, seams, eos_token_id: eos.primary, stop_token_ids, on_unprovable, harmony: None }
    }

    /// Has Harmony render conversations instead of the templates, as vLLM does for gpt-oss.
    #[must_use]
    pub fn with_harmony(self, harmony: Option<Harmony>) -> Self {
        Self { harmony, ..self }
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
        let tool_use = self.templates.tool_use.as_ref().filter(|_| prompt.tools.is_some());
        let own = tool_use.or(self.templates.default.as_ref());
        let template = prompt.template.as_deref().or(own).ok_or(PromptError::NoTemplate)?;
        let (conversation, text) = Conversation::render(template, prompt)?;
        let Some(known) = &prompt.known else {
            let token_ids = self.tokenizer.encode_part(&text, prompt.add_special_tokens, extent)?;
            let rendered = RenderedPrompt::new(token_ids, Provenance::Rendered);
            let drift = prompt.checks.drift.then_some(Drift { position: None });
            return Ok(RenderedPrompt { drift, text: Some(text), ..rendered });
        };
        let mut rendered = self.continued(&conversation, &text, prompt, known)?;
        let anchor = match rendered.provenance {
            Provenance::Spliced { anchor, .. } => Some(anchor),
            _ => known.anchor,
        };
        if prompt.checks.drift {
            rendered.drift = Some(self.drift(&text, prompt, &rendered.token_ids)?);
        }
        if let Some(anchor) = anchor {
            rendered.edits = edits::find(&self.tokenizer, prompt, known, anchor, &text)?;
        }
        if matches!(rendered.provenance, Provenance::Retokenized(_)) {
            rendered.text = Some(text);
        }
        Ok(rendered)
    }

    /// The prompt of a conversation with known ids.
    fn continued(
        &self,
        conversation: &Conversation<'_>,
        text: &str,
        prompt: &ChatPrompt,
        known: &KnownPrefix,
    ) -> Result<RenderedPrompt, PromptError> {
        let stops = [self.stop_token_ids.as_slice(), &prompt.stop_token_ids].concat();
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
            Ok((anchor, joined)) => {
                let reused = known.token_ids.len();
                let provenance = Provenance::Spliced { anchor, reused, foreign_stop: joined.foreign_stop };
                Ok(RenderedPrompt::new(joined.token_ids, provenance))
            }
            Err(PromptError::Unprovable(reason)) => match known.on_unprovable.unwrap_or(self.on_unprovable) {
                OnUnprovable::Error => Err(PromptError::Unprovable(reason)),
                OnUnprovable::EosCount => self.count_eos(conversation, text, prompt, known),
                OnUnprovable::Retokenize => self.encode(text, prompt, Provenance::Retokenized(reason)),
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
    ) -> Result<(usize, Joined), PromptError> {
        if prompt.add_special_tokens && self.tokenizer_ends_text()? {
            return Err(PromptError::Unprovable(UnprovableSplice::TokenizerEndsText));
        }
        let anchor = match (known.anchor, prompt.assistants().collect::<Vec<_>>().as_slice()) {
            (Some(anchor), _) => anchor,
            (None, []) => prompt.messages.len() - 1,
            (None, [only]) => *only,
            (None, several) => splice.find_anchor(several)?,
        };
        Ok((anchor, splice.join(anchor)?))
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
        let Self { eos_token_id, on_unprovable, .. } = *self;
        House { tokenizer: &self.tokenizer, eos_token_id, stop_token_ids: &self.stop_token_ids, on_unprovable }
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
