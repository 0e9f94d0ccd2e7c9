//! Mistral 3: text of Mistral, Ministral 3 or Mistral 4, and Pixtral's tower for images.
//!
//! As `modeling_mistral3.py` and `modeling_pixtral.py` of transformers define them.

use serde_json::{Map, Value, json};
use tito_images::{Layout, PatchShape};

use super::{
    super::{
        settings::{ConfigError, Settings},
        shape::{Ending, ImagesShape, Interpolation, ModelShape, TowerNames, TowerShape},
    },
    decoder::{MOST, MOST_HEADS, MOST_LAYERS, activation, only},
    parts,
    qwen_images::theta,
};
use crate::{
    TokenId,
    engine::{ImageFrame, native::backend::NormShape},
};

/// What is around them.
const FRAME: ImageFrame = ImageFrame::Rows(["[IMG_BREAK]", "[IMG_END]"]);
/// No patch is larger, and no more patches are joined.
const MOST_PIXELS: usize = 1 << 8;
/// What stands for a part of an image unless config.json says otherwise.
const PLACEHOLDER: TokenId = 10;
/// The epsilon of all norms of the tower.
const EPSILON: f32 = 1e-5;

const NAMES: TowerNames = TowerNames {
    prefix: "vision_tower.",
    parts: parts::WITH_HEAD.other_parts,
    patch: "patch_conv",
    patch_has_frames: false,
    positions: "",
    class_token: "",
    query_key_norms: [""; 2],
    scales: [""; 2],
    first_norm: "ln_pre",
    layers: "transformer.layers.",
    norms: ["attention_norm", "ffn_norm"],
    qkv: &["attention.q_proj", "attention.k_proj", "attention.v_proj"],
    attention_output: "attention.o_proj",
    ups: &["feed_forward.gate_proj", "feed_forward.up_proj"],
    down: "feed_forward.down_proj",
    last_norm: "",
    merger: &[
        "multi_modal_projector.norm",
        "multi_modal_projector.patch_merger.merging_layer",
        "multi_modal_projector.linear_1",
        "multi_modal_projector.linear_2",
    ],
};

/// The text of Mistral 3.
pub(super) fn mistral3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = parts::mistral3(settings)?;
    shape.names.aliases = parts::TOWER_ALIASES;
    Ok(shape)
}

/// Mistral 3, which reads text alone where it has no tower.
pub(super) fn with_images(settings: &Settings<'_>, mut shape: ModelShape) -> Result<ModelShape, ConfigError> {
    let Some(vision) = settings.get::<Map<String, Value>>("vision_config")? else { return Ok(shape) };
    let placeholder = parts::image_token(settings, PLACEHOLDER, shape.vocab_size)?;
    only(settings, "projector_hidden_act", &json!("gelu"))?;
    // The last layer of the tower.
    only(settings, "vision_feature_layer", &json!(-1))?;
    let merge = settings.size_or("spatial_merge_size", 2, MOST_PIXELS)?;
    let ending = Ending::Projected {
        norm: NormShape { epsilon: shape.norm.epsilon, offset: 0.0, centred: false },
        biases: settings.get("multimodal_projector_bias")?.unwrap_or(false),
    };
    let tower = TowerShape { ending, output: shape.hidden, ..tower(&Settings(&vision), merge)? };
    shape.images = Some(ImagesShape { placeholder, frame: FRAME, axes: Vec::new(), both_ways: false, tower });
    shape.names.other_parts = &[];
    Ok(shape)
}

