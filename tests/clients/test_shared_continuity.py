"""Two servers that share what they remember by a Redis server. Turns go to one and the other by turns, and bring texts only: their
prompts have the ids that were sampled, or a verdict that says why not."""

import json
import urllib.request

import pytest
from checkpoints import Checkpoints
from conftest import Server, note
from stores import REDIS, Redis, Wire

FLAGS = ["--engine", "native", "--dtype", "float32", "--max-model-len", "2048", "--kv-cache-memory-bytes", "32M"]
NAMED = {"store_unavailable", "store_timeout", "unknown"}


class Replicas:
    """Two servers of the same weights, the second one behind a wire."""

    def __init__(self, directory):
        self.redis = Redis(directory)
        model = str(Checkpoints(directory / "model").base)
        self.servers = []
        self.wire = Wire(self.redis, directory)
        for url in [self.redis.url, self.wire.url]:
            server = Server(*FLAGS, "--continuity-store", url, model=model)
            server.poll("redis answers", self.redis.answers)
            self.servers.append(server)

    def stop(self):
        for server in self.servers:
            server.stop()
        self.wire.stop()
        self.redis.stop()


@pytest.fixture
def replicas(tmp_path):
    if REDIS is None:
        note("NOT TRIED: --continuity-store: redis-server is not installed")
        pytest.skip("no redis-server")
    (tmp_path / "model").mkdir()
    replicas = Replicas(tmp_path)
    yield replicas
    replicas.stop()


def asked(server, messages, stream=False, **fields):
    """The ids of the prompt, all ids of the turn, the text and the verdict."""
    body = {"messages": messages, "max_tokens": 12, "temperature": 1, "return_token_ids": True, "stream": stream, **fields}
    if not stream:
        answer = server.post("/v1/chat/completions", **body)
        choice = answer["choices"][0]
        text, ids = choice["message"]["content"], choice["token_ids"]
        return answer["prompt_token_ids"], answer["prompt_token_ids"] + ids, text, answer["token_continuity"]
    request = urllib.request.Request(
        server.url + "/v1/chat/completions",
        json.dumps({"model": "smollm2", **body}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=300) as response:
        lines = [line.decode().removeprefix("data: ") for line in response if line.startswith(b"data: {")]
    chunks = [json.loads(line) for line in lines]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    ids = [number for choice in choices for number in choice.get("token_ids") or []]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    prompt = chunks[0]["prompt_token_ids"]
    return prompt, prompt + ids, text, chunks[0]["token_continuity"]


def follows(messages, text, question):
    return [*messages, {"role": "assistant", "content": text}, {"role": "user", "content": question}]


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_is_exact_on_servers_that_share_a_store(replicas, stream):
    for conversation in range(4):
        messages, known = [{"role": "user", "content": f"Name volcano {conversation}."}], []
        for turn in range(6):
            prompt, all_ids, text, verdict = asked(replicas.servers[turn % 2], messages, stream)
            if turn:
                assert (verdict["source"], verdict["outcome"]) == ("store", "exact"), (conversation, turn, verdict)
                assert prompt[: len(known)] == known
            known = all_ids
            messages = follows(messages, text, f"Another, number {turn}?")


@pytest.mark.parametrize("fault", ["stopped", "slow", "full", "cut"])
def test_a_store_with_a_fault_leaves_every_turn_exact_or_with_a_reason(replicas, fault):
    messages, (here, there) = [{"role": "user", "content": "Name a lake."}], replicas.servers
    _, known, text, _ = asked(here, messages)
    messages = follows(messages, text, "Another?")
    prompt, known_there, text, verdict = asked(there, messages)
    assert verdict["source"] == "store" and prompt[: len(known)] == known
    if fault == "stopped":
        replicas.redis.stop()
    elif fault == "full":
        replicas.redis.fill()
    else:
        replicas.wire.set(fault)
    messages, known, reasons = follows(messages, text, "Another lake?"), known_there, []
    for turn in range(4):
        prompt, all_ids, text, verdict = asked([here, there][turn % 2], messages)
        is_exact = verdict["outcome"] == "exact" and prompt[: len(known)] == known
        assert is_exact or verdict["reason"] in NAMED, (turn, verdict)
        reasons.append("exact" if is_exact else verdict["reason"])
        known = all_ids
        messages = follows(messages, text, f"Another, number {turn}?")
    note(f"--continuity-store, {fault}: {', '.join(reasons)}")
    # The server that answered goes on by its own memory.
    prompt, _, _, verdict = asked(there, messages)
    assert (verdict["source"], verdict["outcome"]) == ("cache", "exact"), verdict
    assert prompt[: len(known)] == known


def test_a_password_is_shown_nowhere(tmp_path):
    (tmp_path / "model").mkdir()
    model = str(Checkpoints(tmp_path / "model").base)
    address = "redis://name:verysecret@127.0.0.1:1"
    server = Server(*FLAGS, "--admin-on-main-port", "--insecure-admin", "--continuity-store", address, model=model)
    shown = [server.get(path) for path in ["/server_info", "/metrics", "/openapi.json"]] + [server.logged()]
    assert not any("verysecret" in text for text in shown)
    assert "redis://127.0.0.1:1 cannot be reached" in shown[-1]
    server.stop()
