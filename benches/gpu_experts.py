#!/usr/bin/env python3
"""The kernels of mixtures by themselves, on a GPU: right beside float64, the same bits in every tile, and how fast.

usage: benches/gpu_experts.py     # from the repository's root; needs nvcc, torch and cupy

Compiles crates/tito-engine/src/engine/native/cuda/kernels/experts.cu for the GPU that is there. Each figure is the mean of
twenty launches after three, by the device's own events. The peer is PyTorch: its grouped product, or one by cuBLAS.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import cupy
import numpy
import torch

SOURCE = Path("crates/tito-engine/src/engine/native/cuda/kernels/experts.cu")
WARPS = 4
# Outputs of a warp, and times eight rows of a tile.
VARIANTS = [(16, 1), (16, 2), (32, 4), (32, 8)]
# Experts, chosen, outputs, inputs: the two products of Qwen3-30B-A3B, and those of Llama 3.1 8B as mixtures of one.
MIXTURES = {"gates and ups of Qwen3-30B-A3B": (128, 8, 1536, 2048), "the way back": (128, 8, 2048, 768)}
DENSE = {"keys": (1, 1, 6144, 4096), "out": (1, 1, 4096, 4096), "gates": (1, 1, 28672, 4096), "down": (1, 1, 4096, 14336)}
address, count = numpy.uint64, numpy.uint32


# Of what is compiled: cupy reads a file when it first needs it.
FOLDERS = []


def compiled():
    """The kernels."""
    capability = "".join(map(str, torch.cuda.get_device_capability()))
    folder = tempfile.TemporaryDirectory()
    FOLDERS.append(folder)
    out = f"{folder.name}/kernels.cubin"
    target = ["--cubin", "-O3", "--std=c++17", "-fmad=false", f"-arch=sm_{capability}"]
    subprocess.run(["nvcc", *target, str(SOURCE), "-o", out], check=True)
    return cupy.RawModule(path=out)


class Case:
    """Rows that go through random experts."""

    def __init__(self, rows, experts, chosen, outputs, inputs):
        random = torch.Generator("cuda").manual_seed(1)
        self.rows, self.experts, self.outputs, self.inputs = rows, experts, outputs, inputs
        # So many copies that none is in the cache when its turn comes.
        self.copies = max(1, 200_000_000 // (2 * experts * outputs * inputs))
        draw = lambda *size: torch.randn(*size, device="cuda", generator=random).bfloat16()  # noqa: E731
        self.weights = draw(self.copies, experts, outputs, inputs) * inputs**-0.5
        self.input = draw(rows, inputs)
        scores = torch.rand(rows, experts, device="cuda", generator=random)
        self.chosen = scores.topk(chosen, -1).indices.to(torch.int32)
        order = self.chosen.flatten().long().argsort(stable=True)
        self.sources = (order // chosen).to(torch.int32)
        self.counts = self.chosen.flatten().long().bincount(minlength=experts)
        self.out = torch.full((rows * chosen, outputs), torch.nan, device="cuda")
        size = 2 * outputs * inputs
        base = self.weights.data_ptr()
        tables = [[base + (copy * experts + expert) * size for expert in range(experts)] for copy in range(self.copies)]
        self.tables = torch.tensor(tables, device="cuda", dtype=torch.int64)

    def prepared(self, module, out, eights):
        """A function that multiplies with a copy of the weights."""
        tiles, first = [], 0
        for expert, rows in enumerate(self.counts.tolist()):
            tiles += [(expert, first + at, min(8 * eights, rows - at)) for at in range(0, rows, 8 * eights)]
            first += rows
        self.tiles = torch.tensor(tiles, device="cuda", dtype=torch.int32)
        kernel = module.get_function(f"multiply_experts_{out}_{eights}")
        grid = (len(tiles), -(-self.outputs // (WARPS * out)))
        fixed = [address(one.data_ptr()) for one in (self.tiles, self.sources, self.out)]

        def run(copy=0):
            table = address(self.tables[copy % self.copies].data_ptr())
            read = (address(self.input.data_ptr()), table, address(0), *fixed, count(self.inputs), count(self.outputs))
            kernel(grid, (WARPS * 32,), read)

        return run

    def peer(self):
        """The same by PyTorch, in bf16."""
        rows = self.input[self.sources.long()]
        if self.experts == 1:
            return lambda copy=0: rows @ self.weights[copy % self.copies, 0].T
        ends = self.counts.cumsum(0).to(torch.int32)
        return lambda copy=0: torch._grouped_mm(rows, self.weights[copy % self.copies].transpose(1, 2), offs=ends)

    def expected(self):
        """In float64."""
        owners = self.chosen.flatten().long().sort(stable=True).values
        found = torch.empty(len(owners), self.outputs, device="cuda", dtype=torch.float64)
        for expert in owners.unique().tolist():
            own = owners == expert
            found[own] = self.input[self.sources[own].long()].double() @ self.weights[0, expert].double().T
        return found


def milliseconds(run):
    """The mean of twenty launches, each with other weights."""
    for copy in range(3):
        run(copy)
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    for copy in range(20):
        run(copy)
    ended.record()
    ended.synchronize()
    return begun.elapsed_time(ended) / 20


def check(module):
    """Whether products are right, with the same bits by every variant and alone."""
    worst, same = 0.0, True
    for shape in ((9, 4, 2, 72, 104), (70, 5, 3, 200, 512), (300, 3, 1, 1536, 2048)):
        case, found = Case(*shape), []
        for variant in VARIANTS:
            case.out.fill_(torch.nan)
            case.prepared(module, *variant)()
            torch.cuda.synchronize()
            found.append(case.out.clone())
        same &= all(torch.equal(found[0].view(torch.int32), other.view(torch.int32)) for other in found)
        off = (found[0].double() - case.expected()).abs().max().item()
        worst = max(worst, off if off == off else float("inf"))
    print(f"off by {worst:.1e}, same bits: {same}", flush=True)
    return same and worst < 1e-4


def time_all(module, shapes, rows):
    """Milliseconds of each variant, and of the peer."""
    for name, shape in shapes.items():
        for count_of_rows in rows:
            case = Case(count_of_rows, *shape)
            spent = {f"{out}x{8 * eights}": milliseconds(case.prepared(module, out, eights)) for out, eights in VARIANTS}
            best = min(spent.values())
            read = int((case.counts > 0).sum()) * shape[2] * shape[3] * 2 / best / 1e9
            done = 2 * count_of_rows * shape[1] * shape[2] * shape[3] / best / 1e9
            try:
                peer = f"{milliseconds(case.peer()):.3f}"
            except RuntimeError as error:
                peer = str(error).splitlines()[0][:60]
            each = ", ".join(f"{variant} {time:.3f}" for variant, time in spent.items())
            print(f"{name}, {count_of_rows} rows: {each}; {read:.2f} TB/s, {done:.0f} TFLOP/s; PyTorch {peer}", flush=True)
            del case
            torch.cuda.empty_cache()


if __name__ == "__main__":
    kernels = compiled()
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        passed = check(kernels)
        time_all(kernels, MIXTURES, (1, 8, 64, 256, 1024, 8192))
        time_all(kernels, DENSE, (1, 4, 8, 16, 32, 64, 128))
    sys.exit(0 if passed else "error: products are not as defined")
