"""SkyRL's two clients, unchanged: the one that drives a transfer of weights, and the one for all else."""

import asyncio

import aiohttp
import pytest

import deltas
import frameworks
from control import LONG, MODEL, Rollout, Trained, prompt

ROOT = "skyrl.backends.skyrl_train"
PACKAGES = [
    *["skyrl", "skyrl.backends", ROOT, f"{ROOT}.inference_servers", f"{ROOT}.utils", f"{ROOT}.weight_sync"],
]
# What the packages import on the way, and the classes in question never use.
ABSENT = ["pybase64", "torch", f"{ROOT}.distributed", "skyrl.utils"]


@pytest.fixture(scope="module")
def skyrl():
    with frameworks.importing(PACKAGES, ABSENT) as load:
        yield (
            load(f"{ROOT}.weight_sync.control_plane"),
            load(f"{ROOT}.inference_servers.remote_inference_client"),
        )


@pytest.fixture
def sync(skyrl, trained):
    client = skyrl[0].SkyrlWeightSyncClient([trained.url])
    yield client
    client.close()


class Client:
    """The asynchronous client, called from tests that are not."""

    def __init__(self, module, url):
        self.make = lambda: module.RemoteInferenceClient(url, [url], data_parallel_size=1, model_name=MODEL)

    def call(self, name, *arguments, **named):
        async def ask():
            client = self.make()
            try:
                return await getattr(client, name)(*arguments, **named)
            finally:
                await client.teardown()

        return asyncio.run(ask())

    def rollout(self, ids, salt=None, **sampling):
        async def ask():
            client = self.make()._get_generate_client()
            try:
                parameters = {"max_tokens": 12, "temperature": 1.0, "logprobs": 1, "ignore_eos": True, **sampling}
                return await client.generate(
                    prompt_token_ids=ids, sampling_params=parameters, session_id="s", model=MODEL, cache_salt=salt
                )
            finally:
                await client.aclose()

        answer = asyncio.run(ask())
        versions = answer.raw_response["choices"][0].get("weight_versions")
        return Rollout(ids, answer.response_ids, answer.response_logprobs, answer.stop_reason, versions)


@pytest.fixture
def client(skyrl, trained):
    return Client(skyrl[1], trained.url)


def update(sync, directory, version=None):
    """The phases that vLLM's trainer engines drive this client through, between pause and resume."""
    sync.pause_generation()
    try:
        sync.reset_prefix_cache(reset_running_requests=True)
        sync.start_weight_update()
        sync.update_weights({"weight_dir": str(directory)})
        sync.finish_weight_update(weight_version=version)
    finally:
        sync.resume_generation()


def test_a_few_steps_under_the_versions_that_the_trainer_names(sync, client, trained):
    assert client.call("get_world_size") == (1, 1)
    sync.init_weight_transfer_engine({"base_model_path": str(trained.checkpoints.base)})
    for step, name in enumerate(["base", "one", "two"]):
        if step:
            update(sync, trained.checkpoints.write(name, step), version=f"step-{step}")
            assert trained.version() == f"step-{step}"
            trained.has_now(name)
        for number in range(3):
            assert trained.check(client.rollout(prompt(number), salt=str(step), seed=number)) == [name]


def test_what_is_in_flight_goes_on_with_the_new_weights(sync, trained):
    [running] = trained.under_way(prompt(0))
    update(sync, trained.checkpoints.write("one", 1), version="7")
    trained.has_now("one")
    kept = running.rollout()
    assert len(kept.ids) == LONG
    assert trained.check(kept) == ["base", "one"]
    assert kept.versions[1]["version"] == "7"


def test_deltas_are_fetched_while_requests_run_and_loaded_in_a_pause(sync, client, trained):
    """The calls of weight_sync/delta/trainer.py, `_apply_receiver_update`; SkyRL names no version there."""
    published = trained.checkpoints.root / "published"
    local = {"base_model_path": str(trained.checkpoints.base), "local_checkpoint_dir": str(published / "local")}
    sync.init_weight_transfer_engine(local | {"checkpoint_load_format": "vllm_multi_thread_safetensors"})
    for version, (before, name) in enumerate([("base", "one"), ("one", "two")], 1):
        old = trained.checkpoints.tensors(before)
        update_info = deltas.publish_skyrl(published, version, old, trained.checkpoints.changed(before, name, version))
        [running] = trained.under_way(prompt(0))
        sync.fetch_weights(target_version=version, sync_dir=update_info["sync_dir"], uri=update_info["uri"])
        assert not running.future.done()
        sync.pause_generation()
        sync.reset_prefix_cache(reset_running_requests=True)
        sync.start_weight_update()
        sync.update_weights(update_info)
        sync.finish_weight_update()
        sync.resume_generation()
        trained.has_now(name)
        assert trained.cut(running.rollout(), before, name) < LONG
        for number in range(3):
            trained.check(client.rollout(prompt(number)), name)


