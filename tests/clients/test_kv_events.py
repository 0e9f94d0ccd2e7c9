"""Events of the cache as vLLM publishes them: a subscriber with pyzmq follows them, asks again for what it missed, and finds the same
hashes after a restart. vllm-router finds the publishers by itself, and steers by what they say.
"""

import itertools
import json
import re
import urllib.parse
import urllib.request

import msgspec
import pytest
import routers
import zmq
from checkpoints import Checkpoints
from conftest import Server, free_port, note

FLAGS = ["--engine", "native", "--dtype", "float32", "--max-model-len", "2048", "--kv-cache-memory-bytes", "32M"]
TOPIC = "kv@here@smollm2"
END = b"\xff" * 8
# For what comes in milliseconds where nothing else runs.
WAIT_MS = 300_000


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(Checkpoints(tmp_path_factory.mktemp("events")).base)


class Publisher:
    """A server that publishes events, at ports of its own."""

    def __init__(self, model):
        self.port, self.replay_port = free_port(), free_port()
        config = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self.port}",
            "replay_endpoint": f"tcp://*:{self.replay_port}",
            "topic": TOPIC,
        }
        self.server = Server(*FLAGS, "--kv-events-config", json.dumps(config), model=model)

    def complete(self, prompt):
        return self.server.post("/v1/completions", prompt=prompt, max_tokens=2, temperature=0)


class Subscriber:
    """Batches by their numbers, as a client of vLLM reads them."""

    def __init__(self, context, port):
        self.socket = context.socket(zmq.SUB)
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        self.socket.setsockopt_string(zmq.SUBSCRIBE, TOPIC)
        self.socket.setsockopt(zmq.RCVTIMEO, WAIT_MS)

    def batch(self):
        topic, number, payload = self.socket.recv_multipart()
        assert topic.decode() == TOPIC
        return int.from_bytes(number, "big"), msgspec.msgpack.decode(payload)


def replay(context, port, first):
    """What is kept from a number on."""
    dealer = context.socket(zmq.DEALER)
    dealer.connect(f"tcp://127.0.0.1:{port}")
    dealer.setsockopt(zmq.RCVTIMEO, WAIT_MS)
    dealer.send_multipart((b"", first.to_bytes(8, "big")))
    batches = []
    while True:
        empty, _, number, payload = dealer.recv_multipart()
        assert empty == b""
        if number == END:
            dealer.close(linger=0)
            return batches
        batches.append((int.from_bytes(number, "big"), msgspec.msgpack.decode(payload)))


def stored(batches):
    """The tokens of each block, by its hash."""
    blocks = {}
    for _, (_, events, rank) in batches:
        assert rank == 0
        for event in events:
            if event["type"] == "BlockStored":
                size, tokens = event["block_size"], event["token_ids"]
                assert (event["medium"], event["lora_name"], event["group_idx"]) == ("GPU", None, 0)
                for number, block in enumerate(event["block_hashes"]):
                    blocks[block] = tokens[number * size : (number + 1) * size]
    return blocks


def prompt(seed, length):
    return [(seed + 7 * index) % 90 + 5 for index in range(length)]


def await_batch(publisher, subscriber, size):
    """Waits until a batch lies ready. Subscribing takes a while: until then, batches are missed."""
    seeds = itertools.count(2)

    def is_ready():
        if subscriber.socket.poll(200):
            return True
        publisher.complete(prompt(next(seeds), 2 * size + 5))
        return False

    publisher.server.poll("a batch comes", is_ready)


