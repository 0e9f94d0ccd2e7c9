//! `InternVL` 3 and 3.5 in the format of transformers: text of Qwen or Llama, and `InternViT` for images, which become
//! squares of one size.
//!
//! As `modeling_internvl.py` of transformers defines them. The older format, `InternVLChatModel`, has other names and settings
//! and a processor of its own, and is not read.

use serde_json::{Map, Value, json};
use tito_images::{Layout, PatchShape};

use super::{
    super::{
        settings::{ConfigError, Settings},
        shape::{Ending, ImagesShape, Interpolation, Longest, ModelShape, TowerNames, TowerShape},
    },
    decoder::{MOST, MOST_HEADS, MOST_LAYERS, only},
    llama,
    parts::{self, Read},
    qwen,
};
use crate::{
    TokenId,
    engine::{
        ImageFrame,
        native::backend::{Gate, NormShape},
    },
};

/// What is around them, as tokenizers call it.
const FRAME: ImageFrame = ImageFrame::Around(["<img>", "</img>"]);
/// No square is larger.
const MOST_PIXELS: usize = 1 << 13;
/// What stands for a part of an image unless config.json says otherwise.
const PLACEHOLDER: TokenId = 151_667;
/// The epsilon of the norms of queries and keys, and of the projector's, which no setting has.
const NORM_EPSILON: f32 = 1e-6;
const PROJECTOR_EPSILON: f32 = 1e-5;

/// A token of masked patches that nothing here depends on, in checkpoints and in memory.
const UNUSED: &[&str] = &["vision_tower.embeddings.mask_token", "model.vision_tower.embeddings.mask_token"];

const NAMES: TowerNames = TowerNames {
    prefix: "vision_tower.",
    parts: parts::WITH_HEAD.other_parts,
    patch: "embeddings.patch_embeddings.projection",
    patch_has_frames: false,
    positions: "embeddings.position_embeddings",
    class_token: "embeddings.cls_token",
    query_key_norms: ["attention.q_norm", "attention.k_norm"],
    scales: ["lambda_1", "lambda_2"],
    first_norm: "",
    layers: "encoder.layer.",
    norms: ["layernorm_before", "layernorm_after"],
    qkv: &["attention.q_proj", "attention.k_proj", "attention.v_proj"],
    attention_output: "attention.projection_layer",
    ups: &["mlp.fc1"],
    down: "mlp.fc2",
    last_norm: "layernorm",
    merger: &["multi_modal_projector.layer_norm", "multi_modal_projector.linear_1", "multi_modal_projector.linear_2"],
};

/// `InternVL`, which reads text alone where it has no tower.
pub(super) fn with_images(settings: &Settings<'_>, mut shape: ModelShape) -> Result<ModelShape, ConfigError> {
    let Some(vision) = settings.get::<Map<String, Value>>("vision_config")? else { return Ok(shape) };
    // `image_token_index` is no other name of it here, as it is of its relatives.
    let placeholder = settings.get("image_token_id")?.unwrap_or(PLACEHOLDER);
    let placeholder = parts::within("image_token_id", placeholder, shape.vocab_size)?;
    only(settings, "projector_hidden_act", &json!("gelu"))?;
    // The last layer of the tower, without the state that is of no patch.
    only(settings, "vision_feature_layer", &json!(-1))?;
    only(settings, "vision_feature_select_strategy", &json!("default"))?;
    let tower = TowerShape { output: shape.hidden, ..tower(&Settings(&vision), merge(settings)?)? };
    shape.images = Some(ImagesShape { placeholder, frame: FRAME, axes: Vec::new(), both_ways: false, tower });
    shape.names.other_parts = UNUSED;
    Ok(shape)
}

