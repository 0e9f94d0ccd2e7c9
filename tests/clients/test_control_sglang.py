"""SGLang's calls: miles' engine, unchanged, and those of slime, of which miles is a fork.

miles' class is out of its wheel. slime is not on PyPI: its calls are those of slime/backends/sglang_utils/sglang_engine.py,
external.py and server_control.py, in the order of slime/ray/actor_group.py (commit 624b824 of August 2026).
"""

import concurrent.futures
import json
import os
import pathlib
import types
import urllib.parse

import numpy as np
import pytest
import requests

import deltas
import frameworks
from conftest import Server
from control import LONG, prompt

PACKAGES = ["miles", "miles.backends", "miles.backends.sglang_utils", "miles.ray", "miles.utils"]
# What the package imports on the way; of miles itself, what starts servers and reports of machines.
ABSENT = [
    *["ray", "sglang", "sglang_router", "torch", "miles.backends.megatron_utils", "miles.ray.ray_actor"],
    *["miles.utils.env_report", "miles.utils.http_utils"],
]


@pytest.fixture(scope="module")
def engine_class():
    with frameworks.importing(PACKAGES, ABSENT) as load:
        yield load("miles.backends.sglang_utils.sglang_engine").SGLangEngine


@pytest.fixture
def engine(engine_class, trained):
    engine = engine_class.__new__(engine_class)
    address = urllib.parse.urlsplit(trained.url)
    engine.node_rank, engine.server_host, engine.server_port = 0, address.hostname, address.port
    engine.args = types.SimpleNamespace(rollout_external=True)
    return engine


# --- miles -----------------------------------------------------------------------------------------------------------


def test_steps_of_miles(engine, trained):
    assert engine.health_generate()
    for step, name in enumerate(["base", "one", "two"]):
        if step:
            engine.pause_generation()
            engine.flush_cache()
            engine.update_weights_from_disk(str(trained.checkpoints.write(name, step)))
            engine.update_weight_version(str(step))
            engine.continue_generation()
            assert engine.get_weight_version() == str(step)
            trained.has_now(name)
        for rollout in trained.complete_many(4):
            trained.check(rollout, name)


def test_what_miles_retracts_goes_on_with_the_new_weights(engine, trained):
    running = trained.under_way(*map(prompt, range(4)))
    assert flush(trained).status_code == 400
    engine.pause_generation("retract")
    # Requests that are retracted hold nothing of the cache, so that it can be emptied, and miles need not ask again.
    assert flush(trained).status_code == 200
    engine.flush_cache()
    engine.update_weights_from_disk(str(trained.checkpoints.write("one", 1)))
    engine.continue_generation()
    trained.has_now("one")
    for number, kept in enumerate(running):
        assert len(kept.rollout().ids) == LONG
        assert trained.check(kept.rollout()) == ["base", "one"], number


def test_miles_takes_memory_for_itself_and_gives_it_back(engine, trained):
    engine.release_memory_occupation(["kv_cache"])
    engine.resume_memory_occupation(["kv_cache"])
    trained.check(trained.complete(prompt(1)), "base")


def test_miles_releases_weights_alone_and_sends_them_again(engine, trained):
    """A trainer with `--offload-rollout-level weight` keeps keys and values where they are."""
    engine.release_memory_occupation(["weights"])
    engine.resume_memory_occupation(["weights"])
    early = requests.post(f"{trained.url}/v1/completions", json={"prompt": prompt(1), "max_tokens": 1}, timeout=300)
    assert early.status_code == 503, early.text
    engine.update_weights_from_disk(str(trained.checkpoints.write("one", 1)))
    trained.has_now("one")
    trained.check(trained.complete(prompt(1)), "one")


