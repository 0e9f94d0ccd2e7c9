"""Adapters that are loaded, replaced and taken away while the server serves, as trainers and vLLM's clients do it.

What an adapter computes is known from numpy: that of the base with the adapter merged into it.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import openai
import pytest
import requests

import frameworks
from checkpoints import FIXTURE, record
from conftest import REPOSITORY, Server
from control import LONG, MODEL, Rollout, Trained, prompt
from test_control_trl import ABSENT, PACKAGES

import record_smollm2_lora  # noqa: E402, from tests/reference, which `checkpoints` makes known

FLAGS = ["--enable-lora", "--max-loras", "4"]


@pytest.fixture
def served(tmp_path):
    served = Trained(tmp_path, *FLAGS)
    yield served
    served.stop()


def post(served, path, body, status=200, **more):
    answer = requests.post(served.url + path, json=body, timeout=300, **more)
    assert answer.status_code == status, answer.text
    return answer


def load(served, name, seed=None, status=200, path="/v1/load_lora_adapter", directory=None, **more):
    """Writes an adapter, unless it is there, and has the server load it under its name."""
    directory = directory or served.checkpoints.write_adapter(name, seed if seed is not None else sum(name.encode()))
    served.names[f"{name}@1"] = name
    return post(served, path, {"lora_name": name, "lora_path": str(directory), **more}, status)


def refusal(answer):
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    return error["type"], error["message"]


def test_requests_choose_an_adapter_by_its_name(served):
    for name in ["one", "two", "three"]:
        answer = load(served, name)
        assert answer.text == f"Success: LoRA adapter '{name}' added successfully."
    models = json.loads(served.server.get("/v1/models"))["data"]
    assert [(card["id"], card["parent"]) for card in models] == [(MODEL, None), ("one", MODEL), ("two", MODEL), ("three", MODEL)]
    assert models[1]["root"] == str(served.checkpoints.root / "adapters" / "one")
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        asked = [(name, number) for number in range(4) for name in [MODEL, "one", "two", "three"]]
        rollouts = list(pool.map(lambda of: (of[0], served.complete(prompt(of[1]), model=of[0], seed=of[1])), asked))
    for name, rollout in rollouts:
        assert set(served.check(rollout)) == {"base" if name == MODEL else name}
    # An adapter's answers are its own: the same seed gives others.
    assert len({tuple(rollout.ids) for _, rollout in rollouts}) > 12


def test_every_dialect_knows_adapters(served):
    load(served, "one")
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="-")
    chat = client.chat.completions.create(model="one", messages=[{"role": "user", "content": "a"}], max_tokens=4)
    assert chat.model == "one"
    assert client.responses.create(model="one", input="a", max_output_tokens=4).model == "one"
    assert client.completions.create(model="one", prompt="a", max_tokens=4).model == "one"
    message = post(served, "/v1/messages", {"model": "one", "max_tokens": 4, "messages": [{"role": "user", "content": "a"}]})
    assert message.json()["model"] == "one"
    generated = post(served, "/inference/v1/generate", {"model": "one", "token_ids": [3, 4], "sampling_params": {"max_tokens": 4}})
    assert generated.json()["model"] == "one"
    tokens = [post(served, "/tokenize", {"model": name, "prompt": "a"}).json() for name in [MODEL, "one"]]
    assert tokens[0] == tokens[1]
    with pytest.raises(openai.NotFoundError, match="The model `none` does not exist"):
        client.completions.create(model="none", prompt="a")


def test_log_probs_of_every_dialect_are_the_adapters(served):
    load(served, "one")
    ids = prompt(3)
    body = {"token_ids": ids, "model": "one", "sampling_params": {"max_tokens": 8, "logprobs": 0, "seed": 1}}
    [choice] = post(served, "/inference/v1/generate", body).json()["choices"]
    log_probs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    served.check(Rollout(ids, choice["token_ids"], log_probs), "one")
    body = {"model": "one", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 8, "logprobs": True, "return_token_ids": True}
    answer = post(served, "/v1/chat/completions", body).json()
    [choice] = answer["choices"]
    log_probs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    served.check(Rollout(answer["prompt_token_ids"], choice["token_ids"], log_probs), "one")


def test_ids_of_another_adapter_are_not_continued_from_the_cache(served):
    load(served, "one")
    load(served, "two")

    def turn(model, messages):
        body = {"model": model, "messages": messages, "max_tokens": 6, "return_token_continuity": True, "temperature": 0}
        return post(served, "/v1/chat/completions", body | {"return_token_ids": True, "ignore_eos": True}).json()

    first = [{"role": "user", "content": "hello"}]
    answer = turn("one", first)
    second = [*first, {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}, {"role": "user", "content": "b"}]
    verdict = turn("one", second)["token_continuity"]
    assert (verdict["source"], verdict["adapter"], verdict["weight_version"]) == ("cache", "one", "one@1")
    for other in ["two", MODEL]:
        verdict = turn(other, second)["token_continuity"]
        assert verdict["source"] != "cache"
        assert verdict.get("adapter") == (other if other != MODEL else None)


def many(served, pool, model):
    """Answers that are under way, and held."""
    with served.held_with(12):
        return [pool.submit(served.complete, prompt(n), model=model, seed=n, max_tokens=LONG) for n in range(12)]


def test_an_adapter_is_replaced_and_those_who_run_go_on_with_the_old_one(served):
    load(served, "policy", 1)
    new, third = (served.checkpoints.write_adapter(name, seed) for name, seed in [("new", 2), ("third", 3)])
    taken = post(served, "/v1/load_lora_adapter", {"lora_name": "policy", "lora_path": str(new)}, 400)
    message = "The lora adapter 'policy' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True."
    assert refusal(taken) == ("InvalidUserInput", message)
    served.names |= {"policy@2": "new", "policy@3": "third"}
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        running = many(served, pool, "policy")
        post(served, "/v1/load_lora_adapter", {"lora_name": "policy", "lora_path": str(new), "load_inplace": True})
        served.gate.go_on()
        assert set(served.check(served.complete(prompt(1), model="policy"))) == {"new"}
        kept = [future.result(300) for future in running]
        # Each has one adapter from its first token to its last, and those that ran have the old one.
        assert all(len(set(served.check(rollout))) == 1 for rollout in kept)
        assert {(rollout.finish_reason, len(rollout.ids)) for rollout in kept} == {("length", LONG)}
        assert {served.check(rollout)[0] for rollout in kept} == {"policy"}
        # Replaced once more, and whoever runs ends with what it has.
        running = many(served, pool, "policy")
        body = {"lora_name": "policy", "lora_path": str(third), "load_inplace": True}
        post(served, "/v1/load_lora_adapter?on_replace=abort", body)
        ended = [future.result(300) for future in running]
        served.gate.go_on()
        assert {rollout.finish_reason for rollout in ended} == {"abort"}
        for rollout in ended:
            assert set(served.check(rollout)) == {"new"}


def test_an_adapter_is_unloaded(served):
    load(served, "one")
    [running] = served.under_way(prompt(0), model="one")
    answer = post(served, "/v1/unload_lora_adapter", {"lora_name": "one"})
    assert answer.text == "Success: LoRA adapter 'one' removed successfully."
    assert set(served.check(running.rollout())) == {"one"}
    gone = post(served, "/v1/completions", {"model": "one", "prompt": [3]}, 404)
    assert refusal(gone)[0] == "NotFoundError"
    again = post(served, "/v1/unload_lora_adapter", {"lora_name": "one"}, 404)
    assert refusal(again) == ("NotFoundError", "The lora adapter 'one' cannot be found.")
    nameless = post(served, "/v1/unload_lora_adapter", {"lora_name": ""}, 400)
    assert refusal(nameless) == ("InvalidUserInput", "'lora_name' needs to be provided to unload a LoRA adapter.")


def test_an_adapter_comes_in_the_body(served):
    directory = served.checkpoints.write_adapter("memory", 9)
    file = (directory / "adapter_model.safetensors").read_bytes()
    length = struct.unpack("<Q", file[:8])[0]
    header = json.loads(file[8 : 8 + length])
    header["__metadata__"] = {"adapter_config": (directory / "adapter_config.json").read_text()}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = struct.pack("<Q", len(text)) + text + file[8 + length :]
    shutil.rmtree(directory)
    url = f"{served.url}/v1/load_lora_adapter"
    headers = {"Content-Type": "application/octet-stream"}
    answer = requests.post(url, params={"lora_name": "memory"}, data=body, headers=headers, timeout=300)
    assert (answer.status_code, answer.text) == (200, "Success: LoRA adapter 'memory' added successfully.")
    served.names["memory@1"] = "memory"
    assert set(served.check(served.complete(prompt(2), model="memory"))) == {"memory"}
    cut = requests.post(url, params={"lora_name": "cut"}, data=body[:-9], headers=headers, timeout=300)
    assert (cut.status_code, "ended early" in cut.text) == (400, True)
    nameless = requests.post(url, data=body, headers=headers, timeout=300)
    assert (nameless.status_code, nameless.json()["error"]["param"]) == (400, "query.lora_name")


def test_adapters_of_embeddings_and_of_the_head_have_the_base_with_them(served):
    for targets in [("embed_tokens",), ("lm_head",), ("embed_tokens", "lm_head", "q_proj")]:
        name = "-".join(targets)
        directory = served.checkpoints.write_adapter(name, 3, targets=targets)
        load(served, name, directory=directory)
        served.names[f"{name}@1"] = name
        for number in range(3):
            assert set(served.check(served.complete(prompt(number), model=name, seed=number))) == {name}
    # The same adapter for a base that has one other number.
    file = directory / "adapter_model.safetensors"
    content = bytearray(file.read_bytes())
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    begin, _ = header["base_model.model.lm_head.base_layer.weight"]["data_offsets"]
    content[8 + struct.unpack("<Q", content[:8])[0] + begin] ^= 1
    file.write_bytes(content)
    kind, message = refusal(load(served, "other", directory=directory, status=400))
    assert "other numbers for model.embed_tokens.weight than the model that is served" in message
    # Nobody is merged into a tensor that is both.
    convert = [os.environ["TITO_BIN"], "convert", str(served.checkpoints.base), str(directory.parent / "out"), "--merge"]
    merged = subprocess.run([*convert, str(directory)], capture_output=True, text=True, timeout=300)
    assert (merged.returncode, "both the embeddings and the head" in merged.stderr) == (1, True)


def test_what_cannot_be_served_is_refused_and_changes_nothing(served):
    write = served.checkpoints.write_adapter

    def refused(name, directory, status=400):
        return refusal(load(served, name, directory=directory, status=status))

    missing = str(served.checkpoints.root / "nothing")
    assert refused("a", missing, 404) == ("NotFoundError", f"Loading lora a failed: No adapter found for {missing}")
    assert refused("b", write("b", 1, rank=17))[1] == "LoRA rank 17 is greater than max_lora_rank 16."
    assert refused("c", write("c", 1, use_dora=True))[1] == "adapter_config.json: `use_dora` is set; DoRA is not served"
    broken = write("e", 1)
    file = broken / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    assert "ended early" in refused("e", broken)[1]
    shapes = write("f", 1)
    text = (shapes / "adapter_config.json").read_text()
    (shapes / "adapter_config.json").write_text(text.replace('"r": 4', '"r": 5'))
    assert "has the rank 5, and matrices of the shapes" in refused("f", shapes)[1]
    assert refusal(post(served, "/v1/load_lora_adapter", {"lora_name": "g", "lora_path": ""}, 400))[0] == "InvalidUserInput"
    message = f"The lora adapter '{MODEL}' conflicts with a served base model."
    assert refusal(load(served, MODEL, directory=write("h", 1), status=400)) == ("InvalidUserInput", message)
    [card] = json.loads(served.server.get("/v1/models"))["data"]
    assert card["id"] == MODEL
    served.check(served.complete(prompt(1)), "base")


def test_adapters_stay_within_their_root(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    served = Trained(tmp_path / "served", *FLAGS, "--lora-root", str(root))
    try:
        inside = served.checkpoints.write_adapter("inside", 1)
        shutil.move(inside, root / "inside")
        outside = served.checkpoints.write_adapter("outside", 2)
        os.symlink(outside, root / "link")
        assert load(served, "inside", directory="inside").status_code == 200
        assert set(served.check(served.complete(prompt(1), model="inside"))) == {"inside"}
        for path in [outside, "../served/adapters/outside", "link", "/etc", "nothing", "inside/../../served/adapters/outside"]:
            answer = load(served, "other", directory=path, status=400)
            assert refusal(answer) == ("BadRequestError", "'lora_path' has to be within --lora-root")
    finally:
        served.stop()


def test_adapters_are_there_from_the_start(tmp_path):
    first = Trained(tmp_path / "first")
    directory = first.checkpoints.write_adapter("one", 3)
    first.stop()
    module = json.dumps({"name": "two", "path": str(directory), "base_model_name": "base"})
    served = Trained(tmp_path / "second", *FLAGS, "--lora-modules", f"one={directory}", module)
    try:
        models = json.loads(served.server.get("/v1/models"))["data"]
        assert [(card["id"], card["parent"]) for card in models[1:]] == [("one", MODEL), ("two", "base")]
        # The same base, so that the same adapter computes the same.
        served.checkpoints.models["one"] = first.checkpoints.models["one"]
        served.names |= {"one@1": "one", "two@1": "one"}
        for name in ["one", "two"]:
            served.check(served.complete(prompt(4), model=name), "one")
    finally:
        served.stop()


def test_openais_client_finds_adapters_by_their_names(tmp_path, monkeypatch):
    """As SkyRL's Tinker server has a sampler found: it unpacks the adapter, and asks for it."""
    adapters = tmp_path / "adapters"
    adapters.mkdir()
    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
    monkeypatch.setenv("VLLM_LORA_RESOLVER_CACHE_DIR", str(adapters))
    served = Trained(tmp_path, *FLAGS)
    try:
        client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="-", max_retries=0)
        with pytest.raises(openai.NotFoundError, match="The model `run_000010` does not exist"):
            client.completions.create(model="run_000010", prompt=prompt(1))
        # What is not of the served model is not found.
        served.checkpoints.write_adapter("other", 3, base_model_name_or_path="org/other")
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="other", prompt=prompt(1))
        for number in range(2):
            name = f"run_{number:05}"
            directory = served.checkpoints.write_adapter(name, number, base_model_name_or_path=str(served.checkpoints.base))
            served.names[f"{name}@1"] = name
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                asked = range(8)
                rollouts = list(pool.map(lambda n: served.complete(prompt(n), model=name, seed=n, logprobs=True), asked))
            assert [set(served.check(rollout)) for rollout in rollouts] == [{name}] * 8
            shutil.rmtree(directory)
            chat = client.chat.completions.create(model=name, messages=[{"role": "user", "content": "a"}], max_tokens=4)
            assert chat.model == name
        assert [card.parent for card in client.models.list()] == [None, MODEL, MODEL]
        broken = served.checkpoints.write_adapter("broken", 4, base_model_name_or_path=str(served.checkpoints.base), use_dora=True)
        message = "LoRA adapter 'broken' was found but could not be loaded. The reason: adapter_config.json: `use_dora` is set"
        with pytest.raises(openai.BadRequestError, match=message):
            client.completions.create(model="broken", prompt=prompt(1))
        assert broken.is_dir()
    finally:
        served.stop()