def test_parts_of_an_update_come_one_after_the_other(sync, trained):
    """Each chunk is a call of its own; all of them together are one new version."""
    directory = trained.checkpoints.write("one", 1)
    parts = [trained.checkpoints.alone(directory, number) for number in (1, 2)]
    sync.pause_generation()
    sync.start_weight_update()
    for part in parts:
        sync.update_weights({"weight_dir": str(part)})
    sync.finish_weight_update("1")
    sync.resume_generation()
    trained.has_now("one")
    trained.check(trained.complete(prompt(2)), "one")


def test_steps_out_of_order_are_refused_in_vllms_words(sync, trained):
    refused = {
        "start_weight_update must be called before update_weights": lambda: sync.update_weights({"weight_dir": "/none"}),
        "finish_weight_update called without a matching start_weight_update": sync.finish_weight_update,
    }
    for text, call in refused.items():
        with pytest.raises(RuntimeError, match=f"\\[500\\].*{text}"):
            call()
    sync.start_weight_update()
    with pytest.raises(RuntimeError, match="a weight update is already active. Call finish_weight_update first"):
        sync.start_weight_update()
    sync.update_weights({"weight_dir": str(trained.checkpoints.write("one", 1))})
    sync.finish_weight_update()
    trained.has_now("one")
    trained.check(trained.complete(prompt(2)), "one")


def test_an_update_that_its_trainer_left_is_undone(skyrl, tmp_path):
    trained = Trained(tmp_path, "--weight-update-timeout", "5")
    try:
        sync = skyrl[0].SkyrlWeightSyncClient([trained.url])
        # Written first: no call of the update is to come late.
        update = {"weight_dir": str(trained.checkpoints.write("one", 1))}
        sync.start_weight_update()
        sync.update_weights(update)
        # Nothing is sampled between a start and a finish; here the finish does not come.
        trained.check(trained.complete(prompt(2)), "base")
        with pytest.raises(RuntimeError, match="without a matching start_weight_update"):
            sync.finish_weight_update()
        assert trained.names[trained.version()] == "base"
    finally:
        trained.stop()


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
def test_it_pauses_in_every_mode(client, trained, mode):
    [running] = trained.under_way(prompt(0))
    pausing = trained.later(lambda: client.call("pause", mode))
    if mode == "wait":
        assert not pausing.done()
        trained.gate.go_on()
    pausing.result(300)
    assert client.call("is_sleeping")
    if mode == "keep":
        assert not running.future.done()
        late = trained.later(lambda: client.rollout(prompt(1)))
        assert not late.done()
    else:
        answer = running.rollout()
        assert answer.finish_reason == {"abort": "abort", "wait": "length"}[mode]
        trained.check(answer, "base")
        with pytest.raises(aiohttp.ClientResponseError, match="Generation is paused") as refused:
            client.rollout(prompt(1))
        assert refused.value.status == 503
    client.call("resume")
    trained.gate.go_on()
    assert not client.call("is_sleeping")
    if mode == "keep":
        trained.check(late.result(300), "base")
        assert running.rollout().finish_reason == "length"
    trained.check(client.rollout(prompt(1)), "base")


def test_it_sleeps_wakes_and_resets_the_cache(client, trained):
    client.call("sleep", level=1)
    assert client.call("is_sleeping")
    client.call("wake_up", tags=["weights"])
    client.call("wake_up", tags=["kv_cache"])
    assert not client.call("is_sleeping")
    client.call("reset_prefix_cache", reset_running_requests=True)
    trained.check(client.rollout(prompt(1)), "base")


def test_memory_is_lent_to_the_trainer_while_requests_are_kept(client, sync, trained):
    """SkyRL's way on a GPU that both use: pause, give the memory back, update, take it again."""
    [running] = trained.under_way(prompt(0))
    client.call("pause", "keep")
    client.call("sleep_for_weight_sync", offload_kv=True)
    client.call("wake_for_weight_sync", ["weights"])
    sync.start_weight_update()
    sync.update_weights({"weight_dir": str(trained.checkpoints.write("one", 1))})
    sync.finish_weight_update("1")
    client.call("wake_for_weight_sync", ["kv_cache"])
    client.call("resume")
    trained.has_now("one")
    assert trained.cut(running.rollout(), "base", "one") < LONG
    trained.check(client.rollout(prompt(1)), "one")
