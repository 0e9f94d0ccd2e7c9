"""What vf-eval of verifiers 0.4.0 sends, over a rollout with two tool calls.

Its pins are not those of these tests: tests/golden/frameworks/record.py has run its environment, its harness and its tool server,
unchanged, and what they sent is sent again.
"""

import pytest

from played import playing, replayed


@pytest.fixture
def server():
    server = playing()
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
