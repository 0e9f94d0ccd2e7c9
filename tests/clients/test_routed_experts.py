"""Experts of a tiny mixture: what a server says they were, it follows when they are given back, to the same bits."""

import base64
import io
import json

import numpy
import pytest

from conftest import REPOSITORY, Server
from drawn_models import write
from lines import documents_of, events_of
from replay_command import replayed, settled

CASE = json.loads((REPOSITORY / "tests" / "golden" / "families" / "deepseek_v3_plain.json").read_text())
CONFIG = CASE["config"]
LAYERS, EXPERTS, PER_TOKEN = (CONFIG[key] for key in ("num_hidden_layers", "n_routed_experts", "num_experts_per_tok"))
DENSE = CONFIG["first_k_dense_replace"]
PROMPT = CASE["token_ids"][:40]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    write(directory, CASE)
    (directory / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }} {% endfor %}")
    return str(directory)


@pytest.fixture(scope="module")
def server(model):
    server = Server("--enable-return-routed-experts", model=model)
    yield server
    server.stop()


def decode(text):
    """As vLLM's documentation says."""
    experts = numpy.load(io.BytesIO(base64.b64decode(text)))
    assert experts.dtype == numpy.uint8 and experts.shape[1:] == (LAYERS, PER_TOKEN)
    assert (experts[:, :DENSE] == 0).all() and (experts < EXPERTS).all()
    chosen = experts[:, DENSE:]
    assert all(len(set(of_layer)) == PER_TOKEN for of_token in chosen.tolist() for of_layer in of_token)
    return experts


def encode(experts):
    file = io.BytesIO()
    numpy.save(file, experts)
    return base64.b64encode(file.getvalue()).decode()


def complete(server, prompt=PROMPT, **fields):
    body = {"max_tokens": 12, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "logprobs": 0}
    return server.post("/v1/completions", prompt=prompt, **{**body, **fields})["choices"]


def scores(server, tokens, **fields):
    """Log-probs of all tokens but the first."""
    (choice,) = complete(server, tokens, max_tokens=1, prompt_logprobs=0, **fields)
    return [entry[str(id)]["logprob"] for entry, id in zip(choice["prompt_logprobs"][1:], tokens[1:], strict=True)]


def test_the_same_experts_on_every_endpoint(server):
    (choice,) = complete(server)
    experts = decode(choice["routed_experts"])
    assert len(experts) == len(PROMPT) + 12 - 1
    # What is cached has its experts too, and a prompt may leave out those that are known.
    for start in (0, 17, len(PROMPT)):
        (again,) = complete(server, routed_experts_prompt_start=start)
        assert (decode(again["routed_experts"]) == experts[start:]).all()
    params = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}
    generated = server.post("/inference/v1/generate", token_ids=PROMPT, sampling_params=params)["choices"][0]
    assert generated["token_ids"] == choice["token_ids"]
    assert generated["routed_experts"] == choice["routed_experts"]
    chat = server.post(
        "/v1/chat/completions",
        messages=[{"role": "user", "content": " ".join(map(str, PROMPT))}],
        return_token_ids=True,
        **params,
    )
    answer = chat["choices"][0]
    assert (chat["prompt_token_ids"], answer["token_ids"]) == (PROMPT, choice["token_ids"])
    assert answer["routed_experts"] == choice["routed_experts"]
    # NeMo-RL's form is that of the message, with a row for the last token too.
    magic, dtype, shape, data = answer["message"]["routed_experts"].split(":")
    whole = numpy.frombuffer(base64.b64decode(data), dtype).reshape([int(size) for size in shape.split("x")])
    assert magic == "nrlre1" and (whole[:-1] == experts).all()
    assert (whole[-1] == numpy.arange(PER_TOKEN)).all()


def test_streams_and_several_choices_have_what_each_of_them_took(server):
    several = {"n": 3, "temperature": 1.0, "seed": 5}
    choices = complete(server, **several)
    body = {"model": "smollm2", "prompt": PROMPT, "max_tokens": 12, "ignore_eos": True, "stream": True, **several}
    _, streamed = server.exchange("/v1/completions", body)
    last = {choice["index"]: choice for event in events_of(streamed) for choice in event["choices"] if choice["finish_reason"]}
    assert [last[index]["routed_experts"] for index in range(3)] == [choice["routed_experts"] for choice in choices]
    assert len({tuple(choice["token_ids"]) for choice in choices}) > 1
    for choice in choices:
        experts = decode(choice["routed_experts"])
        tokens = PROMPT + choice["token_ids"]
        (scored,) = complete(server, tokens, max_tokens=1)
        assert (decode(scored["routed_experts"])[: len(experts)] == experts).all()


