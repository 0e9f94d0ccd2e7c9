"""Conversations through a router, in front of replicas that may be gone or know nothing."""

import json
import random
import threading

import httpx

from lines import data_of
from routers import SESSION

TURNS = 6
# How often a turn is asked again that was not answered: as often as a busy machine may need.
ATTEMPTS = 2_400
# The ways to bring the ids of earlier turns back.
CARRIERS = ["messages", "required prefix", "session", "cache"]


class Turn:
    """What became of a turn: its ids, the verdict, and how often it was asked in vain."""

    def __init__(self, body):
        choice = body["choices"][0]
        self.prompt, self.generation = body["prompt_token_ids"], choice["token_ids"]
        self.text, self.verdict = choice["message"]["content"], body["token_continuity"]
        self.failures = 0

    @classmethod
    def streamed(cls, text):
        """From the events of a stream that was not cut off, or `None`."""
        chunks = data_of(text)
        if not chunks or chunks[-1] != "[DONE]":
            return None
        chunks = [json.loads(chunk) for chunk in chunks[:-1]]
        if any("error" in chunk for chunk in chunks):
            return None
        choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
        ids = [id for choice in choices for id in choice.get("token_ids") or []]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        return cls({**chunks[0], "choices": [{"token_ids": ids, "message": {"content": text}}]})


class NotProvable(Exception):
    """A required prefix was refused: what was sampled is not provably the end of a message. It has to come on the message."""

    SAID = "cannot be continued exactly"


class Conversation:
    """Turns one after the other through a router, by one way of bringing ids back."""

    def __init__(self, url, carrier, number):
        self.url, self.carrier, self.number = url, carrier, number
        self.streams = number % 2 == 1
        self.headers = {SESSION: f"{carrier} {number} of {url}"} if carrier == "session" else {}
        self.messages, self.turns = [], []
        # What became of the last request that was not answered.
        self.failure = None

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

    def body(self):
        """What the next turn asks."""
        body = {"model": "smollm2", "messages": self.messages, "max_tokens": 12, "temperature": 1.0, "return_token_ids": True}
        if self.carrier == "required prefix":
            known = self.turns[-1].prompt + self.turns[-1].generation if self.turns else []
            body["required_prefix_token_ids"] = known
        return body

    def ask(self, client):
        body = self.body()
        for failures in range(ATTEMPTS):
            try:
                done = self.attempt(client, body)
            except NotProvable:
                # What the error says: once in some thousand answers of a model that samples anything.
                body, done = self.with_ids_on_messages(body), None
            if done:
                done.failures = failures
                return done
            threading.Event().wait(0.25)
        raise AssertionError(f"turn {len(self.turns)} was not answered in {ATTEMPTS} attempts")

    def with_ids_on_messages(self, body):
        """The same turn without a required prefix."""
        before, last = self.turns[-1], body["messages"][-2]
        ids = {"prompt_token_ids": before.prompt, "generation_token_ids": before.generation}
        messages = [*body["messages"][:-2], {**last, **ids}, body["messages"][-1]]
        return {name: value for name, value in body.items() if name != "required_prefix_token_ids"} | {"messages": messages}

    def attempt(self, client, body):
        """One request; `None` if it was not answered because a replica is not there."""
        path = f"{self.url}/v1/chat/completions"
        try:
            if not self.streams:
                answer = client.post(path, json=body, headers=self.headers)
                self.check_provable(answer.status_code, answer.text, body)
                assert answer.status_code == 200 or answer.status_code >= 500, answer.text
                self.failure = f"{answer.status_code}: {answer.text}"
                return Turn(answer.json()) if answer.status_code == 200 else None
            with client.stream("POST", path, json={**body, "stream": True}, headers=self.headers) as answer:
                text = answer.read().decode()
                self.check_provable(answer.status_code, text, body)
                assert answer.status_code == 200 or answer.status_code >= 500, text
                self.failure = f"{answer.status_code}: {text}"
                return Turn.streamed(text) if answer.status_code == 200 else None
        except httpx.TransportError as error:
            self.failure = repr(error)
            return None

    def check_provable(self, status, text, body):
        """Tells the one refusal apart that a client can answer."""
        if status == 400 and NotProvable.SAID in text and body.get("required_prefix_token_ids"):
            raise NotProvable

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