def test_verl_resumes_weights_before_keys_and_values(trained):
    """`ServerAdapter.release` and `.resume` of verl/workers/rollout/sglang_rollout/sglang_rollout.py (0.9.1)."""
    called(trained, "release_memory_occupation", {"tags": ["kv_cache", "weights"]})
    called(trained, "resume_memory_occupation", {"tags": ["weights"]})
    directory = trained.checkpoints.write("one", 1)
    called(trained, "update_weights_from_disk", {"model_path": str(directory), "load_format": "auto"})
    trained.has_now("one")
    late = trained.later(lambda: trained.complete(prompt(1)))
    assert not late.done()
    called(trained, "resume_memory_occupation", {"tags": ["kv_cache"]})
    trained.check(late.result(300), "one")


def test_an_update_between_a_begin_and_an_end(trained):
    """SGLang 0.5.23: requests under way wait, and go on with the new weights after the end."""
    running = trained.under_way(prompt(0))
    assert called(trained, "begin_weight_update", {"selector": "all"}) == {"success": True, "message": "Success"}
    assert requests.post(f"{trained.url}/begin_weight_update", json={}, timeout=300).status_code == 400
    body = {"model_path": str(trained.checkpoints.write("one", 1)), "weight_version": "1"}
    assert called(trained, "update_weights_from_disk", body)["success"]
    assert trained.version() == trained.label_of("base")
    assert called(trained, "end_weight_update")["success"]
    trained.has_now("one")
    assert trained.version() == "1"
    assert trained.check(running[0].rollout()) == ["base", "one"]
    assert requests.post(f"{trained.url}/end_weight_update", json={}, timeout=300).status_code == 400


def test_weights_by_name_are_the_numbers_of_the_trainer(trained):
    """As SGLang's own tests compare them, with GET and a body."""
    for name, tensor in trained.checkpoints.tensors("base").items():
        answer = requests.get(f"{trained.url}/get_weights_by_name", json={"name": name, "truncate_size": 7}, timeout=300)
        answer.raise_for_status()
        assert np.array_equal(np.array(answer.json(), dtype=np.float32), np.asarray(tensor)[:7].astype(np.float32)), name
    embeddings = called(trained, "get_weights_by_name", {"name": "model.embed_tokens.weight"})
    assert np.shape(embeddings) == (100, trained.checkpoints.tensors("base")["model.embed_tokens.weight"].shape[1])
    unknown = requests.get(f"{trained.url}/get_weights_by_name", json={"name": "none"}, timeout=300)
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "body.name")


def test_sessions_are_refused_with_what_to_do(trained):
    opened = requests.post(f"{trained.url}/open_session", json={"capacity_of_str_len": 1000}, timeout=300)
    assert (opened.status_code, "input_ids" in opened.json()["error"]["message"]) == (501, True)
    closed = requests.post(f"{trained.url}/close_session", json={"session_id": "a"}, timeout=300)
    assert closed.status_code == 400
    assert "session id a does not exist" in closed.json()["error"]["message"]


def test_a_format_of_weights_that_is_not_read_is_refused_by_name(trained):
    body = {"model_path": str(trained.checkpoints.write("one", 1)), "load_format": "dummy"}
    refused = requests.post(f"{trained.url}/update_weights_from_disk", json=body, timeout=300)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "body.load_format")
    trained.check(trained.complete(prompt(1)), "base")


def test_miles_finds_its_own_arguments_in_what_the_server_says(engine, trained):
    """Of an external engine, `_init_external` compares these with what it would have started itself."""
    said = engine.get_server_info()
    expected = {"enable_memory_saver": False, "nnodes": 1, "node_rank": 0, "gpu_id_step": 1}
    expected |= {"tp_size": 1, "dp_size": 1, "pp_size": 1, "ep_size": 1}
    assert {name: said.get(name) for name in expected} == expected


# --- slime -----------------------------------------------------------------------------------------------------------


def called(trained, path, body=None):
    """`_make_request`: whatever is answered is read as JSON."""
    answer = requests.post(f"{trained.url}/{path}", json=body or {}, timeout=300)
    answer.raise_for_status()
    return answer.json()


