"""Teaches a tiny model to answer in digits, with tito to sample: GRPO on a processor, in a minute or so.

    pip install -r requirements.txt
    python grpo.py --tito path/to/tito

32 requests are under way whenever the weights change. What each step did is printed as a line, and every sampled token is
scored again by the trainer's own model, with the weights that its answer names.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import pathlib
import queue
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

# The matrices are small: threads would rather wait for each other, and take processors from the server.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import autograd  # noqa: E402
import autograd.numpy as np  # noqa: E402

import picture  # noqa: E402
import policy  # noqa: E402

TOKENIZER = pathlib.Path(__file__).parents[2] / "tests" / "fixtures" / "tiny-model"
QUESTIONS = ["hello", "the weather", "you are the world", "is the system in the list", "assistant tool", "what is it"]
# Answers to the same question that are compared with each other, and how many of such groups make a step.
GROUP, GROUPS = 8, 8
IN_FLIGHT = 32
TOLERANCE = 1e-3
Part = collections.namedtuple("Part", "version start end")


# --- The server ------------------------------------------------------------------------------------------------------


class Server:
    """A `tito serve`, and the calls that a training loop makes of it."""

    def __init__(self, binary, model, *flags):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [binary, "serve", str(model), "--port", str(port), "--host", "127.0.0.1", "--dtype", "float32"]
        command += ["--engine", "native", "--served-model-name", "policy", "--max-num-seqs", str(IN_FLIGHT)]
        # Everything is on this machine: no key guards the control plane.
        command += ["--admin-on-main-port", "--insecure-admin", *flags]
        self.log = tempfile.NamedTemporaryFile(prefix="tito-", suffix=".log")  # noqa: SIM115
        self.process = subprocess.Popen(command, stderr=self.log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not self.is_up():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the server did not start:\n{pathlib.Path(self.log.name).read_text()}")
            time.sleep(0.05)

    def is_up(self):
        try:
            return self.call("/health") == b""
        except OSError:
            return False

    def call(self, path, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.read()

    def sample(self, body):
        """A choice of an answer. A server that is paused and refuses is asked again."""
        while True:
            try:
                return json.loads(self.call("/v1/completions", {"model": "policy", **body}))["choices"][0]
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise RuntimeError(error.read().decode()) from error
                time.sleep(0.01)

    def replace_weights(self, directory, version, mode):
        """Three calls: what runs is held or ended, the files are read, and it goes on. Returns the seconds of each."""
        marks = [time.perf_counter()]
        for path, body in [
            (f"/pause?mode={mode}", None),
            ("/update_weights", {"weight_dir": str(directory), "weight_version": version}),
            ("/resume", None),
        ]:
            self.call(path, body, "POST")
            marks.append(time.perf_counter())
        return [after - before for before, after in itertools.pairwise(marks)]

    def memory(self):
        """MiB that the server's process holds."""
        [value] = re.findall(rb"^process_resident_memory_bytes(?:{.*})? (\S+)$", self.call("/metrics"), re.MULTILINE)
        return float(value) / 2**20

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


# --- Rollouts --------------------------------------------------------------------------------------------------------


class Sample:
    """An answer: the ids of question and answer, and the log-prob and the weights' version of each sampled id."""

    def __init__(self, group, question):
        self.group, self.question = group, question
        self.ids, self.log_probs, self.parts = [], [], []

    def add(self, choice):
        """An answer, or the next part of one that was aborted."""
        base = len(self.ids)
        self.ids += choice["token_ids"]
        self.log_probs += choice["logprobs"]["token_logprobs"]
        for span in choice["weight_versions"]:
            self.parts.append(Part(span["version"], base + span["start"], base + span["end"]))


