"""NeMo-RL with a server outside of its Ray cluster: its checks at the start, and a refit in the middle of a rollout.

NeMo-RL is not on PyPI: with TITO_TEST_NEMO_RL, which names a checkout of it, its own class reads examples/nemo_rl. These are the calls of its prototype of an external server, read at commit 31a83ec: `RemoteVllmClient` and
`preflight_remote_vllm_service` in nemo_rl/models/generation/remote_vllm, `sync_weights` of its weight synchronizer, and the checks
of tools/external_gym_vllm/run_in_allocation.sh. The rollouts are those of NeMo Gym with `supply_prefix_token_ids`, as recorded in
tests/golden/frameworks.
"""

import importlib.util
import json
import os
import pathlib
import shlex
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml

from conftest import REPOSITORY, note
from control import MODEL, Rollout
from played import recorded

EXAMPLE = REPOSITORY / "examples" / "nemo_rl" / "remote_vllm.yaml"
# Of NeMo-RL, the class that reads `remote_vllm_cfg`.
CLASS_FILE = "nemo_rl/models/generation/remote_vllm/config.py"
# What that class has at commit b8ddf67, and refuses to be without; it refuses every other field.
REQUIRED = {"base_url", "served_model_name", "max_model_len", "refit"}
PATHS = {"/health": "GET", "/v1/models": "GET", "/server_info": "GET", "/pause": "POST", "/resume": "POST", "/collective_rpc": "POST"}
PATHS |= {"/reset_prefix_cache": "POST"}
OPTIONAL = {"control_base_url", "request_timeout_s", "connect_timeout_s", "api_key_env_var"}
OPTIONAL |= {f"{path.rsplit('/', 1)[1]}_path" for path in PATHS}
OF_REFIT = {"checkpoint_dir", "inflight_policy", "timeout_s"}

QUESTIONS = ["Name a volcano.", "Another?", "And where?"]
# Tokens of an answer, of which a few are sampled before the refit.
TOKENS = 24


class Controller:
    """What NeMo-RL's controller asks of the server; like its client, it knows the server by the URL of the API."""

    def __init__(self, base_url):
        self.origin = "{0.scheme}://{0.netloc}".format(urllib.parse.urlsplit(base_url))

    def request(self, method, path, query=None, body=None):
        url = self.origin + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body is not None else {})
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=300) as response:
                return response.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"HTTP {error.code} for {url}: {error.read().decode()}") from error

    def pause(self, mode="keep"):
        self.request("POST", "/pause", query={"mode": mode, "clear_cache": "true"})

    def reload_weights(self, path):
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(path)}}
        self.request("POST", "/collective_rpc", body=body)

    def resume(self):
        self.request("POST", "/resume")

    def sync_weights(self, path):
        """It does not resume what could not be reloaded."""
        self.pause()
        self.reload_weights(path)
        self.resume()


@pytest.fixture
def controller(trained):
    return Controller(f"{trained.url}/v1")


def export(trained, version):
    """A checkpoint under the name that the synchronizer gives it."""
    return trained.checkpoints.write(f"version_{version:08}", version)


class Conversation:
    """The rollout of one agent of Gym."""

    def __init__(self, trained):
        self.trained, self.messages, self.known, self.versions = trained, [], [], []
        # Which fields Gym sets is recorded; two are added, so that an answer is long and says what it is of.
        first = recorded("nemo_gym", "supply_prefix")[0]["body"]
        self.asked = {key: value for key, value in first.items() if key not in ("messages", "tools", "model")}
        self.asked |= {"model": MODEL, "max_tokens": TOKENS, "ignore_eos": True, "return_weight_versions": True}

    def ask(self, question):
        """Sends all messages, and the ids that the prompt has to begin with."""
        self.messages.append({"role": "user", "content": question})
        prefix = {"required_prefix_token_ids": self.known} if self.known else {}
        seed = len(self.messages)
        answer = self.trained.server.post("/v1/chat/completions", messages=self.messages, seed=seed, **self.asked, **prefix)
        choice, continuity = answer["choices"][0], answer["token_continuity"]
        message = choice["message"]
        prompt, ids = message["prompt_token_ids"], message["generation_token_ids"]
        # What VLLMModel of Gym raises an error about.
        assert prompt[: len(self.known)] == self.known, continuity
        assert continuity["outcome"] == ("exact" if self.known else "fresh")
        assert len(ids) == TOKENS
        rollout = Rollout(prompt, ids, message["generation_log_probs"], choice["finish_reason"], choice["weight_versions"])
        self.messages.append(message)
        self.known = prompt + ids
        self.versions.append([span["version"] for span in choice["weight_versions"]])
        return self.trained.check(rollout)


