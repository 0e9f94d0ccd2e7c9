//! Nemotron-H and Nemotron 3: each layer is Mamba 2, attention without positions, a feed-forward part or a mixture.

use serde_json::{Value, json};

use super::{
    super::{
        names::{ChoiceBias, DenseNames, ExpertNames, GateUpNames, Names, RecurrentNames},
        settings::{ConfigError, Settings},
        shape::{DenseShape, LatentExperts, LayerShape, MlpShape, ModelShape, SharedShape, SparseShape},
    },
    decoder::{Defaults, MOST, decoder_with, heads, only},
    mamba::{MambaKeys, limits, mamba, only_silu},
    mixtures::{ROUTED_EXPERTS, SOFTMAX, counted, routed, sigmoid_router},
};
use crate::engine::native::backend::Gate;

const MAMBA: MambaKeys = MambaKeys {
    heads: "mamba_num_heads",
    head_dim: "mamba_head_dim",
    state: "ssm_state_size",
    groups: "n_groups",
    taps: "conv_kernel",
    convolution_bias: "use_conv_bias",
    bias: "use_bias",
};

/// What a layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LayerKind {
    Mamba,
    Attention,
    Dense,
    Mixture,
}

/// Nemotron-H and Nemotron 3.
pub(super) fn nemotron_h(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let kinds = kinds(settings)?;
    let mut config = settings.0.clone();
    config.insert("num_hidden_layers".to_owned(), json!(kinds.len()));
    // Only layers that are feed-forward parts ask for it.
    if !kinds.contains(&LayerKind::Dense) {
        config.insert("intermediate_size".to_owned(), json!(1));
    }
    config.insert("hidden_act".to_owned(), json!("silu"));
    let all = Settings(&config);
    refuse_what_is_not_read(settings)?;
    let defaults = Defaults { head_dim: Some(128), ..Defaults::COMMON };
    let mut shape = decoder_with(&all, defaults, heads(&all, defaults)?, Vec::new())?;
    shape.norm.epsilon = settings.get("layer_norm_epsilon")?.unwrap_or(1e-5);
    for attention in shape.attentions() {
        attention.rotation = None;
    }
    let sparse = kinds.contains(&LayerKind::Mixture).then(|| mixture(settings)).transpose()?;
    let mamba = kinds.contains(&LayerKind::Mamba).then(|| mamba(settings, MAMBA, shape.norm.epsilon)).transpose()?;
    for (layer, kind) in shape.layers.iter_mut().zip(kinds) {
        let LayerShape { attention, recurrent, mlp, .. } = layer;
        if kind != LayerKind::Attention {
            *attention = None;
        }
        *recurrent = mamba.clone().filter(|_| kind == LayerKind::Mamba);
        *mlp = match kind {
            LayerKind::Dense => Some(MlpShape::Dense(dense(settings)?)),
            LayerKind::Mixture => sparse.clone().map(MlpShape::Sparse),
            LayerKind::Mamba | LayerKind::Attention => None,
        };
    }
    shape.names = names();
    counted("n_routed_experts", shape)
}

fn names() -> Names {
    let names = Names::default();
    let part = DenseNames { prefix: "mixer", gate_up: GateUpNames::Joined("up_proj"), down: "down_proj" };
    Names {
        embedding: "backbone.embeddings",
        layers: "backbone.layers.",
        norm: "backbone.norm_f",
        attention_norm: "norm",
        mlp_norm: "norm",
        qkv: ["mixer.q_proj", "mixer.k_proj", "mixer.v_proj"],
        attention_output: "mixer.o_proj",
        recurrent: RecurrentNames { prefix: "mixer", ..names.recurrent },
        dense: part,
        router: "mixer.gate",
        choice_bias: ChoiceBias { name: "mixer.gate.e_score_correction_bias", is_table: false },
        experts: ExpertNames::Each(part.under("mixer.experts")),
        latent_experts: ["mixer.fc1_latent_proj", "mixer.fc2_latent_proj"],
        shared: part.under("mixer.shared_experts"),
        unused: &["mtp.", "backbone.mtp."],
        aliases: &[("model.", "backbone.")],
        ..names
    }
}

