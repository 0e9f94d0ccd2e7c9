"""Replicas behind Ray Serve: sessions reach their replica, and everything passes as it is."""

import concurrent.futures
import json
import socket

import httpx
import pytest
from conftest import Policy, held_port, poll
from ray import serve
from rollouts import WANTED, Conversation, kill, waiting

import tito.ray


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    return Policy(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def replicas(trainer):
    with trainer.replicas() as replicas:
        yield replicas


@pytest.fixture(scope="module")
def url(replicas):
    with held_port() as port:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(tito.ray.application(replicas), name="policy")
        yield f"http://127.0.0.1:{port}"
        serve.shutdown()


@pytest.fixture
def client():
    with httpx.Client(timeout=600, trust_env=False) as client:
        yield client


# What belongs to one answer, or to the connection.
OWN = {"date", "server", "x-request-id", "connection", "transfer-encoding"}


def seen(answer):
    return answer.status_code, sorted((n, v) for n, v in answer.headers.items() if n not in OWN), answer.content


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/health", None),
        ("GET", "/v1/no/such?path=1&a=%2F", None),
        ("POST", "/tokenize", b'{"model": "policy",  "prompt": "what is it \\u00e9"}'),
        ("POST", "/v1/chat/completions", b'{"model": "policy", "messages": 1}'),
        ("POST", "/v1/chat/completions", b"no json"),
    ],
)
def test_requests_and_answers_pass_byte_for_byte(url, replicas, client, method, path, body):
    sent = {"content": body, "headers": {"Content-Type": "application/json"}} if body else {}
    direct = client.request(method, replicas.urls()[0] + path, **sent)
    assert seen(client.request(method, url + path, **sent)) == seen(direct)


def test_sessions_reach_the_replica_that_knows_them(url):
    # They bring no ids: only the replica that answered before knows those.
    conversations = [Conversation(lambda _: url, number, carrier="session") for number in range(12)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(conversation.run, 3) for conversation in conversations]:
            assert done.result().outcomes() == ["exact", "exact"]


def stream(client, url, session):
    body = {"model": "policy", "messages": [{"role": "user", "content": "what is it"}], "max_tokens": 200, "stream": True}
    headers = {"X-Session-ID": session, "X-Request-Id": f"of {session}"}
    return client.stream("POST", f"{url}/v1/chat/completions", json={**body, **WANTED, "ignore_eos": True}, headers=headers)


def test_streams_pass_as_they_come_and_end_with_their_client(url, replicas, client):
    with stream(client, url, "a") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]" and len(lines) > 100
    assert "token_continuity" in json.loads(lines[0].removeprefix("data: "))

    replicas.pause()
    body = json.dumps({"model": "policy", "prompt": "what is it", "stream": True}).encode()
    host, at = url.removeprefix("http://").split(":")
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(at))) as leaving:
        leaving.sendall(head.encode() + body)
        poll("a replica has it", lambda: sum(map(waiting, replicas.urls().values())) == 1)
    poll("it was ended", lambda: sum(map(waiting, replicas.urls().values())) == 0)
    replicas.resume()


def held(url, replicas, client):
    """A stream that a pause holds in its middle, and the number of its replica; or nothing, if it ended before."""
    sent = stream(client, url, "c")
    answer = sent.__enter__()
    lines = answer.iter_lines()
    next(lines)
    replicas.pause()
    busy = [number for number, at in replicas.urls().items() if waiting(at)]
    if busy:
        return lines, busy[0]
    sent.__exit__(None, None, None)
    replicas.resume()
    return None


def test_a_replica_that_dies_ends_its_streams_and_others_answer(url, replicas, trainer, client):
    conversation = Conversation(lambda _: url, 1, carrier="session")
    lines, number = poll("a stream is held", lambda: held(url, replicas, client))
    kill(replicas, number)
    # It is cut off, and does not end as one that is whole.
    got = []
    with pytest.raises(httpx.TransportError):
        got.extend(lines)
    assert "data: [DONE]" not in got
    poll("the death is seen", lambda: replicas.states()[number].restarts == 1)
    replicas.resume()
    # Whichever replica answers until that one is there again.
    conversation.run(2)
    replicas.wait(600)
    conversation.run(2)
    assert len(conversation.outcomes()) == 3
    for turn in conversation.turns:
        turn.check_weights(trainer.weights)


def test_a_request_that_its_replica_does_not_answer_may_be_sent_again(url, replicas):
    replicas.pause()
    with concurrent.futures.ThreadPoolExecutor() as pool, httpx.Client(timeout=600, trust_env=False) as client:
        body = {"model": "policy", "prompt": "what is it", "max_tokens": 4}
        asked = pool.submit(client.post, f"{url}/v1/completions", json=body)
        number = poll("a replica has it", lambda: [number for number, at in replicas.urls().items() if waiting(at)])[0]
        restarts = kill(replicas, number).restarts
        answer = asked.result()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    error = answer.json()["error"]
    assert f"replica {number} ended before it answered" in error["message"] and "may be sent again" in error["message"]
    poll("the death is seen", lambda: replicas.states()[number].restarts == restarts + 1)
    replicas.resume()
    replicas.wait(600)
