#!/usr/bin/env python3
"""What sampling masks cost: tokens a second of the same requests without and with them, see README.md.

    benches/sampling_masks.py TITO MODEL

One server is asked in turns. Prompts have 128 ids of their own, so that nothing is cached.
"""

import concurrent.futures
import json
import pathlib
import statistics
import sys
import time
import urllib.request

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).parent))

from server import Server  # noqa: E402

# Streams, answers of each, tokens of an answer, rounds.
LOADS = ((1, 4, 64, 9), (16, 2, 48, 7))
SAMPLINGS = {"top_k 20": {"top_k": 20}, "top_k 20, top_p 0.95": {"top_k": 20, "top_p": 0.95}}
WAYS = {"without": {}, "with": {"return_sampling_mask": True}}


class Asked:
    def __init__(self, url):
        self.url, self.number = url, 0

    def prompt(self):
        self.number += 1
        return [(self.number * 7919 + place * 31) % 40_000 + 100 for place in range(128)]

    def answer(self, prompt, tokens, params):
        sampling = {"temperature": 1, "seed": 1, "max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True, **params}
        body = json.dumps({"token_ids": prompt, "sampling_params": sampling}).encode()
        request = urllib.request.Request(f"{self.url}/inference/v1/generate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as response:
            choice = json.loads(response.read())["choices"][0]
        assert len(choice["token_ids"]) == tokens
        return choice

    def throughput(self, streams, answers, tokens, params):
        prompts = [self.prompt() for _ in range(streams * answers)]
        started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
            list(pool.map(lambda prompt: self.answer(prompt, tokens, params), prompts))
        return streams * answers * tokens / (time.monotonic() - started)


def main(tito, model):
    server = Server(tito, model, 8195, "--return-sampling-mask")
    asked = Asked("http://127.0.0.1:8195")
    for sampling, params in SAMPLINGS.items():
        masked = asked.answer(asked.prompt(), 4, {**params, **WAYS["with"]})
        assert len(masked["sampling_mask"]) == 4, "no masks come back"
        for streams, answers, tokens, rounds in LOADS:
            found = {way: [] for way in WAYS}
            for count in range(rounds):
                # Nobody is always the first after a pause.
                for way in list(WAYS)[:: 1 if count % 2 else -1]:
                    found[way].append(asked.throughput(streams, answers, tokens, {**params, **WAYS[way]}))
            ratios = [one / other for one, other in zip(found["with"], found["without"], strict=True)]
            without, with_masks = (statistics.median(found[way]) for way in ("without", "with"))
            print(f"{sampling}, {streams} streams: {without:.1f} tokens a second without, {with_masks:.1f} with, "
                  f"ratio of rounds {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)
    server.process.terminate()
    server.process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
