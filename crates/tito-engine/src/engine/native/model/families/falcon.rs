//! Falcon H1: attention and Mamba 2 side by side in every layer, with a factor for everything.

use super::{
    super::{
        names::{Names, RecurrentNames},
        settings::{ConfigError, Settings},
        shape::{Mixing, ModelShape, PartFactors, RecurrentLayer},
    },
    decoder::{Defaults, MOST, attention_biases, decoder, mlp_biases},
    mamba::{MAMBA, mamba, only_silu, with_head_width},
};

/// Falcon H1.
pub(super) fn falcon_h1(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = decoder(settings, Defaults { epsilon: 1e-5, ..Defaults::COMMON.theta(10_000.0) })?;
    attention_biases(settings, false, &mut shape)?;
    mlp_biases(settings, &mut shape)?;
    let factor = |key: &str| settings.get::<f32>(key).map(|factor| factor.unwrap_or(1.0));
    shape.embedding_factor = factor("embedding_multiplier")?;
    shape.logits.factor = factor("lm_head_multiplier")?;
    let (part, factors) = (scan(settings, shape.norm.epsilon)?, factors(settings)?);
    for layer in &mut shape.layers {
        (layer.recurrent, layer.factors) = (Some(part.clone()), factors);
    }
    let names = Names::default();
    let recurrent = RecurrentNames { prefix: "mamba", ..names.recurrent };
    let dense = names.dense.under("feed_forward");
    shape.names = Names { norm: "model.final_layernorm", mlp_norm: "pre_ff_layernorm", recurrent, dense, ..names };
    Ok(shape)
}

/// The factors of all layers. What is made of a state is multiplied instead of the state, which is the same without biases.
fn factors(settings: &Settings<'_>) -> Result<PartFactors, ConfigError> {
    let factor = |key: &str| settings.get::<f32>(key).map(|factor| factor.unwrap_or(1.0));
    let inputs = [("attention_in_multiplier", "attention_bias"), ("ssm_in_multiplier", "mamba_proj_bias")];
    for (key, bias) in inputs {
        if factor(key)?.to_bits() != 1.0_f32.to_bits() && settings.get(bias)?.unwrap_or(false) {
            return Err(ConfigError::setting(key, format!("is not supported beside `{bias}`")));
        }
    }
    let [attention, input] = [factor(inputs[0].0)?, factor(inputs[1].0)?];
    let of_parts = |key: &str, count: usize| -> Result<Vec<f32>, ConfigError> {
        match settings.get::<Vec<f32>>(key)?.unwrap_or_else(|| vec![1.0; count]) {
            factors if factors.len() == count => Ok(factors),
            _ => Err(ConfigError::setting(key, format!("is not {count} numbers"))),
        }
    };
    let (scan, mlp) = (of_parts("ssm_multipliers", 5)?, of_parts("mlp_multipliers", 2)?);
    Ok(PartFactors {
        attention,
        keys: attention * factor("key_multiplier")?,
        attention_output: factor("attention_out_multiplier")?,
        scan: [0, 1, 2, 3, 4].map(|part| input * scan[part]),
        recurrent_output: factor("ssm_out_multiplier")?,
        gates: mlp[0],
        mlp_output: mlp[1],
    })
}

fn scan(settings: &Settings<'_>, epsilon: f32) -> Result<RecurrentLayer, ConfigError> {
    only_silu(settings, "hidden_act")?;
    let hidden = settings.size("hidden_size", MOST)?;
    let inner = match settings.or_left_out("mamba_d_ssm", Some(1024_usize))? {
        Some(inner) => inner,
        None => hidden.saturating_mul(settings.get("mamba_expand")?.unwrap_or(2)),
    };
    let mut part = mamba(&Settings(&with_head_width(settings, inner)?), MAMBA, epsilon)?;
    if part.output_width() != inner {
        let reason = format!("is {inner}, and heads have {} numbers together", part.output_width());
        return Err(ConfigError::setting("mamba_d_ssm", reason));
    }
    part.output_bias = settings.get("projectors_bias")?.unwrap_or(false);
    if let Mixing::Tables { norm, norm_weights, .. } = &mut part.mixing {
        norm.gate_first = !settings.on_by_default("mamba_norm_before_gate")?;
        if !settings.get("mamba_rms_norm")?.unwrap_or(false) {
            *norm_weights = None;
        }
    }
    Ok(part)
}
