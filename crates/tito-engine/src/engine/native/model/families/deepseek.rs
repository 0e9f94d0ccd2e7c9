//! DeepSeek V2 and V3 and what was made like them (R1, Kimi K2, Moonlight), and GLM-4.7-Flash.

use serde_json::json;

use super::{
    super::{
        rope::{frequency_scale, in_one_spelling, rope},
        settings::{ConfigError, Settings},
        shape::{Groups, LatentShape, LayerRotation, MlpShape, ModelShape, RouterShape, SparseShape},
    },
    decoder::{
        Defaults, Heads, MOST, MOST_HEADS, NEXT_LAYERS, activation, decoder_with, further_layers, mlp_biases, only,
    },
    mixtures::{ROUTED_EXPERTS, SOFTMAX, counted, groups, routed, shared_experts, sigmoid_router, sparse_from},
    windows::same_windows,
};
use crate::engine::native::backend::CacheShape;

/// The epsilon of norms of compressed vectors, whatever `rms_norm_eps` says.
const EPSILON: f32 = 1e-6;

/// No model has more heads, those of all layers counted: each has matrices of its own.
const MOST_MATRICES: usize = 1 << 17;

/// What differs between the families.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant {
    /// The epsilon of all other norms, unless config.json says it.
    pub(super) epsilon: f32,
    /// The rank of queries where config.json leaves it out.
    pub(super) query_rank: Option<usize>,
    /// Whether `rope_interleave` is read; neighbours are rotated otherwise.
    pub(super) halves_too: bool,
}

/// DeepSeek V2 and V2 Lite.
pub(super) fn v2(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let variant = Variant { epsilon: 1e-6, query_rank: Some(1536), halves_too: false };
    let mut shape = compressed(settings, variant)?;
    mlp_biases(settings, &mut shape)?;
    only(settings, "norm_topk_prob", &json!(false))?;
    let mut sparse = experts(settings, RouterShape { normalize: None, ..SOFTMAX }, 2)?;
    if let Some(shared) = &mut sparse.shared {
        // Experts that are chosen have none.
        shared.dense.bias = settings.get("mlp_bias")?.unwrap_or(false);
    }
    sparse.router.factor = settings.get("routed_scaling_factor")?.unwrap_or(1.0);
    let method: Option<String> = settings.get("topk_method")?;
    match method.as_deref() {
        None | Some("greedy") => {}
        Some("group_limited_greedy") => {
            sparse.router.groups = groups_by_one(settings, sparse.experts, sparse.per_token)?;
        }
        Some(other) => return Err(ConfigError::setting("topk_method", format!("{other} is not supported"))),
    }
    only(settings, "scoring_func", &json!("softmax"))?;
    sparse_from(settings.get("first_k_dense_replace")?.unwrap_or(0), &sparse, &mut shape);
    counted("n_routed_experts", shape)
}

/// DeepSeek V3, V3.1 and R1, and Kimi K2.
pub(super) fn v3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let variant = Variant { epsilon: 1e-6, query_rank: Some(1536), halves_too: true };
    let mut shape = compressed(settings, variant)?;
    only_rotated(settings)?;
    let mut sparse = experts(settings, SOFTMAX, 1)?;
    sparse.router = sigmoid_router(settings, &sparse, (8, 4), 2.5)?;
    only(settings, "topk_method", &json!("noaux_tc"))?;
    only(settings, "scoring_func", &json!("sigmoid"))?;
    sparse_from(settings.get("first_k_dense_replace")?.unwrap_or(3), &sparse, &mut shape);
    counted("n_routed_experts", shape)
}

/// GLM-4.7-Flash.
pub(super) fn glm4_moe_lite(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let variant = Variant { epsilon: 1e-5, query_rank: Some(768), halves_too: true };
    let mut shape = compressed(settings, variant)?;
    only_rotated(settings)?;
    let mut sparse = experts(settings, SOFTMAX, 1)?;
    sparse.router = sigmoid_router(settings, &sparse, (1, 1), 1.8)?;
    listed_mixtures(settings, &sparse, 1, &mut shape)?;
    counted("n_routed_experts", shape)
}

/// Refuses a `head_dim` other than the rotated part of a head: transformers would take it for the frequencies.
fn only_rotated(settings: &Settings<'_>) -> Result<(), ConfigError> {
    only(settings, "head_dim", &json!(settings.size("qk_rope_head_dim", MOST_HEADS)?))
}

/// Gives layers their mixtures: those that are listed, or else all after so many.
pub(super) fn listed_mixtures(
    settings: &Settings<'_>,
    sparse: &SparseShape,
    first: usize,
    shape: &mut ModelShape,
) -> Result<(), ConfigError> {
    const KEY: &str = "mlp_layer_types";
    let Some(listed) = settings.get::<Vec<String>>(KEY)? else {
        sparse_from(first, sparse, shape);
        return Ok(());
    };
    if listed.len() != shape.layers.len() {
        return Err(ConfigError::setting(KEY, "does not name every layer"));
    }
    for (layer, kind) in shape.layers.iter_mut().zip(listed) {
        match kind.as_str() {
            "dense" => {}
            "sparse" => layer.mlp = Some(MlpShape::Sparse(sparse.clone())),
            other => return Err(ConfigError::setting(KEY, format!("names {other}"))),
        }
    }
    Ok(())
}