class Rollouts:
    """Has as many requests under way as were asked for, 32 at most, and hands out groups of answers."""

    def __init__(self, server, questions, seed):
        self.server, self.questions = server, questions
        self.random, self.lock = random.Random(seed), threading.Lock()
        self.tasks = self.all_tasks()
        self.done, self.wanted = queue.Queue(), threading.Semaphore(0)
        self.ending = False
        self.pool = concurrent.futures.ThreadPoolExecutor(IN_FLIGHT)
        self.workers = [self.pool.submit(self.work) for _ in range(IN_FLIGHT)]
        self.groups = collections.defaultdict(list)

    def all_tasks(self):
        """Groups one after the other, each with a question and lengths of its answers."""
        for group in itertools.count():
            for _ in range(GROUP):
                yield group, self.questions[group % len(self.questions)], self.random.randint(16, 40)

    def work(self):
        while True:
            self.wanted.acquire()
            if self.ending:
                return
            with self.lock:
                group, question, tokens = next(self.tasks)
            try:
                self.done.put(self.sample(Sample(group, question), tokens))
            except Exception as error:
                self.done.put(error)
                raise

    def sample(self, sample, tokens):
        # Without an end of their own, answers have the length that was asked for.
        body = {"temperature": 1.0, "logprobs": 0, "ignore_eos": True, "return_token_ids": True}
        body["return_weight_versions"] = True
        while len(sample.ids) < tokens:
            rest = {"prompt": sample.question + sample.ids, "max_tokens": tokens - len(sample.ids)}
            # An answer that a pause ended has fewer ids than were asked for: the rest is asked for again.
            sample.add(self.server.sample(body | rest))
        return sample

    def ask_for(self, answers):
        self.wanted.release(answers)

    def next_groups(self):
        """As many groups as a step needs, those that are whole first."""
        whole = []
        while len(whole) < GROUPS:
            sample = self.done.get(timeout=300)
            if isinstance(sample, Exception):
                raise sample
            self.groups[sample.group].append(sample)
            if len(self.groups[sample.group]) == GROUP:
                whole.append(self.groups.pop(sample.group))
        return whole

    def stop(self):
        self.ending = True
        self.wanted.release(IN_FLIGHT)
        self.pool.shutdown()


# --- Training --------------------------------------------------------------------------------------------------------


def padded(samples):
    """The ids of questions and answers as a rectangle, and where sampled ids are in it, one place to the left."""
    length = max(len(sample.question) + len(sample.ids) for sample in samples)
    ids = np.zeros((len(samples), length), dtype=int)
    sampled = np.zeros((len(samples), length - 1), dtype=bool)
    for row, sample in enumerate(samples):
        whole = sample.question + sample.ids
        ids[row, : len(whole)] = whole
        sampled[row, len(sample.question) - 1 : len(whole) - 1] = True
    return ids, sampled


def check(samples, history):
    """Scores every sampled token again. Returns the largest difference, and how many tokens are not what they say."""
    worst, violations = 0.0, 0
    for version in {part.version for sample in samples for part in sample.parts}:
        mine = [sample for sample in samples if version in {part.version for part in sample.parts}]
        ids, sampled = padded(mine)
        scored = policy.log_probs(history[version], ids)
        for row, sample in enumerate(mine):
            apart = np.abs(scored[row][sampled[row]] - np.array(sample.log_probs))
            for part in sample.parts:
                if part.version == version:
                    places = apart[part.start : part.end]
                    worst = max(worst, places.max(initial=0.0))
                    violations += int((places > TOLERANCE).sum())
    return worst, violations


def reward(sample, digits):
    """The share of an answer that is digits."""
    return sum(id in digits for id in sample.ids) / len(sample.ids)


def learn(optimiser, groups, rewards, epochs):
    """Makes what was better than the rest of its group more probable."""
    samples = [sample for group in groups for sample in group]
    ids, sampled = padded(samples)
    rewards = rewards.reshape(len(groups), GROUP)
    better = (rewards - rewards.mean(axis=1, keepdims=True)) / (rewards.std(axis=1, keepdims=True) + 1e-4)
    weight = (sampled * better.reshape(-1, 1)).astype("float32")
    before = np.zeros(sampled.shape, dtype="float32")
    before[sampled] = np.concatenate([sample.log_probs for sample in samples])

    def loss(weights):
        # What was sampled with other weights than these counts by how probable it is now, within bounds.
        ratio = np.exp(np.clip(policy.log_probs(weights, ids) - before, -5.0, 5.0))
        gain = np.minimum(ratio * weight, np.clip(ratio, 0.8, 1.25) * weight)
        return -np.sum(gain) / np.sum(sampled)

    for _ in range(epochs):
        optimiser.update(autograd.grad(loss)(optimiser.weights))


