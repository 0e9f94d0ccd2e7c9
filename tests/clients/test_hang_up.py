"""Clients that vanish: their generations end, and the next one is served."""

import json
import subprocess

CLIENTS = 100


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


def test_clients_killed_in_the_queue_leave_it(server):
    clients = [curl(server, max_tokens=2000) for _ in range(8)]
    in_engine = ["vllm:num_requests_running", "vllm:num_requests_waiting"]
    server.poll("all clients are in", lambda: sum(map(server.gauge, in_engine)) == len(clients))
    for client in clients:
        killed(client)
    server.poll("the queue is empty", server.idle)
