"""TRL's clients, unchanged, drive the server through an update of its weights.

What they send weights by is NCCL, which the server has not: `update_info`, which these classes pass on as it is, names a
directory instead.
"""

import pytest
import requests

import frameworks
from control import LONG, MODEL, Rollout, prompt

# What the packages import on the way, and the classes in question never use.
ABSENT = ["PIL", "accelerate", "torch", "transformers", "vllm"]
PACKAGES = ["trl", "trl.experimental", "trl.experimental.async_grpo", "trl.generation"]


@pytest.fixture(scope="module")
def classes():
    """The client of async GRPO, and that of the other trainers."""
    with frameworks.importing(PACKAGES, ABSENT) as load:
        yield [
            load("trl.experimental.async_grpo.vllm_client").VLLMClient,
            load("trl.generation.vllm_client").VLLMClient,
        ]


@pytest.fixture
def client(classes, trained):
    client = classes[0](trained.url)
    client.wait_for_server_ready()
    return client


def rollout(client, ids, seed):
    """The request of trl/experimental/async_grpo/async_rollout_worker.py, `_generate_one_turn`."""
    payload = {"model": MODEL, "prompt": ids, "max_tokens": 12, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
    payload |= {"repetition_penalty": 1.0, "n": 1, "return_token_ids": True, "logprobs": 0, "seed": seed}
    answer = requests.post(f"{client.server_url}/v1/completions", json=payload, timeout=300)
    answer.raise_for_status()
    return Rollout.of_choice(ids, answer.json()["choices"][0])


def update(client, directory):
    """The calls of trl/experimental/async_grpo/weight_transfer.py, between pause and resume."""
    client.start_weight_update(timeout=300)
    client.update_weights({"weight_dir": str(directory)})
    client.finish_weight_update()


def test_it_reads_what_the_server_says_of_itself(client):
    assert client.get_max_model_len() == 2048
    assert client.get_dtype() == "torch.float32"
    assert client.get_world_size() == 1
    info = client.get_server_info()
    assert info["lora_config"] is None
    assert info["parallel_config"]["data_parallel_size"] == 1


def test_a_step_of_async_grpo(client, trained):
    for number in range(4):
        trained.check(rollout(client, prompt(number), 2**62 + number), "base")
    client.pause(timeout=300)
    update(client, trained.checkpoints.write("one", 1))
    client.resume(timeout=300)
    trained.has_now("one")
    for number in range(4):
        trained.check(rollout(client, prompt(number), 2**62 + number), "one")


def test_what_is_in_flight_goes_on_with_the_new_weights(client, trained):
    [running] = trained.under_way(prompt(0))
    client.pause()
    # TRL's rollouts do not know of the pause: what they send meanwhile waits.
    late = trained.later(lambda: rollout(client, prompt(1), seed=1))
    update(client, trained.checkpoints.write("one", 1))
    trained.has_now("one")
    assert not late.done()
    client.resume()
    trained.gate.go_on()
    trained.check(late.result(300), "one")
    kept = running.rollout()
    assert kept.finish_reason == "length"
    assert len(kept.ids) == LONG
    assert trained.check(kept) == ["base", "one"]


def test_an_update_that_is_refused_leaves_the_old_weights(client, trained):
    partial = trained.checkpoints.write("partial", 1)
    (partial / "model-00002-of-00002.safetensors").unlink()
    client.pause()
    client.start_weight_update()
    with pytest.raises(Exception, match="Request failed: 4"):
        client.update_weights({"weight_dir": str(partial)})
    # What send_weights does of a failure: the end of the update is asked for, whatever becomes of it.
    with pytest.raises(Exception, match="finish_weight_update called without a matching start_weight_update"):
        client.finish_weight_update()
    client.resume()
    trained.check(trained.complete(prompt(1)), "base")


def test_a_teacher_scores_sequences(classes, trained):
    client = classes[1](base_url=trained.url)
    assert client.model == MODEL
    assert client.get_world_size() == 1
    sequences, lengths = [prompt(number) + prompt(number + 50) for number in range(3)], [len(prompt(n)) for n in range(3)]
    scored = client.get_sequence_logprobs(sequences, lengths, top_logprobs=4, chunk_size=2)
    for number, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
        expected = trained.checkpoints.log_probs("base", sequence[:length], sequence[length:])
        assert [ids for [ids] in scored["actual_token_ids"][number]] == sequence[length:]
        assert [value for [value] in scored["actual_logprobs"][number]] == pytest.approx(expected, abs=1e-3)
        assert all(row == sorted(row, reverse=True) and len(row) == 4 for row in scored["logprobs"][number])


def test_the_other_trainers_generate_and_reset_the_cache(classes, trained):
    client = classes[1](base_url=trained.url)
    generated = client.generate([prompt(0), prompt(1)], n=2, max_tokens=6)
    assert generated["prompt_ids"] == [prompt(0), prompt(1)]
    for number, (ids, log_probs) in enumerate(zip(generated["completion_ids"], generated["logprobs"], strict=True)):
        trained.check(Rollout(prompt(number // 2), ids, [value for [value] in log_probs]), "base")
    with client.weight_update():
        client._post(f"{client.base_url}/update_weights", json={"update_info": {"weight_dir": str(trained.checkpoints.write("one", 1))}})
    trained.has_now("one")
    client.reset_prefix_cache()
    trained.check(trained.complete(prompt(0)), "one")
