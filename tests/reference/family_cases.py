"""The models that the native engine's families are compared with transformers on: attention in every layer.

Owns: CASES. `latent_cases` has the families whose keys and values are compressed, `hybrid_cases` those with recurrent
layers.
"""

from variants import LINEAR, LLAMA3, NO_ROPE_SCALING, ODD, RMS, WINDOW, YARN, families

CASES = []
family = families(CASES)

FULL = "full_attention"
SLIDING = "sliding_attention"
NO_WINDOW = [{"sliding_window": 4096}]
FOUR = {"num_hidden_layers": 4}
EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 8}
# What later releases write of yarn; with these, rope's attention factor is other than one.
YARN_32 = {**YARN, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 32}

# --- Gemma ------------------------------------------------------------------------------------------------------------

GEMMA = {
    **RMS, "hidden_act": ..., "tie_word_embeddings": ..., "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 16, "num_key_value_heads": 1, **FOUR,
}
gemma2 = family("gemma2", "Gemma2ForCausalLM", "gemma2", {**GEMMA, "sliding_window": WINDOW})
gemma2("plain", without=NO_WINDOW)
gemma2(
    "layer_types", layer_types=[FULL, SLIDING, SLIDING, FULL],
    without=[{"layer_types": [SLIDING, FULL] * 2}, {"layer_types": [FULL] * 4}],
)
gemma2(
    "small_caps", attn_logit_softcapping=2.0, final_logit_softcapping=4.0, num_key_value_heads=2,
    without=[{"attn_logit_softcapping": 50.0}, {"final_logit_softcapping": 30.0}],
)

gemma3 = family(
    "gemma3", "Gemma3ForCausalLM", "gemma3_text",
    {
        **GEMMA, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rope_scaling": None,
        "sliding_window": WINDOW, "sliding_window_pattern": 3,
    },
)
gemma3("plain", without=[*NO_WINDOW, {"rope_local_base_freq": 1000000.0}, {"rope_theta": 10000.0}])
gemma3("full", style="full", rms_norm_eps=1e-2, rope_theta=5000.0, rope_local_base_freq=100.0)
gemma3("published", without=[{"sliding_window": 4096}], attention_bias=False, attention_dropout=0.0,
       attn_logit_softcapping=None, cache_implementation="hybrid", final_logit_softcapping=None)
# The pattern of six, which is taken where none is said, and the thetas, likewise.
gemma3("defaults", sliding_window_pattern=..., rope_theta=..., rope_local_base_freq=..., num_hidden_layers=7,
       without=[{"sliding_window_pattern": 3}])
# The same with what may be said besides.
gemma3("six_layers", sliding_window_pattern=..., num_hidden_layers=7, rope_theta=100.0, rope_local_base_freq=50.0,
       rope_scaling={"factor": 8.0, "rope_type": "linear"}, final_logit_softcapping=4.0,
       without=[{"rope_scaling": None}, {"rope_local_base_freq": 100.0}, {"final_logit_softcapping": None}])
gemma3("layer_types", layer_types=[FULL, SLIDING, FULL, SLIDING],
       without=[{"layer_types": [SLIDING, SLIDING, FULL, SLIDING]}])
gemma3("linear", rope_scaling={"factor": 8.0, "rope_type": "linear"}, rope_theta=100.0, rope_local_base_freq=100.0,
       **NO_ROPE_SCALING)
gemma3(
    "both_scaled", style="full", rope_scaling=..., rope_theta=..., rope_local_base_freq=...,
    rope_parameters={
        FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
        SLIDING: {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0},
    },
    without=[
        {"rope_parameters": {
            FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
            SLIDING: {"rope_type": "default", "rope_theta": 100.0},
        }},
    ],
)
gemma3("query_scalar", query_pre_attn_scalar=4, without=[{"query_pre_attn_scalar": 16}])
gemma3("final_cap", final_logit_softcapping=4.0, without=[{"final_logit_softcapping": None}])
gemma3("attention_bias", attention_bias=True)
gemma3("untied", tie_word_embeddings=False)
gemma3("gelu", hidden_activation="gelu", without=[{"hidden_activation": "silu"}])
gemma3("within_window", sliding_window=WINDOW * 6, max_model_len=WINDOW * 6)

