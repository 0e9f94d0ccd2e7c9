//! DeepSeek V3.2 and GLM-5: DeepSeek V3 with what chooses some of the tokens of long sequences.

use serde_json::json;

use super::{
    super::{
        super::GgufError,
        lines::{Dim, Line, line},
        model::{Family, Model},
        tables::NORMS,
    },
    deepseek::{attention, mixtures},
};

pub(super) const DEEPSEEK3_2: Family =
    Family { name: "deepseek32", model_type: "deepseek_v32", class: "DeepseekV32ForCausalLM", read: indexed };

pub(super) const GLM_DSA: Family =
    Family { name: "glm-dsa", model_type: "glm_moe_dsa", class: "GlmMoeDsaForCausalLM", read: indexed };

const INDEXER: [Line; 5] = [
    line("indexer.attn_q_b.weight", "self_attn.indexer.wq_b.weight", &[Dim::IndexQueries, Dim::QueryRank]),
    line("indexer.attn_k.weight", "self_attn.indexer.wk.weight", &[Dim::IndexKey, Dim::Hidden]),
    line("indexer.k_norm.weight", "self_attn.indexer.k_norm.weight", &[Dim::IndexKey]),
    line("indexer.k_norm.bias", "self_attn.indexer.k_norm.bias", &[Dim::IndexKey]),
    line("indexer.proj.weight", "self_attn.indexer.weights_proj.weight", &[Dim::IndexHeads, Dim::Hidden]),
];

fn indexed(model: &mut Model<'_>) -> Result<(), GgufError> {
    attention(model)?;
    model.intermediate()?;
    model.layer(&NORMS)?;
    if !mixtures(model)? {
        let key = model.settings.key("expert_gating_func");
        return Err(GgufError::Unsupported(format!("experts are not scored by sigmoids, `{key}`")));
    }
    let [heads, key, chosen] = ["head_count", "key_length", "top_k"]
        .map(|name| model.settings.required_size(&format!("attention.indexer.{name}")));
    let (heads, key, chosen) = (heads?, key?, chosen?);
    model.sizes.set([(Dim::IndexHeads, heads), (Dim::IndexKey, key), (Dim::IndexQueries, heads.saturating_mul(key))]);
    model.layer(&INDEXER)?;
    model.set(json!({"index_n_heads": heads, "index_head_dim": key, "index_topk": chosen}));
    Ok(())
}
