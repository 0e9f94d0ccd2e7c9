"""The native engine says what vLLM said, and the same whoever asks at the same time and whatever was cached."""

import base64
import concurrent.futures
import io
import json
import random

import numpy
import pytest

from conftest import Server, note
from recorded import TOLERANCE, exchanges

# Answers of vLLM that random numbers had a part in, with the ids and log-probs of what was sampled.
SAMPLED = [
    exchange
    for exchange in exchanges()
    if exchange.samples and exchange.group == "nemo_real" and isinstance(exchange.recorded.body, dict)
]

WORDS = (
    "river stone lantern copper seven quietly under market whale paints because northern glass often 12 λ ☂ and".split()
)
PARALLEL = 40


@pytest.fixture(scope="module")
def exact():
    """In float32, and encoding every conversation as vLLM does."""
    flags = ["--engine", "native", "--dtype", "float32", "--max-model-len", "4096", "--continuity-cache-size", "0"]
    server = Server(*flags, "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def caching():
    """As it comes, in the model's bf16, and telling what was cached."""
    server = Server("--engine", "native", "--enable-prompt-tokens-details")
    yield server
    server.stop()


@pytest.mark.parametrize("exchange", SAMPLED, ids=lambda exchange: exchange.name)
def test_what_vllm_sampled_is_scored_as_vllm_scored_it(exact, exchange):
    """Random numbers are each server's own, so that its ids are given as a prompt."""
    for choice in exchange.recorded.body["choices"]:
        message = choice["message"]
        prompt, ids = message["prompt_token_ids"], message["generation_token_ids"]
        scored = exact.post("/v1/completions", prompt=prompt + ids, max_tokens=1, prompt_logprobs=0)
        entries = scored["choices"][0]["prompt_logprobs"][len(prompt) :]
        log_probs = [entry[str(id)]["logprob"] for entry, id in zip(entries, ids, strict=True)]
        assert log_probs == pytest.approx(message["generation_log_probs"], abs=TOLERANCE, rel=0)


def test_a_teacher_scores_what_a_student_recorded_to_the_bit(caching):
    """The teacher is the student here, so that its scores are the student's own log-probs."""
    prompt = caching.post("/tokenize", prompt=sentence(random.Random("teacher"), 40))["tokens"]
    params = {"max_tokens": 24, "seed": 5, "logprobs": 4, "ignore_eos": True}
    student = caching.post("/inference/v1/generate", token_ids=prompt, sampling_params=params)["choices"][0]
    positions = student["logprobs"]["content"]
    tops = [{top["token_id"]: top["logprob"] for top in [entry, *entry["top_logprobs"]]} for entry in positions]
    scoring = {
        "max_tokens": 1,
        "prompt_logprob_token_ids": [list(top) for top in tops],
        "prompt_logprob_start": len(prompt) - 1,
    }
    answer = caching.post("/inference/v1/generate", token_ids=prompt + student["token_ids"], sampling_params=scoring)
    scores = numpy.load(io.BytesIO(base64.b64decode(answer["prompt_token_id_logprobs"])))
    assert (scores.dtype, scores.shape) == (numpy.float32, (24, max(map(len, tops))))
    for row, top in zip(scores, tops, strict=True):
        assert list(row[: len(top)]) == [numpy.float32(logprob) for logprob in top.values()]
        assert all(row[len(top) :] == -numpy.inf)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == len(prompt) - 1
    [versions] = answer["choices"][0]["weight_versions"]
    assert versions["version"] == "default"


def sentence(random_numbers, words):
    return " ".join(random_numbers.choices(WORDS, k=words))


def requests():
    """Chats that share a beginning, and completions that do not, from a few tokens to a few hundred."""
    shared = sentence(random.Random("shared"), 80)
    for index in range(PARALLEL):
        numbers = random.Random(index)
        text = sentence(numbers, numbers.randint(3, 150))
        sampling = {"temperature": 1.0, "seed": index, "max_tokens": 12, "return_token_ids": True}
        if index % 2:
            yield "/v1/completions", {"prompt": text, "logprobs": 3, **sampling}
        else:
            messages = [{"role": "system", "content": shared}, {"role": "user", "content": text}]
            yield "/v1/chat/completions", {"messages": messages, "logprobs": True, "top_logprobs": 3, **sampling}


def ask(server, request, salt):
    """What was sampled with its log-probs, number for number, and how many tokens of the prompt were cached."""
    path, body = request
    answer = server.post(path, cache_salt=salt, **body)
    [choice] = answer["choices"]
    ids = choice["token_ids"]
    assert ids and len(ids) == answer["usage"]["completion_tokens"]
    said = {key: choice[key] for key in ("token_ids", "logprobs", "finish_reason")}
    return json.dumps(said), answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_neither_company_nor_a_warm_cache_changes_a_bit(caching):
    """Alone with nothing cached, all at once, and all once more over what the others left in the cache."""
    asked = list(requests())
    alone = [ask(caching, request, f"alone {index}") for index, request in enumerate(asked)]
    assert [cached for _, cached in alone] == [0] * PARALLEL
    assert len({said for said, _ in alone}) == PARALLEL
    counts = []
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        for _ in range(2):
            together = list(pool.map(lambda request: ask(caching, request, "together"), asked))
            wrong = [index for index in range(PARALLEL) if together[index][0] != alone[index][0]]
            assert not wrong, f"requests {wrong} of {PARALLEL} had other answers than alone"
            counts.append([cached for _, cached in together])
    again = [ask(caching, request, "together") for request in asked]
    assert [said for said, _ in again] == [said for said, _ in alone]
    counts.append([cached for _, cached in again])
    note(f"cached tokens of {PARALLEL} prompts: {', '.join(str(sum(count)) for count in counts)} in three rounds")
    assert sum(counts[0]) < sum(counts[1])
    # The chats share a beginning, and have been asked before.
    assert all(cached > 0 for cached in counts[2][::2])


def test_salts_do_not_share_what_they_cached(caching):
    prompt = sentence(random.Random("salts"), 200)
    options = {"temperature": 0, "max_tokens": 2, "logprobs": 2, "return_token_ids": True}
    request = ("/v1/completions", {"prompt": prompt, **options})
    first, cold = ask(caching, request, "a")
    second, warm = ask(caching, request, "a")
    third, other = ask(caching, request, "b")
    fourth, none = ask(caching, request, None)
    assert cold == other == none == 0
    assert warm > 0
    assert first == second == third == fourth
    assert ask(caching, request, "b")[1] == ask(caching, request, None)[1] == warm
