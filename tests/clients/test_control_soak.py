"""Weights change at random while many clients sample: every token is of the weights that its answer names."""

import collections
import concurrent.futures
import random
import threading

import pytest
import requests

from control import LETTERS, MODEL, Rollout, Trained

STEPS = 60
CLIENTS = 16
MOST_CHECKED = 80
CHECKPOINTS = 4
# A pause, and what is done in it.
PAUSES = ["abort", "wait", "keep", "keep", None]
DEEDS = ["update", "update", "update in phases", "update twice at once", "bad update", "reset the cache", "sleep", "nothing"]


@pytest.fixture
def trained(tmp_path):
    trained = Trained(tmp_path, "--max-num-seqs", str(CLIENTS // 2))
    yield trained
    trained.stop()


class Clients:
    """Sample all the time, with prompts that share beginnings and some salts."""

    def __init__(self, trained):
        self.url, self.stopping, self.lock = trained.url, threading.Event(), threading.Lock()
        self.answers, self.refusals = [], collections.Counter()
        self.more = threading.Condition(self.lock)
        self.beginnings = [random.Random(number).choices(LETTERS, k=200) for number in range(3)]
        self.pool = concurrent.futures.ThreadPoolExecutor(CLIENTS)
        self.workers = [self.pool.submit(self.work, random.Random(number)) for number in range(CLIENTS)]

    def work(self, numbers):
        while not self.stopping.is_set():
            ids = numbers.choice(self.beginnings)[: numbers.randint(1, 200)] + numbers.choices(LETTERS, k=3)
            sampling = {"max_tokens": numbers.randint(1, 300), "n": numbers.choice([1, 1, 2])}
            sampling |= {"seed": numbers.randrange(2**40), "temperature": 1.0, "logprobs": 1, "ignore_eos": True}
            body = {"model": MODEL, "token_ids": ids, "cache_salt": numbers.choice([None, "a"]), "sampling_params": sampling}
            answer = requests.post(f"{self.url}/inference/v1/generate", json=body, timeout=300)
            if answer.status_code == 503:
                self.count(answer.json()["error"]["message"])
                # Until the pause may have ended.
                self.stopping.wait(0.02)
                continue
            assert answer.status_code == 200, answer.text
            for choice in answer.json()["choices"]:
                log_probs = [entry["logprob"] for entry in choice["logprobs"]["content"]] if choice["logprobs"] else []
                rollout = Rollout(ids, choice["token_ids"], log_probs, choice["finish_reason"], choice["weight_versions"])
                with self.lock:
                    self.answers.append(rollout)
                    self.more.notify()

    def wait_for(self, count):
        """Waits until so many more answers have come."""
        with self.more:
            expected = len(self.answers) + count
            assert self.more.wait_for(lambda: len(self.answers) >= expected, 120), "clients get no answers"

    def count(self, refusal):
        with self.lock:
            self.refusals[refusal] += 1

    def stop(self):
        self.stopping.set()
        for worker in self.workers:
            worker.result(300)
        self.pool.shutdown()


class Trainer:
    """Changes weights, and does all that may be done between two changes."""

    def __init__(self, trained):
        self.trained, self.numbers, self.count = trained, random.Random(1), 0
        names = [f"checkpoint {seed}" for seed in range(1, CHECKPOINTS + 1)]
        self.checkpoints = {name: trained.checkpoints.write(name, seed) for seed, name in enumerate(names, 1)}
        self.bad = trained.checkpoints.write("bad", CHECKPOINTS + 1)
        (self.bad / "model-00002-of-00002.safetensors").unlink()

    def post(self, path, body=None, statuses=(200,)):
        answer = requests.post(self.trained.url + path, json=body, timeout=300)
        assert answer.status_code in statuses, f"{path} {body}: {answer.status_code} {answer.text}"

    def step(self):
        pause, deed = self.numbers.choice(PAUSES), self.numbers.choice(DEEDS)
        if pause:
            self.post(f"/pause?mode={pause}&clear_cache={self.numbers.choice(['true', 'false'])}")
        self.do(deed)
        if pause:
            self.post("/resume")

    def label(self, name):
        """A new label, which is that of a checkpoint from here on."""
        self.count += 1
        self.trained.names[f"version {self.count}"] = name
        return f"version {self.count}"

    def do(self, deed):
        name = self.numbers.choice(list(self.checkpoints))
        directory = str(self.checkpoints[name])
        if deed == "update":
            self.post("/update_weights", {"weight_dir": directory, "weight_version": self.label(name)})
        elif deed == "update in phases":
            self.post("/start_weight_update")
            self.post("/update_weights", {"update_info": {"path": directory}})
            self.post("/finish_weight_update", {"weight_version": self.label(name)})
        elif deed == "update twice at once":
            bodies = [{"weight_dir": directory, "weight_version": self.label(name)} for _ in range(2)]
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda body: self.post("/update_weights", body, (200, 409)), bodies))
        elif deed == "bad update":
            self.post("/update_weights", {"weight_dir": str(self.bad)}, (400,))
        elif deed == "reset the cache":
            self.post(f"/reset_prefix_cache?reset_running_requests={self.numbers.choice(['true', 'false'])}")
        elif deed == "sleep":
            self.post(f"/sleep?level={self.numbers.choice([0, 1])}&mode={self.numbers.choice(['abort', 'wait', 'keep'])}")
            self.post("/wake_up")


def test_every_token_is_of_the_weights_that_its_answer_names(trained):
    trainer, clients = Trainer(trained), Clients(trained)
    try:
        for _ in range(STEPS):
            trainer.step()
            clients.wait_for(trainer.numbers.randint(0, 4))
    finally:
        clients.stop()
    assert set(clients.refusals) <= {"Generation is paused. Please retry after it resumes."}
    answers = random.Random(2).sample(clients.answers, min(MOST_CHECKED, len(clients.answers)))
    mixed = sum(len(trained.check(answer)) > 1 for answer in answers)
    assert mixed > 0
    assert len(trained.names) > CHECKPOINTS
    trained.server.poll("nothing is left", trained.server.idle)
