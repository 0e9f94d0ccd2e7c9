"""The tiny models of tests/golden/native: their configs, as transformers writes them, and what shows each feature.

Owns: CASES. A case's `without` lists what an engine without the feature amounts to: changes of the config, or tensors
set to 0 or 1 ("tensors", by the end of the name). Each of them must move the expected log-probs, or the golden files
could not tell.
"""

import dataclasses


@dataclasses.dataclass
class Case:
    name: str
    seed: int
    dtype: str
    config: dict
    without: list
    shards: int = 1


COMMON = {
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "use_cache": True,
}


def config(family, architecture, dtype, **changes):
    """As transformers 4 writes it: in alphabetical order."""
    written = {
        **COMMON,
        "architectures": [architecture],
        "model_type": family,
        "torch_dtype": {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}[dtype],
        "transformers_version": "4.55.4",
        **changes,
    }
    return dict(sorted(written.items()))


def leaving_out(key, config):
    return {other: value for other, value in config.items() if other != key}


def llama(dtype, **changes):
    defaults = {
        "attention_bias": False,
        "head_dim": 16,
        "hidden_size": 64,
        "intermediate_size": 48,
        "mlp_bias": False,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": 96,
    }
    return config("llama", "LlamaForCausalLM", dtype, **{**defaults, **changes})


def mistral(dtype, **changes):
    defaults = {
        "head_dim": None,
        "hidden_size": 64,
        "intermediate_size": 96,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0,
        "sliding_window": 16,
        "tie_word_embeddings": False,
        "vocab_size": 160,
    }
    return config("mistral", "MistralForCausalLM", dtype, **{**defaults, **changes})


def qwen2(dtype, **changes):
    defaults = {
        "hidden_size": 64,
        "intermediate_size": 80,
        "layer_types": ["full_attention"] * 2,
        "max_window_layers": 2,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "vocab_size": 200,
    }
    return config("qwen2", "Qwen2ForCausalLM", dtype, **{**defaults, **changes})


def qwen3(dtype, **changes):
    defaults = {
        "attention_bias": False,
        "head_dim": 16,
        "hidden_size": 48,
        "intermediate_size": 80,
        "layer_types": ["full_attention"] * 2,
        "max_window_layers": 2,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "vocab_size": 151,
    }
    return config("qwen3", "Qwen3ForCausalLM", dtype, **{**defaults, **changes})


def qwen3_moe(dtype, **changes):
    defaults = {
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "head_dim": 16,
        "hidden_size": 48,
        "intermediate_size": 80,
        "max_window_layers": 2,
        "mlp_only_layers": [],
        "moe_intermediate_size": 24,
        "norm_topk_prob": True,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "output_router_logits": False,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "router_aux_loss_coef": 0.001,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "vocab_size": 128,
    }
    return config("qwen3_moe", "Qwen3MoeForCausalLM", dtype, **{**defaults, **changes})


def smollm3(dtype, **changes):
    defaults = {
        "attention_bias": False,
        "hidden_size": 32,
        "intermediate_size": 64,
        "layer_types": ["full_attention"] * 5,
        "max_window_layers": 28,
        "mlp_bias": False,
        "no_rope_layer_interval": 4,
        "no_rope_layers": [1, 1, 1, 0, 1],
        "num_hidden_layers": 5,
        "pad_token_id": 2,
        "pretraining_tp": 2,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 5000000.0,
        "sliding_window": None,
        "use_sliding_window": False,
        "vocab_size": 300,
    }
    # Tied, which transformers does not write for this family: it is the default there.
    return config("smollm3", "SmolLM3ForCausalLM", dtype, **{**defaults, **changes})


LLAMA3 = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 32,
    "rope_type": "llama3",
}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32, "rope_type": "yarn"}
# Every key of yarn, each other than its default. With a theta this small, both ends of the ramp lie within the head.
YARN_ALL = {
    "attention_factor": 1.3,
    "beta_fast": 24.0,
    "beta_slow": 2.0,
    "factor": 4.0,
    "original_max_position_embeddings": 512,
    "rope_type": "yarn",
    "truncate": False,
}


def as_transformers_5(dtype, written):
    """Without scaling, and with another theta: rope_parameters for rope_theta and rope_scaling, dtype for torch_dtype."""
    for key in ("rope_scaling", "rope_theta", "torch_dtype"):
        written = leaving_out(key, written)
    changes = {
        "dtype": dtype,
        "pad_token_id": None,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
        "transformers_version": "5.23.0",
    }
    return dict(sorted({**written, **changes}.items()))


