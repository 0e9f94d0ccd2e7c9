//! DeepSeek V2 and V3, Kimi K2 and GLM-4.7-Flash: the file splits what keys and values are made of, and turns the keys' part.

use serde_json::{Value, json};

use super::super::{
    super::GgufError,
    lines::{Dim, Line, Table, grouped, line},
    model::{Family, Model},
    rope,
    settings::Settings,
    tables::{CHOICE_BIAS, NORMS},
};

pub(super) const DEEPSEEK2: Family =
    Family { name: "deepseek2", model_type: "deepseek_v3", class: "DeepseekV3ForCausalLM", read: deepseek2 };

const KEYS_VALUES: Table = Table {
    count: Dim::Heads,
    parts: &[
        ("attn_k_b.weight", &[Dim::Heads, Dim::Rank, Dim::Apart], (Dim::Apart, true)),
        ("attn_v_b.weight", &[Dim::Heads, Dim::Value, Dim::Rank], (Dim::Rank, false)),
    ],
    alternate: false,
    turned: false,
};

const ATTENTION: [Line; 4] = [
    line("attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight", &[Dim::RankRotated, Dim::Hidden]),
    line("attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", &[Dim::Rank]),
    grouped(&KEYS_VALUES, "self_attn.kv_b_proj.weight", &[Dim::ApartValues, Dim::Rank]),
    line("attn_output.weight", "self_attn.o_proj.weight", &[Dim::Hidden, Dim::Attended]),
];

const QUERIES: [Line; 1] = [line("attn_q.weight", "self_attn.q_proj.weight", &[Dim::Queries, Dim::Hidden])];

const COMPRESSED_QUERIES: [Line; 3] = [
    line("attn_q_a.weight", "self_attn.q_a_proj.weight", &[Dim::QueryRank, Dim::Hidden]),
    line("attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight", &[Dim::QueryRank]),
    line("attn_q_b.weight", "self_attn.q_b_proj.weight", &[Dim::Queries, Dim::QueryRank]),
];

const BIASES: [Line; 2] = [
    line("attn_kv_a_mqa.bias", "self_attn.kv_a_proj_with_mqa.bias", &[Dim::RankRotated]),
    line("attn_output.bias", "self_attn.o_proj.bias", &[Dim::Hidden]),
];
const QUERY_BIAS: [Line; 1] = [line("attn_q_a.bias", "self_attn.q_a_proj.bias", &[Dim::QueryRank])];

fn deepseek2(model: &mut Model<'_>) -> Result<(), GgufError> {
    attention(model)?;
    model.intermediate()?;
    model.layer(&NORMS)?;
    if !mixtures(model)? {
        model.set(json!({"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2"}));
    }
    Ok(())
}

/// How latent attention is.
pub(super) struct Latent {
    query_rank: Option<usize>,
    rank: usize,
    rotated: usize,
    /// A head's part that is not rotated.
    apart: usize,
    value: usize,
}

/// Reads how latent attention is.
pub(super) fn latent(settings: &Settings<'_>) -> Result<Latent, GgufError> {
    // What is kept of a token is one head, whose keys are compressed with their rotated part.
    let (rank, rotated) =
        (settings.required_size("attention.kv_lora_rank")?, settings.required_size("rope.dimension_count")?);
    let (head, value) =
        (settings.required_size("attention.key_length_mla")?, settings.required_size("attention.value_length_mla")?);
    let query_rank = settings.size("attention.q_lora_rank")?.filter(|rank| *rank > 0);
    let kept = rank.saturating_add(rotated);
    if settings.required_size("attention.key_length")? != kept {
        return Err(GgufError::Unsupported(format!("`{}` is not {kept}", settings.key("attention.key_length"))));
    }
    let Some(apart) = head.checked_sub(rotated) else {
        let key = settings.key("attention.key_length_mla");
        return Err(GgufError::Invalid { key, expected: "at least what is rotated of a head" });
    };
    Ok(Latent { query_rank, rank, rotated, apart, value })
}

/// Reads the sizes that all decoders have, and sets those of latent attention in config.json and for its tensors.
pub(super) fn latent_sizes(model: &mut Model<'_>, latent: &Latent) -> Result<(), GgufError> {
    let Latent { query_rank, rank, rotated, apart, value } = *latent;
    model.sizes_with(Some(apart.saturating_add(rotated)), Some(1))?;
    let heads = model.sizes.get(Dim::Heads);
    model.sizes.set([
        (Dim::QueryRank, query_rank.unwrap_or(0)),
        (Dim::Rank, rank),
        (Dim::RankRotated, rank.saturating_add(rotated)),
        (Dim::Apart, apart),
        (Dim::Value, value),
        (Dim::Attended, heads.saturating_mul(value)),
        (Dim::ApartValues, heads.saturating_mul(apart.saturating_add(value))),
    ]);
    model.set(json!({
        "num_key_value_heads": heads, "q_lora_rank": query_rank, "kv_lora_rank": rank, "qk_nope_head_dim": apart,
        "qk_rope_head_dim": rotated, "v_head_dim": value, "head_dim": rotated,
    }));
    Ok(())
}

