"""Replicas on Ray: one dies, all get new weights or none does, and no answer is silently wrong."""

import collections
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import threading

import policy
import pytest
import ray
from conftest import REPOSITORY, poll
from rollouts import TURNS, Conversation, kill, sampled, waiting

import tito.ray

CONVERSATIONS = 32


class Counter:
    """Turns that were answered, and who waits for a number of them. The last of each conversation comes after an update."""

    def __init__(self):
        self.count, self.changed, self.updated = 0, threading.Condition(), threading.Event()

    def add(self, turns):
        with self.changed:
            self.count += 1
            self.changed.notify_all()
        assert turns < TURNS - 1 or self.updated.wait(600)

    def wait(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: self.count >= count, 600), f"{self.count} of {count} turns"


def test_no_turn_is_silently_wrong_when_one_dies_and_all_are_updated(trainer):
    with trainer.replicas() as replicas, concurrent.futures.ThreadPoolExecutor(CONVERSATIONS) as pool:
        answered = Counter()

        def address(number):
            def at(attempt):
                urls = poll("a replica is ready", replicas.urls)
                return list(urls.values())[(number + attempt) % len(urls)]

            return at

        conversations = [Conversation(address(number), number, answered=answered.add) for number in range(CONVERSATIONS)]
        ran = [pool.submit(conversation.run) for conversation in conversations]
        answered.wait(CONVERSATIONS // 2)
        dead = kill(replicas, 1)
        poll("the death is seen", lambda: replicas.states()[1].restarts == 1)
        updated = replicas.update_weights(trainer.write("step-1", seed=1), weight_version="step-1")
        assert set(updated.replicas) | set(updated.left_out) == {0, 1, 2}
        answered.updated.set()
        for done in ran:
            done.result()

        turns = [turn for conversation in conversations for turn in conversation.turns]
        assert len(turns) == CONVERSATIONS * TURNS
        versions = collections.Counter(name for turn in turns for name in turn.check_weights(trainer.weights))
        outcomes = collections.Counter(outcome for conversation in conversations for outcome in conversation.outcomes())
        # They bring their ids.
        assert outcomes == {"exact": CONVERSATIONS * (TURNS - 1)}
        assert versions["default"] and versions["step-1"] >= CONVERSATIONS

        states = replicas.wait(600)
        assert [state.weight_version for state in states] == ["step-1"] * 3
        assert [state.restarts for state in states] == [0, 1, 0] and states[1].url != dead.url
        assert states[1].reason
        for state in states:
            assert sampled(state.url, trainer.weights) == ["step-1"]


@pytest.fixture
def apart(tmp_path, monkeypatch):
    """A program that runs servers in different folders: `/proc/self/cwd` has other files for one of them."""
    one, others = tmp_path / "one", tmp_path / "others"
    others.mkdir()
    script = tmp_path / "tito-apart"
    script.write_text(f'#!/bin/sh\nif mkdir "{one}" 2>/dev/null; then cd "{one}"; else cd "{others}"; fi\nexec "$TITO" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("TITO", os.environ["TITO_BIN"])
    monkeypatch.setenv("TITO_BIN", str(script))
    return one, others


def test_an_update_that_fails_in_one_leaves_the_old_weights_in_all(trainer, apart):
    one, others = apart
    # None is looked after here, so that the update is what finds a dead one.
    with trainer.replicas(check_seconds=3600, environment={"TITO": os.environ["TITO"]}) as replicas:
        (odd,) = [state.number for state in replicas.states() if os.readlink(f"/proc/{state.pid}/cwd") == str(one)]

        def update(name):
            return replicas.update_weights(f"/proc/self/cwd/{name}", weight_version=name)

        def all_sample(version):
            return all(sampled(url, trainer.weights) == [version] for url in replicas.urls().values())

        def put(name, seed, *folders):
            for folder in folders:
                trainer.write(name, seed, folder / name)

        # It is not there for one.
        put("step-1", 1, others)
        with pytest.raises(tito.ray.UpdateFailed, match=f"replica {odd}: .*step-1") as failed:
            update("step-1")
        assert list(failed.value.failures) == [odd] and not failed.value.restarted
        assert all_sample("default") and len(replicas.urls()) == 3

        # One reads other weights than the rest, and its server finds nothing wrong with them.
        put("step-2", 2, one)
        put("step-2", 3, others)
        with pytest.raises(tito.ray.UpdateFailed, match="other weights than those"):
            update("step-2")
        assert all_sample("default") and len(replicas.urls()) == 3

        # The same weights by another name: those that took the name have the old one again.
        trainer.weights["again"] = trainer.weights["default"]
        policy.save(trainer.weights["again"], others / "again")
        with pytest.raises(tito.ray.UpdateFailed, match=f"replica {odd}: "):
            update("again")
        assert all_sample("default") and len(replicas.urls()) == 3

        # In all of them; what failed before is a name that is free.
        put("step-1", 1, one)
        assert update("step-1").replicas == [0, 1, 2]
        assert all_sample("step-1")

        # One is dead, and nobody has seen it yet.
        put("step-3", 3, one, others)
        kill(replicas, odd)
        with pytest.raises(tito.ray.UpdateFailed, match=f"replica {odd}: "):
            update("step-3")
        assert [state.restarts for state in replicas.wait(600)] == [int(number == odd) for number in range(3)]
        assert all_sample("step-1") and len(replicas.urls()) == 3
        assert update("step-3").weight_version == "step-3"
        assert all_sample("step-3")


def test_a_restarted_replica_has_the_current_weights_or_takes_no_request(trainer):
    with trainer.replicas(2, starts=1) as replicas:
        first = trainer.write("step-1", seed=1)
        replicas.update_weights(first, weight_version="step-1")

        # The trainer writes the next weights to the same place, and one has to read it again.
        weights = trainer.weights["step-1"]
        policy.save(policy.initial(326, seed=2), first)
        kill(replicas, 0)
        poll("it is left out", lambda: replicas.states()[0].state == "left out")
        left_out = replicas.states()[0]
        assert left_out.url is None and "no longer the weights step-1" in left_out.reason
        with pytest.raises(tito.ray.StartFailed, match="replica 0: .* no longer"):
            replicas.wait(600)
        assert sampled(replicas.urls()[1], {"step-1": weights}) == ["step-1"]

        # The name is that of other weights.
        with pytest.raises(tito.ray.UpdateFailed, match="replica 1: .*were called so before as step-1"):
            replicas.update_weights(first, weight_version="step-1")
        # The files of the weights that it has are gone, so that it cannot be put back: it does not serve what it has.
        poll("it was started again", lambda: replicas.states()[1].restarts == 1)
        assert not replicas.urls()


def test_all_are_given_weights_that_a_restarted_one_can_read(trainer):
    with trainer.replicas(2, starts=1) as replicas:
        # Not all tensors of the model.
        part = trainer.root / "part"
        all_weights = policy.initial(326, seed=5)
        policy.save({name: array for name, array in all_weights.items() if "layers.0" not in name}, part)
        with pytest.raises(tito.ray.UpdateFailed, match="tensors: a replica that is started again"):
            replicas.update_weights(part, weight_version="part")
        assert [sampled(url, trainer.weights) for url in replicas.urls().values()] == [["default"]] * 2

        # A pause of all holds for one that is started meanwhile, and for an update.
        replicas.pause()
        kill(replicas, 0)
        poll("the death is seen", lambda: replicas.states()[0].restarts == 1)
        urls = {state.number: state.url for state in replicas.wait(600)}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            asked = {number: pool.submit(sampled, url, trainer.weights) for number, url in urls.items()}
            for url in urls.values():
                poll("the request is there", lambda url=url: waiting(url) == 1)
            replicas.update_weights(trainer.write("step-1", seed=1), weight_version="step-1")
            assert [waiting(url) for url in urls.values()] == [1, 1]
            replicas.resume()
            assert [one.result() for one in asked.values()] == [["step-1"]] * 2

        # It knows which weights there are, and without it no server is left.
        pids = [state.pid for state in replicas.states()]
        ray.kill(replicas._coordinator)
        for pid in pids:
            poll("the server has ended", lambda pid=pid: not pathlib.Path(f"/proc/{pid}/exe").exists())
        with pytest.raises(ray.exceptions.RayActorError):
            replicas.urls()


def test_what_cannot_be_started_says_why(trainer, tmp_path):
    with pytest.raises(tito.ray.StartFailed, match="replica 0: the server ended with status 1"):
        tito.ray.Replicas(tmp_path / "no-model", 1, binary=os.environ["TITO_BIN"], starts=1)
    with pytest.raises(tito.ray.StartFailed, match="replica 0: Ray had no room"):
        trainer.replicas(1, gpus=1, start_seconds=0)
    for wrong in [{"port": 8000}, {"admin_on_main_port": True}, {"cpus": 0}]:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            trainer.replicas(1, **wrong)
    with pytest.raises(ValueError, match="count"):
        trainer.replicas(0)


def test_without_ray_the_import_says_what_to_install():
    code = "import sys; sys.modules['ray'] = None; import tito; import tito.ray"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "python")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "pip install 'tito-server[ray]'" in done.stderr
