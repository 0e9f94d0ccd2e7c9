//! GLM-4 and the mixtures of GLM-4.5 to 4.7.

use super::{
    super::{
        names::Names,
        settings::{ConfigError, Settings},
        shape::{ModelShape, NormPlaces, SparseShape},
    },
    decoder::{Defaults, NEIGHBOURS, NEXT_LAYERS, NORMS_OF_HEADS, activation, decoder, further_layers},
    mixtures::{ROUTED_EXPERTS, SOFTMAX, counted, routed, shared_experts, sigmoid_router, sparse_from},
    windows::same_windows,
};

/// GLM-4-9B as transformers has it: neighbours are rotated, in the first half of a head.
pub(super) fn glm(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let common = Defaults::COMMON.theta(10_000.0).partial(0.5);
    let mut shape = decoder(settings, Defaults { head_dim: Some(128), epsilon: 1.5625e-7, ..common })?;
    joined(settings, &mut shape)?;
    Ok(shape)
}

/// GLM-4-0414: the same with norms after both parts of a layer, too.
pub(super) fn glm4(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = glm(settings)?;
    for layer in &mut shape.layers {
        layer.norms = NormPlaces::Both;
    }
    shape.names.after_attention_norm = "post_self_attn_layernorm";
    shape.names.after_mlp_norm = "post_mlp_layernorm";
    Ok(shape)
}

fn joined(settings: &Settings<'_>, shape: &mut ModelShape) -> Result<(), ConfigError> {
    let bias = settings.on_by_default("attention_bias")?;
    for attention in shape.attentions() {
        attention.qkv_bias = bias;
        attention.rotation = NEIGHBOURS;
    }
    let names = Names::default();
    shape.names = Names { dense: names.dense.joined("gate_up_proj"), ..names };
    same_windows(settings, None, shape)
}

/// The mixture of one layer.
fn sparse(settings: &Settings<'_>) -> Result<SparseShape, ConfigError> {
    let gate = activation(settings, "hidden_act")?;
    let mut sparse = routed(settings, ROUTED_EXPERTS, SOFTMAX, gate)?;
    sparse.router = sigmoid_router(settings, &sparse, (1, 1), 1.0)?;
    sparse.shared = shared_experts(settings, "n_shared_experts", 1, sparse.expert)?;
    Ok(sparse)
}

/// GLM-4.5, 4.6 and 4.7, and Air.
pub(super) fn mixture(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let common = Defaults::COMMON.theta(10_000.0).partial(0.5);
    let mut shape = decoder(settings, Defaults { epsilon: 1e-5, ..common })?;
    let bias = settings.get("attention_bias")?.unwrap_or(false);
    let norms = settings.get("use_qk_norm")?.unwrap_or(false);
    let sparse = sparse(settings)?;
    let dense: usize = settings.get("first_k_dense_replace")?.unwrap_or(1);
    for attention in shape.attentions() {
        attention.qkv_bias = bias;
        attention.head_norms = NORMS_OF_HEADS.filter(|_| norms);
    }
    sparse_from(dense, &sparse, &mut shape);
    shape.names.further_layers = further_layers(settings, NEXT_LAYERS)?;
    same_windows(settings, None, &mut shape)?;
    counted("n_routed_experts", shape)
}
