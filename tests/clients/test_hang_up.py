"""Clients that vanish: their generations end, and the next one is served."""

import json
import subprocess

import pytest
from conftest import Server

CLIENTS = 100


@pytest.fixture
def held():
    """A server that samples nothing."""
    server = Server("--engine", "native", gated=True)
    server.gate.hold()
    yield server
    server.stop()


def curl(server, max_tokens):
    """A streaming client in a process of its own."""
    messages = [{"role": "user", "content": "Tell a very long story."}]
    body = {"messages": messages, "stream": True, "max_tokens": max_tokens, "ignore_eos": True}
    command = ["curl", "--silent", "--no-buffer", "--header", "Content-Type: application/json"]
    command += ["--data", json.dumps(body), f"{server.url}/v1/chat/completions"]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def killed(process):
    """Kills a client without a farewell."""
    process.kill()
    process.wait()
    process.stdout.close()


def test_killed_clients_leave_nothing_behind(server):
    for _ in range(CLIENTS):
        client = curl(server, max_tokens=2000)
        # Its generation runs once it has output.
        assert client.stdout.readline().startswith(b"data: ")
        killed(client)
    server.poll("all generations ended", server.idle)
    answer = server.post("/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}], max_tokens=4)
    assert answer["usage"]["completion_tokens"] > 0


def test_clients_killed_in_the_queue_leave_it(held):
    clients = [curl(held, max_tokens=2000) for _ in range(8)]
    held.poll("all clients are in", lambda: held.gate.sequences() == len(clients))
    for client in clients:
        killed(client)
    # None of them can have come to its end.
    held.poll("the engine has none of them", lambda: held.gate.sequences() == 0)
    held.gate.go_on()
    held.poll("the queue is empty", held.idle)
