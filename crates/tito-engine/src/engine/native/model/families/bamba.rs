//! IBM's Bamba and Granite 4 hybrids: Mamba 2 beside attention, each with a feed-forward part.

use serde_json::json;

use super::{
    super::{
        names::{Names, RecurrentNames},
        settings::{ConfigError, Settings},
        shape::{DenseShape, MlpShape, ModelShape, RecurrentLayer},
    },
    decoder::{Defaults, MOST, activation, attention_biases, decoder, mlp_biases, only},
    granite::{mixture_names, mixtures, scaled, shared_part},
    mamba::{MAMBA, check_expansion, listed, mamba, only_silu, recurrent_where, with_head_width},
    mixtures::counted,
};

/// What is taken for granted where config.json leaves it out.
const DEFAULTS: [(&str, usize); 4] =
    [("mamba_n_heads", 128), ("mamba_d_state", 256), ("mamba_n_groups", 1), ("mamba_d_conv", 4)];

/// Bamba.
pub(super) fn bamba(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    // Half of a head is rotated, whatever is said.
    only(settings, "partial_rotary_factor", &json!(0.5))?;
    let mut shape = decoder(settings, Defaults { epsilon: 1e-5, ..Defaults::COMMON.theta(10_000.0).partial(0.5) })?;
    attention_biases(settings, false, &mut shape)?;
    mlp_biases(settings, &mut shape)?;
    let attending: Vec<usize> = settings.get("attn_layer_indices")?.unwrap_or_default();
    let is_recurrent = (0..shape.layers.len()).map(|layer| !attending.contains(&layer)).collect();
    recurrent_where(is_recurrent, &part(settings, shape.norm.epsilon)?, &mut shape);
    let names = Names::default();
    let recurrent = RecurrentNames { prefix: "mamba", ..names.recurrent };
    let dense = names.dense.under("feed_forward");
    shape.names = Names { norm: "model.final_layernorm", mlp_norm: "pre_ff_layernorm", recurrent, dense, ..names };
    Ok(shape)
}

/// The hybrids of Granite 4.
pub(super) fn granite(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let experts: usize = settings.get("num_local_experts")?.unwrap_or(0);
    let mut attending = settings.0.clone();
    attending.remove("layer_types");
    let attending = Settings(&attending);
    let mut shape = if experts > 0 {
        mixtures(&attending, Some(shared_part(settings)?))?
    } else {
        let mut shape = scaled(&attending)?;
        let DenseShape { intermediate, bias, .. } = shared_part(settings)?.dense;
        let gate = activation(settings, "hidden_act")?;
        for layer in &mut shape.layers {
            layer.mlp = Some(MlpShape::Dense(DenseShape { intermediate, bias, gate }));
        }
        shape
    };
    if settings.get::<String>("position_embedding_type")?.as_deref() != Some("rope") {
        for attention in shape.attentions() {
            attention.rotation = None;
        }
    }
    let count = shape.layers.len();
    let kinds = listed(settings, count, &["mamba", "linear_attention"], &["attention", "full_attention"])?;
    let kinds = kinds.unwrap_or_else(|| vec![true; count]);
    recurrent_where(kinds, &part(settings, shape.norm.epsilon)?, &mut shape);
    let names = mixture_names();
    let recurrent = RecurrentNames { prefix: "mamba", ..names.recurrent };
    shape.names = Names { recurrent, dense: names.shared, ..names };
    counted("num_local_experts", shape)
}

/// The Mamba 2 part of all layers that have one.
fn part(settings: &Settings<'_>, epsilon: f32) -> Result<RecurrentLayer, ConfigError> {
    only_silu(settings, "hidden_act")?;
    let mut config = settings.0.clone();
    for (key, default) in DEFAULTS {
        config.entry(key).or_insert_with(|| json!(default));
    }
    let inner = settings.size("hidden_size", MOST)?.saturating_mul(settings.get("mamba_expand")?.unwrap_or(2));
    let config = with_head_width(&Settings(&config), inner)?;
    let settings = Settings(&config);
    let part = mamba(&settings, MAMBA, epsilon)?;
    check_expansion(&settings, &part)?;
    Ok(part)
}
