//! IBM's Granite 3 and 4, the models of attention alone, and what the hybrids have in common with them.

use super::{
    super::{
        names::{DenseNames, ExpertNames, GateUpNames, Names, StackedNames},
        settings::{ConfigError, Settings},
        shape::{DenseShape, ModelShape, SharedShape},
    },
    decoder::{Defaults, KeyHeads, MOST, activation, attention_biases, decoder, mlp_biases},
    mixtures::{LOCAL_EXPERTS, SOFTMAX, counted, routed, sparse_from},
    windows::same_windows,
};

/// A decoder with a factor for everything.
pub(super) fn scaled(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let defaults = Defaults { key_heads: KeyHeads::AsQueries, ..Defaults::COMMON.theta(10_000.0) };
    let mut shape = decoder(settings, defaults)?;
    attention_biases(settings, false, &mut shape)?;
    let factor = |key: &str| settings.get::<f32>(key).map(|factor| factor.unwrap_or(1.0));
    shape.embedding_factor = factor("embedding_multiplier")?;
    shape.logits.factor = 1.0 / factor("logits_scaling")?;
    if !shape.logits.factor.is_finite() {
        return Err(ConfigError::setting("logits_scaling", "is 0"));
    }
    let (scale, residual) = (factor("attention_multiplier")?, factor("residual_multiplier")?);
    for attention in shape.attentions() {
        attention.shape.scale = scale;
    }
    for layer in &mut shape.layers {
        layer.residual_factor = residual;
    }
    same_windows(settings, None, &mut shape)?;
    Ok(shape)
}

/// Granite 3.
pub(super) fn dense(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = scaled(settings)?;
    mlp_biases(settings, &mut shape)?;
    Ok(shape)
}

/// The mixtures of Granite 3.
pub(super) fn mixture(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    mixtures(settings, None)
}

/// The same with a feed-forward part that all tokens go through.
pub(super) fn shared_mixture(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let none = settings.get("shared_intermediate_size")?.unwrap_or(0_usize) == 0;
    mixtures(settings, if none { None } else { Some(shared_part(settings)?) })
}

/// The part that all tokens go through.
pub(super) fn shared_part(settings: &Settings<'_>) -> Result<SharedShape, ConfigError> {
    let intermediate = settings.size("shared_intermediate_size", MOST)?;
    let gate = activation(settings, "hidden_act")?;
    Ok(SharedShape { dense: DenseShape { intermediate, bias: false, gate }, gated: false })
}

/// The mixtures of all layers.
pub(super) fn mixtures(settings: &Settings<'_>, shared: Option<SharedShape>) -> Result<ModelShape, ConfigError> {
    let mut shape = scaled(settings)?;
    let mut sparse = routed(settings, LOCAL_EXPERTS, SOFTMAX, activation(settings, "hidden_act")?)?;
    sparse.shared = shared;
    sparse_from(0, &sparse, &mut shape);
    shape.names = mixture_names();
    counted("num_local_experts", shape)
}

/// The names of the mixtures and of what all tokens go through.
pub(super) fn mixture_names() -> Names {
    // No expert of this family has a bias.
    let stacked = StackedNames {
        gate_up: "block_sparse_moe.input_linear.weight",
        gate_up_bias: "",
        down: "block_sparse_moe.output_linear.weight",
        down_bias: "",
        transposed: false,
    };
    let shared =
        DenseNames { prefix: "shared_mlp", gate_up: GateUpNames::Joined("input_linear"), down: "output_linear" };
    let experts = ExpertNames::Stacked(stacked);
    // As transformers calls them in memory, from its fifth release on.
    let aliases_within = &[
        ("block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.input_linear.weight"),
        ("block_sparse_moe.experts.down_proj", "block_sparse_moe.output_linear.weight"),
        ("block_sparse_moe.router.weight", "block_sparse_moe.router.layer.weight"),
    ];
    Names { router: "block_sparse_moe.router.layer", experts, shared, aliases_within, ..Names::default() }
}
