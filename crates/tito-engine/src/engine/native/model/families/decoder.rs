//! The decoder that most families are a variant of, and what they read of config.json in the same words.

use serde_json::Value;

use super::super::{
    names::Names,
    rope::{RopeConfig, RopeDefaults, rope},
    settings::{ConfigError, Settings},
    shape::{
        AttentionLayer, DenseShape, HeadNormKind, HeadNorms, LayerRotation, LayerShape, MlpShape, ModelShape,
        NormPlaces, PartFactors,
    },
};
use crate::engine::native::backend::{AttentionShape, CacheShape, Gate, LogitShape, NormShape, Reach};

/// No model has longer rows or a larger vocabulary.
pub(super) const MOST: usize = 1 << 24;
/// No model has more heads, or wider ones.
pub(super) const MOST_HEADS: usize = 1 << 16;
/// No model is deeper.
pub(super) const MOST_LAYERS: usize = 1 << 12;

/// How most families say how many layers after the last one predict further tokens.
pub(super) const NEXT_LAYERS: &str = "num_nextn_predict_layers";

/// Norms of each query and key head, before the rotation.
pub(super) const NORMS_OF_HEADS: Option<HeadNorms> =
    Some(HeadNorms { kind: HeadNormKind::Alike, after_rotation: false });
/// Norms of all query heads as one, and of all key heads, before the rotation.
pub(super) const NORMS_OF_ALL: Option<HeadNorms> = Some(HeadNorms { kind: HeadNormKind::Whole, after_rotation: false });

/// The rotation of neighbours rather than halves, by the first rotary embedding.
pub(super) const NEIGHBOURS: Option<LayerRotation> = Some(LayerRotation { queries: 0, keys: 0, neighbours: true });

/// How many heads of keys there are where config.json does not say it.
#[derive(Debug, Clone, Copy)]
pub(super) enum KeyHeads {
    /// It has to say it.
    Said,
    /// As many as heads of queries.
    AsQueries,
}

/// What a family takes for granted where config.json leaves it out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    /// Heads of keys.
    pub(super) key_heads: KeyHeads,
    /// The width of a head; `None` for the width of a state, divided by the heads.
    pub(super) head_dim: Option<usize>,
    /// The epsilon of norms.
    pub(super) epsilon: f32,
    /// Whether the embeddings are the head too.
    pub(super) tied: bool,
    /// The rotary embedding.
    pub(super) rope: RopeDefaults,
    /// The key of the activation.
    pub(super) activation: &'static str,
    /// The activation, where it is not one of those that most families choose from.
    pub(super) gate: Option<Gate>,
}

impl Defaults {
    /// Those of most families.
    pub(super) const COMMON: Self = Self {
        key_heads: KeyHeads::Said,
        head_dim: None,
        epsilon: 1e-6,
        tied: false,
        rope: RopeDefaults { theta: None, partial: None },
        activation: "hidden_act",
        gate: None,
    };

    /// The same with another base of frequencies.
    pub(super) const fn theta(self, theta: f64) -> Self {
        Self { rope: RopeDefaults { theta: Some(theta), ..self.rope }, ..self }
    }

    /// The same where a part of a head may be rotated, by default this one.
    pub(super) const fn partial(self, factor: f64) -> Self {
        Self { rope: RopeDefaults { partial: Some(factor), ..self.rope }, ..self }
    }
}

/// Reads a decoder: norms before both parts of a layer, heads rotated as halves, no biases, dense feed-forward parts, no
/// window.
pub(super) fn decoder(settings: &Settings<'_>, defaults: Defaults) -> Result<ModelShape, ConfigError> {
    let heads = heads(settings, defaults)?;
    let rope = rope(settings, heads.kept.head_dim, defaults.rope)?;
    decoder_with(settings, defaults, heads, vec![rope])
}

/// The same with other rotary embeddings; layers have the first of them.
pub(super) fn decoder_with(
    settings: &Settings<'_>,
    defaults: Defaults,
    Heads { queries: heads, kept }: Heads,
    ropes: Vec<RopeConfig>,
) -> Result<ModelShape, ConfigError> {
    let count = settings.size("num_hidden_layers", MOST_LAYERS)?;
    #[expect(clippy::cast_precision_loss, reason = "heads are small")]
    let scale = 1.0 / (kept.head_dim as f32).sqrt();
    let layer = LayerShape {
        attention: Some(AttentionLayer {
            shape: AttentionShape { heads, scale, reach: Reach::All, cap: None },
            kept,
            qkv_bias: false,
            output_bias: false,
            sinks: false,
            head_norms: None,
            rotation: Some(LayerRotation { queries: 0, keys: 0, neighbours: false }),
            growth: None,
            latent: None,
            gated: false,
            values_are_keys: false,
            value_norms: false,
            shares: None,
        }),
        norms: NormPlaces::Before,
        residual_factor: 1.0,
        factors: PartFactors::ONES,
        recurrent: None,
        mlp: Some(MlpShape::Dense(DenseShape {
            intermediate: settings.size("intermediate_size", MOST)?,
            bias: false,
            gate: defaults.gate.map_or_else(|| activation(settings, defaults.activation), Ok)?,
        })),
        scaled: false,
    };
    Ok(ModelShape {
        hidden: settings.size("hidden_size", MOST)?,
        vocab_size: settings.size("vocab_size", MOST)?,
        tied: settings.is_on("tie_word_embeddings", defaults.tied)?,
        norm: NormShape {
            epsilon: settings.get("rms_norm_eps")?.unwrap_or(defaults.epsilon),
            offset: 0.0,
            centred: false,
        },
        embedding_factor: 1.0,
        logits: LogitShape { factor: 1.0, cap: None },
        ropes,
        inputs: None,
        images: None,
        longest: None,
        layers: vec![layer; count],
        names: Names::default(),
    })
}

