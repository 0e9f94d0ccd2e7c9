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
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

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


def grouped(weight, size):
    return weight.float().unflatten(1, (-1, size))


def symmetric(weight, size, bits):
    return (grouped(weight, size).abs().amax(2) / (2 ** (bits - 1) - 1)).bfloat16()


def asymmetric(weight, size, bits):
    """Scales and zero-points that cover each group."""
    low, high = grouped(weight, size).amin(2).clamp_max(0), grouped(weight, size).amax(2).clamp_min(0)
    scale = ((high - low) / (2**bits - 1)).bfloat16()
    half = 2 ** (bits - 1)
    return scale, ((-low / scale.float()).round() - half).clamp(-half, half - 1).to(torch.int8)


def compressed_ints():
    int4 = {"num_bits": 4, "type": "int", "symmetric": True, "dynamic": False}
    groups = int4 | {"strategy": "group", "group_size": 16}
    kind = "pack-quantized"
    llama(
        "compressed_int4_group",
        6,
        scheme_of(kind, groups | {"actorder": "static", "observer": "minmax"}),
        lambda weight: compressed(weight, kind, groups, symmetric(weight, 16, 4)),
    )
    zeros = groups | {"symmetric": False}
    llama(
        "compressed_int4_zero_points",
        7,
        scheme_of(kind, zeros),
        lambda weight: compressed(weight, kind, zeros, *asymmetric(weight, 16, 4)),
    )
    int8 = int4 | {"num_bits": 8, "strategy": "channel"}
    llama(
        "compressed_int8_packed",
        8,
        scheme_of(kind, int8 | {"symmetric": False}),
        lambda weight: compressed(
            weight, kind, int8 | {"symmetric": False}, *asymmetric(weight, weight.shape[1], 8)
        ),
        torch.float16,
        lambda wide: wide,
    )
    kind = "int-quantized"
    tokens = int8 | {"strategy": "token", "dynamic": True}
    llama(
        "compressed_int8",
        9,
        scheme_of(kind, int8, input_activations=tokens),
        lambda weight: compressed(weight, kind, int8, symmetric(weight, weight.shape[1], 8)),
    )
    # What releases before 0.20 wrote for activation ordering, after its definition: a column's group is in the index.
    codes = torch.randint(-8, 8, (6, 48), dtype=torch.int8)
    scale = (torch.rand(6, 3) * 0.1).bfloat16()
    index = torch.arange(48, dtype=torch.int32)[torch.randperm(48)] % 3
    ordered = {
        "a.weight_packed": pack_to_int32(codes, 4),
        "a.weight_scale": scale,
        "a.weight_shape": torch.tensor([6, 48]),
        "a.weight_g_idx": index,
    }
    wide = codes.bfloat16() * scale[:, index.long()]
    # Rows that end within a word, of one scale for all with a zero-point of its own, and what has two bits.
    tensor = int4 | {"strategy": "tensor", "symmetric": False}
    parts, whole = compressed(
        torch.randn(3, 13).bfloat16(), "pack-quantized", tensor, torch.tensor([0.25]), torch.tensor([3], dtype=torch.int8)
    )
    two = int4 | {"num_bits": 2, "strategy": "group", "group_size": 4}
    of_two, twos = compressed(torch.randn(5, 12).bfloat16(), "pack-quantized", two, torch.rand(5, 3))
    more = {f"b.{leaf}": part for leaf, part in parts.items()} | {f"c.{leaf}": part for leaf, part in of_two.items()}
    scheme = scheme_of("pack-quantized", groups | {"actorder": "group"})
    scheme["config_groups"] |= {
        "group_1": {"targets": ["re:b"], "weights": tensor},
        "group_2": {"targets": ["re:c"], "weights": two},
    }
    write(
        "compressed_int_shapes",
        scheme,
        ordered | more,
        {"a.weight": wide, "b.weight": whole, "c.weight": twos},
        {},
    )


# --- FP4 -------------------------------------------------------------------------------------------------------------


def nvfp4(weight):
    """Reference: compressed-tensors, whose scales of a matrix divide."""
    args = NVFP4_ARGS
    whole = (448.0 * 6.0 / weight.abs().amax().float()).reshape(1)
    scale = (grouped(weight, 16).abs().amax(2) / 6 * whole).to(E4M3).float()
    return compressed(weight, "nvfp4-pack-quantized", args, scale, weight_global_scale=whole)


NVFP4_ARGS = {
    "num_bits": 4,
    "type": "float",
    "strategy": "tensor_group",
    "group_size": 16,
    "symmetric": True,
    "dynamic": False,
    "scale_dtype": "torch.float8_e4m3fn",
}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def e2m1(packed):
    return torch.stack((E2M1[(packed & 15).long()], E2M1[(packed >> 4).long()]), -1).flatten(-2)


