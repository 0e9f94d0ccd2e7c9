//! What is served: a model, and what of it comes from elsewhere.

use std::path::PathBuf;

use crate::{
    config::{ModelLength, ServeArgs},
    model::{DownloadProgress, HubOptions},
    prompt::{HarmonySettings, template::ContentFormat},
};

/// What is served.
pub(in crate::launch) struct ModelSettings {
    /// A file, a directory or an id of the hub.
    pub(in crate::launch) name: String,
    /// Names that requests may use.
    pub(in crate::launch) served_names: Vec<String>,
    /// The model whose tokenizer and chat template are taken.
    pub(in crate::launch) tokenizer: Option<String>,
    /// A chat template, or its file.
    pub(in crate::launch) chat_template: Option<String>,
    /// What templates take a message's content for, unless they show it.
    pub(in crate::launch) content_format: Option<ContentFormat>,
    /// What prompts of gpt-oss say besides the conversation.
    pub(in crate::launch) harmony: HarmonySettings,
    /// The longest sequence.
    pub(in crate::launch) max_model_len: ModelLength,
    hub: Hub,
}

/// Where models of the hub come from and are kept.
struct Hub {
    offline: bool,
    cache_dir: PathBuf,
    token: Option<String>,
    endpoint: Option<String>,
    revision: Option<String>,
}

impl ModelSettings {
    /// How the model's files are fetched; `progress` is told how that goes on.
    pub(in crate::launch) fn hub(&self, progress: DownloadProgress) -> HubOptions {
        HubOptions {
            offline: self.hub.offline,
            cache_dir: self.hub.cache_dir.clone(),
            token: self.hub.token.clone(),
            endpoint: self.hub.endpoint.clone(),
            revision: self.hub.revision.clone(),
            without_weights: false,
            progress,
        }
    }
}

/// What flags say of the model.
pub(super) fn settings(args: &ServeArgs) -> ModelSettings {
    ModelSettings {
        name: args.model().to_owned(),
        served_names: args.served_model_name.clone(),
        tokenizer: args.tokenizer.clone(),
        chat_template: args.chat_template.clone(),
        content_format: args.chat_template_content_format.into(),
        harmony: HarmonySettings {
            start_date: args.harmony.system_start_date.clone().filter(|date| !date.is_empty()),
            system_instructions: args.harmony.harmony_system_instructions.is_some_and(|number| number != 0),
        },
        max_model_len: args.max_model_len,
        hub: Hub {
            offline: args.hub.hub_offline,
            cache_dir: args.hub.cache_dir(),
            token: args.hub.token(),
            endpoint: args.hub.hub_endpoint.clone(),
            revision: args.hub.revision.clone(),
        },
    }
}
