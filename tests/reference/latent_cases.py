"""Families whose keys and values are compressed, or shared by layers: DeepSeek's and what grew from them, and Gemma4.

Owns: CASES.
"""

from variants import NO_ROPE_SCALING, ODD, RMS, WINDOW, YARN, families

CASES = []
family = families(CASES)

FULL = "full_attention"
SLIDING = "sliding_attention"
# As published models have it: both factors, so that the rotation is not scaled and the scores are.
YARN_MSCALE = {**YARN, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}
YARN_ONE_MSCALE = {**YARN, "mscale": 0.7}

DEEPSEEK = {
    **RMS, "first_k_dense_replace": 1, "kv_lora_rank": 16, "moe_intermediate_size": 24, "n_routed_experts": 8,
    "n_shared_experts": 1, "num_experts_per_tok": 2, "num_key_value_heads": 4, "q_lora_rank": 24, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8, "v_head_dim": 12,
}
deepseek_v2 = family(
    "deepseek_v2", "DeepseekV2ForCausalLM", "deepseek_v2",
    {**DEEPSEEK, "q_lora_rank": None, "moe_layer_freq": 1, "norm_topk_prob": False, "scoring_func": "softmax"},
)
deepseek_v2("plain", topk_method="greedy", routed_scaling_factor=1.0)
deepseek_v2("full", style="full", q_lora_rank=24, routed_scaling_factor=2.0, **ODD)
deepseek_v2("scaled", routed_scaling_factor=3.0, n_shared_experts=2, without=[{"routed_scaling_factor": 1.0}])
deepseek_v2(
    "grouped", topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=2.0,
    num_experts_per_tok=3,
    without=[{"topk_method": "greedy"}, {"topk_group": 3}],
)
deepseek_v2("attention_bias", q_lora_rank=24, attention_bias=True)
deepseek_v2("mlp_bias", mlp_bias=True)
deepseek_v2("yarn", rope_scaling={**YARN_MSCALE, "mscale": 0.707, "mscale_all_dim": 0.707}, **NO_ROPE_SCALING)
deepseek_v2("no_dense", first_k_dense_replace=0)

V3 = {
    **DEEPSEEK, "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
    "moe_layer_freq": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
}
deepseek_v3 = family("deepseek_v3", "DeepseekV3ForCausalLM", "deepseek_v3", V3)
deepseek_v3("plain", without=[{"routed_scaling_factor": 1.0}, {"n_group": 1, "topk_group": 1}, {"topk_group": 1}])
deepseek_v3("full", style="full", **ODD)
deepseek_v3("not_normalised", norm_topk_prob=False, routed_scaling_factor=1.5, without=[{"norm_topk_prob": True}])
deepseek_v3("no_q_lora", q_lora_rank=None)
deepseek_v3("attention_bias", attention_bias=True)
deepseek_v3("half_split", rope_interleave=False, without=[{"rope_interleave": True}])
deepseek_v3("yarn", rope_scaling=YARN_MSCALE, without=[
    {"rope_scaling": None}, {"rope_scaling": {**YARN_MSCALE, "mscale_all_dim": 0.0, "attention_factor": 1.0}},
])
deepseek_v3("yarn_one_mscale", rope_scaling=YARN_ONE_MSCALE, **NO_ROPE_SCALING)
# Numbers of Kimi K2, whose configuration has another model type: one group, a ramp without a width.
deepseek_v3(
    "kimi_k2", n_group=1, topk_group=1, routed_scaling_factor=2.827, rope_theta=50000.0,
    rope_scaling={**YARN_MSCALE, "beta_fast": 1.0, "beta_slow": 1.0}, aux_loss_alpha=0.001, ep_size=1,
    num_nextn_predict_layers=0, seq_aux=True, **NO_ROPE_SCALING,
)

glm4_moe_lite = family(
    "glm4_moe_lite", "Glm4MoeLiteForCausalLM", "glm4_moe_lite",
    {**DEEPSEEK, "first_k_dense_replace": ..., "n_group": 1, "topk_group": 1, "norm_topk_prob": True},
)
glm4_moe_lite("plain", without=[{"routed_scaling_factor": 1.0}])
glm4_moe_lite("full", style="full", routed_scaling_factor=2.5, **ODD)
glm4_moe_lite("mlp_layer_types", mlp_layer_types=["sparse", "dense", "sparse"])
glm4_moe_lite("attention_bias", attention_bias=True)


def scaled_queries(beta=0.5):
    """As mistral's dictionaries have it: queries grow with each WINDOW positions."""
    return {
        **YARN_MSCALE, "llama_4_scaling_beta": beta, "original_max_position_embeddings": WINDOW, "rope_theta": 10000.0,
    }


