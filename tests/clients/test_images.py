"""Conversations with images: ids, places and log-probs are those of transformers' processor and model, turn by turn."""

import base64
import json
import zlib

import openai
import pytest

from conftest import REPOSITORY, Server
from drawn_models import write_model  # it says where tests/reference is
from image_model_files import MARKS, write_files

GOLDEN = REPOSITORY / "tests" / "golden" / "image_conversations"
SHARED = json.loads((GOLDEN / "files.json").read_text())
# The bar is 2e-4; one pixel that is wrong by one moves more.
TOLERANCE = 5e-5
ASKED = {"temperature": 0, "max_tokens": 8, "return_token_ids": True, "logprobs": True, "prompt_logprobs": 0}


def write(directory, case):
    """The model with its tokenizer, template and processor."""
    write_model(directory, case["config"], case["tensors"], case["seed"])
    write_files(directory, SHARED["chat_template"], case["preprocessor"])
    return str(directory)


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "gemma3", "mistral3", "internvl", "glm4v", "glm4v_moe", "glm46v"])
def served(request, tmp_path_factory):
    """A case, and a server of its model."""
    case = json.loads((GOLDEN / f"{request.param}.json").read_text())
    server = Server("--dtype", "float32", model=write(tmp_path_factory.mktemp(request.param), case))
    yield case, server
    server.stop()


def url_of(name):
    return f"data:image/png;base64,{SHARED['files'][name]}"


def shown(messages):
    """Messages with the images that they name."""

    def part(part):
        return {"type": "image_url", "image_url": {"url": url_of(part["name"])}} if part["type"] == "image" else part

    return [
        {**message, "content": [part(piece) for piece in message["content"]]}
        if isinstance(message["content"], list)
        else message
        for message in messages
    ]


def images_of(answer):
    placeholders = answer.get("mm_placeholders") or {"image": []}
    return [[place["offset"], place["length"]] for place in placeholders["image"]]


def compare(answer, expected):
    """An answer with what transformers makes of its prompt."""
    ids = answer["prompt_token_ids"]
    assert ids == expected["token_ids"]
    assert images_of(answer) == expected["images"]
    entries = answer["prompt_logprobs"][1:]
    found = [entry[str(id)]["logprob"] for entry, id in zip(entries, ids[1:], strict=True)]
    assert max(abs(mine - theirs) for mine, theirs in zip(found, expected["log_probs"], strict=True)) <= TOLERANCE


NAMES = list(json.loads((GOLDEN / "gemma3.json").read_text())["conversations"])
# What would make another conversation is not sampled, as in the recording.
BIASES = {str(id): -100 for id in (0, 1, 2, *MARKS)}


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_is_what_transformers_makes_of_it(served, name):
    case, server = served
    if name not in case["conversations"]:
        pytest.skip("newlines are like other characters in this family")
    conversation = case["conversations"][name]
    before, after = shown(conversation["before"]), shown(conversation["after"])
    first = server.post("/v1/chat/completions", messages=before, logit_bias=BIASES, **ASKED)
    compare(first, conversation["first"])
    message = first["choices"][0]["message"]
    assert message["generation_token_ids"] == conversation["first"]["answer"]
    expected = conversation["second"]
    for answered in (message, {"role": "assistant", "content": message["content"]}):
        # By the ids on the message, and by what the server remembers.
        second = server.post("/v1/chat/completions", messages=[*before, answered, *after], logit_bias=BIASES, **ASKED)
        compare(second, expected)
        assert second["token_continuity"]["outcome"] == "exact"
    # Whole, to a server that is asked for ids only.
    tokens = server.post("/tokenize", messages=[*before, message, *after])
    assert tokens["tokens"] == expected["token_ids"]
    assert images_of(tokens) == expected["images"]


def test_a_turn_by_ids_and_parts_is_the_turn_by_messages(served):
    """As prime-rl's renderers send it: ids with one placeholder for each image, and the images beside them."""
    case, server = served
    conversation = case["conversations"]["images in both turns"]
    expected = conversation["first"]
    single = {expected["token_ids"].index(327, start) for start, _ in expected["images"]}
    rest = {start + place for start, length in expected["images"] for place in range(length)} - single
    collapsed = [id for place, id in enumerate(expected["token_ids"]) if place not in rest]
    parts = [{"type": "image_url", "url": url_of(name)} for name in ("scan", "photo")]
    sampling = {"temperature": 0, "max_tokens": 8, "logprobs": 0, "prompt_logprobs": 0, "logit_bias": {int(id): bias for id, bias in BIASES.items()}}
    asked = {"sampling_params": sampling, "return_token_ids": True}
    for ids in (collapsed, expected["token_ids"]):
        answer = server.post("/inference/v1/generate", token_ids=ids, content_parts=parts, **asked)
        compare(answer, expected)
        assert answer["choices"][0]["token_ids"] == expected["answer"]
    rendered = server.post("/v1/chat/completions/render", messages=shown(conversation["before"]))
    assert rendered["token_ids"] == expected["token_ids"]
    answer = server.post("/inference/v1/generate", token_ids=rendered["token_ids"], features=rendered["features"], **asked)
    compare(answer, expected)


def test_openais_client_sends_images(served):
    case, server = served
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    conversation = case["conversations"]["two images"]
    answer = client.chat.completions.create(
        model="smollm2", messages=shown(conversation["before"]), temperature=0, max_tokens=8, logit_bias=BIASES,
        extra_body={"return_token_ids": True},
    )
    assert answer.model_extra["prompt_token_ids"] == conversation["first"]["token_ids"]
    content = [
        {"type": "input_image", "image_url": url_of(part["name"]), "detail": "auto"} if part["type"] == "image"
        else {"type": "input_text", "text": part["text"]}
        for part in conversation["before"][0]["content"]
    ]
    response = client.responses.create(model="smollm2", input=[{"role": "user", "content": content}], temperature=0, max_output_tokens=8)
    assert response.usage.input_tokens == len(conversation["first"]["token_ids"])


def test_a_prompt_with_an_image_is_cached_by_what_the_image_shows(served):
    """Two images of one size have the same ids: what was computed for one never serves the other."""
    case, server = served
    of = {}
    for _ in range(2):
        for name in ("photo", "page"):
            squares = {"type": "image_url", "image_url": {"url": square(name)}}
            body = {"messages": [{"role": "user", "content": [squares, {"type": "text", "text": "long " * 40}]}], **ASKED}
            answer = server.post("/v1/chat/completions", **body)
            scores = [entry for entry in answer["prompt_logprobs"][1:]]
            of.setdefault(name, scores)
            assert of[name] == scores
    assert of["photo"] != of["page"]


def square(name):
    """A grey image, 64 pixels wide and high, that differs by name only."""

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    row = bytes([0]) + bytes([40 if name == "photo" else 200]) * 64
    head = (64).to_bytes(4, "big") * 2 + bytes([8, 0, 0, 0, 0])
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(row * 64)) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"


@pytest.mark.parametrize(
    ("url", "status", "words"),
    [
        ("https://example.org/cat.png", 400, "`data:` URLs"),
        ("file:///etc/passwd", 400, "--allowed-local-media-path"),
        ("data:image/png;base64,AAAA", 400, "cannot be read"),
        ("data:image/png,AAAA", 501, "base64"),
    ],
)
def test_an_image_that_cannot_be_read_is_refused(served, url, status, words):
    _, server = served
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    found, body = server.exchange("/v1/chat/completions", {"model": "smollm2", "messages": messages})
    assert found == status, body
    assert words in json.loads(body)["error"]["message"]