# --- Norms after attention and MLP ------------------------------------------------------------------------------------

olmo2 = family("olmo2", "Olmo2ForCausalLM", "olmo2", RMS)
olmo2("plain", attention_bias=False)
olmo2("full", style="full", **ODD)
olmo2("tied", tie_word_embeddings=True)
olmo2("attention_bias", attention_bias=True)
olmo2("wide_heads", head_dim=16)
olmo2("one_key_head", num_key_value_heads=1)
olmo2("yarn", rope_scaling=YARN_32, **NO_ROPE_SCALING)

OLMO3 = {**RMS, **FOUR, "rope_theta": 500000.0, "sliding_window": WINDOW}
olmo3 = family("olmo3", "Olmo3ForCausalLM", "olmo3", OLMO3)
olmo3("plain", without=NO_WINDOW)
olmo3("full", style="full", rms_norm_eps=1e-2)
olmo3("layer_types", layer_types=[FULL, SLIDING, FULL, SLIDING], without=[{"layer_types": [SLIDING] * 3 + [FULL]}])
olmo3("yarn", rope_scaling={**YARN_32, "attention_factor": 1.3}, **NO_ROPE_SCALING)
YARN_IN_FULL = {"rope_type": "yarn", "rope_theta": 500.0, **YARN_32}
olmo3(
    "yarn_full", style="full", rope_theta=...,
    rope_parameters={FULL: YARN_IN_FULL, SLIDING: {"rope_type": "default", "rope_theta": 500.0}},
    without=[{"rope_parameters": {FULL: YARN_IN_FULL, SLIDING: YARN_IN_FULL}}],
)
olmo3("attention_bias", attention_bias=True)
olmo3("within_window", sliding_window=WINDOW * 6, max_model_len=WINDOW * 6)

EXAONE = {**RMS, **FOUR, "sliding_window": WINDOW}
exaone4 = family("exaone4", "Exaone4ForCausalLM", "exaone4", EXAONE)
exaone4("plain", without=NO_WINDOW)
exaone4("full", style="full", **ODD)
exaone4("pattern", sliding_window_pattern=2, without=[{"sliding_window_pattern": 4}])
exaone4("layer_types", sliding_window_pattern="LLLG", layer_types=[SLIDING, FULL, FULL, SLIDING],
        without=[{"layer_types": [SLIDING] * 3 + [FULL]}])
exaone4("no_window", sliding_window=None, sliding_window_pattern=None, layer_types=[FULL] * 4)
exaone4("llama3", rope_scaling=LLAMA3, rope_theta=500.0, **NO_ROPE_SCALING)
exaone4("tied", tie_word_embeddings=True)
exaone4("wide_heads", head_dim=16)

# --- Multipliers ------------------------------------------------------------------------------------------------------

MULTIPLIERS = {
    "attention_multiplier": 0.5, "embedding_multiplier": 2.0, "residual_multiplier": 0.7, "logits_scaling": 1.5,
}
NO_MULTIPLIERS = [{key: 1.0} for key in MULTIPLIERS]
granite = family("granite", "GraniteForCausalLM", "granite", {**RMS, **MULTIPLIERS})
granite("plain", without=NO_MULTIPLIERS)
granite("full", style="full", without=NO_MULTIPLIERS, **ODD)
granite("no_multipliers", **dict.fromkeys(MULTIPLIERS, ...))
granite("biases", attention_bias=True, mlp_bias=True)
granite("tied", tie_word_embeddings=True)
granite("yarn", rope_scaling=YARN_32, **NO_ROPE_SCALING)

