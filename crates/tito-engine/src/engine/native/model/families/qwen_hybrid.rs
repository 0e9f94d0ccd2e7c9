//! Qwen3-Next and Qwen 3.5: gated delta rules beside gated attention.

use serde_json::json;

use super::{
    super::{
        names::{InputNames, Names, RecurrentNames},
        settings::{ConfigError, Settings},
        shape::{Mixing, ModelShape, RecurrentLayer},
    },
    decoder::{Defaults, MOST, MOST_HEADS, NORMS_OF_HEADS, activation, attention_biases, decoder, only},
    mamba::{MOST_TAPS, listed, only_silu, recurrent_where},
    mixtures::{SOFTMAX, counted, routed, sparse_from},
    qwen::{MIXTURE, mixtures, shared_expert},
};
use crate::engine::native::recurrence::{ConvolutionShape, GatedNormShape, RecurrenceShape, Rule};

/// Qwen3-Next.
pub(super) fn qwen3_next(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = hybrid(settings)?;
    let shared = shared_expert(settings)?;
    // Left out, it is true other than in the mixtures before.
    let normalize = settings.on_by_default("norm_topk_prob")?;
    mixtures(settings, Some(shared), normalize, &mut shape)?;
    shape.names.recurrent.inputs = InputNames::ByKeyHead(&["in_proj_qkvz", "in_proj_ba"]);
    counted("num_experts", shape)
}

/// Qwen 3.5, the text of it.
pub(super) fn qwen3_5(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    hybrid(settings)
}

/// The mixtures of Qwen 3.5, the text of them.
pub(super) fn qwen3_5_moe(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    // There is no dense part, and its width is left out.
    let mut config = settings.0.clone();
    config.entry("intermediate_size").or_insert_with(|| json!(1));
    let mut shape = hybrid(&Settings(&config))?;
    let mut sparse = routed(settings, MIXTURE, SOFTMAX, activation(settings, "hidden_act")?)?;
    sparse.shared = Some(shared_expert(settings)?);
    sparse_from(0, &sparse, &mut shape);
    counted("num_experts", shape)
}

/// A decoder of both kinds of layers, with dense feed-forward parts.
fn hybrid(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let defaults = Defaults { head_dim: Some(256), ..Defaults::COMMON.theta(10_000.0).partial(0.25) };
    let mut shape = decoder(settings, defaults)?;
    shape.norm.offset = 1.0;
    attention_biases(settings, false, &mut shape)?;
    only(settings, "attn_output_gate", &json!(true))?;
    for attention in shape.attentions() {
        (attention.head_norms, attention.gated) = (NORMS_OF_HEADS, true);
    }
    recurrent_where(kinds(settings)?, &delta(settings, shape.norm.epsilon)?, &mut shape);
    let names = Names::default();
    let recurrent = RecurrentNames {
        inputs: InputNames::Each(&["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"]),
        ..names.recurrent
    };
    let shared = names.shared.under("mlp.shared_expert");
    shape.names = Names { recurrent, shared, unused: &["mtp.", "model.mtp."], ..names };
    Ok(shape)
}

/// For each layer whether it has a recurrent state.
fn kinds(settings: &Settings<'_>) -> Result<Vec<bool>, ConfigError> {
    let count: usize = settings.require("num_hidden_layers")?;
    if let Some(kinds) = listed(settings, count, &["linear_attention"], &["full_attention"])? {
        return Ok(kinds);
    }
    let interval: usize = settings.get("full_attention_interval")?.unwrap_or(4);
    if interval == 0 {
        return Err(ConfigError::setting("full_attention_interval", "is 0"));
    }
    Ok((1..=count).map(|layer| !layer.is_multiple_of(interval)).collect())
}

/// The gated delta rule of all layers.
fn delta(settings: &Settings<'_>, epsilon: f32) -> Result<RecurrentLayer, ConfigError> {
    let groups = settings.size("linear_num_key_heads", MOST_HEADS)?;
    let heads = settings.size("linear_num_value_heads", MOST_HEADS)?;
    let key = settings.size("linear_key_head_dim", MOST_HEADS)?;
    let value = settings.size("linear_value_head_dim", MOST_HEADS)?;
    let taps = settings.size("linear_conv_kernel_dim", MOST_TAPS)?;
    if !heads.is_multiple_of(groups) {
        return Err(ConfigError::setting("linear_num_key_heads", format!("does not divide {heads} heads of values")));
    }
    only_silu(settings, "hidden_act")?;
    let (keys, values) = (groups.saturating_mul(key), heads.saturating_mul(value));
    if keys.saturating_add(values) > MOST {
        return Err(ConfigError::too_large("linear_num_value_heads", heads));
    }
    let channels = 2 * keys + values;
    let recurrence = RecurrenceShape {
        rule: Rule::Delta { by_key: false },
        heads,
        groups,
        key,
        value,
        queries: 0,
        keys,
        values: 2 * keys,
        strengths: channels + values,
        steps: channels + values + heads,
    };
    let norm = GatedNormShape { group: value, epsilon, gate_first: false, silu: true, gates: channels };
    Ok(RecurrentLayer {
        inputs: vec![channels, values, heads, heads],
        input_bias: false,
        rank: None,
        convolution: ConvolutionShape { first: 0, channels, taps, activated: true },
        convolution_bias: false,
        mixing: Mixing::Tables { recurrence, skip: false, norm, norm_weights: Some(value) },
        output_bias: false,
    })
}
