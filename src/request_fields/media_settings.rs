//! How a request wants its images to be read.

use crate::{json::Value, wire::error::ApiError};

/// Refuses settings of the image processor, and of reading images, that a request brings: they are the operator's, as in vLLM
/// without `--trust-request-mm-kwargs`.
pub(crate) fn refuse_media_settings(
    mm_processor_kwargs: Option<&Value>,
    media_io_kwargs: Option<&Value>,
) -> Result<(), ApiError> {
    let fields = [
        ("mm_processor_kwargs", mm_processor_kwargs, "preprocessing"),
        ("media_io_kwargs", media_io_kwargs, "media loading"),
    ];
    let set = |value: Option<&Value>| value.and_then(Value::as_object).is_some_and(|kwargs| !kwargs.is_empty());
    match fields.into_iter().find(|(_, value, _)| set(*value)) {
        Some((name, _, what)) => {
            let message = format!(
                "Per-request {name} are disabled by default because they can change multimodal {what} resource usage. \
                 Start the server with --trust-request-mm-kwargs only when clients are trusted. (parameter={name})"
            );
            Err(ApiError::invalid(name, message))
        }
        None => Ok(()),
    }
}
