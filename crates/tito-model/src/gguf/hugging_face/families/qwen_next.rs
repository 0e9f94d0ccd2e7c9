//! Qwen3-Next and Qwen 3.5: gated delta rules beside gated attention, with mixtures or without.

use serde_json::json;

use super::{
    super::{
        super::GgufError,
        lines::{Dim, Line, line},
        model::{Family, Model},
        tables::{ATTENTION, ATTENTION_BIASES, HEAD_NORMS, MLP, less_one},
        tensors::{Groups, Layout, NamedTensor, Source, TablePart},
    },
    hybrid::{Recurrence, first_has, recurrence, recurring},
    qwen::{mixtures, shared},
};

pub(super) const QWEN3_NEXT: Family =
    Family { name: "qwen3next", model_type: "qwen3_next", class: "Qwen3NextForCausalLM", read: qwen3_next };

pub(super) const QWEN3_5: Family =
    Family { name: "qwen35", model_type: "qwen3_5_text", class: "Qwen3_5ForCausalLM", read: qwen3_5 };

pub(super) const QWEN3_5_MOE: Family =
    Family { name: "qwen35moe", model_type: "qwen3_5_moe_text", class: "Qwen3_5MoeForCausalLM", read: qwen3_5_moe };

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

/// The same of Qwen 3.5, in whose files heads of values are not put together by the heads of keys that they share.
const RECURRENT_BY_KEY_HEAD: [Line; 9] = [
    line("attn_qkv.weight", "linear_attn.in_proj_qkv.weight", &[Dim::Channels, Dim::Hidden])
        .rows_by_key_head(Some(Dim::QueriesKeys), Dim::RecurrentValue),
    line("attn_gate.weight", "linear_attn.in_proj_z.weight", &[Dim::Inner, Dim::Hidden])
        .rows_by_key_head(None, Dim::RecurrentValue),
    line("ssm_beta.weight", "linear_attn.in_proj_b.weight", &[Dim::RecurrentHeads, Dim::Hidden])
        .rows_by_key_head(None, Dim::One),
    line("ssm_alpha.weight", "linear_attn.in_proj_a.weight", &[Dim::RecurrentHeads, Dim::Hidden])
        .rows_by_key_head(None, Dim::One),
    line("ssm_conv1d.weight", "linear_attn.conv1d.weight", &[Dim::Channels, Dim::One, Dim::Taps])
        .reshaped(&[Dim::Channels, Dim::Taps])
        .rows_by_key_head(Some(Dim::QueriesKeys), Dim::RecurrentValue),
    line("ssm_dt.bias", "linear_attn.dt_bias", &[Dim::RecurrentHeads]).rows_by_key_head(None, Dim::One),
    line("ssm_a", "linear_attn.A_log", &[Dim::RecurrentHeads]).logarithm().rows_by_key_head(None, Dim::One),
    line("ssm_norm.weight", "linear_attn.norm.weight", &[Dim::RecurrentValue]),
    line("ssm_out.weight", "linear_attn.out_proj.weight", &[Dim::Hidden, Dim::Inner])
        .columns_by_key_head(Dim::RecurrentValue),
];

/// Qwen3-Next.
fn qwen3_next(model: &mut Model<'_>) -> Result<(), GgufError> {
    let recurs = hybrid(model)?;
    model.intermediate()?;
    let parts = recurrent(model, &recurs, &RECURRENT)?;
    for layer in (0..recurs.len()).filter(|layer| recurs[*layer]) {
        let inputs = inputs(model, layer, &parts);
        model.tensor(inputs);
    }
    let sparse = mixtures(model, true)?;
    shared(model, &sparse)
}

/// The text of Qwen 3.5.
fn qwen3_5(model: &mut Model<'_>) -> Result<(), GgufError> {
    text(model)?;
    model.intermediate()?;
    model.layer(&MLP)
}

/// The text of the mixtures of Qwen 3.5.
fn qwen3_5_moe(model: &mut Model<'_>) -> Result<(), GgufError> {
    text(model)?;
    // No layer is dense.
    model.settings.ignore(&["feed_forward_length"]);
    let sparse = mixtures(model, true)?;
    shared(model, &sparse)
}

fn text(model: &mut Model<'_>) -> Result<(), GgufError> {
    // Which axes of a picture are rotated by which frequencies; texts have one.
    model.settings.ignore(&["rope.dimension_sections"]);
    let recurs = hybrid(model)?;
    recurrent(model, &recurs, &RECURRENT_BY_KEY_HEAD).map(drop)
}

/// What all of them have: attention in some layers. Whether each of the others has a recurrent state is returned.
fn hybrid(model: &mut Model<'_>) -> Result<Vec<bool>, GgufError> {
    model.partial_decoder()?;
    model.norm_less_one();
    let share = model.rotated_share()?;
    model.set(json!({"partial_rotary_factor": share}));
    model.sizes.set([(Dim::QueriesGates, model.sizes.get(Dim::Queries).saturating_mul(2))]);
    // Which layers attend, their tensors say.
    model.settings.ignore(&["full_attention_interval"]);
    let recurs = recurring(model);
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
    let kinds: Vec<&str> =
        recurs.iter().map(|recurs| if *recurs { "linear_attention" } else { "full_attention" }).collect();
    model.set(json!({"attention_bias": bias, "layer_types": kinds}));
    Ok(recurs)
}

fn recurrent(model: &mut Model<'_>, recurs: &[bool], lines: &[Line]) -> Result<Recurrence, GgufError> {
    let parts = recurrence(model)?;
    model.layers_that(|layer| recurs[layer], lines)?;
    let Recurrence { heads, value, key, groups, taps, .. } = parts;
    model.set(json!({
        "linear_num_key_heads": groups, "linear_num_value_heads": heads, "linear_key_head_dim": key,
        "linear_value_head_dim": value, "linear_conv_kernel_dim": taps,
    }));
    Ok(parts)
}

/// Queries, keys, values and gates: the file has all of each, and the directory all of them for each head of keys.
fn inputs(model: &Model<'_>, layer: usize, &Recurrence { groups, inner, keys, .. }: &Recurrence) -> NamedTensor {
    let (hidden, channels) = (model.sizes.get(Dim::Hidden), model.sizes.get(Dim::Channels));
    let mixed = |rows| Source { name: format!("blk.{layer}.attn_qkv.weight"), shape: vec![channels, hidden], rows };
    let gates = Source::whole(format!("blk.{layer}.attn_gate.weight"), vec![inner, hidden]);
    let [queries, all_keys, values] = [0..keys, keys..2 * keys, 2 * keys..channels].map(Some).map(mixed);
    let part = TablePart { columns: hidden, turned: false };
    NamedTensor {
        name: format!("model.layers.{layer}.linear_attn.in_proj_qkvz.weight"),
        shape: vec![channels.saturating_add(inner), hidden],
        sources: vec![queries, all_keys, values, gates],
        layout: Layout::Groups(Groups { count: groups, parts: vec![part; 4], alternate: false, turned: false }),
        change: None,
    }
}
