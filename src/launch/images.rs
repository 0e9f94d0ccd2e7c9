//! What reads the images of requests, for models that see some.

use std::sync::Arc;

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

/// Why requests with images are refused; `None` for a model of text alone, and where only text is wanted.
pub(super) type RefusedImages = Option<Arc<str>>;

/// What reads images for an engine that sees some; without, or where the files of the model do not say how, why there is none.
pub(super) fn find(
    engine: &dyn Engine,
    files: &ModelFiles,
    tokenizer: &Tokenizer,
    settings: ImageSettings,
    progress: &Progress,
) -> anyhow::Result<Result<ImageSide, RefusedImages>> {
    let refused = |reason: String| {
        progress.say(&format!("requests with images are refused: {reason}"));
        Err(Some(reason.into()))
    };
    let Some(reading) = engine.images().filter(|_| !settings.text_only) else {
        check_processor(&settings, false)?;
        if !settings.text_only && processor(files, None)?.is_ok() {
            return Ok(refused("this engine reads none for this model on this device".to_owned()));
        }
        return Ok(Err(None));
    };
    let side = processor(files, settings.processor.as_ref())?.and_then(|processor| {
        check_names(reading, &files.processor_config, &files.tokenizer_config.raw, tokenizer)?;
        let marks = marks(reading, &files.config.raw, tokenizer)?;
        check_ids(reading, marks, &files.tokenizer_config.raw, tokenizer)?;
        let media = MediaReader::new(processor, settings.policy);
        Ok(ImageSide { media: media.map_err(|error| format!("no other host can be asked: {error}"))?, marks })
    });
    Ok(side.or_else(refused))
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
    // transformers has no processor then, and whose own values count would be a guess.
    if files.image_processor.is_none() {
        let reason = "the model has neither a preprocessor_config.json nor an image_processor in processor_config.json";
        return Ok(Err(reason.to_owned()));
    }
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
        let older = [("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")];
        let older = older.into_iter().filter(|(_, own)| given.contains_key(*own)).map(|(older, _)| older);
        for older in older.clone().filter(|older| !flag.is_some_and(|flag| flag.contains_key(*older))) {
            preprocessor.remove(older);
        }
        let size = preprocessor.entry(key).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(size) = size else { anyhow::bail!("the `size` of preprocessor_config.json is no object") };
        // As older releases of transformers saved them.
        for older in older {
            size.remove(older);
        }
        size.extend(given.clone());
    }
    Ok(Value::Object(preprocessor))
}

/// The settings of a tokenizer that may name tokens.
fn naming(tokenizer_config: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let extra = tokenizer_config.get("extra_special_tokens").and_then(Value::as_object);
    extra.into_iter().chain([tokenizer_config])
}

/// Refuses other names of what shows images than those that are used here. The processor of Mistral 3 has its own, and that of
/// `InternVL` those of its tokenizer.
fn check_names(
    ImageReading { placeholder, frame }: ImageReading,
    processor: &Map<String, Value>,
    tokenizer_config: &Map<String, Value>,
    tokenizer: &Tokenizer,
) -> Result<(), String> {
    let of_tokenizer = || naming(tokenizer_config);
    let file = "tokenizer_config.json";
    let check =
        |sources: &mut dyn Iterator<Item = &Map<String, Value>>, file: &str, key: &str, name: &str| match sources
            .filter_map(|source| source.get(key))
            .find(|said| text_of(said) != Some(name))
        {
            Some(other) => Err(format!("`{key}` of {file} is {other}, and only {name} is supported")),
            None => Ok(()),
        };
    match frame {
        ImageFrame::Rows([breaks, ends]) => {
            let file = "processor_config.json";
            check(&mut [processor].into_iter(), file, "image_break_token", breaks)?;
            check(&mut [processor].into_iter(), file, "image_end_token", ends)?;
            match processor.get("image_token") {
                Some(said) if text_of(said).and_then(|said| tokenizer.id_of(said)) != Some(placeholder) => Err(
                    format!("`image_token` of {file} is {said}, which is not the token {placeholder} of config.json"),
                ),
                _ => Ok(()),
            }
        }
        ImageFrame::Around([opens, closes]) => {
            check(&mut of_tokenizer(), file, "start_image_token", opens)?;
            check(&mut of_tokenizer(), file, "end_image_token", closes)
        }
        // These are known by ids of config.json.
        ImageFrame::Marks(_) | ImageFrame::Opening(_) => Ok(()),
    }
}

/// Refuses ids that show images and are no tokens of the tokenizer, or others than those that it names: transformers writes
/// the latter into a prompt.
fn check_ids(
    ImageReading { placeholder, frame }: ImageReading,
    marks: ImageMarks,
    tokenizer_config: &Map<String, Value>,
    tokenizer: &Tokenizer,
) -> Result<(), String> {
    let (ImageForm::Between { opens, closes, .. }
    | ImageForm::Rows { breaks: opens, ends: closes }
    | ImageForm::Around { opens, closes }) = marks.form;
    for id in [placeholder, opens, closes] {
        if tokenizer.token(id).is_none_or(|text| text.is_empty()) {
            return Err(format!("config.json has the token {id} show images, and the tokenizer has no such token"));
        }
    }
    let named: &[(&str, TokenId)] = match frame {
        ImageFrame::Opening(_) => &[("boi_token", opens), ("image_token", placeholder), ("eoi_token", closes)],
        ImageFrame::Marks(_) => &[("image_token", placeholder)],
        ImageFrame::Around(_) => &[("context_image_token", placeholder)],
        // Its processor has the name.
        ImageFrame::Rows(_) => &[],
    };
    for &(key, id) in named {
        let mut said = naming(tokenizer_config).filter_map(|source| source.get(key)).filter(|said| !said.is_null());
        let is_other = |said: &&Value| text_of(said).and_then(|text| tokenizer.id_of(text)) != Some(id);
        if let Some(said) = said.find(is_other) {
            return Err(format!(
                "`{key}` of tokenizer_config.json is {said}, which is not the token {id} of config.json"
            ));
        }
    }
    Ok(())
}