/// Heads of queries, and what is kept of keys and values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    /// How many heads of queries there are.
    pub(super) queries: usize,
    /// Keys and values.
    pub(super) kept: CacheShape,
}

/// Reads the heads.
pub(super) fn heads(settings: &Settings<'_>, defaults: Defaults) -> Result<Heads, ConfigError> {
    let hidden = settings.size("hidden_size", MOST)?;
    let heads = settings.size("num_attention_heads", MOST_HEADS)?;
    let kv_heads = match (settings.get("num_key_value_heads")?, defaults.key_heads) {
        (Some(heads), _) => heads,
        (None, KeyHeads::AsQueries) => heads,
        (None, KeyHeads::Said) => return Err(ConfigError::setting("num_key_value_heads", "is missing")),
    };
    let head_dim = settings.or_left_out("head_dim", defaults.head_dim)?.unwrap_or(hidden / heads);
    let kept = CacheShape { heads: kv_heads, head_dim };
    checked_heads(heads, kept, ["num_key_value_heads", "head_dim"])?;
    Ok(Heads { queries: heads, kept })
}

/// Refuses heads that fit no heads of queries, and widths that no head has, by the keys of both.
pub(super) fn checked_heads(
    queries: usize,
    CacheShape { heads, head_dim }: CacheShape,
    [heads_key, width_key]: [&str; 2],
) -> Result<(), ConfigError> {
    if heads == 0 || !queries.is_multiple_of(heads) {
        return Err(ConfigError::setting(heads_key, format!("does not divide {queries} heads")));
    }
    if head_dim == 0 || !head_dim.is_multiple_of(2) {
        return Err(ConfigError::setting(width_key, "is not an even number"));
    }
    if head_dim > MOST_HEADS {
        return Err(ConfigError::too_large(width_key, head_dim));
    }
    Ok(())
}

/// The gate of an activation.
pub(super) fn activation(settings: &Settings<'_>, key: &str) -> Result<Gate, ConfigError> {
    match settings.get::<String>(key)?.as_deref() {
        None if key == "hidden_activation" => Ok(Gate::GeluTanh),
        None | Some("silu" | "swish") => Ok(Gate::Silu),
        Some("gelu_pytorch_tanh" | "gelu_new") => Ok(Gate::GeluTanh),
        Some("gelu") => Ok(Gate::Gelu),
        Some(other) => Err(ConfigError::setting(key, format!("\"{other}\" is not supported, silu is"))),
    }
}

/// Refuses a setting unless it is left out, `null`, or this. Of what has to be on, transformers takes `null` for off.
pub(super) fn only(settings: &Settings<'_>, key: &str, value: &Value) -> Result<(), ConfigError> {
    if *value == Value::Bool(true) {
        settings.on_by_default(key)?;
    }
    let given: Option<Value> = settings.get(key)?;
    // 1 and 1.0 are the same number.
    let same = |given: &Value| given == value || (given.is_number() && given.as_f64() == value.as_f64());
    match given.filter(|given| !same(given)) {
        None => Ok(()),
        Some(given) => Err(ConfigError::setting(key, format!("is {given}, and only {value} is supported"))),
    }
}

/// How many layers after the last one predict further tokens, which nothing here is computed with: none unless config.json
/// says so. All others are layers of the model, which a wrong `num_hidden_layers` must not drop.
pub(super) fn further_layers(settings: &Settings<'_>, key: &str) -> Result<usize, ConfigError> {
    match settings.get(key)?.unwrap_or(0) {
        count if count > MOST_LAYERS => Err(ConfigError::too_large(key, count)),
        count => Ok(count),
    }
}

/// Biases on queries, keys, values and the output, as `attention_bias` says.
pub(super) fn attention_biases(
    settings: &Settings<'_>,
    default: bool,
    shape: &mut ModelShape,
) -> Result<(), ConfigError> {
    let bias = settings.is_on("attention_bias", default)?;
    for attention in shape.attentions() {
        (attention.qkv_bias, attention.output_bias) = (bias, bias);
    }
    Ok(())
}

/// Biases in the feed-forward parts, as `mlp_bias` says.
pub(super) fn mlp_biases(settings: &Settings<'_>, shape: &mut ModelShape) -> Result<(), ConfigError> {
    let bias = settings.get("mlp_bias")?.unwrap_or(false);
    for layer in &mut shape.layers {
        if let Some(MlpShape::Dense(dense)) = &mut layer.mlp {
            dense.bias = bias;
        }
    }
    Ok(())
}