/// `PixtralVisionModel`, of which what makes embeddings is to be said.
fn tower(vision: &Settings<'_>, merge: usize) -> Result<TowerShape, ConfigError> {
    only(vision, "model_type", &json!("pixtral"))?;
    only(vision, "num_channels", &json!(3))?;
    let hidden = vision.size_or("hidden_size", 1024, MOST)?;
    let heads = vision.size_or("num_attention_heads", 16, MOST_HEADS)?;
    // Half of a head's pairs is turned by rows, and half by columns.
    if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(4) {
        let reason = "of `vision_config` makes heads that are no multiple of 4 wide";
        return Err(ConfigError::setting("num_attention_heads", reason));
    }
    // transformers takes it from the two others, whatever a config says.
    only(vision, "head_dim", &json!(hidden / heads))?;
    let mut defaulted = vision.0.clone();
    defaulted.entry("hidden_act").or_insert_with(|| json!("gelu"));
    let norm = NormShape { epsilon: EPSILON, offset: 0.0, centred: false };
    Ok(TowerShape {
        hidden,
        heads,
        intermediate: vision.size_or("intermediate_size", 4096, MOST)?,
        gate: activation(&Settings(&defaulted), "hidden_act")?,
        norm,
        norm_bias: false,
        patch: PatchShape {
            side: vision.size_or("patch_size", 16, MOST_PIXELS)?,
            merge,
            frames: 1,
            layout: Layout::Rows,
        },
        biases: false,
        qkv_biases: false,
        query_key_norm: None,
        scaled: false,
        class_token: false,
        patch_bias: false,
        positions: None,
        interpolation: Interpolation::Linear,
        theta: Some(theta(vision)?),
        alternating: true,
        first_norm: true,
        layers: vec![true; vision.size_or("num_hidden_layers", 24, MOST_LAYERS)?],
        window: 1,
        last_norm: false,
        ending: Ending::Projected { norm, biases: false },
        output: 0,
        deepstack: Vec::new(),
        names: NAMES,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Mistral Small 3.1 is published.
    fn published() -> Value {
        json!({
            "architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": 10, "model_type": "mistral3",
            "multimodal_projector_bias": false, "projector_hidden_act": "gelu", "spatial_merge_size": 2,
            "text_config": {
                "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
                "initializer_range": 0.02, "intermediate_size": 32_768, "max_position_embeddings": 131_072,
                "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
                "rms_norm_eps": 1e-5, "rope_theta": 1e9, "sliding_window": null, "use_cache": true, "vocab_size": 131_072,
            },
            "vision_config": {
                "attention_dropout": 0.0, "head_dim": 64, "hidden_act": "silu", "hidden_size": 1024, "image_size": 1540,
                "initializer_range": 0.02, "intermediate_size": 4096, "model_type": "pixtral", "num_attention_heads": 16,
                "num_channels": 3, "num_hidden_layers": 24, "patch_size": 14, "rope_theta": 10_000.0,
            },
            "vision_feature_layer": -1,
        })
    }

    fn read(config: &Value) -> Result<ModelShape, String> {
        ModelShape::read(config.as_object().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_published_model_is_read() {
        let images = read(&published()).unwrap().images.unwrap();
        assert_eq!((images.placeholder, images.both_ways, images.tower.layers.len()), (10, false, 24));
        assert_eq!(images.tower.patch, PatchShape { side: 14, merge: 2, frames: 1, layout: Layout::Rows });
        assert_eq!((images.tower.theta, images.tower.output), (Some(10_000.0), 5120));
        let mut config = published();
        config["vision_config"] = Value::Null;
        assert_eq!(read(&config).unwrap().images, None);
    }

    #[test]
    fn the_base_of_frequencies_is_read_in_both_spellings() {
        let theta = |changes: Value| {
            let mut config = published();
            let vision = config["vision_config"].as_object_mut().unwrap();
            vision.remove("rope_theta");
            vision.extend(changes.as_object().unwrap().clone());
            read(&config).unwrap().images.unwrap().tower.theta.unwrap()
        };
        let cases = [
            (json!({}), 10_000.0),
            (json!({"rope_theta": 50.0}), 50.0),
            (json!({"rope_parameters": {"rope_theta": 60.0, "rope_type": "axial"}}), 60.0),
            (json!({"rope_parameters": {"rope_type": "axial"}, "rope_theta": 70.0}), 70.0),
        ];
        for (changes, expected) in cases {
            assert!((theta(changes) - expected).abs() < f64::EPSILON);
        }
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        for (place, value, named) in [
            ("/vision_feature_layer", json!(-2), "`vision_feature_layer` is -2"),
            ("/vision_feature_layer", json!([-1, 5]), "`vision_feature_layer` is [-1,5]"),
            ("/projector_hidden_act", json!("silu"), "`projector_hidden_act`"),
            ("/image_token_id", json!(11), "`image_token_index`, which is the same setting, is 10"),
            ("/image_token_index", json!(131_072), "`image_token_index` is out of vocabulary"),
            ("/spatial_merge_size", json!(0), "`spatial_merge_size` is 0"),
            ("/text_config/model_type", json!("llama"), "`model_type` of `text_config` is llama"),
            ("/vision_config/model_type", json!("siglip_vision_model"), "`model_type`"),
            ("/vision_config/num_channels", json!(1), "`num_channels` is 1"),
            ("/vision_config/head_dim", json!(32), "`head_dim` is 32"),
            ("/vision_config/num_attention_heads", json!(15), "`num_attention_heads`"),
            ("/vision_config/hidden_act", json!("relu"), "`hidden_act`"),
            ("/vision_config/patch_size", json!([14, 14]), "`patch_size` cannot be read"),
            ("/vision_config/rope_theta", json!(0.5), "`rope_theta`"),
            ("/vision_config/rope_scaling", json!({"rope_theta": 50.0}), "`rope_scaling`"),
            ("/vision_config/num_hidden_layers", json!(1_u64 << 60), "`num_hidden_layers`"),
        ] {
            let mut config = published();
            let (parent, key) = place.rsplit_once('/').unwrap();
            config.pointer_mut(parent).unwrap()[key] = value;
            let error = read(&config).unwrap_err();
            assert!(error.contains(named), "{place}: {error}");
        }
    }
}