def modelopt_nvfp4(weight):
    """After NVFP4QTensor.dequantize of modelopt, for f32: its scales of a matrix multiply."""
    parts, _ = nvfp4(weight)
    whole = weight.abs().amax().float() / (448.0 * 6.0)
    scale = parts["weight_scale"].to(E4M3)
    wide = (grouped(e2m1(parts["weight_packed"]), 16) * (scale.float() * whole)[..., None]).flatten(1)
    packed = {"weight": parts["weight_packed"], "weight_scale": scale, "weight_scale_2": whole}
    return packed | {"input_scale": torch.tensor(0.1)}, wide


def fp4():
    scheme = scheme_of("nvfp4-pack-quantized", NVFP4_ARGS, input_activations=NVFP4_ARGS | {"dynamic": "local"})
    llama("compressed_nvfp4", 10, scheme, nvfp4)
    modelopt = {"quant_method": "modelopt", "producer": {"name": "modelopt", "version": "0.40.0"}, "ignore": ["lm_head"]}
    llama("modelopt_nvfp4", 11, modelopt | {"quant_algo": "NVFP4", "config_groups": {"group_0": {}}}, modelopt_nvfp4)
    llama("modelopt_fp8", 12, modelopt | {"quant_algo": "FP8"}, fp8_tensor)

    # Every number with every power of two, as gpt-oss has it. Reference: convert_moe_packed_tensors of transformers.
    blocks = torch.arange(256, dtype=torch.uint8).repeat(3).reshape(2, 12, 2, 16)
    scales = torch.tensor([0, 1, 2, 100, 126, 127, 128, 140, 252, 253, 254, 255], dtype=torch.uint8).repeat(4)
    scales = scales.reshape(2, 12, 2)
    ones = torch.randint(110, 130, (2, 4, 3), dtype=torch.uint8)
    down = torch.randint(0, 256, (2, 4, 3, 16), dtype=torch.uint8)
    experts = "model.layers.0.mlp.experts."
    bias = torch.randn(2, 12).bfloat16()
    packed = {
        experts + "gate_up_proj_blocks": blocks,
        experts + "gate_up_proj_scales": scales,
        experts + "gate_up_proj_bias": bias,
        experts + "down_proj_blocks": down,
        experts + "down_proj_scales": ones,
    }
    widened = {
        experts + "gate_up_proj": convert_moe_packed_tensors(blocks, scales, dtype=torch.float32),
        experts + "gate_up_proj_bias": bias,
        experts + "down_proj": convert_moe_packed_tensors(down, ones),
    }
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    write("mxfp4", quantization, packed, widened, {})


GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 32,
    "max_position_embeddings": 256,
    "model_type": "gpt_oss",
    "num_attention_heads": 2,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 1,
    "num_local_experts": 3,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_type": "yarn",
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
    },
    "rope_theta": 10000.0,
    "sliding_window": 16,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 96,
}


def gpt_oss():
    """A whole model with experts in MXFP4. Reference: convert_moe_packed_tensors of transformers."""
    layer, attention = "model.layers.0.", "model.layers.0.self_attn."
    experts = layer + "mlp.experts."
    shapes = {
        "lm_head.weight": (96, 32),
        "model.embed_tokens.weight": (96, 32),
        "model.norm.weight": (32,),
        layer + "input_layernorm.weight": (32,),
        layer + "post_attention_layernorm.weight": (32,),
        layer + "mlp.router.weight": (3, 32),
        layer + "mlp.router.bias": (3,),
        experts + "gate_up_proj_bias": (3, 64),
        experts + "down_proj_bias": (3, 32),
        attention + "sinks": (2,),
    }
    for name, (out, into) in {"q": (32, 32), "k": (16, 32), "v": (16, 32), "o": (32, 32)}.items():
        shapes |= {f"{attention}{name}_proj.weight": (out, into), f"{attention}{name}_proj.bias": (out,)}
    draw = record.Draw(17)
    plain = {
        name: torch.tensor(draw.uniform(shape, 0.2, 1.0 if "norm" in name else 0.0)).bfloat16()
        for name, shape in shapes.items()
    }
    packed, widened = dict(plain), dict(plain)
    for name, outputs in {"gate_up_proj": 64, "down_proj": 32}.items():
        blocks = torch.tensor(draw.ids(3 * outputs * 16, 256), dtype=torch.uint8).reshape(3, outputs, 1, 16)
        scales = torch.tensor(draw.ids(3 * outputs, 4), dtype=torch.uint8).reshape(3, outputs, 1) + 121
        packed |= {f"{experts}{name}_blocks": blocks, f"{experts}{name}_scales": scales}
        widened[experts + name] = convert_moe_packed_tensors(blocks, scales)
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    write("gpt_oss", quantization, packed, widened, GPT_OSS)


