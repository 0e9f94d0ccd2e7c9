"""Conversations behind routers, in front of three replicas of which one dies: every answered turn has the ids that were sampled, or
a verdict that says why not.

TITO_ROUTING_CONVERSATIONS says how many there are for each router and carrier, and TITO_ROUTING_TABLE where the table of
docs/routing.md is written.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import random
import threading

import httpx
import pytest
from checkpoints import FIXTURE, Checkpoints
from conftest import Server, free_port, note
from routers import SESSION, SETTINGS, running

CONVERSATIONS = int(os.environ.get("TITO_ROUTING_CONVERSATIONS", "6"))
TURNS = 6
STREAMS = 8
# How often a turn is asked again that was not answered.
ATTEMPTS = 40
CARRIERS = ["messages", "required prefix", "session", "cache"]
FLAGS = ["--engine", "native", "--dtype", "float32", "--max-model-len", "2048", "--kv-cache-memory-bytes", "32M"]
rows = []


class Replicas:
    """Three servers of the same weights, each at a port that it keeps."""

    def __init__(self, model):
        self.model = model
        self.ports = [free_port() for _ in range(3)]
        self.servers = [self.start(port) for port in self.ports]

    def start(self, port):
        return Server(*FLAGS, model=str(self.model), port=port)

    def replace(self, number):
        """Kills a replica, and starts another one in its place, which knows nothing."""
        self.servers[number].process.kill()
        self.servers[number].process.wait()
        self.servers[number] = self.start(self.ports[number])

    def stop(self):
        for server in self.servers:
            server.stop()


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    replicas = Replicas(Checkpoints(tmp_path_factory.mktemp("routed")).base)
    yield replicas
    replicas.stop()


@pytest.fixture(scope="module", autouse=True)
def table():
    yield
    if rows and "TITO_ROUTING_TABLE" in os.environ:
        pathlib.Path(os.environ["TITO_ROUTING_TABLE"]).write_text(written(rows))


class Turn:
    """What became of a turn: its ids, the verdict, and how often it was asked in vain."""

    def __init__(self, body):
        choice = body["choices"][0]
        self.prompt, self.generation = body["prompt_token_ids"], choice["token_ids"]
        self.text, self.verdict = choice["message"]["content"], body["token_continuity"]
        self.failures = 0

    @classmethod
    def streamed(cls, lines):
        """From the events of a stream that was not cut off, or `None`."""
        chunks = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        if not chunks or chunks[-1] != "[DONE]":
            return None
        chunks = [json.loads(chunk) for chunk in chunks[:-1]]
        if any("error" in chunk for chunk in chunks):
            return None
        choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
        ids = [id for choice in choices for id in choice.get("token_ids") or []]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        return cls({**chunks[0], "choices": [{"token_ids": ids, "message": {"content": text}}]})


class Conversation:
    """Turns one after the other through a router, by one way of bringing ids back."""

    def __init__(self, url, carrier, number):
        self.url, self.carrier, self.number = url, carrier, number
        self.streams = number % 2 == 1
        self.headers = {SESSION: f"{carrier} {number} of {url}"} if carrier == "session" else {}
        self.messages, self.turns = [], []

    def run(self, client):
        for turn in range(TURNS):
            self.messages.append({"role": "user", "content": f"{self.number}: {random.Random(self.number * 99 + turn).random()}"})
            done = self.ask(client)
            self.turns.append(done)
            answer = {"role": "assistant", "content": done.text}
            if self.carrier == "messages":
                answer |= {"prompt_token_ids": done.prompt, "generation_token_ids": done.generation}
            self.messages.append(answer)
        return self

    def ask(self, client):
        body = {"model": "smollm2", "messages": self.messages, "max_tokens": 12, "temperature": 1.0, "return_token_ids": True}
        if self.carrier == "required prefix":
            known = self.turns[-1].prompt + self.turns[-1].generation if self.turns else []
            body["required_prefix_token_ids"] = known
        for failures in range(ATTEMPTS):
            done = self.attempt(client, body)
            if done:
                done.failures = failures
                return done
            threading.Event().wait(0.25)
        raise AssertionError(f"turn {len(self.turns)} was not answered in {ATTEMPTS} attempts")

    def attempt(self, client, body):
        """One request; `None` if it was not answered because a replica is not there."""
        path = f"{self.url}/v1/chat/completions"
        try:
            if not self.streams:
                answer = client.post(path, json=body, headers=self.headers)
                assert answer.status_code == 200 or answer.status_code >= 500, answer.text
                return Turn(answer.json()) if answer.status_code == 200 else None
            with client.stream("POST", path, json={**body, "stream": True}, headers=self.headers) as answer:
                assert answer.status_code == 200 or answer.status_code >= 500, answer.read()
                return Turn.streamed(list(answer.iter_lines())) if answer.status_code == 200 else None
        except httpx.TransportError:
            return None

    def outcomes(self):
        """What each turn after the first one is: `exact`, or the verdict that says why not. Nothing else may be."""
        for before, turn in zip(self.turns, self.turns[1:]):
            known = before.prompt + before.generation
            outcome, reason = turn.verdict["outcome"], turn.verdict["reason"]
            if outcome == "exact":
                assert turn.prompt[: len(known)] == known, f"silently wrong: {self.carrier} {self.number}: {turn.verdict}"
                yield "exact"
            else:
                assert outcome in ("partial", "retokenized") and reason, f"silently wrong: {turn.verdict}"
                yield f"{outcome}: {reason}"


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: f"{setting.name} {setting.how}")
def test_no_turn_is_silently_wrong(replicas, setting, carrier, tmp_path):
    if not setting.path():
        note(f"NOT TRIED: {setting.program} is not here")
        pytest.skip(setting.program)
    with running(setting, tmp_path, replicas.ports) as url, httpx.Client(timeout=300) as client:
        with concurrent.futures.ThreadPoolExecutor(STREAMS + 1) as pool:
            ran = [pool.submit(Conversation(url, carrier, number).run, client) for number in range(CONVERSATIONS)]
            # When a third of them is done.
            for done in ran[: CONVERSATIONS // 3]:
                done.result()
            pool.submit(replicas.replace, random.Random(f"{setting} {carrier}").randrange(3)).result()
            conversations = [done.result() for done in ran]
    outcomes = collections.Counter(outcome for one in conversations for outcome in one.outcomes())
    failures = sum(turn.failures for one in conversations for turn in one.turns)
    rows.append((setting, carrier, outcomes, failures))
    assert sum(outcomes.values()) == CONVERSATIONS * (TURNS - 1)


def written(rows):
    """The table of the page."""
    lines = ["| router | setting | ids by | exact | named verdicts | asked again |", "|---|---|---|---:|---|---:|"]
    for setting, carrier, outcomes, failures in rows:
        exact, named = outcomes["exact"], {name: count for name, count in outcomes.items() if name != "exact"}
        total = sum(outcomes.values())
        verdicts = ", ".join(f"{count} `{name}`" for name, count in sorted(named.items())) or "none"
        lines.append(f"| {setting.name} | {setting.how} | {carrier} | {100 * exact / total:.1f} % | {verdicts} | {failures} |")
    return "\n".join(lines) + "\n"
