//! The settings of transformers' `Glm4vImageProcessor` and `Glm46VImageProcessor`, which do the same.

use serde_json::{Value, json};

use super::{
    super::smart_resize::{SizeRules, SmartResize},
    qwen,
    reading::{Family, Fixed, MOST_ENLARGED, ProcessorSettings, Settings},
};
use crate::error::UnsupportedProcessor;

const FAMILY: Family = Family {
    processors: &["Glm4vImageProcessor", "Glm4vImageProcessorFast", "Glm46VImageProcessor", "Glm46VImageProcessorFast"],
    fixed: &[("resample", Fixed::Number(3.0), "only 3 (bicubic) can be done")],
    read: &[
        "image_mean",
        "image_processor_type",
        "image_std",
        "merge_size",
        "patch_size",
        "size",
        "temporal_patch_size",
    ],
    may_be_null: &[],
    without_effect: &[],
    wanted: "only Glm4vImageProcessor and Glm46VImageProcessor can be done",
};

pub(super) fn read(config: &Value, settings: &Settings<'_>) -> Result<ProcessorSettings, UnsupportedProcessor> {
    settings.refuse_unknown(&FAMILY)?;
    let default = json!({"shortest_edge": 112 * 112, "longest_edge": 28 * 28 * 15_000});
    let size = settings.get("size").unwrap_or(&default);
    qwen::check_keys(size)?;
    let fewest = qwen::limit_of(size, "shortest_edge", MOST_ENLARGED)?;
    let most = qwen::limit_of(size, "longest_edge", u64::MAX)?;
    qwen::blocks(config, settings, |factor, frames| SmartResize {
        factor,
        fewest,
        most,
        rules: SizeRules::Glm { frames },
    })
}
