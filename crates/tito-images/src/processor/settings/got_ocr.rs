//! The settings of transformers' `GotOcr2ImageProcessor`, as its `InternVLProcessor` calls it: an image becomes squares of one
//! size, and one more that shows all of it.

use serde_json::Value;

use super::{
    super::{sizes::Sizes, tiles::Tiles},
    reading::{CLIP, Family, Fixed, MAX_SIDE, MOST_ENLARGED, ProcessorSettings, Settings, model, refused},
};
use crate::{
    error::UnsupportedProcessor,
    prepared::{Layout, PatchShape},
    resize::Filter,
};

const FAMILY: Family = Family {
    processors: &["GotOcr2ImageProcessor", "GotOcr2ImageProcessorFast"],
    fixed: &[("resample", Fixed::Number(3.0), "only 3 (bicubic) can be done")],
    read: &["image_mean", "image_processor_type", "image_std", "max_patches", "min_patches", "size"],
    may_be_null: &[],
    // Images are cut, whatever it says: transformers' InternVLProcessor asks for it.
    without_effect: &["crop_to_patches"],
    wanted: "only GotOcr2ImageProcessor can be done",
};

/// The side of a square where `size` is left to transformers.
const SIDE: u32 = 384;
/// The most squares where `max_patches` is left to transformers, and the fewest.
const MOST: u32 = 12;
const FEWEST: u32 = 1;
/// What config.json leaves to transformers: the side of what the tower reads, and of its patches, how much shorter a side is
/// after patches were joined, and how many ids stand for a square.
const TOWER_SIDE: u64 = 448;
const PATCH_SIDE: u64 = 14;
const RATIO: f64 = 0.5;
const PLACEHOLDERS: u64 = 256;

pub(super) fn read(config: &Value, settings: &Settings<'_>) -> Result<ProcessorSettings, UnsupportedProcessor> {
    settings.refuse_unknown(&FAMILY)?;
    let side = settings.square(SIDE)?;
    let tower = config.get("vision_config").unwrap_or(&Value::Null);
    let of_tower = |key, name, default| length(tower, key, name, default);
    let tower_side = of_tower("image_size", "vision_config.image_size", TOWER_SIDE)?;
    if tower_side != side {
        let model = tower_side.to_string();
        return Err(UnsupportedProcessor::Disagreement { setting: "image_size", processor: side as usize, model });
    }
    let patch = of_tower("patch_size", "vision_config.patch_size", PATCH_SIDE)?;
    if let Some(channels) = tower.get("num_channels").filter(|channels| channels.as_u64() != Some(3)) {
        return Err(model("vision_config.num_channels", channels, "only 3 can be done"));
    }
    let merge = merge(config)?;
    if patch > MAX_SIDE || !side.is_multiple_of(patch * merge) {
        let wanted = "as many patches as are joined must fit into `image_size` without a rest";
        return Err(model("vision_config.patch_size", tower.get("patch_size").unwrap_or(&Value::Null), wanted));
    }
    let count = u64::from(side / patch / merge).pow(2);
    if length(config, "image_seq_length", "image_seq_length", PLACEHOLDERS).map(u64::from) != Ok(count) {
        let given = config.get("image_seq_length").unwrap_or(&Value::Null);
        return Err(model("image_seq_length", given, "it must be what the tower makes of a square"));
    }
    let layout = Layout::Tiles { side: (side / patch) as usize };
    let shape = PatchShape { side: patch as usize, merge: merge as usize, frames: 1, layout };
    let normalisation = settings.normalisation(CLIP)?;
    Ok(ProcessorSettings { sizes: Sizes::Tiles(settings.tiles(side)?), filter: Filter::Bicubic, shape, normalisation })
}

/// A length of the model, a number or twice the same one.
fn length(config: &Value, key: &str, setting: &'static str, default: u64) -> Result<u32, UnsupportedProcessor> {
    let given = config.get(key).filter(|given| !given.is_null());
    let number = match given {
        None => Some(default),
        Some(Value::Array(both)) if both.len() == 2 && both[0] == both[1] => both[0].as_u64(),
        Some(number) => number.as_u64(),
    };
    let number = number.and_then(|number| u32::try_from(number).ok());
    let number = number.filter(|number| (1..=MOST_ENLARGED.isqrt()).contains(&u64::from(*number)));
    number.ok_or_else(|| model(setting, given.unwrap_or(&Value::Null), "one number, over 0, is needed"))
}

/// How many patches are joined in each direction.
fn merge(config: &Value) -> Result<u32, UnsupportedProcessor> {
    let given = config.get("downsample_ratio").filter(|given| !given.is_null());
    let ratio = given.map_or(Some(RATIO), Value::as_f64);
    let merge = [1, 2, 4].into_iter().find(|merge| ratio == Some(1.0 / f64::from(*merge)));
    merge.ok_or_else(|| model("downsample_ratio", given.unwrap_or(&Value::Null), "only 1, 0.5 and 0.25 can be done"))
}

impl Settings<'_> {
    /// How many squares an image may become.
    fn tiles(&self, side: u32) -> Result<Tiles, UnsupportedProcessor> {
        let number = |name: &str, default: u32| {
            let Some(given) = self.get(name) else { return Ok(default) };
            let number = given.as_u64().and_then(|number| u32::try_from(number).ok());
            // Their pixels are allocated.
            let most = MOST_ENLARGED / u64::from(side).pow(2);
            let number = number.filter(|number| (1..=most).contains(&u64::from(*number)));
            number.ok_or_else(|| refused(name, given, "a number of squares is needed that have at most 2^26 pixels"))
        };
        Ok(Tiles { side, fewest: number("min_patches", FEWEST)?, most: number("max_patches", MOST)? })
    }
}