granite_moe = family("granitemoe", "GraniteMoeForCausalLM", "granitemoe", {**RMS, **MULTIPLIERS, **EXPERTS})
granite_moe("plain", without=NO_MULTIPLIERS)
granite_moe("full", style="full", **ODD)
granite_moe("three_experts", num_experts_per_tok=3, num_local_experts=6, without=[{"num_experts_per_tok": 2}])
granite_moe("attention_bias", attention_bias=True)

granite_moe_shared = family(
    "granitemoeshared", "GraniteMoeSharedForCausalLM", "granitemoeshared",
    {**RMS, **MULTIPLIERS, **EXPERTS, "shared_intermediate_size": 24},
)
granite_moe_shared("plain", without=NO_MULTIPLIERS)
granite_moe_shared("full", style="full", **ODD)
granite_moe_shared("none_shared", shared_intermediate_size=0)

# --- Llama with other biases, other rotations or other activations ----------------------------------------------------

seed_oss = family("seed_oss", "SeedOssForCausalLM", "seed_oss", {**RMS, "head_dim": 16})
seed_oss("plain", rope_scaling={"rope_type": "default"})
seed_oss("full", style="full", **ODD)
seed_oss("all_biases", attention_bias=True, attention_out_bias=True, mlp_bias=True)
seed_oss("no_bias", attention_bias=False)
seed_oss("heads_unsaid", head_dim=None)
seed_oss("tied", tie_word_embeddings=True)

ernie = family("ernie4_5", "Ernie4_5ForCausalLM", "ernie4_5", {**RMS, "tie_word_embeddings": ..., "head_dim": 16})
ernie("plain")
ernie("full", style="full", **ODD)
ernie("biases", use_bias=True, tie_word_embeddings=False)
ernie("untied", tie_word_embeddings=False)
ernie("default_theta", rope_theta=..., without=[{"rope_theta": 10000.0}])
ernie("heads_unsaid", head_dim=None)
ernie("llama3", rope_scaling=LLAMA3, rope_theta=500.0, **NO_ROPE_SCALING)

glm = family("glm", "GlmForCausalLM", "glm", {**RMS, "head_dim": 16, "pad_token_id": 2})
glm("plain", without=[{"partial_rotary_factor": 1.0}])
glm("full", style="full", partial_rotary_factor=0.25, **ODD)
glm("no_bias", attention_bias=False)
glm("whole_rotary", partial_rotary_factor=1.0, without=[{"partial_rotary_factor": 0.5}])
glm("tied", tie_word_embeddings=True)

hunyuan = family("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", {**RMS, "head_dim": 8})
hunyuan("plain", use_qk_norm=True)
hunyuan("full", style="full", **ODD)
hunyuan("alpha", rope_scaling={"alpha": 50.0, "factor": 1.0, "type": "dynamic"}, head_dim=16, **NO_ROPE_SCALING)
hunyuan("attention_bias", attention_bias=True)
hunyuan("tied", tie_word_embeddings=True)

arcee = family("arcee", "ArceeForCausalLM", "arcee", {**RMS, "hidden_act": ...})
arcee("plain", without=[{"hidden_act": "relu"}])
arcee("full", style="full", **ODD)
arcee("biases", attention_bias=True, mlp_bias=True)
arcee("yarn", rope_scaling=YARN_32, **NO_ROPE_SCALING)

apertus = family("apertus", "ApertusForCausalLM", "apertus", {**RMS, "hidden_act": "xielu"})
apertus("plain")
apertus("full", style="full", **ODD)
apertus("llama3", rope_scaling=LLAMA3, rope_theta=500.0, **NO_ROPE_SCALING)
apertus("default_rope", rope_theta=..., without=[{"rope_theta": 10000.0, "rope_scaling": {"rope_type": "default"}}])
apertus("attention_bias", attention_bias=True)

MINISTRAL = {**RMS, "head_dim": 8, "sliding_window": WINDOW}
ministral = family("ministral", "MinistralForCausalLM", "ministral", MINISTRAL)
ministral("plain", without=NO_WINDOW)
ministral("full", style="full", **ODD)
ministral("layer_types", layer_types=[FULL, SLIDING, FULL], without=[{"layer_types": [SLIDING] * 3}])
ministral("all_full", layer_types=[FULL] * 3)


