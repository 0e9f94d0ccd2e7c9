"""Tinker's own sampling client, unchanged, against the server."""

import asyncio
import json
import struct

import numpy
import pytest
import tinker
from tinker import types

from conftest import Server
from control import Trained
from control import prompt as drawn_prompt

PROMPT = "The river runs under the old stone bridge and then"
KEY = "tml-one"


@pytest.fixture(scope="module")
def served():
    server = Server("--engine", "native", "--tinker-api")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def service(served):
    service = tinker.ServiceClient(base_url=served.url, api_key=KEY)
    yield service
    service.close("success").result()


@pytest.fixture(scope="module")
def sampling(service):
    return service.create_sampling_client(base_model="smollm2").result()


@pytest.fixture(scope="module")
def prompt(served):
    return served.post("/tokenize", prompt=PROMPT)["tokens"]


def of(ids):
    return types.ModelInput.from_ints(ids)


def bits(values):
    """As they are in float32."""
    return [None if value is None else struct.pack("<f", value) for value in values]


def generated(server, ids, **params):
    params = {"logprobs": 0, **params}
    return server.post("/inference/v1/generate", token_ids=ids, sampling_params=params)


def logprobs(choice):
    return [entry["logprob"] for entry in choice["logprobs"]["content"]]


@pytest.mark.parametrize("temperature, n", [(0.7, 3), (1.0, 1)])
def test_it_samples_what_generate_samples_to_the_bit(
    served, sampling, prompt, temperature, n
):
    same = {
        "max_tokens": 12,
        "seed": 11,
        "temperature": temperature,
        "top_k": 40,
        "top_p": 0.95,
    }
    ours = sampling.sample(of(prompt), n, types.SamplingParams(**same)).result()
    theirs = generated(served, prompt, n=n, **same)
    assert len(ours.sequences) == n
    for sequence, choice in zip(ours.sequences, theirs["choices"], strict=True):
        assert sequence.tokens == choice["token_ids"]
        assert bits(sequence.logprobs) == bits(logprobs(choice))
        assert sequence.stop_reason == choice["finish_reason"]
    assert len({sequence.sequence_id for sequence in ours.sequences}) == n
    assert ours.prompt_logprobs is None


def test_compute_logprobs_are_those_of_generate_to_the_bit(served, sampling, prompt):
    scores = sampling.compute_logprobs(of(prompt)).result()
    entries = generated(served, prompt, max_tokens=1, prompt_logprobs=0)[
        "prompt_logprobs"
    ]
    theirs = [None] + [
        entry[str(id)]["logprob"]
        for entry, id in zip(entries[1:], prompt[1:], strict=True)
    ]
    assert bits(scores) == bits(theirs)
    last = sampling.compute_logprobs(of(prompt), prompt_logprobs_last_n=3).result()
    assert last == [None] * (len(prompt) - 3) + scores[-3:]


def test_the_most_probable_tokens_come_beside_the_sampled_and_the_given_ones(
    sampling, prompt
):
    params = types.SamplingParams(max_tokens=4, temperature=0)
    result = sampling.sample(
        of(prompt),
        1,
        params,
        include_prompt_logprobs=True,
        topk_prompt_logprobs=3,
        topk_sample_logprobs=2,
    ).result()
    (sequence,) = result.sequences
    # What is sampled greedily is the most probable token.
    assert [row[0] for row in sequence.topk_logprobs] == list(
        zip(sequence.tokens, sequence.logprobs, strict=True)
    )
    assert all(
        len(row) == 2 and row[0][1] >= row[1][1] for row in sequence.topk_logprobs
    )
    rows = result.topk_prompt_logprobs
    assert rows[0] is None and result.prompt_logprobs[0] is None
    assert len(rows) == len(prompt) == len(result.prompt_logprobs)
    for id, score, row in zip(
        prompt[1:], result.prompt_logprobs[1:], rows[1:], strict=True
    ):
        assert len(row) == 3
        assert dict(row).get(id, score) == score


