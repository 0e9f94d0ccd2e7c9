//! Kimi Linear: delta rules with a decay for every number of a key, beside compressed attention without positions.

use serde_json::{Map, Value, json};

use super::{
    super::{
        names::{ChoiceBias, DenseNames, ExpertNames, GateUpNames, InputNames, Names, RecurrentNames},
        settings::{ConfigError, Settings},
        shape::{Mixing, ModelShape, RecurrentLayer},
    },
    decoder::{MOST, MOST_HEADS, activation, only},
    deepseek::{Variant, compressed},
    mamba::{MOST_TAPS, listed, only_silu, recurrent_where},
    mixtures::{MixtureKeys, SOFTMAX, counted, routed, shared_experts, sigmoid_router, sparse_from},
};
use crate::engine::native::recurrence::{ConvolutionShape, GatedNormShape, RecurrenceShape, Rule};

const MIXTURE: MixtureKeys = MixtureKeys {
    experts: "num_experts",
    experts_too: None,
    per_token: "num_experts_per_token",
    intermediate: "moe_intermediate_size",
};

/// Kimi Linear.
pub(super) fn kimi_linear(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    only(settings, "rope_scaling", &Value::Null)?;
    only(settings, "mla_use_nope", &json!(true))?;
    only(settings, "moe_router_activation_func", &json!("sigmoid"))?;
    let variant = Variant { epsilon: 1e-5, query_rank: None, halves_too: false };
    let mut attending = settings.0.clone();
    attending.remove("layer_types");
    let mut shape = compressed(&Settings(&attending), variant)?;
    for attention in shape.attentions() {
        attention.rotation = None;
    }
    recurrent_where(kinds(settings)?, &delta(settings, shape.norm.epsilon)?, &mut shape);
    mixtures(settings, &mut shape)?;
    shape.names = Names { further_layers: shape.names.further_layers, ..names() };
    counted("num_experts", shape)
}

fn names() -> Names {
    let names = Names::default();
    let expert =
        DenseNames { prefix: "block_sparse_moe.experts", gate_up: GateUpNames::Apart(["w1", "w3"]), down: "w2" };
    Names {
        recurrent: RecurrentNames {
            prefix: "self_attn",
            inputs: InputNames::Each(&["q_proj", "k_proj", "v_proj", "b_proj"]),
            convolution: &["q_conv1d", "k_conv1d", "v_conv1d"],
            joined_convolution: Some(&["conv1d"]),
            norm: "o_norm",
            output: "o_proj",
            decay_is_deep: true,
        },
        router: "block_sparse_moe.gate",
        choice_bias: ChoiceBias { name: "block_sparse_moe.gate.e_score_correction_bias", is_table: false },
        experts: ExpertNames::Each(expert),
        shared: names.shared.under("block_sparse_moe.shared_experts"),
        // Up to 5.19, transformers saves layers without experts under the name of those that have some.
        aliases_within: &[(".forget_gate.", "."), (".mlp.", ".block_sparse_moe."), (".block_sparse_moe.", ".mlp.")],
        ..names
    }
}

/// Gives layers their mixtures, whose keys are others than those of the models that they were taken from.
fn mixtures(settings: &Settings<'_>, shape: &mut ModelShape) -> Result<(), ConfigError> {
    settings.on_by_default("moe_renormalize")?;
    let mut config = settings.0.clone();
    for (own, other) in [("num_expert_group", "n_group"), ("moe_renormalize", "norm_topk_prob")] {
        if let Some(value) = config.remove(own) {
            config.insert(other.to_owned(), value);
        }
    }
    let renamed = Settings(&config);
    let mut sparse = routed(&renamed, MIXTURE, SOFTMAX, activation(settings, "hidden_act")?)?;
    sparse.router = sigmoid_router(&renamed, &sparse, (1, 1), 2.446)?;
    sparse.shared = shared_experts(settings, "num_shared_experts", 1, sparse.expert)?;
    only(settings, "moe_layer_freq", &json!(1))?;
    let dense: usize = settings.get("first_k_dense_replace")?.unwrap_or(1);
    sparse_from(dense, &sparse, shape);
    let listed: Option<Vec<String>> = settings.get("mlp_layer_types")?;
    let said = |(layer, kind): (usize, &String)| kind == if layer < dense { "dense" } else { "sparse" };
    match listed {
        Some(kinds) if kinds.len() != shape.layers.len() || !kinds.iter().enumerate().all(said) => {
            Err(ConfigError::setting("mlp_layer_types", "names other layers than `first_k_dense_replace`"))
        }
        _ => Ok(()),
    }
}

/// What is said of the layers with recurrent states, in one of both spellings.
fn of_states(settings: &Settings<'_>) -> Result<Map<String, Value>, ConfigError> {
    Ok(settings.get("linear_attn_config")?.unwrap_or_default())
}

/// For each layer whether it has a recurrent state.
fn kinds(settings: &Settings<'_>) -> Result<Vec<bool>, ConfigError> {
    let count: usize = settings.require("num_hidden_layers")?;
    let named = listed(settings, count, &["linear_attention"], &["full_attention"])?;
    // These are counted from 1.
    let said: Option<Vec<usize>> = Settings(&of_states(settings)?).get("full_attn_layers")?;
    let said = said.map(|full| (1..=count).map(|layer| !full.contains(&layer)).collect::<Vec<bool>>());
    match (named, said) {
        (Some(named), Some(said)) if named != said => {
            Err(ConfigError::setting("layer_types", "names other layers than `linear_attn_config`"))
        }
        (Some(kinds), _) | (None, Some(kinds)) => Ok(kinds),
        (None, None) => Ok((0..count).map(|layer| layer == 0 || !layer.is_multiple_of(4)).collect()),
    }
}

/// The rule of all layers that have one.
fn delta(settings: &Settings<'_>, epsilon: f32) -> Result<RecurrentLayer, ConfigError> {
    let nested = of_states(settings)?;
    let size = |inner: &str, outer: &str, default: usize, most: usize| {
        let said = Settings(&nested).get(inner)?.or(settings.get(outer)?).unwrap_or(default);
        if said == 0 || said > most { Err(ConfigError::too_large(outer, said)) } else { Ok(said) }
    };
    let heads = size("num_heads", "linear_num_heads", 32, MOST_HEADS)?;
    let width = size("head_dim", "linear_head_dim", 128, MOST_HEADS)?;
    let taps = size("short_conv_kernel_size", "linear_conv_kernel_dim", 4, MOST_TAPS)?;
    only_silu(settings, "hidden_act")?;
    let all = heads.saturating_mul(width);
    if all > MOST {
        return Err(ConfigError::too_large("linear_num_heads", heads));
    }
    let steps = 3 * all + heads;
    let recurrence = RecurrenceShape {
        rule: Rule::Delta { by_key: true },
        heads,
        groups: heads,
        key: width,
        value: width,
        queries: 0,
        keys: all,
        values: 2 * all,
        strengths: 3 * all,
        steps,
    };
    let norm = GatedNormShape { group: width, epsilon, gate_first: false, silu: false, gates: steps + all };
    Ok(RecurrentLayer {
        inputs: vec![all, all, all, heads],
        input_bias: false,
        rank: Some(width),
        convolution: ConvolutionShape { first: 0, channels: 3 * all, taps, activated: true },
        convolution_bias: false,
        mixing: Mixing::Tables { recurrence, skip: false, norm, norm_weights: Some(width) },
        output_bias: false,
    })
}
