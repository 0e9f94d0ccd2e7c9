"""Conversations with replicas, and what is to be true of each of their turns."""

import os
import random
import signal

import autograd.numpy as np
import httpx
import policy

# Between what the server computes in float32 and what numpy does.
TOLERANCE = 1e-3
# How often a turn is asked again that was not answered.
ATTEMPTS = 100
TURNS = 4
WANTED = {"temperature": 1.0, "logprobs": True, "return_token_ids": True, "return_weight_versions": True}


class Turn:
    """An answer: its ids, which weights sampled them, and what it says of its prompt."""

    def __init__(self, body):
        choice = body["choices"][0]
        self.prompt, self.generation = body["prompt_token_ids"], choice["token_ids"]
        self.text, self.verdict = choice["message"]["content"] or "", body["token_continuity"]
        self.log_probs = [token["logprob"] for token in choice["logprobs"]["content"]]
        self.spans = [(span["version"], span["start"], span["end"]) for span in choice["weight_versions"]]

    def check_weights(self, weights):
        """Scores every token with the weights that the answer names for it. Returns those names."""
        covered = [index for _, start, end in self.spans for index in range(start, end)]
        assert covered == list(range(len(self.generation))), f"tokens without weights: {self.spans}"
        ids = np.array([self.prompt + self.generation])
        for version, start, end in self.spans:
            scored = policy.log_probs(weights[version], ids)[0][len(self.prompt) - 1 :]
            apart = np.abs(scored[start:end] - np.array(self.log_probs[start:end]))
            assert apart.max(initial=0.0) < TOLERANCE, f"silently wrong: tokens are not of {version}: {apart}"
        return [version for version, *_ in self.spans]

    def outcome(self, before):
        """`exact`, or the verdict that says why not. Nothing else may be."""
        known, outcome = before.prompt + before.generation, self.verdict["outcome"]
        if outcome == "exact":
            assert self.prompt[: len(known)] == known, f"silently wrong: {self.verdict}"
            return outcome
        assert outcome in ("partial", "retokenized") and self.verdict["reason"], f"silently wrong: {self.verdict}"
        return f"{outcome}: {self.verdict['reason']}"


class Conversation:
    """Turns one after the other. `address(attempt)` says where each is asked."""

    def __init__(self, address, number, carrier="messages", answered=lambda turns: None):
        self.address, self.number, self.carrier, self.answered = address, number, carrier, answered
        self.headers = {"X-Session-ID": f"session {number}"} if carrier == "session" else {}
        self.messages, self.turns, self.failures = [], [], 0

    def run(self, turns=TURNS):
        with httpx.Client(timeout=600, trust_env=False) as client:
            for _ in range(turns):
                self.ask(client)
                self.answered(len(self.turns))
        return self

    def ask(self, client):
        said = random.Random(f"{self.number} {len(self.turns)}").randrange(1000)
        self.messages.append({"role": "user", "content": f"{self.number}: {said}"})
        turn = self.answer(client)
        self.turns.append(turn)
        answer = {"role": "assistant", "content": turn.text}
        if self.carrier == "messages":
            answer |= {"prompt_token_ids": turn.prompt, "generation_token_ids": turn.generation}
        self.messages.append(answer)
        return turn

    def answer(self, client):
        body = {"model": "policy", "messages": self.messages, "max_tokens": 12, **WANTED}
        for attempt in range(ATTEMPTS):
            url = self.address(attempt)
            try:
                answer = client.post(f"{url}/v1/chat/completions", json=body, headers=self.headers)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code == 200:
                return Turn(answer.json())
            assert answer is None or answer.status_code >= 500, answer.text
            self.failures += 1
        raise AssertionError(f"turn {len(self.turns)} was not answered in {ATTEMPTS} attempts")

    def outcomes(self):
        return [turn.outcome(before) for before, turn in zip(self.turns, self.turns[1:])]


def sampled(url, weights):
    """The names of the weights that a replica samples with, which are those that it does sample with."""
    (turn,) = Conversation(lambda _: url, 0).run(turns=1).turns
    return turn.check_weights(weights)


def kill(replicas, number):
    """Ends a server as the kernel does that has no memory left."""
    (state,) = [state for state in replicas.states() if state.number == number]
    os.kill(state.pid, signal.SIGKILL)
    return state


def waiting(url):
    """The requests that a replica has."""
    lines = httpx.get(f"{url}/metrics", timeout=600, trust_env=False).text.splitlines()
    counted = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0] in counted)