def test_texts_and_ids_end_a_sequence_and_an_empty_list_does_not(
    served, sampling, prompt
):
    greedy = {"max_tokens": 12, "temperature": 0}
    (whole,) = (
        sampling.sample(of(prompt), 1, types.SamplingParams(**greedy, stop=[]))
        .result()
        .sequences
    )
    assert len(whole.tokens) == 12 and whole.stop_reason == "length"
    at = next(
        index
        for index in range(3, 12)
        if whole.tokens[index] not in whole.tokens[:index]
    )
    text = served.post("/detokenize", tokens=[whole.tokens[at]])["prompt"]
    assert text.strip()
    for stop in ([whole.tokens[at]], [text, "never to be seen"]):
        (ended,) = (
            sampling.sample(of(prompt), 1, types.SamplingParams(**greedy, stop=stop))
            .result()
            .sequences
        )
        assert ended.stop_reason == "stop"
        # All ids are there, those of what ended it too.
        assert ended.tokens == whole.tokens[: len(ended.tokens)]
    assert ended.stop_reason == "stop"


def test_the_next_turn_begins_with_the_ids_of_the_one_before(served, sampling):
    turn = served.post(
        "/tokenize", messages=[{"role": "user", "content": "Name a river."}]
    )["tokens"]
    params = types.SamplingParams(max_tokens=8, seed=3, stop=[])
    (first,) = sampling.sample(of(turn), 1, params).result().sequences
    more = served.post(
        "/tokenize",
        prompt="<|im_end|>\n<|im_start|>user\nAnd another.<|im_end|>\n",
        add_special_tokens=False,
    )
    whole = turn + first.tokens + more["tokens"]
    result = sampling.sample(
        of(whole), 1, params, include_prompt_logprobs=True
    ).result()
    # The prompt is scored as it was given, and the first turn as it was sampled.
    again = result.prompt_logprobs[len(turn) : len(turn) + len(first.tokens)]
    assert again == pytest.approx(first.logprobs, abs=1e-3)
    assert (
        generated(served, whole, max_tokens=8, seed=3, ignore_eos=True)["choices"][0][
            "token_ids"
        ]
        == result.sequences[0].tokens
    )


def test_what_is_not_served_is_refused_with_the_reason(service, sampling, prompt):
    with pytest.raises(
        tinker.BadRequestError, match="`other` is not served here, but smollm2"
    ):
        service.create_sampling_client(base_model="other").result()
    with pytest.raises(tinker.BadRequestError, match="no adapter is loaded for"):
        service.create_sampling_client(model_path="tinker://run/weights/1").result()
    with pytest.raises(tinker.BadRequestError, match="this server only samples"):
        service.create_lora_training_client(base_model="smollm2").result()
    with pytest.raises(
        tinker.BadRequestError, match="`prompt_alt_tokens_k` is not supported"
    ):
        sampling.sample(
            of(prompt), 1, types.SamplingParams(max_tokens=1), prompt_alt_tokens_k=2
        ).result()
    with pytest.raises(tinker.BadRequestError, match="out of vocabulary"):
        sampling.sample(of([10**6]), 1, types.SamplingParams(max_tokens=1)).result()


def test_a_request_whose_client_was_cut_off_is_sampled_once(
    served, service, sampling, prompt
):
    """The client's own retry sends the same number again; here, by the resource that sends it."""
    request = types.SampleRequest(
        sampling_session_id=sampling._sampling_session_id,
        seq_id=5 * 10**9,
        prompt=of(prompt),
        sampling_params=types.SamplingParams(max_tokens=6),
    )

    async def send():
        with sampling.holder.aclient(
            tinker.lib.client_connection_pool_type.ClientConnectionPoolType.SAMPLE
        ) as client:
            return await client.sampling.asample(request=request)

    run = sampling.holder.run_coroutine_threadsafe
    sampled = served.gauge("vllm:generation_tokens_total")
    first = run(send()).future().result(300)
    served.poll("it is sampled", served.idle)
    assert run(send()).future().result(300) == first
    served.poll("nothing is sampled", served.idle)
    assert served.gauge("vllm:generation_tokens_total") <= sampled + 6


def test_many_requests_at_a_time_come_out_as_each_alone(sampling, prompt):
    async def all_of(asked):
        return await asyncio.gather(
            *(sampling.sample(of(prompt), 1, params) for params in asked)
        )

    asked = [types.SamplingParams(max_tokens=4, seed=seed) for seed in range(24)]
    together = asyncio.run(all_of(asked))
    for params, result in zip(asked[:4], together, strict=False):
        alone = sampling.sample(of(prompt), 1, params).result()
        assert alone.sequences[0].tokens == result.sequences[0].tokens


