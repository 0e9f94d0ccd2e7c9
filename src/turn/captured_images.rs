//! The images of captured prompts: what is kept of them, and how they are prepared again.

use std::sync::Arc;

use super::in_flight;
use crate::{
    engine::PromptImage,
    media::{Hold, MediaReader},
    trajectory::ImageUsed,
};

/// What captures keep of an image, and of its file where files are kept.
pub(super) fn image_to_keep(PromptImage { offset, image }: &PromptImage, keeps_files: bool) -> ImageUsed {
    let file = image.file().filter(|_| keeps_files).cloned();
    ImageUsed {
        identity: image.identity().to_string().into(),
        offset: *offset,
        length: image.placeholders(),
        rows: image.grid().rows,
        columns: image.grid().columns,
        file_bytes: file.as_ref().map(|file| file.len() as u64),
        file,
    }
}

/// Prepares the images of a captured prompt again, whose files were read, and holds their memory.
///
/// # Errors
///
/// If they cannot be what the model saw; the text says why.
pub(crate) async fn kept_images(
    media: Option<&MediaReader>,
    kept: &[ImageUsed],
) -> Result<(Arc<[PromptImage]>, Option<Hold>), String> {
    if kept.is_empty() {
        return Ok((Arc::default(), None));
    }
    let media = media.ok_or("its prompt has images, and this model sees none")?;
    let mut images = Vec::with_capacity(kept.len());
    for used in kept {
        let file = used.file.clone();
        let file = file.ok_or(
            "its prompt has images, whose files were not kept (--capture-images false, or they came as tensors)",
        )?;
        let (turn, reader) = (media.turn().await, media.clone());
        let preparing = move || {
            let _turn = turn;
            reader.prepare(&file)
        };
        let image = in_flight::blocking(preparing).await.map_err(|error| error.to_string())?;
        let image = image.map_err(|error| format!("an image of its prompt cannot be read: {error}"))?;
        if image.identity().to_string() != *used.identity || image.placeholders() != used.length {
            return Err("an image of its prompt was prepared with other settings of the processor \
                        (preprocessor_config.json, --mm-processor-kwargs)"
                .to_owned());
        }
        images.push(PromptImage { offset: used.offset, image });
    }
    let hold = media.hold(images.iter().map(|image| &image.image)).map_err(|error| error.to_string())?;
    Ok((images.into(), Some(hold)))
}
