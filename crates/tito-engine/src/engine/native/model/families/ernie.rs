//! Baidu's ERNIE 4.5, the text models.

use serde_json::json;

use super::{
    super::{
        names::{ChoiceBias, Names},
        settings::{ConfigError, Settings},
        shape::{MlpShape, ModelShape, RouterShape},
    },
    decoder::{Defaults, KeyHeads, NEIGHBOURS, NEXT_LAYERS, activation, decoder, further_layers, only},
    mixtures::{MixtureKeys, SOFTMAX, counted, routed, shared_experts},
    windows::same_windows,
};

fn defaults() -> Defaults {
    let common = Defaults::COMMON.theta(500_000.0);
    Defaults { key_heads: KeyHeads::AsQueries, epsilon: 1e-5, tied: true, ..common }
}

/// ERNIE 4.5 0.3B.
pub(super) fn dense(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    rotated(settings, Defaults { head_dim: Some(128), ..defaults() })
}

/// The mixtures of ERNIE 4.5.
pub(super) fn mixture(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let settings =
        settings.with_other_names(&[("num_experts_per_tok", "moe_k"), ("num_experts", "moe_num_experts")])?;
    let settings = &Settings(&settings);
    let mut shape = rotated(settings, defaults())?;
    let keys = MixtureKeys {
        experts: "moe_num_experts",
        experts_too: None,
        per_token: "moe_k",
        intermediate: "moe_intermediate_size",
    };
    let least: f32 = settings.get("moe_norm_min")?.unwrap_or(1e-12);
    let router = RouterShape { choice_bias: true, normalize: Some(least), ..SOFTMAX };
    let mut sparse = routed(settings, keys, router, activation(settings, "hidden_act")?)?;
    sparse.shared = shared_experts(settings, "moe_num_shared_experts", 2, sparse.expert)?;
    let layers = sparse_layers(settings, shape.layers.len())?;
    for layer in layers {
        shape.layers[layer].mlp = Some(MlpShape::Sparse(sparse.clone()));
    }
    let choice_bias = ChoiceBias { name: "mlp.moe_statics.e_score_correction_bias", is_table: true };
    let further_layers = further_layers(settings, NEXT_LAYERS)?;
    // As transformers calls it in memory.
    let aliases_within = &[("mlp.gate.moe_statics.", "mlp.moe_statics.")];
    shape.names = Names { choice_bias, unused: &["model.mtp_"], further_layers, aliases_within, ..Names::default() };
    counted("moe_num_experts", shape)
}

/// Which layers are mixtures.
fn sparse_layers(settings: &Settings<'_>, layers: usize) -> Result<Vec<usize>, ConfigError> {
    let interval: usize = settings.get("moe_layer_interval")?.unwrap_or(1);
    if interval == 0 {
        return Err(ConfigError::setting("moe_layer_interval", "is 0"));
    }
    let first: usize = settings.get("moe_layer_start_index")?.unwrap_or(1);
    let last: Option<usize> = match settings.get::<i64>("moe_layer_end_index")? {
        None | Some(-1) => layers.checked_sub(1),
        Some(last) => {
            Some(usize::try_from(last).map_err(|_| ConfigError::setting("moe_layer_end_index", "is negative"))?)
        }
    };
    let is_sparse = |layer: &usize| {
        (layer + 1).is_multiple_of(interval) && *layer >= first && last.is_some_and(|last| *layer <= last)
    };
    Ok((0..layers).filter(is_sparse).collect())
}

/// Neighbours are rotated.
fn rotated(settings: &Settings<'_>, defaults: Defaults) -> Result<ModelShape, ConfigError> {
    only(settings, "use_bias", &json!(false))?;
    let mut shape = decoder(settings, defaults)?;
    for attention in shape.attentions() {
        attention.rotation = NEIGHBOURS;
    }
    same_windows(settings, None, &mut shape)?;
    Ok(shape)
}