def scaled_queries(beta=0.5, original=WINDOW):
    """The dictionary of a published model, whose queries grow with each `original` positions."""
    return {
        "beta_fast": 32.0, "beta_slow": 1.0, "factor": 4.0, "llama_4_scaling_beta": beta, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": original, "rope_theta": 10000.0, "rope_type": "yarn",
    }


ministral3 = family(
    "ministral3", "Ministral3ForCausalLM", "ministral3",
    {**RMS, "rope_theta": ..., "head_dim": 16, "rope_parameters": scaled_queries()},
)
ministral3("plain", without=[{"rope_parameters": scaled_queries(0.0)}])
ministral3("full", style="full", rms_norm_eps=1e-2, without=[{"rope_parameters": scaled_queries(0.0)}])
ministral3("no_rope_keys", rope_parameters=...,
           without=[{"rope_parameters": {**scaled_queries(), "rope_type": "default"}}])
ministral3("window", sliding_window=WINDOW, without=[{"sliding_window": None}])
ministral3("tied", tie_word_embeddings=True)

# --- Attention and MLP side by side -----------------------------------------------------------------------------------

COHERE = {**RMS, "rms_norm_eps": ..., "layer_norm_eps": 1e-5, "tie_word_embeddings": ..., "logit_scale": 0.5}
ODD_COHERE = {"layer_norm_eps": 1e-2, "rope_theta": 500.0}
cohere = family("cohere", "CohereForCausalLM", "cohere", COHERE)
cohere("plain", without=[{"logit_scale": 1.0}])
cohere("full", style="full", **ODD_COHERE)
cohere("qk_norm", use_qk_norm=True)
cohere("attention_bias", attention_bias=True)
cohere("untied", tie_word_embeddings=False)
cohere("default_theta", rope_theta=..., without=[{"rope_theta": 10000.0}])

cohere2 = family("cohere2", "Cohere2ForCausalLM", "cohere2", {**COHERE, **FOUR, "sliding_window": WINDOW})
cohere2("plain", without=[{"logit_scale": 1.0}, *NO_WINDOW])
cohere2("full", style="full", **ODD_COHERE)
cohere2("pattern", sliding_window_pattern=2, without=[{"sliding_window_pattern": 4}])
cohere2("layer_types", layer_types=[FULL, SLIDING, SLIDING, FULL], without=[{"layer_types": [SLIDING] * 3 + [FULL]}])
cohere2("default_theta", rope_theta=..., without=[{"rope_theta": 500.0}])

# --- Mixtures of experts ----------------------------------------------------------------------------------------------

mixtral = family("mixtral", "MixtralForCausalLM", "mixtral", {**RMS, **EXPERTS})
mixtral("plain", without=[{"num_experts_per_tok": 1}])
mixtral("wide_heads", head_dim=16)
mixtral("default_theta", rope_theta=..., without=[{"rope_theta": 10000.0}])

gpt_oss = family(
    "gpt_oss", "GptOssForCausalLM", "gpt_oss",
    {**RMS, **FOUR, "head_dim": 16, "num_experts_per_tok": 2, "num_local_experts": 4, "sliding_window": WINDOW},
)
gpt_oss("plain", rope_scaling={**YARN, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}, without=NO_WINDOW)
gpt_oss("no_rope_keys", rope_theta=..., without=[{"rope_theta": 150000.0, "rope_scaling": {"rope_type": "default"}}])
gpt_oss("limit", swiglu_limit=0.3, without=[{"swiglu_limit": 7.0}])
gpt_oss("alpha", swiglu_alpha=0.5, without=[{"swiglu_alpha": 1.702}])
gpt_oss("layer_types", layer_types=[FULL, SLIDING, SLIDING, FULL], without=[{"layer_types": [SLIDING, FULL] * 2}])
gpt_oss("no_bias", attention_bias=False)
TRUNCATED = {**YARN, "beta_fast": 4.0, "beta_slow": 1.0, "original_max_position_embeddings": 32, "truncate": True}
gpt_oss("truncate", rope_scaling=TRUNCATED, without=[{"rope_scaling": {**TRUNCATED, "truncate": False}}])

