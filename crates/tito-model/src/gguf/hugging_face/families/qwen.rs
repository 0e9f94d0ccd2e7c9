//! Qwen 2 and 3.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, line},
    model::{Family, Model},
    tables::{ATTENTION, ATTENTION_BIASES, EXPERTS, HEAD_NORMS, MLP, NORMS},
};

pub(super) const QWEN2: Family = Family { name: "qwen2", model_type: "qwen2", class: "Qwen2ForCausalLM", read: qwen2 };

pub(super) const QWEN3: Family = Family { name: "qwen3", model_type: "qwen3", class: "Qwen3ForCausalLM", read: qwen3 };

pub(super) const QWEN2_MOE: Family =
    Family { name: "qwen2moe", model_type: "qwen2_moe", class: "Qwen2MoeForCausalLM", read: qwen2_moe };

pub(super) const QWEN3_MOE: Family =
    Family { name: "qwen3moe", model_type: "qwen3_moe", class: "Qwen3MoeForCausalLM", read: qwen3_moe };

/// What every token goes through besides, and what gates it.
const SHARED: [Line; 4] = [
    line("ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight", &[Dim::Shared, Dim::Hidden]),
    line("ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight", &[Dim::Shared, Dim::Hidden]),
    line("ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight", &[Dim::Hidden, Dim::Shared]),
    line("ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", &[Dim::One, Dim::Hidden]),
];

fn common(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    model.intermediate()?;
    model.layer(&NORMS)?;
    model.layer(&ATTENTION)?;
    match model.window()? {
        Some(window) => {
            model.set(json!({"sliding_window": window, "use_sliding_window": true, "max_window_layers": 0}));
        }
        None => model.set(json!({"sliding_window": null})),
    }
    Ok(())
}

fn qwen2(model: &mut Model<'_>) -> Result<(), GgufError> {
    common(model)?;
    let [queries, keys, values, _] = ATTENTION_BIASES;
    model.layer(&[queries, keys, values])?;
    model.layer(&MLP)
}

fn qwen3(model: &mut Model<'_>) -> Result<(), GgufError> {
    common(model)?;
    model.layer(&HEAD_NORMS)?;
    let bias = model.attention_biases(&ATTENTION_BIASES)?;
    model.set(json!({"attention_bias": bias}));
    model.layer(&MLP)
}

/// Experts in the layers that have them, a dense part in the others.
pub(super) fn mixtures(model: &mut Model<'_>, normalized: bool) -> Result<Vec<bool>, GgufError> {
    // Which layers are dense, their tensors say.
    model.settings.ignore(&["leading_dense_block_count"]);
    let width = model.settings.required_size("expert_feed_forward_length")?;
    let [experts, per_token] = model.experts(width)?;
    // Converters leave the key out, and llama.cpp has a value of its own for each family: that of all released models.
    let normalized = model.settings.flag("expert_weights_norm")?.unwrap_or(normalized);
    let sparse: Vec<bool> =
        (0..model.layers()).map(|layer| model.has(&format!("blk.{layer}.ffn_gate_inp.weight"))).collect();
    let dense: Vec<usize> = (0..model.layers()).filter(|layer| !sparse[*layer]).collect();
    model.layers_that(|layer| sparse[layer], &EXPERTS)?;
    model.layers_that(|layer| !sparse[layer], &MLP)?;
    model.set(json!({
        "num_experts": experts, "num_experts_per_tok": per_token, "moe_intermediate_size": width,
        "norm_topk_prob": normalized, "decoder_sparse_step": 1, "mlp_only_layers": dense,
    }));
    Ok(sparse)
}

fn qwen2_moe(model: &mut Model<'_>) -> Result<(), GgufError> {
    common(model)?;
    let [queries, keys, values, _] = ATTENTION_BIASES;
    let bias = model.has("blk.0.attn_q.bias");
    if bias {
        model.layer(&[queries, keys, values])?;
    }
    model.set(json!({"qkv_bias": bias}));
    let sparse = mixtures(model, false)?;
    shared(model, &sparse)
}

/// What every token goes through in the layers that have experts.
pub(super) fn shared(model: &mut Model<'_>, sparse: &[bool]) -> Result<(), GgufError> {
    let width = model.settings.required_size("expert_shared_feed_forward_length")?;
    model.sizes.set([(Dim::Shared, width)]);
    model.set(json!({"shared_expert_intermediate_size": width}));
    model.layers_that(|layer| sparse[layer], &SHARED)
}

fn qwen3_moe(model: &mut Model<'_>) -> Result<(), GgufError> {
    common(model)?;
    model.layer(&HEAD_NORMS)?;
    let bias = model.attention_biases(&ATTENTION_BIASES)?;
    model.set(json!({"attention_bias": bias}));
    mixtures(model, true).map(drop)
}
