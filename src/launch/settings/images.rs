//! What flags say of images.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::{
    config::ServeArgs,
    launch::memory,
    media::{HostPolicy, MediaPolicy},
};

/// Which images requests may have.
#[derive(Debug, Clone)]
pub(in crate::launch) struct ImageSettings {
    /// How many, where from, and how many are kept.
    pub(in crate::launch) policy: MediaPolicy,
    /// Images are refused, whatever the model sees.
    pub(in crate::launch) text_only: bool,
    /// Sizes for the model's image processor, in the place of its own.
    pub(in crate::launch) processor: Option<Map<String, Value>>,
}

/// Which images requests may have.
pub(super) fn settings(args: &ServeArgs) -> ImageSettings {
    let keeps_files = args.capture.capture.is_some() && args.capture.capture_images;
    let args = &args.images;
    ImageSettings {
        policy: MediaPolicy {
            images_per_prompt: args.limit_mm_per_prompt.unwrap_or_default().0,
            local_path: args.allowed_local_media_path.clone(),
            hosts: HostPolicy {
                allowed: args.allowed_media_domains.clone(),
                timeout: Duration::from_secs(args.image_fetch_timeout),
                redirects: if args.media_url_allow_redirects == Some(0) { 0 } else { HostPolicy::default().redirects },
                ..HostPolicy::default()
            },
            cache_bytes: args.mm_processor_cache_gb.0,
            held_bytes: memory::for_images(),
            keeps_files,
        },
        text_only: args.language_model_only,
        processor: args.mm_processor_kwargs.clone().map(|settings| settings.0),
    }
}
