//! The settings of transformers' `PixtralImageProcessor`, as its `PixtralProcessor` calls it for Mistral 3: an image keeps its
//! size up to a longest edge, and gets sides of whole placeholders.

use serde_json::Value;

use super::{
    super::{longest_edge::LongestEdge, sizes::Sizes},
    reading::{CLIP, Family, Fixed, MAX_SIDE, MOST_ENLARGED, ProcessorSettings, Settings, has_keys, model, refused},
};
use crate::{
    error::UnsupportedProcessor,
    prepared::{Layout, PatchShape},
    resize::Filter,
};

const FAMILY: Family = Family {
    processors: &["PixtralImageProcessor", "PixtralImageProcessorFast"],
    fixed: &[("resample", Fixed::Number(3.0), "only 3 (bicubic) can be done")],
    read: &["image_mean", "image_processor_type", "image_std", "patch_size", "size"],
    // transformers' PixtralProcessor replaces it.
    may_be_null: &["patch_size"],
    // Images that are processed together are padded to one size, and what is padded is cut off again.
    without_effect: &["do_pad"],
    wanted: "only PixtralImageProcessor can be done",
};

/// The longest edge where `size` is left to transformers.
const EDGE: u64 = 1024;
/// The side of a patch where config.json does not say it.
const PATCH_SIDE: u64 = 16;
/// How many patches are joined in each direction where config.json does not say it.
const MERGE: u64 = 2;

pub(super) fn read(config: &Value, settings: &Settings<'_>) -> Result<ProcessorSettings, UnsupportedProcessor> {
    settings.refuse_unknown(&FAMILY)?;
    let tower = config.get("vision_config").unwrap_or(&Value::Null);
    let side = of_model(tower, "patch_size", "vision_config.patch_size", PATCH_SIDE)?;
    let merge = of_model(config, "spatial_merge_size", "spatial_merge_size", MERGE)?;
    let factor = side * merge;
    // transformers' PixtralProcessor replaces this setting of the image processor by what the model has.
    let own = settings.patch_side()?;
    if let Some(own) = own.filter(|own| ![side, factor].contains(own)) {
        let model = side.to_string();
        return Err(UnsupportedProcessor::Disagreement { setting: "patch_size", processor: own as usize, model });
    }
    if let Some(channels) = tower.get("num_channels").filter(|channels| channels.as_u64() != Some(3)) {
        return Err(model("vision_config.num_channels", channels, "only 3 can be done"));
    }
    let sizes = Sizes::LongestEdge(LongestEdge { factor, edge: settings.edge()? });
    let shape = PatchShape { side: side as usize, merge: merge as usize, frames: 1, layout: Layout::Rows };
    let normalisation = settings.normalisation(CLIP)?;
    Ok(ProcessorSettings { sizes, filter: Filter::Bicubic, shape, normalisation })
}

/// A length that the model has, which is small and not zero.
fn of_model(config: &Value, key: &str, setting: &'static str, default: u64) -> Result<u32, UnsupportedProcessor> {
    let given = config.get(key).filter(|given| !given.is_null());
    let side = given.map_or(Some(default), Value::as_u64).and_then(|side| u32::try_from(side).ok());
    let side = side.filter(|side| (1..=MAX_SIDE).contains(side));
    side.ok_or_else(|| model(setting, given.unwrap_or(&Value::Null), "1 to 256 can be done"))
}

impl Settings<'_> {
    /// The longest side of an image.
    fn edge(&self) -> Result<u32, UnsupportedProcessor> {
        let default = serde_json::json!({"longest_edge": EDGE});
        let size = self.get("size").unwrap_or(&default);
        // The only other key that it may have beside, as it is saved where nothing is said of it.
        let without_shortest = size.get("shortest_edge").is_some_and(Value::is_null);
        let beside = has_keys(size, &["longest_edge", "shortest_edge"]) && without_shortest;
        let known = beside || has_keys(size, &["longest_edge"]);
        let edge = size.get("longest_edge").and_then(Value::as_u64).filter(|_| known);
        let edge = edge.filter(|edge| (1..=MOST_ENLARGED.isqrt()).contains(edge));
        let edge = edge.and_then(|edge| u32::try_from(edge).ok());
        edge.ok_or_else(|| refused("size", size, "a longest_edge alone, of 1 to 8192, can be done"))
    }

    /// The side of a patch, a number or twice the same one.
    fn patch_side(&self) -> Result<Option<u32>, UnsupportedProcessor> {
        let Some(given) = self.get("patch_size") else { return Ok(None) };
        let [height, width] = ["height", "width"].map(|name| given.get(name).and_then(Value::as_u64));
        let side = given.as_u64().or(height.filter(|height| width == Some(*height)));
        let side = side.and_then(|side| u32::try_from(side).ok());
        side.map(Some).ok_or_else(|| refused("patch_size", given, "a height and a width that are the same are needed"))
    }
}
