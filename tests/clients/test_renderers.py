"""PrimeIntellect's `renderers`, by which verifiers' training client and prime-rl generate: their own code, unchanged."""

import asyncio
import json
import os
import pathlib

import jinja2
import numpy
import openai
import pytest
import tokenizers
from renderers.client import OverlongPromptError, generate
from renderers.default import DefaultRenderer

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
TOKENS = 8


class Tokenizer:
    """The model's own, with the methods that `renderers` asks for."""

    unk_token_id = None

    def __init__(self, directory):
        self.name_or_path = str(directory)
        self.tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        config = json.loads((directory / "tokenizer_config.json").read_text())
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        self.template = environment.from_string(config["chat_template"])
        added = self.tokenizer.get_added_tokens_decoder().values()
        self.all_special_tokens = [token.content for token in added if token.special]
        self.eos_token_id = self.convert_tokens_to_ids(config["eos_token"])

    def encode(self, text, add_special_tokens=False):
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids, skip_special_tokens=False):
        return self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def convert_tokens_to_ids(self, tokens):
        one = self.tokenizer.token_to_id
        return one(tokens) if isinstance(tokens, str) else [one(token) for token in tokens]

    def apply_chat_template(self, messages, add_generation_prompt=False, **_):
        return self.encode(self.template.render(messages=messages, add_generation_prompt=add_generation_prompt))


@pytest.fixture(scope="module")
def renderer():
    return DefaultRenderer(Tokenizer(pathlib.Path(os.environ["TITO_TEST_MODEL"])))


def generated(server, renderer, messages=MESSAGES, **asked):
    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            sampling = {"max_tokens": TOKENS, "temperature": 0}
            asked.setdefault("sampling_params", sampling)
            return await generate(client=client, renderer=renderer, messages=messages, model="smollm2", **asked)

    return asyncio.run(ask())


def read(answer):
    """The ids and the log-probs of an answer, which are lists in some versions and arrays of float32 in others."""
    return list(answer["completion_ids"]), floats(answer["completion_logprobs"])


def floats(values):
    return numpy.asarray(list(values), "float32").tolist()


def completed(server, prompt):
    """The same tokens by another route: their ids and log-probs."""
    body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "logprobs": 0, "return_token_ids": True}
    [choice] = server.post("/v1/completions", **body)["choices"]
    return choice["token_ids"], floats(choice["logprobs"]["token_logprobs"])


def test_its_client_takes_the_ids_and_the_log_probs_of_every_token(server, renderer):
    answer = generated(server, renderer, cache_salt="rollout-3")
    assert answer["prompt_ids"] == server.post("/tokenize", messages=MESSAGES)["tokens"]
    assert read(answer) == completed(server, answer["prompt_ids"])
    chat = server.post("/v1/chat/completions", messages=MESSAGES, max_tokens=TOKENS, temperature=0)
    assert answer["content"] == chat["choices"][0]["message"]["content"]


def test_its_client_goes_on_behind_ids_of_its_own(server, renderer):
    first = generated(server, renderer)
    prompt = first["prompt_ids"] + first["completion_ids"]
    second = generated(server, renderer, prompt_ids=prompt)
    assert second["prompt_ids"] == prompt
    assert read(second) == completed(server, prompt)


def test_its_client_learns_how_long_a_prompt_may_be(server, renderer):
    longest = json.loads(server.get("/v1/models"))["data"][0]["max_model_len"]
    with pytest.raises(OverlongPromptError):
        generated(server, renderer, prompt_ids=[5] * (longest + 1))
