//! What `preprocessor_config.json` says, read as `Qwen2VLImageProcessor` reads it. Every setting is followed, or known to change
//! nothing, or refused.

use serde_json::{Map, Value};

use super::smart_resize::Sizes;
use crate::{
    error::UnsupportedProcessor,
    prepared::{Normalisation, PatchShape},
};

const MODEL_TYPES: [&str; 5] = ["qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"];
const PROCESSORS: [&str; 3] = ["Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2_5_VLImageProcessor"];

/// Settings that must have one value, or be left to transformers, whose own value it is.
const FIXED: [(&str, Fixed, &str); 7] = [
    ("data_format", Fixed::Text("channels_first"), "only channels_first can be done"),
    ("do_resize", Fixed::True, "images are always resized"),
    ("do_rescale", Fixed::True, "pixels are always rescaled"),
    ("do_normalize", Fixed::True, "pixels are always normalised"),
    ("do_convert_rgb", Fixed::True, "images are always converted to RGB"),
    ("resample", Fixed::Number(3.0), "only 3 (bicubic) can be done"),
    ("rescale_factor", Fixed::Number(1.0 / 255.0), "only 1/255 can be done"),
];

/// Settings that say who reads them, or that this processor does not look at.
const WITHOUT_EFFECT: [&str; 8] = [
    "default_to_square",
    "disable_grouping",
    "feature_extractor_type",
    "image_seq_length",
    "model_input_names",
    "processor_class",
    "return_tensors",
    "transformers_version",
];

/// Settings with a reader of their own.
const READ: [&str; 9] = [
    "image_mean",
    "image_processor_type",
    "image_std",
    "max_pixels",
    "merge_size",
    "min_pixels",
    "patch_size",
    "size",
    "temporal_patch_size",
];

/// No tower has patches this large, blocks this large, or frames this many.
const MAX_SIDE: u32 = 256;

/// The most pixels that a small image may be enlarged to: what a checkpoint asks for is allocated.
const MOST_ENLARGED: u64 = 1 << 26;

#[derive(Clone, Copy)]
enum Fixed {
    True,
    Number(f64),
    Text(&'static str),
}

impl Fixed {
    fn is(self, value: &Value) -> bool {
        match self {
            Self::True => value == &Value::Bool(true),
            Self::Text(text) => value == text,
            Self::Number(number) => value.as_f64() == Some(number),
        }
    }
}

/// What decides the patches of an image besides its pixels.
pub(super) struct ProcessorSettings {
    pub(super) sizes: Sizes,
    pub(super) shape: PatchShape,
    pub(super) normalisation: Normalisation,
}

pub(super) fn read(config: &Value, preprocessor: &Value) -> Result<ProcessorSettings, UnsupportedProcessor> {
    let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    if !MODEL_TYPES.contains(&model_type) {
        return Err(UnsupportedProcessor::ModelType(model_type.to_owned()));
    }
    let Value::Object(settings) = preprocessor else {
        return Err(refused("the whole", preprocessor, "an object is needed"));
    };
    let settings = Settings(settings);
    settings.refuse_unknown()?;
    let side = settings.side("patch_size", 14)?;
    let merge = settings.side("merge_size", 2)?;
    let frames = settings.side("temporal_patch_size", 2)?;
    let (fewest, most) = settings.limits()?;
    let sizes = Sizes { factor: side * merge, fewest, most };
    let (side, merge, frames) = (side as usize, merge as usize, frames as usize);
    let shape = PatchShape { side, merge, frames };
    compare_with_tower(config, shape)?;
    Ok(ProcessorSettings { sizes, shape, normalisation: settings.normalisation()? })
}

/// A processor of another shape than the tower's would make numbers that the tower takes for others.
fn compare_with_tower(config: &Value, shape: PatchShape) -> Result<(), UnsupportedProcessor> {
    let of_processor =
        [("patch_size", shape.side), ("spatial_merge_size", shape.merge), ("temporal_patch_size", shape.frames)];
    for (setting, processor) in of_processor {
        let model = config.get("vision_config").and_then(|tower| tower.get(setting));
        if let Some(model) = model.filter(|model| model.as_u64() != Some(processor as u64)) {
            return Err(UnsupportedProcessor::Disagreement { setting, processor, model: model.to_string() });
        }
    }
    Ok(())
}

fn refused(setting: &str, value: &Value, wanted: &'static str) -> UnsupportedProcessor {
    UnsupportedProcessor::Setting { setting: setting.to_owned(), value: value.to_string(), wanted }
}

struct Settings<'a>(&'a Map<String, Value>);