GLM4_MOE = {
    **RMS, "first_k_dense_replace": 1, "head_dim": 8, "moe_intermediate_size": 24, "n_group": 1, "n_routed_experts": 8,
    "n_shared_experts": 1, "norm_topk_prob": True, "num_experts_per_tok": 2, "partial_rotary_factor": 0.5,
    "routed_scaling_factor": 1.0, "topk_group": 1,
}
glm4_moe = family("glm4_moe", "Glm4MoeForCausalLM", "glm4_moe", GLM4_MOE)
glm4_moe("plain", without=[{"partial_rotary_factor": 1.0}, {"norm_topk_prob": False}])
glm4_moe(
    "published", attention_bias=True, use_qk_norm=True, routed_scaling_factor=2.5, num_nextn_predict_layers=1,
    without=[{"routed_scaling_factor": 1.0}],
)
glm4_moe("full", style="full", attention_bias=True, use_qk_norm=True, routed_scaling_factor=2.5, **ODD)
glm4_moe("grouped", n_group=4, topk_group=2, without=[{"n_group": 1, "topk_group": 1}, {"topk_group": 3}])
glm4_moe("not_normalised", norm_topk_prob=False, routed_scaling_factor=1.5,
         without=[{"norm_topk_prob": True}, {"routed_scaling_factor": 1.0}])
glm4_moe("rotary_unsaid", partial_rotary_factor=..., without=[{"partial_rotary_factor": 1.0}])
glm4_moe("whole_rotary", partial_rotary_factor=1.0, without=[{"partial_rotary_factor": 0.5}])
glm4_moe("heads_unsaid", head_dim=..., num_attention_heads=2, num_key_value_heads=1)
glm4_moe("two_shared", n_shared_experts=2, first_k_dense_replace=2)

ernie_moe = family(
    "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", "ernie4_5_moe",
    {
        **RMS, "tie_word_embeddings": ..., "moe_intermediate_size": 24, "moe_k": 2, "moe_num_experts": 8,
        "moe_num_shared_experts": 1,
    },
)
ernie_moe("plain", without=[{"moe_k": 1}])
ernie_moe("full", style="full", **ODD)
ernie_moe("biases", use_bias=True, tie_word_embeddings=False)
ernie_moe("two_shared", moe_num_shared_experts=2)
ernie_moe("none_shared", moe_num_shared_experts=0)
ernie_moe("interval", moe_layer_interval=2, moe_layer_start_index=0, **FOUR)
ernie_moe("some_layers", moe_layer_start_index=2, moe_layer_end_index=2, **FOUR)
ernie_moe("norm_min", moe_norm_min=0.5, without=[{"moe_norm_min": 1e-12}])

hunyuan_moe = family(
    "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe",
    {**RMS, "head_dim": 8, "moe_topk": 2, "num_experts": 8},
)
hunyuan_moe("plain", without=[{"moe_topk": 1}])
hunyuan_moe("full", style="full", **ODD)
hunyuan_moe("three_experts", moe_topk=3, num_experts=6)

minimax = family(
    "minimax_m2", "MiniMaxM2ForCausalLM", "minimax_m2", {**RMS, **EXPERTS, "head_dim": 16, "rotary_dim": 8}
)
minimax("plain", without=[{"rotary_dim": 16}])
minimax(
    "published", attn_type_list=[1, 1, 1], qk_norm_type="per_layer", scoring_func="sigmoid", use_qk_norm=True,
    use_routing_bias=True, shared_intermediate_size=0, use_mtp=True, num_mtp_modules=1,
)
minimax("full", style="full", **ODD)
minimax("whole_rotary", rotary_dim=..., without=[{"rotary_dim": 8}])
minimax("three_experts", num_experts_per_tok=3, num_local_experts=6, without=[{"num_experts_per_tok": 2}])

