"""AReaL's RemotevLLMEngine, unchanged, drives the server through updates of its weights from a disk."""

import asyncio
import concurrent.futures
import sys

import pytest
import requests

import frameworks
from control import HELD, LONG, Rollout, Trained, prompt

PACKAGES = ["areal", "areal.engine", "areal.infra", "areal.infra.utils", "areal.utils"]
# What the packages import on the way. Of AReaL itself: its executor of workflows, and its logs and clocks.
ABSENT = [
    *["PIL", "hydra", "lark", "numba", "omegaconf", "ray", "torch", "torchdata", "transformers", "uvloop"],
    *["areal.engine.fsdp_utils", "areal.infra.platforms", "areal.infra.utils.launcher", "areal.infra.utils.proc"],
    *["areal.infra.workflow_executor", "areal.utils.data", "areal.utils.logging", "areal.utils.name_resolve"],
    *["areal.utils.perf_tracer", "areal.utils.stats_tracker"],
]


class Executor:
    """Of AReaL's executor of workflows, what its client asks: whether workflows are paused."""

    def __init__(self, **_):
        self.paused = False

    def initialize(self, **_):
        """There are no workflows."""

    def destroy(self):
        """There are no workflows."""

    def is_paused(self):
        return self.paused


class Areal:
    """The modules that a test needs."""

    def __init__(self, load):
        self.remote = load("areal.infra.remote_inf_engine")
        # What stands in for uvloop and for the trainer's note of when a checkpoint was written.
        self.remote.uvloop.run = asyncio.run
        self.remote.name_resolve.wait = lambda *_, **__: "0"
        self.remote.WorkflowExecutor = Executor
        sys.modules["areal.infra"].RemoteInfEngine = self.remote.RemoteInfEngine
        self.vllm = load("areal.engine.vllm_remote")
        self.api = load("areal.api.cli_args")
        self.shapes = load("areal.api.io_struct")
        self.sessions = load("areal.infra.workflow_context")

    def engine(self, trained, **settings):
        config = self.api.InferenceEngineConfig(experiment_name="e", trial_name="t", backend="vllm:d1", **settings)
        engine = self.vllm.RemotevLLMEngine(config)
        engine.initialize("0", trained.url.removeprefix("http://"), train_data_parallel_size=1)
        return engine

    def generate(self, engine, ids, tokens, **settings):
        """Its `agenerate`, which sends what an abort left unfinished again."""

        async def ask():
            generation = self.api.GenerationHyperparameters(max_new_tokens=tokens, ignore_eos=True, **settings)
            request = self.shapes.ModelRequest(input_ids=list(ids), gconfig=generation)
            return await engine.agenerate(request)

        return asyncio.run(ask())

    def update(self, engine, directory, version):
        """What AReaL's trainer does between two steps."""
        meta = self.shapes.WeightUpdateMeta(type="disk", path=str(directory), clear_checkpoint_after_load=False)
        engine.pause_generation()
        engine.update_weights_from_disk(meta).result(300)
        engine.set_version(version)
        engine.continue_generation()


@pytest.fixture(scope="module")
def areal():
    with frameworks.importing(PACKAGES, ABSENT) as load:
        yield Areal(load)


@pytest.fixture
def engine(areal, trained):
    engine = areal.engine(trained)
    yield engine
    engine.destroy()


@pytest.fixture
def adapted(tmp_path):
    adapted = Trained(tmp_path, "--enable-lora", "--max-loras", "4")
    yield adapted
    adapted.stop()


@pytest.fixture
def adapting(areal, adapted):
    """Its engine of a trainer that trains adapters."""
    engine = areal.engine(adapted, use_lora=True)
    yield engine
    engine.destroy()


def test_a_few_steps(areal, engine, trained):
    names = ["base", "one", "two"]
    for version, name in enumerate(names):
        if version:
            areal.update(engine, trained.checkpoints.write(name, version), version)
            trained.has_now(name)
        for number in range(3):
            answer = areal.generate(engine, prompt(number), 12)
            assert answer.stop_reason == "length"
            assert answer.output_versions == [version] * 12
            trained.check(Rollout(prompt(number), answer.output_tokens, answer.output_logprobs), name)


def test_what_is_aborted_goes_on_with_the_new_weights(areal, engine, trained):
    """The client sends the prompt and what came of the answer again, and labels each part with its version."""
    checkpoint = trained.checkpoints.write("one", 1)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        with trained.held_with(4):
            running = [pool.submit(areal.generate, engine, prompt(number), LONG) for number in range(4)]
        areal.update(engine, checkpoint, 1)
        trained.gate.go_on()
        cuts = []
        for number, future in enumerate(running):
            answer = future.result(300)
            assert len(answer.output_tokens) == LONG
            assert answer.stop_reason == "length"
            rollout = Rollout(prompt(number), answer.output_tokens, answer.output_logprobs)
            old = trained.cut(rollout, "base", "one")
            cuts.append(old)
            # The client labels what it gets with the version that it knows at that time, which may be newer.
            assert answer.output_versions == sorted(answer.output_versions)
            assert answer.output_versions.count(0) <= old
        assert min(cuts) >= HELD - 1
        assert max(cuts) < LONG


