"""Writes a shape with random weights as a Hugging Face directory: with torch on the device, with numpy, or by hand.

Refuses shapes of more than a few million numbers where neither torch nor numpy is there.
"""

import array
import concurrent.futures
import json
import math
import os
import random
import struct
from pathlib import Path

from .shapes import BYTES, deviation, tokenizer

SHARD = 4 * 10**9
BY_HAND = 10**7
WRITERS = 8
# Of unit normal numbers, which numpy repeats with another beginning for each tensor: drawing billions takes minutes.
# A prime, so that no row begins where another one does.
TILE = 16_777_213


def write_model(directory, shape, seed, device):
    """The whole directory; returns how the numbers were drawn."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("config.json", shape.config()),
        ("generation_config.json", {"bos_token_id": 1, "eos_token_id": [2, 0]}),
        ("tokenizer.json", tokenizer(shape.vocab)),
        ("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}),
    ):
        (directory / name).write_text(json.dumps(content))
    how, draw = drawing(shape, seed, device)
    shards = split(shape.tensors())
    if len(shards) == 1:
        write_shard(directory / "model.safetensors", shards[0], draw)
        return how
    index = {}
    for number, tensors in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_shard(directory / file, tensors, draw)
        index |= dict.fromkeys(tensors, file)
    written = {"metadata": {"total_size": shape.file_bytes}, "weight_map": index}
    (directory / "model.safetensors.index.json").write_text(json.dumps(written))
    return how


def split(tensors):
    """Tensors in files of no more than `SHARD` bytes, unless one alone is larger."""
    shards, filled = [{}], 0
    for name, shape in tensors.items():
        size = math.prod(shape) * BYTES
        if shards[-1] and filled + size > SHARD:
            shards.append({})
            filled = 0
        shards[-1][name] = shape
        filled += size
    return shards


def write_shard(path, tensors, draw):
    """A safetensors file: eight bytes of length, a JSON header, then the data, written by several threads."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors.items():
        begin, end = end, end + math.prod(shape) * BYTES
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        start = 8 + len(text)
        os.ftruncate(file, start + end)
        put(file, struct.pack("<Q", len(text)) + text, 0)
        # No more tensors in memory than threads write.
        with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
            jobs = [pool.submit(one, file, draw, name, shape, start + header[name]["data_offsets"][0])
                    for name, shape in tensors.items()]  # fmt: skip
            for job in jobs:
                job.result()
    finally:
        os.close(file)


def one(file, draw, name, shape, at):
    """Draws and writes a tensor."""
    put(file, draw(name, shape), at)


def put(file, data, at):
    """All of the bytes: the kernel takes no more than 2 GiB at a time."""
    view = memoryview(data).cast("B")
    while view:
        done = os.pwrite(file, view[: 1 << 30], at)
        view, at = view[done:], at + done


def drawing(shape, seed, device):
    """(how it is done, a function from a tensor's name and shape to bf16 bytes)."""
    try:
        return with_torch(seed, device)
    except ImportError:
        pass
    try:
        return with_numpy(seed)
    except ImportError:
        if shape.parameters > BY_HAND:
            raise RuntimeError(f"{shape.name} needs torch or numpy to be drawn, and neither is there") from None
        return with_nothing(seed)


def with_torch(seed, device):
    """On the device."""
    import torch

    def draw(name, shape):
        mean, spread = deviation(name, shape)
        generator = torch.Generator(device).manual_seed(hash_of(seed, name))
        numbers = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
        single = numbers.mul_(spread).add_(mean).to(torch.bfloat16)
        return single.view(torch.int16).cpu().numpy().data

    return f"torch {torch.__version__} on {device}", draw


def with_numpy(seed):
    """From one tile of normal numbers."""
    import numpy

    tile = numpy.random.default_rng(seed).standard_normal(TILE, dtype=numpy.float32)

    def draw(name, shape):
        mean, spread = deviation(name, shape)
        count = math.prod(shape)
        numbers = tile
        if count < TILE:
            at = hash_of(seed, name) % (TILE - count)
            numbers = tile[at : at + count]
        bits = (numbers * numpy.float32(spread) + numpy.float32(mean)).view(numpy.uint32)
        halves = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)
        if count >= TILE:
            halves = numpy.resize(numpy.roll(halves, hash_of(seed, name) % TILE), count)
        return numpy.ascontiguousarray(halves).data

    return f"numpy {numpy.__version__}, from a tile of {TILE:,} numbers", draw


def with_nothing(seed):
    """By Python alone."""

    def draw(name, shape):
        mean, spread = deviation(name, shape)
        numbers = random.Random(hash_of(seed, name))
        singles = array.array("f", (numbers.gauss(mean, spread) for _ in range(math.prod(shape))))
        # The upper halves: cut rather than rounded, which random numbers do not mind.
        return array.array("H", singles.tobytes())[1::2]

    return "Python's random numbers", draw


def hash_of(seed, name):
    """A seed for a tensor, the same in every run."""
    return random.Random(f"{seed} {name}").getrandbits(48)
