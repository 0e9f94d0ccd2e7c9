"""The training loop of examples/grpo over replicas on Ray: all of them learn as one, and one is killed on the way.

    pip install 'tito-server[ray]' -r requirements.txt
    python grpo_ray.py

What is sampled is scored again with the weights that its answer names, whichever replica sampled it.
"""

import argparse
import itertools
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "grpo"))

# It sets how many threads numpy has, and comes before it.
import grpo  # isort: skip

import autograd.numpy as np
import policy
import ray

import tito.ray


class Servers:
    """Takes requests to the replicas one after the other, and those of a dead one to the others."""

    def __init__(self, replicas):
        self.replicas, self.turn = replicas, itertools.count()
        self.urls = list(replicas.urls().values())

    def call(self, path, body):
        while True:
            urls = self.urls
            try:
                return post(urls[next(self.turn) % len(urls)] + path, {"model": "policy", **body})
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise RuntimeError(error.read().decode()) from error
            except OSError:
                # It was not answered: nothing is lost, as the request has all ids.
                pass
            time.sleep(0.05)
            self.urls = list(self.replicas.urls().values()) or urls

    def sample(self, body):
        """A choice of an answer."""
        return self.call("/v1/completions", body)["choices"][0]


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=600) as answer:
        return json.load(answer)


def train(arguments, work):
    size, digits = grpo.tokens_of(grpo.TOKENIZER)
    optimiser = policy.Adam(policy.initial(size, arguments.seed), arguments.rate)
    policy.write_model(optimiser.weights, work / "initial", grpo.TOKENIZER)
    flags = {"engine": "native", "dtype": "float32", "max_model_len": 256, "max_num_seqs": grpo.IN_FLIGHT}
    history, curve, checked, broken = {"default": dict(optimiser.weights)}, [], 0, 0
    with tito.ray.Replicas(
        work / "initial", arguments.replicas, binary=arguments.tito, served_model_name="policy", **flags
    ) as replicas:
        servers = Servers(replicas)
        questions = [servers.call("/tokenize", {"prompt": text})["tokens"] for text in grpo.QUESTIONS]
        rollouts = grpo.Rollouts(servers, questions, arguments.seed)
        rollouts.ask_for(grpo.GROUPS * grpo.GROUP + grpo.IN_FLIGHT)
        print("step  reward  mixed  worst    wrong  update ms  ready  restarts")
        try:
            for step in range(1, arguments.steps + 1):
                if step == arguments.kill_at:
                    os.kill(replicas.states()[-1].pid, signal.SIGKILL)
                groups = rollouts.next_groups()
                samples = [sample for group in groups for sample in group]
                worst, violations = grpo.check(samples, history)
                broken += violations
                checked += sum(len(sample.ids) for sample in samples)
                rewards = np.array([grpo.reward(sample, digits) for sample in samples])
                grpo.learn(optimiser, groups, rewards, arguments.epochs)
                version = f"step-{step}"
                history[version] = dict(optimiser.weights)
                policy.save(optimiser.weights, work / version)
                rollouts.ask_for(grpo.GROUPS * grpo.GROUP)
                before = time.perf_counter()
                update(replicas, work / version, version)
                took = time.perf_counter() - before
                # A replica that is started again reads the current weights, and an update that fails the old ones.
                shutil.rmtree(work / f"step-{step - 1}", ignore_errors=True)
                mixed = sum(len({part.version for part in sample.parts}) > 1 for sample in samples)
                curve.append(rewards.mean())
                states = replicas.states()
                ready, restarts = sum(s.state == "ready" for s in states), sum(s.restarts for s in states)
                print(
                    f"{step:4}  {curve[-1]:6.3f}  {mixed:5}  {worst:.1e}  {violations:5}  {took * 1e3:9.1f}"
                    f"  {ready:5}  {restarts:8}",
                    flush=True,
                )
        finally:
            rollouts.stop()
    return curve, checked, broken


def update(replicas, directory, version):
    """New weights for all. Where one dies in the middle, all have the old ones, and it is tried again without that one."""
    for attempt in itertools.count(1):
        try:
            return replicas.update_weights(directory, weight_version=version)
        except tito.ray.UpdateFailed as failed:
            print(failed, flush=True)
            if attempt == 3:
                raise


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tito", help="another program than the installed one")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--kill-at", type=int, default=4, help="the step in which a replica is killed; 0 kills none")
    parser.add_argument("--rate", type=float, default=0.03, help="how far a step of the optimiser goes")
    parser.add_argument("--epochs", type=int, default=6, help="steps of the optimiser in each step")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    # On this machine; with `address="auto"`, on a cluster that runs.
    ray.init(address="local", num_cpus=arguments.replicas, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory(prefix="grpo-") as work:
        rewards, checked, broken = train(arguments, pathlib.Path(work))
    print(f"reward {rewards[0]:.3f} -> {rewards[-1]:.3f}")
    print(f"{broken} of {checked} tokens are not of the weights that their answers name")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
