#!/usr/bin/env python3
"""The kernel of attention by itself, on a GPU: right beside float64, the same bits however it is divided, and how fast.

usage: benches/gpu_attention.py [--variants MACROS...]     # from the repository's root; needs nvcc, torch and cupy

Compiles crates/tito-engine/src/engine/native/cuda/kernels/paged_attention.cu for the GPU that is there. Schedules are made
as in schedule.rs. Each figure is the median of ten runs by the device's own events. Each of MACROS, like
PROMPT_STAGES=4,PROMPT_KEPT=2, is compiled, timed and checked with one shape after what is without macros.
"""

import argparse
import concurrent.futures
import functools
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import cupy
import numpy
import torch
import torch.nn.functional as functional

SOURCE = Path("crates/tito-engine/src/engine/native/cuda/kernels/paged_attention.cu")
BLOCK, SPLIT, TILE, AT_WORK, WHOLE = 32, 1024, 16, 528, 0xFFFFFFFF
# Rows of a sequence that narrow tiles compute, and heads that wide ones do.
MOST_NARROW, LONGEST_PROMPT = 48, 128
WAYS = ("tile", "prompt")
# First positions and tokens of the sequences of a batch.
MIXED = [(0, 1), (32, 1), (31, 3), (1023, 1), (1024, 1), (1000, 40), (1099, 1), (5000, 1), (300, 17)]
# Heads of queries, heads of keys, numbers of a head.
HEADS = [(4, 2, 64), (40, 1, 64), (3, 3, 80), (12, 2, 96), (7, 1, 112), (8, 2, 128), (34, 2, 128), (8, 8, 192), (8, 2, 256)]
# What not every layer has.
ODD = [{}, {"window": 37}, {"chunk": 70}, {"cap": 0.7, "sinks": True}, {"window": 600, "sinks": True}]
TIMED = {
    "1 at 8k": [(8191, 1)],
    "1 at 32k": [(32767, 1)],
    "64 at 1k": [(1023, 1)] * 64,
    "256 at 1k": [(1023, 1)] * 256,
    "48 at 8k": [(8191, 1)] * 48,
    "a prompt of 8k": [(0, 8192)],
    "8 prompts of 4k": [(0, 4096)] * 8,
    "512 tokens at 8k": [(7680, 512)],
    "100 tokens at 30k": [(30000, 100)],
}


# Where all that is compiled lies: cupy reads a file when it first needs it.
FOLDER = tempfile.TemporaryDirectory()


