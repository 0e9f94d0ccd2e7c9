//! Gemma 4, the text models.

use serde_json::{Map, Value, json};

use super::{
    super::{
        names::{ExpertNames, Names, StackedNames},
        rope::{RopeConfig, RopeDefaults, of_parameters, parameters_by_kind, proportional},
        settings::{ConfigError, Settings},
        shape::{InputShape, LayerRotation, MlpShape, ModelShape, NormPlaces, RouterShape},
    },
    decoder::{
        Defaults, Heads, MOST, NORMS_OF_HEADS, activation, attention_biases, checked_heads, decoder_with, heads, only,
    },
    gemma::cap,
    mixtures::{MixtureKeys, SOFTMAX, counted, routed},
    windows::{sliding, window_or, windows_of},
};
use crate::engine::native::backend::CacheShape;

const MIXTURE: MixtureKeys = MixtureKeys {
    experts: "num_experts",
    experts_too: None,
    per_token: "top_k_experts",
    intermediate: "moe_intermediate_size",
};

/// The window of a model whose config.json has no `sliding_window`.
const WINDOW: usize = 512;

/// Gemma 4: layers without a window have wider heads, the last layers attend to the keys of others, and each layer may have
/// an input of its own.
pub(super) fn gemma4(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    only(settings, "use_bidirectional_attention", &json!("vision"))?;
    let common = Defaults { head_dim: Some(256), tied: true, ..Defaults::COMMON };
    let defaults = Defaults { activation: "hidden_activation", ..common };
    let all = heads(settings, defaults)?;
    let mut shape = decoder_with(settings, defaults, all, Vec::new())?;
    attention_biases(settings, false, &mut shape)?;
    let slides = kinds(settings, shape.layers.len())?;
    windows_of(&slides, window_or(settings, WINDOW)?, &mut shape)?;
    let kept = sizes(settings, all, &slides)?;
    shape.ropes = ropes(settings, &slides, &kept)?;
    for ((attention, kept), slides) in shape.attentions().zip(kept).zip(&slides) {
        let rope = usize::from(!slides);
        attention.kept = kept;
        attention.shape.scale = 1.0;
        (attention.head_norms, attention.value_norms) = (NORMS_OF_HEADS, true);
        attention.rotation = Some(LayerRotation { queries: rope, keys: rope, neighbours: false });
    }
    values(settings, &slides, &mut shape)?;
    shape.logits.cap = cap(settings, "final_logit_softcapping", None)?;
    #[expect(clippy::cast_precision_loss, reason = "states are narrow")]
    let width = shape.hidden as f32;
    shape.embedding_factor = width.sqrt();
    for layer in &mut shape.layers {
        (layer.norms, layer.scaled) = (NormPlaces::Both, true);
    }
    inputs(settings, &mut shape)?;
    share(settings, &slides, &mut shape)?;
    mixtures(settings, &mut shape)?;
    shape.names = names();
    counted("num_experts", shape)
}

fn names() -> Names {
    // No expert of this family has a bias.
    let experts = ExpertNames::Stacked(StackedNames {
        gate_up: "experts.gate_up_proj",
        gate_up_bias: "",
        down: "experts.down_proj",
        down_bias: "",
        transposed: false,
    });
    Names { mlp_norm: "pre_feedforward_layernorm", router: "router.proj", experts, ..Names::default() }
}

/// For each layer whether it has a window; the last one never has.
fn kinds(settings: &Settings<'_>, count: usize) -> Result<Vec<bool>, ConfigError> {
    let mut kinds = sliding(settings, count, 6)?;
    if let Some(last) = kinds.last_mut() {
        *last = false;
    }
    Ok(kinds)
}

/// The keys and values of each layer: as they are listed, or else those of layers with a window and without.
fn sizes(settings: &Settings<'_>, all: Heads, slides: &[bool]) -> Result<Vec<CacheShape>, ConfigError> {
    const LISTED: &str = "per_layer_config";
    const GLOBAL: [&str; 2] = ["num_global_key_value_heads", "global_head_dim"];
    if let Some(listed) = settings.get::<Map<String, Value>>(LISTED)? {
        for key in GLOBAL {
            only(settings, key, &Value::Null)?;
        }
        let mut sizes = vec![all.kept; slides.len()];
        for (number, own) in &listed {
            let place = number.parse().ok().and_then(|number: usize| sizes.get_mut(number));
            let (Some(size), Some(own)) = (place, own.as_object()) else {
                return Err(ConfigError::setting(LISTED, format!("names {number}, which is no layer")));
            };
            if let Some(other) = own.keys().find(|key| !["head_dim", "num_key_value_heads"].contains(&key.as_str())) {
                return Err(ConfigError::setting(LISTED, format!("has {other}, which is not supported")));
            }
            let own = Settings(own);
            size.heads = own.get("num_key_value_heads")?.unwrap_or(size.heads);
            size.head_dim = own.get("head_dim")?.unwrap_or(size.head_dim);
            checked_heads(all.queries, *size, [LISTED; 2])?;
        }
        return Ok(sizes);
    }
    let with_keys = settings.get("attention_k_eq_v")?.unwrap_or(false);
    let own_heads: Option<usize> = settings.get(GLOBAL[0])?.filter(|_| with_keys);
    let full = CacheShape {
        heads: own_heads.unwrap_or(all.kept.heads),
        head_dim: settings.or_left_out(GLOBAL[1], Some(512))?.unwrap_or(all.kept.head_dim),
    };
    checked_heads(all.queries, full, GLOBAL)?;
    Ok(slides.iter().map(|slides| if *slides { all.kept } else { full }).collect())
}

