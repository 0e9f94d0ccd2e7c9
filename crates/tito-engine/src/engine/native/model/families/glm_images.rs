//! GLM-4.1V, 4.5V and 4.6V: text of GLM-4 and of the mixtures of GLM-4.5, and a tower for images.
//!
//! As `modeling_glm4v.py`, `modeling_glm4v_moe.py` and `modeling_glm46v.py` of transformers define them. Videos are not read:
//! their marks are ordinary tokens.

use serde_json::{Map, Value, json};

use super::{
    super::{
        settings::{ConfigError, Settings},
        shape::{Ending, Interpolation, ModelShape, TowerNames, TowerShape},
    },
    decoder::{MOST, only},
    glm,
    parts::{Read, of_text},
    qwen_images::{self, WITH_TOWER, one_after_the_other, only_default, parameters, sections},
};
use crate::{
    TokenId,
    engine::{ImageFrame, native::backend::NormShape},
};

/// What is around placeholders.
const FRAME: ImageFrame = ImageFrame::Marks(["image_start_token_id", "image_end_token_id"]);
/// What GLM-4.1V and GLM-4.6V call it, and what GLM-4.5V does.
const PLACEHOLDER: TokenId = 151_343;
const PLACEHOLDER_4_5: TokenId = 151_363;
/// The epsilon of the norm with a bias, which no setting has.
const LAYER_NORM_EPSILON: f32 = 1e-5;
/// Where the share of a head that is rotated is said.
const ROTATED: &str = "partial_rotary_factor";

const NAMES: TowerNames = TowerNames {
    prefix: "model.visual.",
    positions: "embeddings.position_embedding",
    first_norm: "post_conv_layernorm",
    ups: &["mlp.gate_proj", "mlp.up_proj"],
    down: "mlp.down_proj",
    last_norm: "post_layernorm",
    merger: &[
        "downsample",
        "merger.proj",
        "merger.post_projection_norm",
        "merger.gate_proj",
        "merger.up_proj",
        "merger.down_proj",
    ],
    ..qwen_images::NAMES
};

/// The text of GLM-4.1V.
pub(super) fn dense(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    text(settings, text_of_dense)
}

/// The text of GLM-4.5V and GLM-4.6V.
pub(super) fn mixture(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    text(settings, text_of_mixture)
}

/// Either text, in the frame of both that transformers has for GLM-4.6V.
pub(super) fn either(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let config: Map<String, Value> = settings.require("text_config")?;
    let kind: Option<String> = Settings(&config).get("model_type")?;
    match kind.as_deref() {
        None | Some("glm4v_text") => text(settings, text_of_dense),
        Some("glm4v_moe_text") => text(settings, text_of_mixture),
        Some(other) => {
            Err(ConfigError::setting("model_type", format!("of `text_config` is {other}, which is not known")))
        }
    }
}

/// Either text beside a tower.
fn text(settings: &Settings<'_>, read: Read) -> Result<ModelShape, ConfigError> {
    let mut text: Map<String, Value> = settings.require("text_config")?;
    only_default(&mut text)?;
    of_text(settings, text, read, &WITH_TOWER)
}

/// The text of GLM-4.1V, which has biases and heads as wide as states have room for, whatever a config says.
fn text_of_dense(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut config = settings.0.clone();
    let (hidden, heads) = (settings.size("hidden_size", MOST)?, settings.size("num_attention_heads", MOST)?);
    only(settings, "head_dim", &json!(hidden / heads))?;
    config.insert("head_dim".to_owned(), json!(hidden / heads));
    only(settings, "attention_bias", &json!(true))?;
    config.entry("rms_norm_eps").or_insert_with(|| json!(1e-5));
    if !parameters(settings.0).any(|parameters| parameters.0.contains_key(ROTATED)) {
        config.entry(ROTATED).or_insert_with(|| json!(1.0));
    }
    glm::glm4(&Settings(&config))
}

/// The text of GLM-4.5V, whose queries and keys have no norms, whatever a config says.
fn text_of_mixture(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    only(settings, "use_qk_norm", &json!(false))?;
    let mut config = settings.0.clone();
    config.entry("attention_bias").or_insert_with(|| json!(true));
    glm::mixture(&Settings(&config))
}

/// GLM-4.1V, and GLM-4.6V in the frame of both.
pub(super) fn with_images(settings: &Settings<'_>, shape: ModelShape) -> Result<ModelShape, ConfigError> {
    with_tower(settings, shape, PLACEHOLDER)
}

/// GLM-4.5V, and GLM-4.6V in its frame.
pub(super) fn mixture_with_images(settings: &Settings<'_>, shape: ModelShape) -> Result<ModelShape, ConfigError> {
    with_tower(settings, shape, PLACEHOLDER_4_5)
}