def flush(trained):
    """`flush_cache`, asked for once: slime asks up to sixty times."""
    return requests.get(f"{trained.url}/flush_cache", timeout=300)


def test_steps_of_slime(trained):
    info = requests.get(f"{trained.url}/server_info", timeout=300).json()
    assert (info["tp_size"], info["pp_size"], info["enable_memory_saver"]) == (1, 1, False)
    assert info.get("disaggregation_mode") not in ("prefill", "decode")
    assert not info.get("encoder_only")
    for step, name in enumerate(["base", "one", "two"]):
        if step:
            directory = trained.checkpoints.write(name, step)
            called(trained, "pause_generation")
            assert flush(trained).status_code == 200
            body = {"model_path": str(directory), "weight_version": str(step)}
            updated = called(trained, "update_weights_from_disk", body)
            assert updated["success"]
            assert updated["message"] == f"Succeeded to update model weights. Weight version updated to {step}."
            version = requests.get(f"{trained.url}/get_weight_version", timeout=300).json()["weight_version"]
            assert version == str(step)
            called(trained, "continue_generation")
            trained.has_now(name)
        for rollout in trained.complete_many(4):
            trained.check(rollout, name)


def test_slime_publishes_deltas(trained):
    """`update_weight_mode: delta`: what changed since the version before is pulled while requests run on."""
    source, local = trained.checkpoints.root / "published", trained.checkpoints.root / "local"
    pulling = {"local_checkpoint_dir": str(local), "source_dir": str(source)}
    assert called(trained, "pull_weights", pulling | {"target_version": 0})["success"]
    for version, (before, name) in enumerate([("base", "one"), ("one", "two"), ("two", "three")], 1):
        old = trained.checkpoints.tensors(before)
        deltas.publish_slime(source, version, old, trained.checkpoints.changed(before, name, version))
        if name == "one":
            # Two versions at once, the next time.
            continue
        assert called(trained, "pull_weights", pulling | {"target_version": version})["success"]
        called(trained, "pause_generation")
        assert flush(trained).status_code == 200
        called(trained, "update_weights_from_disk", {"model_path": str(local), "weight_version": str(version)})
        called(trained, "continue_generation")
        assert trained.version() == str(version)
        trained.has_now(name)
        for rollout in trained.complete_many(4):
            trained.check(rollout, name)


def test_a_delta_that_is_damaged_is_refused_and_leaves_the_old_weights(trained):
    source, local = trained.checkpoints.root / "published", trained.checkpoints.root / "local"
    old = trained.checkpoints.tensors("base")
    deltas.publish_slime(source, 1, old, trained.checkpoints.changed("base", "one", 1))
    [file] = (source / "weight_v000001").glob("*.safetensors")
    data = bytearray(file.read_bytes())
    data[-9] ^= 1
    file.write_bytes(data)
    body = {"local_checkpoint_dir": str(local), "source_dir": str(source), "target_version": 1}
    answers = [requests.post(f"{trained.url}/pull_weights", json=body, timeout=300)]
    body = {"model_path": str(local), "weight_version": "1"}
    answers.append(requests.post(f"{trained.url}/update_weights_from_disk", json=body, timeout=300))
    # It is found when the files are looked at, or at the latest when they are applied.
    assert [answer.status_code for answer in answers] in ([200, 400], [400, 400])
    trained.check(trained.complete(prompt(1)), "base")


