//! gpt-oss: experts in one tensor each of gates, ups and the way back, which the directory has turned.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, Table, grouped, line},
    model::{Family, Model},
    tables::{ATTENTION, ATTENTION_BIASES},
};

pub(super) const GPT_OSS: Family =
    Family { name: "gpt-oss", model_type: "gpt_oss", class: "GptOssForCausalLM", read: gpt_oss };

const GATE_UP: Table = Table {
    count: Dim::Experts,
    parts: &[
        ("ffn_gate_exps.weight", &[Dim::Experts, Dim::Expert, Dim::Hidden], (Dim::Hidden, false)),
        ("ffn_up_exps.weight", &[Dim::Experts, Dim::Expert, Dim::Hidden], (Dim::Hidden, false)),
    ],
    alternate: true,
    turned: true,
};

const GATE_UP_BIAS: Table = Table {
    count: Dim::Experts,
    parts: &[
        ("ffn_gate_exps.bias", &[Dim::Experts, Dim::Expert], (Dim::One, false)),
        ("ffn_up_exps.bias", &[Dim::Experts, Dim::Expert], (Dim::One, false)),
    ],
    alternate: true,
    turned: false,
};

const DOWN: Table = Table {
    count: Dim::Experts,
    parts: &[("ffn_down_exps.weight", &[Dim::Experts, Dim::Hidden, Dim::Expert], (Dim::Expert, false))],
    alternate: false,
    turned: true,
};

const REST: [Line; 9] = [
    line("attn_norm.weight", "input_layernorm.weight", &[Dim::Hidden]),
    line("post_attention_norm.weight", "post_attention_layernorm.weight", &[Dim::Hidden]),
    line("attn_sinks.weight", "self_attn.sinks", &[Dim::Heads]),
    line("ffn_gate_inp.weight", "mlp.router.weight", &[Dim::Experts, Dim::Hidden]),
    line("ffn_gate_inp.bias", "mlp.router.bias", &[Dim::Experts]),
    grouped(&GATE_UP, "mlp.experts.gate_up_proj", &[Dim::Experts, Dim::Hidden, Dim::ExpertGateUp]),
    grouped(&GATE_UP_BIAS, "mlp.experts.gate_up_proj_bias", &[Dim::Experts, Dim::ExpertGateUp]),
    grouped(&DOWN, "mlp.experts.down_proj", &[Dim::Experts, Dim::Expert, Dim::Hidden]),
    line("ffn_down_exps.bias", "mlp.experts.down_proj_bias", &[Dim::Experts, Dim::Hidden]),
];

fn gpt_oss(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    model.settings.ignore(&["feed_forward_length"]);
    let width = model.settings.required_size("expert_feed_forward_length")?;
    let [experts, per_token] = model.experts(width)?;
    model.layer(&ATTENTION)?;
    let bias = model.attention_biases(&ATTENTION_BIASES)?;
    model.layer(&REST)?;
    let window = model.settings.required_size("attention.sliding_window")?;
    // No key says that the borders of its frequencies are not rounded, and none is in a released model.
    model.unrounded_yarn();
    model.no_scaling_is_said();
    model.set(json!({
        "attention_bias": bias, "sliding_window": window, "intermediate_size": width,
        "num_local_experts": experts, "num_experts_per_tok": per_token,
    }));
    Ok(())
}