impl Settings<'_> {
    /// None if it is left to transformers.
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn refuse_unknown(&self) -> Result<(), UnsupportedProcessor> {
        for (name, value) in self.0.iter().filter(|(_, value)| !value.is_null()) {
            if let Some((_, fixed, wanted)) = FIXED.iter().find(|(fixed, ..)| fixed == name) {
                if !fixed.is(value) {
                    return Err(refused(name, value, wanted));
                }
                continue;
            }
            // What is off is not done.
            let off = value == &Value::Bool(false);
            if !off && !WITHOUT_EFFECT.contains(&name.as_str()) && !READ.contains(&name.as_str()) {
                return Err(refused(name, value, "nothing is known of this setting"));
            }
        }
        let processor = self.get("image_processor_type");
        match processor.filter(|name| !PROCESSORS.iter().any(|known| *name == known)) {
            Some(name) => Err(refused("image_processor_type", name, "only Qwen2VLImageProcessor can be done")),
            None => Ok(()),
        }
    }

    /// A length that is small and not zero.
    fn side(&self, name: &str, default: u32) -> Result<u32, UnsupportedProcessor> {
        let Some(value) = self.get(name) else { return Ok(default) };
        let side = value.as_u64().and_then(|side| u32::try_from(side).ok());
        side.filter(|side| (1..=MAX_SIDE).contains(side)).ok_or_else(|| refused(name, value, "1 to 256 can be done"))
    }

    /// The fewest and the most pixels: `size`, which `min_pixels` and `max_pixels` take precedence over.
    fn limits(&self) -> Result<(u64, u64), UnsupportedProcessor> {
        let default = serde_json::json!({"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280});
        let size = self.get("size").unwrap_or(&default);
        let fewest = self.limit(size, "shortest_edge", "min_pixels", MOST_ENLARGED)?;
        Ok((fewest, self.limit(size, "longest_edge", "max_pixels", u64::MAX)?))
    }

    fn limit(&self, size: &Value, in_size: &str, by_itself: &str, most: u64) -> Result<u64, UnsupportedProcessor> {
        let wanted = "a number of pixels is needed for shortest_edge and for longest_edge";
        let value = self.get(by_itself).or_else(|| size.get(in_size));
        let limit = value.and_then(Value::as_u64).filter(|limit| (1..=most).contains(limit));
        limit.ok_or_else(|| match self.get(by_itself) {
            Some(value) => refused(by_itself, value, wanted),
            None => refused("size", size, wanted),
        })
    }

    /// CLIP's, unless the settings say otherwise.
    fn normalisation(&self) -> Result<Normalisation, UnsupportedProcessor> {
        let mean = self.channels("image_mean", [0.481_454_66, 0.457_827_5, 0.408_210_73])?;
        let std = self.channels("image_std", [0.268_629_54, 0.261_302_6, 0.275_777_1])?;
        if std.iter().all(|&std| std > 0.0) {
            return Ok(Normalisation { mean, std });
        }
        Err(refused("image_std", &self.0["image_std"], "it must be greater than zero"))
    }

    #[expect(clippy::cast_possible_truncation, reason = "torch rounds them so")]
    fn channels(&self, name: &str, default: [f32; 3]) -> Result<[f32; 3], UnsupportedProcessor> {
        let Some(value) = self.get(name) else { return Ok(default) };
        let numbers = value.as_array().map(|numbers| numbers.iter().map(Value::as_f64).collect::<Option<Vec<_>>>());
        let numbers = numbers.flatten().and_then(|numbers| <[f64; 3]>::try_from(numbers).ok());
        let numbers = numbers.map(|numbers| numbers.map(|number| number as f32));
        let finite = numbers.filter(|numbers| numbers.iter().all(|number| number.is_finite()));
        finite.ok_or_else(|| refused(name, value, "three numbers are needed"))
    }
}
