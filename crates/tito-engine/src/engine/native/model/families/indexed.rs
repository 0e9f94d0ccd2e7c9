//! DeepSeek V3.2 and GLM-5, whose attention chooses some of the tokens of long sequences.
//!
//! Of no more tokens than are chosen, all are attended to, and what chooses has no say. Only such sequences are computed.

use serde_json::json;

use super::{
    super::{
        settings::{ConfigError, Settings},
        shape::{Longest, ModelShape},
    },
    decoder::{activation, only},
    deepseek::{Variant, compressed, listed_mixtures},
    mamba::listed,
    mixtures::{MixtureKeys, SOFTMAX, counted, routed, shared_experts, sigmoid_router},
};

const MIXTURE: MixtureKeys = MixtureKeys {
    experts: "n_routed_experts",
    experts_too: Some("num_experts"),
    per_token: "num_experts_per_tok",
    intermediate: "moe_intermediate_size",
};

/// How many tokens are chosen.
const CHOSEN: &str = "index_topk";

/// DeepSeek V3.2.
pub(super) fn deepseek_v32(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    indexed(settings, Variant { epsilon: 1e-6, query_rank: Some(1536), halves_too: false })
}

/// GLM-5.
pub(super) fn glm_moe_dsa(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    for key in ["n_group", "topk_group", "routed_scaling_factor"] {
        settings.require::<f64>(key)?;
    }
    indexed(settings, Variant { epsilon: 1e-5, query_rank: Some(2048), halves_too: false })
}

fn indexed(settings: &Settings<'_>, variant: Variant) -> Result<ModelShape, ConfigError> {
    only(settings, "rope_interleave", &json!(true))?;
    only(settings, "mlp_bias", &json!(false))?;
    only(settings, "scoring_func", &json!("sigmoid"))?;
    only(settings, "topk_method", &json!("noaux_tc"))?;
    let mut config = settings.0.clone();
    config.remove("layer_types");
    let mut shape = compressed(&Settings(&config), variant)?;
    listed(settings, shape.layers.len(), &[], &["indexed_attention"])?;
    let tokens: usize = settings.get(CHOSEN)?.unwrap_or(2048);
    let reason = "is how many tokens of a longer sequence are attended to, and these are not chosen here";
    shape.longest = Some(Longest { tokens, key: CHOSEN, reason });
    let mut sparse = routed(settings, MIXTURE, SOFTMAX, activation(settings, "hidden_act")?)?;
    sparse.router = sigmoid_router(settings, &sparse, (8, 4), 2.5)?;
    sparse.shared = shared_experts(settings, "n_shared_experts", 1, sparse.expert)?;
    let dense: usize = settings.get("first_k_dense_replace")?.unwrap_or(3);
    listed_mixtures(settings, &sparse, dense, &mut shape)?;
    shape.names.unused_in_layers = &["self_attn.indexer."];
    counted("n_routed_experts", shape)
}