def test_a_server_without_adapters_says_so(trained):
    answer = post(trained, "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "b"}, 501)
    assert "--enable-lora" in refusal(answer)[1]


def test_a_hundred_loads_and_unloads_under_load_leave_no_memory_behind(served):
    directories = [served.checkpoints.write_adapter(f"a{number}", number, rank=16) for number in range(4)]
    stop = False

    def busy(number):
        while not stop:
            served.complete(prompt(number), max_tokens=30, model=MODEL if number else "stays")

    load(served, "stays", 77)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        running = [pool.submit(busy, number) for number in range(3)]
        sizes = []
        for number in range(100):
            name = f"cycle-{number}"
            post(served, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(directories[number % 4])})
            served.names[f"{name}@1"] = f"a{number % 4}"
            assert set(served.check(served.complete(prompt(number), model=name, max_tokens=4))) == {f"a{number % 4}"}
            post(served, "/v1/unload_lora_adapter", {"lora_name": name})
            sizes.append(served.server.resident_mib())
        stop = True
        for future in running:
            future.result(300)
    early, late = max(sizes[20:40]), min(sizes[80:])
    assert late < early + 16, f"{early:.0f} MiB after 40 cycles, {late:.0f} MiB after 100"
    assert len(json.loads(served.server.get("/v1/models"))["data"]) == 2


