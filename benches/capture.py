#!/usr/bin/env python3
"""What capturing turns costs: tokens a second without it, in memory and in a file; see README.md.

    benches/capture.py TITO MODEL           needs numpy

Three servers run and are asked in turns. Prompts have 128 ids of their own, so that nothing is cached, and each stream asks
again as soon as it is answered.
"""

import concurrent.futures
import pathlib
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).parent))

from server import Server  # noqa: E402

# Streams, answers of each, tokens of an answer, rounds.
LOADS = ((1, 3, 64, 7), (16, 2, 32, 5), (64, 1, 32, 3))


def throughput(server, streams, answers, tokens):
    first = server.asked
    server.asked += streams * answers
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        calls = [pool.submit(server.complete, "base", first + number, tokens) for number in range(streams * answers)]
        for call in calls:
            call.result()
    return streams * answers * tokens / (time.monotonic() - started)


def main(tito, model):
    with tempfile.TemporaryDirectory() as root:
        flags = {"off": [], "memory": ["--capture", "memory"], "file": ["--capture", f"{root}/turns.redb"]}
        servers = {name: Server(tito, model, 8191 + number, *flags[name]) for number, name in enumerate(flags)}
        for streams, answers, tokens, rounds in LOADS:
            found = {name: [] for name in servers}
            for count in range(rounds):
                # Nobody is always the first after a pause.
                for name in sorted(servers, key=lambda name: (list(servers).index(name) + count) % len(servers)):
                    found[name].append(throughput(servers[name], streams, answers, tokens))
            medians = {name: statistics.median(values) for name, values in found.items()}
            shares = ", ".join(f"{name}: {value:.1f} ({value / medians['off']:.3f})" for name, value in medians.items())
            print(f"{streams} streams, tokens a second (share of off): {shares}", flush=True)
        for server in servers.values():
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
