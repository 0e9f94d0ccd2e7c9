//! Mistral, Mixtral, Ministral and Ministral 3.

use serde_json::{Map, Value, json};

use super::{
    super::{
        names::{DenseNames, ExpertNames, GateUpNames, Names},
        rope::{FarFactor, RopeConfig, in_one_spelling, of_parameters, positive},
        settings::{ConfigError, Settings},
        shape::{LayerRotation, ModelShape},
    },
    decoder::{Defaults, KeyHeads, activation, decoder, decoder_with, heads},
    mixtures::{LOCAL_EXPERTS, SOFTMAX, counted, routed, sparse_from},
    windows::{DEFAULT_WINDOW, kinds, same_windows, window, window_or, windows_of},
};

/// Mistral 7B, and everything that was made to look like it.
pub(super) fn mistral(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = decoder(settings, Defaults::COMMON)?;
    same_windows(settings, window_or(settings, DEFAULT_WINDOW)?, &mut shape)?;
    Ok(shape)
}

/// Ministral 8B: layers have a window, or have none, as they are listed.
pub(super) fn ministral(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    // Other than for its siblings, transformers wants to be told the width of a head.
    settings.require::<usize>("head_dim")?;
    let mut shape = decoder(settings, Defaults { key_heads: KeyHeads::AsQueries, ..Defaults::COMMON.theta(10_000.0) })?;
    let window = window_or(settings, DEFAULT_WINDOW)?;
    let count = shape.layers.len();
    let kinds = kinds(settings, count)?.unwrap_or_else(|| vec![window.is_some(); count]);
    windows_of(&kinds, window, &mut shape)?;
    Ok(shape)
}

/// The names of experts that Mixtral was the first to have.
pub(super) const EXPERTS_OF_MIXTRAL: DenseNames =
    DenseNames { prefix: "block_sparse_moe.experts", gate_up: GateUpNames::Apart(["w1", "w3"]), down: "w2" };

/// What transformers calls a mixture in memory, from its fifth release on.
pub(super) const MIXTRAL_IN_MEMORY: &[(&str, &str)] = &[(".mlp.", ".block_sparse_moe.")];

/// Mixtral 8x7B and 8x22B.
pub(super) fn mixtral(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = decoder(settings, Defaults { epsilon: 1e-5, ..Defaults::COMMON.theta(1e6) })?;
    same_windows(settings, window(settings)?, &mut shape)?;
    let mixture = routed(settings, LOCAL_EXPERTS, SOFTMAX, activation(settings, "hidden_act")?)?;
    sparse_from(0, &mixture, &mut shape);
    let (experts, aliases_within) = (ExpertNames::Each(EXPERTS_OF_MIXTRAL), MIXTRAL_IN_MEMORY);
    shape.names = Names { router: "block_sparse_moe.gate", experts, aliases_within, ..Names::default() };
    counted("num_local_experts", shape)
}

/// Ministral 3: queries grow with their position.
pub(super) fn ministral3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    // The base where the parameters name none. Where there are no parameters, transformers' own name 1e6.
    let defaults = Defaults { head_dim: Some(128), epsilon: 1e-5, ..Defaults::COMMON.theta(10_000.0) };
    let heads = heads(settings, defaults)?;
    let parameters = ministral3_parameters(settings)?;
    let keys = of_parameters(&parameters, settings, heads.kept.head_dim, defaults.rope)?;
    let far = far_factor(&Settings(&parameters))?;
    let queries = RopeConfig { far: Some(far), ..keys.clone() };
    let mut shape = decoder_with(settings, defaults, heads, vec![keys, queries])?;
    for attention in shape.attentions() {
        attention.rotation = Some(LayerRotation { queries: 1, keys: 0, neighbours: false });
    }
    same_windows(settings, window(settings)?, &mut shape)?;
    Ok(shape)
}

/// The one of both spellings that is there; transformers' default where there is none.
fn ministral3_parameters(settings: &Settings<'_>) -> Result<Map<String, Value>, ConfigError> {
    let default = json!({
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16_384,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
    });
    Ok(in_one_spelling(settings)?.unwrap_or_else(|| default.as_object().cloned().unwrap_or_default()))
}

#[expect(clippy::cast_possible_truncation, reason = "the one rounding of these numbers")]
pub(super) fn far_factor(parameters: &Settings<'_>) -> Result<FarFactor, ConfigError> {
    let beta: f64 = parameters.require("llama_4_scaling_beta")?;
    let original = positive(parameters, "original_max_position_embeddings")?;
    Ok(FarFactor { beta: beta as f32, original: original as f32, first: 0 })
}
