"""What the model servers of NeMo Gym 0.7.0 send, over a conversation with two tool calls, and what they demand of an answer.

The package needs a newer Python than these tests: tests/golden/frameworks/record.py has run its agents and its model servers,
unchanged, and what they sent is sent again. The checks are those of responses_api_models/vllm_model/app.py and of
vllm_model_with_compaction/app.py.
"""

import pytest

from played import playing, recorded, replayed

FRAMEWORK = "nemo_gym"
# Where each way of calling has the earlier ids: tito's cache, the messages, or beside them.
VARIANTS = ["plain", "token_ids", "supply_prefix", "compaction"]


@pytest.fixture
def server():
    server = playing()
    yield server
    server.stop()


def read(answer):
    """The ids of the prompt and of the answer, as VLLMModel.chat_completions reads them; all places have to agree."""
    choice = answer["choices"][0]
    message = choice["message"]
    prompt, sampled = message["prompt_token_ids"], message["generation_token_ids"]
    log_probs = message["generation_log_probs"]
    if choice["token_ids"] is not None:
        assert (answer["prompt_token_ids"], choice["token_ids"]) == (prompt, sampled)
    if choice.get("logprobs"):
        listed = choice["logprobs"]["content"]
        assert [entry["token"] for entry in listed] == [f"token_id:{id}" for id in sampled]
        assert [entry["logprob"] for entry in listed] == log_probs
    assert len(sampled) == len(log_probs)
    return prompt, sampled


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_prompt_starts_with_all_ids_before_it(server, variant):
    known, turns, counted = [], 0, None
    # Plain requests ask for no ids; here they do, to see them.
    asked = {"return_token_ids": True, "logprobs": True, "return_tokens_as_token_ids": True}
    added = asked if variant == "plain" else {}
    for path, body, answer in replayed(server, FRAMEWORK, variant, **added):
        if path == "/tokenize":
            # What the guard of a compacting agent counts before it generates.
            counted = answer["tokens"]
            continue
        prompt, sampled = read(answer)
        assert prompt[: len(known)] == known, answer["token_continuity"]
        assert answer["token_continuity"]["outcome"] == ("exact" if known else "fresh")
        assert counted in (None, prompt), "the guard counted another prompt"
        if variant in ("supply_prefix", "compaction"):
            assert (body.get("required_prefix_token_ids") or []) == known, "it was recorded with these ids"
        known, turns = prompt + sampled, turns + 1
    assert turns == 3
    assert (counted is not None) == (variant == "compaction")


def test_messages_bring_their_ids(server):
    """As recorded, each message of the model has the ids that this server gave it."""
    seen = []
    for _, body, answer in replayed(server, FRAMEWORK, "token_ids"):
        carried = [message for message in body["messages"] if message["role"] == "assistant"]
        assert [(message["prompt_token_ids"], message["generation_token_ids"]) for message in carried] == seen
        assert answer["token_continuity"]["source"] == ("message" if seen else "none")
        seen.append(read(answer))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_context_that_is_too_long_ends_the_rollout_and_does_not_fail_it(server, variant):
    """Gym takes a 400 that speaks of these for the finish reason "length"; every other one ends the run."""
    first = next(call for call in recorded(FRAMEWORK, variant) if call["path"] != "/tokenize")
    long = [{"role": "user", "content": "word " * 10_000}]
    status, text = server.exchange(first["path"], {**first["body"], "messages": long})
    assert status == 400
    assert "context length" in text
