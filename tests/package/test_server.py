"""The module of the wheel: servers that it starts and stops, and the calls of the control plane."""

import json
import pickle
import subprocess
import sys
import urllib.request

import pytest
from conftest import REPOSITORY, run

DOCUMENT = json.loads((REPOSITORY / "openapi" / "control-plane.json").read_text())
FLAGS = {"served_model_name": ["smollm2", "other"], "engine": "native", "max_model_len": 2048}


@pytest.fixture(scope="module")
def server(tito, model):
    with tito.Server(model, admin_port=0, admin_api_key="key", **FLAGS) as server:
        yield server


def assert_passes_to_other_processes(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_a_server_of_the_installed_program_serves(server, tito, wheel):
    assert tito.program() == wheel / "bin" / "tito"
    assert server.url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(f"{server.url}/v1/models") as response:
        models = json.load(response)
    assert [model["id"] for model in models["data"]] == ["smollm2", "other"]


def test_the_control_plane_pauses_and_says_what_samples(server, tito):
    admin = server.admin
    assert admin.pause(mode="keep", clear_cache=False) == {"status": "paused"}
    assert admin.is_paused() == {"is_paused": True}
    assert admin.resume() == {"status": "resumed"}
    assert admin.update_weight_version(new_version="step-7")["new_version"] == "step-7"
    assert admin.weight_info() == {"weight_version": "step-7", "updates": 0}
    with pytest.raises(tito.Refused, match="/update_weights: 400 .*update_info"):
        admin.update_weights()
    with pytest.raises(tito.Refused) as refused:
        tito.Admin(admin.url).resume()
    assert refused.value.status == 401
    assert_passes_to_other_processes(refused.value)


def test_weights_come_from_a_directory_and_as_bytes(server, model):
    admin = server.admin
    assert admin.update_weights(weight_dir=str(model), weight_version="7")["weight_version"] == "7"
    with (model / "model.safetensors").open("rb") as body:
        assert admin.update_weights_from_bytes(body, weight_version="8")["weight_version"] == "8"
    sums = admin.weight_checker(action="checksum")["checksums"]
    assert admin.weight_checker(action="compare", baseline=sums) == {"match": True, "mismatches": []}


# What a call is asked with, where it needs something.
WITH = {"update_weight_version": {"new_version": "a"}, "weight_checker": {"action": "checksum"}}
OF_AN_UPDATE = {"update_weights", "finish_weight_update"}
CALLS = [call["operationId"] for verbs in DOCUMENT["paths"].values() for call in verbs.values()]


def fields(name):
    """Those that an answer of this name must have, and may have."""
    schema = DOCUMENT["components"]["schemas"][name]
    return set(schema.get("required", [])), set(schema["properties"])


@pytest.mark.parametrize("call", [call for call in CALLS if call not in OF_AN_UPDATE])
def test_a_call_answers_what_its_type_says(server, tito, call):
    method = getattr(server.admin, call)
    answer = method(**WITH.get(call, {}))
    needed, known = fields(method.__annotations__["return"].__name__)
    assert needed <= set(answer) <= known
    if call == "start_weight_update":
        with pytest.raises(tito.Refused, match="400"):
            server.admin.finish_weight_update()
    # Whatever it has stopped.
    server.admin.wake_up()
    server.admin.resume()


def test_a_server_without_a_control_plane_says_how_to_open_it(tito, model):
    with tito.Server(model, **FLAGS) as server, pytest.raises(RuntimeError, match="admin_port=0"):
        server.admin  # noqa: B018


def test_the_end_of_the_log_says_why_a_server_did_not_start(tito, tmp_path):
    with pytest.raises(tito.StartError, match="no-such-model") as failed:
        tito.Server(tmp_path / "no-such-model")
    assert failed.value.status == 1 and "no-such-model" in failed.value.log
    assert_passes_to_other_processes(failed.value)
    with pytest.raises(tito.StartError, match="--max-model-len"):
        tito.Server(tmp_path, max_model_lem=1)
    with pytest.raises(FileNotFoundError):
        tito.Server(tmp_path, binary=tmp_path / "no-program")


def program(tmp_path, *lines):
    """A program that does this instead of serving."""
    path = tmp_path / "program"
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return path


def test_only_a_whole_line_of_the_server_is_its_address(tito, tmp_path):
    says = [
        "echo 'warning: tito 1 | a | http://wrong:1'",
        "echo 'a model | of | http://wrong:2'",
        "printf 'tito 1 | a | http://127.0.0.1:'",
        "echo '3'",
        # As much as a pipe does not hold.
        "head -c 200000 /dev/zero",
        "exec tail -f /dev/null",
    ]
    with tito.Server("a", binary=program(tmp_path, *says)) as server:
        assert server.url == "http://127.0.0.1:3"
    assert not server.log_file.exists()


def test_what_does_not_end_is_killed(tito, tmp_path):
    # What ignores a signal hands that on.
    stays = program(tmp_path, "trap '' TERM", "echo 'tito 1 | a | http://a'", "exec tail -f /dev/null")
    server = tito.Server("a", binary=stays, stop_seconds=0)
    assert server.stop() == -9
    assert server.stop() == -9


def test_what_is_not_ready_in_time_is_killed(tito, tmp_path):
    waits = program(tmp_path, "echo waiting", "exec tail -f /dev/null")
    log = tmp_path / "log"
    with pytest.raises(tito.StartError, match="not ready") as failed:
        tito.Server("a", binary=waits, start_seconds=0, log_file=log)
    assert failed.value.status is None
    assert log.exists()


def test_arguments_are_flags(tito):
    from tito._server import arguments

    given = {"a_b": 1, "on": True, "off": False, "left": None, "many": ["x", "y"], "json": {"k": [1]}, "path": "-v"}
    assert arguments(given) == ["--a-b=1", "--on", "--no-off", "--many", "x", "y", '--json={"k": [1]}', "--path=-v"]
    for wrong in ([], ["-x"]):
        with pytest.raises(ValueError, match="many"):
            arguments({"many": wrong})
    with pytest.raises(TypeError, match="odd: .* object"):
        arguments({"odd": object()})


def test_the_calls_are_what_the_document_says(tmp_path):
    other = json.loads((REPOSITORY / "openapi" / "openapi.json").read_text())
    assert DOCUMENT["info"]["version"] == other["info"]["version"]
    run(REPOSITORY / "scripts" / "python-calls", tmp_path / "calls.py")
    assert (tmp_path / "calls.py").read_text() == (REPOSITORY / "python" / "tito" / "_calls.py").read_text()


def test_the_module_is_typed(tmp_path):
    use = tmp_path / "use.py"
    lines = ["import tito", "with tito.Server('a', api_key=['b']) as s:"]
    lines += ["    reveal_type(s.admin.weight_info()['updates'])"]
    use.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    run(*command, REPOSITORY / "python" / "tito")
    done = subprocess.run(
        [*command, str(use)],
        env={"MYPYPATH": str(REPOSITORY / "python"), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'Revealed type is "int"' in done.stdout.replace("builtins.", ""), done.stdout + done.stderr
