"""Captured turns are sampled again by `tito replay`, bit for bit, whatever was computed beside them; and what is not the
same is named.
"""

import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import subprocess

import jsonschema

from checkpoints import FIXTURE
from conftest import REPOSITORY
from control import LONG, MODEL, Trained, prompt
from lines import documents_of
from replay_command import ENGINE, LENGTH, replayed, settled

TURNS = 500


def ask(server, numbers):
    """One request, of any kind; returns how many turns it makes."""
    tokens = numbers.randint(1, 40)
    body = {"model": MODEL, "max_tokens": tokens, "stream": numbers.random() < 0.5}
    body["temperature"] = numbers.choice([0.0, 0.3, 1.0, 1.7, 0.1 + numbers.random()])
    body |= numbers.choice([{}, {"top_p": 0.5 + numbers.random() / 2}, {"top_k": 7}, {"min_p": 0.05}])
    body |= numbers.choice([{}, {"presence_penalty": numbers.random()}, {"repetition_penalty": 1 + numbers.random()}])
    body |= numbers.choice([{}, {"seed": numbers.randint(0, 9)}, {"min_tokens": tokens}, {"ignore_eos": True}])
    body |= numbers.choice([{}, {"logit_bias": {"70": 3.5}}, {"stop": ["a", "e"]}, {"allowed_token_ids": list(range(40, 90))}])
    if numbers.random() < 0.3:
        body["return_sampling_mask"] = True
    body |= numbers.choice([{}, {"logprobs": 1 if numbers.random() < 0.5 else 3}])
    if numbers.random() < 0.2:
        body |= {"structured_outputs": numbers.choice([{"regex": "[a-f]{3,30}"}, {"choice": ["yes", "no"]}])}
        body.pop("allowed_token_ids", None)
        body |= {"ignore_eos": False, "min_tokens": 0}
    if numbers.random() < 0.5:
        path, body["prompt"] = "/v1/completions", prompt(numbers.randint(0, 30))
        body["n"] = numbers.choice([1, 1, 3]) if body["temperature"] > 0 else 1
    else:
        path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": f"Say {numbers.randint(0, 30)}"}]
        if isinstance(body.pop("logprobs", None), int):
            body |= {"logprobs": True, "top_logprobs": 2}
    status, text = server.exchange(path, body)
    assert status == 200, f"{body} {text}"
    return body.get("n", 1)


def crowd(server):
    """One request whose answers, computed at the same time, need more memory than the server has for keys and values; returns how
    many turns it makes."""
    answers = 8
    body = {"model": MODEL, "prompt": prompt(1), "n": answers, "max_tokens": 800, "temperature": 1.0, "ignore_eos": True}
    status, text = server.exchange("/v1/completions", body)
    assert status == 200, text
    return answers


