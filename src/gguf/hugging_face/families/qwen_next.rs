//! Qwen3-Next: gated delta rules beside gated attention, and mixtures.

use serde_json::json;

use super::{
    super::{
        super::GgufError,
        lines::{Dim, Line, line},
        model::{ATTENTION, ATTENTION_BIASES, Family, HEAD_NORMS, Model, less_one},
        tensors::{Groups, Layout, NamedTensor, Part, Source},
    },
    hybrid::{Recurrence, first_has, recurrence},
    qwen::{mixtures, shared},
};

pub(super) const QWEN3_NEXT: Family =
    Family { name: "qwen3next", model_type: "qwen3_next", class: "Qwen3NextForCausalLM", read };

const NORMS: [Line; 2] = [
    line("attn_norm.weight", "input_layernorm.weight", &[Dim::Hidden]),
    line("post_attention_norm.weight", "post_attention_layernorm.weight", &[Dim::Hidden]),
];

/// Queries with as many gates.
const QUERIES: Line = line("attn_q.weight", "self_attn.q_proj.weight", &[Dim::QueriesGates, Dim::Hidden]);
const QUERY_BIAS: Line = line("attn_q.bias", "self_attn.q_proj.bias", &[Dim::QueriesGates]);

const RECURRENT: [Line; 6] = [
    line("ssm_ba.weight", "linear_attn.in_proj_ba.weight", &[Dim::StepsStrengths, Dim::Hidden]),
    line("ssm_conv1d.weight", "linear_attn.conv1d.weight", &[Dim::Channels, Dim::One, Dim::Taps])
        .reshaped(&[Dim::Channels, Dim::Taps]),
    line("ssm_dt.bias", "linear_attn.dt_bias", &[Dim::RecurrentHeads]),
    line("ssm_a", "linear_attn.A_log", &[Dim::RecurrentHeads]).logarithm(),
    line("ssm_norm.weight", "linear_attn.norm.weight", &[Dim::RecurrentValue]),
    line("ssm_out.weight", "linear_attn.out_proj.weight", &[Dim::Hidden, Dim::Inner]),
];

fn read(model: &mut Model<'_>) -> Result<(), GgufError> {
    model.partial_decoder()?;
    model.norm_less_one();
    model.intermediate()?;
    let share = model.rotated_share()?;
    model.set(json!({"partial_rotary_factor": share}));
    model.sizes.set([(Dim::QueriesGates, model.sizes.get(Dim::Queries).saturating_mul(2))]);
    // Which layers attend, their tensors say.
    model.settings.ignore(&["full_attention_interval"]);
    let recurs: Vec<bool> = (0..model.layers()).map(|layer| model.has(&format!("blk.{layer}.ssm_a"))).collect();
    let attends = |layer: usize| !recurs[layer];
    model.layer(&less_one(NORMS))?;
    let [_, keys, values, output] = ATTENTION;
    model.layers_that(attends, &[QUERIES, keys, values, output])?;
    model.layers_that(attends, &less_one(HEAD_NORMS))?;
    let bias = first_has(model, (0..model.layers()).filter(|layer| attends(*layer)), "attn_q.bias");
    if bias {
        let [_, keys, values, output] = ATTENTION_BIASES;
        model.layers_that(attends, &[QUERY_BIAS, keys, values, output])?;
    }
    recurrent(model, &recurs)?;
    let kinds: Vec<&str> =
        recurs.iter().map(|recurs| if *recurs { "linear_attention" } else { "full_attention" }).collect();
    model.set(json!({"attention_bias": bias, "layer_types": kinds}));
    let sparse = mixtures(model, true)?;
    shared(model, &sparse)
}

fn recurrent(model: &mut Model<'_>, recurs: &[bool]) -> Result<(), GgufError> {
    let parts = recurrence(model)?;
    model.layers_that(|layer| recurs[layer], &RECURRENT)?;
    for layer in (0..recurs.len()).filter(|layer| recurs[*layer]) {
        let inputs = inputs(model, layer, &parts);
        model.tensor(inputs);
    }
    let Recurrence { heads, value, key, groups, taps, .. } = parts;
    model.set(json!({
        "linear_num_key_heads": groups, "linear_num_value_heads": heads, "linear_key_head_dim": key,
        "linear_value_head_dim": value, "linear_conv_kernel_dim": taps,
    }));
    Ok(())
}

/// Queries, keys, values and gates: the file has all of each, and the directory all of them for each head of keys.
fn inputs(model: &Model<'_>, layer: usize, &Recurrence { groups, inner, keys, .. }: &Recurrence) -> NamedTensor {
    let (hidden, channels) = (model.sizes.get(Dim::Hidden), model.sizes.get(Dim::Channels));
    let mixed = |rows| Source { name: format!("blk.{layer}.attn_qkv.weight"), shape: vec![channels, hidden], rows };
    let gates = Source::whole(format!("blk.{layer}.attn_gate.weight"), vec![inner, hidden]);
    let [queries, all_keys, values] = [0..keys, keys..2 * keys, 2 * keys..channels].map(Some).map(mixed);
    let part = Part { columns: hidden, turned: false };
    NamedTensor {
        name: format!("model.layers.{layer}.linear_attn.in_proj_qkvz.weight"),
        shape: vec![channels.saturating_add(inner), hidden],
        sources: vec![queries, all_keys, values, gates],
        layout: Layout::Groups(Groups { count: groups, parts: vec![part; 4], alternate: false, turned: false }),
        change: None,
    }
}
