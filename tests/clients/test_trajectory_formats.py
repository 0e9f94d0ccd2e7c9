"""Each shape of an export is read by the code of the framework that it is for, and says what `jsonl` says.

TRL, verl, verifiers and agent-lightning are read by their own code out of their wheels, on arrays of numpy instead of
torch's. NeMo-RL and prime-rl have no wheel with code: their shapes are compared with golden/trajectories/shapes.json,
which the script beside it records from their sources.
"""

import base64
import json
import os
import subprocess
import sys
import types
import urllib.request

import numpy
import pytest

import arrays
import frameworks
from branched import ADAPTER, SESSION, Branched
from conftest import REPOSITORY, Server, client_of, note
from lines import documents_of

# What the packages import on the way, and what is read here never uses.
ABSENT = [
    *["PIL", "accelerate", "agentops", "cachetools", "codetiming", "datasets", "flask", "hydra", "litellm", "math_verify"],
    *["mcp", "omegaconf", "opentelemetry", "pandas", "peft", "ray", "torch.distributed", "torch.nn", "torch.utils", "vllm", "torchdata"],
    *["transformers", "uvicorn", "wandb", "trackio", "prime_sandboxes", "prime_tunnel", "docker", "modal"],
    *["agentlightning.adapter", "agentlightning.llm_proxy", "agentlightning.store", "agentlightning.types.tracer"],
    *["trl.chat_template_utils", "trl.extras", "trl.generation", "trl.models", "trl.trainer.base_trainer"],
    *["trl.trainer.callbacks", "trl.trainer.grpo_config", "trl.trainer.utils", "verl.protocol", "verl.tools", "verl.trainer", "verl.utils", "verl.workers"],
]
SHAPES = json.loads((REPOSITORY / "tests" / "golden" / "trajectories" / "shapes.json").read_text())


@pytest.fixture(scope="module")
def branched(tmp_path_factory):
    """A server of a real engine, and what its client saw of a trajectory that has of everything what can be told apart."""
    branched = Branched(tmp_path_factory.mktemp("branched"))
    yield branched
    branched.trained.stop()


@pytest.fixture(scope="module", params=["chats", "branched"])
def serving(request):
    """A server that has captured; all trajectories have rewards."""
    server = request.getfixturevalue(request.param)
    server = server.server if request.param == "branched" else server
    for number, shown in enumerate(json.loads(server.get("/v1/trajectories"))["data"]):
        reward(server, shown["id"], reward=0.5 + number)
    return server


@pytest.fixture(scope="module")
def chats():
    """A server that has captured a conversation of three turns with a branch, and a short one."""
    server = Server("--engine", "scripted", "--max-model-len", "8192", "--capture", "memory", "--logprobs-mode", "processed_logprobs")
    client = client_of(server)

    def turn(messages, session, temperature):
        # Of some turns there are sampling masks, and of others none.
        masks = {"return_sampling_mask": True, "top_k": 9} if temperature == 1.0 else {}
        answer = client.chat.completions.create(
            model="smollm2", messages=messages, max_tokens=6, temperature=temperature, extra_body={"session_id": session, **masks}
        )
        return [*messages, {"role": "assistant", "content": answer.choices[0].message.content}]

    def user(text):
        return {"role": "user", "content": text}

    begun = turn([user("Name three rivers.")], "rivers", 0.5)
    turn([*turn([*begun, user("And a lake?")], "rivers", 1.0), user("Go on.")], "rivers", 0.7)
    turn([*begun, user("And a sea?")], "rivers", 1.0)
    turn([user("What is 2 + 2?")], "sums", 1.0)
    yield server
    server.stop()


