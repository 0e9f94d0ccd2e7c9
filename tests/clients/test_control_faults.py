"""What breaks around an update: the trainer is killed, the server is killed, no byte can be written, or much goes on at once."""

import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading

import pytest
import requests

import deltas
from conftest import Server, free_port
from control import Running, Trained, prompt

ADMIN = ["--admin-on-main-port", "--insecure-admin"]

# Streams a part of a file as the body of an update, says so, and waits to be killed.
TRAINER = """
import socket, sys, time
host, port, path, share = sys.argv[1:]
data = open(path, "rb").read()
trainer = socket.create_connection((host, int(port)))
head = f"POST /update_weights HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/octet-stream\\r\\n"
trainer.sendall(f"{head}Content-Length: {len(data)}\\r\\n\\r\\n".encode() + data[: int(len(data) * float(share))])
print("sent", flush=True)
time.sleep(600)
"""


def checksums(url):
    answer = requests.post(f"{url}/weight_checker", json={"action": "checksum"}, timeout=300)
    answer.raise_for_status()
    return answer.json()["checksums"]


def updating(server):
    """Whether an update is under way: only then are there no checksums. A second update would end one in parts."""
    answer = requests.post(f"{server.url}/weight_checker", json={"action": "checksum"}, timeout=300)
    assert answer.status_code in (200, 409), answer.text
    return answer.status_code == 409