/// Settings that the model's own code does not read, or reads otherwise in a prompt than in what follows it.
fn refuse_what_is_not_read(settings: &Settings<'_>) -> Result<(), ConfigError> {
    only(settings, "attention_bias", &json!(false))?;
    only(settings, "sliding_window", &Value::Null)?;
    only_silu(settings, "mamba_hidden_act")?;
    only(settings, "mlp_hidden_act", &json!("relu2"))?;
    // Prompts have no smaller step in transformers, and tokens after them do; other readers never have. The usual bound is
    // below the steps that models make.
    if let Some(least) = settings.get::<f64>("time_step_min")?.filter(|least| *least > 0.001) {
        return Err(ConfigError::setting("time_step_min", format!("is {least}, and at most 0.001 is supported")));
    }
    // No step is that large.
    match limits(settings)? {
        (least, most) if least <= 0.0 && most >= 1e30 => Ok(()),
        (least, most) => Err(ConfigError::setting(
            "time_step_limit",
            format!("is {least} to {most}, and only 0 to Infinity is supported"),
        )),
    }
}

/// What each layer is: a letter for each, or a word.
fn kinds(settings: &Settings<'_>) -> Result<Vec<LayerKind>, ConfigError> {
    let kinds: Vec<LayerKind> = if let Some(words) = settings.get::<Vec<String>>("layers_block_type")? {
        let read = |word: String| match word.as_str() {
            "linear_attention" | "mamba" => Ok(LayerKind::Mamba),
            "full_attention" | "attention" => Ok(LayerKind::Attention),
            "mlp" => Ok(LayerKind::Dense),
            "moe" => Ok(LayerKind::Mixture),
            other => Err(ConfigError::setting("layers_block_type", format!("names {other}, which is not supported"))),
        };
        words.into_iter().map(read).collect::<Result<_, _>>()?
    } else {
        let pattern: String = settings.require("hybrid_override_pattern")?;
        let read = |letter| match letter {
            'M' => Ok(LayerKind::Mamba),
            '*' => Ok(LayerKind::Attention),
            '-' => Ok(LayerKind::Dense),
            'E' => Ok(LayerKind::Mixture),
            other => {
                Err(ConfigError::setting("hybrid_override_pattern", format!("has {other}, which is not supported")))
            }
        };
        pattern.chars().map(read).collect::<Result<_, _>>()?
    };
    match settings.get::<usize>("num_hidden_layers")? {
        Some(count) if count != kinds.len() => {
            Err(ConfigError::setting("num_hidden_layers", format!("is {count}, and {} layers are named", kinds.len())))
        }
        _ => Ok(kinds),
    }
}

fn dense(settings: &Settings<'_>) -> Result<DenseShape, ConfigError> {
    let intermediate = settings.size("intermediate_size", MOST)?;
    Ok(DenseShape { intermediate, bias: settings.get("mlp_bias")?.unwrap_or(false), gate: Gate::SquaredRelu })
}

fn mixture(settings: &Settings<'_>) -> Result<SparseShape, ConfigError> {
    let mut sparse = routed(settings, ROUTED_EXPERTS, SOFTMAX, Gate::SquaredRelu)?;
    sparse.router = sigmoid_router(settings, &sparse, (1, 1), 1.0)?;
    let bias = settings.get("mlp_bias")?.unwrap_or(false);
    if settings.get::<usize>("moe_latent_size")?.is_some() {
        sparse.latent = Some(LatentExperts { width: settings.size("moe_latent_size", MOST)?, bias });
    }
    only(settings, "n_shared_experts", &json!(1))?;
    let intermediate = settings.size("moe_shared_expert_intermediate_size", MOST)?;
    let shared = DenseShape { intermediate, bias, gate: Gate::SquaredRelu };
    sparse.shared = Some(SharedShape { dense: shared, gated: false });
    Ok(sparse)
}
