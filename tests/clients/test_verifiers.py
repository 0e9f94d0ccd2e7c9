"""What vf-eval of verifiers 0.4.0 sends, over a rollout with two tool calls.

Its pins are not those of these tests: tests/golden/frameworks/record.py has run its environment, its harness and its tool server,
unchanged, and what they sent is sent again.
"""

import math

import pytest

from played import MARKED, playing, replayed


@pytest.fixture
def server():
    server = playing()
    yield server
    server.stop()


@pytest.fixture
def marked_server():
    server = playing(MARKED)
    yield server
    server.stop()


def test_every_prompt_starts_with_all_ids_before_it(server):
    """It sends texts and asks for no ids; here they are asked for, to see them."""
    known, turns = [], 0
    for path, _, answer in replayed(server, "verifiers", "eval", return_token_ids=True):
        assert path == "/v1/chat/completions"
        assert answer["prompt_token_ids"][: len(known)] == known
        known, turns = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"], turns + 1
    assert turns == 3


def test_ids_of_its_training_client_are_sampled_behind(marked_server):
    """With `--client.type train` it renders by itself: a prompt has what was sampled, id for id, and the server adds none."""
    known, turns = [], 0
    for path, body, answer in replayed(marked_server, "verifiers", "train", return_token_ids=True):
        assert path == "/inference/v1/generate"
        assert body["token_ids"][: len(known)] == known
        assert answer["prompt_token_ids"] == body["token_ids"]
        (choice,) = answer["choices"]
        listed = choice["logprobs"]["content"]
        # As `renderers.client` reads them.
        assert [entry["token"] for entry in listed] == [f"token_id:{id}" for id in choice["token_ids"]]
        assert all(math.isfinite(entry["logprob"]) for entry in listed)
        assert choice["finish_reason"] == "stop"
        known, turns = body["token_ids"] + choice["token_ids"], turns + 1
    assert turns == 3
