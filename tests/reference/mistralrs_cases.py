"""The models that mistral.rs is compared with transformers on: every text architecture that it knows, in variants.

Owns: CASES.
"""

from variants import DYNAMIC, LINEAR, LLAMA3, LONG, NO_ROPE_SCALING, ODD, RMS, WINDOW, YARN, families, longrope

CASES = []
family = families(CASES)

# --- The families that the native engine serves ----------------------------------------------------------------------

llama = family("llama", "LlamaForCausalLM", "llama", RMS)
llama("")
llama("full", style="full", **ODD)
llama("long", **LONG)
# As `tito convert` writes it.
llama("window_null", sliding_window=None)
llama("tied", tie_word_embeddings=True)
llama("all_heads_apart", num_key_value_heads=4)
llama("one_key_head", num_key_value_heads=1)
llama("wide_heads", head_dim=16)
llama("linear", rope_scaling=LINEAR, **NO_ROPE_SCALING)
llama("linear_old_spelling", rope_scaling={"factor": 2.0, "type": "linear"}, **NO_ROPE_SCALING)
llama("dynamic", rope_scaling=DYNAMIC, max_position_embeddings=32)
llama("yarn", rope_scaling=YARN, **NO_ROPE_SCALING)
llama("llama3", rope_scaling=LLAMA3, rope_theta=500.0, **NO_ROPE_SCALING)
llama(
    "llama3_full", style="full", rope_scaling={**LLAMA3, "factor": 16.0, "low_freq_factor": 0.5, "high_freq_factor": 3.0},
    rope_theta=500.0, without=[{"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}],
)
llama("attention_bias", attention_bias=True)
llama("mlp_bias", mlp_bias=True)
llama("gelu", hidden_act="gelu")

mistral = family("mistral", "MistralForCausalLM", "mistral", {**RMS, "sliding_window": None})
mistral("")
mistral("full", style="full", **ODD)
mistral("tied", tie_word_embeddings=True)
mistral("wide_heads", head_dim=16)
mistral("window", sliding_window=WINDOW, without=[{"sliding_window": None}])
mistral("within_window", sliding_window=WINDOW * 6, max_model_len=WINDOW * 6)
mistral("yarn", rope_scaling=YARN, **NO_ROPE_SCALING)

qwen2 = family("qwen2", "Qwen2ForCausalLM", "qwen2", RMS)
qwen2("")
qwen2("full", style="full", **ODD)
qwen2("tied", tie_word_embeddings=True)
qwen2("unused_window", sliding_window=WINDOW, use_sliding_window=False, max_window_layers=2)
qwen2("window", sliding_window=WINDOW, use_sliding_window=True, max_window_layers=0, without=[{"use_sliding_window": False}])
qwen2("yarn", rope_scaling=YARN, **NO_ROPE_SCALING)

qwen3 = family("qwen3", "Qwen3ForCausalLM", "qwen3", {**RMS, "head_dim": 8})
qwen3("")
qwen3("full", style="full", **ODD)
qwen3("tied", tie_word_embeddings=True)
qwen3("wide_heads", head_dim=16)
qwen3("attention_bias", attention_bias=True)
qwen3("unused_window", sliding_window=WINDOW, use_sliding_window=False, max_window_layers=2)
qwen3("window", sliding_window=WINDOW, use_sliding_window=True, max_window_layers=0, without=[{"use_sliding_window": False}])
qwen3("yarn", rope_scaling=YARN, **NO_ROPE_SCALING)

qwen3_moe = family(
    "qwen3_moe", "Qwen3MoeForCausalLM", "qwen3_moe",
    {
        **RMS, "decoder_sparse_step": 1, "head_dim": 8, "mlp_only_layers": [], "moe_intermediate_size": 24,
        "norm_topk_prob": True, "num_experts": 8, "num_experts_per_tok": 2,
    },
)
qwen3_moe("")
qwen3_moe("full", style="full", **ODD)
qwen3_moe("tied", tie_word_embeddings=True)
qwen3_moe("wide_heads", head_dim=16)
qwen3_moe("not_normalised", norm_topk_prob=False, without=[{"norm_topk_prob": True}])
qwen3_moe("three_experts", num_experts_per_tok=3, num_experts=6)
qwen3_moe("dense_layer", mlp_only_layers=[1])
qwen3_moe("sparse_step", decoder_sparse_step=2)

smollm3 = family(
    "smollm3", "SmolLM3ForCausalLM", "smollm3",
    {**RMS, "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4, "pad_token_id": 2},
)
smollm3("")
smollm3("full", style="full", **ODD)
smollm3("tied", tie_word_embeddings=True)
smollm3("interval", no_rope_layers=..., no_rope_layer_interval=2, without=[{"no_rope_layer_interval": 4}])
smollm3("other_layers", no_rope_layers=[0, 1, 1, 1], without=[{"no_rope_layers": [1, 1, 1, 0]}])
smollm3("linear", rope_scaling=LINEAR, **NO_ROPE_SCALING)
smollm3("llama3", rope_scaling=LLAMA3, rope_theta=500.0, **NO_ROPE_SCALING)
smollm3("yarn", rope_scaling=YARN, **NO_ROPE_SCALING)
smollm3("attention_bias", attention_bias=True)

# --- The families that mistral.rs alone knows ------------------------------------------------------------------------

GEMMA = {**RMS, "head_dim": 16, "hidden_act": ..., "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False}
gemma = family("gemma", "GemmaForCausalLM", "gemma", {**GEMMA, "tie_word_embeddings": True})
gemma("")
gemma("full", style="full", **ODD)
gemma("long", **LONG)
gemma("untied", tie_word_embeddings=False)
gemma("old_spelling", hidden_activation=..., hidden_act="gelu_pytorch_tanh")
gemma("both_spellings", hidden_act="gelu", hidden_activation="gelu_pytorch_tanh")
gemma("act_gelu", hidden_act="gelu", hidden_activation=...)
gemma("attention_bias", attention_bias=True)
gemma("published", hidden_act="gelu_pytorch_tanh", tie_word_embeddings=...)
gemma("heads_of_8", head_dim=8)
gemma("one_key_head", num_key_value_heads=1)

gemma2 = family(
    "gemma2", "Gemma2ForCausalLM", "gemma2",
    {
        **GEMMA, "tie_word_embeddings": True, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        "query_pre_attn_scalar": 16, "sliding_window": WINDOW * 6, "num_hidden_layers": 4,
    },
)
gemma2("within_window", max_model_len=WINDOW * 6)
gemma2("within_window_full", style="full", max_model_len=WINDOW * 6, **ODD)
gemma2(
    "published", hidden_act="gelu_pytorch_tanh", tie_word_embeddings=..., cache_implementation="hybrid",
    max_model_len=WINDOW * 6,
)
gemma2("window", sliding_window=WINDOW, without=[{"sliding_window": 4096}])
gemma2("long", **LONG, sliding_window=1280, max_model_len=1280)
gemma2("untied", tie_word_embeddings=False, max_model_len=WINDOW * 6)
gemma2("other_caps", attn_logit_softcapping=5.0, final_logit_softcapping=12.0, max_model_len=WINDOW * 6)
gemma2("no_caps", attn_logit_softcapping=None, final_logit_softcapping=None, max_model_len=WINDOW * 6)
gemma2("query_scalar", query_pre_attn_scalar=9, max_model_len=WINDOW * 6, without=[{"query_pre_attn_scalar": 16}])
gemma2("attention_bias", attention_bias=True, max_model_len=WINDOW * 6)
gemma2("one_key_head", num_key_value_heads=1, max_model_len=WINDOW * 6)

phi = family(
    "phi", "PhiForCausalLM", "phi",
    {
        **RMS, "rms_norm_eps": ..., "layer_norm_eps": 1e-5, "hidden_act": "gelu_new", "partial_rotary_factor": 0.5,
        "qk_layernorm": False, "num_key_value_heads": 4,
    },
)
phi("")
phi("full", style="full", layer_norm_eps=1e-2, rope_theta=500.0)
phi("long", **LONG)
phi("tied", tie_word_embeddings=True)
phi("key_heads", num_key_value_heads=2)
phi("key_heads_unsaid", num_key_value_heads=None)
phi("quarter_rotary", partial_rotary_factor=0.25)
phi("whole_rotary", partial_rotary_factor=1.0)
phi("qk_layernorm", qk_layernorm=True)
phi("linear", rope_scaling=LINEAR, **NO_ROPE_SCALING)

phi3 = family(
    "phi3", "Phi3ForCausalLM", "phi3",
    {**RMS, "original_max_position_embeddings": 256, "sliding_window": None, "pad_token_id": 2},
)
phi3("")
phi3("full", style="full", **ODD)
phi3(
    "published", attention_bias=False, attention_dropout=0.0, embd_pdrop=0.0, resid_pdrop=0.0, rope_scaling=None,
    sliding_window=2047,
)
phi3("long", **LONG)
phi3("tied", tie_word_embeddings=True)
phi3("all_heads_apart", num_key_value_heads=4, original_max_position_embeddings=128)
phi3("partial_rotary", partial_rotary_factor=0.75, hidden_size=64)
phi3("window", sliding_window=WINDOW, without=[{"sliding_window": None}])
phi3("within_window", sliding_window=WINDOW * 6, max_model_len=WINDOW * 6)
phi3("longrope", rope_scaling=longrope(4), original_max_position_embeddings=32, **NO_ROPE_SCALING)
phi3(
    "longrope_within_original", rope_scaling=longrope(4), original_max_position_embeddings=128, max_model_len=96,
    **NO_ROPE_SCALING,
)
phi3(
    "longrope_within_original_full", style="full", rope_scaling=longrope(4), original_max_position_embeddings=96,
    max_model_len=96,
)
phi3(
    "longrope_within_original_partial", rope_scaling={**longrope(6), "type": "longrope"}, partial_rotary_factor=0.75,
    hidden_size=64, original_max_position_embeddings=128, max_model_len=128, **NO_ROPE_SCALING,
)
phi3("longrope_partial", rope_scaling=longrope(6), partial_rotary_factor=0.75, hidden_size=64,
     original_max_position_embeddings=32, **NO_ROPE_SCALING)

starcoder2 = family(
    "starcoder2", "Starcoder2ForCausalLM", "starcoder2",
    {
        **RMS, "rms_norm_eps": ..., "norm_epsilon": 1e-5, "hidden_act": "gelu_pytorch_tanh", "use_bias": True,
        "sliding_window": None, "tie_word_embeddings": True,
    },
)
starcoder2("")
starcoder2("full", style="full", norm_epsilon=1e-2, rope_theta=500.0)
# Keys of bigcode's configs that transformers does not read.
PUBLISHED = {
    "activation_function": "gelu", "attention_softmax_in_fp32": True, "embedding_dropout": 0.1,
    "layer_norm_epsilon": 1e-5, "mlp_type": "default", "norm_type": "layer_norm", "residual_dropout": 0.1,
    "scale_attention_softmax_in_fp32": True, "scale_attn_weights": True, "sliding_window": 4096,
    "tie_word_embeddings": ...,
}
starcoder2("published", **PUBLISHED)
starcoder2("published_epsilons", **{**PUBLISHED, "layer_norm_epsilon": 1e-2})
starcoder2("long", **LONG)
starcoder2("untied", tie_word_embeddings=False)
starcoder2("no_bias", use_bias=False)
starcoder2("gelu", hidden_act="gelu", without=[{"hidden_act": "relu"}])
starcoder2("window", sliding_window=WINDOW, without=[{"sliding_window": None}])
starcoder2("within_window", sliding_window=WINDOW * 6, max_model_len=WINDOW * 6)

glm4 = family(
    "glm4", "Glm4ForCausalLM", "glm4",
    {**RMS, "attention_bias": False, "head_dim": 8, "partial_rotary_factor": 0.5, "pad_token_id": 2},
)
glm4("")
glm4("full", style="full", **ODD)
glm4("long", **LONG)
glm4("tied", tie_word_embeddings=True)
glm4("attention_bias", attention_bias=True)
glm4("wide_heads", head_dim=16)
glm4("whole_rotary", partial_rotary_factor=1.0)
glm4("linear", rope_scaling=LINEAR, **NO_ROPE_SCALING)

# --- Mixtures of experts and hybrids ---------------------------------------------------------------------------------

mixtral = family(
    "mixtral", "MixtralForCausalLM", "mixtral",
    {**RMS, "num_experts_per_tok": 2, "num_local_experts": 8, "sliding_window": None},
)
mixtral("")
mixtral("full", style="full", **ODD)
mixtral("tied", tie_word_embeddings=True)
mixtral("long", **LONG)
mixtral("three_experts", num_experts_per_tok=3, num_local_experts=6)
mixtral("within_window", sliding_window=WINDOW * 6, max_model_len=WINDOW * 6)
mixtral("window", sliding_window=WINDOW, without=[{"sliding_window": None}])

phimoe = family(
    "phimoe", "PhiMoEForCausalLM", "phimoe",
    {
        **RMS, "attention_bias": False, "lm_head_bias": False, "num_experts_per_tok": 2, "num_local_experts": 8,
        "original_max_position_embeddings": 256, "sliding_window": None, "router_jitter_noise": 0.01,
        "input_jitter_noise": 0.0,
    },
)
phimoe("")
phimoe("full", style="full", **ODD)
phimoe("biases", attention_bias=True, lm_head_bias=True)
phimoe("window", sliding_window=WINDOW, without=[{"sliding_window": None}])
phimoe(
    "longrope", original_max_position_embeddings=32,
    rope_scaling={**longrope(4), "short_mscale": 1.2, "long_mscale": 1.3, "original_max_position_embeddings": 32},
    **NO_ROPE_SCALING,
)

DEEPSEEK = {
    **RMS, "attention_bias": False, "first_k_dense_replace": 1, "kv_lora_rank": 16, "moe_intermediate_size": 24,
    "n_group": 1, "n_routed_experts": 8, "n_shared_experts": 1, "norm_topk_prob": False, "num_experts_per_tok": 2,
    "num_key_value_heads": 4, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "routed_scaling_factor": 1.0,
    "topk_group": 1, "v_head_dim": 8,
}
deepseek_v2 = family(
    "deepseek_v2", "DeepseekV2ForCausalLM", "deepseek_v2",
    {**DEEPSEEK, "q_lora_rank": None, "topk_method": "greedy", "moe_layer_freq": 1, "scoring_func": "softmax"},
)
deepseek_v2("")
deepseek_v2("full", style="full", **ODD)
deepseek_v2("dense", first_k_dense_replace=3)
deepseek_v2("q_lora", q_lora_rank=24)
deepseek_v2("grouped", topk_method="group_limited_greedy", n_group=4, topk_group=2)
deepseek_v2("yarn", rope_scaling={**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}, **NO_ROPE_SCALING)

deepseek_v3 = family(
    "deepseek_v3", "DeepseekV3ForCausalLM", "deepseek_v3",
    {
        **DEEPSEEK, "norm_topk_prob": True, "q_lora_rank": 24, "n_group": 4, "topk_group": 2,
        "routed_scaling_factor": 2.5, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1,
    },
)
deepseek_v3("")
deepseek_v3("full", style="full", **ODD)
deepseek_v3("dense", first_k_dense_replace=3)
deepseek_v3("yarn", rope_scaling={**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}, **NO_ROPE_SCALING)

glm4_moe = family(
    "glm4_moe", "Glm4MoeForCausalLM", "glm4_moe",
    {
        **RMS, "attention_bias": False, "first_k_dense_replace": 1, "head_dim": 8, "moe_intermediate_size": 24,
        "n_group": 1, "n_routed_experts": 8, "n_shared_experts": 1, "norm_topk_prob": True, "num_experts_per_tok": 2,
        "partial_rotary_factor": 0.5, "routed_scaling_factor": 1.0, "topk_group": 1, "use_qk_norm": False,
    },
)
glm4_moe("")
glm4_moe("full", style="full", **ODD)
glm4_moe("dense", first_k_dense_replace=3)
glm4_moe("qk_norm", use_qk_norm=True)

glm4_moe_lite = family(
    "glm4_moe_lite", "Glm4MoeLiteForCausalLM", "glm4_moe_lite",
    {**DEEPSEEK, "norm_topk_prob": True, "q_lora_rank": 24, "routed_scaling_factor": 1.8},
)
glm4_moe_lite("")
glm4_moe_lite("full", style="full", **ODD)

granite = family(
    "granitemoehybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid",
    {
        **RMS, "attention_multiplier": 0.35, "embedding_multiplier": 2.0, "residual_multiplier": 0.7,
        "logits_scaling": 1.5, "layer_types": ["attention"] * 3, "num_local_experts": 0, "num_experts_per_tok": 0,
        "position_embedding_type": "rope", "shared_intermediate_size": 48, "mamba_n_heads": 8, "mamba_d_head": 8,
        "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_expand": 2, "attention_bias": False,
    },
)
granite("attention")
granite("no_position", position_embedding_type="nope")
granite("mamba", layer_types=["mamba", "attention", "mamba"])
granite("experts", num_local_experts=4, num_experts_per_tok=2)

gpt_oss = family(
    "gpt_oss", "GptOssForCausalLM", "gpt_oss",
    {
        **RMS, "attention_bias": True, "head_dim": 16, "num_experts_per_tok": 2, "num_local_experts": 4,
        "sliding_window": WINDOW, "num_hidden_layers": 4, "swiglu_limit": 7.0,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_scaling": {**YARN, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
    },
)
gpt_oss("")
gpt_oss("full", style="full", **ODD)
gpt_oss("no_scaling", rope_scaling=None)
gpt_oss("within_window", sliding_window=WINDOW * 6, max_model_len=WINDOW * 6, rope_scaling=None)

qwen3_next = family(
    "qwen3_next", "Qwen3NextForCausalLM", "qwen3_next",
    {
        **RMS, "decoder_sparse_step": 1, "head_dim": 16, "mlp_only_layers": [], "moe_intermediate_size": 24,
        "norm_topk_prob": True, "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 4,
        "partial_rotary_factor": 0.25, "shared_expert_intermediate_size": 24, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 8,
        "full_attention_interval": 4,
    },
)
qwen3_next("")
qwen3_next("full", style="full", **ODD)
