"""An adapter beside images, by HTTP: what it computes is what a server of the base says once the adapter is merged into it."""

import json

import numpy as np
import pytest

from checkpoints import record
from conftest import Server
from drawn_models import write_model
from drawn_weights import drawn
from image_model_files import write_files
from test_images import BIASES, GOLDEN, SHARED, shown

CASE = json.loads((GOLDEN / "qwen3_vl.json").read_text())
CONFIG, TENSORS, SEED = CASE["config"], CASE["tensors"], CASE["seed"]
TARGETS = ("q_proj", "v_proj", "o_proj", "down_proj")
RANK, ALPHA = 4, 8
# As between tito and transformers; an adapter moves log-probs by nats.
TOLERANCE = 5e-5
ASKED = {"temperature": 0, "max_tokens": 8, "return_token_ids": True, "logprobs": True, "prompt_logprobs": 0, "logit_bias": BIASES}


def factors():
    """The two matrices of each module of the text that the adapter changes."""
    draw = np.random.default_rng(7)
    chosen = [name for name in TENSORS if "language_model" in name and name.split(".")[-2] in TARGETS]
    matrix = lambda rows, columns: draw.normal(0, columns**-0.5, (rows, columns)).astype("f4")
    return {name: (matrix(RANK, TENSORS[name][1]), matrix(TENSORS[name][0], RANK)) for name in chosen}


def write_adapter(directory, names):
    directory.mkdir()
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": list(TARGETS), "bias": "none"}
    (directory / "adapter_config.json").write_text(json.dumps(settings))
    tensors = {}
    for name, (a, b) in names.items():
        module = f"base_model.model.{name.removesuffix('.weight')}"
        tensors |= {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
    (directory / "adapter_model.safetensors").write_bytes(record.safetensors(tensors, "F32"))
    return str(directory)


def serving(directory, added, *flags):
    """A server of the base, with something added to some of its matrices."""
    directory.mkdir()

    def numbers_of(name):
        numbers = np.frombuffer(drawn(SEED, name, TENSORS[name], CONFIG["model_type"]), "f4")
        return (numbers + added[name].reshape(-1)) if name in added else numbers

    write_model(directory, CONFIG, TENSORS, SEED, numbers_of)
    write_files(directory, SHARED["chat_template"], CASE["preprocessor"])
    return Server("--dtype", "float32", *flags, model=str(directory))


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """One of the base with the adapter, and one of both merged."""
    root, matrices = tmp_path_factory.mktemp("image_lora"), factors()
    adapter = write_adapter(root / "adapter", matrices)
    merged = {name: np.float32(ALPHA / RANK) * (b @ a) for name, (a, b) in matrices.items()}
    both = serving(root / "base", {}, "--enable-lora", "--lora-modules", f"trained={adapter}"), serving(root / "merged", merged)
    yield both
    for server in both:
        server.stop()


def scores(answer):
    """The log-probs of a prompt and of what was sampled."""
    ids = answer["prompt_token_ids"][1:]
    prompt = [entry[str(id)]["logprob"] for entry, id in zip(answer["prompt_logprobs"][1:], ids, strict=True)]
    return prompt + [entry["logprob"] for entry in answer["choices"][0]["logprobs"]["content"]]


@pytest.mark.parametrize("name", list(CASE["conversations"]))
def test_two_turns_of_an_adapter_are_those_of_the_merged_model(servers, name):
    served, merged = servers
    conversation = CASE["conversations"][name]
    messages = shown(conversation["before"])
    for more in (shown(conversation["after"]), []):
        mine = served.post("/v1/chat/completions", messages=messages, **(ASKED | {"model": "trained"}))
        theirs = merged.post("/v1/chat/completions", messages=messages, **ASKED)
        base = served.post("/v1/chat/completions", messages=messages, **ASKED)
        for key in ("prompt_token_ids", "mm_placeholders"):
            assert mine.get(key) == theirs.get(key)
        message = mine["choices"][0]["message"]
        assert message["generation_token_ids"] == theirs["choices"][0]["message"]["generation_token_ids"]
        far = [abs(one - other) for one, other in zip(scores(mine), scores(theirs), strict=True)]
        assert max(far) <= TOLERANCE
        # The same prompt of the base, whose image is in the same cache, is another one.
        ids = len(mine["prompt_token_ids"]) - 1
        assert max(abs(one - other) for one, other in zip(scores(mine)[:ids], scores(base)[:ids], strict=False)) > 0.1
        messages = [*messages, message, *more]
