"""The rollout of examples/verl, by verl's own configuration and classes, unchanged; see tests/clients/frameworks.py.

Ray's other processes have no torch: here, what would be an actor of theirs runs in the process of the test. The servers are
actors of Ray as ever.
"""

import asyncio
import os
import pathlib
import sys
import types

import httpx
import numpy as np
import policy
import pytest
import yaml
from conftest import FLAGS, REPOSITORY, Policy, poll
from rollouts import TOLERANCE, kill

sys.path.append(str(REPOSITORY / "tests" / "clients"))
import frameworks  # noqa: E402

# Of Hydra, about OmegaConf.
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}:hydra") for kind in ("UserWarning", "FutureWarning")]
EXAMPLE = REPOSITORY / "examples" / "verl"
PACKAGES = ["verl", "verl.single_controller", "verl.trainer", "verl.utils", "verl.workers"]
PACKAGES += ["verl.workers.rollout"]
# What the modules import on the way.
ABSENT = ["cachetools", "codetiming", "orjson", "tensordict", "torch", "transformers", "verl.protocol", "verl.single_controller.ray"]
ABSENT += ["nvtx", "torch_npu", "verl.utils.device", "verl.utils.fs", "verl.utils.model", "verl.utils.tokenizer"]
LENGTHS = {"prompt_length": 256, "response_length": 8, "max_model_len": FLAGS["max_model_len"]}


@pytest.fixture(scope="module")
def verl():
    with frameworks.importing(PACKAGES, ABSENT) as load:
        sys.path.insert(0, str(EXAMPLE))
        try:
            yield types.SimpleNamespace(
                replica=load("verl.workers.rollout.replica"),
                config=load("verl.workers.config.rollout"),
                example=load("tito_verl"),
            )
        finally:
            sys.path.remove(str(EXAMPLE))
            sys.modules.pop("tito_verl", None)


def composed(*overrides):
    """What verl's trainers get from Hydra, by the options of the example's README."""
    import hydra

    configuration = pathlib.Path(os.environ["TITO_TEST_FRAMEWORKS"]) / "verl" / "trainer" / "config"
    chosen = [f"hydra.searchpath=[file://{EXAMPLE}]", "rollout@actor_rollout_ref.rollout=tito"]
    with hydra.initialize_config_dir(str(configuration.resolve()), version_base=None):
        return hydra.compose("ppo_trainer", overrides=[*chosen, *overrides]).actor_rollout_ref


def read(*overrides):
    """The rollout's settings as verl's class for them."""
    from hydra.utils import instantiate

    return instantiate(composed(*overrides).rollout, _convert_="partial")


def small():
    """Overrides as a command line has them, for a server of the tests; what no file has is added by a plus."""
    own = {"cpus": 0.5, "gpus": 0, "kv_cache_memory_bytes": FLAGS["kv_cache_memory_bytes"], "binary": os.environ["TITO_BIN"]}
    changes = {**LENGTHS, "dtype": FLAGS["dtype"], "n_gpus_per_node": 1}
    return [f"actor_rollout_ref.rollout.{name}={value}" for name, value in changes.items()] + [
        f"+actor_rollout_ref.rollout.engine_kwargs.tito.{name}={value}" for name, value in own.items()
    ]


def test_the_file_is_read_by_verls_own_class(verl):
    config = read()
    assert type(config) is verl.config.RolloutConfig
    written = yaml.safe_load((EXAMPLE / "rollout" / "tito.yaml").read_text())
    del written["defaults"]
    own = written.pop("engine_kwargs")["tito"]
    assert {name: getattr(config, name) for name in written} == written
    assert config.engine_kwargs["tito"] == own
    # A setting that verl does not have is an error of Hydra, or of the class.
    with pytest.raises(Exception, match="no_such"):
        read("actor_rollout_ref.rollout.no_such=1")
    with pytest.raises(Exception, match="no_such"):
        read("+actor_rollout_ref.rollout.no_such=1")


