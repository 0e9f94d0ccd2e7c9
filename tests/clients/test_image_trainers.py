"""Conversations with images as trainers continue them: their own code, unchanged, and the ids of transformers' processor.

The model and the expected ids are those of test_images.py. `renderers` 0.1.12 is how prime-rl and verifiers' training client send
ids: one placeholder for each image and the images beside them; TRL 1.16 sends all placeholders and the features of a prompt that it
renders for their sake; SkyRL 0.4.0 renders all messages in each turn; NeMo Gym 0.7.0 sends ids on messages, or beside them.
"""

import asyncio
import base64
import json
import types

import msgspec
import numpy as np
import pytest
from renderers.qwen3_vl import Qwen3VLRenderer

import frameworks
import test_renderers
from conftest import Server
from played import recorded
from test_images import BIASES, GOLDEN, SHARED, compare, images_of, shown, url_of, write

KIND = "qwen3_vl"
CASE = json.loads((GOLDEN / f"{KIND}.json").read_text())
TOKENS = 8
GREEDY = {"max_tokens": TOKENS, "temperature": 0, "logit_bias": BIASES}
# The renderer writes the marks of tools as tokens, and the tiny model has none for them.
TALKS = [name for name in CASE["conversations"] if name != "images of a tool"]
MODEL = "smollm2"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server("--dtype", "float32", model=write(tmp_path_factory.mktemp(KIND), CASE))
    yield server
    server.stop()


@pytest.fixture(params=TALKS)
def conversation(request):
    return CASE["conversations"][request.param]


class Tokenizer(test_renderers.Tokenizer):
    """The tiny model's, where a token that it lacks is one that it never samples."""

    def __init__(self, directory):
        self.absent = {}
        super().__init__(directory)

    def convert_tokens_to_ids(self, token):
        id = super().convert_tokens_to_ids(token)
        return 10_000 + self.absent.setdefault(token, len(self.absent)) if id is None else id


@pytest.fixture(scope="module")
def renderer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    write(directory, CASE)
    return Qwen3VLRenderer(Tokenizer(directory))


def rendered_turn(server, renderer, messages, prompt_ids=None):
    """A turn as verifiers' `TrainClient.get_response` takes it where messages have images."""
    asked = {"prompt_ids": prompt_ids, "sampling_params": dict(GREEDY), "process_multimodal": False}
    return test_renderers.generated(server, renderer, messages, **asked)


def ranges(placeholders):
    return [[place["offset"], place["length"]] for place in (placeholders or {"image": []})["image"]]


def test_renderers_continue_with_one_placeholder_for_each_image(server, renderer, conversation):
    before, after = shown(conversation["before"]), shown(conversation["after"])
    first, second = conversation["first"], conversation["second"]
    turn = rendered_turn(server, renderer, before)
    assert turn["prompt_ids"] == first["token_ids"]
    assert ranges(turn["mm_placeholders"]) == first["images"]
    assert turn["completion_ids"] == first["answer"]
    assert len(turn["completion_logprobs"]) == len(first["answer"])

    prompt = turn["renderer_prompt_ids"] or turn["prompt_ids"]
    bridged = renderer.bridge_to_next_turn(prompt, turn["completion_ids"], after, process_multimodal=False)
    messages = [*before, {"role": "assistant", "content": turn["content"]}, *after]
    turn = rendered_turn(server, renderer, messages, bridged.token_ids)
    assert turn["prompt_ids"] == second["token_ids"]
    assert ranges(turn["mm_placeholders"]) == second["images"]


class Picture:
    """As an image of Pillow's that is written as a PNG file: here, the recorded file."""

    def __init__(self, name):
        self.name = name

    def save(self, buffer, format):
        assert format == "PNG"
        buffer.write(base64.b64decode(SHARED["files"][self.name]))

    def __deepcopy__(self, _):
        return self


@pytest.fixture(scope="module")
def trl():
    """TRL's client, and the method of its trainer that puts features where a prompt has the images."""
    packages = ["trl", "trl.generation"]
    absent = ["PIL", "accelerate", "bitsandbytes", "packaging", "torch", "transformers", "vllm", "trl.import_utils", "trl.extras", "trl.trainer"]
    with frameworks.importing(packages, absent) as load:
        generation = load("trl.generation.vllm_generation").VLLMGeneration
        yield load("trl.generation.vllm_client").VLLMClient, generation._place_features


