//! Liquid's LFM2 and its mixtures: short convolutions between gates, beside attention.

use super::{
    super::{
        names::{ChoiceBias, DenseNames, ExpertNames, FUSED_EXPERTS, GateUpNames, Names, RecurrentNames, StackedNames},
        settings::{ConfigError, Settings},
        shape::{DenseShape, Mixing, MlpShape, ModelShape, RecurrentLayer, RouterShape, Scores},
    },
    decoder::{Defaults, MOST, NORMS_OF_HEADS, decoder},
    mamba::{MOST_TAPS, listed, recurrent_where},
    mixtures::{MixtureKeys, SOFTMAX, counted, routed, sparse_from},
};
use crate::engine::native::{backend::Gate, recurrence::ConvolutionShape};

/// What is added to the sum of weights that divides them.
const ADDED: f32 = 1e-6;

/// LFM2.
pub(super) fn lfm2(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = hybrid(settings)?;
    let intermediate = width(settings)?;
    for layer in &mut shape.layers {
        layer.mlp = Some(MlpShape::Dense(DenseShape { intermediate, bias: false, gate: Gate::Silu }));
    }
    Ok(shape)
}

/// The mixtures of LFM2.
pub(super) fn lfm2_moe(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut shape = hybrid(settings)?;
    let keys = MixtureKeys {
        experts: "num_experts",
        experts_too: Some("num_local_experts"),
        per_token: "num_experts_per_tok",
        intermediate: "moe_intermediate_size",
    };
    let router = RouterShape {
        scores: Scores::Sigmoid,
        choice_bias: settings.on_by_default("use_expert_bias")?,
        normalize: settings.on_by_default("norm_topk_prob")?.then_some(0.0),
        added: ADDED,
        factor: settings.get("routed_scaling_factor")?.unwrap_or(1.0),
        ..SOFTMAX
    };
    let sparse = routed(settings, keys, router, Gate::Silu)?;
    sparse_from(settings.get("num_dense_layers")?.unwrap_or(2), &sparse, &mut shape);
    counted("num_experts", shape)
}

/// A decoder of both kinds of layers.
fn hybrid(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let defaults = Defaults { tied: true, ..Defaults::COMMON.theta(1_000_000.0) };
    // The key of the activation is not read: it is silu.
    let mut config = settings.0.clone();
    config.remove("hidden_act");
    if let Some(tied) = config.get("tie_embedding").cloned() {
        config.insert("tie_word_embeddings".to_owned(), tied);
    }
    let mut shape = decoder(&Settings(&config), defaults)?;
    shape.norm.epsilon = settings.get("norm_eps")?.unwrap_or(1e-5);
    for attention in shape.attentions() {
        attention.head_norms = NORMS_OF_HEADS;
    }
    let convolution = convolution(settings, shape.hidden)?;
    recurrent_where(kinds(settings, shape.layers.len())?, &convolution, &mut shape);
    shape.names = names();
    Ok(shape)
}

fn names() -> Names {
    let names = Names::default();
    let dense = DenseNames { prefix: "feed_forward", gate_up: GateUpNames::Apart(["w1", "w3"]), down: "w2" };
    let fused = StackedNames {
        gate_up: "feed_forward.experts.gate_up_proj",
        down: "feed_forward.experts.down_proj",
        ..FUSED_EXPERTS
    };
    Names {
        norm: "model.embedding_norm",
        attention_norm: "operator_norm",
        mlp_norm: "ffn_norm",
        attention_output: "self_attn.out_proj",
        head_norms: ["self_attn.q_layernorm", "self_attn.k_layernorm"],
        recurrent: RecurrentNames { prefix: "conv", convolution: &["conv"], ..names.recurrent },
        dense,
        router: "feed_forward.gate",
        choice_bias: ChoiceBias { name: "feed_forward.expert_bias", is_table: false },
        experts: ExpertNames::Each(dense.under("feed_forward.experts")),
        fused_experts: Some(fused),
        ..names
    }
}

/// For each layer whether it is a convolution.
fn kinds(settings: &Settings<'_>, count: usize) -> Result<Vec<bool>, ConfigError> {
    if let Some(kinds) = listed(settings, count, &["conv"], &["full_attention"])? {
        return Ok(kinds);
    }
    let attending: Option<Vec<usize>> = settings.get("full_attn_idxs")?;
    let attending = attending.unwrap_or_else(|| (0..count).collect());
    Ok((0..count).map(|layer| !attending.contains(&layer)).collect())
}

fn convolution(settings: &Settings<'_>, hidden: usize) -> Result<RecurrentLayer, ConfigError> {
    let bias = settings.get("conv_bias")?.unwrap_or(false);
    let taps = settings.size("conv_L_cache", MOST_TAPS)?;
    Ok(RecurrentLayer {
        inputs: vec![3 * hidden],
        input_bias: bias,
        rank: None,
        convolution: ConvolutionShape { first: 2 * hidden, channels: hidden, taps, activated: false },
        convolution_bias: bias,
        mixing: Mixing::Gates,
        output_bias: bias,
    })
}

/// The inner width of a feed-forward part, which may be two thirds of what is said, times a factor and rounded up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as the model's own code rounds it"
)]
fn width(settings: &Settings<'_>) -> Result<usize, ConfigError> {
    let key = if settings.get::<usize>("block_ff_dim")?.is_some() { "block_ff_dim" } else { "intermediate_size" };
    let said = settings.size(key, MOST)?;
    if !settings.on_by_default("block_auto_adjust_ff_dim")? {
        return Ok(said);
    }
    let narrowed = 2 * said / 3;
    let Some(factor) = settings.or_left_out("block_ffn_dim_multiplier", Some(1.0_f64))? else { return Ok(narrowed) };
    let multiple = settings.get("block_multiple_of")?.unwrap_or(256_usize);
    if multiple == 0 || multiple > MOST {
        return Err(ConfigError::setting("block_multiple_of", "is 0, or more than any model has"));
    }
    let width = (factor * narrowed as f64) as usize;
    match width.checked_next_multiple_of(multiple) {
        Some(width) if width > 0 && width <= MOST => Ok(width),
        _ => Err(ConfigError::setting("block_ffn_dim_multiplier", format!("is {factor}, which leaves no width"))),
    }
}
