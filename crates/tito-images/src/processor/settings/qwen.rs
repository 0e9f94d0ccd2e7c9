//! The settings of transformers' `Qwen2VLImageProcessor`.

use serde_json::Value;

use super::{
    super::{
        sizes::Sizes,
        smart_resize::{SizeRules, SmartResize},
    },
    reading::{CLIP, Family, Fixed, MOST_ENLARGED, ProcessorSettings, Settings, compare_with_tower, has_keys, refused},
};
use crate::{
    error::UnsupportedProcessor,
    prepared::{Layout, PatchShape},
    resize::Filter,
};

/// What is wanted of limits.
const PIXELS: &str = "a number of pixels is needed for shortest_edge and for longest_edge, and nothing else";

pub(super) const MODEL_TYPES: [&str; 5] = ["qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"];

const FAMILY: Family = Family {
    processors: &["Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2_5_VLImageProcessor"],
    fixed: &[("resample", Fixed::Number(3.0), "only 3 (bicubic) can be done")],
    read: &[
        "image_mean",
        "image_processor_type",
        "image_std",
        "max_pixels",
        "merge_size",
        "min_pixels",
        "patch_size",
        "size",
        "temporal_patch_size",
    ],
    may_be_null: &["max_pixels", "min_pixels", "size"],
    without_effect: &["image_seq_length"],
    wanted: "only Qwen2VLImageProcessor can be done",
};

pub(super) fn read(config: &Value, settings: &Settings<'_>) -> Result<ProcessorSettings, UnsupportedProcessor> {
    settings.refuse_unknown(&FAMILY)?;
    let (fewest, most) = settings.limits()?;
    blocks(config, settings, |factor, _| SmartResize { factor, fewest, most, rules: SizeRules::Qwen })
}

/// What is left to say where sizes are known: those of patches, and what is done to the pixels.
pub(super) fn blocks(
    config: &Value,
    settings: &Settings<'_>,
    sizes: impl FnOnce(u32, u32) -> SmartResize,
) -> Result<ProcessorSettings, UnsupportedProcessor> {
    let side = settings.side("patch_size", 14)?;
    let merge = settings.side("merge_size", 2)?;
    let frames = settings.side("temporal_patch_size", 2)?;
    let sizes = Sizes::Smart(sizes(side * merge, frames));
    let (side, merge, frames) = (side as usize, merge as usize, frames as usize);
    let of_tower = [("patch_size", side), ("spatial_merge_size", merge), ("temporal_patch_size", frames)];
    compare_with_tower(config, &of_tower)?;
    let shape = PatchShape { side, merge, frames, layout: Layout::Plain };
    let normalisation = settings.normalisation(CLIP)?;
    Ok(ProcessorSettings { sizes, filter: Filter::Bicubic, shape, normalisation })
}

/// A number of pixels that is a limit.
fn pixels(value: &Value, most: u64) -> Option<u64> {
    value.as_u64().filter(|limit| (1..=most).contains(limit))
}

/// Refuses a size that has other keys than both limits.
pub(super) fn check_keys(size: &Value) -> Result<(), UnsupportedProcessor> {
    let both = has_keys(size, &["longest_edge", "shortest_edge"]);
    if both { Ok(()) } else { Err(refused("size", size, PIXELS)) }
}

/// A limit that `size` has.
pub(super) fn limit_of(size: &Value, key: &str, most: u64) -> Result<u64, UnsupportedProcessor> {
    size.get(key).and_then(|value| pixels(value, most)).ok_or_else(|| refused("size", size, PIXELS))
}

impl Settings<'_> {
    /// The fewest and the most pixels: `size`, which `min_pixels` and `max_pixels` take precedence over.
    fn limits(&self) -> Result<(u64, u64), UnsupportedProcessor> {
        let default = serde_json::json!({"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280});
        let size = self.get("size").unwrap_or(&default);
        check_keys(&self.replaced(size))?;
        let fewest = self.limit(size, "shortest_edge", "min_pixels", MOST_ENLARGED)?;
        Ok((fewest, self.limit(size, "longest_edge", "max_pixels", u64::MAX)?))
    }

    /// A size in which transformers has put the limits that stand by themselves.
    fn replaced(&self, size: &Value) -> Value {
        let mut size = size.clone();
        for (by_itself, in_size) in [("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")] {
            if let (Some(limit), Some(size)) = (self.get(by_itself), size.as_object_mut()) {
                size.remove(by_itself);
                size.insert(in_size.to_owned(), limit.clone());
            }
        }
        size
    }

    fn limit(&self, size: &Value, in_size: &str, by_itself: &str, most: u64) -> Result<u64, UnsupportedProcessor> {
        match self.get(by_itself) {
            Some(value) => pixels(value, most).ok_or_else(|| refused(by_itself, value, PIXELS)),
            None => limit_of(size, in_size, most),
        }
    }
}
