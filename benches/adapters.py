#!/usr/bin/env python3
"""What adapters cost: tokens a second of the base and of requests with 1 and 8 adapters of rank 16; see README.md.

    benches/adapters.py TITO MODEL          needs numpy

Two servers run, one without --enable-lora, and are asked in turns. Prompts have 128 ids of their own, so that nothing is cached.
"""

import concurrent.futures
import json
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).parent))
sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests" / "reference"))

import record  # noqa: E402
from server import Server  # noqa: E402

RANK = 16
ADAPTERS = 8
# Streams, tokens of an answer, rounds.
LOADS = ((1, 64, 5), (16, 48, 3), (64, 32, 3))


def write_adapters(model, root):
    """Random adapters of all linear layers of a model of Llama's shape."""
    config = json.loads((model / "config.json").read_text())
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {f"self_attn.{name}": shape for name, shape in
              {"q_proj": (hidden, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden), "o_proj": (hidden, hidden)}.items()}
    shapes |= {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    targets = [name.split(".")[1] for name in shapes]
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "target_modules": targets, "bias": "none"}
    for number in range(ADAPTERS):
        directory, draw, tensors = root / f"a{number}", np.random.default_rng(number), {}
        directory.mkdir()
        for layer in range(config["num_hidden_layers"]):
            for module, (outputs, inputs) in shapes.items():
                name = f"base_model.model.model.layers.{layer}.{module}"
                tensors[f"{name}.lora_A.weight"] = draw.normal(0, inputs**-0.5, (RANK, inputs)).astype("f4")
                tensors[f"{name}.lora_B.weight"] = (0.02 * draw.normal(0, RANK**-0.5, (outputs, RANK))).astype("f4")
        (directory / "adapter_config.json").write_text(json.dumps(settings))
        (directory / "adapter_model.safetensors").write_bytes(record.safetensors(tensors, "F32"))


class AdapterServer(Server):
    def complete(self, model, number, tokens):
        prompt = [(number * 37 + place) % 40000 + 100 for place in range(128)]
        self.post("/v1/completions", model=model, prompt=prompt, max_tokens=tokens, ignore_eos=True, seed=number)

    def throughput(self, models, streams, tokens):
        first = self.asked
        self.asked += streams
        started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
            calls = [pool.submit(self.complete, models[n % len(models)], first + n, tokens) for n in range(streams)]
            for call in calls:
                call.result()
        return streams * tokens / (time.monotonic() - started)

    def megabytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def main(tito, model):
    model = pathlib.Path(model)
    with tempfile.TemporaryDirectory() as root:
        write_adapters(model, pathlib.Path(root))
        plain = AdapterServer(tito, model, 8191)
        served = AdapterServer(tito, model, 8192, "--enable-lora", "--max-loras", str(ADAPTERS))
        names = [f"a{number}" for number in range(ADAPTERS)]
        before, started = served.megabytes(), time.monotonic()
        for name in names:
            served.post("/v1/load_lora_adapter", lora_name=name, lora_path=f"{root}/{name}")
        took = (time.monotonic() - started) / ADAPTERS
        served.throughput(names, ADAPTERS, 2)
        size = (served.megabytes() - before) / ADAPTERS
        print(f"an adapter is loaded in {1000 * took:.0f} ms, and takes {size:.0f} MB with its file and its place")
        cases = {"plain": (plain, ["base"]), "0": (served, ["base"]), "1": (served, names[:1]), "8": (served, names)}
        for streams, tokens, rounds in LOADS:
            found = {case: [] for case in cases}
            for _ in range(rounds):
                for case, (server, models) in cases.items():
                    found[case].append(server.throughput(models, streams, tokens))
            medians = {case: statistics.median(values) for case, values in found.items()}
            shares = ", ".join(f"{case}: {value:.1f} ({value / medians['plain']:.2f})" for case, value in medians.items())
            print(f"{streams} streams, tokens a second (share of plain): {shares}", flush=True)
        for server in (plain, served):
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
