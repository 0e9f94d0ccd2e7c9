//! What reads the images of requests, for models that see some.

use serde_json::{Map, Value};

use super::{progress::Progress, settings::ImageSettings};
use crate::{
    TokenId,
    engine::{Engine, ImageReading},
    images::ImageProcessor,
    media::MediaReader,
    model::ModelFiles,
    prompt::{ImageMarks, ImageTemplate},
};

/// What images need besides the engine.
pub(super) struct ImageSide {
    pub(super) media: MediaReader,
    pub(super) marks: ImageMarks,
}

/// What reads images for an engine that sees some; `None`, with a warning, where the files of the model do not say how.
pub(super) fn find(
    engine: &dyn Engine,
    files: &ModelFiles,
    settings: ImageSettings,
    progress: &Progress,
) -> anyhow::Result<Option<ImageSide>> {
    let Some(reading) = engine.images().filter(|_| !settings.text_only) else {
        if settings.processor.is_some() {
            anyhow::bail!("--mm-processor-kwargs is for models that see images here, and this one does not");
        }
        if !settings.text_only && processor(files, None)?.is_ok() {
            progress.say("requests with images are refused: this engine reads none for this model on this device");
        }
        return Ok(None);
    };
    let side = processor(files, settings.processor.as_ref())?.and_then(|processor| {
        let marks = marks(reading, &files.config.raw)?;
        let media = MediaReader::new(processor, settings.policy);
        Ok(ImageSide { media: media.map_err(|error| format!("no other host can be asked: {error}"))?, marks })
    });
    match side {
        Ok(side) => Ok(Some(side)),
        Err(reason) => {
            progress.say(&format!("requests with images are refused: {reason}"));
            Ok(None)
        }
    }
}

/// The most patches that an image may have: none where the files of the model do not say how images are read, and `None` where
/// only text is wanted.
pub(super) fn most_patches(files: &ModelFiles, settings: &ImageSettings) -> anyhow::Result<Option<usize>> {
    if settings.text_only {
        return Ok(None);
    }
    let processor = processor(files, settings.processor.as_ref())?;
    Ok(Some(processor.map_or(0, |processor| processor.most_patches())))
}

/// The model's processor, or why there is none.
fn processor(files: &ModelFiles, flag: Option<&Map<String, Value>>) -> anyhow::Result<Result<ImageProcessor, String>> {
    let preprocessor = preprocessor(files, flag)?;
    let processor = ImageProcessor::of_model(&Value::Object(files.config.raw.clone()), &preprocessor);
    Ok(processor.map_err(|error| error.to_string()))
}

/// The settings of the model's processor, with those of the flag in their place.
fn preprocessor(files: &ModelFiles, flag: Option<&Map<String, Value>>) -> anyhow::Result<Value> {
    let mut preprocessor = files.image_processor.clone().unwrap_or_default();
    if let Some(flag) = flag {
        let size = preprocessor.entry("size").or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(size) = size else { anyhow::bail!("the `size` of preprocessor_config.json is no object") };
        size.extend(flag.clone());
        // Older names of the same two settings.
        preprocessor.remove("min_pixels");
        preprocessor.remove("max_pixels");
    }
    Ok(Value::Object(preprocessor))
}

/// The ids around images, as config.json names them.
fn marks(reading: ImageReading, config: &Map<String, Value>) -> Result<ImageMarks, String> {
    let id = |key: &str, default: Option<TokenId>| match config.get(key) {
        None => default.ok_or_else(|| format!("config.json has no `{key}`")),
        Some(id) => {
            let number = id.as_u64().and_then(|id| TokenId::try_from(id).ok());
            number.ok_or_else(|| format!("`{key}` of config.json is {id}, and not an id"))
        }
    };
    let placeholder = reading.placeholder;
    if config.get("model_type").and_then(Value::as_str) == Some("gemma3") {
        let (opens, closes) = (id("boi_token_index", Some(255_999))?, id("eoi_token_index", Some(256_000))?);
        return Ok(ImageMarks { opens, placeholder, closes, template: ImageTemplate::Opening });
    }
    let (opens, closes) = (id("vision_start_token_id", None)?, id("vision_end_token_id", None)?);
    Ok(ImageMarks { opens, placeholder, closes, template: ImageTemplate::Marks })
}
