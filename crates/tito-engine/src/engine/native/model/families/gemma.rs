//! Gemma 1 to 3, the text models.

use serde_json::{Map, Value, json};

use super::{
    super::{
        names::Names,
        rope::{RopeDefaults, of_parameters, parameters_by_kind},
        settings::{ConfigError, Settings},
        shape::{LayerRotation, ModelShape, NormPlaces},
    },
    decoder::{Defaults, NORMS_OF_HEADS, attention_biases, decoder, decoder_with, heads, only},
    windows::{DEFAULT_WINDOW, same_windows, sliding, window_or, windows_of},
};

/// The base of frequencies of Gemma 3's layers that have a window, and of those that have none.
const THETAS: [f64; 2] = [10_000.0, 1e6];

fn defaults() -> Defaults {
    let common = Defaults { head_dim: Some(256), tied: true, ..Defaults::COMMON.theta(10_000.0) };
    Defaults { activation: "hidden_activation", ..common }
}

/// Gemma 1. Its `hidden_act` does not count unless it is what transformers makes of it.
pub(super) fn gemma(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let [own_name, older]: [Option<String>; 2] = [settings.get("hidden_activation")?, settings.get("hidden_act")?];
    // Where both are left out, transformers takes the gelu that `hidden_activation` has by default.
    let activation = if own_name.is_none() && older.is_some() { "hidden_act" } else { "hidden_activation" };
    // Releases of transformers differ in which gelu they take it for.
    if activation == "hidden_act" && older.as_deref() == Some("gelu") {
        return Err(ConfigError::setting(activation, "\"gelu\" is not supported in this key"));
    }
    if let (Some(own_name), Some(older)) = (&own_name, &older) {
        check_both(own_name, older)?;
    }
    let mut shape = decoder(settings, Defaults { activation, ..defaults() })?;
    attention_biases(settings, false, &mut shape)?;
    one_more(&mut shape);
    same_windows(settings, None, &mut shape)?;
    Ok(shape)
}

/// Refuses two names of activations that contradict each other: vLLM reads `hidden_activation`, and transformers 5 reads
/// `hidden_act` alone. Published files say `gelu` in the latter, and both take it for the other gelu.
fn check_both(own_name: &str, older: &str) -> Result<(), ConfigError> {
    if own_name == older || (own_name, older) == ("gelu_pytorch_tanh", "gelu") {
        return Ok(());
    }
    let reason =
        format!("is \"{older}\", and `hidden_activation` is \"{own_name}\"; readers differ in which one counts");
    Err(ConfigError::setting("hidden_act", reason))
}

/// Gemma 2.
pub(super) fn gemma2(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = decoder(settings, defaults())?;
    common(settings, &mut shape)?;
    let cap = cap(settings, "attn_logit_softcapping", Some(50.0))?;
    for attention in shape.attentions() {
        attention.shape.cap = cap;
    }
    shape.logits.cap = self::cap(settings, "final_logit_softcapping", Some(30.0))?;
    let sliding = sliding(settings, shape.layers.len(), 2)?;
    windows_of(&sliding, window_or(settings, DEFAULT_WINDOW)?, &mut shape)?;
    Ok(shape)
}

/// Gemma 3: layers with a window have another rotary embedding than those without.
pub(super) fn gemma3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    if settings.get::<f64>("attn_logit_softcapping")?.is_some() {
        return Err(ConfigError::setting("attn_logit_softcapping", "is not supported"));
    }
    let heads = heads(settings, defaults())?;
    let ropes = parameters(settings)?.into_iter().zip(THETAS).map(|(parameters, theta)| {
        let defaults = RopeDefaults { theta: Some(theta), partial: None };
        // transformers looks for it beside both kinds, and rounds whatever these say.
        only(&Settings(&parameters), "truncate", &json!(true))?;
        // What both kinds of layers have in common is not at the top of config.json.
        of_parameters(&parameters, &Settings(&Map::new()), heads.kept.head_dim, defaults)
    });
    let mut shape = decoder_with(settings, defaults(), heads, ropes.collect::<Result<_, _>>()?)?;
    common(settings, &mut shape)?;
    shape.logits.cap = cap(settings, "final_logit_softcapping", None)?;
    let period = settings.get("sliding_window_pattern")?.unwrap_or(6);
    if period == 0 {
        return Err(ConfigError::setting("sliding_window_pattern", "is 0"));
    }
    let sliding = sliding(settings, shape.layers.len(), period)?;
    windows_of(&sliding, window_or(settings, DEFAULT_WINDOW)?, &mut shape)?;
    for (attention, slides) in shape.attentions().zip(sliding) {
        let rope = usize::from(!slides);
        attention.head_norms = NORMS_OF_HEADS;
        attention.rotation = Some(LayerRotation { queries: rope, keys: rope, neighbours: false });
    }
    Ok(shape)
}

