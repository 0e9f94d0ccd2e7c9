//! Models of several parts, for pictures and sounds too, of which the text is computed.
//!
//! The text has a config of its own, and its tensors are among those of the other parts, which are left out.

use serde_json::{Map, Value, json};

use super::{
    super::{
        names::Names,
        settings::{ConfigError, Settings},
        shape::ModelShape,
    },
    gemma, gemma4, llama4, mistral, mistral4,
};
use crate::TokenId;

/// Makes a shape of config.json.
pub(super) type Read = fn(&Settings<'_>) -> Result<ModelShape, ConfigError>;

/// Where the text is, as transformers 4 had it, and checkpoints of that time: a model with a head, in a part of its own.
pub(super) const WITH_HEAD: Names = Names {
    embedding: "language_model.model.embed_tokens",
    layers: "language_model.model.layers.",
    norm: "language_model.model.norm",
    head: "language_model.lm_head",
    other_parts: &[
        "vision_tower.",
        "vision_model.",
        "multi_modal_projector.",
        "model.vision_tower.",
        "model.vision_model.",
        "model.multi_modal_projector.",
    ],
    aliases: &[("model.language_model.", "language_model.model."), ("lm_head.", "language_model.lm_head.")],
    ..Names::LLAMA
};

/// The same where the other parts are read, too. Published names begin like the second of each pair; transformers 5 has the first
/// in memory.
pub(super) const TOWER_ALIASES: &[(&str, &str)] = &[
    ("model.language_model.", "language_model.model."),
    ("lm_head.", "language_model.lm_head."),
    ("model.vision_tower.", "vision_tower."),
    ("model.multi_modal_projector.", "multi_modal_projector."),
];

/// Where it is since: a model without its head, which is beside all parts.
pub(super) const WITHOUT_HEAD: Names = Names {
    embedding: "model.language_model.embed_tokens",
    layers: "model.language_model.layers.",
    norm: "model.language_model.norm",
    other_parts: &["model.visual."],
    ..Names::LLAMA
};

/// The same where layers have inputs of their own.
const WITH_INPUTS: Names = Names {
    inputs: [
        "model.language_model.embed_tokens_per_layer",
        "model.language_model.per_layer_model_projection",
        "model.language_model.per_layer_projection_norm",
    ],
    other_parts: &[
        "model.vision_tower.",
        "model.embed_vision.",
        "model.vision_embedder.",
        "model.audio_tower.",
        "model.embed_audio.",
    ],
    ..WITHOUT_HEAD
};

/// Gemma 3, whose published configs leave sizes out that are those of its smallest model of several parts.
pub(super) fn gemma3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let defaults = [
        ("vocab_size", 262_208),
        ("hidden_size", 2304),
        ("intermediate_size", 9216),
        ("num_hidden_layers", 26),
        ("num_attention_heads", 8),
        ("num_key_value_heads", 4),
    ];
    of_parts(settings, &defaults, gemma::gemma3, &WITH_HEAD)
}

/// Gemma 4.
pub(super) fn gemma4(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    of_parts(settings, &[], gemma4::gemma4, &WITH_INPUTS)
}

/// The id of an image's placeholders, by either of its names; `default` where there is none.
pub(super) fn image_token(
    settings: &Settings<'_>,
    default: TokenId,
    vocab_size: usize,
) -> Result<TokenId, ConfigError> {
    let settings = settings.with_other_names(&[("image_token_id", "image_token_index")])?;
    let id = Settings(&settings).get("image_token_index")?.unwrap_or(default);
    within("image_token_index", id, vocab_size)
}

/// Refuses an id that no embedding is of.
pub(super) fn within(key: &str, id: TokenId, vocab_size: usize) -> Result<TokenId, ConfigError> {
    if id as usize >= vocab_size {
        return Err(ConfigError::setting(key, "is out of vocabulary"));
    }
    Ok(id)
}

/// Mistral Small 3.1 and later, Ministral 3 and Mistral 4: one frame for three families.
pub(super) fn mistral3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let text: Map<String, Value> = settings.require("text_config")?;
    let kind: Option<String> = Settings(&text).get("model_type")?;
    let read: Read = match kind.as_deref() {
        None | Some("mistral") => mistral::mistral,
        Some("ministral3") => mistral::ministral3,
        Some("mistral4") => mistral4::mistral4,
        Some(other) => {
            return Err(ConfigError::setting("model_type", format!("of `text_config` is {other}, which is not known")));
        }
    };
    of_parts(settings, &[], read, &WITH_HEAD)
}

/// Llama 4.
pub(super) fn llama4(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    of_parts(settings, &[], llama4::llama4, &WITH_HEAD)
}

/// Reads the text of a model of several parts.
fn of_parts(
    settings: &Settings<'_>,
    defaults: &[(&str, usize)],
    read: Read,
    names: &Names,
) -> Result<ModelShape, ConfigError> {
    let mut text: Map<String, Value> = settings.require("text_config")?;
    for (key, size) in defaults {
        text.entry(*key).or_insert_with(|| json!(size));
    }
    of_text(settings, text, read, names)
}

/// Reads the text of a model of several parts, of which this is the config.
pub(super) fn of_text(
    settings: &Settings<'_>,
    mut text: Map<String, Value>,
    read: Read,
    names: &Names,
) -> Result<ModelShape, ConfigError> {
    const TIED: &str = "tie_word_embeddings";
    match (settings.get::<bool>(TIED)?, Settings(&text).get::<bool>(TIED)?) {
        (Some(all), Some(text)) if all != text => {
            return Err(ConfigError::setting(TIED, format!("is {all}, and {text} in `text_config`")));
        }
        (Some(all), None) => _ = text.insert(TIED.to_owned(), json!(all)),
        _ => {}
    }
    let mut shape = read(&Settings(&text))?;
    let Names { embedding, inputs, layers, norm, head, other_parts, aliases, .. } = names.clone();
    shape.names = Names { embedding, inputs, layers, norm, head, other_parts, aliases, ..shape.names };
    Ok(shape)
}
