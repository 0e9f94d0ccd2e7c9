//! Seed-OSS.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::{Family, Model},
    tables::{ATTENTION, ATTENTION_BIASES, MLP},
};

pub(super) const SEED_OSS: Family =
    Family { name: "seed_oss", model_type: "seed_oss", class: "SeedOssForCausalLM", read: seed_oss };

const NORMS: [Line; 2] = [
    line("attn_norm.weight", "input_layernorm.weight", &[Dim::Hidden]),
    line("post_attention_norm.weight", "post_attention_layernorm.weight", &[Dim::Hidden]),
];

fn seed_oss(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    model.intermediate()?;
    for lines in [&NORMS[..], &ATTENTION, &MLP] {
        model.layer(lines)?;
    }
    let [queries, keys, values, output] = ATTENTION_BIASES;
    let bias = model.attention_biases(&[queries, keys, values])?;
    let output_bias = model.has("blk.0.attn_output.bias");
    if output_bias {
        model.layer(&[output])?;
    }
    let mlp_bias = model.mlp_biases()?;
    model.set(json!({"attention_bias": bias, "attention_out_bias": output_bias, "mlp_bias": mlp_bias}));
    Ok(())
}
