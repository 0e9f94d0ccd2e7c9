"""Writes tests/golden/quantized: tiny quantised checkpoints, and what the references of their formats widen them to.

    pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0 compressed-tensors==0.20.0
    python record_quantized.py            # the same bytes on every run

A directory has config.json and model.safetensors as a published checkpoint has them, and widened.safetensors: the same
tensors under their plain names, in the type in which the reference gives them. Each names its reference; where that needs a
GPU or cannot be installed beside the others, its definition is written again here, and says so.
"""

import json
import pathlib
import shutil

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

import record

OUT = pathlib.Path(__file__).parent.parent / "golden" / "quantized"
E4M3 = torch.float8_e4m3fn

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 96,
}


def model(seed, dtype=torch.bfloat16):
    """The tensors of a llama."""
    draw = record.Draw(seed)
    shapes = record.shapes(CONFIG)
    return {
        name: torch.tensor(record.random_tensor(draw, name, shape), dtype=torch.float32).to(dtype)
        for name, shape in shapes.items()
    }


def is_quantised(name):
    return name.endswith("_proj.weight")


def write(name, quantization, packed, widened, config=CONFIG):
    directory = OUT / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    record.write_json(directory / "config.json", config | {"quantization_config": quantization})
    for file, tensors in (("model", packed), ("widened", widened)):
        save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, directory / f"{file}.safetensors")


def llama(name, seed, quantization, quantise, dtype=torch.bfloat16, dequantised=lambda weight: weight):
    """A whole model: `quantise` gives a weight's packed tensors by the last part of their names, and the widened weight."""
    packed, widened = {}, {}
    for tensor, weight in model(seed, dtype).items():
        if not is_quantised(tensor):
            packed[tensor] = widened[tensor] = weight
            continue
        module = tensor.removesuffix(".weight")
        parts, wide = quantise(weight)
        packed |= {f"{module}.{leaf}": part for leaf, part in parts.items()}
        widened[tensor] = dequantised(wide)
    config = CONFIG | {"torch_dtype": str(dtype).removeprefix("torch.")}
    write(name, quantization, packed, widened, config)


def largest(weight, block):
    """The largest size in each block, those at the edges filled up with zeros."""
    rows, columns = block
    pad = (0, -weight.shape[1] % columns, 0, -weight.shape[0] % rows)
    padded = torch.nn.functional.pad(weight.abs().float(), pad)
    return padded.unflatten(0, (-1, rows)).unflatten(2, (-1, columns)).amax((1, 3)).clamp_min(1e-6)


def spread(scales, block, shape):
    return scales.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[: shape[0], : shape[1]]


# --- FP8 -------------------------------------------------------------------------------------------------------------


def fp8_blocks(weight, block=(32, 32), dtype=torch.float32):
    """Reference: FP8BlockDequantizer of compressed-tensors; and Fp8Dequantize of transformers for whole blocks."""
    scale = (largest(weight, block) / 448.0).to(dtype)
    packed = (weight.float() / spread(scale.float(), block, weight.shape)).clamp(-448, 448).to(E4M3)
    widen = FP8BlockDequantizer(weight_block_size=block, dtype=torch.float32)
    wide = widen._create_dequantized_weight(packed, scale)
    half = FP8BlockDequantizer(weight_block_size=block)._create_dequantized_weight(packed, scale)
    assert torch.equal(half, wide.to(torch.bfloat16))
    if not (weight.shape[0] % block[0] or weight.shape[1] % block[1]):
        assert torch.equal(wide, Fp8Dequantize(None)._dequantize_one(packed, scale, torch.float32))
    return {"weight": packed, "weight_scale_inv": scale}, wide


def fp8_tensor(weight):
    """Reference: torch. A weight is its number times the scale, as vLLM's fp8 linear layers have it."""
    scale = weight.abs().amax().float() / 448.0
    packed = (weight.float() / scale).clamp(-448, 448).to(E4M3)
    parts = {"weight": packed, "weight_scale": scale, "input_scale": torch.tensor(0.5)}
    return parts, packed.float() * scale


def fp8():
    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [32, 32]}
    llama("fp8_blocks", 1, config | {"modules_to_not_convert": ["lm_head"]}, fp8_blocks)
    llama("fp8_tensor", 2, {"quant_method": "fp8", "activation_scheme": "static"}, fp8_tensor)
    every = torch.arange(256, dtype=torch.uint8).reshape(4, 64).view(E4M3)
    scale = torch.tensor([[0.0123, 3.25], [1e-30, 1.0]])
    cases = {}
    for leaf, scales in {"single": scale, "bf16": scale.bfloat16()}.items():
        block = FP8BlockDequantizer(weight_block_size=(3, 40), dtype=torch.float32)
        cases[leaf] = (every, scales, block._create_dequantized_weight(every, scales))
    power = torch.tensor([[0, 120], [127, 254]], dtype=torch.uint8)
    block = FP8BlockDequantizer(weight_block_size=(3, 40), dtype=torch.float32)
    e8m0 = power.view(torch.float8_e8m0fnu)
    cases["ue8m0"] = (every, e8m0, block._create_dequantized_weight(every, e8m0))
    packed = {f"{name}.weight": weight for name, (weight, _, _) in cases.items()}
    packed |= {f"{name}.weight_scale_inv": scale for name, (_, scale, _) in cases.items()}
    widened = {f"{name}.weight": wide for name, (_, _, wide) in cases.items()}
    write("fp8_numbers", config | {"weight_block_size": [3, 40]}, packed, widened, {})


# --- compressed-tensors ----------------------------------------------------------------------------------------------


def compressed(weight, kind, args, scale, zero_point=None, **more):
    """Reference: compress and decompress of compressed-tensors."""
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=kind)
    compressor = BaseCompressor.get_value_from_registry(kind)
    state = {"weight": weight, "weight_scale": scale} | more
    if zero_point is not None:
        state["weight_zero_point"] = zero_point
    parts = compressor.compress(state, scheme)
    return parts, compressor.decompress(parts, scheme)["weight"]


def scheme_of(kind, args, **more):
    group = {"targets": ["Linear"], "weights": args, "input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": kind,
        "quantization_status": "compressed",
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
        "config_groups": {"group_0": group | more},
        "ignore": ["lm_head"],
    }


def compressed_fp8():
    kind = "float-quantized"
    args = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
    tokens = args | {"strategy": "token", "dynamic": True}
    channel = args | {"strategy": "channel"}
    llama(
        "compressed_fp8_channel",
        3,
        scheme_of(kind, channel, input_activations=tokens),
        lambda weight: compressed(weight, kind, channel, (largest(weight, (1, weight.shape[1])) / 448).bfloat16()),
    )
    block = args | {"strategy": "block", "block_structure": [32, 32]}
    llama(
        "compressed_fp8_block",
        4,
        scheme_of(kind, block),
        lambda weight: compressed(weight, kind, block, (largest(weight, (32, 32)) / 448).bfloat16()),
    )
    tensor = args | {"strategy": "tensor"}
    llama(
        "compressed_fp8_tensor",
        5,
        scheme_of(kind, tensor),
        lambda weight: compressed(weight, kind, tensor, (weight.abs().amax().float() / 448).reshape(1)),
    )


if __name__ == "__main__":
    torch.manual_seed(0)
    fp8()
    compressed_fp8()
