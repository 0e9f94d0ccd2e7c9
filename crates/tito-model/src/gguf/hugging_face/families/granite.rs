//! Granite 3 and its mixtures.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, Table, grouped, line},
    model::{Family, Model},
    tables::{ATTENTION, ATTENTION_BIASES, GATE_AND_UP, MLP, NORMS, rotary},
};

pub(super) const GRANITE: Family =
    Family { name: "granite", model_type: "granite", class: "GraniteForCausalLM", read: granite };

pub(super) const GRANITE_MOE: Family =
    Family { name: "granitemoe", model_type: "granitemoeshared", class: "GraniteMoeSharedForCausalLM", read: mixture };

const SHARED_GATE_UP: Table = Table {
    count: Dim::One,
    parts: &[
        ("ffn_gate_shexp.weight", &[Dim::Shared, Dim::Hidden], (Dim::Hidden, false)),
        ("ffn_up_shexp.weight", &[Dim::Shared, Dim::Hidden], (Dim::Hidden, false)),
    ],
    alternate: false,
    turned: false,
};

const EXPERTS: [Line; 3] = [
    line("ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight", &[Dim::Experts, Dim::Hidden]),
    grouped(&GATE_AND_UP, "block_sparse_moe.input_linear.weight", &[Dim::Experts, Dim::ExpertGateUp, Dim::Hidden]),
    line("ffn_down_exps.weight", "block_sparse_moe.output_linear.weight", &[Dim::Experts, Dim::Hidden, Dim::Expert]),
];

const SHARED: [Line; 2] = [
    grouped(&SHARED_GATE_UP, "shared_mlp.input_linear.weight", &[Dim::SharedGateUp, Dim::Hidden]),
    line("ffn_down_shexp.weight", "shared_mlp.output_linear.weight", &[Dim::Hidden, Dim::Shared]),
];

fn scaled(model: &mut Model<'_>) -> Result<(), GgufError> {
    // In llama.cpp, a file of Granite says by this whether anything is rotated.
    model.settings.only("rope.scaling.finetuned", &[1.0])?;
    model.decoder()?;
    model.intermediate()?;
    factors(model)?;
    model.layer(&NORMS)?;
    model.layer(&rotary(ATTENTION))?;
    let bias = model.attention_biases(&rotary(ATTENTION_BIASES))?;
    model.set(json!({"attention_bias": bias}));
    Ok(())
}

/// Reads a factor for everything.
pub(super) fn factors(model: &mut Model<'_>) -> Result<(), GgufError> {
    let factor = |name: &str| model.settings.required_factor(name);
    let factors = json!({
        "attention_multiplier": factor("attention.scale")?, "embedding_multiplier": factor("embedding_scale")?,
        "residual_multiplier": factor("residual_scale")?, "logits_scaling": factor("logit_scale")?,
    });
    model.set(factors);
    Ok(())
}

fn granite(model: &mut Model<'_>) -> Result<(), GgufError> {
    scaled(model)?;
    model.layer(&MLP)?;
    let bias = model.mlp_biases()?;
    model.set(json!({"mlp_bias": bias}));
    Ok(())
}

fn mixture(model: &mut Model<'_>) -> Result<(), GgufError> {
    scaled(model)?;
    experts(model)
}

/// Experts in all layers, and what all tokens go through besides if there is such a part.
pub(super) fn experts(model: &mut Model<'_>) -> Result<(), GgufError> {
    let width = model.sizes.get(Dim::Intermediate);
    let [experts, per_token] = model.experts(width)?;
    model.layer(&EXPERTS)?;
    let shared = model.settings.size("expert_shared_feed_forward_length")?.unwrap_or(0);
    if shared > 0 {
        model.sizes.set([(Dim::Shared, shared), (Dim::SharedGateUp, shared.saturating_mul(2))]);
        model.layer(&SHARED)?;
    }
    model.set(json!({
        "num_local_experts": experts, "num_experts_per_tok": per_token, "shared_intermediate_size": shared,
    }));
    Ok(())
}
