"""Rollouts of tinker-cookbook with tools, unchanged: its renderer, its environment, its runner, over Tinker's sampling client.

Its environment renders the whole conversation for each turn. So a prompt starts with all ids before it where the model spells its
answers as the renderer does; where it does not, the package itself makes a sequence of each turn. In both cases the ids
of an answer are those that were sampled.
"""

import asyncio
import json
import os
import pathlib

import pytest
import tinker
import tokenizers

import frameworks
from played import SCRIPT, playing

PACKAGES = ["tinker_cookbook"]
ABSENT = ["PIL", "termcolor", "torch"]
QUESTION = "How warm is it in Oslo and in Bergen?"


class Tokenizer:
    """The model's own, with the methods of a tokenizer of transformers that the renderer asks for."""

    name_or_path = "smollm2"

    def __init__(self):
        self.backend_tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(os.environ["TITO_TEST_MODEL"]) / "tokenizer.json"))

    def encode(self, text, add_special_tokens=False):
        return self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids):
        return self.backend_tokenizer.decode(list(ids), skip_special_tokens=False)


class Cookbook:
    """The modules that a test needs."""

    def __init__(self, load):
        self.completers = load("tinker_cookbook.completers")
        self.environments = load("tinker_cookbook.tool_use.agent_tool_message_env")
        self.rollouts = load("tinker_cookbook.rl.rollouts")
        self.tools = load("tinker_cookbook.tool_use.tools")
        self.renderer = load("tinker_cookbook.renderers").get_renderer("qwen3_instruct", Tokenizer())

    def environment(self):
        @self.tools.tool
        async def weather(city: str):
            """How warm it is."""
            return self.tools.simple_tool_result(f"{len(city)} degrees in {city}")

        async def graded(_):
            return 1.0, {}

        question = self.renderer.create_conversation_prefix_with_tools([weather.to_spec()], "")
        question.append({"role": "user", "content": QUESTION})
        return self.environments.build_agent_tool_env(self.renderer, [weather], question, graded, max_turns=5)

    def rollout(self, sampling):
        policy = self.completers.TinkerTokenCompleter(sampling, max_tokens=128)
        return asyncio.run(self.rollouts.do_single_rollout(policy, self.environment()))


@pytest.fixture(scope="module")
def cookbook():
    with frameworks.importing(PACKAGES, ABSENT) as load:
        yield Cookbook(load)


def lines(script):
    return [json.loads(line) for line in pathlib.Path(script).read_text().splitlines()]


def rolled(cookbook, script):
    """The turns of a rollout whose answers are played; each has the ids of its prompt, and of its answer."""
    server = playing(script, "--tinker-api")
    service = tinker.ServiceClient(base_url=server.url, api_key="tml-one")
    try:
        trajectory = cookbook.rollout(service.create_sampling_client(base_model="smollm2").result())
    finally:
        service.close("success").result()
        server.stop()
    answers = [turn.ac for turn in trajectory.transitions]
    assert [answer.tokens for answer in answers] == lines(script)
    for answer in answers:
        assert len(answer.logprobs) == len(answer.tokens)
        assert answer.stop_reason == "stop"
    assert trajectory.transitions[-1].reward == 1.0
    return [(turn.ob.to_ints(), turn.ac.tokens) for turn in trajectory.transitions]


def test_every_prompt_starts_with_all_ids_before_it(cookbook, tmp_path):
    spelt = cookbook.renderer.tokenizer
    answers = [spelt.decode(line) for line in lines(SCRIPT)]
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(spelt.encode(answer)) + "\n" for answer in answers))
    known = []
    for prompt, answer in rolled(cookbook, script):
        assert prompt[: len(known)] == known
        known = prompt + answer


def test_ids_that_its_renderer_would_not_write_are_returned_as_they_were_sampled(cookbook):
    (first, answer), (second, _), _ = rolled(cookbook, SCRIPT)
    assert second[: len(first)] == first
    assert second[len(first) :][: len(answer)] != answer