def names_of(messages):
    return [part["name"] for message in messages if isinstance(message["content"], list) for part in message["content"] if "name" in part]


def test_trl_continues_with_features_of_a_prompt_of_their_own(server, trl, conversation):
    make, place_features = trl
    client = make(server.url)
    trainer = types.SimpleNamespace(processing_class=types.SimpleNamespace(image_token_id=327))
    before, after = conversation["before"], conversation["after"]
    for turn, messages in ((conversation["first"], before), (conversation["second"], [*before, *after])):
        ids, names = turn["token_ids"], names_of(messages)
        if not names:
            continue
        [features] = client.image_features([[Picture(name) for name in names]])
        features = place_features(trainer, features, ids)
        biases = {int(id): bias for id, bias in BIASES.items()}
        made = client.generate([ids], features=[features], temperature=0, max_tokens=TOKENS, generation_kwargs={"logit_bias": biases})
        asked = {"sampling_params": {**GREEDY, "prompt_logprobs": 0, "logprobs": 0}, "return_token_ids": True, "features": features}
        answer = server.post("/inference/v1/generate", token_ids=ids, **asked)
        compare(answer, turn)
        assert made["completion_ids"] == [answer["choices"][0]["token_ids"]]
        if "answer" in turn:
            assert made["completion_ids"] == [turn["answer"]]


def tensors_of(item):
    """The tensors of an item of vLLM's, as its `mm_serde.py` reads them."""
    kinds = {"float32": np.float32, "int64": np.int64}
    fields = msgspec.msgpack.decode(base64.b64decode(item), ext_hook=lambda code, data: bytes(data))
    return {name: np.frombuffer(data, kinds[kind]).reshape(shape) for name, (kind, shape, data) in ((name, field["data"]) for name, field in fields.items())}


def decode_mm_kwargs(kwargs):
    """As SkyRL's function of this name, which needs vLLM and PyTorch."""
    items = [tensors_of(item) for item in (kwargs or {"image": []})["image"]]
    joined = {name: [item[name] for item in items] for name in ("pixel_values", "image_grid_thw")}
    return {"pixel_values": joined["pixel_values"] and np.concatenate(joined["pixel_values"]), "image_grid_thw": joined["image_grid_thw"]}


@pytest.fixture(scope="module")
def skyrl():
    """SkyRL's generator for models that see, and its client."""
    root = "skyrl.backends.skyrl_train"
    packages = ["skyrl", "skyrl.backends", root, f"{root}.inference_servers", f"{root}.utils", "skyrl.train", "skyrl.train.generators"]
    absent = ["loguru", "pybase64", "skyrl_gym", "torch", "tqdm", f"{root}.distributed", f"{root}.utils.sample_support"]
    absent += ["skyrl.utils", "skyrl.backends.renderer", "skyrl.tinker", "skyrl.train.config", "skyrl.train.generators.utils"]
    with frameworks.importing(packages, absent) as load:
        module = load("skyrl.train.generators.skyrl_vlm_generator")
        yield module, load(f"{root}.inference_servers.remote_inference_client").RemoteInferenceClient


class Environment:
    """One that answers the first turn, and ends after the second."""

    def __init__(self, after):
        self.after, self.said = after, []

    def init(self, conversation):
        return conversation, {}

    def step(self, text):
        self.said.append(text)
        return {"observations": self.after if len(self.said) == 1 else [], "reward": 1.0, "done": len(self.said) == 2}

    def get_metrics(self):
        return {}

    def close(self):
        pass


def stable_letter(tokenizer):
    """An id that stays itself when it is sampled again and again, decoded and encoded. SkyRL sends texts back: it counts on that."""
    for id in range(3, 259):
        ids = [id] * TOKENS
        if tokenizer.decode([id]).isalpha() and tokenizer.encode(tokenizer.decode(ids)) == ids:
            return id
    raise AssertionError("the tokenizer joins all letters")