@pytest.fixture(scope="module")
def trl_client():
    with frameworks.importing(PACKAGES, ABSENT) as load_module:
        yield load_module("trl.experimental.async_grpo.vllm_client").VLLMClient


def test_trls_asynchronous_grpo_publishes_each_policy_under_a_new_name(served, trl_client):
    """The calls of `_sync_weight_lora`, with `max_staleness` 1, and rollouts by name."""
    client, staleness = trl_client(served.url), 1
    client.wait_for_server_ready()
    info = client.get_server_info()
    assert info["lora_config"]["max_lora_rank"] >= 4
    assert info["lora_config"]["max_loras"] >= staleness + 2
    assert client.get_max_model_len() == 2048
    for version in range(1, 5):
        name = f"policy-v{version}"
        client.pause()
        directory = served.checkpoints.write_adapter(name, version)
        client.load_lora_adapter(name, str(directory))
        client.resume()
        served.names[f"{name}@1"] = name
        stale = version - (staleness + 1)
        if stale > 0:
            client.unload_lora_adapter(f"policy-v{stale}")
            shutil.rmtree(served.checkpoints.root / "adapters" / f"policy-v{stale}")
        for known in range(max(1, stale + 1), version + 1):
            rollout = served.complete(prompt(version), model=f"policy-v{known}", seed=version)
            assert set(served.check(rollout)) == {f"policy-v{known}"}
    # Names that are missing are no error for it.
    client.unload_lora_adapter("policy-v1")


