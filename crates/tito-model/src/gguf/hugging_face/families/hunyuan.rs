//! Hunyuan and its mixtures.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, each, line},
    model::{Family, Model},
    tables::{ATTENTION, ATTENTION_BIASES, MLP, NORMS},
};

pub(super) const DENSE: Family =
    Family { name: "hunyuan-dense", model_type: "hunyuan_v1_dense", class: "HunYuanDenseV1ForCausalLM", read: dense };

pub(super) const MIXTURE: Family =
    Family { name: "hunyuan-moe", model_type: "hunyuan_v1_moe", class: "HunYuanMoEV1ForCausalLM", read: mixture };

const HEAD_NORMS: [Line; 2] = [
    line("attn_q_norm.weight", "self_attn.query_layernorm.weight", &[Dim::Head]),
    line("attn_k_norm.weight", "self_attn.key_layernorm.weight", &[Dim::Head]),
];

const EXPERTS: [Line; 7] = [
    line("ffn_gate_inp.weight", "mlp.gate.wg.weight", &[Dim::Experts, Dim::Hidden]),
    each("ffn_gate_exps.weight", Dim::Experts, "mlp.experts.{}.gate_proj.weight", &[Dim::Expert, Dim::Hidden]),
    each("ffn_up_exps.weight", Dim::Experts, "mlp.experts.{}.up_proj.weight", &[Dim::Expert, Dim::Hidden]),
    each("ffn_down_exps.weight", Dim::Experts, "mlp.experts.{}.down_proj.weight", &[Dim::Hidden, Dim::Expert]),
    line("ffn_gate_shexp.weight", "mlp.shared_mlp.gate_proj.weight", &[Dim::Expert, Dim::Hidden]),
    line("ffn_up_shexp.weight", "mlp.shared_mlp.up_proj.weight", &[Dim::Expert, Dim::Hidden]),
    line("ffn_down_shexp.weight", "mlp.shared_mlp.down_proj.weight", &[Dim::Hidden, Dim::Expert]),
];

fn attention(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    model.intermediate()?;
    for lines in [&NORMS[..], &ATTENTION, &HEAD_NORMS] {
        model.layer(lines)?;
    }
    let bias = model.attention_biases(&ATTENTION_BIASES)?;
    model.set(json!({"attention_bias": bias, "use_qk_norm": true}));
    Ok(())
}

fn dense(model: &mut Model<'_>) -> Result<(), GgufError> {
    attention(model)?;
    model.layer(&MLP)
}

fn mixture(model: &mut Model<'_>) -> Result<(), GgufError> {
    attention(model)?;
    let width = model.sizes.get(Dim::Intermediate);
    for name in ["expert_feed_forward_length", "expert_shared_feed_forward_length"] {
        if model.settings.required_size(name)? != width {
            let key = model.settings.key(name);
            return Err(GgufError::Unsupported(format!("`{key}` is not {width}, which config.json cannot say")));
        }
    }
    model.settings.only("expert_shared_count", &[1.0])?;
    let [experts, per_token] = model.experts(width)?;
    model.layer(&EXPERTS)?;
    model.set(json!({"num_experts": experts, "moe_topk": per_token}));
    Ok(())
}
