"""What the proxy of agent-lightning 1.0.2 sends, over a conversation with two tool calls, and what it trains on.

The package needs a newer Python than these tests: tests/golden/frameworks/record.py has run its server, unchanged, and what it
sent is sent again. `triplet` is the reading of agentlightning/verl/agl_rollout_manager.py.
"""

import pytest

from played import playing, replayed


@pytest.fixture
def server():
    server = playing()
    yield server
    server.stop()


def triplet(answer):
    """The ids of prompt and answer, and the log-probs, where the trainer looks for them."""
    choice = answer["choices"][0]
    prompt = answer.get("prompt_token_ids") or choice.get("prompt_token_ids")
    log_probs = (choice.get("logprobs") or {}).get("content")
    return prompt, choice["token_ids"], log_probs


@pytest.mark.parametrize("mode", ["train", "val"])
def test_every_prompt_starts_with_all_ids_before_it(server, mode):
    """So the turns of a rollout are merged to one sequence: `ids_startswith` of agentlightning/verl/rollout_adapter.py."""
    known, turns = [], 0
    for path, body, answer in replayed(server, "agent_lightning", mode):
        assert path == "/v1/chat/completions"
        assert body["return_token_ids"] is True
        assert ("logprobs" in body) == (mode == "train")
        prompt, sampled, log_probs = triplet(answer)
        assert prompt[: len(known)] == known, answer["token_continuity"]
        assert answer["token_continuity"]["source"] == ("cache" if known else "none")
        assert len(log_probs or []) == (len(sampled) if mode == "train" else 0)
        known, turns = prompt + sampled, turns + 1
    assert turns == 3


def test_a_prompt_of_an_agent_of_its_own_is_answered_with_ids(server):
    """Its proxy asks for log-probs as a chat does, with `true`."""
    [(path, body, answer)] = replayed(server, "agent_lightning", "completions")
    assert (path, body["logprobs"]) == ("/v1/completions", True)
    choice = answer["choices"][0]
    prompt, sampled, _ = triplet(answer)
    assert prompt == server.post("/tokenize", prompt=body["prompt"])["tokens"]
    assert len(choice["logprobs"]["token_logprobs"]) == len(sampled) > 0
