#!/usr/bin/env python3
"""Records how vLLM 0.33 writes the tensors of images for /inference/v1/generate, by its own code.

    tests/reference/record_mm_kwargs.py > tests/golden/mm_kwargs.json

Needs torch and the Python files of vLLM 0.33.0's wheel with what they import (the wheel itself need not be installed: PYTHONPATH may name a
directory that its `.py` files were unpacked into). The keys of an item are in the order in which tito writes them; vLLM's own
order differs from run to run.
"""

import json

import torch
from vllm.entrypoints.scale_out.token_in_token_out.mm_serde import encode_mm_kwargs_item
from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalKwargsItems


def numbers(*shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) / 4 - 1).reshape(shape)


def item(values):
    """The first image of several tensors, each with how vLLM joins it."""
    tensors = {name: tensor for name, (tensor, _) in values.items()}
    config = {name: field for name, (_, field) in values.items()}
    [first] = MultiModalKwargsItems.from_hf_inputs(tensors, config)["image"]
    # from_hf_inputs goes through a set.
    first.data = {name: first.data[name] for name in values}
    return first


FLAT, BATCHED = MultiModalFieldConfig.flat_from_sizes, MultiModalFieldConfig.batched
COUNT = BATCHED("image", keep_on_cpu=True)
ITEMS = {
    "grid": {"pixel_values": (numbers(6, 5), FLAT("image", torch.tensor([6]))), "image_grid_thw": (torch.tensor([[1, 2, 3]]), COUNT)},
    "squares": {"pixel_values": (numbers(2, 3, 2, 2), FLAT("image", torch.tensor([2]))), "image_num_patches": (torch.tensor([2]), COUNT)},
    "one": {"pixel_values": (numbers(1, 3, 2, 4), BATCHED("image"))},
    "bytes": {"pixel_values": (numbers(2, 20).abs().to(torch.uint8), FLAT("image", torch.tensor([2])))},
    "bfloat16": {"pixel_values": (numbers(2, 20).to(torch.bfloat16), FLAT("image", torch.tensor([2])))},
}


def main():
    print(json.dumps({name: encode_mm_kwargs_item(item(values)) for name, values in ITEMS.items()}, indent=1))


if __name__ == "__main__":
    main()