def test_the_key_of_the_client_is_the_key_of_the_server():
    server = Server("--engine", "native", "--tinker-api", "--api-key", KEY, "tml-two")
    service = tinker.ServiceClient(base_url=server.url, api_key=KEY)
    sampling = service.create_sampling_client(base_model="smollm2").result()
    assert (
        len(
            sampling.sample(
                of([1, 2, 3]), 1, types.SamplingParams(max_tokens=2, stop=[])
            )
            .result()
            .sequences
        )
        == 1
    )
    with pytest.raises(tinker.AuthenticationError):
        tinker.ServiceClient(
            base_url=server.url, api_key="tml-none"
        ).create_sampling_client(base_model="smollm2").result()
    service.close("success").result()
    server.stop()


@pytest.mark.parametrize("is_sparse", [False, True])
def test_named_ids_are_scored_where_they_are_named(sampling, prompt, is_sparse):
    rows = len(prompt) - 1
    if is_sparse:
        # The last token, and another one in its place.
        target = types.TensorData(
            data=[prompt[-1], 40],
            dtype="int64",
            shape=[rows, 7],
            sparse_crow_indices=[0] * rows + [2],
            sparse_col_indices=[1, 6],
        )
    else:
        ids = numpy.full((rows, 2), -1, dtype=numpy.int64)
        ids[:, 1] = prompt[1:]
        target = types.TensorData.from_numpy(ids)
    result = sampling.sample(
        of(prompt),
        1,
        types.SamplingParams(max_tokens=1),
        include_prompt_logprobs=True,
        target_prompt_logprobs=target,
    ).result()
    scored, given = result.target_prompt_logprobs, result.prompt_logprobs
    if is_sparse:
        assert scored.shape == [rows, 7]
        assert scored.sparse_crow_indices == target.sparse_crow_indices
        assert scored.sparse_col_indices == target.sparse_col_indices
        assert bits(scored.data[:1]) == bits(given[-1:]) and scored.data[1] < 0
    else:
        cells = numpy.asarray(scored.data, "float32").reshape(scored.shape)
        assert (cells[:, 0] == 0).all()
        assert bits(cells[:, 1].tolist()) == bits(given[1:])


def test_a_prompt_with_an_image_is_refused_by_name(sampling, prompt):
    text = types.EncodedTextChunk(tokens=prompt)
    for chunk, kind in [
        (types.ImageChunk(data=b"x", format="png", expected_tokens=1), "image"),
        (
            types.ImageAssetPointerChunk(
                location="a", format="png", expected_tokens=1
            ),
            "image_asset_pointer",
        ),
    ]:
        asked = types.ModelInput(chunks=[text, chunk])
        with pytest.raises(tinker.BadRequestError, match=f"not of `{kind}`"):
            sampling.sample(asked, 1, types.SamplingParams(max_tokens=1)).result()


def test_an_adapter_is_sampled_by_its_path_until_it_is_another_one(tmp_path):
    trained = Trained(tmp_path, "--tinker-api", "--enable-lora")
    server, ids = trained.server, list(drawn_prompt(1))
    service = tinker.ServiceClient(base_url=server.url, api_key=KEY)
    try:
        loads = {
            "lora_name": "policy",
            "lora_path": str(trained.checkpoints.write_adapter("policy", 5)),
        }
        assert server.exchange("/v1/load_lora_adapter", loads)[0] == 200
        same = {"max_tokens": 8, "seed": 4, "temperature": 1.0}
        params = types.SamplingParams(**same, stop=[])
        adapted = service.create_sampling_client(model_path="tinker://policy").result()
        base = service.create_sampling_client(base_model="smollm2").result()
        answers = {}
        for client, model in [(adapted, "policy"), (base, "smollm2")]:
            (sequence,) = client.sample(of(ids), 1, params).result().sequences
            body = {
                "model": model,
                "token_ids": ids,
                "sampling_params": {**same, "ignore_eos": True, "logprobs": 0},
            }
            status, text = server.exchange("/inference/v1/generate", body)
            assert status == 200, text
            (choice,) = json.loads(text)["choices"]
            assert sequence.tokens == choice["token_ids"]
            assert bits(sequence.logprobs) == bits(logprobs(choice))
            answers[model] = sequence.logprobs
        assert answers["policy"] != answers["smollm2"]
        scores = adapted.compute_logprobs(of(ids)).result()
        assert scores[1:] != base.compute_logprobs(of(ids)).result()[1:]
        assert server.exchange("/v1/unload_lora_adapter", {"lora_name": "policy"})[0] == 200
        with pytest.raises(tinker.BadRequestError, match="was unloaded or replaced"):
            adapted.sample(of(ids), 1, params).result()
    finally:
        service.close("success").result()
        trained.stop()
