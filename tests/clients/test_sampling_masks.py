"""`sampling_mask`: rows and log-probs against numpy, and read by the code of trainers."""

import concurrent.futures
import json
import random

import numpy
import pytest
import test_renderers
from test_renderers import renderer  # noqa: F401 (a fixture)

from conftest import REPOSITORY, Server
from drawn_models import write
from frameworks import importing

CASE = json.loads((REPOSITORY / "tests" / "golden" / "families" / "olmo2_plain.json").read_text())
PROMPT = CASE["token_ids"][:20]
VOCABULARY = CASE["config"]["vocab_size"]
SETS = 10_000
# Log-probs come as float32: what is nearer to an edge than this may be on either side of it.
EDGE = 1e-4


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    write(directory, CASE)
    return str(directory)


@pytest.fixture(scope="module")
def masking(model):
    server = Server("--return-sampling-mask", "--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1", model=model)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def logits(masking):
    """Those of the first position, but for what they all have in common."""
    choice = generate(masking, temperature=1, logprobs=-1, max_tokens=1)
    logits = numpy.full(VOCABULARY, numpy.nan)
    for top in choice["logprobs"]["content"][0]["top_logprobs"]:
        logits[top["token_id"]] = top["logprob"]
    assert numpy.isfinite(logits).all()
    return logits


def generate(server, **params):
    body = {"token_ids": PROMPT, "sampling_params": {"ignore_eos": True, **params}}
    return server.post("/inference/v1/generate", **body)["choices"][0]


def drawn(generator):
    """The sampling parameters of one request."""
    chance = generator.random
    params = {"temperature": generator.choice([1.0, generator.uniform(0.3, 2.0)]), "seed": generator.randrange(1 << 32)}
    if chance() < 0.6:
        params["top_p"] = generator.uniform(0.05, 1.0)
    if chance() < 0.5:
        params["top_k"] = generator.randrange(1, VOCABULARY)
    if chance() < 0.4:
        params["min_p"] = generator.uniform(0.001, 0.9)
    if chance() < 0.3:
        params["repetition_penalty"] = generator.uniform(0.5, 2.0)
    if chance() < 0.3:
        params["logit_bias"] = {str(generator.randrange(VOCABULARY)): generator.uniform(-6, 6) for _ in range(3)}
    if chance() < 0.3:
        params["allowed_token_ids"] = generator.sample(range(VOCABULARY), generator.randrange(1, 40))
    return params


def support(logits, params):
    """The ids that are left for certain, and those that may be, as vLLM's sampler defines it."""
    left = logits.copy()
    if "allowed_token_ids" in params:
        others = numpy.setdiff1d(numpy.arange(VOCABULARY), params["allowed_token_ids"])
        left[others] = -numpy.inf
    for id, bias in params.get("logit_bias", {}).items():
        left[int(id)] += bias
    left /= params["temperature"]
    weights = numpy.exp(left - left.max())
    edges = []
    for edge in (EDGE, -EDGE):
        kept = (weights >= params.get("min_p", 0) * (1 + edge)) & (weights > 0)
        if (top_k := params.get("top_k", 0)) and kept.sum() > top_k:
            kept &= left >= numpy.sort(left[kept])[-top_k] + edge
        order = numpy.argsort(-left, kind="stable")
        order = order[kept[order]]
        before = numpy.cumsum(weights[order]) - weights[order]
        nucleus = before < params.get("top_p", 1.0) * weights[order].sum() * (1 - edge)
        if "top_p" in params:
            kept[order[~nucleus]] = False
        kept[left.argmax()] = True
        edges.append(set(numpy.flatnonzero(kept).tolist()))
    return edges


def test_rows_are_what_numpy_leaves_of_the_logits_alone_and_in_company(masking, logits):
    generator = random.Random(42)
    sets = [drawn(generator) for _ in range(SETS)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        choices = list(pool.map(lambda params: generate(masking, max_tokens=1, logprobs=-1, **params), sets))
    for params, choice in zip(sets, choices, strict=True):
        ([id], [row], [entry]) = choice["token_ids"], choice["sampling_mask"], choice["logprobs"]["content"]
        assert id in row and row == sorted(set(row)), params
        # The logits of a penalty are not known here: they are those of log-probs but for what all have in common.
        if "repetition_penalty" not in params:
            certain, possible = support(logits, params)
            assert certain <= set(row) <= possible, (params, sorted(certain), row, sorted(possible))
        logprobs = {top["token_id"]: top["logprob"] for top in entry["top_logprobs"]}
        assert abs(sum(numpy.exp(logprobs[id]) for id in row) - 1) < 1e-5, params
        assert all(logprob <= -9999 for other, logprob in logprobs.items() if other not in row), params
    for params, choice in random.Random(1).sample(list(zip(sets, choices, strict=True)), 50):
        assert generate(masking, max_tokens=1, logprobs=-1, **params) == choice, params


def test_long_answers_have_the_rows_of_each_position(masking):
    params = {"temperature": 0.9, "top_p": 0.8, "top_k": 30, "presence_penalty": 0.5, "seed": 3, "max_tokens": 64, "logprobs": 0}
    choice = generate(masking, **params)
    assert len(choice["token_ids"]) == len(choice["sampling_mask"]) == 64
    assert all(id in row and 1 <= len(row) <= 30 for id, row in zip(choice["token_ids"], choice["sampling_mask"], strict=True))
    without = generate(masking, return_sampling_mask=False, **params)
    assert without["sampling_mask"] is None
    assert without == {**choice, "sampling_mask": None}


def test_the_client_of_prime_rl_and_verifiers_packs_them(renderer):  # noqa: F811
    server = Server("--return-sampling-mask", "--logprobs-mode", "processed_logprobs")
    try:
        params = {"max_tokens": 8, "temperature": 0.8, "top_p": 0.9, "top_k": 512}
        answer = test_renderers.generated(server, renderer, sampling_params=params)
    finally:
        server.stop()
    rows = answer["sampling_mask"]
    assert len(rows) == len(answer["completion_ids"])
    with importing(["verifiers", "verifiers.v1"], []) as load:
        packed = load("verifiers.v1.types").SamplingMask.from_sampling_mask(rows)
    assert packed.counts.tolist() == [len(row) for row in rows]
    starts = numpy.cumsum(packed.counts) - packed.counts
    for id, logprob, start, count in zip(answer["completion_ids"], answer["completion_logprobs"], starts, packed.counts, strict=True):
        row = packed.ids[start : start + count]
        assert id in row
        if count == 1:
            assert logprob == 0