def test_a_request_during_the_pause_waits(areal, engine, trained):
    """Where vLLM 0.33 would answer 503, which its client takes for a failure."""
    engine.pause_generation()
    late = trained.later(lambda: areal.generate(engine, prompt(1), 12))
    assert not late.done()
    engine.continue_generation()
    answer = late.result(300)
    trained.check(Rollout(prompt(1), answer.output_tokens, answer.output_logprobs), "base")


def test_a_checkpoint_that_cannot_be_loaded(areal, engine, trained):
    partial = trained.checkpoints.write("partial", 1)
    (partial / "model-00002-of-00002.safetensors").unlink()
    meta = areal.shapes.WeightUpdateMeta(type="disk", path=str(partial), clear_checkpoint_after_load=False)
    engine.pause_generation()
    with pytest.raises(RuntimeError, match="/areal_update_weights"):
        engine.update_weights_from_disk(meta).result(300)
    engine.continue_generation()
    answer = areal.generate(engine, prompt(1), 12)
    trained.check(Rollout(prompt(1), answer.output_tokens, answer.output_logprobs), "base")


def test_memory_is_given_back_and_taken_again(areal, engine, trained):
    engine.offload()
    engine.onload(["weights", "kv_cache"])
    answer = areal.generate(engine, prompt(1), 12)
    trained.check(Rollout(prompt(1), answer.output_tokens, answer.output_logprobs), "base")


def test_an_adapter_of_each_step(areal, adapting, adapted):
    """The client loads each version under a name of its own, and asks for the newest."""
    for version in [1, 2]:
        name = f"policy-v{version}"
        directory = adapted.checkpoints.write_adapter(name, version)
        adapted.names[f"{name}@1"] = name
        meta = areal.shapes.WeightUpdateMeta(
            type="disk", path=str(directory), use_lora=True, lora_name="policy", version=version, clear_checkpoint_after_load=False
        )
        adapting.update_weights_from_disk(meta).result(300)
        adapting.set_version(version)
        answer = areal.generate(adapting, prompt(version), 12, lora_name="policy")
        assert answer.output_versions == [version] * 12
        adapted.check(Rollout(prompt(version), answer.output_tokens, answer.output_logprobs), name)


def update_in_place(adapted, directory):
    """The call that AReaL's own server for vLLM adds; no client in the package makes it any more."""
    body = {"lora_name": "policy-v0", "lora_model_path": str(directory), "lora_int_id": 1, "base_model_name": "base"}
    return requests.post(f"{adapted.url}/areal_update_weights_lora", json=body, timeout=300)


def test_an_adapter_in_place_ends_what_runs(areal, adapting, adapted):
    for version, name in enumerate(["one", "two"], 1):
        adapted.names[f"policy-v0@{version}"] = name
        directory = adapted.checkpoints.write_adapter(name, version)
        running = adapted.under_way(prompt(0), model="policy-v0") if version > 1 else []
        answer = update_in_place(adapted, directory)
        assert (answer.status_code, answer.json()) == (200, {"success": True, "message": "TP rank: 0 success\n"})
        for ended in [one.rollout() for one in running]:
            assert ended.finish_reason == "abort"
            assert 0 < len(ended.ids) < LONG
            assert adapted.check(ended) == ["one"]
        answer = areal.generate(adapting, prompt(version), 12, lora_name="policy")
        adapted.check(Rollout(prompt(version), answer.output_tokens, answer.output_logprobs), name)


def test_an_adapter_that_cannot_be_loaded_leaves_the_one_that_is(areal, adapting, adapted):
    adapted.names["policy-v0@1"] = "one"
    assert update_in_place(adapted, adapted.checkpoints.write_adapter("one", 1)).json()["success"]
    partial = adapted.checkpoints.write_adapter("partial", 2)
    (partial / "adapter_model.safetensors").unlink()
    answer = update_in_place(adapted, partial)
    assert answer.status_code == 400
    assert answer.json()["success"] is False
    assert answer.json()["message"].startswith("TP rank: 0 failed. reason: ")
    answer = areal.generate(adapting, prompt(1), 12, lora_name="policy")
    adapted.check(Rollout(prompt(1), answer.output_tokens, answer.output_logprobs), "one")