mistral4 = family(
    "mistral4", "Mistral4ForCausalLM", "mistral4",
    {
        **DEEPSEEK, "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
        "routed_scaling_factor": 1.0, "rope_theta": ..., "rope_parameters": scaled_queries(),
    },
)
mistral4("plain", without=[{"rope_parameters": scaled_queries(0.0)}, {"norm_topk_prob": False}])
mistral4("full", style="full", rms_norm_eps=1e-2, without=[{"rope_parameters": scaled_queries(0.0)}])
mistral4("scaled", routed_scaling_factor=2.5, norm_topk_prob=False, first_k_dense_replace=1,
         without=[{"routed_scaling_factor": 1.0}, {"norm_topk_prob": True}])
mistral4("grouped", n_group=4, topk_group=2, without=[{"n_group": 1, "topk_group": 1}])
mistral4("within_original", rope_parameters={**scaled_queries(0.1), "original_max_position_embeddings": 256})
mistral4("within_original_dense", first_k_dense_replace=1, norm_topk_prob=False, routed_scaling_factor=2.5,
         q_lora_rank=None, rope_parameters={**scaled_queries(0.1), "original_max_position_embeddings": 256})
mistral4("half_split", rope_interleave=False, without=[{"rope_interleave": True}])

# So many heads that hardly any score of the indexer is exactly nought: equal scores would leave the choice open.
SPARSE = {
    **V3, "index_head_dim": 16, "index_n_heads": 16, "index_topk": WINDOW, "moe_layer_freq": ..., "scoring_func": ...,
    "topk_method": ...,
}
deepseek_v32 = family("deepseek_v32", "DeepseekV32ForCausalLM", "deepseek_v32", SPARSE)
deepseek_v32("plain", without=[{"index_topk": 256}, {"index_topk": WINDOW + 1}])
deepseek_v32("full", style="full", **ODD)
deepseek_v32("within", index_topk=256)
deepseek_v32("yarn", rope_scaling=YARN_MSCALE, **NO_ROPE_SCALING)
deepseek_v32("mlp_layer_types", mlp_layer_types=["sparse", "dense", "sparse"])

glm_moe_dsa = family(
    "glm_moe_dsa", "GlmMoeDsaForCausalLM", "glm_moe_dsa", {**SPARSE, "n_group": 1, "topk_group": 1},
)
glm_moe_dsa("plain", without=[{"index_topk": 256}])
glm_moe_dsa("full", style="full", **ODD)
glm_moe_dsa("shared_choice", num_hidden_layers=4, indexer_types=["full", "shared", "full", "shared"])
glm_moe_dsa("frequency", num_hidden_layers=5, index_topk_freq=2, index_skip_topk_offset=2)
glm_moe_dsa("pattern", num_hidden_layers=4, index_topk_pattern="FSSF")

GEMMA4 = {
    **RMS, "hidden_act": ..., "tie_word_embeddings": ..., "rope_theta": ..., "hidden_activation": "gelu_pytorch_tanh",
    "head_dim": 8, "global_head_dim": 16, "hidden_size_per_layer_input": 0, "num_hidden_layers": 4,
    "layer_types": [SLIDING, FULL, SLIDING, FULL], "sliding_window": WINDOW, "vocab_size_per_layer_input": 96,
}
gemma4 = family("gemma4", "Gemma4ForCausalLM", "gemma4_text", GEMMA4)
WHOLE = {
    FULL: {"rope_type": "default", "rope_theta": 1000000.0}, SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
}
gemma4("plain", without=[{"sliding_window": 512}, {"rope_parameters": WHOLE}])
gemma4("full", style="full", rms_norm_eps=1e-2, final_logit_softcapping=20.0)
gemma4("final_cap", final_logit_softcapping=3.0, without=[{"final_logit_softcapping": None}])
gemma4("last_layer", layer_types=[SLIDING, FULL, SLIDING, SLIDING])
gemma4("default_layers", layer_types=..., num_hidden_layers=7)
gemma4("rope", rope_parameters={
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 500.0},
    SLIDING: {"rope_type": "default", "rope_theta": 100.0},
})
gemma4("keys_as_values", attention_k_eq_v=True, num_global_key_value_heads=1)
gemma4("keys_as_values_full", style="full", attention_k_eq_v=True, num_global_key_value_heads=1)
gemma4("per_layer_inputs", hidden_size_per_layer_input=8)
# This release cannot compute shared keys without inputs of each layer.
gemma4("shared_keys", num_kv_shared_layers=2, hidden_size_per_layer_input=8)
gemma4("shared_keys_wide", num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=8)
gemma4("experts", enable_moe_block=True, num_experts=8, top_k_experts=2, moe_intermediate_size=24,
       without=[{"top_k_experts": 1}])
gemma4("everything", attention_k_eq_v=True, num_global_key_value_heads=1, num_kv_shared_layers=2,
       use_double_wide_mlp=True, hidden_size_per_layer_input=8)
gemma4("untied", tie_word_embeddings=False)
gemma4("attention_bias", attention_bias=True)
