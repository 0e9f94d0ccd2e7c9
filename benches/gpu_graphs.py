#!/usr/bin/env python3
"""How long steps take as ever, with recorded launches (`--cuda-graphs`), and begun ahead (`--async-scheduling`): servers on one GPU,
alternated.

usage: benches/gpu_graphs.py TITO [small|mixture|large ...]

Models have the shapes of published ones and random weights, which torch makes on the GPU; they lie in /dev/shm. The time of a step
is that of a burst less that of the same burst with one token each, by the other tokens; the least of two. At the end all servers
are asked for the same seeds, one at a time: the ids and log-probs that are equal to the bit are counted.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests")]

from gpu import shapes, writing  # noqa: E402
from gpu_load import Load  # noqa: E402

SHAPES = {"small": shapes.QWEN3_06B, "mixture": shapes.QWEN3_30B_A3B, "large": shapes.LLAMA_8B}
STREAMS = (1, 4, 16, 64, 128)
WAYS = {"plain": [], "recorded": ["--cuda-graphs"], "ahead": ["--async-scheduling"]}
TOKENS_IN, TOKENS_OUT, ROUNDS, SEEDS = 32, 200, 2, 8
READY_SECONDS = 120


@contextlib.contextmanager
def serving(tito, model, port, flags, log):
    """A server that is ready; what it wrote is in `log`."""
    command = [tito, "serve", model, "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "random"]
    command += ["--engine", "native", "--device", "cuda", "--kv-cache-memory", "8G", "--max-model-len", "4096"]
    with open(log, "w", encoding="utf-8") as file:
        server = subprocess.Popen([*command, *flags], stdout=file, stderr=file)
        try:
            wait_for(server, port, log)
            yield Load(f"http://127.0.0.1:{port}", "random")
        finally:
            server.terminate()
            server.wait()


def wait_for(server, port, log):
    """Until the server is ready; ends the program if it ends before."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
            return
        time.sleep(0.1)
    sys.exit(f"error: the server is not ready:\n{Path(log).read_text(encoding='utf-8')[-2000:]}")


def step_ms(load, streams):
    """Milliseconds of a step of so many streams."""
    first, all_ = (load.burst(streams, TOKENS_IN, count) for count in (1, TOKENS_OUT))
    return 1000 * (all_ - first) / (TOKENS_OUT - 1)


def answer(load, seed):
    """Ids and log-probs of a seeded answer."""
    fields = {"model": "random", "prompt": list(range(1000 + seed, 1040 + seed)), "max_tokens": 64, "seed": seed}
    fields |= {"temperature": 1.0, "ignore_eos": True, "logprobs": 0, "return_token_ids": True}
    body = json.dumps(fields).encode()
    request = urllib.request.Request(f"{load.url}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        [choice] = json.load(reply)["choices"]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def compare(tito, shape, scratch):
    """Prints all figures of a shape."""
    model = f"{scratch}/{shape.family}"
    writing.write_model(model, shape, 1, "cuda")
    import torch

    torch.cuda.empty_cache()
    with contextlib.ExitStack() as stack:
        loads = {}
        for port, (way, flags) in enumerate(WAYS.items(), 8401):
            log = f"{os.environ.get('OUT', scratch)}/{shape.family}-{port}.log"
            loads[way] = stack.enter_context(serving(tito, model, port, flags, log))
            loads[way].burst(4, TOKENS_IN, 8)
        for streams in STREAMS:
            steps = {way: [] for way in WAYS}
            for _ in range(ROUNDS):
                for way, load in loads.items():
                    steps[way].append(step_ms(load, streams))
            plain, *others = (min(steps[way]) for way in WAYS)
            ratios = ", ".join(f"{way} {plain / other:.2f}" for way, other in zip(list(WAYS)[1:], others, strict=True))
            spread = "; ".join(f"{way} " + ", ".join(f"{ms:.2f}" for ms in steps[way]) for way in WAYS)
            print(f"{shape.name}, {streams} streams, times as fast as plain: {ratios} ({spread} ms)", flush=True)
        answers = [[answer(load, seed) for seed in range(SEEDS)] for load in loads.values()]
        same = sum(all(other == one for other in others) for one, *others in zip(*answers, strict=True))
        print(f"{shape.name}: {same} of {SEEDS} seeded answers are equal to the bit", flush=True)


def main():
    """All shapes that are named, or the small one."""
    names = sys.argv[2:] or ["small"]
    if len(sys.argv) < 2 or set(names) - set(SHAPES):
        sys.exit("usage: benches/gpu_graphs.py TITO [small|mixture|large ...]")
    scratch = tempfile.mkdtemp(prefix="gpu-graphs-", dir="/dev/shm")
    try:
        for name in names:
            compare(sys.argv[1], SHAPES[name], scratch)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