QWEN_MOE = {
    **RMS, "decoder_sparse_step": 1, "moe_intermediate_size": 24, "norm_topk_prob": False, "num_experts": 8,
    "num_experts_per_tok": 2, "shared_expert_intermediate_size": 24,
}
qwen2_moe = family("qwen2_moe", "Qwen2MoeForCausalLM", "qwen2_moe", QWEN_MOE)
qwen2_moe("plain", use_sliding_window=False, sliding_window=WINDOW, max_window_layers=2,
          without=[{"norm_topk_prob": True}])
qwen2_moe("full", style="full", **ODD)
qwen2_moe("normalised", norm_topk_prob=True, without=[{"norm_topk_prob": False}])
qwen2_moe("dense_layer", mlp_only_layers=[1])
qwen2_moe("sparse_step", decoder_sparse_step=2, **FOUR)
qwen2_moe("no_bias", qkv_bias=False)
qwen2_moe("layer_types", use_sliding_window=True, sliding_window=WINDOW, layer_types=[FULL, SLIDING, FULL],
          without=[{"layer_types": [FULL] * 3}])

olmoe = family("olmoe", "OlmoeForCausalLM", "olmoe", {**RMS, "num_experts": 8, "num_experts_per_tok": 2})
olmoe("plain", without=[{"norm_topk_prob": True}])
olmoe("full", style="full", **ODD)
olmoe("normalised", norm_topk_prob=True, without=[{"norm_topk_prob": False}])
olmoe("clip", clip_qkv=0.6, without=[{"clip_qkv": None}])
olmoe("attention_bias", attention_bias=True)

LLAMA4 = {
    **RMS, **FOUR, "head_dim": 16, "intermediate_size": 24, "intermediate_size_mlp": 48, "num_local_experts": 4,
    "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": WINDOW, "floor_scale": 8,
    "attn_scale": 0.5,
}
llama4 = family("llama4", "Llama4ForCausalLM", "llama4_text", LLAMA4)
llama4("plain", without=[{"attention_chunk_size": 256}, {"attn_temperature_tuning": False}, {"use_qk_norm": False}])
llama4("full", style="full", **ODD)
llama4("every_layer_mixed", interleave_moe_layer_step=1)
llama4("two_experts", num_experts_per_tok=2, without=[{"num_experts_per_tok": 1}])
llama4("moe_layers", moe_layers=[0, 3])
llama4("no_tuning", attn_temperature_tuning=False, without=[{"attn_temperature_tuning": True}])
llama4("no_qk_norm", use_qk_norm=False, without=[{"use_qk_norm": True}])
llama4("no_rope_layers", no_rope_layers=[0, 1, 1, 0], without=[{"no_rope_layers": [1, 1, 1, 0]}])
llama4("interval", no_rope_layers=[], no_rope_layer_interval=2, without=[{"no_rope_layer_interval": 4}])
llama4("llama3", rope_scaling=LLAMA3, rope_theta=500.0, **NO_ROPE_SCALING)
llama4("attention_bias", attention_bias=True)
llama4("default_theta", rope_theta=..., without=[{"rope_theta": 10000.0}])
llama4("linear", rope_scaling=LINEAR, **NO_ROPE_SCALING)
# As Scout has them: no wave lies between the long ones and the short ones.
llama4("abrupt_llama3", rope_scaling={**LLAMA3, "high_freq_factor": 1.0}, rope_theta=500.0, **NO_ROPE_SCALING)
RELEASED = {"attention_chunk_size": 8192, "attn_scale": 0.1, "floor_scale": 8192}
llama4("released", rope_theta=500000.0, rope_scaling={
    "factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}, **RELEASED)
llama4("released_unscaled", **RELEASED, interleave_moe_layer_step=1, tie_word_embeddings=True)
llama4("released_biases", **RELEASED, attention_bias=True)
llama4("released_many_experts", **RELEASED, num_local_experts=128, use_qk_norm=False, intermediate_size=4)
