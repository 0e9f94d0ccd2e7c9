"""Budgets for thoughts, kept by the real model on the native engine: SmolLM2, of which two unused tokens mark thoughts."""

import concurrent.futures
import json
import os
import pathlib

import anthropic
import openai
import pytest
from conftest import Server, client_of

START, END = 7, 8
MARKS = {"<gh_stars>": "<think>", "<issue_start>": "</think>"}
# Little memory for keys and values, so that sequences are preempted.
FLAGS = ["--engine", "native", "--reasoning-parser", "deepseek_r1", "--max-model-len", "512"]
QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("thinking-model")
    for file in pathlib.Path(os.environ["TITO_TEST_MODEL"]).iterdir():
        (directory / file.name).symlink_to(file)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (directory / name).read_text()
        for unused, mark in MARKS.items():
            text = text.replace(unused, mark)
        written = json.loads(text)
        for token in written["added_tokens"] if name == "tokenizer.json" else ():
            token["special"] = token["special"] and token["content"] not in MARKS.values()
        (directory / name).unlink()
        (directory / name).write_text(json.dumps(written))
    return str(directory)


@pytest.fixture(scope="module")
def thinking(model):
    server = Server(*FLAGS, model=model)
    yield server
    server.stop()


def asked(server, budget, ignore_eos=True, **more):
    body = {"temperature": 0, "max_tokens": 60, **more}
    extra = {"thinking_token_budget": budget, "return_token_ids": True, "ignore_eos": ignore_eos}
    return client_of(server).chat.completions.create(model="smollm2", messages=QUESTION, extra_body=extra, **body)


def test_thoughts_end_after_their_budget_and_are_the_models_own_until_then(thinking):
    free = asked(thinking, -1).choices[0].token_ids
    assert END not in free
    # Without any thoughts, it is the marks that are left: the first alone may be left out.
    nothing = asked(thinking, 0).choices[0]
    assert (nothing.token_ids[: nothing.token_ids.index(END)], nothing.message.reasoning or "") in (([START], ""), ([], ""))
    for budget in (1, 12, 59):
        choice = asked(thinking, budget, logprobs=True).choices[0]
        assert choice.token_ids[: budget + 1] == [*free[:budget], END]
        assert (choice.logprobs.content[budget].token, choice.logprobs.content[budget].logprob < -5) == ("</think>", True)
        assert choice.message.reasoning
        if budget < 59:
            assert choice.message.content
    assert asked(thinking, 60).choices[0].token_ids == free


def test_streams_and_several_sequences_keep_it(thinking):
    drawn = {"temperature": 1, "n": 4, "seed": 11}
    choices = asked(thinking, 9, **drawn).choices
    assert [choice.token_ids.index(END) for choice in choices] == [9] * 4
    assert len({tuple(choice.token_ids) for choice in choices}) == 4
    streamed = [[] for _ in choices]
    for chunk in asked(thinking, 9, stream=True, **drawn):
        for choice in chunk.choices:
            streamed[choice.index] += getattr(choice, "token_ids", None) or []
    assert streamed == [choice.token_ids for choice in choices]


def test_a_structured_output_follows_the_forced_end(thinking):
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["red", "blue"]}}}
    choice = asked(thinking, 10, ignore_eos=False, response_format=wanted).choices[0]
    assert choice.token_ids[10] == END
    assert json.loads(choice.message.content) in ("red", "blue")


def test_preempted_sequences_have_the_bits_that_they_have_alone(thinking, model):
    crowded = Server(*FLAGS, "--kv-cache-memory", "20M", model=model, gated=True)
    try:
        def ask(server, seed):
            answer = asked(server, 100, temperature=1, seed=seed, max_tokens=150, logprobs=True).choices[0]
            return answer.token_ids, [token.logprob for token in answer.logprobs.content]

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            # All at once, so that they have no room.
            crowded.gate.hold()
            asking = [pool.submit(ask, crowded, seed) for seed in range(12)]
            crowded.poll("the engine has all of them", lambda: crowded.gate.sequences() == 12)
            crowded.gate.go_on()
            together = [answer.result() for answer in asking]
        assert crowded.gauge("vllm:num_preemptions_total") > 0
        assert together == [ask(thinking, seed) for seed in range(12)]
        assert all(ids[100] == END for ids, _ in together if len(ids) > 100 and END not in ids[:100])
    finally:
        crowded.stop()


def test_anthropics_budget_is_kept(thinking, model):
    long = Server(*FLAGS[:-1], "4096", model=model)
    try:
        client = anthropic.Anthropic(base_url=long.url, api_key="any")
        message = client.messages.create(
            model="smollm2",
            max_tokens=1060,
            messages=QUESTION,
            thinking={"type": "enabled", "budget_tokens": 1024},
            extra_body={"return_token_ids": True, "ignore_eos": True, "temperature": 0},
        )
        assert message.generation_token_ids[1024] == END
        assert [block.type for block in message.content] == ["thinking", "text"]
    finally:
        long.stop()


def test_a_server_that_reads_no_thoughts_says_so(server):
    with pytest.raises(openai.BadRequestError, match="--reasoning-parser"):
        asked(server, 5)
