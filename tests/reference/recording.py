"""Records what transformers makes of a model with drawn weights: in a golden file, as README.md describes it.

In float32 on the CPU, with eager attention, each sequence computed whole, without a cache. A case is refused whose
numbers could not tell a right engine from a wrong one: see `check`. Nothing is downloaded.
"""

import json
import os
import pathlib
import re
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from safetensors import safe_open

from drawn_weights import write_model

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
GREEDY = 12
SEEDS = 40
# How much weights are changed by, of their own size, to see how much log-probs change; and how much these may.
ROUNDING = 1e-5
STEADY = 1e-3
IMPLEMENTATION = {"attn_implementation": "eager", "experts_implementation": "eager"}


def config_of(case):
    """What config.json has."""
    given = {"architectures": [case.architecture], "model_type": case.model_type, **case.settings}
    if case.style == "given":
        return dict(sorted(given.items()))
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "config.json")
        path.write_text(json.dumps(given))
        config = transformers.AutoConfig.from_pretrained(directory)
        config.save_pretrained(directory)
        written = json.loads(path.read_text())
    return {**written, "architectures": [case.architecture], **ends_of(written)}


def ends_of(config):
    """What to say of the ends instead: those of the real model are beyond the vocabulary of a tiny one."""
    ends = config.get("eos_token_id")
    numbers = ends if isinstance(ends, list) else [ends] if isinstance(ends, int) else []
    return {"eos_token_id": None} if any(number >= config["vocab_size"] for number in numbers) else {}


def model_class(config):
    return getattr(transformers, config["architectures"][0])


def tensors_of(case, config):
    """The names and shapes that a checkpoint of the model has."""
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory, "config.json").write_text(json.dumps(config))
        loaded = transformers.AutoConfig.from_pretrained(directory)
        model = model_class(config)._from_config(loaded)
        model.save_pretrained(directory)
        with safe_open(pathlib.Path(directory, "model.safetensors"), "pt") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}
    if case.published:
        shapes = {re.sub(*case.published, name): shape for name, shape in shapes.items()}
    return dict(sorted(shapes.items()))


def load(config, tensors, seed):
    with tempfile.TemporaryDirectory() as directory:
        write_model(directory, config, tensors, seed)
        model, info = model_class(config).from_pretrained(
            directory, dtype=torch.float32, output_loading_info=True, **IMPLEMENTATION
        )
    strays = {key: list(names) for key, names in info.items() if names}
    if strays:
        raise ValueError(f"tensors are missing or left over: {strays}")
    return model.eval()


def log_probs(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].double().log_softmax(-1).numpy()


def token_ids(vocab, length, seed):
    numbers = np.random.PCG64(1000 + seed).random_raw(length)
    ids = [int(number % np.uint64(vocab)) for number in numbers]
    ids[5], ids[30] = 0, vocab - 1
    return ids


def expected(model, ids, lengths):
    """For each length of a prompt the tokens that follow greedily, and the log-prob of each."""
    whole = log_probs(model, ids)
    prompts, lead, spread = [], [], float(np.std(whole[-1]))
    for length in lengths:
        sequence, chosen = ids[:length], []
        for _ in range(GREEDY):
            last = log_probs(model, sequence)[-1]
            best = int(last.argmax())
            chosen.append(float(last[best]))
            lead.append(float(np.sort(last)[-1] - np.sort(last)[-2]))
            sequence = [*sequence, best]
        prompts.append({"length": length, "greedy": sequence[length:], "log_probs": chosen})
    next_log_probs = [float(whole[i, token]) for i, token in enumerate(ids[1:])]
    return {"token_ids": ids, "next_log_probs": next_log_probs, "prompts": prompts}, min(lead), spread


def check(case, config, tensors, seed, found, lead, spread):
    """Raises ValueError where the numbers would not tell right from wrong."""
    if lead < 1e-2:
        raise ValueError(f"a greedy token leads by {lead:.1e} only")
    if spread < 0.7:
        raise ValueError(f"log-probs deviate by {spread:.2f} nats only")
    right = np.array(found["next_log_probs"])
    for change in case.without:
        other = load({**config, **change}, tensors, seed)
        whole = log_probs(other, found["token_ids"])
        wrong = np.array([whole[i, token] for i, token in enumerate(found["token_ids"][1:])])
        if np.abs(right - wrong).max() < 1e-2:
            raise ValueError(f"{change} changes log-probs by {np.abs(right - wrong).max():.1e} only")


def check_steady(config, tensors, seed, found):
    """Raises ValueError where a little rounding changes much, as where two experts are almost equally chosen."""
    model = load(config, tensors, seed)
    torch.manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():
            weights *= 1 + ROUNDING * (2 * torch.rand_like(weights) - 1)
    moved = 0.0
    for prompt in found["prompts"]:
        ids = [*found["token_ids"][: prompt["length"]], *prompt["greedy"]]
        whole = log_probs(model, ids)[prompt["length"] - 1 :]
        rounded = [float(whole[i, token]) for i, token in enumerate(prompt["greedy"])]
        moved = max(moved, float(np.abs(np.array(rounded) - prompt["log_probs"]).max()))
    whole = log_probs(model, found["token_ids"])
    rounded = [float(whole[i, token]) for i, token in enumerate(found["token_ids"][1:])]
    moved = max(moved, float(np.abs(np.array(rounded) - found["next_log_probs"]).max()))
    if moved > STEADY:
        raise ValueError(f"rounding moves log-probs by {moved:.1e}")


def write(case, directory, config, tensors, seed, found):
    def numbers(values):
        return "[" + ", ".join(str(v) if isinstance(v, int) else f"{v:.6f}" for v in values) + "]"

    prompts = [
        f'    {{"length": {p["length"]}, "greedy": {numbers(p["greedy"])},\n     "log_probs": {numbers(p["log_probs"])}}}'
        for p in found["prompts"]
    ]
    lines = [
        f'  "transformers": "{transformers.__version__}"',
        f'  "seed": {seed}',
        f'  "max_model_len": {json.dumps(case.max_model_len)}',
        f'  "config": {json.dumps(config)}',
        f'  "tensors": {json.dumps(tensors)}',
        f'  "token_ids": {numbers(found["token_ids"])}',
        f'  "next_log_probs": {numbers(found["next_log_probs"])}',
        '  "prompts": [\n' + ",\n".join(prompts) + "\n  ]",
    ]
    (directory / f"{case.name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def record(case, directory, steady):
    config = config_of(case)
    tensors = tensors_of(case, config)
    refused = None
    for seed in range(1, SEEDS):
        model = load(config, tensors, seed)
        found, lead, spread = expected(model, token_ids(config["vocab_size"], case.lengths[-1], seed), case.lengths)
        try:
            check(case, config, tensors, seed, found, lead, spread)
            if steady:
                check_steady(config, tensors, seed, found)
        except ValueError as error:
            refused = error
            continue
        write(case, directory, config, tensors, seed, found)
        return seed
    raise refused


def record_all(cases, directory, steady=False):
    """Writes the file of each case, or of those that the command line names. Exits with 1 where one is refused.

    With `steady`, a case is refused as well whose log-probs a little rounding changes by much.
    """
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    directory.mkdir(parents=True, exist_ok=True)
    names = sys.argv[1:]
    failed = False
    for case in cases:
        if names and case.name not in names:
            continue
        try:
            print(f"{case.name}: seed {record(case, directory, steady)}", flush=True)
        except Exception as error:  # noqa: BLE001 (every case is to be tried)
            failed = True
            print(f"{case.name}: FAILED: {type(error).__name__}: {error}", flush=True)
    sys.exit(failed)
