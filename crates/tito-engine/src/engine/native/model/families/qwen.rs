//! Qwen 2 and 3.

use super::{
    super::{
        names::{DenseNames, Names},
        settings::{ConfigError, Settings},
        shape::{DenseShape, MlpShape, ModelShape, RouterShape, SharedShape},
    },
    decoder::{Defaults, MOST, NORMS_OF_HEADS, activation, attention_biases, decoder},
    mixtures::{MixtureKeys, SOFTMAX, counted, routed},
    windows::{DEFAULT_WINDOW, kinds, same_windows, window_or, windows_of},
};

/// The keys of its mixtures.
pub(super) const MIXTURE: MixtureKeys = MixtureKeys {
    experts: "num_experts",
    experts_too: Some("num_local_experts"),
    per_token: "num_experts_per_tok",
    intermediate: "moe_intermediate_size",
};

/// Qwen 2 and 2.5.
pub(super) fn qwen2(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = decoder(settings, Defaults::COMMON)?;
    for attention in shape.attentions() {
        attention.qkv_bias = true;
    }
    upper_windows(settings, &mut shape)?;
    Ok(shape)
}

/// Qwen 3.
pub(super) fn qwen3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = decoder(settings, Defaults::COMMON)?;
    attention_biases(settings, false, &mut shape)?;
    for attention in shape.attentions() {
        attention.head_norms = NORMS_OF_HEADS;
    }
    upper_windows(settings, &mut shape)?;
    Ok(shape)
}

/// The mixtures of Qwen 3.
pub(super) fn qwen3_moe(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = decoder(settings, Defaults::COMMON)?;
    attention_biases(settings, false, &mut shape)?;
    for attention in shape.attentions() {
        attention.head_norms = NORMS_OF_HEADS;
    }
    same_windows(settings, used_window(settings)?, &mut shape)?;
    let normalize = settings.get("norm_topk_prob")?.unwrap_or(false);
    mixtures(settings, None, normalize, &mut shape)?;
    counted("num_experts", shape)
}

/// The mixtures of Qwen 1.5 and 2: an expert that all tokens go through has a gate of its own.
pub(super) fn qwen2_moe(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = decoder(settings, Defaults::COMMON.theta(10_000.0))?;
    let bias = settings.on_by_default("qkv_bias")?;
    for attention in shape.attentions() {
        attention.qkv_bias = bias;
    }
    let listed = kinds(settings, shape.layers.len())?;
    match (used_window(settings)?, listed) {
        // Releases of transformers differ in which layers have a window where none are listed.
        (Some(_), None) => return Err(ConfigError::setting("layer_types", "is missing")),
        (None, _) => same_windows(settings, None, &mut shape)?,
        (window, Some(listed)) => windows_of(&listed, window, &mut shape)?,
    }
    let normalize = settings.get("norm_topk_prob")?.unwrap_or(false);
    mixtures(settings, Some(shared_expert(settings)?), normalize, &mut shape)?;
    let names = Names::default();
    shape.names = Names { shared: DenseNames { prefix: "mlp.shared_expert", ..names.shared }, ..names };
    counted("num_experts", shape)
}

/// An expert that all tokens go through, with a gate of its own.
pub(super) fn shared_expert(settings: &Settings<'_>) -> Result<SharedShape, ConfigError> {
    let intermediate = settings.size("shared_expert_intermediate_size", MOST)?;
    let gate = activation(settings, "hidden_act")?;
    Ok(SharedShape { dense: DenseShape { intermediate, bias: false, gate }, gated: true })
}

/// The window, if it is in use.
fn used_window(settings: &Settings<'_>) -> Result<Option<usize>, ConfigError> {
    if !settings.get("use_sliding_window")?.unwrap_or(false) {
        return Ok(None);
    }
    window_or(settings, DEFAULT_WINDOW)
}

/// Windows of the layers that are listed, or else of those from `max_window_layers` on.
fn upper_windows(settings: &Settings<'_>, shape: &mut ModelShape) -> Result<(), ConfigError> {
    let count = shape.layers.len();
    let listed = kinds(settings, count)?;
    let Some(window) = used_window(settings)? else { return Ok(()) };
    let kinds = if let Some(listed) = listed {
        listed
    } else {
        let first: usize = settings.require("max_window_layers")?;
        (0..count).map(|layer| layer >= first).collect()
    };
    windows_of(&kinds, Some(window), shape)
}

/// Mixtures in every `decoder_sparse_step`th layer that is not said to be dense.
pub(super) fn mixtures(
    settings: &Settings<'_>,
    shared: Option<SharedShape>,
    normalize: bool,
    shape: &mut ModelShape,
) -> Result<(), ConfigError> {
    let only_dense: Vec<usize> = settings.get("mlp_only_layers")?.unwrap_or_default();
    let step: usize = settings.get("decoder_sparse_step")?.unwrap_or(1);
    if step == 0 {
        return Err(ConfigError::setting("decoder_sparse_step", "is 0"));
    }
    let router = RouterShape { normalize: normalize.then_some(0.0), ..SOFTMAX };
    let mut sparse = routed(settings, MIXTURE, router, activation(settings, "hidden_act")?)?;
    sparse.shared = shared;
    for (index, layer) in shape.layers.iter_mut().enumerate() {
        if !only_dense.contains(&index) && (index + 1).is_multiple_of(step) {
            layer.mlp = Some(MlpShape::Sparse(sparse.clone()));
        }
    }
    Ok(())
}