/// The text of `InternVL`, which is of one of several families.
pub(super) fn internvl(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut text: Map<String, Value> = settings.require("text_config")?;
    let kind: Option<String> = Settings(&text).get("model_type")?;
    let read: Read = match kind.as_deref() {
        None | Some("qwen2") => qwen::qwen2,
        Some("qwen3") => qwen::qwen3,
        Some("qwen3_moe") => qwen::qwen3_moe,
        Some("llama") => llama::llama,
        Some(other) => {
            return Err(ConfigError::setting("model_type", format!("of `text_config` is {other}, which is not known")));
        }
    };
    let longest = unscaled(&mut text)?;
    let mut shape = parts::of_text(settings, text, read, &parts::WITH_HEAD)?;
    shape.longest = longest.or(shape.longest);
    shape.names.aliases = parts::TOWER_ALIASES;
    Ok(shape)
}

/// Takes frequencies that depend on the length of a sequence out of a config: up to `max_position_embeddings`, they are as if
/// nothing was said. Published models have them.
fn unscaled(text: &mut Map<String, Value>) -> Result<Option<Longest>, ConfigError> {
    let is_dynamic = |value: &Value| {
        let kind = value.get("rope_type").filter(|kind| !kind.is_null()).or_else(|| value.get("type"));
        kind.is_some_and(|kind| kind == "dynamic")
    };
    let mut found = None;
    for key in ["rope_scaling", "rope_parameters"] {
        let Some(scaling) = text.get_mut(key).filter(|scaling| is_dynamic(scaling)) else { continue };
        let known = ["factor", "rope_theta", "rope_type", "type"];
        let Value::Object(scaling) = scaling else { continue };
        if let Some(other) = scaling.keys().find(|other| !known.contains(&other.as_str())) {
            return Err(ConfigError::setting(key, format!("of type dynamic has {other}, which is not known")));
        }
        scaling.retain(|name, _| name == "rope_theta");
        scaling.insert("rope_type".to_owned(), json!("default"));
        found = Some(key);
    }
    let Some(key) = found else { return Ok(None) };
    let tokens = Settings(text).size("max_position_embeddings", MOST)?;
    let reason = "is of type dynamic, and keys change their meaning beyond `max_position_embeddings`";
    Ok(Some(Longest { tokens, key, reason }))
}

/// How many patches are joined in each direction.
fn merge(settings: &Settings<'_>) -> Result<usize, ConfigError> {
    const KEY: &str = "downsample_ratio";
    let ratio: f64 = settings.get(KEY)?.unwrap_or(0.5);
    let merge = [(1, 1.0), (2, 0.5), (4, 0.25)].into_iter().find(|(_, known)| (ratio - known).abs() < f64::EPSILON);
    merge
        .map(|(merge, _)| merge)
        .ok_or_else(|| ConfigError::setting(KEY, format!("is {ratio}, and only 1, 0.5 and 0.25 are computed")))
}

/// `InternVLVisionModel`, and the projector after it, of which the width is to be said.
fn tower(vision: &Settings<'_>, merge: usize) -> Result<TowerShape, ConfigError> {
    only(vision, "model_type", &json!("internvl_vision"))?;
    only(vision, "hidden_act", &json!("gelu"))?;
    only(vision, "num_channels", &json!(3))?;
    only(vision, "use_absolute_position_embeddings", &json!(true))?;
    let hidden = vision.size_or("hidden_size", 1024, MOST)?;
    let heads = vision.size_or("num_attention_heads", 16, MOST_HEADS)?;
    if !hidden.is_multiple_of(heads) {
        return Err(ConfigError::setting("num_attention_heads", "of `vision_config` does not divide `hidden_size`"));
    }
    let image = side(vision, "image_size", 448)?;
    let patch = side(vision, "patch_size", 14)?;
    if !image.is_multiple_of(patch * merge) {
        let reason = format!("of `vision_config` is {image}, no multiple of as many patches of {patch} as are joined");
        return Err(ConfigError::setting("image_size", reason));
    }
    let patches = image / patch;
    let norm = norm(vision)?;
    let last_norm = !vision.on_by_default("use_mean_pooling")?;
    if last_norm && !norm.centred {
        let reason = "is false, and the norm after the last layer is of another type than all others";
        return Err(ConfigError::setting("use_mean_pooling", reason));
    }
    let rms = NormShape { epsilon: NORM_EPSILON, offset: 0.0, centred: false };
    Ok(TowerShape {
        hidden,
        heads,
        intermediate: vision.size_or("intermediate_size", 4096, MOST)?,
        gate: Gate::GeluAlone,
        norm,
        norm_bias: norm.centred,
        patch: PatchShape { side: patch, merge, frames: 1, layout: Layout::Tiles { side: patches } },
        biases: true,
        qkv_biases: vision.get("attention_bias")?.unwrap_or(false),
        query_key_norm: vision.get("use_qk_norm")?.unwrap_or(false).then_some(rms),
        scaled: true,
        class_token: true,
        patch_bias: true,
        positions: Some(patches * patches),
        interpolation: Interpolation::Linear,
        theta: None,
        alternating: false,
        first_norm: false,
        layers: vec![true; vision.size_or("num_hidden_layers", 24, MOST_LAYERS)?],
        window: 1,
        last_norm,
        ending: Ending::JoinedFirst { norm: NormShape { epsilon: PROJECTOR_EPSILON, offset: 0.0, centred: true } },
        output: 0,
        deepstack: Vec::new(),
        names: NAMES,
    })
}

