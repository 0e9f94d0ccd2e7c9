#!/usr/bin/env python3
"""How long steps and prompts take on a server that is running: bursts of random ids over /v1/completions, not streamed.

usage: benches/gpu_load.py URL MODEL

Each line is one figure of benches/gpu.md. The time of a step is that of a burst with answers less that of the same burst
with one token each, divided by the other tokens. Needs nothing but Python.
"""

import json
import random
import sys
import threading
import time
import urllib.request

IDS = range(300, 100_000)
SHORT = [(1, 32, 128), (8, 32, 128), (64, 32, 128), (256, 32, 128)]
LONG = [(64, 1024, 128), (48, 8000, 32), (256, 1024, 64)]
PROMPTS = (1024, 4096, 8000)


class Load:
    """Requests to one server; no two prompts are alike."""

    def __init__(self, url, model):
        self.url = url
        self.model = model
        self.numbers = random.Random(3)

    def burst(self, streams, tokens_in, tokens_out):
        """Seconds for so many requests at once."""
        prompts = [self.numbers.choices(IDS, k=tokens_in) for _ in range(streams)]
        failures = []
        asked = [threading.Thread(target=self.ask, args=(*one, tokens_out, failures)) for one in enumerate(prompts)]
        started = time.perf_counter()
        for thread in asked:
            thread.start()
        for thread in asked:
            thread.join()
        if failures:
            sys.exit(f"error: {len(failures)} of {streams} requests failed, the first with: {failures[0]}")
        return time.perf_counter() - started

    def ask(self, seed, prompt, tokens, failures):
        """One answer of so many tokens."""
        fields = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 1.0, "seed": seed}
        body = json.dumps(fields | {"ignore_eos": True}).encode()
        request = urllib.request.Request(f"{self.url}/v1/completions", body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request) as answer:
                answer.read()
        except OSError as error:
            failures.append(str(error))


def main():
    """Prints all figures."""
    if len(sys.argv) != 3:
        sys.exit("usage: benches/gpu_load.py URL MODEL")
    load = Load(sys.argv[1].rstrip("/"), sys.argv[2])
    print(f"the first request: {load.burst(1, 16, 1):.3f} s")
    for streams, tokens_in, tokens_out in SHORT:
        seconds = load.burst(streams, tokens_in, tokens_out)
        print(f"{streams} x {tokens_in} in, {tokens_out} out: {streams * tokens_out / seconds:.0f} tokens/s")
    for streams, tokens_in, tokens_out in LONG:
        first, all_ = (load.burst(streams, tokens_in, count) for count in (1, tokens_out))
        step = 1000 * (all_ - first) / (tokens_out - 1)
        print(f"{streams} x {tokens_in} in: {streams * tokens_in / first:.0f} tokens/s, then {step:.1f} ms a step")
    for tokens_in in PROMPTS:
        print(f"a prompt of {tokens_in}: {1000 * min(load.burst(1, tokens_in, 1) for _ in range(3)):.0f} ms")


if __name__ == "__main__":
    main()
