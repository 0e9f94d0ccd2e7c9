"""What `--continuity-store` adds to a turn: p50 and p99, with the store well, slow, full, cut off and stopped.

Two servers of the scripted engine answer the turns of one conversation after another by turns, one token each, so that nothing but the
way of a request is measured. Every turn says what became of its ids.

    TITO_BIN=target/release/tito python benches/continuity_store.py

It needs `redis-server`, and the Python packages of the client tests.
"""

import collections
import http.client
import json
import pathlib
import re
import sys
import tempfile
import time
import urllib.parse

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "tests" / part) for part in ["clients", "reference"]]

from checkpoints import Checkpoints  # noqa: E402
from conftest import Server  # noqa: E402
from stores import Redis, Wire  # noqa: E402

CONVERSATIONS, TURNS = 40, 8
FLAGS = ["--engine", "scripted", "--max-model-len", "2048", "--disable-uvicorn-access-log"]


class Client:
    """A connection that stays open."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection(urllib.parse.urlparse(server.url).netloc, timeout=300)

    def turn(self, messages):
        """The seconds of a turn, its text and what became of its ids."""
        body = json.dumps({"model": "smollm2", "messages": messages, "max_tokens": 1, "temperature": 1})
        begun = time.perf_counter()
        self.connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        answer = json.loads(response.read())
        seconds = time.perf_counter() - begun
        assert response.status == 200, answer
        verdict = response.headers["X-Token-Continuity"].split("; ")
        said = dict(part.split("=") for part in verdict[1:])
        return seconds, answer["choices"][0]["message"]["content"], said.get("reason", said["outcome"])


def measured(clients, name, first):
    seconds, verdicts = [], collections.Counter()
    for number in range(first, first + CONVERSATIONS):
        messages = [{"role": "user", "content": f"{name} {number}"}]
        for turn in range(TURNS):
            taken, text, verdict = clients[turn % len(clients)].turn(messages)
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"And {turn}?"}]
            seconds.append(taken)
            verdicts[verdict] += 1
    seconds.sort()
    shown = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    milliseconds = [seconds[int(len(seconds) * share)] * 1000 for share in (0.5, 0.99)]
    print(f"| {name} | {milliseconds[0]:.2f} | {milliseconds[1]:.2f} | {seconds[-1] * 1000:.0f} | {shown} |", flush=True)


def waited(servers, operation):
    """The shares of turns that waited at most so long for the store, as the servers count them."""
    buckets = collections.Counter()
    for server in servers:
        pattern = rf'^tito:continuity_store_seconds_bucket{{.*operation="{operation}".*}} '
        for line in server.get("/metrics").splitlines():
            if re.match(pattern, line):
                buckets[float(re.search(r'le="([^"]+)"', line)[1].replace("+Inf", "inf"))] += float(line.split()[-1])
    most = max(buckets.values())
    within = [min(limit for limit, count in buckets.items() if count >= most * share) for share in (0.5, 0.99)]
    print(f"\n{operation}s: half within {within[0] * 1000:g} ms, 99 % within {within[1] * 1000:g} ms, of {most:.0f}\n", flush=True)


def main():
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        (root / "model").mkdir()
        model = str(Checkpoints(root / "model").base)
        redis = Redis(directory)
        wire = Wire(redis, directory)
        alone = [Server(*FLAGS, model=model) for _ in range(2)]
        alone[0].poll("redis answers", redis.answers)
        shared = [Server(*FLAGS, "--continuity-store", wire.url, model=model) for _ in range(2)]
        print("| store | p50, ms | p99, ms | longest, ms | turns |\n|---|---:|---:|---:|---|")
        without, with_store = [Client(server) for server in alone], [Client(server) for server in shared]
        for clients in [without, with_store]:
            clients[0].turn([{"role": "user", "content": "warm"}]), clients[1].turn([{"role": "user", "content": "warm"}])
        measured(without[:1], "none, one server", 0)
        measured(without, "none, two servers by turns", 0)
        measured(with_store[:1], "well, one server", 0)
        measured(with_store, "well, two servers by turns", 0)
        waited(shared, "lookup")
        waited(shared, "write")
        redis.fill()
        measured(with_store, "full", 0)
        redis.empty()
        for mode in ["slow", "cut"]:
            wire.set(mode)
            measured(with_store, mode, 0)
        redis.stop()
        measured(with_store, "stopped", 0)
        for server in alone + shared:
            server.stop()
        wire.stop()


if __name__ == "__main__":
    main()