def test_500_turns_come_out_the_same_to_the_bit(tmp_path):
    capture = tmp_path / "capture.redb"
    # Little memory for keys and values, so that sequences are preempted.
    trained = Trained(tmp_path, "--capture", str(capture), "--kv-cache-memory", "1500K", "--max-num-seqs", "16")
    checkpoints, server = trained.checkpoints, trained.server
    numbers = random.Random(7)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        def many(count):
            made = 0
            while made < count:
                made += sum(pool.map(lambda seed: ask(server, random.Random(seed)), [numbers.random() for _ in range(16)]))
            return made

        made = crowd(server) + many(TURNS // 2)
        settled(server)
        [under_way] = trained.under_way(prompt(3), seed=1)
        server.post("/start_weight_update")
        server.post("/update_weights", update_info={"path": str(checkpoints.write("one", 1))})
        server.post("/finish_weight_update", weight_version="one")
        straddling = under_way.rollout()
        assert [span["version"] for span in straddling.versions] == ["default", "one"]
        after = crowd(server) + many(TURNS // 2)
        settled(server)
    assert server.gauge("vllm:num_preemptions_total") > 0
    trained.stop()

    equal, _, partial, differ, unrepeatable, lines = replayed(capture, checkpoints.base)
    assert (equal, partial, differ, unrepeatable) == (made, 1, after, 0), "\n".join(lines[:5])
    [shown] = [line for line in lines if "the first" in line]
    first = straddling.versions[0]["end"]
    assert f"the first {first} of {LONG} tokens are equal to the bit; weights were replaced" in shown, shown
    # Whatever differs is what other weights sampled, and that is what is said of it.
    different = [line for line in lines if line != shown]
    assert all("the checksum of the weights: " in line for line in different), "\n".join(different[:5])

    second = model_of(checkpoints, tmp_path / "one", tmp_path / "second")
    # What is computed beside a turn decides nothing, nor how its prompt is cut.
    for flags in [[], ["--max-num-seqs", "1"], ["--max-num-batched-tokens", "16", "--kv-cache-memory", "1500K"]]:
        equal, _, partial, differ, unrepeatable, lines = replayed(capture, second, *flags)
        assert (equal, partial, differ, unrepeatable) == (after, 0, made, 1), "\n".join(lines[:5])
    assert "weights were replaced while it was sampled" in "".join(lines)


def model_of(checkpoints, weights, directory):
    """A directory with the config and the tokenizer of the base, and these weights."""
    shutil.copytree(weights, directory)
    for file in pathlib.Path(checkpoints.base).iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, directory)
    return directory


def test_sampling_masks_come_out_the_same_and_another_one_is_named(tmp_path):
    capture = tmp_path / "capture.redb"
    trained = Trained(tmp_path, "--capture", str(capture), "--logprobs-mode", "processed_logprobs")
    asked = {"model": MODEL, "max_tokens": 8, "ignore_eos": True, "return_sampling_mask": True, "return_token_ids": True}
    rows = []
    for number, params in enumerate([{"top_k": 9}, {"top_p": 0.8, "min_p": 0.001}, {"temperature": 0}]):
        body = {**asked, "prompt": prompt(number), "seed": number, **params}
        [choice] = trained.server.post("/v1/completions", **body)["choices"]
        rows.append(choice["sampling_mask"])
    settled(trained.server)
    lines = documents_of(trained.server.get("/v1/trajectories/export"))
    schema = json.loads((REPOSITORY / "docs" / "trajectories.schema.json").read_text())
    for line, expected in zip(lines, rows, strict=True):
        jsonschema.validate(line, schema)
        mask, start = line["sampling_mask"], line["prompt_tokens"]
        assert mask["counts"] == [0] * start + [len(row) for row in expected]
        assert mask["ids"] == sum(expected, [])
    trained.stop()
    assert replayed(capture, trained.checkpoints.base) == (3, 24, 0, 0, 0, [])


def test_an_adapter_is_found_by_its_checksum_or_named(tmp_path):
    capture = tmp_path / "capture.redb"
    trained = Trained(tmp_path, "--capture", str(capture), "--enable-lora")
    first, second = (trained.checkpoints.write_adapter(name, seed) for name, seed in [("one", 5), ("two", 6)])
    for directory in (first, second):
        body = {"lora_name": "policy", "lora_path": str(directory), "load_inplace": True}
        status, text = trained.server.exchange("/v1/load_lora_adapter", body)
        assert status == 200, text
        trained.complete(prompt(1), model="policy", seed=1)
    trained.complete(prompt(2), seed=2)
    settled(trained.server)
    lines = documents_of(trained.server.get("/v1/trajectories/export?unit=turn"))
    known = {turn["adapter"]: turn["adapter_checksum"] for line in lines for turn in line["turns"]}
    assert len(set(known.values())) == 3 and known[None] is None, known
    trained.stop()
    base = trained.checkpoints.base

    def replayed_with(*modules):
        flags = ["--enable-lora", "--max-loras", "2", "--lora-modules", *modules] if modules else []
        equal, _, _, differ, unrepeatable, lines = replayed(capture, base, *flags)
        return equal, differ, unrepeatable, lines

    assert replayed_with(f"a={first}", f"b={second}") == (3, 0, 0, [])
    equal, differ, unrepeatable, lines = replayed_with(f"policy={second}")
    assert (equal, differ, unrepeatable) == (2, 0, 1)
    assert f"the adapter policy@1 with the checksum {known['policy@1']} sampled it" in lines[0], lines
    equal, differ, unrepeatable, lines = replayed_with()
    assert (equal, differ, unrepeatable) == (1, 0, 2)
    assert all("no adapter is loaded" in line for line in lines), lines


def test_one_bit_of_one_weight_is_named(tmp_path):
    capture = tmp_path / "capture.redb"
    trained = Trained(tmp_path, "--capture", str(capture))
    base = pathlib.Path(trained.checkpoints.base)
    for number in range(4):
        trained.complete(prompt(number), seed=number)
    settled(trained.server)
    [trajectory, *_] = json.loads(trained.server.get("/v1/trajectories"))["data"]
    trained.stop()

    assert replayed(capture, base) == (4, 48, 0, 0, 0, [])
    equal, *_ = replayed(capture, base, "--trajectory", trajectory["id"])
    assert equal == trajectory["turn_count"]

    changed = tmp_path / "changed"
    shutil.copytree(base, changed)
    bytes_ = bytearray((changed / "model.safetensors").read_bytes())
    header = json.loads(bytes_[8 : 8 + int.from_bytes(bytes_[:8], "little")])
    start = 8 + int.from_bytes(bytes_[:8], "little") + header["model.norm.weight"]["data_offsets"][0]
    # The third byte of a float32 holds the least bits of bfloat16 and the greatest of the mantissa.
    bytes_[start + 2] ^= 1
    (changed / "model.safetensors").write_bytes(bytes_)
    equal, _, partial, differ, unrepeatable, lines = replayed(capture, changed)
    assert (equal, partial, differ, unrepeatable) == (0, 0, 4, 0)
    assert all("the checksum of the weights: " in line for line in lines), lines


def test_what_cannot_be_replayed_says_why(tmp_path):
    def refused(*arguments):
        command = [os.environ["TITO_BIN"], "replay", *map(str, arguments), *ENGINE, *LENGTH]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        assert done.returncode != 0
        return done.stderr

    assert f"{tmp_path / 'none'} does not exist" in refused(tmp_path / "none", FIXTURE)
    text = tmp_path / "text"
    text.write_text("not a capture")
    assert "not a trajectory store" in refused(text, FIXTURE) or "text" in refused(text, FIXTURE)
    capture = tmp_path / "capture.redb"
    trained = Trained(tmp_path, "--capture", str(capture), "--capture-texts", "false")
    try:
        trained.complete(prompt(1), structured_outputs={"choice": ["yes", "no"]}, ignore_eos=False)
        assert "another process" in refused(capture, FIXTURE) or "in use" in refused(capture, FIXTURE)
    finally:
        trained.stop()
    assert "there is no trajectory traj_none" in refused(capture, trained.checkpoints.base, "--trajectory", "traj_none")
    *_, unrepeatable, lines = replayed(capture, trained.checkpoints.base)
    assert unrepeatable == 1 and "its grammar was not kept (--capture-texts false)" in lines[0]
