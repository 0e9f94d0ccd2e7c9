#!/usr/bin/env python3
"""A large file of captured turns: how long it takes to open, how fast it is exported, and in how much memory; see README.md.

    benches/capture_file.py TITO MODEL [GIGABYTES]

An open file has room to grow: closed, it is about half as large. Fills a file through a server of the scripted engine: sessions of four turns, each of which adds 25,000 ids and is answered
with 6. Then another server opens the file.
"""

import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

ADDED, TURNS = 25_000, 4
URL = "http://127.0.0.1:8391"
FLAGS = ["--engine", "scripted", "--max-model-len", "131072", "--port", "8391", "--host", "127.0.0.1"]


def serving(tito, model, *flags):
    command = [tito, "serve", model, *FLAGS, *flags]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            urllib.request.urlopen(f"{URL}/health")
            return process
        except OSError:
            time.sleep(0.1)
    sys.exit(f"the server ended: {command}")


def made_longer(model, target):
    """The same model, which says that it is made for longer prompts."""
    target.mkdir()
    for path in pathlib.Path(model).iterdir():
        if path.name == "config.json":
            config = {**json.loads(path.read_text()), "max_position_embeddings": 131_072}
            (target / path.name).write_text(json.dumps(config))
        else:
            (target / path.name).symlink_to(path.resolve())
    return str(target)


def stop(process):
    process.terminate()
    process.wait()


def resident(process, name="VmRSS"):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)[1]) / 1024


def ask(url, **body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read())


def fill(file, most):
    random_, session, turns = random.Random(1), 0, 0
    while file.stat().st_size < most:
        session, ids = session + 1, []
        for _ in range(TURNS):
            ids += random_.choices(range(100, 40_000), k=ADDED)
            named = {"session_id": f"session {session}", "return_token_ids": True}
            choice = ask(f"{URL}/v1/completions", prompt=ids, max_tokens=6, **named)["choices"][0]
            ids = ids + choice["token_ids"]
            turns += 1
    return turns


def export(query):
    started, size = time.monotonic(), 0
    with urllib.request.urlopen(f"{URL}/v1/trajectories/export?{query}", timeout=600) as answer:
        while part := answer.read(1 << 20):
            size += len(part)
    return size / 1e6, time.monotonic() - started


def main(tito, model, gigabytes="1"):
    with tempfile.TemporaryDirectory() as root:
        file, model = pathlib.Path(root) / "turns.redb", made_longer(model, pathlib.Path(root) / "model")
        captured = ["--capture-size", "16G", "--capture", str(file)]
        process = serving(tito, model, *captured)
        turns = fill(file, float(gigabytes) * 1e9)
        stop(process)
        print(f"{turns} turns, a file of {file.stat().st_size / 1e9:.2f} GB", flush=True)
        started = time.monotonic()
        process = serving(tito, model, *captured)
        print(f"ready after {time.monotonic() - started:.1f} s, resident {resident(process):.0f} MB", flush=True)
        for query in ("format=jsonl", "format=trl", "format=parquet", "format=jsonl&unit=turn"):
            size, seconds = export(query)
            most = resident(process, "VmHWM")
            print(f"{query}: {size:.0f} MB in {seconds:.1f} s, {size / seconds:.0f} MB/s, at most {most:.0f} MB resident", flush=True)
        stop(process)


if __name__ == "__main__":
    main(*sys.argv[1:])