fn with_tower(settings: &Settings<'_>, shape: ModelShape, placeholder: TokenId) -> Result<ModelShape, ConfigError> {
    let text: Map<String, Value> = settings.require("text_config")?;
    for parameters in parameters(&text) {
        only(&parameters, "mrope_interleaved", &json!(false))?;
    }
    let sections = sections(&text, [8, 12, 12])?;
    let vision: Map<String, Value> = settings.require("vision_config")?;
    let tower = tower(&Settings(&vision))?;
    let axes = one_after_the_other(sections);
    let mut shape = qwen_images::images(settings, placeholder, shape, axes, tower)?;
    if let Some(images) = &mut shape.images {
        images.frame = FRAME;
    }
    Ok(shape)
}

/// `Glm4vVisionModel`.
fn tower(vision: &Settings<'_>) -> Result<TowerShape, ConfigError> {
    const KINDS: [&str; 2] = ["glm4v_vision", "glm4v_moe_vision"];
    if let Some(kind) = vision.get::<String>("model_type")?.filter(|kind| !KINDS.contains(&kind.as_str())) {
        return Err(ConfigError::setting("model_type", format!("of `vision_config` is {kind}, which is not known")));
    }
    only(vision, "hidden_act", &json!("silu"))?;
    let common = qwen_images::tower(vision, [14, 2, 2])?;
    only(vision, "head_dim", &json!(common.head_dim()))?;
    let rows = vision.size_or("image_size", 336, MOST)? / common.patch.side;
    if rows == 0 {
        return Err(ConfigError::setting("image_size", "of `vision_config` is less than `patch_size`"));
    }
    let epsilon = vision.get("rms_norm_eps")?.unwrap_or(1e-5);
    Ok(TowerShape {
        norm: NormShape { epsilon, ..common.norm },
        // What is called so is between the matrices after the layers.
        intermediate: common.output,
        biases: false,
        qkv_biases: vision.get("attention_bias")?.unwrap_or(false),
        patch_bias: true,
        positions: Some(rows * rows),
        interpolation: Interpolation::Cubic,
        first_norm: true,
        last_norm: true,
        ending: Ending::Downsampled {
            norm: NormShape { epsilon: LAYER_NORM_EPSILON, offset: 0.0, centred: true },
            intermediate: common.intermediate,
        },
        names: NAMES,
        ..common
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::native::model::shape::Axis;

    /// The sizes that transformers has where a config says nothing; the share of a head that is rotated fits its sections.
    fn config() -> Value {
        json!({
            "architectures": ["Glm4vForConditionalGeneration"], "image_end_token_id": 151_340,
            "image_start_token_id": 151_339, "image_token_id": 151_343, "model_type": "glm4v",
            "text_config": {
                "attention_bias": true, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 13_696,
                "max_position_embeddings": 32_768, "model_type": "glm4v_text", "num_attention_heads": 32,
                "num_hidden_layers": 40, "num_key_value_heads": 2, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5,
                "rope_scaling": {"mrope_section": [8, 12, 12], "rope_type": "default"}, "rope_theta": 10_000.0,
                "vocab_size": 151_552,
            },
            "vision_config": {
                "attention_bias": false, "depth": 24, "hidden_act": "silu", "hidden_size": 1536, "image_size": 336,
                "in_channels": 3, "intermediate_size": 13_696, "model_type": "glm4v_vision", "num_heads": 12,
                "out_hidden_size": 4096, "patch_size": 14, "rms_norm_eps": 1e-5, "spatial_merge_size": 2,
                "temporal_patch_size": 2,
            },
        })
    }

    /// The same of the mixture.
    fn config_of_mixture() -> Value {
        let mut config = config();
        config["architectures"] = json!(["Glm4vMoeForConditionalGeneration"]);
        config["vision_config"]["model_type"] = json!("glm4v_moe_vision");
        let more = json!({
            "first_k_dense_replace": 1, "head_dim": 128, "model_type": "glm4v_moe_text", "moe_intermediate_size": 1408,
            "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true,
            "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 46, "num_key_value_heads": 8,
            "routed_scaling_factor": 1.0, "topk_group": 1, "use_qk_norm": false,
        });
        config["text_config"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    }

    fn read(config: &Value) -> Result<ModelShape, String> {
        ModelShape::read(config.as_object().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn default_sizes_are_read() {
        let shape = read(&config()).unwrap();
        let images = shape.images.unwrap();
        assert_eq!((images.placeholder, images.both_ways, images.tower.layers.len()), (151_343, false, 24));
        assert_eq!(images.axes.iter().filter(|axis| **axis == Axis::Time).count(), 8);
        let TowerShape { positions, intermediate, output, ending, .. } = images.tower;
        assert_eq!((positions, intermediate, output), (Some(576), 4096, 4096));
        assert!(matches!(ending, Ending::Downsampled { intermediate: 13_696, .. }));
        let mixture = read(&config_of_mixture()).unwrap();
        assert_eq!(mixture.images.unwrap().axes.len(), 32);
    }

    #[test]
    fn either_text_is_read_within_the_frame_of_both() {
        for mut config in [config(), config_of_mixture()] {
            let own = read(&config);
            config["architectures"] = json!(["Glm46VForConditionalGeneration"]);
            assert_eq!(read(&config), own);
        }
        let mut config = config();
        config["architectures"] = json!(["Glm46VForConditionalGeneration"]);
        config["text_config"]["model_type"] = json!("glm4");
        assert!(read(&config).unwrap_err().contains("`model_type` of `text_config` is glm4"));
    }

    #[test]
    fn what_config_json_leaves_out_is_as_transformers_has_it() {
        let mut config = config();
        for (place, keys) in [
            ("/text_config", &["attention_bias", "rms_norm_eps", "rope_theta", "hidden_act"][..]),
            ("/vision_config", &["attention_bias", "image_size", "patch_size", "rms_norm_eps", "spatial_merge_size"]),
            ("", &["image_token_id"]),
        ] {
            for key in keys {
                config.pointer_mut(place).unwrap().as_object_mut().unwrap().remove(*key).unwrap();
            }
        }
        assert_eq!(read(&config), read(&self::config()));
        // Whole heads are rotated then, of which sections are too few.
        config["text_config"].as_object_mut().unwrap().remove(ROTATED);
        assert!(read(&config).unwrap_err().contains("`mrope_section` is about 32 pairs of numbers, and a head has 64"));
        let mut mixture = config_of_mixture();
        let of_both = read(&mixture);
        let text = mixture["text_config"].as_object_mut().unwrap();
        for key in ["attention_bias", ROTATED, "use_qk_norm"] {
            text.remove(key).unwrap();
        }
        text.remove("rope_scaling");
        mixture.as_object_mut().unwrap().remove("image_token_id");
        let shape = read(&mixture).unwrap();
        assert_eq!((shape.layers, shape.ropes), (of_both.clone().unwrap().layers, of_both.unwrap().ropes));
        assert_eq!(shape.images.unwrap().placeholder, 151_363);
    }

    #[test]
    fn other_spellings_of_the_tower_are_read() {
        let tower = |changes: Value| {
            let mut config = config();
            config["vision_config"].as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            read(&config).unwrap().images.unwrap().tower
        };
        assert_eq!(tower(json!({"num_attention_heads": 12, "num_heads": null})), tower(json!({})));
        assert_eq!(tower(json!({"rope_theta": 50.0, "rope_scaling": {}})).theta, Some(50.0));
        let both = json!({"rope_theta": 50.0, "rope_parameters": {"rope_type": "axial", "rope_theta": 60.0}});
        assert_eq!(tower(both).theta, Some(60.0));
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        for (place, value, named) in [
            ("/image_token_id", json!(151_552), "is out of vocabulary"),
            ("/text_config/attention_bias", json!(false), "`attention_bias` is false"),
            ("/text_config/head_dim", json!(64), "`head_dim` is 64"),
            ("/text_config/partial_rotary_factor", json!(0.25), "`mrope_section`"),
            ("/text_config/rope_scaling/mrope_section", json!([8, 12, 13]), "`mrope_section`"),
            ("/text_config/rope_scaling/mrope_interleaved", json!(true), "`mrope_interleaved` is true"),
            ("/text_config/rope_scaling/rope_type", json!("yarn"), "`rope_type`"),
            ("/vision_config/model_type", json!("siglip_vision_model"), "`model_type`"),
            ("/vision_config/hidden_act", json!("gelu"), "`hidden_act`"),
            ("/vision_config/in_channels", json!(1), "`in_channels` is 1"),
            ("/vision_config/head_dim", json!(64), "`head_dim` is 64"),
            ("/vision_config/num_heads", json!(13), "`num_heads`"),
            ("/vision_config/image_size", json!(13), "`image_size`"),
            ("/vision_config/image_size", json!([336, 336]), "`image_size`"),
            ("/vision_config/out_hidden_size", json!(2048), "`out_hidden_size`"),
            ("/vision_config/rope_parameters", json!({"rope_type": "default"}), "`rope_type`"),
            ("/vision_config/rope_theta", json!(0.5), "`rope_theta`"),
            ("/vision_config/rope_scaling", json!({"rope_theta": 50.0}), "`rope_scaling`"),
            ("/vision_config/num_attention_heads", json!(6), "`num_heads`, which is the same setting, is 12"),
            ("/vision_config/depth", json!(1_u64 << 60), "`depth`"),
        ] {
            let mut config = config();
            let (parent, key) = place.rsplit_once('/').unwrap();
            config.pointer_mut(parent).unwrap()[key] = value;
            let error = read(&config).unwrap_err();
            assert!(error.contains(named), "{place}: {error}");
        }
        let mut mixture = config_of_mixture();
        mixture["text_config"]["use_qk_norm"] = json!(true);
        assert!(read(&mixture).unwrap_err().contains("`use_qk_norm` is true"));
    }
}
