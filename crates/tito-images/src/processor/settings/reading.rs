//! What the settings of all processors have in common.

use serde_json::{Map, Value};

use super::super::sizes::Sizes;
use crate::{
    error::UnsupportedProcessor,
    prepared::{Normalisation, PatchShape},
    resize::Filter,
};

/// Settings that must have one value, or be left to transformers, whose own value it is.
const FIXED: [(&str, Fixed, &str); 6] = [
    ("data_format", Fixed::Text("channels_first"), "only channels_first can be done"),
    ("do_resize", Fixed::True, "images are always resized"),
    ("do_rescale", Fixed::True, "pixels are always rescaled"),
    ("do_normalize", Fixed::True, "pixels are always normalised"),
    ("do_convert_rgb", Fixed::True, "images are always converted to RGB"),
    ("rescale_factor", Fixed::Number(1.0 / 255.0), "only 1/255 can be done"),
];

/// Settings that say who reads them, or that no processor looks at.
const WITHOUT_EFFECT: [&str; 7] = [
    "default_to_square",
    "disable_grouping",
    "feature_extractor_type",
    "model_input_names",
    "processor_class",
    "return_tensors",
    "transformers_version",
];

/// Settings that may be `null`: those whose own value that is, and those that change nothing then.
const MAY_BE_NULL: [&str; 3] = ["data_format", "do_convert_rgb", "image_processor_type"];

/// The mean and the deviation of CLIP.
pub(super) const CLIP: Normalisation =
    Normalisation { mean: [0.481_454_66, 0.457_827_5, 0.408_210_73], std: [0.268_629_54, 0.261_302_6, 0.275_777_1] };

/// No tower has patches this large, blocks this large, or frames this many.
pub(super) const MAX_SIDE: u32 = 256;

/// The most pixels that a small image may be enlarged to: what a checkpoint asks for is allocated.
pub(super) const MOST_ENLARGED: u64 = 1 << 26;

#[derive(Clone, Copy)]
pub(super) enum Fixed {
    True,
    False,
    Number(f64),
    Text(&'static str),
}

impl Fixed {
    fn is(self, value: &Value) -> bool {
        match self {
            Self::True => value == &Value::Bool(true),
            Self::False => value == &Value::Bool(false),
            Self::Text(text) => value == text,
            Self::Number(number) => value.as_f64() == Some(number),
        }
    }
}

/// What decides the patches of an image besides its pixels.
pub(in crate::processor) struct ProcessorSettings {
    pub(in crate::processor) sizes: Sizes,
    pub(in crate::processor) filter: Filter,
    pub(in crate::processor) shape: PatchShape,
    pub(in crate::processor) normalisation: Normalisation,
}

/// What is special about the processor of a family.
pub(super) struct Family {
    /// The names of the processor.
    pub(super) processors: &'static [&'static str],
    /// Settings that must have one value, besides those of all.
    pub(super) fixed: &'static [(&'static str, Fixed, &'static str)],
    /// Settings with a reader of their own.
    pub(super) read: &'static [&'static str],
    /// Of both, those that may be `null`, besides those of all. transformers takes `null` for what is said: a step is not done
    /// then, or it fails.
    pub(super) may_be_null: &'static [&'static str],
    /// Settings that the processor does not look at, besides those of all.
    pub(super) without_effect: &'static [&'static str],
    /// What else can be done, for a processor of another name.
    pub(super) wanted: &'static str,
}

/// A processor of another shape than the tower's would make numbers that the tower takes for others.
pub(super) fn compare_with_tower(
    config: &Value,
    of_processor: &[(&'static str, usize)],
) -> Result<(), UnsupportedProcessor> {
    for &(setting, processor) in of_processor {
        let model = config.get("vision_config").and_then(|tower| tower.get(setting));
        if let Some(model) = model.filter(|model| model.as_u64() != Some(processor as u64)) {
            return Err(UnsupportedProcessor::Disagreement { setting, processor, model: model.to_string() });
        }
    }
    Ok(())
}

pub(super) fn refused(setting: &str, value: &Value, wanted: &'static str) -> UnsupportedProcessor {
    UnsupportedProcessor::Setting { setting: setting.to_owned(), value: value.to_string(), wanted }
}

pub(super) fn model(setting: &'static str, value: &Value, wanted: &'static str) -> UnsupportedProcessor {
    UnsupportedProcessor::Model { setting, value: value.to_string(), wanted }
}

/// Whether a size has these keys and no others. transformers refuses others, whatever they say.
pub(super) fn has_keys(size: &Value, keys: &[&str]) -> bool {
    size.as_object().is_some_and(|size| size.len() == keys.len() && keys.iter().all(|key| size.contains_key(*key)))
}

pub(super) struct Settings<'a>(pub(super) &'a Map<String, Value>);

impl Settings<'_> {
    /// None if it is left to transformers.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn refuse_unknown(&self, family: &Family) -> Result<(), UnsupportedProcessor> {
        for (name, value) in self.0 {
            let mut fixed = FIXED.iter().chain(family.fixed);
            if value.is_null() {
                let is_looked_at = fixed.any(|(fixed, ..)| fixed == name) || family.read.contains(&name.as_str());
                if is_looked_at && !MAY_BE_NULL.iter().chain(family.may_be_null).any(|known| known == name) {
                    return Err(refused(
                        name,
                        value,
                        "transformers does not take that for its own value: leave it out",
                    ));
                }
                continue;
            }
            if let Some((_, fixed, wanted)) = fixed.find(|(fixed, ..)| fixed == name) {
                if !fixed.is(value) {
                    return Err(refused(name, value, wanted));
                }
                continue;
            }
            // What is off is not done.
            let off = value == &Value::Bool(false);
            let known = [&WITHOUT_EFFECT[..], family.without_effect, family.read].concat().contains(&name.as_str());
            if !off && !known {
                return Err(refused(name, value, "nothing is known of this setting"));
            }
        }
        let processor = self.get("image_processor_type");
        match processor.filter(|name| !family.processors.iter().any(|known| *name == known)) {
            Some(name) => Err(refused("image_processor_type", name, family.wanted)),
            None => Ok(()),
        }
    }

    /// A length that is small and not zero.
    pub(super) fn side(&self, name: &str, default: u32) -> Result<u32, UnsupportedProcessor> {
        let Some(value) = self.get(name) else { return Ok(default) };
        let side = value.as_u64().and_then(|side| u32::try_from(side).ok());
        side.filter(|side| (1..=MAX_SIDE).contains(side)).ok_or_else(|| refused(name, value, "1 to 256 can be done"))
    }

    /// The side of the square that `size` is, `default` where it is left to transformers.
    pub(super) fn square(&self, default: u32) -> Result<u32, UnsupportedProcessor> {
        let Some(given) = self.get("size") else { return Ok(default) };
        let most = MOST_ENLARGED.isqrt();
        let number = |name: &str| given.get(name).and_then(Value::as_u64).filter(|side| (1..=most).contains(side));
        let known = has_keys(given, &["height", "width"]);
        let square = number("height").filter(|height| known && number("width") == Some(*height));
        let square = square.and_then(|side| u32::try_from(side).ok());
        square.ok_or_else(|| {
            refused("size", given, "a height and a width that are the same are needed, and nothing else")
        })
    }

    /// The mean and the deviation, for which `defaults` are where the settings say nothing.
    pub(super) fn normalisation(&self, defaults: Normalisation) -> Result<Normalisation, UnsupportedProcessor> {
        let mean = self.channels("image_mean", defaults.mean)?;
        let std = self.channels("image_std", defaults.std)?;
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
