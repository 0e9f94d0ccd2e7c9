//! Mistral 4.

use serde_json::{Map, Value, json};

use super::{
    super::{
        names::{ExpertNames, Names, StackedNames},
        rope::{RopeConfig, in_one_spelling},
        settings::{ConfigError, Settings},
        shape::{ModelShape, RouterShape},
    },
    decoder::{MOST_HEADS, activation, only},
    deepseek::{Variant, compressed},
    mistral::far_factor,
    mixtures::{MixtureKeys, SOFTMAX, counted, groups, normalized, routed, shared_experts, sparse_from},
};

const MIXTURE: MixtureKeys = MixtureKeys {
    experts: "n_routed_experts",
    experts_too: Some("num_local_experts"),
    per_token: "num_experts_per_tok",
    intermediate: "moe_intermediate_size",
};

/// Mistral 4: compressed attention whose queries grow with their position, and experts by a softmax.
pub(super) fn mistral4(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let parameters = parameters(settings)?;
    let mut config = settings.0.clone();
    config.remove("rope_scaling");
    config.insert("rope_parameters".to_owned(), Value::Object(parameters.clone()));
    let variant = Variant { epsilon: 1e-6, query_rank: Some(1024), halves_too: true };
    let mut shape = compressed(&Settings(&config), variant)?;
    // transformers rotates a share of it.
    let [apart, rotated] = ["qk_nope_head_dim", "qk_rope_head_dim"].map(|part| settings.size(part, MOST_HEADS));
    only(settings, "head_dim", &json!(apart? + rotated?))?;
    let far = far_factor(&Settings(&parameters))?;
    let growth = shape.ropes.len();
    for attention in shape.attentions() {
        attention.growth = Some(growth);
    }
    let width = shape.attentions().next().map_or(0, |attention| attention.kept.head_dim);
    if !width.is_multiple_of(2) {
        return Err(ConfigError::setting("kv_lora_rank", "is not an even number"));
    }
    shape.ropes.push(RopeConfig::still(width / 2, far));
    let mut sparse = routed(settings, MIXTURE, SOFTMAX, activation(settings, "hidden_act")?)?;
    sparse.shared = shared_experts(settings, "n_shared_experts", 1, sparse.expert)?;
    sparse.router = RouterShape {
        groups: groups(settings, (1, 1), sparse.experts, sparse.per_token)?,
        normalize: normalized(settings)?,
        factor: settings.get("routed_scaling_factor")?.unwrap_or(1.0),
        ..SOFTMAX
    };
    sparse_from(settings.get("first_k_dense_replace")?.unwrap_or(0), &sparse, &mut shape);
    // No expert of this family has a bias.
    let experts = ExpertNames::Stacked(StackedNames {
        gate_up: "mlp.experts.gate_up_proj",
        gate_up_bias: "",
        down: "mlp.experts.down_proj",
        down_bias: "",
        transposed: false,
    });
    shape.names = Names { experts, ..shape.names };
    counted("n_routed_experts", shape)
}

/// The parameters of the rotary embedding, without the part of a head that is rotated: that is said by sizes.
fn parameters(settings: &Settings<'_>) -> Result<Map<String, Value>, ConfigError> {
    const PART: &str = "partial_rotary_factor";
    let default = json!({
        "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 128.0, "original_max_position_embeddings": 8192,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
    });
    let given = in_one_spelling(settings)?;
    let mut parameters = given.unwrap_or_else(|| default.as_object().cloned().unwrap_or_default());
    let size = |key: &str| settings.size(key, MOST_HEADS);
    let (rotated, apart) = (size("qk_rope_head_dim")?, size("qk_nope_head_dim")?);
    #[expect(clippy::cast_precision_loss, reason = "heads are small")]
    let part = rotated as f64 / (rotated + apart) as f64;
    let said: Option<f64> = Settings(&parameters).get(PART)?;
    if said.is_some_and(|said| (said - part).abs() > f64::EPSILON) {
        return Err(ConfigError::setting(PART, format!("is not {part}, the part of a head that is rotated")));
    }
    parameters.remove(PART);
    Ok(parameters)
}
