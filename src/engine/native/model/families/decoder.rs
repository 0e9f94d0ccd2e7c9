//! The decoder that most families are a variant of, and what they read of config.json in the same words.

use serde_json::{Map, Value};

use super::super::{
    names::Names,
    rope::{RopeConfig, RopeDefaults, rope},
    settings::{ConfigError, Settings},
    shape::{
        AttentionLayer, DenseShape, Groups, HeadNorms, LayerRotation, LayerShape, MlpShape, ModelShape, NormPlaces,
        RouterShape, Scores, SharedShape, SparseShape,
    },
};
use crate::engine::native::backend::{AttentionShape, CacheShape, Gate, LogitShape, NormShape};

/// No model has longer rows or a larger vocabulary.
pub(super) const MOST: usize = 1 << 24;
/// No model has more heads, or wider ones.
pub(super) const MOST_HEADS: usize = 1 << 16;
/// No model is deeper.
const MOST_LAYERS: usize = 1 << 12;
/// No model has more experts, those of all layers counted.
const MOST_EXPERTS: usize = 1 << 17;

/// Norms of each query and key head, before the rotation.
pub(super) const NORMS_OF_HEADS: Option<HeadNorms> = Some(HeadNorms { whole: false, after_rotation: false });
/// Norms of all query heads as one, and of all key heads, before the rotation.
pub(super) const NORMS_OF_ALL: Option<HeadNorms> = Some(HeadNorms { whole: true, after_rotation: false });

/// The rotation of neighbours rather than halves, by the first rotary embedding.
pub(super) const NEIGHBOURS: Option<LayerRotation> = Some(LayerRotation { queries: 0, keys: 0, neighbours: true });

/// A sum of weights counts as at least this much where it divides them.
const LEAST_SUM: f32 = 1e-20;

/// Experts with the greatest softmax, whose weights sum to 1.
pub(super) const SOFTMAX: RouterShape = RouterShape {
    scores: Scores::Softmax,
    bias: false,
    choice_bias: false,
    groups: None,
    normalize: Some(0.0),
    factor: 1.0,
};

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
    let kept = heads(settings, defaults)?;
    let rope = rope(settings, kept.1.head_dim, defaults.rope)?;
    decoder_with(settings, defaults, kept, vec![rope])
}

/// The same with other rotary embeddings; layers have the first of them.
pub(super) fn decoder_with(
    settings: &Settings<'_>,
    defaults: Defaults,
    (heads, kept): (usize, CacheShape),
    ropes: Vec<RopeConfig>,
) -> Result<ModelShape, ConfigError> {
    let count = settings.size("num_hidden_layers", MOST_LAYERS)?;
    #[expect(clippy::cast_precision_loss, reason = "heads are small")]
    let scale = 1.0 / (kept.head_dim as f32).sqrt();
    let layer = LayerShape {
        attention: AttentionLayer {
            shape: AttentionShape { heads, scale, window: None, cap: None },
            kept,
            qkv_bias: false,
            output_bias: false,
            sinks: false,
            head_norms: None,
            rotation: Some(LayerRotation { queries: 0, keys: 0, neighbours: false }),
            latent: None,
        },
        norms: NormPlaces::Before,
        residual_factor: 1.0,
        mlp: MlpShape::Dense(DenseShape {
            intermediate: settings.size("intermediate_size", MOST)?,
            bias: false,
            gate: activation(settings, defaults.activation)?,
        }),
    };
    Ok(ModelShape {
        hidden: settings.size("hidden_size", MOST)?,
        vocab_size: settings.size("vocab_size", MOST)?,
        tied: settings.get("tie_word_embeddings")?.unwrap_or(defaults.tied),
        norm: NormShape { epsilon: settings.get("rms_norm_eps")?.unwrap_or(defaults.epsilon), offset: 0.0 },
        embedding_factor: 1.0,
        logits: LogitShape { factor: 1.0, cap: None },
        ropes,
        layers: vec![layer; count],
        names: Names::default(),
    })
}

/// Heads of queries, and the shape of keys and values.
pub(super) fn heads(settings: &Settings<'_>, defaults: Defaults) -> Result<(usize, CacheShape), ConfigError> {
    let hidden = settings.size("hidden_size", MOST)?;
    let heads = settings.size("num_attention_heads", MOST_HEADS)?;
    let kv_heads = match (settings.get("num_key_value_heads")?, defaults.key_heads) {
        (Some(heads), _) => heads,
        (None, KeyHeads::AsQueries) => heads,
        (None, KeyHeads::Said) => return Err(ConfigError::setting("num_key_value_heads", "is missing")),
    };
    let left_out = if settings.0.contains_key("head_dim") { None } else { defaults.head_dim };
    let head_dim = settings.get("head_dim")?.or(left_out).unwrap_or(hidden / heads);
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(ConfigError::setting("num_key_value_heads", format!("does not divide {heads} heads")));
    }
    if head_dim == 0 || !head_dim.is_multiple_of(2) {
        return Err(ConfigError::setting("head_dim", "is not an even number"));
    }
    if head_dim > MOST_HEADS {
        return Err(ConfigError::too_large("head_dim", head_dim));
    }
    Ok((heads, CacheShape { heads: kv_heads, head_dim }))
}

