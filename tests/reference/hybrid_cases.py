"""Families with recurrent layers: gated delta rules, Mamba2 and short convolutions, most of them beside attention.

Owns: CASES. The recurrences are computed in chunks of 64 tokens, or of as many as a setting says, so that prompts go on
past the border of the second of these.
"""

from variants import LENGTHS, ODD, RMS, families

CASES = []
family = families(CASES)

CHUNKS = (*LENGTHS, 130)
FULL = "full_attention"
RECURRENT = "linear_attention"
FOUR = {"num_hidden_layers": 4}

# --- Gated delta rules ------------------------------------------------------------------------------------------------

DELTA = {
    **RMS, **FOUR, "head_dim": 16, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_value_head_dim": 8, "full_attention_interval": 4,
}
DELTA_EXPERTS = {
    **DELTA, "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 24,
}
NORMALISED = [{"norm_topk_prob": True}]
qwen3_next = family("qwen3_next", "Qwen3NextForCausalLM", "qwen3_next", DELTA_EXPERTS, CHUNKS)
qwen3_next("plain", without=[{"partial_rotary_factor": 1.0}, {"norm_topk_prob": False}])
qwen3_next("full", style="full", **ODD)
qwen3_next("layer_types", layer_types=[FULL, RECURRENT, RECURRENT, FULL])
qwen3_next("interval", full_attention_interval=2)
qwen3_next("not_normalised", norm_topk_prob=False, without=NORMALISED)
qwen3_next("dense_layer", mlp_only_layers=[1])
qwen3_next("wide_values", linear_value_head_dim=16, linear_num_value_heads=2)
qwen3_next("one_key_head", linear_num_key_heads=1)
qwen3_next("kernel", linear_conv_kernel_dim=2)
qwen3_next("attention_bias", attention_bias=True)
qwen3_next("half_rotary", partial_rotary_factor=0.5, without=[{"partial_rotary_factor": 0.25}])

MROPE = {"mrope_interleaved": True, "mrope_section": [1, 1, 0], "rope_theta": 10000.0, "rope_type": "default"}
qwen3_5 = family("qwen3_5", "Qwen3_5ForCausalLM", "qwen3_5_text", DELTA, CHUNKS)
qwen3_5("plain", without=[{"partial_rotary_factor": 1.0}])
qwen3_5("full", style="full", **ODD)
qwen3_5("mrope", rope_theta=..., rope_parameters={**MROPE, "partial_rotary_factor": 0.25},
        without=[{"rope_parameters": {**MROPE, "partial_rotary_factor": 0.5}}])
qwen3_5("layer_types", layer_types=[FULL, RECURRENT, RECURRENT, FULL])
qwen3_5("interval", full_attention_interval=2)
qwen3_5("wide_values", linear_value_head_dim=16, linear_num_value_heads=2)
qwen3_5("three_values_a_key", linear_num_value_heads=6)
qwen3_5("attention_bias", attention_bias=True)
qwen3_5("tied", tie_word_embeddings=True)

qwen3_5_moe = family("qwen3_5_moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", DELTA_EXPERTS, CHUNKS)
qwen3_5_moe("plain", without=[{"num_experts_per_tok": 1}])
qwen3_5_moe("full", style="full", **ODD)
qwen3_5_moe("three_experts", num_experts_per_tok=3, num_experts=6)

