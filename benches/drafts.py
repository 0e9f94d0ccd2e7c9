#!/usr/bin/env python3
"""What drafts (`--speculative-config`) gain and cost: tokens a second beside the same server without them; see engine.md.

    benches/drafts.py TITO SMOLLM2 [WORKLOAD,WORKLOAD]

A server without drafts and one for each method run and are asked in turns, the same requests with the same seeds. Answers are the
same to the token, which is checked. The workloads:

- `edit`: an agent is shown a file of this directory, and writes it again with a name changed. Temperature 0.
- `records`: a tool returns records as JSON, turn after turn, and the agent writes some of them again. Temperature 0.7.
- `samples`: groups of 8 samples of one question, at temperature 1, as in reinforcement learning.
- `random`: prompts of random ids, at temperature 1. Nothing repeats itself, so drafts can only cost.
"""

import concurrent.futures
import contextlib
import json
import pathlib
import random
import statistics
import sys
import time
import urllib.request

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).parent))

from server import Server  # noqa: E402

HERE = pathlib.Path(__file__).parent
WAYS = {
    "none": ("--speculative-config", "null"),
    "ngram": ("--speculative-config", '{"method":"ngram","num_speculative_tokens":16,"prompt_lookup_max":4,"prompt_lookup_min":2}'),
    "suffix": ("--speculative-config", '{"method":"suffix"}'),
}
# For each workload: streams and rounds.
LOADS = {
    "edit": ((1, 5), (4, 3), (16, 3)),
    "records": ((1, 5), (4, 3), (16, 3)),
    "samples": ((16, 3), (64, 3)),
    "random": ((1, 7), (4, 5), (16, 5), (64, 3)),
}
QUESTIONS = (
    "A train leaves at 9 and travels 60 miles an hour. Another leaves at 10 and travels 80. When does it catch up? Think step by step.",
    "Write a Python function that returns the n-th Fibonacci number, and explain it line by line.",
    "List the planets of the solar system with a sentence about each.",
    "Explain how a bill becomes a law, in numbered steps.",
    "Write a short story about a fox and a crow, with a moral.",
    "Give a recipe for pancakes: first the ingredients, then the steps.",
    "What are the causes of the First World War? Name five, with reasons.",
    "Compare bicycles and cars as means of transport in a city.",
)
SAMPLES = 8


def chat(server, messages, tokens, temperature, seed):
    """The ids of an answer."""
    asked = {"model": "base", "messages": messages, "max_tokens": tokens, "temperature": temperature, "seed": seed}
    answer = json.loads(server.post("/v1/chat/completions", return_token_ids=True, **asked))["choices"][0]
    return answer["message"]["content"], answer["token_ids"]


def edit(server, number):
    """One answer of an agent that writes a file again."""
    files = sorted(HERE.glob("serve/*.py"))
    lines = files[number % len(files)].read_text().splitlines()
    start = number * 7 % max(len(lines) - 40, 1)
    shown = "\n".join(lines[start : start + 40])
    asked = f"This is a file:\n```python\n{shown}\n```\nWrite the whole file again, and rename `options` to `settings`."
    return chat(server, [{"role": "user", "content": asked}], 256, 0, number)[1]


def records(server, number):
    """Three turns of an agent whose tool returns records."""
    draw, messages, ids = random.Random(number), [], []
    for turn in range(3):
        found = [
            {"id": f"task-{draw.randrange(10_000)}", "status": draw.choice(("open", "closed")), "owner": draw.choice(("ann", "bob", "eve")),
             "title": f"{draw.choice(('Fix', 'Write', 'Test'))} the {draw.choice(('parser', 'server', 'client', 'cache'))}"}
            for _ in range(8)
        ]
        asked = f"The tool returned:\n{json.dumps(found, indent=1)}\nWrite the records whose status is open, as JSON."
        messages.append({"role": "user", "content": asked})
        content, answer = chat(server, messages, 192, 0.7, number * 3 + turn)
        messages.append({"role": "assistant", "content": content})
        ids += answer
    return ids


def samples(server, number):
    """One sample of a group."""
    question = QUESTIONS[number // SAMPLES % len(QUESTIONS)]
    # Another round is another prompt, so that no text of the last one is found.
    asked = f"{question} (Question {number // SAMPLES}.)"
    return chat(server, [{"role": "user", "content": asked}], 192, 1, number)[1]


def noise(server, number):
    """An answer to random ids."""
    prompt = random.Random(number).choices(range(1_000, 40_000), k=128)
    asked = {"model": "base", "prompt": prompt, "max_tokens": 96, "ignore_eos": True, "seed": number}
    return json.loads(server.post("/v1/completions", return_token_ids=True, **asked))["choices"][0]["token_ids"]


WORKLOADS = {"edit": edit, "records": records, "samples": samples, "random": noise}


def load(server, workload, streams, first):
    """Tokens a second, and the ids of all answers."""
    count = 2 * streams if streams <= 4 else streams
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        answers = list(pool.map(lambda number: WORKLOADS[workload](server, number), range(first, first + count)))
    return sum(map(len, answers)) / (time.monotonic() - started), answers


def counts(server):
    """Tokens that were drafted, and those of them that were right, since the start."""
    with urllib.request.urlopen(f"{server.url}/metrics") as response:
        lines = response.read().decode().splitlines()
    found = dict.fromkeys(("draft", "accepted"), 0.0)
    for line in lines:
        for name in found:
            if line.startswith(f"vllm:spec_decode_num_{name}_tokens_total"):
                found[name] += float(line.rsplit(" ", 1)[1])
    return found


def compare(servers, workload, streams, rounds, first):
    """The table of one load."""
    rates, before = {way: [] for way in servers}, {way: counts(server) for way, server in servers.items()}
    tokens = 0
    for turn in range(rounds):
        whole = {}
        # Nobody is always the first after a pause.
        for way in list(servers)[:: 1 if turn % 2 else -1]:
            rate, whole[way] = load(servers[way], workload, streams, first + turn * 64)
            rates[way].append(rate)
        tokens += sum(map(len, whole["none"]))
        for way, answers in whole.items():
            if answers != whole["none"]:
                sys.exit(f"{workload}, {streams} streams, round {turn}: answers with {way} differ")
    print(f"{workload}, {streams} at a time, {rounds} rounds, {tokens / rounds:.0f} tokens each:")
    for way, server in servers.items():
        ratios = [one / other for one, other in zip(rates[way], rates["none"], strict=True)]
        after = counts(server)
        drafted, accepted = (after[name] - before[way][name] for name in ("draft", "accepted"))
        print(f"  {way}: {statistics.median(rates[way]):.1f} tokens a second, {statistics.median(ratios):.2f} of none "
              f"({min(ratios):.2f} to {max(ratios):.2f}); {drafted:.0f} drafted, {accepted:.0f} right, "
              f"{accepted / tokens:.2f} of all tokens", flush=True)


def main(tito, model, only=None):
    with contextlib.ExitStack() as stack:
        servers = {}
        for number, (way, flags) in enumerate(WAYS.items()):
            servers[way] = Server(tito, model, 8195 + number, *flags, "--max-model-len", "4096", "--kv-cache-memory", "1G")
            stack.callback(servers[way].process.wait)
            stack.callback(servers[way].process.terminate)
        first = 0
        for workload, loads in LOADS.items():
            if only and workload not in only.split(","):
                continue
            for streams, rounds in loads:
                compare(servers, workload, streams, rounds, first)
                first += 64 * rounds


if __name__ == "__main__":
    main(*sys.argv[1:])