def test_skyrl_renders_each_turn_and_trains_on_its_tensors(server, skyrl, renderer, monkeypatch, conversation):
    module, make = skyrl
    letter = stable_letter(renderer._tokenizer)
    before, after = shown(conversation["before"]), shown(conversation["after"])
    environment = Environment(after)
    monkeypatch.setattr(module, "skyrl_gym", types.SimpleNamespace(make=lambda *_, **__: environment))
    monkeypatch.setattr(module, "decode_mm_kwargs", decode_mm_kwargs)

    async def rollout():
        generator = module.SkyRLVLMGymGenerator.__new__(module.SkyRLVLMGymGenerator)
        generator.inference_engine_client = make(server.url, [server.url], data_parallel_size=1, model_name=MODEL)
        generator.max_turns, generator.env_executor, generator.skyrl_gym_cfg = 2, None, types.SimpleNamespace()
        generator.policy_model_name = MODEL
        try:
            sampling = {"max_tokens": TOKENS, "temperature": 0, "logprobs": 0, "allowed_token_ids": [letter]}
            return await generator.agent_loop(before, "env", {}, TOKENS, 1000, sampling_params=sampling)
        finally:
            await generator.inference_engine_client.teardown()

    rolled = asyncio.run(rollout())
    first, second = conversation["first"], conversation["second"]
    assert rolled.prompt_ids == first["token_ids"]
    tail = second["token_ids"][len(first["token_ids"]) + TOKENS :]
    assert rolled.response_ids == [letter] * TOKENS + tail + [letter] * TOKENS
    assert rolled.loss_mask == [1] * TOKENS + [0] * len(tail) + [1] * TOKENS
    assert len(rolled.rollout_logprobs) == len(rolled.response_ids)
    # A block of four patches is a placeholder.
    grids = [grid.tolist() for grid in rolled.image_grid_thw]
    assert [rows * columns // 4 for _, rows, columns in grids] == [length for _, length in second["images"]]
    if grids:
        patches = 4 * sum(length for _, length in second["images"])
        assert rolled.pixel_values.shape == (patches, 3 * 2 * 16 * 16)
        assert np.abs(rolled.pixel_values).max() <= 1


@pytest.mark.parametrize("variant", ["token_ids", "supply_prefix"])
@pytest.mark.parametrize("name", ["two images", "an image in the second turn", "images in both turns"])
def test_nemo_gym_continues_with_ids_on_messages_or_beside_them(server, variant, name):
    """What its model server sent (tests/golden/frameworks/record_images.py), with the images that it had."""
    expected = CASE["conversations"][name]
    calls = [call for call in recorded("nemo_gym_images", variant) if call["conversation"] == name]
    assert len(calls) == 2
    for call, turn in zip(calls, (expected["first"], expected["second"]), strict=True):
        text = json.dumps(call["body"])
        for image in SHARED["files"]:
            text = text.replace(f"image:{image}", url_of(image))
        answer = server.post(call["path"], **json.loads(text), return_token_ids=True, prompt_logprobs=0)
        compare(answer, turn)
        carries = {"token_ids": "message", "supply_prefix": "required_prefix"}[variant] if turn is expected["second"] else "none"
        assert answer["token_continuity"]["source"] == carries
        assert answer["token_continuity"]["outcome"] == ("fresh" if carries == "none" else "exact")


def test_what_is_rendered_on_one_server_is_generated_on_another(server, tmp_path):
    """Tensors are enough: nothing else has to be known of an image."""
    conversation = CASE["conversations"]["images in both turns"]
    rendered = server.post("/v1/chat/completions/render", messages=shown(conversation["before"]))
    other = Server("--dtype", "float32", model=write(tmp_path, CASE))
    try:
        asked = {"sampling_params": {**GREEDY, "prompt_logprobs": 0, "logprobs": 0}, "return_token_ids": True}
        answer = other.post("/inference/v1/generate", token_ids=rendered["token_ids"], features=rendered["features"], **asked)
        compare(answer, conversation["first"])
        assert answer["choices"][0]["token_ids"] == conversation["first"]["answer"]
        assert images_of(answer) == conversation["first"]["images"]
        without = {**rendered["features"], "kwargs_data": None, "mm_metadata": None}
        # The name is the other server's.
        status, text = other.exchange("/inference/v1/generate", {"token_ids": rendered["token_ids"], "features": without, "sampling_params": {}})
        assert status == 400 and "not kept here" in text
    finally:
        other.stop()