CASES = [
    Case("llama", 3, "F32", llama("F32"), [{"rope_theta": 500000.0}]),
    Case(
        "llama_tied_bias",
        5,
        "BF16",
        llama(
            "BF16", attention_bias=True, mlp_bias=True, hidden_size=48, intermediate_size=80, tie_word_embeddings=True,
            vocab_size=151,
        ),
        [{"attention_bias": False}, {"mlp_bias": False}],
    ),
    Case(
        "llama_llama3_rope",
        1,
        "F16",
        # With this theta the first pair of a head turns above the ramp, two within it, the others below.
        llama("F16", intermediate_size=96, rope_scaling=LLAMA3, rope_theta=500.0, vocab_size=128),
        [
            {"rope_scaling": None},
            {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            {"rope_scaling": {**LLAMA3, "low_freq_factor": 0.5}},
            {"rope_scaling": {**LLAMA3, "high_freq_factor": 5.0}},
            {"rope_theta": 10000.0},
        ],
    ),
    Case(
        "llama_linear_rope",
        6,
        "BF16",
        # An eps that counts; and heads of hidden_size / num_attention_heads, which older configs leave unsaid.
        leaving_out(
            "head_dim",
            llama(
                "BF16", intermediate_size=96, rms_norm_eps=1e-2, rope_scaling={"factor": 4.0, "type": "linear"},
                vocab_size=128,
            ),
        ),
        [{"rope_scaling": None}, {"rms_norm_eps": 1e-5}],
    ),
    Case(
        "llama_sharded",
        1,
        "BF16",
        as_transformers_5("bfloat16", llama("BF16", intermediate_size=96, vocab_size=128)),
        [{"rope_parameters": None}],
        shards=2,
    ),
    Case(
        "mistral",
        1,
        "BF16",
        mistral("BF16"),
        [{"sliding_window": None}, {"sliding_window": 15}, {"sliding_window": 17}, {"rope_theta": 10000.0}],
    ),
    Case(
        "qwen2",
        4,
        "BF16",
        # As Qwen published it: a window that is not in use, and no layer_types.
        leaving_out("layer_types", qwen2("BF16", sliding_window=16)),
        [{"use_sliding_window": True, "max_window_layers": 0}, {"tensors": {"_proj.bias": 0.0}}],
    ),
    Case(
        "qwen2_yarn",
        2,
        "BF16",
        # 128 = 4 * 32: some releases of transformers take the factor from these two.
        qwen2("BF16", max_position_embeddings=128, rope_scaling=YARN, rope_theta=10000.0, tie_word_embeddings=False),
        [
            {"rope_scaling": None},
            {"rope_scaling": {**YARN, "attention_factor": 1.0}},
            {"rope_scaling": {**YARN, "truncate": False}},
            {"rope_scaling": {**YARN, "rope_type": "linear"}},
        ],
    ),
    Case(
        "qwen2_window",
        17,
        "BF16",
        qwen2(
            "BF16", layer_types=["full_attention", "sliding_attention", "sliding_attention"], max_window_layers=1,
            num_hidden_layers=3, sliding_window=16, use_sliding_window=True,
        ),
        [
            {"use_sliding_window": False},
            {"layer_types": ["sliding_attention"] * 3},
            {"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
        ],
    ),
    Case("qwen3", 1, "BF16", qwen3("BF16"), [{"tensors": {"q_norm.weight": 1.0}}, {"tensors": {"k_norm.weight": 1.0}}]),
    # Heads as wide as those of real models, which GPUs have other kernels for; one of them by four queries a key.
    Case("llama_heads_of_64", 1, "BF16", llama("BF16", head_dim=64, hidden_size=32), [{"rope_theta": 500000.0}]),
    Case(
        "qwen3_heads_of_128",
        1,
        "BF16",
        qwen3("BF16", head_dim=128, hidden_size=32, num_key_value_heads=1),
        [{"tensors": {"q_norm.weight": 1.0}}, {"tensors": {"k_norm.weight": 1.0}}],
    ),
    Case(
        "qwen3_yarn",
        2,
        "F16",
        qwen3("F16", max_position_embeddings=2048, rope_scaling=YARN_ALL, rope_theta=100.0),
        [
            {"rope_scaling": leaving_out(key, YARN_ALL)}
            for key in ("attention_factor", "beta_fast", "beta_slow", "truncate")
        ],
    ),
    Case(
        "qwen3_moe",
        1,
        "BF16",
        qwen3_moe("BF16", mlp_only_layers=[0], num_hidden_layers=3),
        [{"norm_topk_prob": False}, {"num_experts_per_tok": 1}, {"num_experts_per_tok": 3}],
    ),
    Case(
        "qwen3_moe_plain",
        24,
        "BF16",
        qwen3_moe("BF16", norm_topk_prob=False),
        [{"norm_topk_prob": True}, {"num_experts_per_tok": 1}, {"num_experts_per_tok": 3}],
    ),
    Case(
        "smollm3",
        1,
        "BF16",
        smollm3("BF16"),
        [{"no_rope_layers": [1] * 5}, {"no_rope_layers": [0, 0, 0, 1, 0]}, {"no_rope_layers": [0, 1, 1, 1, 1]}],
    ),
]