/// A decoder whose keys and values are compressed, without its mixtures.
pub(super) fn compressed(settings: &Settings<'_>, variant: Variant) -> Result<ModelShape, ConfigError> {
    let heads = settings.size("num_attention_heads", MOST_HEADS)?;
    if settings.get("num_key_value_heads")?.is_some_and(|keys: usize| keys != heads) {
        return Err(ConfigError::setting("num_key_value_heads", format!("is not {heads}, the heads of queries")));
    }
    only(settings, "moe_layer_freq", &json!(1))?;
    let bias = settings.get("attention_bias")?.unwrap_or(false);
    let latent = latent(settings, variant, bias)?;
    if !latent.rotated.is_multiple_of(2) {
        return Err(ConfigError::setting("qk_rope_head_dim", "is not an even number"));
    }
    let common = Defaults { epsilon: variant.epsilon, ..Defaults::COMMON.theta(10_000.0) };
    let kept = CacheShape { heads: 1, head_dim: latent.rotated + latent.rank };
    let rope = rope(settings, latent.rotated, common.rope)?;
    let scale = scale(settings, latent)?;
    let mut shape = decoder_with(settings, common, Heads { queries: heads, kept }, vec![rope])?;
    if heads * shape.layers.len() > MOST_MATRICES {
        return Err(ConfigError::too_large("num_attention_heads", heads));
    }
    let halves = variant.halves_too && settings.get("rope_interleave")? == Some(false);
    for attention in shape.attentions() {
        attention.shape.scale = scale;
        attention.output_bias = bias;
        attention.rotation = Some(LayerRotation { queries: 0, keys: 0, neighbours: !halves });
        attention.latent = Some(latent);
    }
    shape.names.further_layers = further_layers(settings, NEXT_LAYERS)?;
    same_windows(settings, None, &mut shape)?;
    Ok(shape)
}

fn latent(settings: &Settings<'_>, variant: Variant, bias: bool) -> Result<LatentShape, ConfigError> {
    let query_rank = settings.or_left_out("q_lora_rank", variant.query_rank)?;
    if query_rank.is_some_and(|rank| rank == 0 || rank > MOST) {
        return Err(ConfigError::setting("q_lora_rank", "is 0, or more than any model has"));
    }
    Ok(LatentShape {
        query_rank,
        rank: settings.size("kv_lora_rank", MOST_HEADS)?,
        apart: settings.size("qk_nope_head_dim", MOST_HEADS)?,
        rotated: settings.size("qk_rope_head_dim", MOST_HEADS)?,
        value: settings.size("v_head_dim", MOST_HEADS)?,
        epsilon: EPSILON,
        bias,
    })
}

/// The factor of scores, which grows with the factor of a scaled rotary embedding.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "the one rounding of the scale")]
fn scale(settings: &Settings<'_>, latent: LatentShape) -> Result<f32, ConfigError> {
    let plain = ((latent.apart + latent.rotated) as f64).powf(-0.5);
    let given = in_one_spelling(settings)?.unwrap_or_default();
    let parameters = Settings(&given);
    let kind: Option<String> = parameters.get("rope_type")?.or(parameters.get("type")?);
    let all: Option<f64> = parameters.get("mscale_all_dim")?.filter(|all| *all != 0.0);
    let Some(all) = all.filter(|_| kind.is_some_and(|kind| kind != "default")) else { return Ok(plain as f32) };
    let factor: f64 = parameters.require("factor")?;
    Ok((plain * frequency_scale(factor, all).powi(2)) as f32)
}

/// The mixture of one layer, with so many shared experts by default.
fn experts(settings: &Settings<'_>, router: RouterShape, shared: usize) -> Result<SparseShape, ConfigError> {
    let mut sparse = routed(settings, ROUTED_EXPERTS, router, activation(settings, "hidden_act")?)?;
    sparse.shared = shared_experts(settings, "n_shared_experts", shared, sparse.expert)?;
    Ok(sparse)
}

/// Groups that count as much as their best expert.
fn groups_by_one(settings: &Settings<'_>, experts: usize, per_token: usize) -> Result<Option<Groups>, ConfigError> {
    let groups = groups(settings, (1, 1), experts, per_token)?;
    Ok(groups.map(|groups| Groups { best: 1, ..groups }))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn with_head_dim(architecture: &str, head_dim: &Value) -> Result<ModelShape, ConfigError> {
        let config = json!({
            "architectures": [architecture], "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
            "num_key_value_heads": 2, "vocab_size": 9, "intermediate_size": 16, "kv_lora_rank": 8, "q_lora_rank": 8,
            "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4, "n_group": 1,
            "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "max_position_embeddings": 64,
            "head_dim": head_dim, "rope_parameters": {
                "rope_theta": 10000.0, "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64,
                "llama_4_scaling_beta": 0.1, "mscale_all_dim": 1.0, "mscale": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
            },
        });
        ModelShape::read(config.as_object().unwrap())
    }

    #[test]
    fn a_head_dim_that_transformers_takes_for_other_frequencies_is_refused() {
        for (architecture, right) in
            [("DeepseekV3ForCausalLM", 4), ("Glm4MoeLiteForCausalLM", 4), ("Mistral4ForCausalLM", 12)]
        {
            for served in [json!(right), Value::Null] {
                with_head_dim(architecture, &served).unwrap();
            }
            for refused in [1, 8, 16] {
                let error = with_head_dim(architecture, &json!(refused)).unwrap_err().to_string();
                assert!(error.contains("`head_dim`"), "{architecture}: {error}");
            }
        }
        // Its class overwrites what the file says.
        with_head_dim("DeepseekV2ForCausalLM", &json!(16)).unwrap();
    }
}
