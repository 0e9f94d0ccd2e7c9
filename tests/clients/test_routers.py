"""Conversations behind routers, in front of three replicas of which one dies: every answered turn has the ids that were sampled, or
a verdict that says why not.

TITO_ROUTING_CONVERSATIONS says how many there are for each router and carrier, and TITO_ROUTING_TABLE where the table of
docs/routing.md is written.
"""

import collections
import concurrent.futures
import os
import pathlib
import random

import httpx
import pytest
from checkpoints import Checkpoints
from conftest import Server, free_port, note
from routed import CARRIERS, TURNS, Conversation
from routers import SETTINGS, running

CONVERSATIONS = int(os.environ.get("TITO_ROUTING_CONVERSATIONS", "6"))
STREAMS = 8
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