class Kernels:
    """The kernels for heads of one size, of which some macros are set."""

    def __init__(self, head_dim, macros=()):
        self.head_dim = head_dim
        set_to = dict(macro.split("=") for macro in macros)
        self.warps, stages = int(set_to.get("PROMPT_WARPS", 4)), int(set_to.get("PROMPT_STAGES", 3))
        self.rows = {"tile": TILE, "prompt": 32 * self.warps}
        self.threads = {"tile": 128, "prompt": 32 * self.warps}
        # As `memory_of_prompts` says.
        queries = self.rows["prompt"] * -(-head_dim // 32) * 32
        self.memory = {"tile": 0, "prompt": 2 * (stages * 2 * head_dim * BLOCK + queries)}
        self.module = cupy.RawModule(path=compiled(head_dim, tuple(macros)))
        self.ways = WAYS if head_dim <= LONGEST_PROMPT else WAYS[:1]

    def way(self, rows):
        """By which kernel schedule.rs has so many rows of a sequence computed."""
        return "prompt" if rows > MOST_NARROW and self.head_dim <= LONGEST_PROMPT else "tile"

    def function(self, way):
        """The kernel of one way, which has its memory."""
        function = self.module.get_function(f"attend_{way}_{self.head_dim}")
        if self.memory[way]:
            function.max_dynamic_shared_size_bytes = self.memory[way]
        return function


@functools.cache
def compiled(head_dim, macros):
    """The file that nvcc makes of the kernels."""
    capability = "".join(map(str, torch.cuda.get_device_capability()))
    out = f"{FOLDER.name}/{'_'.join([str(head_dim), *macros])}.cubin"
    flags = ["--cubin", "-O3", "--std=c++17", f"-arch=sm_{capability}", "-fmad=false", f"-DHEAD_DIM={head_dim}"]
    flags += [f"-D{macro}" for macro in macros]
    subprocess.run(["nvcc", *flags, str(SOURCE), "-o", out], check=True)
    return out


def schedule(spans, group, kv_heads, rows, divide, window):
    """(items, merges, parts); `divide` has every split computed apart, or none, or those that schedule.rs would."""
    most, tiled, row = max(1, rows // group), [], 0
    for position, tokens, table in spans:
        for first in range(0, tokens, most):
            count, at = min(most, tokens - first), position + first
            begin = max(0, at + 1 - window) // SPLIT if window else 0
            tiled.append((row + first, count, at, table, begin, (at + count - 1) // SPLIT + 1 - begin))
        row += tokens
    longest = max(1, -(-sum(tile[5] for tile in tiled) * kv_heads // AT_WORK))
    longest = {None: longest, True: 0, False: 10**9}[divide]
    items, merges, parts = [], [], 0
    for row, count, at, table, begin, splits in tiled:
        if splits <= longest:
            items.append((row, count, at, table, begin, splits, WHOLE, 0))
            continue
        items += [(row, count, at, table, begin + split, 1, parts + split, splits) for split in range(splits)]
        merges += [(row + token, parts + token * splits, splits) for token in range(count)]
        parts += count * splits
    items.sort(key=lambda item: -item[5])
    return items, merges, parts


class Case:
    """A batch of sequences with random numbers, whose blocks lie in a random order."""

    def __init__(self, shape, spans):
        self.heads, self.kv_heads, self.dim = shape
        random = torch.Generator("cuda").manual_seed(1)
        draw = lambda *size: torch.randn(*size, device="cuda", generator=random)  # noqa: E731
        blocks, self.spans = 0, []
        for position, tokens in spans:
            self.spans.append((position, tokens, blocks))
            blocks += -(-(position + tokens) // BLOCK)
        self.tables = torch.randperm(blocks, device="cuda", generator=random).to(torch.int32)
        self.keys = draw(blocks, self.kv_heads, self.dim // 8, BLOCK, 8).bfloat16()
        self.values = draw(blocks, self.kv_heads, self.dim, BLOCK).bfloat16()
        self.rows = sum(tokens for _, tokens in spans)
        self.states = draw(self.rows, (self.heads + 2 * self.kv_heads) * self.dim)
        self.out = torch.empty(self.rows, self.heads, self.dim, device="cuda", dtype=torch.bfloat16)
        self.sinks = draw(self.heads)

    def prepared(self, kernels, way, divide=None, window=0, chunk=0, cap=0.0, sinks=False):
        """A function that attends for all rows."""
        group = self.heads // self.kv_heads
        items, merges, parts = schedule(self.spans, group, self.kv_heads, kernels.rows[way], divide, window)
        items, merges = cupy.asarray(items, numpy.uint32), cupy.asarray(merges, numpy.uint32)
        sums = torch.empty(max(1, parts) * self.heads * (self.dim + 2), device="cuda")
        attend, merge = kernels.function(way), kernels.module.get_function("merge_attention")
        address, count = numpy.uint64, numpy.uint32
        sink = address(self.sinks.data_ptr() if sinks else 0)
        out, sums_at = address(self.out.data_ptr()), address(sums.data_ptr())
        read = [self.states.data_ptr(), self.keys.data_ptr(), self.values.data_ptr(), items.data.ptr, self.tables.data_ptr()]
        counts = [self.states.shape[1], self.heads, self.kv_heads, window, chunk]
        arguments = [*map(address, read), sink, sums_at, out, *map(count, counts)]
        arguments += [numpy.float32(1 / math.sqrt(self.dim)), numpy.float32(cap)]
        grid = (len(items), self.kv_heads * -(-group // kernels.rows[way]))

        def run():
            attend(grid, (kernels.threads[way],), tuple(arguments), shared_mem=kernels.memory[way])
            if len(merges):
                merged = (sums_at, address(merges.data.ptr), sink, out, count(self.heads), count(self.dim))
                merge((len(merges), self.heads), (128,), merged)
            return items, sums

        return run

    def expected(self, index, window=0, chunk=0, cap=0.0, sinks=False):
        """Attention of one sequence as it is defined, in float64."""
        position, tokens, table = self.spans[index]
        first, length = sum(one[1] for one in self.spans[:index]), position + tokens
        blocks = self.tables[table : table + -(-length // BLOCK)].long()
        keys = self.keys[blocks].permute(0, 3, 1, 2, 4).reshape(-1, self.kv_heads, self.dim)[:length].double()
        values = self.values[blocks].permute(0, 3, 1, 2).reshape(-1, self.kv_heads, self.dim)[:length].double()
        keys, values = (one.repeat_interleave(self.heads // self.kv_heads, 1) for one in (keys, values))
        queries = self.states[first : first + tokens, : self.heads * self.dim].bfloat16().double()
        scores = torch.einsum("qhd,khd->hqk", queries.reshape(tokens, self.heads, self.dim), keys) / math.sqrt(self.dim)
        scores = cap * torch.tanh(scores / cap) if cap else scores
        at = torch.arange(position, length, device="cuda")[:, None]
        key = torch.arange(length, device="cuda")[None]
        seen = key <= at
        seen &= key > at - window if window else seen
        seen &= key >= at // chunk * chunk if chunk else seen
        scores = scores.masked_fill(~seen, -math.inf)
        if sinks:
            scores = torch.cat([scores, self.sinks.double()[:, None, None].expand(-1, tokens, 1)], -1)
        return first, tokens, torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :length], values)


def check(shape, macros=()):
    """Whether all rows are right, with the same bits by either kernel, in one piece and in many."""
    kernels, case, worst, same = Kernels(shape[2], macros), Case(shape, MIXED), 0.0, True
    for odd in ODD:
        found = []
        for way in kernels.ways:
            for divide in (None, True, False):
                case.out.fill_(math.nan)
                kept = case.prepared(kernels, way, divide, **odd)()
                torch.cuda.synchronize()
                found.append(case.out.clone())
                del kept
        same &= all(torch.equal(found[0].view(torch.int16), other.view(torch.int16)) for other in found)
        for index in range(len(MIXED)):
            first, tokens, expected = case.expected(index, **odd)
            off = (found[0][first : first + tokens].double() - expected).abs().max().item()
            worst = max(worst, off if off == off else math.inf)
    print(f"{shape[0]} heads, {shape[1]} of keys, {shape[2]} numbers: off by {worst:.1e}, same bits: {same}", flush=True)
    return same and worst < 0.02


def milliseconds(run):
    """The median of ten runs, after one."""
    kept, times = [run()], []
    for _ in range(10):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        kept.append(run())
        ended.record()
        ended.synchronize()
        times.append(begun.elapsed_time(ended))
    return sorted(times)[5]


def time_all(shape=(32, 8, 128), macros=()):
    """Times of one layer with the shape of Llama 3.1 8B, beside PyTorch where all sequences are alike."""
    kernels = Kernels(shape[2], macros)
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    for name, spans in TIMED.items():
        case, tokens = Case(shape, spans), spans[0][1]
        with stream:
            spent = milliseconds(case.prepared(kernels, kernels.way(tokens * 4)))
        read = sum((first + count) * shape[1] * shape[2] * 4 for first, count in spans) / spent / 1e9
        done = sum(4 * shape[0] * shape[2] * (count * first + count * (count + 1) / 2) for first, count in spans) / spent / 1e9
        line = f"{name}: {spent:.3f} ms, " + (f"{read:.1f} TB/s" if tokens == 1 else f"{done:.0f} TFLOP/s")
        if not macros and (tokens == 1 or spans[0][0] == 0):
            sizes = [(len(spans), shape[0], tokens), (len(spans), shape[1], spans[0][0] + tokens)]
            queries, keys = (torch.randn(*size, shape[2], device="cuda", dtype=torch.bfloat16) for size in sizes)
            values, causal = torch.randn_like(keys), tokens > 1
            peer = milliseconds(
                lambda q=queries, k=keys, v=values, c=causal: functional.scaled_dot_product_attention(
                    q, k, v, is_causal=c, enable_gqa=True
                )
            )
            line += f"; PyTorch {peer:.3f} ms"
        print(line, flush=True)


if __name__ == "__main__":
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    parser = argparse.ArgumentParser()
    parser.add_argument("--variants", nargs="*", default=[])
    variants = [variant.split(",") for variant in parser.parse_args().variants]
    # At once, and at first: nvcc takes longer than all the rest.
    wanted = {(shape[2], ()) for shape in HEADS} | {(128, tuple(variant)) for variant in variants}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda one: compiled(*one), sorted(wanted)))
    time_all()
    passed = [check(shape) for shape in HEADS]
    for variant in variants:
        print(*variant, flush=True)
        time_all(macros=variant)
        check((8, 2, 128), variant)
    sys.exit(0 if all(passed) else "error: attention is not as defined")
