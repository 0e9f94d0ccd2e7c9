//! What every engine is told before it is loaded.

use super::{
    device::Device,
    settings::{EngineSettings, ImageSettings},
};
use crate::{
    model::{EosTokens, ModelFiles},
    tokenizer::Tokenizer,
};

/// What is loaded, and where it is to run.
#[derive(Clone, Copy)]
pub(super) struct LoadPlan<'a> {
    pub(super) settings: &'a EngineSettings,
    pub(super) images: &'a ImageSettings,
    pub(super) device: Device,
    pub(super) files: &'a ModelFiles,
    /// Those of the model that drafts, if one does.
    pub(super) draft: Option<&'a ModelFiles>,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) eos: &'a EosTokens,
    pub(super) max_model_len: usize,
}