/// What Gemma 2 and 3 have in common.
fn common(settings: &Settings<'_>, shape: &mut ModelShape) -> Result<(), ConfigError> {
    attention_biases(settings, false, shape)?;
    one_more(shape);
    let scalar: f64 = settings.get("query_pre_attn_scalar")?.unwrap_or(256.0);
    if !(scalar > 0.0 && scalar.is_finite()) {
        return Err(ConfigError::setting("query_pre_attn_scalar", "is not over 0"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "the one rounding of the scale")]
    let scale = scalar.powf(-0.5) as f32;
    for attention in shape.attentions() {
        attention.shape.scale = scale;
    }
    for layer in &mut shape.layers {
        layer.norms = NormPlaces::Both;
    }
    shape.names = Names { mlp_norm: "pre_feedforward_layernorm", ..Names::default() };
    Ok(())
}

/// Norms whose weights are kept less one, and embeddings as long as states are wide.
fn one_more(shape: &mut ModelShape) {
    shape.norm.offset = 1.0;
    #[expect(clippy::cast_precision_loss, reason = "states are narrow")]
    let width = shape.hidden as f32;
    shape.embedding_factor = width.sqrt();
}

/// A cap; `null` for none.
pub(super) fn cap(settings: &Settings<'_>, key: &str, default: Option<f32>) -> Result<Option<f32>, ConfigError> {
    let cap = settings.or_left_out(key, default)?;
    match cap.filter(|cap| !(*cap > 0.0 && cap.is_finite())) {
        Some(_) => Err(ConfigError::setting(key, "is not over 0")),
        None => Ok(cap),
    }
}

/// The rotary embeddings of layers with a window and without. In the old spelling `rope_scaling` is of the latter only.
fn parameters(settings: &Settings<'_>) -> Result<[Map<String, Value>; 2], ConfigError> {
    if let Some(apart) = parameters_by_kind(settings)? {
        if settings.get::<Value>("rope_scaling")?.is_some() {
            return Err(ConfigError::setting("rope_scaling", "beside `rope_parameters` is not supported here"));
        }
        return Ok(with_thetas(settings, apart));
    }
    if settings.get::<Value>("rope_parameters")?.is_some() {
        return Err(ConfigError::setting("rope_parameters", "that do not differ between layers are not supported"));
    }
    Ok(with_thetas(settings, [Map::new(), settings.get("rope_scaling")?.unwrap_or_default()]))
}

/// Takes the bases of frequencies from the top of config.json where the parameters have none.
fn with_thetas(settings: &Settings<'_>, [local, global]: [Map<String, Value>; 2]) -> [Map<String, Value>; 2] {
    [("rope_local_base_freq", local), ("rope_theta", global)].map(|(key, mut parameters)| {
        if let Some(theta) = settings.0.get(key) {
            parameters.entry("rope_theta").or_insert_with(|| theta.clone());
        }
        parameters
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gemma_with(settings: &Value) -> Result<ModelShape, ConfigError> {
        let mut config = json!({
            "architectures": ["GemmaForCausalLM"], "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 9, "intermediate_size": 16,
        });
        config.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        ModelShape::read(config.as_object().unwrap())
    }

    #[test]
    fn activations_of_gemma_1_that_contradict_each_other_are_refused() {
        for (own_name, older) in [("gelu_pytorch_tanh", "silu"), ("gelu_pytorch_tanh", "relu"), ("gelu", "silu")] {
            let error =
                gemma_with(&json!({"hidden_activation": own_name, "hidden_act": older})).unwrap_err().to_string();
            assert!(error.contains("`hidden_act`") && error.contains("`hidden_activation` is"), "{error}");
        }
        for older in ["gelu", "gelu_pytorch_tanh"] {
            gemma_with(&json!({"hidden_activation": "gelu_pytorch_tanh", "hidden_act": older})).unwrap();
        }
        gemma_with(&json!({"hidden_activation": null, "hidden_act": "gelu_pytorch_tanh"})).unwrap();
    }
}
