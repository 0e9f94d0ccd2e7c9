"""Mutated requests to a server with nothing but nonsense to say: no fault, nothing lost, and no memory kept.

TITO_TEST_FUZZ says how many (10,000 by default).
"""

import concurrent.futures
import copy
import http.client
import json
import os
import random
import urllib.parse

import pytest
from conftest import REPOSITORY, Server, note
from lines import data_of
from recorded import JSON_BODY, exchanges

REQUESTS = int(os.environ.get("TITO_TEST_FUZZ", "10000"))
CLIENTS = 8
# What the allocator may keep of the largest requests, and no more however many there are.
KEPT_MIB = 64
TINY = REPOSITORY / "tests" / "fixtures" / "tiny-model"
FLAGS = ["--engine", "scripted", "--served-model-name", "smollm2", "--max-model-len", "512", "--enable-auto-tool-choice"]
FLAGS += ["--tool-call-parser", "hermes", "--continuity-cache-size", "4M", "--response-store-size", "4M"]

LEAVES = [None, True, False, 0, 1, -1, 2, 3.5, 1e300, -1e300, 2**31, 2**32, 2**63, -(2**63), 2**64, 10**30]
LEAVES += ["", "a", "0", "1", "true", "null", "max_tokens", "\0", "😀<|im_end|>", "{{", "{% for %}", "e\u0301", "(", "[" * 300]
LEAVES += [[], {}, [[]], [None], [1, 2], ["a"], {"a": 1}, {"": None}, float("nan"), float("inf")]


def places(value, at=()):
    """The way to every value in it, its own first."""
    yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*at, key))


def replaced(value, place, new):
    """The value with another at one place; `new` makes it of the one before."""
    if not place:
        return new(value)
    value[place[0]] = replaced(value[place[0]], place[1:], new)
    return value


def mutate(numbers, bodies, body):
    """A few edits: other values, values of other requests, fields gone, and the bytes themselves."""
    body = copy.deepcopy(body)
    for _ in range(numbers.randint(0, 3)):
        place = numbers.choice(list(places(body)))
        kind = numbers.random()
        if kind < 0.5:
            body = replaced(body, place, lambda _: copy.deepcopy(numbers.choice(LEAVES)))
        elif kind < 0.75:
            other = numbers.choice(bodies)
            if isinstance(body, dict) and isinstance(other, dict) and other:
                key = numbers.choice(list(other))
                body[key] = copy.deepcopy(other[key])
        elif isinstance(body, dict) and body:
            body.pop(numbers.choice(list(body)))
    # The fuzzer is not there to wait for long answers.
    if isinstance(body, dict) and numbers.random() < 0.9:
        body["max_tokens"] = numbers.choice([1, 2, 5, 20])
    data = json.dumps(body).encode(errors="surrogatepass")
    if numbers.random() < 0.05:
        at = numbers.randrange(len(data) + 1)
        data = numbers.choice([data[:at], data[:at] + bytes([numbers.randrange(256)]) + data[at:], data[at:]])
    return data


@pytest.fixture(scope="module")
def nonsense():
    server = Server(*FLAGS, model=str(TINY))
    yield server
    server.stop()


def send(connection, exchange, data):
    """The status, and the answer as far as it can be read."""
    connection.request(exchange.method, exchange.path, data, JSON_BODY)
    response = connection.getresponse()
    return response.status, response.headers.get("Content-Type") or "", response.read().decode()


def check(status, media_type, text):
    if status >= 500:
        return f"{status} {text}"
    if media_type.startswith("text/event-stream"):
        faults = [event for event in data_of(text) if event.startswith('{"error"') and '"code":400' not in event]
        return f"{faults[:1]}" if faults else None
    if media_type == "application/json" and text:
        json.loads(text)
        return None
    return None if status == 200 else f"{status} {media_type!r} {text}"


def fuzz(server, index, count):
    """One client's share; says what went wrong."""
    numbers = random.Random(index)
    recorded = [exchange for exchange in exchanges() if exchange.method == "POST" and exchange.body is not None]
    bodies = [exchange.body for exchange in recorded]
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=300)
    wrong = []
    statuses = {}
    for _ in range(count):
        exchange = numbers.choice(recorded)
        data = mutate(numbers, bodies, exchange.body)
        status, media_type, text = send(connection, exchange, data)
        statuses[status] = statuses.get(status, 0) + 1
        if fault := check(status, media_type, text):
            wrong.append(f"{exchange.path} {data.decode(errors='replace')}: {fault}")
    return statuses, wrong


def all_clients(server, count, first):
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        shares = list(pool.map(lambda index: fuzz(server, first + index, count // CLIENTS), range(CLIENTS)))
    statuses = {}
    for counted, wrong in shares:
        assert not wrong, "\n".join(wrong[:5])
        for status, number in counted.items():
            statuses[status] = statuses.get(status, 0) + number
    return statuses


def test_no_request_makes_the_server_fail_or_grow(nonsense):
    all_clients(nonsense, REQUESTS // 5, 1000)
    nonsense.poll("the server is idle", nonsense.idle)
    before = nonsense.resident_mib()
    statuses = all_clients(nonsense, REQUESTS - REQUESTS // 5, 0)
    nonsense.poll("the server is idle", nonsense.idle)
    after = nonsense.resident_mib()
    note(f"{REQUESTS} mutated requests: {dict(sorted(statuses.items()))}, {before:.0f} MiB, then {after:.0f} MiB")
    assert statuses.get(200, 0) > sum(statuses.values()) / 10, statuses
    assert after - before < KEPT_MIB