def test_what_was_sampled_scores_to_the_same_bits_with_its_experts(server):
    (choice,) = complete(server)
    tokens = PROMPT + choice["token_ids"]
    plain = scores(server, tokens)
    assert plain[len(PROMPT) - 1 :] == choice["logprobs"]["token_logprobs"]
    experts = decode(choice["routed_experts"])
    forms = {
        "npy": choice["routed_experts"],
        "of layers with experts": encode(experts[:, DENSE:]),
        "int64": encode(experts.astype(numpy.int64)),
        "nested": experts.tolist(),
        "in another order": encode(experts[:, :, ::-1]),
        "nrlre1": f"nrlre1:int8:{'x'.join(map(str, experts.shape))}:{base64.b64encode(experts.tobytes()).decode()}",
    }
    for name, given in forms.items():
        assert scores(server, tokens, routed_experts=given) == plain, name
    assert scores(server, tokens) == plain


def test_another_expert_scores_otherwise_and_stays_apart(server, model):
    (choice,) = complete(server)
    tokens = PROMPT + choice["token_ids"]
    plain = scores(server, tokens)
    experts = decode(choice["routed_experts"]).copy()
    place = 20
    experts[place, -1, 0] = next(expert for expert in range(EXPERTS) if expert not in experts[place, -1])
    for _ in range(2):
        other = scores(server, tokens, routed_experts=encode(experts))
        assert other[:place] == plain[:place] and other[place] != plain[place]
        assert scores(server, tokens) == plain
    # A server without the flag follows them all the same, and shows none.
    silent = Server(model=model)
    assert scores(silent, tokens, routed_experts=encode(experts)) == other
    assert complete(silent)[0]["routed_experts"] is None
    silent.stop()


def test_what_cannot_be_followed_is_refused(server):
    for given in (encode(numpy.zeros((1, LAYERS + 1, PER_TOKEN), numpy.uint8)), "AAAA", 3):
        status, text = server.exchange("/v1/completions", {"model": "smollm2", "prompt": PROMPT, "routed_experts": given})
        assert (status, json.loads(text)["error"]["param"]) == (400, "routed_experts")


def other_experts(experts, place):
    """The same, but that another expert is taken at one place, in a layer after which keys and values are computed."""
    changed = experts.copy()
    changed[place, DENSE, 0] = next(expert for expert in range(EXPERTS) if expert not in experts[place, DENSE])
    return changed


def test_a_captured_turn_is_computed_again_through_the_experts_that_its_request_gave(model, tmp_path):
    capture = tmp_path / "capture.redb"
    server = Server("--enable-return-routed-experts", "--capture", str(capture), model=model)
    sampling = {"temperature": 1.0, "seed": 3, "n": 2}
    experts = decode(complete(server)[0]["routed_experts"])[: len(PROMPT)]
    changed = encode(other_experts(experts, 20))
    plain, given = (complete(server, **sampling, **more) for more in ({}, {"routed_experts": changed}))
    # What is proven would be proven by nothing if these experts changed nothing.
    assert [choice["logprobs"] for choice in plain] != [choice["logprobs"] for choice in given]
    # The second turn of a conversation, of which nothing was sampled through the experts that it gives.
    tokens = PROMPT + given[0]["token_ids"] + PROMPT[:5]
    later = decode(complete(server, tokens)[0]["routed_experts"])[: len(tokens)]
    complete(server, tokens, routed_experts=encode(other_experts(other_experts(later, 20), 44)))
    settled(server)

    found = {"replay": [], "rescore": []}
    for trajectory in json.loads(server.get("/v1/trajectories"))["data"]:
        turns = json.loads(server.get(f"/v1/trajectories/{trajectory['id']}"))["turns"]
        for turn in turns:
            for kind, verdicts in found.items():
                status, text = server.exchange(f"/v1/trajectories/{trajectory['id']}/turns/{turn['id']}/{kind}", {})
                assert status == 200, text
                verdicts.append((json.loads(text)["verdict"], json.loads(text)["message"]))
    assert [len(verdicts) for verdicts in found.values()] == [7, 7]
    assert {verdict for verdicts in found.values() for verdict, _ in verdicts} == {"equal"}, found
    lines = documents_of(server.get("/v1/trajectories/export?rescore=true"))
    assert lines and all(line["rescored"]["greatest"] == 0 for line in lines), lines
    server.stop()
    equal, *rest = replayed(capture, model, length=[])
    assert (equal, rest[1:]) == (7, [0, 0, 0, []])