/// The text of a token, which may be described.
fn text_of(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_names_of_what_shows_images_are_refused() {
        let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model/tokenizer.json");
        let tokenizer = Tokenizer::from_file(tokenizer).unwrap();
        let check = |frame, processor: &Value, config: &Value| {
            let reading = ImageReading { placeholder: tokenizer.id_of("<|im_end|>").unwrap(), frame };
            check_names(reading, processor.as_object().unwrap(), config.as_object().unwrap(), &tokenizer)
        };
        let (rows, around) = (ImageFrame::Rows(["[B]", "[E]"]), ImageFrame::Around(["<a>", "</a>"]));
        let none = json!({});
        let usual =
            json!({"image_break_token": "[B]", "image_end_token": {"content": "[E]"}, "image_token": "<|im_end|>"});
        for processor in [&none, &usual] {
            assert_eq!(check(rows, processor, &none), Ok(()));
        }
        for key in ["image_break_token", "image_end_token", "image_token"] {
            let other = json!({key: "[OTHER]"});
            let error = check(rows, &other, &none).unwrap_err();
            assert!(error.starts_with(&format!("`{key}` of processor_config.json is \"[OTHER]\"")), "{error}");
            assert_eq!(check(around, &other, &none), Ok(()));
        }
        for key in ["start_image_token", "end_image_token"] {
            for config in [json!({key: "[OTHER]"}), json!({"extra_special_tokens": {key: "[OTHER]"}})] {
                let error = check(around, &none, &config).unwrap_err();
                assert!(error.starts_with(&format!("`{key}` of tokenizer_config.json is \"[OTHER]\"")), "{error}");
            }
            assert_eq!(check(around, &none, &json!({"start_image_token": "<a>", "end_image_token": "</a>"})), Ok(()));
        }
    }

    fn tiny() -> ModelFiles {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model");
        ModelFiles::open(directory.as_ref()).unwrap()
    }

    #[test]
    fn a_model_without_a_file_for_its_processor_has_none() {
        let mut files = tiny();
        files.config.raw.insert("model_type".to_owned(), json!("qwen2_5_vl"));
        let reason = processor(&files, None).unwrap().unwrap_err();
        assert!(reason.starts_with("the model has neither a preprocessor_config.json nor"), "{reason}");
        files.image_processor = Some(Map::new());
        assert!(processor(&files, None).unwrap().is_ok());
    }

    #[test]
    fn limits_of_the_flag_take_the_place_of_those_of_older_files() {
        let mut files = tiny();
        let older = json!({"min_pixels": 3136, "max_pixels": 1_003_520});
        let mut both = older.as_object().unwrap().clone();
        both.insert("size".to_owned(), older);
        files.image_processor = Some(both);
        let flag = json!({"size": {"shortest_edge": 4000, "longest_edge": 8000}});
        let own = preprocessor(&files, flag.as_object()).unwrap();
        assert_eq!(own, flag);
    }

    #[test]
    fn ids_that_the_tokenizer_lacks_or_calls_otherwise_are_refused() {
        let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model/tokenizer.json");
        let tokenizer = Tokenizer::from_file(tokenizer).unwrap();
        let keys = ["boi_token_index", "eoi_token_index"];
        let check = |frame, config: Value, tokenizer_config: Value| {
            let reading = ImageReading { placeholder: tokenizer.id_of("<|im_end|>").unwrap(), frame };
            let marks = marks(reading, config.as_object().unwrap(), &tokenizer)?;
            check_ids(reading, marks, tokenizer_config.as_object().unwrap(), &tokenizer)
        };
        let opening = ImageFrame::Opening([(keys[0], 255_999), (keys[1], 256_000)]);
        let (one, other) = (tokenizer.id_of("a").unwrap(), tokenizer.id_of("b").unwrap());
        let both = || json!({keys[0]: one, keys[1]: other});
        let names = json!({"boi_token": "a", "image_token": "<|im_end|>", "eoi_token": {"content": "b"}});
        for named in [json!({}), names.clone(), json!({"extra_special_tokens": names, "boi_token": "a"})] {
            assert_eq!(check(opening, both(), named), Ok(()));
        }
        for (key, id) in keys.into_iter().zip([255_999, 256_000]) {
            // Left out, and as it is by default.
            for said in [None, Some(json!(id))] {
                let mut config = both();
                config.as_object_mut().unwrap().remove(key);
                config.as_object_mut().unwrap().extend(said.map(|said| (key.to_owned(), said)));
                let error = check(opening, config, json!({})).unwrap_err();
                assert_eq!(
                    error,
                    format!("config.json has the token {id} show images, and the tokenizer has no such token")
                );
            }
        }
        for key in ["boi_token", "image_token", "eoi_token"] {
            for named in [json!({key: "c"}), json!({"extra_special_tokens": {key: "c"}}), json!({key: "no token"})] {
                let error = check(opening, both(), named).unwrap_err();
                assert!(error.starts_with(&format!("`{key}` of tokenizer_config.json is \"")), "{error}");
                assert!(error.contains("which is not the token"), "{error}");
            }
        }
        let marked = ImageFrame::Marks(keys);
        assert_eq!(check(marked, both(), json!({"boi_token": "c", "image_token": "<|im_end|>"})), Ok(()));
        assert!(check(marked, both(), json!({"image_token": "c"})).unwrap_err().contains("`image_token`"));
    }
}