def test_a_delta_of_a_few_numbers_leads_to_the_checkpoint_of_its_version(tmp_path):
    """In bf16, and in f32, of the real model: tensors that share a matrix, embeddings that are the head too, and norms."""
    model = pathlib.Path(os.environ["TITO_TEST_MODEL"])
    data = np.fromfile(model / "model.safetensors", "u1")
    begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:begin].tobytes())
    header.pop("__metadata__", None)
    places = {name: slice(*(begin + offset for offset in entry["data_offsets"])) for name, entry in header.items()}
    new, numbers = data.copy(), np.random.default_rng(0)
    for place in places.values():
        picks = numbers.choice((place.stop - place.start) // 2, (place.stop - place.start) // 400 + 1, replace=False)
        new[place][2 * picks] ^= 1
    (tmp_path / "new").mkdir()
    new.tofile(tmp_path / "new" / "model.safetensors")
    before, after = ({name: whole[place] for name, place in places.items()} for whole in (data, new))
    deltas.publish_slime(tmp_path, 1, before, after)
    for dtype in ("bfloat16", "float32"):
        server = Server("--dtype", dtype, "--admin-on-main-port", "--insecure-admin")

        def update(directory, server=server):
            server.post("/update_weights", weight_dir=str(directory))
            return server.post("/weight_checker", action="checksum")["checksums"]

        by_delta = update(tmp_path / "weight_v000001")
        by_checkpoint = update(tmp_path / "new")
        assert by_delta == by_checkpoint
        assert not set(by_delta.items()) & set(update(model).items())
        server.stop()


def test_slimes_pause_ends_what_runs_and_has_others_wait(trained):
    running = trained.under_way(*map(prompt, range(4)))
    assert flush(trained).status_code == 400
    called(trained, "pause_generation")
    for aborted in running:
        assert aborted.rollout().finish_reason == "abort"
        trained.check(aborted.rollout(), "base")
    assert flush(trained).status_code == 200
    late = trained.later(lambda: trained.complete(prompt(1)))
    assert not late.done()
    called(trained, "continue_generation")
    trained.check(late.result(300), "base")


def test_slime_aborts_until_nothing_runs(trained):
    """`abort_servers_until_idle`, at the end of a step that has enough samples."""
    running = trained.under_way(*map(prompt, range(4)))
    loads = requests.get(f"{trained.url}/v1/loads?include=core", timeout=300).json()
    assert loads["num_running_reqs"] + loads["num_waiting_reqs"] == 4
    requests.post(f"{trained.url}/abort_request", json={"abort_all": True}, timeout=300).raise_for_status()
    assert [one.rollout().finish_reason for one in running] == ["abort"] * 4

    def idle():
        loads = requests.get(f"{trained.url}/v1/loads?include=core", timeout=300).json()
        return loads["num_running_reqs"] + loads["num_waiting_reqs"] == 0

    trained.server.poll("nothing runs", idle)
    trained.check(trained.complete(prompt(1)), "base")


def test_a_failure_is_told_in_sglangs_words_and_leaves_the_old_weights(trained):
    called(trained, "pause_generation")
    body = {"model_path": str(trained.checkpoints.root / "none"), "weight_version": "1"}
    refused = requests.post(f"{trained.url}/update_weights_from_disk", json=body, timeout=300)
    assert refused.status_code == 400
    assert refused.json()["success"] is False
    assert refused.json()["message"].startswith("Failed to update weights: ")
    called(trained, "continue_generation")
    assert requests.get(f"{trained.url}/model_info", timeout=300).json()["weight_version"] == trained.label_of("base")
    trained.check(trained.complete(prompt(1)), "base")


def test_many_clients_poll_while_weights_change(trained):
    """Health, models and metrics are answered at all times."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        polling = [pool.submit(poll, trained) for _ in range(2)]
        for step in range(1, 6):
            called(trained, "pause_generation")
            body = {"model_path": str(trained.checkpoints.write(f"step {step}", step)), "weight_version": str(step)}
            called(trained, "update_weights_from_disk", body)
            called(trained, "continue_generation")
        assert all(future.result() == {200} for future in polling)
    assert trained.version() == "5"


def poll(trained):
    paths = ["/health", "/health_generate", "/v1/models", "/metrics", "/is_paused", "/weight_info"]
    return {requests.get(trained.url + path, timeout=300).status_code for _ in range(5) for path in paths}