# --- GPTQ and AWQ ----------------------------------------------------------------------------------------------------


def words(codes, bits):
    """Numbers that follow each other in the first dimension, in words of 32 bits from the lowest bits on."""
    codes = codes.long().unflatten(0, (-1, 32 // bits))
    shifts = (torch.arange(32 // bits) * bits).reshape(1, -1, *[1] * (codes.ndim - 2))
    word = (codes << shifts).sum(1)
    return torch.where(word >= 2**31, word - 2**32, word).to(torch.int32)


def gptq(weight, bits=4, size=16, order=False, lowered=True, odd=False):
    """After TorchQuantLinear of GPTQModel: pack for what is stored, dequantize_weight for what it means."""
    wide = weight.T.float()
    inputs, outputs = wide.shape
    index = torch.arange(inputs) // size
    if order:
        index = index[torch.randperm(inputs)]
    groups = inputs // size
    scale = torch.stack([wide[index == group].abs().amax(0) for group in range(groups)]) / (2 ** (bits - 1) - 1)
    scale = scale.half()
    middle = torch.full((groups, outputs), 2 ** (bits - 1))
    zeros = torch.randint(0 if not lowered else 1, 2**bits, (groups, outputs)) if odd else middle
    codes = (wide / scale.float()[index] + zeros[index]).round().clamp(0, 2**bits - 1).long()
    parts = {
        "qweight": words(codes, bits),
        "qzeros": words((zeros - int(lowered)).T, bits).T,
        "scales": scale,
        "g_idx": index.to(torch.int32),
    }
    return parts, (scale[index] * (codes - zeros[index]).to(torch.int16)).T


def with_bias(parts, wide):
    """AutoGPTQ gives each module a bias."""
    return parts | {"bias": torch.zeros(wide.shape[0], dtype=torch.float16)}, wide


def awq(weight, size=16):
    """Reference: what compressed-tensors unpacks of AutoAWQ, which packs it so, and AutoAWQ's dequantize_gemm."""
    wide = weight.T.float()
    groups = wide.shape[0] // size
    scale = (wide.unflatten(0, (groups, size)).abs().amax(1) / 7).half()
    zeros = torch.randint(0, 16, scale.shape)
    index = torch.arange(wide.shape[0]) // size
    codes = (wide / scale.float()[index] + zeros[index]).round().clamp(0, 15).long()

    def packed(numbers):
        return words(numbers.unflatten(1, (-1, 8))[:, :, [0, 2, 4, 6, 1, 3, 5, 7]].flatten(1).T, 4).T.contiguous()

    parts = {"qweight": packed(codes), "qzeros": packed(zeros), "scales": scale}
    found = AutoAWQConverter.reverse_awq_order(*AutoAWQConverter.unpack_awq(parts["qweight"], parts["qzeros"], 4), 4)
    found, found_zeros = (numbers & 15 for numbers in found)
    assert torch.equal(found.long(), codes) and torch.equal(found_zeros.long(), zeros)
    return parts, ((found - found_zeros[index]) * scale[index]).T


def gptq_and_awq():
    config = {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": False, "sym": True, "lm_head": False}
    meta = {"meta": {"quantizer": ["gptqmodel:5.0.0"]}, "damp_percent": 0.01, "true_sequential": True}
    half = torch.float16
    llama("gptq", 13, config | meta, lambda weight: with_bias(*gptq(weight)), half)
    ordered = config | {"desc_act": True, "checkpoint_format": "gptq"}
    llama("gptq_ordered", 14, ordered, lambda weight: gptq(weight, order=True, odd=True), half)
    second = config | {"bits": 8, "sym": False, "checkpoint_format": "gptq_v2", "pack_dtype": "int32"}
    llama("gptq_v2_int8", 15, second, lambda weight: gptq(weight, bits=8, lowered=False, odd=True), half)
    awq_config = {"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemm"}
    llama("awq", 16, awq_config | {"modules_to_not_convert": None}, awq, half)
    odd = torch.randn(16, 32)
    parts, wide = gptq(odd, bits=2, size=32, lowered=False, odd=True)
    whole = {"quant_method": "gptq", "bits": 2, "group_size": -1, "desc_act": False, "checkpoint_format": "gptq_v2"}
    without = {leaf: part for leaf, part in parts.items() if leaf != "g_idx"}
    write("gptq_int2", whole, {f"a.{leaf}": part for leaf, part in without.items()}, {"a.weight": wide}, {})


if __name__ == "__main__":
    torch.manual_seed(0)
    fp8()
    compressed_fp8()
    compressed_ints()
    fp4()
    gpt_oss()
    gptq_and_awq()
