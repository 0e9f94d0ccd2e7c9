"""Models of many families, served by the native engine: log-probs are those of transformers, before and after an update."""

import json

import pytest
import requests

from conftest import REPOSITORY, Server
from drawn_models import deviation, write

GOLDEN = REPOSITORY / "tests" / "golden"
# In float32, as in the engine's own tests.
TOLERANCE = 1e-4
ADMIN = ["--admin-on-main-port", "--insecure-admin"]
# One of each kind of tensors: of their own, joined, stacked, turned, taken apart for heads, of recurrent states, of single
# numbers, tables that are norms, and of some layers only.
FAMILIES = [
    "families/apertus_plain",
    "families/cohere_qk_norm",
    "families/deepseek_v3_plain",
    "families/ernie4_5_moe_plain",
    "families/gemma3_published",
    "families/gemma4_everything",
    "families/gemma4_experts",
    "families/granitemoeshared_plain",
    "families/kimi_linear_plain",
    "families/lfm2_moe_plain",
    "families/llama4_two_experts",
    "families/minimax_m2_plain",
    "families/mistral4_plain",
    "families/nemotron_h_experts",
    "families/olmo3_plain",
    "families/qwen3_next_plain",
    "mistralrs/glm4_moe_qk_norm",
    "mistralrs/gpt_oss",
    "mistralrs/phi3_partial_rotary",
]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_served_and_takes_new_weights(name, tmp_path):
    case = json.loads((GOLDEN / f"{name}.json").read_text())
    first, second = tmp_path / "first", tmp_path / "second"
    for directory, seed in ((first, case["seed"] + 1000), (second, None)):
        directory.mkdir()
        write(directory, case, seed)
    server = Server("--dtype", "float32", *ADMIN, model=str(first))

    def checksums():
        answer = requests.post(f"{server.url}/weight_checker", json={"action": "checksum"}, timeout=300)
        answer.raise_for_status()
        return answer.json()["checksums"]

    def update(directory):
        body = {"weight_dir": str(directory)}
        requests.post(f"{server.url}/update_weights", json=body, timeout=300).raise_for_status()

    of_first = checksums()
    assert set(of_first) == set(case["tensors"])
    with pytest.raises(AssertionError):
        assert deviation(server, case) <= TOLERANCE
    update(second)
    assert deviation(server, case) <= TOLERANCE
    of_second = checksums()
    update(first)
    assert checksums() == of_first != of_second
    server.stop()
    # What the server reads back of its matrices is what another one loads.
    server = Server("--dtype", "float32", *ADMIN, model=str(second))
    assert checksums() == of_second
    assert deviation(server, case) <= TOLERANCE
    server.stop()
