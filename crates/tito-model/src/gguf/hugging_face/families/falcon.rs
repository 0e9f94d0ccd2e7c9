//! Falcon H1: attention and Mamba 2 side by side in every layer. The file has no factors: the converter multiplies weights by
//! them.

use serde_json::json;

use super::{
    super::{
        super::GgufError,
        lines::{Dim, Line, line},
        model::{Family, Model},
        tables::{ATTENTION, FEED_FORWARD},
    },
    hybrid::{MAMBA_NORM, Mamba, Recurrence, mamba},
};

pub(super) const FALCON_H1: Family =
    Family { name: "falcon-h1", model_type: "falcon_h1", class: "FalconH1ForCausalLM", read: falcon_h1 };

const ENDS: [Line; 2] = [
    line("token_embd.weight", "model.embed_tokens.weight", &[Dim::Vocab, Dim::Hidden]),
    line("output_norm.weight", "model.final_layernorm.weight", &[Dim::Hidden]),
];

const NORMS: [Line; 2] = [
    line("attn_norm.weight", "input_layernorm.weight", &[Dim::Hidden]),
    line("ffn_norm", "pre_ff_layernorm.weight", &[Dim::Hidden]),
];

/// Biases are refused as all tensors that a family does not have: the converter multiplies them by factors that are not
/// theirs.
fn falcon_h1(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.sizes_and_rope()?;
    model.rotates_whole_heads()?;
    // The embeddings are multiplied by a factor, and the head by another one.
    if !model.has("output.weight") {
        let reason = "it has no `output.weight`, and no key says by how much its embeddings would have to be divided";
        return Err(GgufError::Unsupported(reason.to_owned()));
    }
    model.ends_with("rms_norm_eps", &ENDS)?;
    model.intermediate()?;
    for lines in [&NORMS[..], &ATTENTION, &FEED_FORWARD] {
        model.layer(lines)?;
    }
    let all = vec![true; model.layers()];
    let Mamba { sizes, convolution_bias, .. } = mamba(model, &all, "mamba.")?;
    let normed = model.has("blk.0.ssm_norm.weight");
    if normed {
        model.layers_under(|_| true, "mamba.", &[MAMBA_NORM])?;
    }
    let Recurrence { heads, value, key, groups, inner, taps, .. } = sizes;
    model.set(json!({
        "attention_bias": false, "mlp_bias": false, "projectors_bias": false, "mamba_proj_bias": false,
        "mamba_conv_bias": convolution_bias, "mamba_rms_norm": normed,
        // No key says it: gates come before the norm wherever such a file is computed.
        "mamba_norm_before_gate": false,
        "mamba_d_ssm": inner, "mamba_n_heads": heads, "mamba_d_head": value, "mamba_d_state": key,
        "mamba_n_groups": groups, "mamba_d_conv": taps,
    }));
    model.set(json!({
        "embedding_multiplier": 1.0, "lm_head_multiplier": 1.0, "key_multiplier": 1.0, "attention_in_multiplier": 1.0,
        "attention_out_multiplier": 1.0, "ssm_in_multiplier": 1.0, "ssm_out_multiplier": 1.0,
        "ssm_multipliers": [1.0, 1.0, 1.0, 1.0, 1.0], "mlp_multipliers": [1.0, 1.0],
    }));
    Ok(())
}
