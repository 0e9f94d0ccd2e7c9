#!/usr/bin/env python3
"""What a router in front of replicas computes for a turn: its processor time, and so how many turns a second a core passes.

    TITO_BIN=target/release/tito TITO_TEST_MODEL=DIR TITO_TEST_ROUTERS=DIR python benches/front.py

Turns have texts of the length that agents' turns have in benches/scale.py, and as many tokens as their answers. They are answered by the
scripted engine. Processor time is that of the router's processes only, so that what runs beside it changes little. It needs the Python
packages of the client tests, and routers as tests/clients/test_routers.py does.
"""

import http.client
import json
import os
import pathlib
import sys
import tempfile
import urllib.parse

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "clients")]

import routers  # noqa: E402
from conftest import Server  # noqa: E402

TURNS, PROMPT_TOKENS, ANSWER_TOKENS = 300, 6600, 190
TICKS = os.sysconf("SC_CLK_TCK")
HOWS = {"haproxy": "`balance hdr(x-session-id)`", "Envoy": "`RING_HASH` of the header", "vllm-router": "`--policy consistent_hash`"}
HOWS["nginx"] = "`hash $http_x_session_id consistent`"


def of(pid):
    """The parent of a process, and the seconds that it computed."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS


def family(pid):
    """A process and all below it."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents.setdefault(of(entry.name)[0], []).append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return [pid, *(one for child in parents.get(pid, []) for one in family(child))]


def computed(own, replica):
    return sum(of(pid)[1] for pid in family(own) if pid not in family(replica) and pid != own)


def played(url, stream):
    connection = http.client.HTTPConnection(urllib.parse.urlparse(url).netloc, timeout=300)
    text = "the " * PROMPT_TOKENS
    for turn in range(TURNS):
        body = {"model": "smollm2", "messages": [{"role": "user", "content": text}], "max_tokens": ANSWER_TOKENS, "stream": stream}
        headers = {"Content-Type": "application/json", routers.SESSION: str(turn)}
        connection.request("POST", "/v1/chat/completions", json.dumps(body | {"ignore_eos": True}), headers)
        answer = connection.getresponse()
        read = answer.read()
        assert answer.status == 200, read
        assert not stream or read.count(b"\ndata: ") >= ANSWER_TOKENS, read[-2000:]


def main():
    server = Server("--engine", "scripted", "--disable-uvicorn-access-log")
    print("| router | setting | ms of a processor for a turn | turns/s of a core | streamed, ms | turns/s of a core |\n|---|---|---:|---:|---:|---:|")
    try:
        for setting in routers.SETTINGS:
            if HOWS.get(setting.name) != setting.how or setting.path() is None:
                continue
            with tempfile.TemporaryDirectory() as folder:
                worker = urllib.parse.urlparse(server.url).port
                with routers.running(setting, pathlib.Path(folder), [worker]) as url:
                    cells = []
                    for stream in (False, True):
                        before = computed(os.getpid(), server.process.pid)
                        played(url, stream)
                        each = (computed(os.getpid(), server.process.pid) - before) / TURNS
                        cells += [f"{1000 * each:.2f}", f"{1 / max(each, 1e-5):,.0f}"]
            print(f"| {setting.name} | {setting.how} | " + " | ".join(cells) + " |", flush=True)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