/// The gate of an activation.
pub(super) fn activation(settings: &Settings<'_>, key: &str) -> Result<Gate, ConfigError> {
    match settings.get::<String>(key)?.as_deref() {
        None if key == "hidden_activation" => Ok(Gate::GeluTanh),
        None | Some("silu" | "swish") => Ok(Gate::Silu),
        Some("gelu_pytorch_tanh" | "gelu_new") => Ok(Gate::GeluTanh),
        Some(other) => Err(ConfigError::setting(key, format!("\"{other}\" is not supported, silu is"))),
    }
}

/// Refuses a setting unless it is left out, `null`, or this.
pub(super) fn only(settings: &Settings<'_>, key: &str, value: &Value) -> Result<(), ConfigError> {
    let given: Option<Value> = settings.get(key)?;
    // 1 and 1.0 are the same number.
    let same = |given: &Value| given == value || (given.is_number() && given.as_f64() == value.as_f64());
    match given.filter(|given| !same(given)) {
        None => Ok(()),
        Some(given) => Err(ConfigError::setting(key, format!("is {given}, and only {value} is supported"))),
    }
}

/// Says of each layer whether it has a window, where that is listed.
pub(super) fn kinds(settings: &Settings<'_>, layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
    let Some(kinds) = settings.get::<Vec<String>>("layer_types")? else { return Ok(None) };
    if kinds.len() != layers {
        return Err(ConfigError::setting("layer_types", format!("does not name {layers} layers")));
    }
    let slides = |kind: &String| match kind.as_str() {
        "full_attention" => Ok(false),
        "sliding_attention" => Ok(true),
        other => Err(ConfigError::setting("layer_types", format!("names {other}"))),
    };
    kinds.iter().map(slides).collect::<Result<_, _>>().map(Some)
}

/// Which layers have a window: as they are listed, or else all but every `period`th.
pub(super) fn sliding(settings: &Settings<'_>, layers: usize, period: usize) -> Result<Vec<bool>, ConfigError> {
    let unlisted = || (1..=layers).map(|layer| !layer.is_multiple_of(period)).collect();
    Ok(kinds(settings, layers)?.unwrap_or_else(unlisted))
}

/// The window; one of no tokens is refused.
pub(super) fn window(settings: &Settings<'_>) -> Result<Option<usize>, ConfigError> {
    match settings.get("sliding_window")? {
        Some(0) => Err(ConfigError::setting("sliding_window", "is 0")),
        window => Ok(window),
    }
}

/// A window for all layers, or for none: what other lists of layers would mean, not everyone agrees on.
pub(super) fn same_windows(
    settings: &Settings<'_>,
    window: Option<usize>,
    shape: &mut ModelShape,
) -> Result<(), ConfigError> {
    let other = if window.is_some() { "full_attention" } else { "sliding_attention" };
    let kinds = kinds(settings, shape.layers.len())?.unwrap_or_default();
    if kinds.contains(&window.is_none()) {
        return Err(ConfigError::setting("layer_types", format!("names {other}, which is not supported here")));
    }
    for layer in &mut shape.layers {
        layer.attention.shape.window = window;
    }
    Ok(())
}

/// A window for the layers that are to have one.
pub(super) fn windows_of(kinds: &[bool], window: Option<usize>, shape: &mut ModelShape) -> Result<(), ConfigError> {
    if window.is_none() && kinds.contains(&true) {
        return Err(ConfigError::setting("sliding_window", "is missing"));
    }
    for (layer, slides) in shape.layers.iter_mut().zip(kinds) {
        layer.attention.shape.window = window.filter(|_| *slides);
    }
    Ok(())
}

/// Biases on queries, keys, values and the output, as `attention_bias` says.
pub(super) fn attention_biases(
    settings: &Settings<'_>,
    default: bool,
    shape: &mut ModelShape,
) -> Result<(), ConfigError> {
    let bias = settings.get("attention_bias")?.unwrap_or(default);
    for layer in &mut shape.layers {
        (layer.attention.qkv_bias, layer.attention.output_bias) = (bias, bias);
    }
    Ok(())
}

/// The keys by which a family says how its mixtures are.
#[derive(Debug, Clone, Copy)]
pub(super) struct MixtureKeys {
    /// How many experts there are.
    pub(super) experts: &'static str,
    /// The same in the other of both spellings, where there are two.
    pub(super) experts_too: Option<&'static str>,
    /// How many a token goes through.
    pub(super) per_token: &'static str,
    /// The width of each.
    pub(super) intermediate: &'static str,
}

