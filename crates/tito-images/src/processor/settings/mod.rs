//! What `preprocessor_config.json` says, read as the processor of a family reads it. Every setting is followed, or known to
//! change nothing, or refused.

mod gemma;
mod glm;
mod got_ocr;
mod pixtral;
mod qwen;
mod reading;

use serde_json::Value;

use crate::error::UnsupportedProcessor;
use reading::{Settings, refused};

pub(super) use reading::ProcessorSettings;

pub(super) fn read(config: &Value, preprocessor: &Value) -> Result<ProcessorSettings, UnsupportedProcessor> {
    let Value::Object(settings) = preprocessor else {
        return Err(refused("the whole", preprocessor, "an object is needed"));
    };
    let settings = Settings(settings);
    match config.get("model_type").and_then(Value::as_str).unwrap_or_default() {
        "gemma3" => gemma::read(config, &settings),
        "glm4v" | "glm4v_moe" | "glm46v" => glm::read(config, &settings),
        "internvl" => got_ocr::read(config, &settings),
        "mistral3" => pixtral::read(config, &settings),
        model_type if qwen::MODEL_TYPES.contains(&model_type) => qwen::read(config, &settings),
        model_type => Err(UnsupportedProcessor::ModelType(model_type.to_owned())),
    }
}
