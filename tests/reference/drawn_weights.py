"""Random weights that are the same wherever they are drawn: from a tensor's name and shape, by Python alone.

Owns: `write_model`. Python promises that `random.Random(text).random()` stays what it is, so that golden files need the
names and shapes of tensors only.
"""

import array
import json
import math
import pathlib
import random
import struct
import sys


# Families whose norms multiply by one more than their weights, but for those of towers.
ONE_MORE = (
    "gemma", "gemma2", "gemma3", "gemma3_text", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text",
)
# Numbers that a checkpoint has and no training changes.
CONSTANT = {"act_fn.beta": 0.5, "act_fn.eps": -1e-6}
# Numbers that others are multiplied by, which are about one.
SCALES = ("layer_scalar", "per_expert_scale", "scale")


def drawn(seed, name, shape, family):
    """The numbers of a tensor, spread so that each part of a layer counts and log-probs differ by nats."""
    numbers = random.Random(f"{seed} {name}").random
    count = math.prod(shape)
    low, high = bounds(name, shape)
    if "norm" in name and "vision_tower" not in name and family in ONE_MORE:
        low, high = low - 1.0, high - 1.0
    return array.array("f", (low + (high - low) * numbers() for _ in range(count)))


def bounds(name, shape):
    part, kind = name.split(".")[-2:]
    if f"{part}.{kind}" in CONSTANT:
        return (CONSTANT[f"{part}.{kind}"],) * 2
    if (part in ("q_norm", "k_norm") and kind == "weight") or kind in SCALES:
        return 0.4, 1.4
    if kind == "A_log":
        return -0.5, 0.5
    if len(shape) == 1:
        if "norm" in part and kind == "weight":
            return 0.4, 1.4
        return -0.5, 0.5
    gain = {"q_proj": 1.3, "k_proj": 1.3, "o_proj": 1.5, "down_proj": 1.5, "gate": 2.0, "router": 2.0}.get(part, 1.0)
    if part in ("embed_tokens", "lm_head"):
        gain = 2.0
    # A deviation of gain / sqrt(inputs).
    half = gain * math.sqrt(3.0 / shape[-1])
    return -half, half


def write_model(directory, config, tensors, seed, numbers_of=None):
    """config.json and model.safetensors, in float32, with `tensors` by name and shape.

    Their numbers are drawn, or what `numbers_of` returns for a name.
    """
    directory = pathlib.Path(directory)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    header, parts, end = {"__metadata__": {"format": "pt"}}, [], 0
    for name, shape in tensors.items():
        if numbers_of is None:
            numbers = drawn(seed, name, shape, config["model_type"])
        else:
            numbers = array.array("f", numbers_of(name))
        if sys.byteorder == "big":
            numbers.byteswap()
        raw = numbers.tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [end, end + len(raw)]}
        parts.append(raw)
        end += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