def test_prime_rl_and_skyrl_overwrite_one_name(served):
    for version, path in enumerate(["/load_lora_adapter", "/load_lora_adapter", "/skyrl/v1/load_lora_adapter"], 1):
        directory = served.checkpoints.write_adapter(f"v{version}", version)
        answer = post(served, path, {"lora_name": "policy", "lora_path": str(directory)})
        if path == "/load_lora_adapter":
            assert answer.json() == {"status": "ok", "success": True, "error_message": ""}
        served.names[f"policy@{version}"] = f"v{version}"
        assert set(served.check(served.complete(prompt(version), model="policy"))) == {f"v{version}"}


def test_more_adapters_than_places_take_turns(tmp_path):
    served = Trained(tmp_path, "--enable-lora", "--max-loras", "2")
    try:
        names = [f"a{number}" for number in range(6)]
        for name in names:
            load(served, name)
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            asked = [(name, number) for number in range(4) for name in names]
            rollouts = list(pool.map(lambda of: (of[0], served.complete(prompt(of[1]), model=of[0], max_tokens=40)), asked))
        for name, rollout in rollouts:
            assert set(served.check(rollout)) == {name}
    finally:
        served.stop()


def test_a_merged_checkpoint_computes_what_the_adapter_does(served, tmp_path):
    directory = served.checkpoints.write_adapter("one", 3)
    merged = tmp_path / "merged"
    convert = [os.environ["TITO_BIN"], "convert", str(served.checkpoints.base), str(merged), "--merge", str(directory)]
    subprocess.run(convert, check=True, capture_output=True)
    assert sorted(path.name for path in merged.iterdir()) == sorted(path.name for path in served.checkpoints.base.iterdir())
    post(served, "/update_weights", {"weight_dir": str(merged)})
    served.has_now("one")
    assert set(served.check(served.complete(prompt(1)))) == {"one"}
    again = subprocess.run(convert, capture_output=True, text=True, check=False)
    assert (again.returncode, "is not an empty directory" in again.stderr) == (1, True)


