//! What families read of mixtures of experts.

use super::{
    super::{
        settings::{ConfigError, Settings},
        shape::{DenseShape, Groups, MlpShape, ModelShape, RouterShape, Scores, SharedShape, SparseShape},
    },
    decoder::MOST,
};
use crate::engine::native::backend::Gate;
pub(super) use crate::engine::native::routing::SOFTMAX;

/// No model has more experts, those of all layers counted.
const MOST_EXPERTS: usize = 1 << 17;

/// A sum of weights counts as at least this much where it divides them.
const LEAST_SUM: f32 = 1e-20;

/// The keys by which a family says how its mixtures are.
#[derive(Debug, Clone, Copy)]
pub(super) struct MixtureKeys {
    /// How many experts there are.
    pub(super) experts: &'static str,
    /// The same in the other of both spellings, where there are two.
    pub(super) experts_too: Option<&'static str>,
    /// How many a token goes through.
    pub(super) per_token: &'static str,
    /// The width of each.
    pub(super) intermediate: &'static str,
}

/// The keys of Mixtral, in both spellings.
pub(super) const LOCAL_EXPERTS: MixtureKeys = MixtureKeys {
    experts: "num_local_experts",
    experts_too: Some("num_experts"),
    per_token: "num_experts_per_tok",
    intermediate: "intermediate_size",
};

/// The keys of DeepSeek.
pub(super) const ROUTED_EXPERTS: MixtureKeys = MixtureKeys {
    experts: "n_routed_experts",
    experts_too: None,
    per_token: "num_experts_per_tok",
    intermediate: "moe_intermediate_size",
};

/// Gives all layers from `first` on a mixture.
pub(super) fn sparse_from(first: usize, sparse: &SparseShape, shape: &mut ModelShape) {
    for layer in shape.layers.iter_mut().skip(first) {
        layer.mlp = Some(MlpShape::Sparse(sparse.clone()));
    }
}

/// Reads a mixture of experts that are chosen, without any that all tokens go through.
pub(super) fn routed(
    settings: &Settings<'_>,
    keys: MixtureKeys,
    router: RouterShape,
    gate: Gate,
) -> Result<SparseShape, ConfigError> {
    let experts = experts(settings, keys)?;
    let per_token = settings.size(keys.per_token, MOST_EXPERTS)?;
    if per_token > experts {
        return Err(ConfigError::setting(keys.per_token, format!("is more than {experts} experts")));
    }
    let expert = DenseShape { intermediate: settings.size(keys.intermediate, MOST)?, bias: false, gate };
    Ok(SparseShape { experts, per_token, expert, router, shared: None, latent: None })
}

/// Experts that all tokens go through: one feed-forward part, as wide as so many experts.
pub(super) fn shared_experts(
    settings: &Settings<'_>,
    key: &str,
    default: usize,
    expert: DenseShape,
) -> Result<Option<SharedShape>, ConfigError> {
    let shared: usize = settings.get(key)?.unwrap_or(default);
    let intermediate = shared.checked_mul(expert.intermediate).filter(|width| *width <= MOST);
    let intermediate = intermediate.ok_or_else(|| ConfigError::too_large(key, shared))?;
    Ok((shared > 0).then_some(SharedShape { dense: DenseShape { intermediate, ..expert }, gated: false }))
}

/// The router of DeepSeek V3 and those that took it over: sigmoids, a bias of the choice, and groups. The defaults are
/// those of groups and how many of them are chosen, and the factor of weights.
pub(super) fn sigmoid_router(
    settings: &Settings<'_>,
    sparse: &SparseShape,
    default_groups: (usize, usize),
    default_factor: f32,
) -> Result<RouterShape, ConfigError> {
    Ok(RouterShape {
        scores: Scores::Sigmoid,
        choice_bias: true,
        groups: groups(settings, default_groups, sparse.experts, sparse.per_token)?,
        normalize: normalized(settings)?,
        factor: settings.get("routed_scaling_factor")?.unwrap_or(default_factor),
        ..SOFTMAX
    })
}

/// What weights are divided by where they are normalised, which they are by default.
pub(super) fn normalized(settings: &Settings<'_>) -> Result<Option<f32>, ConfigError> {
    Ok(settings.on_by_default("norm_topk_prob")?.then_some(LEAST_SUM))
}

