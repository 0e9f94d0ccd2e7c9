"""Replicas that are restarted one after the other behind a router, under clients that never ask again: no request fails.

The router is haproxy with the file of deploy/compose, except for addresses, and for its own retries: it is to make none.
"""

import concurrent.futures
import contextlib
import csv
import io
import pathlib
import re
import shutil
import socket
import tempfile
import threading

import httpx
import pytest
from checkpoints import Checkpoints
from conftest import REPOSITORY, STOP_SECONDS, Server, note
from routed import CARRIERS, Conversation, NotProvable
from routers import Setting, running
from stores import REDIS, Redis
from test_routers import FLAGS, Replicas

CLIENTS = 32
FILE = REPOSITORY / "deploy" / "compose" / "haproxy.cfg"
# How long a replica answers after SIGTERM: the router asks it every half a second.
DELAY = ["--shutdown-delay", "5"]


class Restarted(Replicas):
    """Three servers that stop as an init system has them stop, and begin again."""

    def __init__(self, model, *flags):
        self.flags = flags
        super().__init__(model)

    def start(self, port):
        return Server(*FLAGS, *DELAY, *self.flags, model=str(self.model), port=port)

    def told_to_stop(self, number):
        self.servers[number].process.terminate()

    def ended(self, number):
        """Waits for the end, which has to be clean, and starts another one."""
        server = self.servers[number]
        server.process.wait(STOP_SECONDS)
        server.stop()
        self.servers[number] = self.start(self.ports[number])

    def answered(self, number):
        """How many requests this one has answered since it began."""
        return self.servers[number].gauge("vllm:request_success_total")


class Haproxy:
    """What the router says of each replica."""

    def __init__(self, directory):
        self.directory = directory
        self.socket = directory / "haproxy.sock"

    def say(self, directory, port, workers):
        text = changed(FILE.read_text(), r"/tmp/haproxy\.sock", str(self.socket))
        text = changed(text, r"bind :8000", f"bind 127.0.0.1:{port}")
        text = changed(text, r"retries 3", "retries 0")
        text = changed(text, r" resolvers docker init-addr \S+", "")
        for number, worker in enumerate(workers, 1):
            text = changed(text, rf" tito-{number}:8000", f" 127.0.0.1:{worker}")
        (directory / "haproxy.cfg").write_text(text)
        return ["-f", str(directory / "haproxy.cfg")]

    def states(self):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(300)
            connection.connect(str(self.socket))
            connection.sendall(b"show stat\n")
            text = connection.makefile().read().removeprefix("# ")
        rows = csv.DictReader(io.StringIO(text))
        return {row["svname"]: row["status"] for row in rows if row["pxname"] == "replicas"}

    def is_up(self, number):
        """Whether a replica gets requests: not while it is down, and not where that is about to be known."""
        return self.states()[f"tito-{number + 1}"] == "UP"

    def is_down(self, number):
        return self.states()[f"tito-{number + 1}"] == "DOWN"


def changed(text, pattern, by):
    """The file of deploy/ with something else in this one place."""
    text, count = re.subn(pattern, by, text)
    assert count == 1, f"{pattern}: {count} places"
    return text


class Once(Conversation):
    """A client that asks each turn once, and once more only where the ids have to come on a message instead."""

    def ask(self, client):
        body = self.body()
        try:
            done = self.attempt(client, body)
        except NotProvable:
            done = self.attempt(client, self.with_ids_on_messages(body))
        assert done, f"turn {len(self.turns)} of {self.number}, by {self.carrier}, failed: {self.failure}"
        return done


def converse(url, client, first, over):
    """Conversations one after the other, until it is over."""
    held = []
    number = first
    while not over.is_set():
        held.append(Once(url, CARRIERS[first // 2 % len(CARRIERS)], number).run(client))
        number += CLIENTS
    return held


class Clients:
    """All of them at once, until the block ends, which fails as soon as one of them does."""

    def __init__(self, url):
        self.url, self.over, self.running = url, threading.Event(), []

    def __enter__(self):
        self.client = httpx.Client(timeout=300, limits=httpx.Limits(max_connections=CLIENTS))
        self.pool = concurrent.futures.ThreadPoolExecutor(CLIENTS)
        for number in range(CLIENTS):
            self.running.append(self.pool.submit(converse, self.url, self.client, number, self.over))
        return self

    def __exit__(self, *_):
        self.over.set()
        self.pool.shutdown()
        self.client.close()

    def go_on(self):
        """None has ended, as they do where a request fails."""
        for one in self.running:
            assert not one.done(), one.result()
        return True

    def held(self):
        return [conversation for one in self.running for conversation in one.result()]


def restart_each(replicas, router, clients):
    """One after the other; each has to answer before the next one is told to stop."""

    def until(what, condition):
        replicas.servers[0].poll(what, lambda: clients.go_on() and condition())

    for number, _ in enumerate(replicas.servers):
        until("it is used", lambda number=number: router.is_up(number) and replicas.answered(number))
        replicas.told_to_stop(number)
        until("the router knows", lambda number=number: router.is_down(number))
        replicas.ended(number)
    until("the last one is used", lambda: router.is_up(number) and replicas.answered(number))


@pytest.mark.parametrize("shares", [False, True], ids=["each by itself", "with a store"])
def test_no_request_fails_while_replicas_are_restarted(tmp_path, shares):
    setting = Setting("haproxy", "haproxy", "deploy/compose", None)
    if not setting.path() or (shares and REDIS is None):
        note("NOT TRIED: a rolling restart: haproxy or redis-server is not here")
        pytest.skip("haproxy or redis-server")
    with contextlib.ExitStack() as stack:
        flags = []
        # A path that is short enough for a socket.
        short = tempfile.mkdtemp(prefix="tito-")
        stack.callback(shutil.rmtree, short)
        router = Haproxy(pathlib.Path(short))
        if shares:
            redis = Redis(short)
            stack.callback(redis.stop)
            flags = ["--continuity-store", redis.url, "--continuity-store-timeout-ms", "60000"]
        (tmp_path / "model").mkdir()
        replicas = Restarted(Checkpoints(tmp_path / "model").base, *flags)
        stack.callback(replicas.stop)
        setting = Setting("haproxy", "haproxy", "deploy/compose", router.say)
        url = stack.enter_context(running(setting, tmp_path, replicas.ports))
        with Clients(url) as clients:
            restart_each(replicas, router, clients)
        held = clients.held()
    outcomes = [outcome for conversation in held for outcome in conversation.outcomes()]
    assert len(held) >= CLIENTS
    if shares:
        assert set(outcomes) == {"exact"}