/// The norm of layers.
fn norm(vision: &Settings<'_>) -> Result<NormShape, ConfigError> {
    const KEY: &str = "norm_type";
    let kind: String = vision.get(KEY)?.unwrap_or_else(|| "layer_norm".to_owned());
    let centred = match kind.as_str() {
        "layer_norm" => true,
        "rms_norm" => false,
        other => return Err(ConfigError::setting(KEY, format!("of `vision_config` is {other}, which is not known"))),
    };
    Ok(NormShape { epsilon: vision.get("layer_norm_eps")?.unwrap_or(1e-6), offset: 0.0, centred })
}

/// The side of a square: a number, or twice the same one.
fn side(vision: &Settings<'_>, key: &'static str, default: usize) -> Result<usize, ConfigError> {
    let Some(Value::Array(sides)) = vision.0.get(key) else { return vision.size_or(key, default, MOST_PIXELS) };
    match &sides[..] {
        [height, width] if height == width => {
            let one = [(key.to_owned(), height.clone())];
            Settings(&one.into_iter().collect()).size(key, MOST_PIXELS)
        }
        _ => Err(ConfigError::setting(key, "of `vision_config` is no number, nor twice the same one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `InternVL3-8B-hf` is published.
    fn published() -> Value {
        json!({
            "architectures": ["InternVLForConditionalGeneration"], "downsample_ratio": 0.5, "image_seq_length": 256,
            "image_token_id": 151_667, "model_type": "internvl", "projector_hidden_act": "gelu",
            "text_config": {
                "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 3584,
                "intermediate_size": 18_944, "max_position_embeddings": 32_768, "max_window_layers": 70,
                "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
                "rms_norm_eps": 1e-6, "rope_scaling": {"factor": 2.0, "rope_type": "dynamic", "type": "dynamic"},
                "rope_theta": 1e6, "sliding_window": null, "tie_word_embeddings": false, "use_sliding_window": false,
                "vocab_size": 151_674,
            },
            "vision_config": {
                "architectures": ["InternVisionModel"], "attention_bias": true, "attention_dropout": 0.0,
                "hidden_act": "gelu", "hidden_size": 1024, "image_size": [448, 448], "intermediate_size": 4096,
                "layer_norm_eps": 1e-6, "layer_scale_init_value": 0.1, "model_type": "internvl_vision",
                "norm_type": "layer_norm", "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 24,
                "patch_size": [14, 14], "projection_dropout": 0.0, "use_absolute_position_embeddings": true,
                "use_mask_token": false, "use_mean_pooling": true, "use_qk_norm": false,
            },
            "vision_feature_layer": -1, "vision_feature_select_strategy": "default",
        })
    }

    fn read(config: &Value) -> Result<ModelShape, String> {
        ModelShape::read(config.as_object().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_published_model_is_read() {
        let shape = read(&published()).unwrap();
        assert!(shape.check_length(32_768).is_ok() && shape.check_length(32_769).is_err());
        let images = shape.images.unwrap();
        assert_eq!((images.placeholder, images.both_ways, images.tower.layers.len()), (151_667, false, 24));
        let layout = Layout::Tiles { side: 32 };
        assert_eq!(images.tower.patch, PatchShape { side: 14, merge: 2, frames: 1, layout });
        assert_eq!((images.tower.positions, images.tower.joined(), images.tower.output), (Some(1024), 4096, 3584));
        let mut config = published();
        config["vision_config"] = Value::Null;
        assert_eq!(read(&config).unwrap().images, None);
    }

    #[test]
    fn what_config_json_leaves_out_is_as_in_the_smallest_tower() {
        let mut config = published();
        config["vision_config"] = json!({"attention_bias": true});
        for key in ["downsample_ratio", "image_token_id", "vision_feature_layer", "vision_feature_select_strategy"] {
            config.as_object_mut().unwrap().remove(key);
        }
        assert_eq!(read(&config), read(&published()));
    }

    #[test]
    fn frequencies_that_depend_on_lengths_are_those_of_short_sequences() {
        let mut config = published();
        config["text_config"]["rope_scaling"] = Value::Null;
        let (plain, dynamic) = (read(&config).unwrap(), read(&published()).unwrap());
        assert_eq!((plain.ropes, plain.longest), (dynamic.ropes.clone(), None));
        let text = config["text_config"].as_object_mut().unwrap();
        text.remove("rope_theta");
        text.insert("rope_parameters".to_owned(), json!({"rope_theta": 1e6, "rope_type": "dynamic", "factor": 2.0}));
        let newer = read(&config).unwrap();
        assert_eq!((&newer.ropes, newer.longest.is_some()), (&dynamic.ropes, true));
        config["text_config"]["rope_parameters"]["alpha"] = json!(3.0);
        assert!(read(&config).unwrap_err().contains("has alpha, which is not known"));
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        for (place, value, named) in [
            ("/architectures/0", json!("InternVLChatModel"), "InternVLChatModel"),
            ("/vision_feature_layer", json!(-2), "`vision_feature_layer` is -2"),
            ("/vision_feature_select_strategy", json!("full"), "`vision_feature_select_strategy`"),
            ("/projector_hidden_act", json!("silu"), "`projector_hidden_act`"),
            ("/image_token_id", json!(151_674), "is out of vocabulary"),
            ("/downsample_ratio", json!(0.75), "`downsample_ratio` is 0.75"),
            ("/text_config/model_type", json!("gpt_oss"), "`model_type` of `text_config` is gpt_oss"),
            ("/vision_config/model_type", json!("siglip_vision_model"), "`model_type`"),
            ("/vision_config/num_channels", json!(1), "`num_channels` is 1"),
            ("/vision_config/num_attention_heads", json!(15), "`num_attention_heads`"),
            ("/vision_config/hidden_act", json!("gelu_pytorch_tanh"), "`hidden_act`"),
            ("/vision_config/norm_type", json!("group_norm"), "`norm_type`"),
            ("/vision_config/use_absolute_position_embeddings", json!(false), "`use_absolute_position_embeddings`"),
            ("/vision_config/image_size", json!([448, 224]), "`image_size`"),
            ("/vision_config/image_size", json!([450, 450]), "`image_size`"),
            ("/vision_config/patch_size", json!([14]), "`patch_size`"),
            ("/vision_config/patch_size", json!(0), "`patch_size` is 0"),
            ("/vision_config/num_hidden_layers", json!(1_u64 << 60), "`num_hidden_layers`"),
        ] {
            let mut config = published();
            *config.pointer_mut(place).unwrap() = value;
            let error = read(&config).unwrap_err();
            assert!(error.contains(named), "{place}: {error}");
        }
        // No name of the placeholder in this family.
        let mut config = published();
        config["image_token_index"] = json!(90);
        assert_eq!(read(&config), read(&published()));
        let mut config = published();
        config["vision_config"]["use_mean_pooling"] = json!(false);
        assert!(read(&config).unwrap().images.unwrap().tower.last_norm);
        config["vision_config"]["norm_type"] = json!("rms_norm");
        assert!(read(&config).unwrap_err().contains("`use_mean_pooling`"));
    }
}