/// Reads a mixture without anything that all tokens go through.
pub(super) fn mixture(
    settings: &Settings<'_>,
    keys: MixtureKeys,
    router: RouterShape,
    gate: Gate,
) -> Result<SparseShape, ConfigError> {
    let experts = experts(settings, keys)?;
    let per_token = settings.size(keys.per_token, MOST_EXPERTS)?;
    if per_token > experts {
        return Err(ConfigError::setting(keys.per_token, format!("is more than {experts} experts")));
    }
    let expert = DenseShape { intermediate: settings.size(keys.intermediate, MOST)?, bias: false, gate };
    Ok(SparseShape { experts, per_token, expert, router, shared: None })
}

/// Experts that all tokens go through: one feed-forward part, as wide as so many experts.
pub(super) fn shared_experts(
    settings: &Settings<'_>,
    key: &str,
    default: usize,
    expert: DenseShape,
) -> Result<Option<SharedShape>, ConfigError> {
    let shared: usize = settings.get(key)?.unwrap_or(default);
    let intermediate = shared.checked_mul(expert.intermediate).filter(|width| *width <= MOST);
    let intermediate = intermediate.ok_or_else(|| ConfigError::too_large(key, shared))?;
    Ok((shared > 0).then_some(SharedShape { dense: DenseShape { intermediate, ..expert }, gated: false }))
}

/// The router of DeepSeek V3 and those that took it over: sigmoids, a bias of the choice, and groups. The defaults are
/// those of groups and how many of them are chosen, and the factor of weights.
pub(super) fn sigmoid_router(
    settings: &Settings<'_>,
    sparse: &SparseShape,
    default_groups: (usize, usize),
    default_factor: f32,
) -> Result<RouterShape, ConfigError> {
    Ok(RouterShape {
        scores: Scores::Sigmoid,
        choice_bias: true,
        groups: groups(settings, default_groups, sparse.experts, sparse.per_token)?,
        normalize: settings.get("norm_topk_prob")?.unwrap_or(true).then_some(LEAST_SUM),
        factor: settings.get("routed_scaling_factor")?.unwrap_or(default_factor),
        ..SOFTMAX
    })
}

/// The groups from which experts are chosen, each by its two best.
pub(super) fn groups(
    settings: &Settings<'_>,
    (count, chosen): (usize, usize),
    experts: usize,
    per_token: usize,
) -> Result<Option<Groups>, ConfigError> {
    let count: usize = settings.get("n_group")?.unwrap_or(count);
    let chosen: usize = settings.get("topk_group")?.unwrap_or(chosen);
    if count == 0 || !experts.is_multiple_of(count) {
        return Err(ConfigError::setting("n_group", format!("does not divide {experts} experts")));
    }
    if chosen == 0 || chosen > count || chosen * (experts / count) < per_token {
        return Err(ConfigError::setting("topk_group", format!("of {count} groups leaves too few experts")));
    }
    Ok((count > 1).then_some(Groups { count, chosen, best: 2 }))
}

/// How many experts there are, in either spelling.
fn experts(settings: &Settings<'_>, keys: MixtureKeys) -> Result<usize, ConfigError> {
    let said = |key: &str| settings.0.get(key).is_some_and(|value| !value.is_null());
    match keys.experts_too.filter(|other| said(other)) {
        None => settings.size(keys.experts, MOST_EXPERTS),
        Some(other) => {
            let experts = settings.size(other, MOST_EXPERTS)?;
            if said(keys.experts) && settings.size(keys.experts, MOST_EXPERTS)? != experts {
                return Err(ConfigError::setting(other, format!("is another number than `{}`", keys.experts)));
            }
            Ok(experts)
        }
    }
}

/// Refuses more experts than any model has.
pub(super) fn counted(key: &str, shape: ModelShape) -> Result<ModelShape, ConfigError> {
    let experts = shape.layers.iter().map(|layer| layer.mlp.experts());
    let (all, most) = (experts.clone().fold(0, usize::saturating_add), experts.max().unwrap_or(0));
    if all > MOST_EXPERTS { Err(ConfigError::too_large(key, most)) } else { Ok(shape) }
}

/// The parameters of the rotary embeddings of windowed and of other layers, where config.json has them apart.
pub(super) fn parameters_by_kind(settings: &Settings<'_>) -> Result<Option<[Map<String, Value>; 2]>, ConfigError> {
    const KEY: &str = "rope_parameters";
    let Some(all) = settings.get::<Map<String, Value>>(KEY)? else { return Ok(None) };
    if !all.values().any(Value::is_object) {
        return Ok(None);
    }
    let of = |kind: &str| match all.get(kind) {
        Some(Value::Object(parameters)) => Ok(parameters.clone()),
        _ => Err(ConfigError::setting(KEY, format!("has nothing for {kind}"))),
    };
    Ok(Some([of("sliding_attention")?, of("full_attention")?]))
}
