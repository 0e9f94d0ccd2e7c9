"""Captured turns with images on the native engine: replays, scores, exports, and the same after a restart."""

import base64
import json

import pytest

from conftest import Server
from lines import documents_of
from replay_command import replayed, settled
from test_images import ASKED, BIASES, GOLDEN, SHARED, shown, write

NAME = "images in both turns"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A case, and the directory of its model."""
    case = json.loads((GOLDEN / "qwen3_vl.json").read_text())
    return case, write(tmp_path_factory.mktemp("qwen3_vl"), case)


def serve(directory, *flags):
    return Server("--dtype", "float32", "--served-model-name", "smollm2", *flags, model=directory)


def converse(server, conversation):
    """Both turns of a conversation, as a client sends them; returns the answers."""
    before, after = shown(conversation["before"]), shown(conversation["after"])
    first = server.post("/v1/chat/completions", messages=before, logit_bias=BIASES, **ASKED)
    message = first["choices"][0]["message"]
    second = server.post("/v1/chat/completions", messages=[*before, message, *after], logit_bias=BIASES, **ASKED)
    return first, second


def tree_of(server):
    [trajectory] = json.loads(server.get("/v1/trajectories"))["data"]
    return json.loads(server.get(f"/v1/trajectories/{trajectory['id']}"))


def lines(server, export):
    return documents_of(server.get(f"/v1/trajectories/export?{export}"))


def test_a_captured_conversation_is_computed_again_with_its_images(model, tmp_path):
    case, directory = model
    conversation, capture = case["conversations"][NAME], tmp_path / "turns.redb"
    server = serve(directory, "--capture", str(capture))
    try:
        _, second = converse(server, conversation)
        settled(server)
    finally:
        server.stop()
    # What was captured survives.
    server = serve(directory, "--capture", str(capture))
    try:
        tree = tree_of(server)
        assert len(tree["turns"]) == 2 and "base64" not in json.dumps(tree)
        places = [[image["offset"], image["length"]] for turn in tree["turns"] for image in turn["images"]]
        assert places == conversation["second"]["images"]
        for turn in tree["turns"]:
            for what in ("replay", "rescore"):
                status, found = server.exchange(f"/v1/trajectories/{tree['id']}/turns/{turn['id']}/{what}", {})
                assert (status, json.loads(found)["verdict"]) == (200, "equal"), found
        [line] = lines(server, "format=jsonl&rescore=true")
        assert [[image["offset"], image["length"]] for image in line["images"]] == places
        assert line["token_ids"][: len(second["prompt_token_ids"])] == second["prompt_token_ids"]
        assert line["rescored"]["equal_tokens"] == line["rescored"]["tokens"] == sum(line["loss_mask"])
    finally:
        server.stop()
    equal, _, partial, differ, unrepeatable, said = replayed(capture, directory, length=[])
    assert (equal, partial, differ, unrepeatable) == (2, 0, 0, 0), said
    # Other settings of the processor make another image of the same file.
    *counted, said = replayed(capture, directory, "--mm-processor-kwargs", '{"max_pixels": 4096}', length=[])
    assert counted[0] == 0 and counted[-1] == 2
    assert all("other settings of the processor" in line for line in said), said


def test_without_files_a_conversation_is_not_computed_again(model, tmp_path):
    case, directory = model
    capture = tmp_path / "turns.redb"
    server = serve(directory, "--capture", str(capture), "--capture-images", "false")
    try:
        converse(server, case["conversations"][NAME])
        settled(server)
    finally:
        server.stop()
    files = [base64.b64decode(file) for file in SHARED["files"].values()]
    assert not any(file[8:] in capture.read_bytes() for file in files)
    *counted, said = replayed(capture, directory, length=[])
    assert counted[0] == 0 and counted[-1] == 2
    assert all("--capture-images false" in line for line in said), said
