//! Gemma 3 with a tower for images, all of which have one size.
//!
//! As `modeling_gemma3.py` and `modeling_siglip.py` of transformers define them.

use serde_json::{Map, Value, json};
use tito_images::{Layout, PatchShape};

use super::{
    super::{
        settings::{ConfigError, Settings},
        shape::{Ending, ImagesShape, Interpolation, ModelShape, TowerNames, TowerShape},
    },
    decoder::{MOST, MOST_HEADS, MOST_LAYERS, only},
    parts,
};
use crate::{
    TokenId,
    engine::{
        ImageFrame,
        native::backend::{Gate, NormShape},
    },
};

/// What is around them.
const FRAME: ImageFrame = ImageFrame::Opening([("boi_token_index", 255_999), ("eoi_token_index", 256_000)]);
/// No image is larger.
const MOST_PIXELS: usize = 1 << 13;
/// What stands for a part of an image unless config.json says otherwise.
const PLACEHOLDER: TokenId = 262_144;
/// How many of them stand for an image.
const PLACEHOLDERS: usize = 256;

/// A head of the tower that nothing here depends on, in checkpoints and in memory.
const HEADS: &[&str] = &[
    "vision_tower.vision_model.head.",
    "model.vision_tower.vision_model.head.",
    "vision_tower.head.",
    "model.vision_tower.head.",
];

/// Published names begin like these; transformers has others in memory, its fifth release shorter ones.
const ALIASES: &[(&str, &str)] = &[
    ("model.language_model.", "language_model.model."),
    ("lm_head.", "language_model.lm_head."),
    ("model.vision_tower.vision_model.", "vision_tower.vision_model."),
    ("model.vision_tower.", "vision_tower.vision_model."),
    ("vision_tower.", "vision_tower.vision_model."),
    ("model.multi_modal_projector.", "multi_modal_projector."),
];

const NAMES: TowerNames = TowerNames {
    prefix: "vision_tower.vision_model.",
    parts: parts::WITH_HEAD.other_parts,
    patch: "embeddings.patch_embedding",
    patch_has_frames: false,
    positions: "embeddings.position_embedding",
    class_token: "",
    query_key_norms: [""; 2],
    scales: [""; 2],
    first_norm: "",
    layers: "encoder.layers.",
    norms: ["layer_norm1", "layer_norm2"],
    qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    attention_output: "self_attn.out_proj",
    ups: &["mlp.fc1"],
    down: "mlp.fc2",
    last_norm: "post_layernorm",
    merger: &["multi_modal_projector.mm_soft_emb_norm", "multi_modal_projector.mm_input_projection_weight"],
};

/// The text of Gemma 3.
pub(super) fn gemma3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = parts::gemma3(settings)?;
    shape.names.aliases = ALIASES;
    Ok(shape)
}

/// Gemma 3, which reads text alone where it has no tower.
pub(super) fn with_images(settings: &Settings<'_>, mut shape: ModelShape) -> Result<ModelShape, ConfigError> {
    let Some(vision) = settings.get::<Map<String, Value>>("vision_config")? else { return Ok(shape) };
    let placeholder = parts::image_token(settings, PLACEHOLDER, shape.vocab_size)?;
    let placeholders = settings.size_or("mm_tokens_per_image", PLACEHOLDERS, MOST)?;
    let tower = tower(&Settings(&vision), placeholders, shape.hidden)?;
    shape.images = Some(ImagesShape { placeholder, frame: FRAME, axes: Vec::new(), both_ways: true, tower });
    shape.names.other_parts = HEADS;
    Ok(shape)
}

/// `SiglipVisionModel`, and the projector of Gemma 3.
fn tower(vision: &Settings<'_>, placeholders: usize, output: usize) -> Result<TowerShape, ConfigError> {
    only(vision, "model_type", &json!("siglip_vision_model"))?;
    only(vision, "hidden_act", &json!("gelu_pytorch_tanh"))?;
    only(vision, "num_channels", &json!(3))?;
    let hidden = vision.size_or("hidden_size", 768, MOST)?;
    let heads = vision.size_or("num_attention_heads", 12, MOST_HEADS)?;
    if !hidden.is_multiple_of(heads) {
        return Err(ConfigError::setting("num_attention_heads", "of `vision_config` does not divide `hidden_size`"));
    }
    let image = vision.size_or("image_size", 224, MOST_PIXELS)?;
    let side = vision.size_or("patch_size", 16, MOST_PIXELS)?;
    if !image.is_multiple_of(side) {
        return Err(ConfigError::setting("image_size", "of `vision_config` is no multiple of `patch_size`"));
    }
    let (patches, rows) = (image / side, placeholders.isqrt());
    if rows * rows != placeholders || !patches.is_multiple_of(rows) {
        let reason = format!("is {placeholders}: it must be a square whose side divides the {patches} of the patches");
        return Err(ConfigError::setting("mm_tokens_per_image", reason));
    }
    let epsilon = vision.get("layer_norm_eps")?.unwrap_or(1e-6);
    Ok(TowerShape {
        hidden,
        heads,
        intermediate: vision.size_or("intermediate_size", 3072, MOST)?,
        gate: Gate::GeluTanhAlone,
        norm: NormShape { epsilon, offset: 0.0, centred: true },
        norm_bias: true,
        patch: PatchShape { side, merge: patches / rows, frames: 1, layout: Layout::Plain },
        biases: true,
        qkv_biases: true,
        query_key_norm: None,
        scaled: false,
        class_token: false,
        patch_bias: true,
        positions: Some(patches * patches),
        interpolation: Interpolation::Linear,
        theta: None,
        alternating: false,
        first_norm: false,
        layers: vec![true; vision.size_or("num_hidden_layers", 12, MOST_LAYERS)?],
        window: 1,
        last_norm: true,
        ending: Ending::Pooled { norm: NormShape { epsilon, offset: 1.0, centred: false } },
        output,
        deepstack: Vec::new(),
        names: NAMES,
    })
}