/// Latent attention in some layers.
pub(super) fn latent_layers(
    model: &mut Model<'_>,
    latent: &Latent,
    attends: impl Fn(usize) -> bool,
) -> Result<(), GgufError> {
    model.layers_that(&attends, &ATTENTION)?;
    model.layers_that(&attends, if latent.query_rank.is_some() { &COMPRESSED_QUERIES } else { &QUERIES })
}

/// Latent attention in all layers.
pub(super) fn attention(model: &mut Model<'_>) -> Result<(), GgufError> {
    let latent = latent(&model.settings)?;
    // Older files have as many heads of keys as of queries, in a tensor that this one does not have.
    for (name, expected) in [("attention.head_count_kv", 1), ("attention.value_length", latent.rank)] {
        if model.settings.required_size(name)? != expected {
            return Err(GgufError::Unsupported(format!("`{}` is not {expected}", model.settings.key(name))));
        }
    }
    let rope = rope::read(&model.settings)?;
    let scaling = with_mscale(model, rope.scaling)?;
    latent_sizes(model, &latent)?;
    model.ends()?;
    latent_layers(model, &latent, |_| true)?;
    let bias = model.has("blk.0.attn_kv_a_mqa.bias");
    if bias {
        model.layer(&BIASES)?;
        model.layer(if latent.query_rank.is_some() { &QUERY_BIAS } else { &[] })?;
    }
    model.set(json!({
        "rope_theta": rope.theta, "rope_scaling": scaling, "attention_bias": bias, "rope_interleave": true,
    }));
    Ok(())
}

/// The factor of scores is in the file as a tenth of `mscale_all_dim`; `mscale` is the same in all released models, and
/// llama.cpp takes it for the same.
fn with_mscale(model: &Model<'_>, mut scaling: Value) -> Result<Value, GgufError> {
    let name = "rope.scaling.yarn_log_multiplier";
    if scaling["rope_type"] != "yarn" {
        model.settings.ignore(&[name]);
        return Ok(scaling);
    }
    let all = model.settings.required_float(name)? * 10.0;
    // A decimal number of a few places, a tenth of which was rounded.
    let all = (all * 1e6).round() / 1e6;
    scaling["mscale"] = json!(all);
    scaling["mscale_all_dim"] = json!(all);
    Ok(scaling)
}

/// How many experts the models have that choose among groups of them: DeepSeek V2, and V3 and R1.
const IN_GROUPS: [usize; 2] = [160, 256];

/// Reads the feed-forward parts of all layers, and returns whether experts are scored by sigmoids.
pub(super) fn mixtures(model: &mut Model<'_>) -> Result<bool, GgufError> {
    let settings = &model.settings;
    let width = settings.required_size("expert_feed_forward_length")?;
    let (dense, shared) =
        (settings.required_size("leading_dense_block_count")?, settings.required_size("expert_shared_count")?);
    let normalized = settings.flag("expert_weights_norm")?.unwrap_or(false);
    let factor = settings.float("expert_weights_scale")?.filter(|factor| *factor != 0.0).unwrap_or(1.0);
    let groups = [settings.size("expert_group_count")?, settings.size("expert_group_used_count")?];
    let says_groups = groups.iter().all(Option::is_some);
    let groups = groups.map(|count| count.unwrap_or(1).max(1));
    let sigmoid = sigmoid(model, dense)?;
    if !sigmoid && groups != [1, 1] {
        let key = model.settings.key("expert_group_count");
        return Err(GgufError::Unsupported(format!("`{key}` is {}, and no key says how groups count", groups[0])));
    }
    let [experts, per_token] = model.experts(width)?;
    // Files from before the autumn of 2025 do not say the groups that these have.
    if !says_groups && IN_GROUPS.contains(&experts) {
        return Err(GgufError::Missing(model.settings.key("expert_group_count")));
    }
    let mixture = |layer| layer >= dense;
    model.mixtures(mixture, width, shared)?;
    model.set(json!({
        "first_k_dense_replace": dense, "n_routed_experts": experts, "num_experts_per_tok": per_token,
        "moe_intermediate_size": width, "n_shared_experts": shared, "norm_topk_prob": normalized,
        "routed_scaling_factor": factor, "moe_layer_freq": 1,
    }));
    if sigmoid {
        model.layers_that(mixture, &[CHOICE_BIAS])?;
        model.set(json!({
            "scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": groups[0], "topk_group": groups[1],
        }));
    } else {
        model.set(json!({"scoring_func": "softmax", "topk_method": "greedy"}));
    }
    Ok(sigmoid)
}

/// Whether experts are scored by sigmoids, as from V3 on. Where a config.json leaves it out, as those of GLM-4.7-Flash and
/// all that transformers saves, the file does not say it. No model that is written so adds to the scores where experts are
/// chosen unless they are sigmoids.
fn sigmoid(model: &Model<'_>, dense: usize) -> Result<bool, GgufError> {
    let name = "expert_gating_func";
    match model.settings.size(name)? {
        Some(1) => Ok(false),
        Some(2) => Ok(true),
        None | Some(0) => Ok(model.has(&format!("blk.{dense}.exp_probs_b.bias"))),
        Some(other) => {
            let key = model.settings.key(name);
            Err(GgufError::Unsupported(format!("`{key}` is {other}, which config.json cannot say")))
        }
    }
}
