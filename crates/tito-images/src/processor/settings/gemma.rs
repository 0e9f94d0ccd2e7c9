//! The settings of transformers' `Gemma3ImageProcessor`: every image becomes a square of one size.

use serde_json::{Value, json};

use super::{
    super::sizes::Sizes,
    reading::{Family, Fixed, MAX_SIDE, ProcessorSettings, Settings, compare_with_tower, model, refused},
};
use crate::{
    error::UnsupportedProcessor,
    prepared::{Layout, Normalisation, PatchShape},
    resize::Filter,
};

const FAMILY: Family = Family {
    processors: &["Gemma3ImageProcessor", "Gemma3ImageProcessorFast"],
    fixed: &[
        ("resample", Fixed::Number(2.0), "only 2 (bilinear) can be done"),
        ("do_pan_and_scan", Fixed::False, "pan and scan is not done: an image is shown once, as a whole"),
    ],
    read: &["image_mean", "image_processor_type", "image_seq_length", "image_std", "size"],
    may_be_null: &["do_pan_and_scan", "image_seq_length"],
    // What only pan and scan looks at.
    without_effect: &["pan_and_scan_max_num_crops", "pan_and_scan_min_crop_size", "pan_and_scan_min_ratio_to_activate"],
    wanted: "only Gemma3ImageProcessor can be done",
};

const NORMALISATION: Normalisation = Normalisation { mean: [0.5; 3], std: [0.5; 3] };
/// The side of an image where `size` is left to transformers.
const SIDE: u32 = 224;
/// The same of the tower, and of its patches.
const TOWER_SIDE: u64 = 224;
const PATCH_SIDE: u64 = 16;
/// How many placeholders an image has where config.json does not say it.
const PLACEHOLDERS: u64 = 256;

pub(super) fn read(config: &Value, settings: &Settings<'_>) -> Result<ProcessorSettings, UnsupportedProcessor> {
    settings.refuse_unknown(&FAMILY)?;
    let side = settings.square(SIDE)?;
    let of_tower = |name: &str, default: u64| {
        config.get("vision_config").and_then(|tower| tower.get(name)).map_or(json!(default), Clone::clone)
    };
    let tower_side = of_tower("image_size", TOWER_SIDE);
    if tower_side.as_u64() != Some(u64::from(side)) {
        let model = tower_side.to_string();
        return Err(UnsupportedProcessor::Disagreement { setting: "image_size", processor: side as usize, model });
    }
    let patch = of_tower("patch_size", PATCH_SIDE);
    let whole_patches = "as many patches as `image_size` of config.json has must fit into an image without a rest";
    let patch_side = patch.as_u64().and_then(|patch| u32::try_from(patch).ok());
    let patch_side = patch_side.filter(|patch| (1..=MAX_SIDE).contains(patch) && side.is_multiple_of(*patch));
    let patch_side = patch_side.ok_or_else(|| model("vision_config.patch_size", &patch, whole_patches))?;
    let placeholders = config.get("mm_tokens_per_image").filter(|value| !value.is_null());
    let placeholders = placeholders.cloned().unwrap_or(json!(PLACEHOLDERS));
    let rows = placeholders.as_u64().map(u64::isqrt).filter(|rows| placeholders.as_u64() == Some(rows * rows));
    let pooled = rows.and_then(|rows| u32::try_from(rows).ok());
    let pooled = pooled.filter(|rows| *rows > 0 && (side / patch_side).is_multiple_of(*rows));
    let square = "it must be a square whose side divides that of the patches";
    let pooled = pooled.ok_or_else(|| model("mm_tokens_per_image", &placeholders, square))?;
    if let Some(count) = settings.get("image_seq_length").filter(|count| **count != placeholders) {
        return Err(refused("image_seq_length", count, "config.json has another `mm_tokens_per_image`"));
    }
    compare_with_tower(config, &[("num_channels", 3)])?;
    let shape = PatchShape {
        side: patch_side as usize,
        merge: (side / patch_side / pooled) as usize,
        frames: 1,
        layout: Layout::Plain,
    };
    let normalisation = settings.normalisation(NORMALISATION)?;
    Ok(ProcessorSettings { sizes: Sizes::Square(side), filter: Filter::Bilinear, shape, normalisation })
}