def test_what_the_server_is_started_with(verl):
    replicas, flags = verl.example.settings(read(), "Qwen/Qwen3-0.6B")
    assert replicas == {"gpus": 1}
    told = {"dtype": "bfloat16", "max_model_len": 4096, "max_num_seqs": 256, "logprobs_mode": "processed_logprobs"}
    assert flags == {**told, "served_model_name": "Qwen/Qwen3-0.6B", "enable_auto_tool_choice": True, "tool_call_parser": "hermes"}
    known = (REPOSITORY / "docs" / "flags.md").read_text()
    assert [flag for flag in flags if f"`--{flag.replace('_', '-')}" not in known] == []


@pytest.mark.parametrize(
    "setting",
    ["tensor_model_parallel_size=2", "data_parallel_size=2", "quantization=fp8", "full_determinism=true", "enable_rollout_routing_replay=true"],
)
def test_what_would_be_ignored_is_refused(verl, setting):
    with pytest.raises(ValueError, match=f"rollout.{setting.split('=')[0]}: a replica of `tito` is one plain server"):
        verl.example.settings(read(f"actor_rollout_ref.rollout.{setting}"), "m")


class Handle:
    """Of an actor, here in the process of the test."""

    def __init__(self, made):
        self.generate = types.SimpleNamespace(remote=made.generate)


def in_this_process(verl, monkeypatch):
    def remote(kind):
        return types.SimpleNamespace(options=lambda **_: types.SimpleNamespace(remote=lambda *given: Handle(kind(*given))))

    monkeypatch.setattr(verl.example, "ray", types.SimpleNamespace(remote=remote))


def test_verl_starts_a_server_and_generates(verl, tmp_path, monkeypatch):
    trainer = Policy(tmp_path)
    in_this_process(verl, monkeypatch)
    config = read(*small())
    replica = verl.replica.get_rollout_replica_class(config.name)(0, config, {"path": str(trainer.model)}, gpus_per_node=1)
    # As verl's agent loops ask, but that these leave `max_tokens` out.
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}

    async def generate(**changes):
        asked = {"prompt_ids": [5, 6, 7], "sampling_params": dict(sampling), "request_id": "1", "image_data": None, **changes}
        return await replica.server_handle.generate.remote(**asked)

    async def tried():
        with pytest.raises(NotImplementedError, match="hands weights over in GPU memory"):
            await replica.init_hybrid(None)
        await replica.init_standalone()
        sampled = await generate()
        with pytest.raises(ValueError, match="image_data: the rollout `tito` does not pass it on"):
            await generate(image_data=["picture"])
        with pytest.raises(ValueError, match="no_such: the rollout `tito` does not pass it on"):
            await generate(sampling_params={"no_such": 1})
        with pytest.raises(ValueError, match="leaves no room in the model's 512"):
            await generate(prompt_ids=[5] * LENGTHS["max_model_len"])
        with pytest.raises(RuntimeError, match="400: .*temperature"):
            await generate(sampling_params={"temperature": -1})
        with pytest.raises(NotImplementedError, match="hands weights over in GPU memory"):
            await replica.abort_all_requests()
        # As verl.trainer.main_generation_server asks: the model has the name of its path.
        chat = {"model": str(trainer.model), "messages": [{"role": "user", "content": "what is it"}], "max_tokens": 4}
        async with httpx.AsyncClient(timeout=600, trust_env=False) as client:
            answer = await client.post(f"http://{replica.server_address}/v1/chat/completions", json=chat)
        assert answer.json()["usage"]["completion_tokens"] == 4
        # A server that died is there again, at another address.
        kill(replica._replicas, 0)
        poll("the death is seen", lambda: replica._replicas.states()[0].restarts == 1)
        await asyncio.to_thread(replica._replicas.wait, 600)
        assert len((await generate()).token_ids) == LENGTHS["response_length"]
        return sampled

    try:
        sampled = asyncio.run(tried())
    finally:
        replica._replicas.stop()
    assert sampled.stop_reason == "completed" and len(sampled.token_ids) == LENGTHS["response_length"]
    scored = policy.log_probs(trainer.weights["default"], np.array([[5, 6, 7, *sampled.token_ids]]))[0][2:]
    assert np.abs(scored - np.array(sampled.log_probs)).max() < TOLERANCE
