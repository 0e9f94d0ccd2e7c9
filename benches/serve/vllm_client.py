"""A second opinion: vLLM's own client (`vllm-rs bench serve`) asks a server what `throughput` asks it."""

import asyncio
import json
import tempfile
from pathlib import Path

from .client import BenchError


async def ask(options, url, model):
    """Output tokens a second and the median time to the first token, at each concurrency."""
    figures = []
    for streams in options.concurrency:
        count = max(options.requests or max(4, 2 * streams), streams)
        with tempfile.TemporaryDirectory() as folder:
            await run(options, [
                "--base-url", url, "--model", model, "--tokenizer", options.directory, "--num-prompts", str(count),
                "--max-concurrency", str(streams), "--seed", str((options.seed + streams) % 2**31),
                "--result-dir", folder, "--result-filename", "result.json",
            ])  # fmt: skip
            found = json.loads(Path(folder, "result.json").read_text())
        if found["completed"] != count:
            raise BenchError(f"vllm-rs has {found['completed']} answers of {count}")
        rate, ttft = found["output_throughput"], found["median_ttft_ms"] / 1000
        figures.append({"streams": streams, "requests": count, "output_tokens_per_s": rate, "ttft_s": {"p50": ttft}})
    return figures


async def run(options, more):
    """One run of it; what it prints is shown only where it fails."""
    process = await asyncio.create_subprocess_exec(
        options.vllm_rs, "bench", "serve", "--backend", "vllm", "--dataset-name", "random", "--prompt-token-ids",
        "--input-len", str(options.tokens_in), "--output-len", str(options.tokens_out), "--ignore-eos",
        "--disable-tqdm", "--no-steady-state", "--save-result", *more,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise BenchError(f"vllm-rs ended with status {process.returncode}: {printed[-500:].decode(errors='replace')}")