/// The rotary embeddings of layers with a window and without.
fn ropes(settings: &Settings<'_>, slides: &[bool], kept: &[CacheShape]) -> Result<Vec<RopeConfig>, ConfigError> {
    for key in ["rope_scaling", "rope_theta", "partial_rotary_factor"] {
        only(settings, key, &Value::Null)?;
    }
    let default = json!({
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    });
    let mut config = settings.0.clone();
    if settings.get::<Value>("rope_parameters")?.is_none() {
        config.insert("rope_parameters".to_owned(), default);
    }
    let kinds = parameters_by_kind(&Settings(&config))?;
    let kinds = kinds.ok_or_else(|| {
        ConfigError::setting("rope_parameters", "that do not differ between layers are not supported")
    })?;
    let rope = |(parameters, slide): (&Map<String, Value>, bool)| {
        let mut widths = kept.iter().zip(slides).filter(|(_, slides)| **slides == slide).map(|(kept, _)| kept.head_dim);
        let width = widths.next().unwrap_or(2);
        if widths.any(|other| other != width) {
            return Err(ConfigError::setting(
                "per_layer_config",
                "has heads of different widths in layers of one kind",
            ));
        }
        if parameters.get("rope_type").and_then(Value::as_str) == Some("proportional") {
            return proportional(parameters, width);
        }
        // As in Gemma 3.
        only(&Settings(parameters), "truncate", &json!(true))?;
        of_parameters(parameters, &Settings(&Map::new()), width, RopeDefaults { theta: None, partial: None })
    };
    kinds.iter().zip([true, false]).map(rope).collect()
}

/// Has layers without a window take their keys for values, where they do.
fn values(settings: &Settings<'_>, slides: &[bool], shape: &mut ModelShape) -> Result<(), ConfigError> {
    if settings.get("attention_k_eq_v")?.unwrap_or(false) {
        for (attention, slides) in shape.attentions().zip(slides) {
            attention.values_are_keys = !slides;
        }
    }
    Ok(())
}

/// Inputs of the layers' own.
fn inputs(settings: &Settings<'_>, shape: &mut ModelShape) -> Result<(), ConfigError> {
    const WIDTH: &str = "hidden_size_per_layer_input";
    const VOCAB: &str = "vocab_size_per_layer_input";
    let width: usize = settings.or_left_out(WIDTH, Some(256))?.unwrap_or(0);
    if width == 0 {
        return Ok(());
    }
    if width.saturating_mul(shape.layers.len()) > MOST {
        return Err(ConfigError::too_large(WIDTH, width));
    }
    let vocab_size: usize = settings.get(VOCAB)?.unwrap_or(262_144);
    if vocab_size < shape.vocab_size || vocab_size > MOST {
        return Err(ConfigError::setting(VOCAB, format!("is {vocab_size}, and there are {} tokens", shape.vocab_size)));
    }
    shape.inputs = Some(InputShape { width, vocab_size, gate: activation(settings, "hidden_activation")? });
    Ok(())
}

/// Has the last layers attend to the keys and values of the last one of their kind that makes its own.
fn share(settings: &Settings<'_>, slides: &[bool], shape: &mut ModelShape) -> Result<(), ConfigError> {
    const KEY: &str = "num_kv_shared_layers";
    let count: usize = settings.get(KEY)?.unwrap_or(0);
    if count == 0 {
        return Ok(());
    }
    if shape.inputs.is_none() {
        // transformers fails then, so that there is nothing to compare with.
        return Err(ConfigError::setting(KEY, "is not supported without `hidden_size_per_layer_input`"));
    }
    let wide = settings.get("use_double_wide_mlp")?.unwrap_or(false);
    let own = slides.len().checked_sub(count).ok_or_else(|| ConfigError::setting(KEY, "is more than all layers"))?;
    let sources: Vec<Option<usize>> =
        slides.iter().map(|kind| slides[..own].iter().rposition(|other| other == kind)).collect();
    let kept: Vec<CacheShape> = shape.attentions().map(|attention| attention.kept).collect();
    for (number, layer) in shape.layers.iter_mut().enumerate().skip(own) {
        let source = sources[number].filter(|source| kept[*source] == kept[number]);
        let source = source.ok_or_else(|| ConfigError::setting(KEY, "leaves no layer of the same kind"))?;
        if let Some(attention) = &mut layer.attention {
            attention.shares = Some(source);
        }
        if let Some(MlpShape::Dense(dense)) = layer.mlp.as_mut().filter(|_| wide) {
            dense.intermediate *= 2;
        }
    }
    Ok(())
}

/// A mixture beside the feed-forward part of each layer.
fn mixtures(settings: &Settings<'_>, shape: &mut ModelShape) -> Result<(), ConfigError> {
    if !settings.get("enable_moe_block")?.unwrap_or(false) {
        return Ok(());
    }
    let router = RouterShape { normed: true, ..SOFTMAX };
    let sparse = routed(settings, MIXTURE, router, activation(settings, "hidden_activation")?)?;
    for layer in &mut shape.layers {
        if let Some(MlpShape::Dense(dense)) = layer.mlp {
            layer.mlp = Some(MlpShape::Both(dense, sparse.clone()));
        }
    }
    Ok(())
}