def test_a_real_model_with_an_adapter_has_the_log_probs_of_peft(tmp_path):
    """SmolLM2-135M and an adapter of rank 16 of all linear layers, in float32; the adapter is drawn, see its script."""
    model = os.environ["TITO_TEST_MODEL"]
    config = json.loads(pathlib.Path(model, "config.json").read_text())
    tensors = record_smollm2_lora.adapter(config)
    arrays = {name: np.frombuffer(numbers, "f4").reshape(shape) for name, (shape, numbers) in tensors.items()}
    (tmp_path / "adapter_model.safetensors").write_bytes(record.safetensors(arrays, "F32"))
    settings = {"peft_type": "LORA", **record_smollm2_lora.SETTINGS}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    server = Server("--engine", "native", "--dtype", "float32", "--enable-lora", "--lora-modules", f"drawn={tmp_path}")
    try:
        for case in json.loads((REPOSITORY / "tests" / "golden" / "smollm2_lora.json").read_text()):
            for name, expected in [("drawn", case["logprobs"]), (MODEL, case["without"])]:
                scored = server.post("/v1/completions", model=name, prompt=case["ids"], max_tokens=1, prompt_logprobs=0)
                entries = scored["choices"][0]["prompt_logprobs"][1:]
                found = [entry[str(id)]["logprob"] for entry, id in zip(entries, case["ids"][1:], strict=True)]
                assert found == pytest.approx(expected, abs=1e-4, rel=0), name
    finally:
        server.stop()


