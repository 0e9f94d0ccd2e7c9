//! What reads the images of requests, for models that see some.

use serde_json::{Map, Value};

use super::{progress::Progress, settings::ImageSettings};
use crate::{
    TokenId,
    engine::{Engine, ImageFrame, ImageReading},
    images::ImageProcessor,
    media::MediaReader,
    model::ModelFiles,
    prompt::{ImageForm, ImageMarks, ImageTemplate},
    tokenizer::Tokenizer,
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
    tokenizer: &Tokenizer,
    settings: ImageSettings,
    progress: &Progress,
) -> anyhow::Result<Option<ImageSide>> {
    let Some(reading) = engine.images().filter(|_| !settings.text_only) else {
        check_processor(&settings, false)?;
        if !settings.text_only && processor(files, None)?.is_ok() {
            progress.say("requests with images are refused: this engine reads none for this model on this device");
        }
        return Ok(None);
    };
    let side = processor(files, settings.processor.as_ref())?.and_then(|processor| {
        let marks = marks(reading, &files.config.raw, tokenizer)?;
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

/// Refuses settings of a processor where no image is read.
pub(super) fn check_processor(settings: &ImageSettings, reads_images: bool) -> anyhow::Result<()> {
    if settings.processor.is_some() && !reads_images {
        anyhow::bail!("--mm-processor-kwargs is for models that see images here, and this one does not");
    }
    Ok(())
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
    for (key, value) in flag.into_iter().flatten() {
        let Value::Object(given) = value else {
            preprocessor.insert(key.clone(), value.clone());
            continue;
        };
        // Older names of the same two settings, which take precedence where they are.
        for (older, own) in [("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")] {
            if given.contains_key(own) && !flag.is_some_and(|flag| flag.contains_key(older)) {
                preprocessor.remove(older);
            }
        }
        let size = preprocessor.entry(key).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(size) = size else { anyhow::bail!("the `size` of preprocessor_config.json is no object") };
        size.extend(given.clone());
    }
    Ok(Value::Object(preprocessor))
}

/// The ids that show images, as config.json and the tokenizer have them.
fn marks(
    ImageReading { placeholder, frame }: ImageReading,
    config: &Map<String, Value>,
    tokenizer: &Tokenizer,
) -> Result<ImageMarks, String> {
    let id = |key: &str, default: Option<TokenId>| match config.get(key) {
        None => default.ok_or_else(|| format!("config.json has no `{key}`")),
        Some(id) => {
            let number = id.as_u64().and_then(|id| TokenId::try_from(id).ok());
            number.ok_or_else(|| format!("`{key}` of config.json is {id}, and not an id"))
        }
    };
    let named = |text: &str| tokenizer.id_of(text).ok_or_else(|| format!("the tokenizer has no token {text}"));
    let form = match frame {
        ImageFrame::Marks([opens, closes]) => {
            ImageForm::Between { opens: id(opens, None)?, closes: id(closes, None)?, template: ImageTemplate::Marks }
        }
        ImageFrame::Opening([(opens, first), (closes, last)]) => {
            let (opens, closes) = (id(opens, Some(first))?, id(closes, Some(last))?);
            ImageForm::Between { opens, closes, template: ImageTemplate::Opening }
        }
        ImageFrame::Rows([breaks, ends]) => ImageForm::Rows { breaks: named(breaks)?, ends: named(ends)? },
        ImageFrame::Around([opens, closes]) => ImageForm::Around { opens: named(opens)?, closes: named(closes)? },
    };
    Ok(ImageMarks { placeholder, form })
}
