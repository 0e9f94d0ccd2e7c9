//! Messages and known ids to prompt ids, with a proof.
//!
//! [`ModelFiles::open`] reads a model's directory or GGUF file, and [`PromptRenderer::render`] makes a [`RenderedPrompt`] of a
//! [`ChatPrompt`]. Its [`Provenance`] says whether known ids were continued with a proof. What cannot be continued with a
//! proof is an error, unless [`OnUnprovable`] says otherwise. The page of the crate has an example.
//!
//! Ids are known in one of two ways: the caller has kept them ([`KnownPrefix`]), or messages carry them in the fields
//! `prompt_token_ids` and `generation_token_ids`, and [`known_prefix`] finds the ones that count.

pub use crate::{
    chat::{
        AssistantItem, Content, ContentPart, FunctionTool, Image, ImageSize, Message, Role, TokenBundle, TokenIds,
        ToolCall,
    },
    continuity::{ContinuityError, Reason, known_prefix},
    json::{Object, Path, Segment, Value},
    model::{EosTokens, ModelError, ModelFiles, TokenizerConfig},
    prompt::{
        AnswerFormats, ChatPrompt, Checks, Drift, Edits, Harmony, HarmonySettings, ImageForm, ImageMarks,
        ImageTemplate, KnownPrefix, OnUnprovable, PromptError, PromptRenderer, Provenance, RenderedPrompt, Templates,
        UnprovableSplice,
        template::{ChatTemplate, TemplateError},
    },
    tokenizer::{Tokenizer, TokenizerError},
};
