"""`metrics` of answers, with `--enable-per-request-metrics`, as OpenAI's client reads them and as /metrics counts them."""

import re

import openai
import pytest

from checkpoints import Checkpoints
from conftest import Server

MODEL = "smollm2"
ASKED = [{"role": "user", "content": "Hello"}]
# What /metrics adds up of each phase, and what an answer calls it.
PHASES = {"queue": "queue_time_ms", "prefill": "time_to_first_token_ms", "decode": "generation_time_ms"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    model = str(Checkpoints(tmp_path_factory.mktemp("metrics")).base)
    server = Server("--engine", "native", "--dtype", "float32", "--enable-per-request-metrics", model=model)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def counted(server):
    """The milliseconds of all requests so far, by phase."""
    page = server.get("/metrics")
    sums = {name: re.search(rf"^vllm:request_{name}_time_seconds_sum{{[^}}]*}} (\S+)$", page, re.MULTILINE) for name in PHASES}
    return {name: 1000 * float(found[1]) for name, found in sums.items()}


def chat(client, tokens, **more):
    return client.chat.completions.create(
        model=MODEL, messages=ASKED, max_completion_tokens=tokens, extra_body={"ignore_eos": True}, **more
    )


def complete(client, tokens, **more):
    return client.completions.create(
        model=MODEL, prompt="Hello", max_tokens=tokens, extra_body={"ignore_eos": True}, **more
    )


def respond(client, tokens, **more):
    return client.responses.create(
        model=MODEL, input="Hello", max_output_tokens=tokens, extra_body={"ignore_eos": True}, **more
    )


def of_last_chunk(chunks):
    *others, last = chunks
    assert all("metrics" not in (chunk.model_extra or {}) for chunk in others)
    assert last.usage is not None
    return last.model_extra["metrics"]


def of_last_event(events):
    *others, last = events
    assert all("metrics" not in (event.response.model_extra or {}) for event in others if hasattr(event, "response"))
    return last.response.model_extra["metrics"]


STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
ROADS = {
    "chat": lambda client, tokens: chat(client, tokens).model_extra["metrics"],
    "completion": lambda client, tokens: complete(client, tokens).model_extra["metrics"],
    "response": lambda client, tokens: respond(client, tokens).model_extra["metrics"],
    "streamed chat": lambda client, tokens: of_last_chunk(chat(client, tokens, **STREAMED)),
    "streamed completion": lambda client, tokens: of_last_chunk(complete(client, tokens, **STREAMED)),
    "streamed response": lambda client, tokens: of_last_event(respond(client, tokens, stream=True)),
}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("tokens", [1, 6])
def test_an_answer_has_the_times_that_the_server_counts(server, client, road, tokens):
    before = counted(server)
    metrics = ROADS[road](client, tokens)
    after = counted(server)
    for phase, name in PHASES.items():
        assert metrics[name] == pytest.approx(after[phase] - before[phase], abs=1e-6)
    computed = metrics["time_to_first_token_ms"] + metrics["generation_time_ms"]
    assert metrics["tokens_per_second"] == pytest.approx(1000 * tokens / computed)
    between = metrics.get("mean_itl_ms")
    assert between == (None if tokens == 1 else pytest.approx(metrics["generation_time_ms"] / (tokens - 1)))
    assert metrics.get("speculative_decoding") is None


def test_nobody_says_whose_times_they_are_of_several_sequences(client):
    assert chat(client, 3, n=2).model_extra["metrics"] is None
    assert complete(client, 3, n=2).model_extra["metrics"] is None