def tokens_of(tokenizer):
    """How many ids there are, and the ids that are written as digits and nothing else."""
    described = json.loads((tokenizer / "tokenizer.json").read_text())
    vocabulary = described["model"]["vocab"] | {token["content"]: token["id"] for token in described["added_tokens"]}
    return len(vocabulary), {id for text, id in vocabulary.items() if re.fullmatch("[0-9]+", text)}


def run(arguments, work):
    size, digits = tokens_of(TOKENIZER)
    optimiser = policy.Adam(policy.initial(size, arguments.seed), arguments.rate)
    policy.write_model(optimiser.weights, work / "initial", TOKENIZER)
    flags = ["--on-weights-change", arguments.on_weights_change, "--max-model-len", "256"]
    server = Server(arguments.tito, work / "initial", *flags)
    questions = [json.loads(server.call("/tokenize", {"model": "policy", "prompt": text}))["tokens"] for text in QUESTIONS]
    first = json.loads(server.call("/weight_info"))["weight_version"]
    history = {first: dict(optimiser.weights)}
    rollouts = Rollouts(server, questions, arguments.seed)
    rollouts.ask_for(GROUPS * GROUP + IN_FLIGHT)
    curve, checked, broken = [], 0, 0
    print("step  reward  mixed  worst    wrong  pause ms  read ms  server MiB")
    try:
        for step in range(1, arguments.steps + 1):
            groups = rollouts.next_groups()
            samples = [sample for group in groups for sample in group]
            worst, violations = check(samples, history)
            broken += violations
            checked += sum(len(sample.ids) for sample in samples)
            rewards = np.array([reward(sample, digits) for sample in samples])
            learn(optimiser, groups, rewards, arguments.epochs)
            version = f"step-{step}"
            history[version] = dict(optimiser.weights)
            policy.save(optimiser.weights, work / version)
            # What is asked for now is in the middle when the weights change.
            rollouts.ask_for(GROUPS * GROUP)
            time.sleep(0.03)
            pause, read, _ = server.replace_weights(work / version, version, arguments.pause_mode)
            shutil.rmtree(work / version)
            mixed = sum(len({part.version for part in sample.parts}) > 1 for sample in samples)
            curve.append(rewards.mean())
            print(
                f"{step:4}  {rewards.mean():6.3f}  {mixed:5}  {worst:.1e}  {violations:5}"
                f"  {pause * 1e3:8.1f}  {read * 1e3:7.1f}  {server.memory():10.1f}",
                flush=True,
            )
    finally:
        rollouts.stop()
        server.stop()
    return curve, checked, broken


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tito", default=shutil.which("tito"), help="the server's program")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pause-mode", choices=["abort", "wait", "keep"], default="keep")
    parser.add_argument("--on-weights-change", choices=["recompute", "reuse"], default="recompute")
    parser.add_argument("--rate", type=float, default=0.03, help="how far a step of the optimiser goes")
    parser.add_argument("--epochs", type=int, default=6, help="steps of the optimiser in each step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--svg", help="where to draw the reward")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="grpo-") as work:
        rewards, checked, broken = run(arguments, pathlib.Path(work))
    print(f"reward {rewards[0]:.3f} -> {rewards[-1]:.3f}")
    print(f"{broken} of {checked} tokens are not of the weights that their answers name")
    if arguments.svg:
        pathlib.Path(arguments.svg).write_text(picture.curve(rewards))
    # KV that was computed with old weights and is used on is what `reuse` asks for.
    sys.exit(1 if broken and arguments.on_weights_change == "recompute" else 0)


if __name__ == "__main__":
    main()