KIMI = {
    **RMS, **FOUR, "rope_theta": ..., "max_position_embeddings": ..., "model_max_length": 256,
    "first_k_dense_replace": 1, "kv_lora_rank": 16, "q_lora_rank": None, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 12, "num_key_value_heads": 4, "moe_intermediate_size": 24, "moe_renormalize": True, "num_experts": 8,
    "num_experts_per_token": 2, "num_shared_experts": 1, "num_expert_group": 1, "topk_group": 1,
    "routed_scaling_factor": 1.0, "pad_token_id": 2,
    "linear_attn_config": {
        "full_attn_layers": [4], "head_dim": 8, "kda_layers": [1, 2, 3], "num_heads": 4, "short_conv_kernel_size": 4,
    },
}
# This release writes dense layers as if they were mixtures.
DENSE = (r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj")
# Few prompts, since the recurrence is slow here.
kimi = family("kimi_linear", "KimiLinearForCausalLM", "kimi_linear", KIMI, (1, 17, 72, 130), DENSE)
kimi("plain", without=[{"routed_scaling_factor": 2.446}, {"moe_renormalize": False}])
kimi("full", style="full", rms_norm_eps=1e-2)
kimi("grouped", num_expert_group=4, topk_group=2, without=[{"num_expert_group": 1, "topk_group": 1}])
kimi("layers", linear_attn_config={
    "full_attn_layers": [1, 3], "head_dim": 16, "kda_layers": [2, 4], "num_heads": 2, "short_conv_kernel_size": 3,
})
kimi("not_normalised", moe_renormalize=False, without=[{"moe_renormalize": True}])
kimi("scaled", routed_scaling_factor=0.5, without=[{"routed_scaling_factor": 1.0}])
kimi("q_lora", q_lora_rank=24)

# --- Mamba2 -----------------------------------------------------------------------------------------------------------

NEMOTRON = {
    **RMS, "hidden_act": ..., "rms_norm_eps": ..., "rope_theta": ..., "num_hidden_layers": ...,
    "layer_norm_epsilon": 1e-5, "head_dim": 16, "hybrid_override_pattern": "M-M*-", "mlp_hidden_act": "relu2",
    "ssm_state_size": 16, "n_groups": 2, "mamba_num_heads": 8, "mamba_head_dim": 8, "conv_kernel": 4, "chunk_size": 64,
}
NEMOTRON_EXPERTS = {
    "hybrid_override_pattern": "ME*E", "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 32, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
    "routed_scaling_factor": 2.5, "n_shared_experts": 1,
}
nemotron = family("nemotron_h", "NemotronHForCausalLM", "nemotron_h", NEMOTRON, CHUNKS)
nemotron("plain", without=[{"mlp_hidden_act": "relu"}])
nemotron("full", style="full", layer_norm_epsilon=1e-2)
nemotron("published", num_hidden_layers=5, attention_bias=False, expand=2, hidden_dropout=0.0, mamba_proj_bias=False,
         residual_in_fp32=False, time_step_limit=[0.0, 1e30], use_bias=False, use_conv_bias=True)
nemotron("one_group", n_groups=1)
nemotron("biases", use_bias=True, mlp_bias=True)
nemotron("no_conv_bias", use_conv_bias=False)
nemotron("small_chunks", chunk_size=16)
nemotron("least_steps", time_step_min=0.5, without=[{"time_step_min": 0.001}])
nemotron("experts", **NEMOTRON_EXPERTS, without=[{"routed_scaling_factor": 1.0}, {"norm_topk_prob": False}])
nemotron("experts_full", style="full", layer_norm_epsilon=1e-2, **NEMOTRON_EXPERTS)
nemotron("latent_experts", **NEMOTRON_EXPERTS, moe_latent_size=16)
nemotron("grouped_experts", **{**NEMOTRON_EXPERTS, "n_group": 4, "topk_group": 2},
         without=[{"n_group": 1, "topk_group": 1}])

MAMBA = {
    **RMS, "mamba_chunk_size": 64, "mamba_d_conv": 4, "mamba_d_head": 8, "mamba_d_state": 16, "mamba_expand": 2,
    "mamba_n_groups": 1, "mamba_n_heads": 8,
}
FALCON_MULTIPLIERS = {
    "attention_in_multiplier": 0.9, "attention_out_multiplier": 0.7, "embedding_multiplier": 1.5, "key_multiplier": 0.6,
    "lm_head_multiplier": 0.8, "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.6,
}
MLP_MULTIPLIERS = {"mlp_multipliers": [0.8, 0.6]}
SSM_MULTIPLIERS = {"ssm_multipliers": [0.7, 0.8, 0.9, 1.1, 1.2]}
falcon = family(
    "falcon_h1", "FalconH1ForCausalLM", "falcon_h1",
    {**MAMBA, **FALCON_MULTIPLIERS, **MLP_MULTIPLIERS, **SSM_MULTIPLIERS, "mamba_d_ssm": 64}, CHUNKS,
)
falcon("plain", without=[
    *({key: 1.0} for key in FALCON_MULTIPLIERS), {"mlp_multipliers": [1.0, 0.6]}, {"mlp_multipliers": [0.8, 1.0]},
    *({"ssm_multipliers": [*SSM_MULTIPLIERS["ssm_multipliers"][:i], 1.0, *SSM_MULTIPLIERS["ssm_multipliers"][i + 1 :]]}
      for i in range(5)),
])
falcon("full", style="full", **ODD)
falcon("norm_before_gate", mamba_rms_norm=True, mamba_n_groups=2, without=[{"mamba_norm_before_gate": False}])
falcon("norm_after_gate", mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_n_groups=2)
falcon("no_multipliers", **dict.fromkeys([*FALCON_MULTIPLIERS, *MLP_MULTIPLIERS, *SSM_MULTIPLIERS], ...))
falcon("biases", attention_bias=True, mamba_proj_bias=True, mlp_bias=True, projectors_bias=True)
falcon("no_conv_bias", mamba_conv_bias=False)
falcon("narrow", mamba_d_ssm=32, mamba_n_heads=4)
falcon("width_unsaid", mamba_d_ssm=None)

bamba = family("bamba", "BambaForCausalLM", "bamba", {**MAMBA, "attn_layer_indices": [1]}, CHUNKS)
bamba("plain")
bamba("full", style="full", **ODD)
bamba("groups", mamba_n_groups=2)
bamba("other_layers", attn_layer_indices=[0, 2])
bamba("biases", attention_bias=True, mamba_proj_bias=True, mlp_bias=True)
bamba("no_conv_bias", mamba_conv_bias=False)

MULTIPLIERS = {
    "attention_multiplier": 0.5, "embedding_multiplier": 2.0, "residual_multiplier": 0.7, "logits_scaling": 1.5,
}
granite = family(
    "granitemoehybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid",
    {
        **MAMBA, **MULTIPLIERS, **FOUR, "layer_types": ["mamba", "attention", "mamba", "mamba"], "num_local_experts": 0,
        "num_experts_per_tok": 0, "position_embedding_type": "nope", "shared_intermediate_size": 48,
    },
    CHUNKS,
)
granite("plain", without=[{key: 1.0} for key in MULTIPLIERS])
granite("full", style="full", **ODD)
granite("rope", position_embedding_type="rope", without=[{"position_embedding_type": "nope"}])
granite("groups", mamba_n_groups=2)
granite("biases", attention_bias=True, mamba_proj_bias=True)
granite("experts", num_local_experts=4, num_experts_per_tok=2, without=[{"num_experts_per_tok": 1}])

# --- Short convolutions -----------------------------------------------------------------------------------------------

LFM2 = {
    **RMS, **FOUR, "hidden_act": ..., "rms_norm_eps": ..., "tie_word_embeddings": ..., "norm_eps": 1e-5,
    "conv_L_cache": 3, "layer_types": ["conv", FULL, "conv", FULL],
}
lfm2 = family(
    "lfm2", "Lfm2ForCausalLM", "lfm2",
    {**LFM2, "layer_types": ..., "full_attn_idxs": [1, 3], "block_auto_adjust_ff_dim": False},
)
lfm2("plain", conv_bias=False)
lfm2("full", style="full", norm_eps=1e-2, rope_theta=500.0)
lfm2("adjusted", intermediate_size=60, block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.3,
     block_multiple_of=16)
lfm2("adjusted_by_default", intermediate_size=48, block_auto_adjust_ff_dim=..., block_multiple_of=8)
lfm2("old_keys", block_ff_dim=40, tie_embedding=False, block_auto_adjust_ff_dim=False)
lfm2("layer_types", full_attn_idxs=..., layer_types=[FULL, "conv", "conv", FULL])
lfm2("conv_bias", conv_bias=True)
lfm2("kernel", conv_L_cache=4)
lfm2("default_theta", rope_theta=..., without=[{"rope_theta": 10000.0}])

lfm2_moe = family(
    "lfm2_moe", "Lfm2MoeForCausalLM", "lfm2_moe",
    {**LFM2, "num_dense_layers": 1, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
)
lfm2_moe("plain", use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.0,
         without=[{"norm_topk_prob": False}])
lfm2_moe("full", style="full", norm_eps=1e-2, rope_theta=500.0)
lfm2_moe("no_bias", use_expert_bias=False)
lfm2_moe("not_normalised", norm_topk_prob=False, routed_scaling_factor=1.5,
         without=[{"norm_topk_prob": True}, {"routed_scaling_factor": 1.0}])
lfm2_moe("conv_bias", conv_bias=True)
