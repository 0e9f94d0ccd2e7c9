"""verl's two clients over HTTP, unchanged: of its generation from a data set, and of the SGLang servers that its rollouts ask."""

import asyncio
import types
import urllib.parse

import aiohttp
import numpy
import pytest

import frameworks
from control import Rollout, prompt

PACKAGES = ["verl", "verl.trainer", "verl.utils", "verl.workers", "verl.workers.rollout", "verl.workers.rollout.sglang_rollout"]
# What the modules import on the way; of verl itself, what starts servers and reads remote files.
ABSENT = ["hydra", "omegaconf", "pandas", "ray", "sglang", "verl.utils.hdfs_io", "verl.workers.rollout.replica"]
TOKENS = 8
GREEDY = {"temperature": 0, "max_tokens": TOKENS}


@pytest.fixture(scope="module")
def verl():
    with frameworks.importing(PACKAGES, ABSENT) as load:
        engine = load("verl.workers.rollout.sglang_rollout.http_server_engine")
        # Of SGLang's arguments, what the client reads.
        engine.ServerArgs = lambda **named: types.SimpleNamespace(node_rank=0, **named)
        yield types.SimpleNamespace(engine=engine, generation=load("verl.trainer.main_generation_server"))


@pytest.fixture
def adapter(verl, trained):
    """As `ServerAdapter` of sglang_rollout.py makes it."""
    address = urllib.parse.urlsplit(trained.url)
    return verl.engine.AsyncHttpServerAdapter(
        model_path="smollm2", host=address.hostname, port=address.port, launch_server=False, max_attempts=1
    )


def test_generation_from_a_data_set(verl, server):
    """`generate` gives each of several samples of each chat a request."""
    chats = numpy.empty(2, dtype=object)
    chats[:] = [[{"role": "user", "content": question}] for question in ("Name a river.", "Name a city.")]
    address = server.url.removeprefix("http://")
    results = asyncio.run(verl.generation.generate([address], "smollm2", 2, GREEDY, chats))
    answers = [result.choices[0].message.content for results in results for result in results]
    alone = [server.post("/v1/chat/completions", messages=chat, **GREEDY) for chat in chats]
    assert answers == [answer["choices"][0]["message"]["content"] for answer in alone for _ in range(2)]


def test_a_rollout_behind_ids(adapter, trained):
    params = {"temperature": 1.0, "max_new_tokens": TOKENS, "ignore_eos": True}
    answer = asyncio.run(adapter.generate(input_ids=list(prompt(1)), sampling_params=params, return_logprob=True))
    log_probs, ids, _ = zip(*answer["meta_info"]["output_token_logprobs"], strict=True)
    assert list(ids) == answer["output_ids"]
    assert len(ids) == TOKENS
    trained.check(Rollout(prompt(1), list(ids), list(log_probs)), "base")


def test_what_its_trainer_calls_between_two_steps(adapter, trained):
    """`ServerAdapter.release`, `resume` and `update_weights` of sglang_rollout.py, but for the weights."""

    async def between():
        assert [card["id"] for card in (await adapter.available_models())["data"]] == ["smollm2"]
        await adapter.abort_request(abort_all=True)
        await adapter.release_memory_occupation(tags=["kv_cache"])
        await adapter.resume_memory_occupation(tags=["kv_cache"])
        await adapter.flush_cache()

    asyncio.run(between())
    trained.check(trained.complete(prompt(1)), "base")


def test_weights_from_memory_are_refused(adapter, trained):
    """Its weights are handles of CUDA memory in its own processes."""
    handles = types.SimpleNamespace(serialized_named_tensors=[b"handle"], load_format=None, flush_cache=False)
    with pytest.raises(aiohttp.ClientResponseError) as refused:
        asyncio.run(adapter.update_weights_from_tensor(handles))
    assert refused.value.status == 501
    adapted = types.SimpleNamespace(lora_name="verl", config_dict={}, serialized_named_tensors=[b"handle"])
    with pytest.raises(aiohttp.ClientResponseError) as refused:
        asyncio.run(adapter.load_lora_adapter_from_tensor(adapted))
    assert refused.value.status == 501
    trained.check(trained.complete(prompt(1)), "base")