def test_metrics_and_the_server_say_which_adapters_are_asked_for(served):
    load(served, "one")
    limits = json.loads(served.server.get("/server_info?config_format=json"))["vllm_config"]["lora_config"]
    assert (limits["max_loras"], limits["max_lora_rank"], limits["lora_dtype"]) == (4, 16, "torch.float32")
    series = 'vllm:lora_requests_info{max_lora="4",waiting_lora_adapters="",running_lora_adapters="one"}'
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        with served.held_with(12):
            running = [pool.submit(served.complete, prompt(n), model="one", max_tokens=LONG) for n in range(12)]
        served.server.poll("the adapter in the metrics", lambda: series in served.server.get("/metrics"))
        served.gate.go_on()
        for future in running:
            future.result(300)
    series = 'vllm:lora_requests_info{max_lora="4",waiting_lora_adapters="",running_lora_adapters=""}'
    served.server.poll("no adapter in the metrics", lambda: series in served.server.get("/metrics"))


def test_adapters_need_the_native_engine(tmp_path):
    script = tmp_path / "script"
    script.write_text('"a"\n')
    with pytest.raises(AssertionError, match="only the native engine serves adapters; leave --enable-lora out"):
        Server("--engine", "scripted", "--script", str(script), "--enable-lora", model=str(FIXTURE))
