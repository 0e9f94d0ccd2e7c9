#!/usr/bin/env python3
"""What rounding activations costs and saves: bf16, bf16 with activations in f32, and f32; see engine.md.

    benches/activations.py TITO SMOLLM2 [distance|speed]

Three servers run and are asked in turns. Log-probs are those of the recorded conversations of tests/golden/multiturn, token by
token. For speed, prompts have ids of their own, so that nothing is cached.
"""

import concurrent.futures
import json
import pathlib
import statistics
import sys
import time

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).parent))

from server import Server  # noqa: E402

CONVERSATIONS = pathlib.Path(__file__).parent.parent / "tests" / "golden" / "multiturn" / "conversations.jsonl"
BF16 = ("--dtype", "bfloat16")
WAYS = {"bf16": BF16, "bf16, f32 activations": (*BF16, "--activation-dtype", "float32"), "f32": ("--dtype", "float32")}
# Streams, answers of each, tokens of a prompt and of an answer, rounds.
LOADS = ((1, 2, 128, 64, 7), (4, 2, 128, 48, 7), (16, 1, 128, 48, 5), (1, 1, 2000, 1, 5))


def conversations():
    """The ids of each recorded conversation, and at which of them the model sampled."""
    for line in CONVERSATIONS.read_text().splitlines()[1:]:
        conversation, ids, sampled = json.loads(line), [], []
        for turn in conversation["turns"]:
            ids += turn["appended_ids"]
            answer = turn.get("generation_token_ids") or []
            sampled += range(len(ids), len(ids) + len(answer))
            ids += answer
        yield conversation["id"], ids, set(sampled)


def log_probs(server, ids):
    """The log-prob of each id but the first."""
    asked = {"prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
    choice = json.loads(server.post("/v1/completions", model="base", **asked))["choices"][0]
    return [position[str(token)]["logprob"] for token, position in zip(ids[1:], choice["prompt_logprobs"][1:], strict=True)]


def distance(servers):
    """How far log-probs are from those of f32: on average, squared, at most, and where that is."""
    scored = {way: {} for way in servers}
    places = []
    for name, ids, sampled in conversations():
        found = {way: log_probs(server, ids) for way, server in servers.items()}
        for place in range(1, len(ids)):
            places.append((name, place, ids[place], place in sampled))
            for way in servers:
                scored[way][name, place] = found[way][place - 1]
    for way in list(servers)[:-1]:
        off = {place: abs(scored[way][place[:2]] - scored["f32"][place[:2]]) for place in places}
        for kind, chosen in kinds(places, scored["f32"]).items():
            worst = max(chosen, key=off.get)
            name, place, token, _ = worst
            print(f"{way}, {len(chosen)} {kind}: {statistics.fmean(map(off.get, chosen)):.2g} on average, at most {off[worst]:.2g} "
                  f"(token {token} at {place} of {name}, log-prob {scored['f32'][name, place]:.3f}), "
                  f"{sum(off[place] == 0 for place in chosen)} the same", flush=True)


def kinds(places, exact):
    """All tokens, those that the model sampled, and all by how likely they are."""
    found = {"tokens": places, "sampled tokens": [place for place in places if place[3]]}
    for above, upto in ((-0.1, 0), (-1, -0.1), (-4, -1), (-8, -4), (-float("inf"), -8)):
        found[f"tokens of log-probs over {above}, up to {upto}"] = [
            place for place in places if above < exact[place[:2]] <= upto
        ]
    return found


def throughput(server, streams, answers, prompt, tokens):
    """Tokens a second of answers, those of one token as tokens of prompts."""
    prompts = []
    for _ in range(streams * answers):
        server.asked += 1
        prompts.append([(server.asked * 7919 + place * 31) % 40_000 + 100 for place in range(prompt)])
    sampling = {"model": "base", "max_tokens": tokens, "ignore_eos": True, "seed": 1}
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        list(pool.map(lambda ids: server.post("/v1/completions", prompt=ids, **sampling), prompts))
    return streams * answers * (tokens if tokens > 1 else prompt) / (time.monotonic() - started)


def speed(servers):
    for streams, answers, prompt, tokens, rounds in LOADS:
        found = {way: [] for way in servers}
        for count in range(rounds):
            # Nobody is always the first after a pause.
            for way in list(servers)[:: 1 if count % 2 else -1]:
                found[way].append(throughput(servers[way], streams, answers, prompt, tokens))
        print(f"{streams} streams, {prompt} in, {tokens} out, {rounds} rounds:")
        for way, rates in found.items():
            ratios = [one / other for one, other in zip(rates, found["bf16"], strict=True)]
            print(f"  {way}: {statistics.median(rates):.1f} tokens a second, of bf16's {statistics.median(ratios):.2f} "
                  f"({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def main(tito, model, only=None):
    servers = {way: Server(tito, model, 8195 + number, *flags, "--max-model-len", "4096", "--kv-cache-memory", "1G")
               for number, (way, flags) in enumerate(WAYS.items())}
    try:
        for part in (distance, speed):
            if only in (None, part.__name__):
                part(servers)
    finally:
        for server in servers.values():
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
