"""What large bodies took goes back to the system once they are answered."""

import concurrent.futures
import http.client
import json
import pathlib
import urllib.parse

import pytest
from conftest import REPOSITORY, Server
from recorded import JSON_BODY

TINY = REPOSITORY / "tests" / "fixtures" / "tiny-model"
# Of 20 MB each: a history of ids, and a text, both longer than the context.
IDS = [7] * 2_000_000
BODIES = [
    {"messages": [{"role": "user", "content": "word and more " * 1_400_000}]},
    {
        "messages": [
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "content": "b",
                "prompt_token_ids": IDS,
                "generation_token_ids": IDS,
                "generation_log_probs": [-0.5] * len(IDS),
            },
            {"role": "user", "content": "c"},
        ]
    },
]
# What the allocator may keep for the next requests. One of these bodies takes more, parsed.
KEPT_MIB = 48


@pytest.fixture
def server():
    server = Server("--engine", "scripted", "--max-model-len", "512", model=str(TINY))
    yield server
    server.stop()


def resident_mib(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def send(server, body):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=300)
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": "smollm2"} | body), JSON_BODY)
    response = connection.getresponse()
    return response.status, response.read()


def test_memory_of_large_bodies_is_given_back(server):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # What is loaded by the first requests stays.
        assert send(server, {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})[0] == 200
        before = resident_mib(server)
        answers = list(pool.map(lambda body: send(server, body), BODIES * 4))
    assert [status for status, _ in answers] == [400] * len(answers)
    server.poll("the server is idle", server.idle)
    server.poll("the memory is given back", lambda: resident_mib(server) < before + KEPT_MIB)