@pytest.fixture
def settings():
    """The settings of the example, which NeMo-RL's own class has read, where it is."""
    written = yaml.safe_load(EXAMPLE.read_text())
    remote = written["policy"]["generation"]["remote_vllm_cfg"]
    assert set(remote) >= REQUIRED and set(remote) <= REQUIRED | OPTIONAL
    assert set(remote["refit"]) <= OF_REFIT and remote["refit"]["inflight_policy"] in ("abort", "wait", "keep")
    assert pathlib.PurePosixPath(remote["refit"]["checkpoint_dir"]).is_absolute()
    if "TITO_TEST_NEMO_RL" not in os.environ:
        note(f"NOT TRIED: NeMo-RL's own class on {EXAMPLE.name}: TITO_TEST_NEMO_RL is no checkout; its fields as written down here")
        return written
    spec = importlib.util.spec_from_file_location("remote_vllm_config", pathlib.Path(os.environ["TITO_TEST_NEMO_RL"]) / CLASS_FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fields = module.RemoteVllmServiceConfig.model_fields
    assert {name for name, field in fields.items() if field.is_required()} == REQUIRED
    assert set(fields) == REQUIRED | OPTIONAL and set(module.RemoteVllmRefitConfig.model_fields) == OF_REFIT
    assert {field.default for name, field in fields.items() if name.endswith("_path")} == set(PATHS)
    module.RemoteVllmServiceConfig.model_validate(remote)
    return written


def test_the_example_is_what_nemo_rl_reads_and_its_command_starts_that_server(settings):
    """NeMo-RL's own checks of the settings (`RemoteVllmGeneration.validate_settings`), and the command that stands above them."""
    generation = settings["policy"]["generation"]
    assert generation["backend"] == "remote_vllm" and not generation["colocated"]["enabled"]
    assert settings["env"]["should_use_nemo_gym"] and not settings["token_capture"]["enabled"]
    comment = [line.removeprefix("#") for line in EXAMPLE.read_text().splitlines() if line.startswith("#   ")]
    command = shlex.split("\n".join(comment))
    remote = generation["remote_vllm_cfg"]
    assert command[:2] == ["tito", "serve"] and command[2] == settings["policy"]["model_name"] == remote["served_model_name"]
    assert command[command.index("--max-model-len") + 1] == str(remote["max_model_len"])
    assert {"--admin-on-main-port", "--insecure-admin"} <= set(command)
    flags = (REPOSITORY / "docs" / "flags.md").read_text()
    assert [flag for flag in command if flag.startswith("--") and f"`{flag}" not in flags] == []


def test_each_path_of_its_settings_is_served(trained):
    for path, method in PATHS.items():
        request = urllib.request.Request(trained.url + path, b"{}" if method == "POST" else None, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            status = urllib.request.urlopen(request, timeout=300).status
        except urllib.error.HTTPError as error:
            status = error.code
        # An empty call of /collective_rpc names no method.
        assert status == (400 if path == "/collective_rpc" else 200), path


def test_the_checks_before_training(controller):
    controller.request("GET", "/health")
    models = json.loads(controller.request("GET", "/v1/models"))["data"]
    assert MODEL in {entry["id"] for entry in models}
    assert isinstance(json.loads(controller.request("GET", "/server_info")), dict)


def test_what_the_probe_of_the_prefix_plugin_says(controller):
    """Prefixes are continued. Tokens are not staged in the trainer's store, and its launcher does not start a capture here."""
    probe = json.loads(controller.request("GET", "/v1/nemo-rl/prefix-token-capability"))
    assert probe["active"] is True
    assert probe["required_prefix_token_ids"] is True
    assert probe["return_token_ids"] is True
    assert probe["stock_chat_routes_replaced"] >= 1
    assert (probe["ng_capture"], probe["external_staging"]) == (False, False)
    bridge = {"bridge_url": "http://127.0.0.1:1", "auth_token": "secret"}
    with pytest.raises(RuntimeError, match="HTTP 404"):
        controller.request("POST", "/v1/nemo-rl/token-capture/configure", body=bridge)


def test_a_turn_goes_on_over_a_refit(controller, trained):
    """The turn keeps its ids, and says which of them are of which weights; so does the next one, which continues it."""
    conversation = Conversation(trained)
    assert conversation.ask(QUESTIONS[0]) == ["base"]
    exported = export(trained, 1)
    with trained.held_with(1):
        running = trained.later(lambda: conversation.ask(QUESTIONS[1]))
    controller.pause()
    controller.reload_weights(exported)
    trained.has_now(exported.name)
    assert not running.done()
    trained.gate.go_on()
    controller.resume()
    assert running.result(300) == ["base", exported.name]
    assert conversation.ask(QUESTIONS[2]) == [exported.name]
    # The first version has the label of vLLM, and others that of their directory.
    assert conversation.versions == [["default"], ["default", "1"], ["1"]]


def test_every_step_has_its_weights(controller, trained):
    conversation = Conversation(trained)
    for step, question in enumerate(QUESTIONS):
        assert conversation.ask(question) == [trained.names[trained.version()]]
        exported = export(trained, step + 1)
        controller.sync_weights(exported)
        trained.has_now(exported.name)


def test_an_export_that_cannot_be_loaded_leaves_the_server_paused(controller, trained):
    """The turn waits, as it would in vLLM, and goes on with the weights that it had, or with the next ones."""
    conversation = Conversation(trained)
    broken, whole = export(trained, 1), export(trained, 2)
    (broken / "model-00002-of-00002.safetensors").unlink()
    with trained.held_with(1):
        running = trained.later(lambda: conversation.ask(QUESTIONS[0]))
    with pytest.raises(RuntimeError, match="HTTP 4"):
        controller.sync_weights(broken)
    assert json.loads(controller.request("GET", "/is_paused")) == {"is_paused": True}
    assert trained.names[trained.version()] == "base"
    trained.gate.go_on()
    assert not running.done()
    controller.sync_weights(whole)
    trained.has_now(whole.name)
    assert running.result(300) == ["base", whole.name]
