//! Llama 4, the text of it.

use serde_json::json;

use super::super::{
    super::GgufError,
    lines::{Dim, Line, Table, grouped, line},
    model::{Family, Model},
    rope::{self, ROPE_FACTORS},
    tables::{ATTENTION, ATTENTION_BIASES, FEED_FORWARD, NORMS},
};

pub(super) const LLAMA4: Family =
    Family { name: "llama4", model_type: "llama4_text", class: "Llama4ForCausalLM", read: llama4 };

/// Tokens of a chunk, after how many of them queries grow, and by how much: wherever such a file is computed, since no key
/// says it.
const CHUNK: usize = 8192;
const GROWTH: f64 = 0.1;
/// Which layers have no positions.
const INTERVAL: usize = 4;
/// How many experts the model has whose queries and keys are not normalised.
const EXPERTS_WITHOUT_NORMS: usize = 128;

const GATE_UP: Table = Table {
    count: Dim::Experts,
    parts: &[
        ("ffn_gate_exps.weight", &[Dim::Experts, Dim::Expert, Dim::Hidden], (Dim::Hidden, false)),
        ("ffn_up_exps.weight", &[Dim::Experts, Dim::Expert, Dim::Hidden], (Dim::Hidden, false)),
    ],
    alternate: false,
    turned: true,
};

const DOWN: Table = Table {
    count: Dim::Experts,
    parts: &[("ffn_down_exps.weight", &[Dim::Experts, Dim::Hidden, Dim::Expert], (Dim::Expert, false))],
    alternate: false,
    turned: true,
};

const EXPERTS: [Line; 6] = [
    line("ffn_gate_inp.weight", "feed_forward.router.weight", &[Dim::Experts, Dim::Hidden]),
    grouped(&GATE_UP, "feed_forward.experts.gate_up_proj", &[Dim::Experts, Dim::Hidden, Dim::ExpertGateUp]),
    grouped(&DOWN, "feed_forward.experts.down_proj", &[Dim::Experts, Dim::Expert, Dim::Hidden]),
    line("ffn_gate_shexp.weight", "feed_forward.shared_expert.gate_proj.weight", &[Dim::Expert, Dim::Hidden]),
    line("ffn_up_shexp.weight", "feed_forward.shared_expert.up_proj.weight", &[Dim::Expert, Dim::Hidden]),
    line("ffn_down_shexp.weight", "feed_forward.shared_expert.down_proj.weight", &[Dim::Hidden, Dim::Expert]),
];

fn llama4(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.decoder()?;
    let pairs = model.sizes.get(Dim::Head) / 2;
    if let Some(scaling) = rope::with_factors(model.file, &model.settings, pairs)? {
        model.unused(ROPE_FACTORS);
        model.set(json!({"rope_scaling": scaling}));
    }
    model.layer(&NORMS)?;
    model.layer(&ATTENTION)?;
    let bias = model.attention_biases(&ATTENTION_BIASES)?;
    let dense = model.intermediate()?;
    let width = model.settings.required_size("expert_feed_forward_length")?;
    let interval = model.settings.required_size("interleave_moe_layer_step")?;
    if interval == 0 {
        let key = model.settings.key("interleave_moe_layer_step");
        return Err(GgufError::Invalid { key, expected: "over 0" });
    }
    let [experts, per_token] = model.experts(width)?;
    let mixture = |layer: usize| (layer + 1).is_multiple_of(interval);
    model.layers_that(|layer| !mixture(layer), &FEED_FORWARD)?;
    model.layers_that(mixture, &EXPERTS)?;
    let rotated: Vec<u8> = (1..=model.layers()).map(|layer| u8::from(!layer.is_multiple_of(INTERVAL))).collect();
    let kinds: Vec<&str> =
        rotated.iter().map(|rotated| if *rotated == 1 { "chunked_attention" } else { "full_attention" }).collect();
    model.set(json!({
        "attention_bias": bias, "intermediate_size_mlp": dense, "intermediate_size": width,
        "interleave_moe_layer_step": interval, "num_local_experts": experts, "num_experts_per_tok": per_token,
        "attention_chunk_size": CHUNK, "no_rope_layers": rotated, "layer_types": kinds,
        "attn_temperature_tuning": true, "floor_scale": CHUNK, "attn_scale": GROWTH,
        "use_qk_norm": experts != EXPERTS_WITHOUT_NORMS,
    }));
    Ok(())
}