def other_weights(source, target):
    """A file of safetensors with the tensors of another one, in all of which every lowest bit is the other one."""
    data = bytearray(source.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    data[begin::2] = bytes(byte ^ 1 for byte in data[begin::2])
    target.write_bytes(data)
    return target


def trainer(server, path, share):
    host, port = server.url.removeprefix("http://").split(":")
    command = [sys.executable, "-c", TRAINER, host, port, str(path), str(share)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "sent\n"
    return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()


def files(*directories):
    """What is in directories, to the bit."""
    paths = [path for directory in directories for path in pathlib.Path(directory).rglob("*") if path.is_file()]
    return {str(path): hashlib.blake2b(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture
def large():
    """The real model: so large that much of it is written before its last byte comes."""
    server = Server(*ADMIN)
    yield server
    server.stop()


def complete(server):
    body = {"prompt": [1, 2, 3], "max_tokens": 8, "temperature": 0.0, "return_token_ids": True}
    return server.post("/v1/completions", **body)["choices"][0]["token_ids"]


def test_a_trainer_that_is_killed_while_it_streams_changes_nothing(large, tmp_path):
    before, ids = checksums(large.url), complete(large)
    model = pathlib.Path(os.environ["TITO_TEST_MODEL"])
    file = other_weights(model / "model.safetensors", tmp_path / "model.safetensors")
    killed = trainer(large, file, 0.7)
    # What was sent was read, all but what sockets hold, so that most of it is written or about to be.
    large.poll("tensors are overwritten", lambda: updating(large))
    refused = requests.post(f"{large.url}/weight_checker", json={"action": "checksum"}, timeout=300)
    assert refused.status_code == 409, refused.text
    kill(killed)
    large.poll("the old weights are back", lambda: not updating(large))
    assert checksums(large.url) == before
    assert complete(large) == ids
    # And the next trainer can go on.
    headers = {"Content-Type": "application/octet-stream"}
    with file.open("rb") as body:
        requests.post(f"{large.url}/update_weights", data=body, headers=headers, timeout=300).raise_for_status()
    assert not set(checksums(large.url).items()) & set(before.items())


@pytest.mark.parametrize("way", ["a stream", "in phases"])
def test_a_server_that_is_killed_during_an_update_starts_with_the_weights_of_its_directory(tmp_path, monkeypatch, way):
    model, home, temporary = (tmp_path / name for name in ("model", "home", "temporary"))
    shutil.copytree(os.environ["TITO_TEST_MODEL"], model, copy_function=shutil.copyfile)
    home.mkdir()
    temporary.mkdir()
    file = other_weights(model / "model.safetensors", tmp_path / "model.safetensors")
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("TMPDIR", str(temporary))
    there = files(model, home, temporary)
    server = Server(*ADMIN, model=str(model))
    before, ids = checksums(server.url), complete(server)
    if way == "a stream":
        killed = trainer(server, file, 0.7)
        server.poll("tensors are overwritten", lambda: updating(server))
        kill(server.process)
        kill(killed)
    else:
        requests.post(f"{server.url}/start_weight_update", timeout=300).raise_for_status()
        part = {"update_info": {"weight_dir": str(file)}}
        requests.post(f"{server.url}/update_weights", json=part, timeout=300).raise_for_status()
        assert updating(server)
        kill(server.process)
    assert files(model, home, temporary) == there
    server = Server(*ADMIN, model=str(model))
    assert checksums(server.url) == before
    assert complete(server) == ids
    server.stop()
    assert files(model, home, temporary) == there


@pytest.fixture
def writing_nothing(tmp_path, monkeypatch):
    """A server that cannot make any file longer than it is, and whose log goes to a device that is full."""
    binary = tmp_path / "tito"
    binary.write_text(f'#!/bin/sh\nulimit -f 0\nexec "{os.environ["TITO_BIN"]}" "$@" 2>/dev/full\n')
    binary.chmod(0o755)
    monkeypatch.setenv("TITO_BIN", str(binary))
    (tmp_path / "checkpoints").mkdir()
    # Nobody can read there where it listens.
    trained = Trained(tmp_path / "checkpoints", port=free_port())
    yield trained
    trained.stop()


def test_no_update_needs_room_on_a_disk(writing_nothing):
    """`/pull_weights` and `/fetch_weights` too only read: an update can neither fill a disk nor fail on a full one."""
    trained = writing_nothing
    url, root = trained.url, trained.checkpoints.root

    def called(path, **body):
        answer = requests.post(f"{url}/{path}", json=body, timeout=300)
        assert answer.status_code == 200, answer.text

    # slime's deltas, and then SkyRL's.
    old = trained.checkpoints.tensors("base")
    deltas.publish_slime(root / "slime", 1, old, trained.checkpoints.changed("base", "one", 1))
    local = {"local_checkpoint_dir": str(root / "local"), "source_dir": str(root / "slime")}
    called("pull_weights", **local, target_version="1")
    called("update_weights_from_disk", model_path=str(root / "local"), weight_version="1")
    trained.has_now("one")
    old = trained.checkpoints.tensors("one")
    info = deltas.publish_skyrl(root / "skyrl", 2, old, trained.checkpoints.changed("one", "two", 2))
    called("fetch_weights", **info)
    called("start_weight_update")
    called("update_weights", update_info=info)
    called("finish_weight_update", weight_version="2")
    trained.has_now("two")
    trained.check(trained.complete(prompt(0)), "two")
    # All weights: a directory, and a body.
    called("update_weights", weight_dir=str(trained.checkpoints.write("three", 3)), weight_version="3")
    trained.has_now("three")
    body = (trained.checkpoints.base / "model.safetensors").read_bytes()
    headers = {"Content-Type": "application/octet-stream"}
    requests.post(f"{url}/update_weights?weight_version=4", data=body, headers=headers, timeout=300).raise_for_status()
    trained.names["4"] = "base"
    trained.check(trained.complete(prompt(1)), "base")
    # A refusal is a line of the log, which nobody can read.
    assert requests.post(f"{url}/update_weights", json={"weight_dir": "/nowhere"}, timeout=300).status_code == 400
    trained.check(trained.complete(prompt(2)), "base")


@contextlib.contextmanager
def kept_busy(trained, clients):
    """Clients that ask one after the other for long answers, each at least once more after the block; gives their rollouts."""
    over = threading.Event()
    rollouts = [[] for _ in range(clients)]

    def ask_on(first, number):
        rollouts[number].append(first.rollout())
        last = False
        while not last:
            last = over.is_set()
            rollouts[number].append(Running(trained, prompt(number)).rollout())

    running = trained.under_way(*map(prompt, range(clients)))
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        asking = [pool.submit(ask_on, first, number) for number, first in enumerate(running)]
        try:
            yield rollouts
        finally:
            over.set()
        for client in asking:
            client.result()


def test_weights_change_whatever_the_server_is_in(tmp_path):
    trained = Trained(tmp_path)
    url = trained.url

    def post(path, **body):
        return requests.post(f"{url}{path}", json=body or None, timeout=300)

    def replaced(name, seed):
        answer = post("/update_weights", weight_dir=str(trained.checkpoints.write(name, seed)), weight_version=name)
        assert answer.status_code == 200, answer.text
        trained.has_now(name)

    def during(begin, end, name, seed):
        assert post(begin).status_code == 200
        replaced(name, seed)
        assert post(end).status_code == 200
        trained.check(trained.complete(prompt(seed)), name)

    during("/pause?mode=abort", "/resume", "paused", 1)
    during("/pause?mode=keep", "/resume", "kept", 2)
    during("/sleep?level=1", "/wake_up", "asleep", 3)
    # Weights that were given back have no memory before the server is awake again.
    assert post("/sleep?level=2").status_code == 200
    nowhere = post("/update_weights", weight_dir=str(trained.checkpoints.base))
    assert nowhere.status_code >= 400
    assert "wake_up" in nowhere.text
    assert post("/wake_up").status_code == 200
    replaced("woken", 4)
    trained.check(trained.complete(prompt(4)), "woken")
    # Under load, two at once: they are done one after the other, and no token is of other weights than its label says.
    directories = {name: trained.checkpoints.write(name, seed) for seed, name in enumerate(("first", "second"), 5)}
    trained.names |= {name: name for name in directories}
    with kept_busy(trained, 4) as clients:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            updates = [
                pool.submit(post, "/update_weights", weight_dir=str(directory), weight_version=name)
                for name, directory in directories.items()
            ]
            answers = [update.result() for update in updates]
    assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
    for rollouts in clients:
        named = [trained.check(rollout) for rollout in rollouts]
        assert named[0][0] == "woken" and named[-1][-1] in directories
    # While an update in phases is under way, no other begins, and one that comes ends it: its end would lack the other.
    part = trained.checkpoints.write("phased", 9)
    assert post("/start_weight_update").status_code == 200
    assert post("/update_weights", update_info={"weight_dir": str(part)}).status_code == 200
    refused = post("/update_weights", weight_dir=str(trained.checkpoints.base))
    assert refused.status_code == 400
    assert "an update in parts was active" in json.dumps(refused.json())
    assert post("/finish_weight_update", weight_version="phased").status_code >= 400
    # The server does not fall asleep in one.
    assert post("/start_weight_update").status_code == 200
    assert post("/update_weights", update_info={"weight_dir": str(part)}).status_code == 200
    assert post("/sleep?level=1").status_code >= 400
    assert post("/finish_weight_update", weight_version="phased").status_code == 200
    trained.has_now("phased")
    trained.check(trained.complete(prompt(9)), "phased")
    trained.stop()
