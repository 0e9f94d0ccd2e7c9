//! Nemotron-H and Nemotron 3: each layer is Mamba 2, attention without positions, a feed-forward part or a mixture.

use serde_json::{Value, json};

use super::{
    super::{
        names::{ChoiceBias, DenseNames, ExpertNames, FUSED_EXPERTS, GateUpNames, Names, RecurrentNames, StackedNames},
        settings::{ConfigError, Settings},
        shape::{
            DenseShape, LatentExperts, LayerShape, Mixing, MlpShape, ModelShape, RecurrentLayer, SharedShape,
            SparseShape,
        },
    },
    decoder::{Defaults, MOST, decoder_with, heads, only},
    mamba::{MambaKeys, limits, mamba, only_silu},
    mixtures::{ROUTED_EXPERTS, SOFTMAX, counted, routed, sigmoid_router},
};
use crate::engine::native::{
    backend::Gate,
    recurrence::{RecurrenceShape, Rule},
};

const MAMBA: MambaKeys = MambaKeys {
    heads: "mamba_num_heads",
    head_dim: "mamba_head_dim",
    state: "ssm_state_size",
    groups: "n_groups",
    taps: "conv_kernel",
    convolution_bias: "use_conv_bias",
    bias: "use_bias",
};

/// Names that files of the time before transformers had the model have, and what it calls the same. What only says how
/// weights are first drawn, or what the other settings say already, is not among them.
const OTHER_NAMES: [(&str, &str); 5] = [
    ("mamba_n_groups", MAMBA.groups),
    ("mamba_d_conv", MAMBA.taps),
    ("mamba_conv_bias", MAMBA.convolution_bias),
    ("mamba_dt_min", LEAST_STEP),
    ("mamba_dt_limit", "time_step_limit"),
];

/// The key of the least step.
const LEAST_STEP: &str = "time_step_min";

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
    let mut config = settings.with_other_names(&OTHER_NAMES)?;
    let settings = &Settings(&config.clone());
    let kinds = kinds(settings)?;
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
    let mamba = kinds.contains(&LayerKind::Mamba).then(|| bounded(settings, shape.norm.epsilon)).transpose()?;
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
    // They have no gates.
    let fused = StackedNames { gate_up: "mixer.experts.up_proj", down: "mixer.experts.down_proj", ..FUSED_EXPERTS };
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
        fused_experts: Some(fused),
        latent_experts: ["mixer.fc1_latent_proj", "mixer.fc2_latent_proj"],
        shared: part.under("mixer.shared_experts"),
        unused: &["mtp.", "backbone.mtp."],
        aliases: &[("model.", "backbone.")],
        ..names
    }
}

/// A Mamba 2 part whose steps are bounded from below by a setting of its own, which other families only draw weights by.
/// transformers bounds them where it reads several tokens at once, as a trainer does, but not where it reads one: here, all
/// tokens have the same bound, so that a token has the same log-prob either way.
fn bounded(settings: &Settings<'_>, epsilon: f32) -> Result<RecurrentLayer, ConfigError> {
    let mut part = mamba(settings, MAMBA, epsilon)?;
    if let Mixing::Tables { recurrence: RecurrenceShape { rule: Rule::Scan { least, .. }, .. }, .. } = &mut part.mixing
    {
        *least = settings.get(LEAST_STEP)?.unwrap_or(1e-3);
    }
    Ok(part)
}

/// Settings that the model's own code does not read.
fn refuse_what_is_not_read(settings: &Settings<'_>) -> Result<(), ConfigError> {
    only(settings, "attention_bias", &json!(false))?;
    only(settings, "sliding_window", &Value::Null)?;
    only_silu(settings, "mamba_hidden_act")?;
    only(settings, "mlp_hidden_act", &json!("relu2"))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::native::model::tests::families::Golden;

    #[expect(clippy::needless_pass_by_value, reason = "callers write it down there")]
    fn read_with(changes: Value) -> Result<ModelShape, String> {
        let mut config = Golden::named("families/nemotron_h_plain").config().clone();
        config.extend(changes.as_object().unwrap().clone());
        ModelShape::read(&config).map_err(|error| error.to_string())
    }

    fn least(changes: Value) -> f32 {
        let shape = read_with(changes).unwrap();
        let mixings = shape.layers.into_iter().filter_map(|layer| Some(layer.recurrent?.mixing));
        let steps = mixings.filter_map(|mixing| match mixing {
            Mixing::Tables { recurrence: RecurrenceShape { rule: Rule::Scan { least, most }, .. }, .. } => {
                Some((least, most))
            }
            _ => None,
        });
        let steps: Vec<(f32, f32)> = steps.collect();
        assert!(steps.len() == 2 && steps.iter().all(|(_, most)| most.is_infinite()), "{steps:?}");
        steps[0].0
    }

    #[test]
    fn steps_are_bounded_from_below_as_in_a_trainer() {
        for (changes, expected) in [
            (json!({}), 0.001),
            (json!({"time_step_min": null}), 0.001),
            (json!({"time_step_min": 0}), 0.0),
            (json!({"time_step_min": 0.25}), 0.25),
            (json!({"mamba_dt_min": 0.5}), 0.5),
            (json!({"mamba_dt_min": 0.5, "time_step_min": 0.5}), 0.5),
        ] {
            assert_eq!(least(changes.clone()).to_bits(), f32::to_bits(expected), "{changes}");
        }
    }

    #[test]
    fn other_names_of_settings_are_read_and_may_not_contradict_them() {
        let plain = read_with(json!({})).unwrap();
        for same in [
            json!({"mamba_n_groups": 2, "mamba_d_conv": 4, "mamba_conv_bias": true}),
            json!({"mamba_n_groups": 2, "n_groups": null, "mamba_d_conv": 4, "conv_kernel": null}),
        ] {
            assert_eq!(read_with(same).unwrap(), plain);
        }
        for (key, value, own) in [
            ("mamba_n_groups", json!(4), "`n_groups`"),
            ("mamba_d_conv", json!(2), "`conv_kernel`"),
            ("mamba_conv_bias", json!(false), "`use_conv_bias`"),
            ("mamba_dt_min", json!(0.5), "`time_step_min`"),
        ] {
            let beside = json!({key: value, "use_conv_bias": true, "time_step_min": 0.001});
            let error = read_with(beside).unwrap_err();
            assert!(error.contains(&format!("`{key}` is {value}")) && error.contains(own), "{error}");
        }
        assert!(read_with(json!({"mamba_dt_limit": [0.1, 1e30]})).unwrap_err().contains("`time_step_limit` is 0.1"));
    }
}
