"""A server of a tiny model whose control plane is open, and what the tests of trainers' clients ask of it."""

import concurrent.futures
import contextlib
import json
import random
import threading
import urllib.request

import numpy as np

from checkpoints import TOLERANCE, Checkpoints
from conftest import Server

MODEL = "smollm2"
FLAGS = ["--engine", "native", "--dtype", "float32", "--max-model-len", "2048", "--admin-on-main-port", "--insecure-admin"]
# Of an answer that is held while a call comes, and goes on after it.
LONG = 200
# Tokens that such an answer has when it is held.
HELD = 3
LETTERS = range(3, 259)


def prompt(number):
    """The same few ids in every run."""
    numbers = random.Random(number)
    return numbers.choices(LETTERS, k=numbers.randint(4, 24))


def on_a_thread(call):
    """The future of a call that nobody has to wait for: a test that fails may leave it, and the tests end all the same."""
    future = concurrent.futures.Future()

    def run():
        try:
            future.set_result(call())
        except BaseException as error:  # whoever asks for the result gets it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


class Rollout:
    """One sampled answer: the ids, their log-probs, and under which weights the server says that it sampled them."""

    def __init__(self, prompt, ids, log_probs, finish_reason=None, versions=None):
        self.prompt, self.ids, self.log_probs = prompt, ids, log_probs
        self.finish_reason, self.versions = finish_reason, versions

    @classmethod
    def of_choice(cls, prompt, choice):
        """From a choice of /v1/completions."""
        log_probs = choice["logprobs"]["token_logprobs"]
        return cls(prompt, choice["token_ids"], log_probs, choice["finish_reason"], choice.get("weight_versions"))


class Trained:
    """A server that starts with the checkpoint `base`, and a trainer's checkpoints."""

    def __init__(self, root, *flags, port=0):
        self.checkpoints = Checkpoints(root)
        self.server = Server(*FLAGS, *flags, model=str(self.checkpoints.base), port=port, gated=True)
        self.gate = self.server.gate
        self.url = self.server.url
        # Which checkpoint is behind which version.
        self.names = {self.version(): "base"}

    def version(self):
        """The label of the weights that the server has now."""
        return json.loads(self.server.get("/weight_info"))["weight_version"]

    def has_now(self, name):
        """Notes that the server has these weights now, under a label that no others had."""
        label = self.version()
        assert label not in self.names, f"the label {label} is that of {self.names[label]} already"
        self.names[label] = name

    def complete(self, prompt, **asked):
        """Samples a few tokens."""
        body = {"max_tokens": 12, "temperature": 1.0, "logprobs": 0, "return_token_ids": True, "ignore_eos": True}
        body |= {"return_weight_versions": True, **asked}
        [choice] = self.server.post("/v1/completions", prompt=prompt, **body)["choices"]
        return Rollout.of_choice(prompt, choice)

    def complete_many(self, count=8, **asked):
        """Samples for several prompts at once."""
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            return list(pool.map(lambda number: self.complete(prompt(number), seed=number, **asked), range(count)))

    @contextlib.contextmanager
    def held_with(self, sequences, steps=HELD):
        """What the block asks for is held when the block ends: so many sequences more, each after so many steps. These are as
        many tokens, or one less: a sequence waits for the one that computes the beginning of its prompt, if that is not cached.
        They go on with `gate.go_on`."""
        self.gate.hold()
        expected = self.gate.sequences() + sequences
        yield
        self.server.poll("the engine has the requests", lambda: self.gate.sequences() == expected)
        self.gate.step(steps)

    def under_way(self, *prompts, **asked):
        """Long answers that are streamed, one for each prompt, and held after a few tokens until one of them is waited for."""
        with self.held_with(len(prompts)):
            running = [Running(self, prompt, **asked) for prompt in prompts]
        for one in running:
            one.begun()
        return running

    @staticmethod
    def later(call):
        """Makes a call on a thread of its own, and gives it a moment to be sent."""
        future = on_a_thread(call)
        concurrent.futures.wait([future], timeout=0.2)
        return future

    def check(self, rollout, name=None):
        """Every token has the log-prob that the checkpoint gives it which the answer names, and `name` if that is said."""
        assert len(rollout.ids) == len(rollout.log_probs)
        spans = rollout.versions
        if spans is None:
            assert name is not None, "the answer does not say of which weights it is"
            spans = [{"version": self.label_of(name), "start": 0, "end": len(rollout.ids)}]
        reached = 0
        for span in spans:
            assert span["start"] == reached, f"spans with a hole: {spans}"
            reached = span["end"]
            of = self.names[span["version"]]
            assert name in (None, of), f"tokens of {of}, not of {name}: {spans}"
            part = slice(span["start"], span["end"])
            expected = self.checkpoints.log_probs(of, rollout.prompt, rollout.ids)[part]
            worst = np.abs(expected - np.array(rollout.log_probs[part])).max(initial=0.0)
            assert worst <= TOLERANCE, f"{span} is not of {of}: log-probs differ by {worst}"
        assert reached == len(rollout.ids), f"spans that end too early: {spans}"
        return [self.names[span["version"]] for span in spans]

    def cut(self, rollout, before, after):
        """How many tokens are of one checkpoint, all others being of another one, where the answer does not say."""
        of = [self.checkpoints.log_probs(name, rollout.prompt, rollout.ids) for name in (before, after)]
        first, second = (np.abs(expected - np.array(rollout.log_probs)) <= TOLERANCE for expected in of)
        cut = len(first) if first.all() else int(np.argmin(first))
        assert second[cut:].all(), f"tokens after {cut} are not all of {after}"
        return cut

    def label_of(self, name):
        [label] = [label for label, other in self.names.items() if other == name]
        return label

    def stop(self):
        self.server.stop()


class Running:
    """A long answer that is streamed on a thread of its own; `Trained.under_way` makes those that are to be held."""

    def __init__(self, trained, prompt, **asked):
        self.prompt, self.gate = prompt, trained.gate
        self.has_tokens = threading.Event()
        body = {"model": MODEL, "prompt": prompt, "max_tokens": LONG, "temperature": 1.0, "logprobs": 0, "stream": True}
        body |= {"ignore_eos": True, "return_token_ids": True, "return_weight_versions": True, **asked}
        request = urllib.request.Request(
            f"{trained.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        self.future = on_a_thread(lambda: self.read(request))

    def begun(self):
        assert self.has_tokens.wait(300), "nothing was streamed"

    def read(self, request):
        rollout = Rollout(self.prompt, [], [])
        with urllib.request.urlopen(request, timeout=300) as stream:
            for line in stream:
                if not line.startswith(b"data: {"):
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    rollout.ids += choice["token_ids"] or []
                    rollout.log_probs += (choice["logprobs"] or {}).get("token_logprobs", [])
                    rollout.finish_reason = choice["finish_reason"] or rollout.finish_reason
                    rollout.versions = choice.get("weight_versions") or rollout.versions
                if rollout.ids:
                    self.has_tokens.set()
        return rollout

    def rollout(self):
        """Waits for the end of the answer, and lets the engine come to it."""
        self.gate.go_on()
        return self.future.result(300)