def test_a_subscriber_sees_the_blocks_and_replays_what_it_missed(model):
    context, hashes = zmq.Context(), []
    for _ in range(2):
        publisher = Publisher(model)
        try:
            said = json.loads(publisher.server.get("/kv_event_sources"))
            assert said["0"]["endpoint"] == f"tcp://*:{publisher.port}" and said["0"]["topic"] == TOPIC, said
            size = json.loads(publisher.server.get("/get_server_info"))["kv_block_size"]
            # Nobody subscribes yet: this one is missed.
            publisher.complete(prompt(1, 3 * size + 5))
            subscriber = Subscriber(context, publisher.port)
            await_batch(publisher, subscriber, size)
            first, batch = subscriber.batch()
            assert first >= 1 and stored([(first, batch)])
            kept = replay(context, publisher.replay_port, 0)
            assert [number for number, _ in kept] == list(range(len(kept))) and len(kept) > first
            assert kept[first][1] == batch
            blocks = stored(kept)
            wanted = prompt(1, 3 * size)
            assert [blocks[block] for block in list(blocks)[:3]] == [wanted[i : i + size] for i in range(0, 3 * size, size)]
            assert replay(context, publisher.replay_port, len(kept) + 99) == []
            hashes.append(list(blocks)[:3])
            subscriber.socket.close(linger=0)
        finally:
            publisher.server.stop()
    assert hashes[0] == hashes[1], "another process has other hashes"
    context.destroy(linger=0)


KV_AWARE = routers.Setting("vllm-router", "vllm-router", "`--policy kv_aware`", routers.vllm_router("--policy", "kv_aware", "--log-level", "debug"))
DECISION = re.compile(r'KV prefix decision.* worker="([^"]+)" input_tokens=(\d+) .*credited_prefix_tokens=(\d+)')
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Fleet:
    """Servers whose prefixes differ, and a router that has to know them."""

    def __init__(self, model, directory, count=2):
        self.publishers, self.texts = [Publisher(model) for _ in range(count)], (f"{number} of many. " * 12 for number in itertools.count())
        self.log = directory / "router.log"

    def known_to(self, number):
        """A new text, which only one of the servers has computed."""
        text = next(self.texts)
        self.ask(self.publishers[number].server.url, text)
        return text

    def ask(self, url, text):
        body = {"model": "smollm2", "messages": [{"role": "user", "content": text}], "max_tokens": 1}
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=300).close()

    def decided(self, url, text):
        """Where the router sends a text: the number of the server, and how much of it the router says is there."""
        before = len(self.decisions())
        self.ask(url, text)
        [(worker, tokens, credited)] = self.decisions()[before:]
        numbers = [urllib.parse.urlparse(publisher.server.url).port for publisher in self.publishers]
        return numbers.index(urllib.parse.urlparse(worker).port), int(credited) / int(tokens)

    def decisions(self):
        return DECISION.findall(COLOURS.sub("", self.log.read_text()))

    def settle(self, url):
        """Until the router has read what every server has published so far: each says things in order."""
        for number, publisher in enumerate(self.publishers):
            publisher.server.poll("the router follows it", lambda number=number: self.decided(url, self.known_to(number))[1] > 0)

    def stop(self):
        for publisher in self.publishers:
            publisher.server.stop()


def test_vllm_router_sends_a_prompt_to_the_server_that_has_its_beginning(model, tmp_path):
    if KV_AWARE.path() is None:
        note("NOT TRIED: vllm-router by events of the cache: TITO_TEST_ROUTERS does not say where it is")
        pytest.skip("no vllm-router")
    fleet = Fleet(model, tmp_path)
    try:
        ports = [urllib.parse.urlparse(publisher.server.url).port for publisher in fleet.publishers]
        with routers.running(KV_AWARE, tmp_path, ports) as url:
            fleet.settle(url)
            homes = [0, 1, 1, 0, 1, 0, 0, 1]
            texts = [fleet.known_to(home) for home in homes]
            fleet.settle(url)
            decided = [fleet.decided(url, text) for text in texts]
            assert [number for number, _ in decided] == homes
            # All but the blocks at the end, which are not whole.
            assert min(credited for _, credited in decided) > 0.5, decided
            # What nobody has gets no credit.
            assert fleet.decided(url, next(fleet.texts))[1] < 0.5
    finally:
        fleet.stop()
