"""Stored responses of the real model outlive the process, however it ends, and are continued from exactly their ids."""

import random

import openai
import pytest
from conftest import Server, client_of

FLAGS = ["--engine", "native", "--continuity-cache-size", "0"]


@pytest.fixture
def serving(tmp_path):
    """Starts servers one after the other, all with the same store."""
    started = []

    def serve(*flags):
        started.append(Server(*FLAGS, "--response-store", str(tmp_path / "responses.redb"), *flags))
        return started[-1]

    yield serve
    for server in started:
        if server.process.poll() is None:
            server.stop()


def ids(response):
    extra = response.output[-1].model_extra
    return extra["prompt_token_ids"], extra["generation_token_ids"]


def test_a_kill_loses_nothing_that_was_answered(serving):
    first = serving()
    client = client_of(first)
    asked = {"model": "smollm2", "temperature": 1, "max_output_tokens": 24, "include": ["token_ids"]}
    answered = client.responses.create(**asked, input="Name three rivers.", instructions="Be brief.")
    forgotten = client.responses.create(**asked, input="Name a lake.", store=False)
    streamed = list(client.responses.create(**asked, input="And one more.", previous_response_id=answered.id, stream=True))
    streamed = streamed[-1].response
    long = {"max_output_tokens": 3000, "extra_body": {"ignore_eos": True}}
    background = client.responses.create(**{**asked, **long}, input="Tell me all.", background=True)
    first.poll("it is generated", lambda: client.responses.retrieve(background.id).status == "in_progress")
    # Somebody waits for this one; the process dies under it.
    with client.responses.create(**{**asked, **long}, input="Tell me more.", stream=True) as stream:
        cut = next(iter(stream)).response.id
        first.process.kill()
        first.process.wait()

    second = serving()
    client = client_of(second)
    assert client.responses.retrieve(answered.id) == answered
    assert client.responses.retrieve(streamed.id) == streamed
    for gone in (forgotten.id, cut):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(gone)
    interrupted = client.responses.retrieve(background.id)
    assert (interrupted.status, interrupted.error.code) == ("failed", "server_error")
    assert "stopped" in interrupted.error.message
    with pytest.raises(openai.BadRequestError, match="interrupted"):
        client.responses.create(**asked, input="Go on.", previous_response_id=background.id)
    raw = client.responses.with_raw_response.create(**asked, input="Go on.", previous_response_id=streamed.id)
    assert raw.headers["X-Token-Continuity"].startswith("message; outcome=exact")
    prompt, generation = ids(streamed)
    assert ids(raw.parse())[0][: len(prompt) + len(generation)] == prompt + generation
    client.responses.delete(background.id)


def test_a_process_that_is_asked_to_stop_ends_what_nobody_waits_for(serving):
    first = serving()
    asked = {"model": "smollm2", "max_output_tokens": 40, "extra_body": {"ignore_eos": True}}
    background = client_of(first).responses.create(**asked, input="Tell me all.", background=True)
    first.stop()
    ended = client_of(serving()).responses.retrieve(background.id)
    assert (ended.status, ended.usage.output_tokens) == ("incomplete", 40)


def test_a_store_without_room_is_said_by_the_request_that_needs_it(serving):
    client = client_of(serving("--response-store-size", "1M"))
    asked = {"model": "smollm2", "max_output_tokens": 4, "temperature": 0, "input": "Name three rivers."}
    kept = client.responses.create(**asked)
    # Parts that are alike take no room, so these are not.
    asked["metadata"] = {"note": random.Random(0).randbytes(1_000_000).hex()}
    for how in ({}, {"background": True}):
        with pytest.raises(openai.InternalServerError, match="response-store-size"):
            client.responses.create(**asked, **how)
    with pytest.raises(openai.APIError, match="response-store-size"):
        list(client.responses.create(**asked, stream=True))
    events = list(client.responses.create(**asked, store=False, stream=True))
    assert events[-1].type == "response.incomplete"
    assert client.responses.retrieve(kept.id) == kept