def reward(server, trajectory, **body):
    request = urllib.request.Request(
        f"{server.url}/v1/trajectories/{trajectory}/reward", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        assert answer.status == 200


# What has no field for sampling masks, and leaves them out only if it is told to.
UNMASKED = ["trl", "verl", "nemo_rl", "agent_lightning"]


def exported(server, shape, unit="leaf", unmasked=None):
    unmasked = shape in UNMASKED if unmasked is None else unmasked
    text = server.get(f"/v1/trajectories/export?format={shape}&unit={unit}&allow_unmasked={str(unmasked).lower()}")
    return documents_of(text)


@pytest.fixture(scope="module")
def own(serving):
    """The same sequences in tito's own shape, with log-probs of zero where nothing is learnt."""
    lines = exported(serving, "jsonl")
    for line in lines:
        line["logprobs"] = [logprob if mask else 0.0 for logprob, mask in zip(line["logprobs"], line["loss_mask"], strict=True)]
    return lines


def learnt_turns(line):
    return [turn for turn in line["turns"] if line["loss_mask"][turn["start"]]]


def responses(line):
    """Where each response begins and ends that is learnt from: turns between which nothing was added are one."""
    joined = []
    for turn in learnt_turns(line):
        if joined and joined[-1][1] == turn["start"]:
            joined[-1] = (joined[-1][0], turn["end"])
        else:
            joined.append((turn["start"], turn["end"]))
    return joined


def test_chats(chats):
    """Both leaves of a branch have the turns before it, and say in which one they are learnt from first."""
    lines = exported(chats, "jsonl")
    assert [[turn["repeated"] for turn in line["turns"]] for line in lines] == [[False] * 3, [True, False], [False]]
    assert all(learnt_turns(line) == line["turns"] for line in lines)


@pytest.mark.parametrize("shape", UNMASKED)
def test_masks_are_lost_only_where_that_is_allowed(chats, shape):
    """A turn whose masks a shape has no field for is an error, and others are not."""
    told = exported(chats, shape, "turn", unmasked=False)
    for row, line in zip(told, exported(chats, "jsonl", "turn"), strict=True):
        turn = line["turns"][-1]
        masks = line["sampling_mask"] and any(line["sampling_mask"]["counts"][turn["start"] :])
        assert ("error" in row) == bool(masks)
        assert not masks or turn["id"] in row["error"]["message"]
    assert {"error" in row for row in told} == {False, True}


@pytest.mark.parametrize("unit", ["leaf", "turn"])
def test_jsonl(branched, unit):
    """tito's own lines say of each position what the client saw, which numpy confirmed."""
    lines = exported(branched.server, "jsonl", unit)
    for line, said in zip(lines, branched.lines(unit), strict=True):
        for column in ["token_ids", "loss_mask", "logprobs"]:
            assert line[column] == said[column], column
        assert line["prompt_tokens"] == said["loss_mask"].index(1) and line["logprobs_mode"] == "raw_logprobs"
        for turn, (start, end, repeated, spans) in zip(line["turns"], said["turns"], strict=True):
            assert (turn["start"], turn["end"], turn["repeated"], turn["session"]) == (start, end, repeated, SESSION)
            shown = [{name: span[name] for name in ("version", "base_version", "start", "end")} for span in turn["weights"]]
            assert shown == [{"base_version": None, **span} for span in spans]
    first, second, adapted, *_, stopped, _ = [line["turns"][-1] for line in exported(branched.server, "jsonl", "turn")]
    assert [span["version"] for span in first["weights"]] == ["default", "one"]
    assert second["start"] == first["end"] and stopped["finish_reason"] == "stop_string"
    assert [(span["version"], span["base_version"]) for span in adapted["weights"]] == [(f"{ADAPTER}@1", base) for base in ("one", "two")]


@pytest.fixture(scope="module")
def load():
    packages = ["trl", "trl.trainer", "verl", "verl.experimental", "verl.experimental.agent_loop", "verifiers"]
    packages += ["verifiers.v1", "agentlightning", "agentlightning.types", "agentlightning.verl", "agentlightning.adapter"]
    with arrays.standing_in(), frameworks.importing(packages, ABSENT) as load:
        yield load


def floats(values):
    return numpy.asarray(list(values), "float32").tolist()


def test_trl(serving, own, load):
    """`_generate` of the trainer of GRPO takes what a `rollout_func` returns."""
    trainer = load("trl.trainer.grpo_trainer").GRPOTrainer
    rows = exported(serving, "trl")
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    gathered = types.SimpleNamespace(device="cpu", gather=lambda tensor: tensor)
    metrics = {"train": {name: [] for name in METRICS}}
    told = types.SimpleNamespace(
        accelerator=gathered,
        model=types.SimpleNamespace(training=True),
        rollout_func=lambda prompts, _: columns if len(prompts) == len(rows) else None,
        use_vllm=False,
        processing_class=types.SimpleNamespace(batch_decode=lambda ids, **_: ["" for _ in ids]),
        _tokenizer=types.SimpleNamespace(pad_token_id=0),
        tools=None,
        state=types.SimpleNamespace(num_input_tokens_seen=0),
        eos_token_ids=[2],
        _metrics=metrics,
    )
    prompts, completions, mask, _, logprobs, extra, *_ = trainer._generate(told, ["" for _ in rows])
    for row, line in enumerate(own):
        assert prompts[row] + completions[row] == line["token_ids"]
        assert [0] * len(prompts[row]) + mask[row] == line["loss_mask"]
        assert [0.0] * len(prompts[row]) + logprobs[row] == line["logprobs"]
    # What is left are columns for reward functions.
    assert extra["reward"] == [line["sequence_reward"] for line in own] and set(extra) == {"reward", "trajectory_id", "turn_id"}
    assert metrics["train"]["completions/mean_length"] == [pytest.approx(numpy.mean([sum(l["loss_mask"]) for l in own]))]
    assert metrics["train"]["num_tokens"] == [sum(len(p) + sum(m) for p, m in zip(prompts, mask, strict=True))]


METRICS = [f"completions/{of}{name}" for of in ("mean", "min", "max") for name in ("_length", "_terminated_length")]
METRICS += ["completions/clipped_ratio", "num_tokens"]


def test_verl(serving, own, load):
    """Rows are an agent loop's outputs, and become the fields of a batch by verl's own code."""
    output = load("verl.experimental.agent_loop.agent_loop").AgentLoopOutput
    for row, line in zip(exported(serving, "verl"), own, strict=True):
        made = output.model_validate(row)
        # What it has no field for would be lost without a word.
        assert set(row) <= set(output.model_fields)
        assert made.num_turns == 2 * len(line["turns"])
        fields = made.as_dict()
        start = line["prompt_tokens"]
        assert fields["prompts"].tolist() + fields["responses"].tolist() == line["token_ids"]
        assert len(fields["prompts"]) == start
        assert fields["response_mask"].tolist() == line["loss_mask"][start:]
        assert fields["rollout_log_probs"].tolist() == floats(line["logprobs"][start:])
        assert fields["rm_scores"].tolist() == [0.0] * (len(line["token_ids"]) - start - 1) + [line["sequence_reward"]]


def packed(mask):
    return mask and {"counts": mask.counts.tolist(), "ids": mask.ids.tolist()}


def test_verifiers(serving, own, load):
    """Nodes are a branch of a trace, from which prime-rl takes its samples."""
    graph, trace = load("verifiers.v1.graph"), load("verifiers.v1.trace")
    for row, line in zip(exported(serving, "verifiers"), own, strict=True):
        for node in row["nodes"]:
            assert set(node) <= set(graph.MessageNode.model_fields)
            for array in (node.get("sampling_mask") or {}).values():
                # JSON has no bytes.
                array["data"] = base64.b64decode(array["data"])
        nodes = [graph.MessageNode.model_validate(node) for node in row["nodes"]]
        assert [node.parent for node in nodes] == [None, *range(len(nodes) - 1)]
        branch = trace.Branch(index=0, nodes=nodes)
        # Lists in some versions of verifiers, and arrays in others, with log-probs as float32.
        assert list(branch.token_ids) == line["token_ids"]
        assert list(branch.sampled_mask) == [mask == 1 for mask in line["loss_mask"]]
        assert floats(branch.logprobs) == floats(line["logprobs"])
        assert packed(branch.sampling_mask) == line["sampling_mask"]
        assert sum(node.sampled for node in nodes) == len(learnt_turns(line))
        assert sum(node.message.role == "assistant" for node in nodes) == len(line["turns"])
        assert {node.message.role for node in nodes} == {"user", "assistant"}


@pytest.mark.parametrize("level", ["transition", "trajectory"])
def test_agent_lightning(serving, own, load, level):
    """Rollouts become a batch by the daemon's own code: a row a response, or a row a rollout."""
    daemon = load("agentlightning.verl.daemon")
    core = load("agentlightning.types.core")
    rollouts = [core.RolloutLegacy.model_validate(row) for row in exported(serving, "agent_lightning")]
    for row in exported(serving, "agent_lightning"):
        assert set(row) <= set(core.RolloutLegacy.model_fields)
        assert all(set(triplet) <= set(core.Triplet.model_fields) for triplet in row["triplets"])
    # The daemon knows each rollout by its id; two leaves of a trajectory are two.
    done = {f"{rollout.rollout_id} {number}": rollout for number, rollout in enumerate(rollouts)}
    told = types.SimpleNamespace(
        is_train=True,
        _completed_rollouts_v0=done,
        _total_tasks_queued=len(done),
        _task_id_to_original_sample={id: {"data_id": id} for id in done},
        trace_aggregator={"level": level},
        pad_token_id=0,
        tokenizer=None,
        _use_mrope=False,
        reward_fillna_value=None,
    )
    told._fillna_reward = types.MethodType(daemon.AgentModeDaemon._fillna_reward, told)
    longest = max(len(line["token_ids"]) for line in own)
    made = daemon.DataProto
    daemon.DataProto = lambda batch: types.SimpleNamespace(batch=batch, non_tensor_batch={})
    try:
        data, metrics = daemon.AgentModeDaemon.get_train_data_batch(told, longest, longest, "cpu", 0)
    finally:
        daemon.DataProto = made
    batch, rows = data.batch, []
    for row in range(len(batch["input_ids"])):
        there = batch["attention_mask"][row] == 1
        rows.append((batch["input_ids"][row][there].tolist(), batch["token_level_scores"][row].sum()))
    if level == "transition":
        expected = [(line["token_ids"][:end], line["sequence_reward"]) for line in own for _, end in responses(line)]
    else:
        expected = [(line["token_ids"], line["sequence_reward"]) for line in own]
        masks = [mask[: sum(row)].tolist() for mask, row in zip(batch["response_mask"], batch["attention_mask"], strict=True)]
        for mask, line in zip(masks, own, strict=True):
            learnt = line["loss_mask"][line["prompt_tokens"] :]
            assert mask[: len(learnt)] == learnt and not any(mask[len(learnt) :])
    assert rows == expected
    assert metrics["training/n_triplets"] == len(expected)
    for rollout, line in zip(rollouts, own, strict=True):
        logprobs = [[told["logprob"] for told in triplet.response["logprobs"]] for triplet in rollout.triplets]
        assert logprobs == [line["logprobs"][start:end] for start, end in responses(line)]


def is_a(value, named):
    """Whether a value of JSON passes for a type as Python writes it."""
    if named.endswith(" | None"):
        return value is None or is_a(value, named.removesuffix(" | None"))
    if named.startswith("list["):
        return isinstance(value, list) and all(is_a(inner, named[5:-1]) for inner in value)
    if named == "float":
        return isinstance(value, (float, int)) and not isinstance(value, bool)
    return type(value) is {"int": int, "bool": bool, "str": str}[named]


def test_prime_rl(serving, own):
    """All fields that a sample must have, of its types; what branches share is learnt from once."""
    fields = SHAPES["prime_rl"]["TrainingSample"]
    for row, line in zip(exported(serving, "prime_rl"), own, strict=True):
        needed = [name for name, field in fields.items() if not field["has_default"]]
        assert set(needed) <= set(row)
        for name in set(row) & set(fields):
            assert is_a(row[name], fields[name]["type"]), name
        # The recorded sources are older than prime-rl#3431, which adds `sampling_mask`: int32 `ids`, and a count of them for
        # each position.
        # Of the turns that are repeated, none has masks here.
        mask = row.pop("sampling_mask", None)
        mask = mask and {name: numpy.frombuffer(base64.b64decode(data), "<i4").tolist() for name, data in mask.items()}
        assert mask == line["sampling_mask"]
        assert set(row) - set(fields) == {"reward", "trajectory_id", "turn_id"}
        assert len(row["token_ids"]) == len(row["mask"]) == len(row["logprobs"]) == len(row["temperatures"])
        assert row["token_ids"] == line["token_ids"]
        expected = [False] * len(row["token_ids"])
        for turn in line["turns"]:
            learnt = turn in learnt_turns(line) and not turn["repeated"]
            expected[turn["start"] : turn["end"]] = [learnt] * (turn["end"] - turn["start"])
            assert set(row["temperatures"][turn["start"] : turn["end"]]) == {turn["sampling"]["temperature"]}
        assert row["mask"] == expected
        assert row["logprobs"] == [logprob if here else 0.0 for logprob, here in zip(line["logprobs"], expected, strict=True)]


def test_nemo_rl(serving, own):
    """The messages that NeMo-RL makes of NeMo Gym's answers; what it marks for the loss is what was sampled."""
    messages = SHAPES["nemo_rl"]["messages"]
    marker = SHAPES["nemo_rl"]["trained"]
    for row, line in zip(exported(serving, "nemo_rl"), own, strict=True):
        log, mask, logprobs = row["message_log"], [], []
        for message in log:
            # Fields that flags of the environment set are not for us to make.
            assert set(message) <= set(messages[message["role"]])
            assert {"role", "content", "token_ids"} <= set(message)
            trained = message["role"] == marker["role"] and marker["field"] in message
            assert trained == (message["role"] == "assistant")
            mask += [int(trained)] * len(message["token_ids"])
            logprobs += message.get("generation_logprobs", [0.0] * len(message["token_ids"]))
        assert sum((message["token_ids"] for message in log), []) == line["token_ids"]
        assert (mask, logprobs) == (line["loss_mask"], line["logprobs"])


# A process of its own, in which no library is stood in for. The bytes are handed over as memory of pyarrow's, and read
# by one thread: a pool of pyarrow that reads a Python file aborts one process in eight as it ends (apache/arrow#33975).
READS = """
import json, sys
import pyarrow, pyarrow.parquet
data = pyarrow.BufferReader(sys.stdin.buffer.read())
print(json.dumps(pyarrow.parquet.read_table(data, use_threads=False).to_pylist()))
"""


def table(server, query):
    """The rows of a table, read by pyarrow, which is what `datasets.load_dataset("parquet")` reads it by."""
    if "TITO_TEST_FRAMEWORKS" not in os.environ:
        note("NOT TRIED: tables: TITO_TEST_FRAMEWORKS does not say where pyarrow is")
        pytest.skip("no pyarrow")
    with urllib.request.urlopen(f"{server.url}/v1/trajectories/export?format=parquet&{query}", timeout=300) as answer:
        assert answer.headers["Content-Type"] == "application/vnd.apache.parquet"
        data = answer.read()
    environment = {**os.environ, "PYTHONPATH": os.environ["TITO_TEST_FRAMEWORKS"]}
    command = [sys.executable, "-c", READS]
    return json.loads(subprocess.run(command, input=data, env=environment, capture_output=True, check=True).stdout)


@pytest.mark.parametrize("unit", ["leaf", "turn"])
def test_parquet(serving, unit):
    """A row a sequence, which says what the line of `jsonl` says."""
    rows = table(serving, f"unit={unit}")
    for row, line in zip(rows, exported(serving, "jsonl", unit), strict=True):
        turns = line["turns"]
        expected = {name: line[name] for name in ("trajectory_id", "turn_id", "token_ids", "loss_mask", "tags", "reward")}
        # Of a model that sees none.
        assert line["images"] == []
        expected |= {name: line[name] for name in ("images", "prompt_tokens", "sequence_reward", "logprobs_mode")}
        expected |= {name: turns[-1][name] for name in ("session", "model", "adapter")}
        expected |= {"error": None, "turn_ids": [turn["id"] for turn in turns]}
        names = {"starts": "start", "ends": "end", "repeated": "repeated", "created_at": "created_at", "ended_at": "ended_at"}
        expected |= {f"turn_{column}": [turn[name] for turn in turns] for column, name in names.items()}
        expected["turn_rewards"] = [line["turn_rewards"].get(turn["id"]) for turn in turns]
        mask = line["sampling_mask"] or {"counts": None, "ids": None}
        expected |= {f"sampling_mask_{column}": mask[column] for column in ("counts", "ids")}
        logprobs = row.pop("logprobs")
        assert row == expected
        assert [value is None for value in logprobs] == [value is None for value in line["logprobs"]]
        assert floats(value or 0 for value in logprobs) == floats(value or 0 for value in line["logprobs"])


def test_a_table_of_nothing_is_a_table(serving):
    assert table(serving, "session=nobody") == []