/// The groups from which experts are chosen, each by its two best.
pub(super) fn groups(
    settings: &Settings<'_>,
    (count, chosen): (usize, usize),
    experts: usize,
    per_token: usize,
) -> Result<Option<Groups>, ConfigError> {
    let count: usize = settings.get("n_group")?.unwrap_or(count);
    let chosen: usize = settings.get("topk_group")?.unwrap_or(chosen);
    if count == 0 || !experts.is_multiple_of(count) {
        return Err(ConfigError::setting("n_group", format!("does not divide {experts} experts")));
    }
    if chosen == 0 || chosen > count || chosen * (experts / count) < per_token {
        return Err(ConfigError::setting("topk_group", format!("of {count} groups leaves too few experts")));
    }
    Ok((count > 1).then_some(Groups { count, chosen, best: 2 }))
}

/// How many experts there are, in either spelling.
fn experts(settings: &Settings<'_>, keys: MixtureKeys) -> Result<usize, ConfigError> {
    let said = |key: &str| settings.0.get(key).is_some_and(|value| !value.is_null());
    match keys.experts_too.filter(|other| said(other)) {
        None => settings.size(keys.experts, MOST_EXPERTS),
        Some(other) => {
            let experts = settings.size(other, MOST_EXPERTS)?;
            if said(keys.experts) && settings.size(keys.experts, MOST_EXPERTS)? != experts {
                return Err(ConfigError::setting(other, format!("is another number than `{}`", keys.experts)));
            }
            Ok(experts)
        }
    }
}

/// Refuses more experts than any model has.
pub(super) fn counted(key: &str, shape: ModelShape) -> Result<ModelShape, ConfigError> {
    let experts = shape.layers.iter().map(|layer| layer.mlp.as_ref().map_or(0, MlpShape::experts));
    let (all, most) = (experts.clone().fold(0, usize::saturating_add), experts.max().unwrap_or(0));
    if all > MOST_EXPERTS { Err(ConfigError::too_large(key, most)) } else { Ok(shape) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::native::model::tests::families::Golden;

    #[test]
    fn other_names_of_how_many_experts_a_token_goes_through_may_not_contradict_it() {
        for (name, own) in [("ernie4_5_moe_plain", "moe_k"), ("hunyuan_v1_moe_plain", "moe_topk")] {
            let config = Golden::named(&format!("families/{name}")).config().clone();
            let plain = ModelShape::read(&config);
            let with = |changes: [(&str, serde_json::Value); 2]| {
                let mut config = config.clone();
                config.extend(changes.map(|(key, value)| (key.to_owned(), value)));
                ModelShape::read(&config)
            };
            let said = config[own].clone();
            assert_eq!(with([("num_experts_per_tok", said.clone()), (own, said.clone())]), plain, "{name}");
            assert_eq!(with([("num_experts_per_tok", said.clone()), (own, json!(null))]), plain, "{name}");
            let error = with([("num_experts_per_tok", json!(1)), (own, said)]).expect_err(name).to_string();
            assert!(error.contains("`num_experts_per_tok` is 1, and `moe_"), "{name}: {error}");
        }
    }

    /// transformers takes `null` for off, or for a whole head, where something else is meant by what is left out.
    #[test]
    fn null_is_not_what_is_left_out_where_transformers_tells_them_apart() {
        for (name, key) in [
            ("deepseek_v3_plain", "norm_topk_prob"),
            ("deepseek_v32_plain", "norm_topk_prob"),
            ("glm4_moe_plain", "norm_topk_prob"),
            ("glm4_moe_plain", "partial_rotary_factor"),
            ("minimax_m2_plain", "partial_rotary_factor"),
            ("minimax_m2_plain", "use_qk_norm"),
            ("mistral4_plain", "norm_topk_prob"),
            ("kimi_linear_plain", "moe_renormalize"),
            ("kimi_linear_plain", "mla_use_nope"),
            ("ernie4_5_moe_plain", "tie_word_embeddings"),
            ("lfm2_moe_plain", "use_expert_bias"),
            ("qwen3_next_plain", "norm_topk_prob"),
            ("llama4_plain", "use_qk_norm"),
        ] {
            let mut config = Golden::named(&format!("families/{name}")).config().clone();
            assert!(ModelShape::read(&config).is_ok(), "{name}");
            config.insert(key.to_owned(), json!(null));
            let error = ModelShape::read(&config).expect_err(name).to_string();
            assert!(error.starts_with(&format!("config.json: `{key}` is null")), "{name}: {error}");
        }
        // Off is what it is by default, and the whole head.
        for (name, key) in [("deepseek_v3_plain", "attention_bias"), ("olmoe_plain", "norm_topk_prob")] {
            let mut config = Golden::named(&format!("families/{name}")).config().clone();
            config.insert(key.to_owned(), json!(null));
            assert!(ModelShape::read(&config).is_ok(), "{name}");
        }
    }
}
