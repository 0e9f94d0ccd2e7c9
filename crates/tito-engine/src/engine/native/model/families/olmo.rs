//! OLMo 2 and 3, and OLMoE.

use serde_json::{Map, Value, json};

use super::{
    super::{
        rope::{RopeConfig, RopeDefaults, of_parameters, parameters_by_kind},
        settings::{ConfigError, Settings},
        shape::{LayerRotation, ModelShape, NormPlaces, RouterShape},
    },
    decoder::{Defaults, KeyHeads, NORMS_OF_ALL, activation, attention_biases, decoder, decoder_with, heads, only},
    mixtures::{MixtureKeys, SOFTMAX, counted, routed, sparse_from},
    windows::{DEFAULT_WINDOW, same_windows, sliding, window_or, windows_of},
};

/// The base of frequencies of OLMo 3 where config.json leaves it out.
const THETA: f64 = 500_000.0;

fn defaults(theta: f64) -> Defaults {
    Defaults { key_heads: KeyHeads::AsQueries, epsilon: 1e-5, ..Defaults::COMMON.theta(theta) }
}

/// OLMo 2: norms after both parts of a layer only, and of all heads as one.
pub(super) fn olmo2(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = decoder(settings, defaults(10_000.0))?;
    norms_after(settings, &mut shape)?;
    same_windows(settings, None, &mut shape)?;
    Ok(shape)
}

/// OLMo 3: the same, and most layers have a window. Scaled frequencies are those of the others.
pub(super) fn olmo3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let heads = heads(settings, defaults(THETA))?;
    let mut shape = decoder_with(settings, defaults(THETA), heads, ropes(settings, heads.kept.head_dim)?)?;
    norms_after(settings, &mut shape)?;
    let window = window_or(settings, DEFAULT_WINDOW)?;
    let kinds = sliding(settings, shape.layers.len(), 4)?;
    windows_of(&kinds, window, &mut shape)?;
    for (attention, slides) in shape.attentions().zip(kinds) {
        let rope = usize::from(!slides);
        attention.rotation = Some(LayerRotation { queries: rope, keys: rope, neighbours: false });
    }
    Ok(shape)
}

/// OLMoE.
pub(super) fn olmoe(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = decoder(settings, defaults(10_000.0))?;
    attention_biases(settings, false, &mut shape)?;
    only(settings, "clip_qkv", &Value::Null)?;
    let keys = MixtureKeys {
        experts: "num_experts",
        experts_too: Some("num_local_experts"),
        per_token: "num_experts_per_tok",
        intermediate: "intermediate_size",
    };
    let normalize = settings.get("norm_topk_prob")?.unwrap_or(false).then_some(0.0);
    let router = RouterShape { normalize, ..SOFTMAX };
    let mixture = routed(settings, keys, router, activation(settings, "hidden_act")?)?;
    for attention in shape.attentions() {
        attention.head_norms = NORMS_OF_ALL;
    }
    sparse_from(0, &mixture, &mut shape);
    same_windows(settings, None, &mut shape)?;
    counted("num_experts", shape)
}

fn norms_after(settings: &Settings<'_>, shape: &mut ModelShape) -> Result<(), ConfigError> {
    attention_biases(settings, false, shape)?;
    for attention in shape.attentions() {
        attention.head_norms = NORMS_OF_ALL;
    }
    for layer in &mut shape.layers {
        layer.norms = NormPlaces::After;
    }
    Ok(())
}

/// The rotary embeddings of layers with a window and without.
fn ropes(settings: &Settings<'_>, head_dim: usize) -> Result<Vec<RopeConfig>, ConfigError> {
    let defaults = RopeDefaults { theta: Some(THETA), partial: None };
    if let Some(apart) = parameters_by_kind(settings)? {
        if apart.iter().any(|parameters| !parameters.contains_key("rope_theta")) {
            // transformers takes it for layers without a window only.
            only(settings, "rope_theta", &json!(THETA))?;
        }
        let top: Map<String, Value> =
            settings.0.iter().filter(|(key, _)| *key == "max_position_embeddings").map(owned).collect();
        return apart
            .iter()
            .map(|parameters| {
                if parameters.contains_key("truncate") {
                    return Err(ConfigError::setting("truncate", "is not supported here"));
                }
                of_parameters(parameters, &Settings(&top), head_dim, defaults)
            })
            .collect();
    }
    // transformers 5 gives layers with a window its default, and earlier releases what is said.
    only(settings, "rope_theta", &json!(THETA))?;
    if settings.get::<Value>("rope_parameters")?.is_some() {
        return Err(ConfigError::setting("rope_parameters", "that do not differ between layers are not supported"));
    }
    let scaling: Map<String, Value> = settings.get("rope_scaling")?.unwrap_or_default();
    only(&Settings(&scaling), "truncate", &json!(true))?;
    let plain = of_parameters(&Map::new(), settings, head_dim, defaults)?;
    Ok(vec![plain, of_parameters(&scaling, settings, head_dim, defaults)?])
}

fn owned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}
