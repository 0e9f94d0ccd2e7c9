"""Writes tests/golden/lora: what PEFT makes of models of tests/golden/families and mistralrs with an adapter.

    pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0 peft==0.21.2
    python record_lora.py [NAME...]

One model of each architecture, with an adapter of all linear layers, but for those that tito refuses by name; they are
written down too. Ranks and factors differ between modules. The adapter's numbers are drawn like the model's, from the names
of its tensors. In float32 on the CPU, with eager attention, the sequence computed whole, without a cache.
"""

import copy
import json
import pathlib
import re
import sys

import peft
import torch
import transformers

from drawn_weights import drawn
from record_states import chosen
from recording import load

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
TOKENS = 130
SEEDS = 4
# How far log-probs in single and in double precision may be apart.
STEADY = 3e-5
# Classes of which PEFT refuses these modules.
MAMBA_TYPES = ("falcon_h1", "nemotron_h")
OF_MAMBA = ("out_proj", "conv1d")
# Routers, gates of experts, keys and values that are made together of a compressed vector, and experts.
REFUSED = re.compile(
    r"(^|\.)(lm_head|gate|gate\.wg|router|router\.proj|shared_expert_gate|kv_b_proj|indexer\..*|experts\..*)$"
)


def settings():
    """Ranks, factors and patterns, each of which counts somewhere."""
    return {
        "r": 4,
        "lora_alpha": 6,
        "rank_pattern": {"v_proj": 3, "in_proj": 5, r"layers\.1\..*o_proj": 2},
        "alpha_pattern": {"down_proj": 2.5, "self_attn.q_proj": 9},
    }


def linear_modules(model):
    linear = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    # PEFT itself refuses the way back from Mamba's states for some classes.
    of_peft = OF_MAMBA if model.config.model_type in MAMBA_TYPES else ()
    linear = {name: module for name, module in linear.items() if name.split(".")[-1] not in of_peft}
    targets = {name: module for name, module in linear.items() if not REFUSED.search(name)}
    return targets, sorted(linear.keys() - targets.keys() - {"lm_head"})


def with_lora(golden, targets):
    model = load(golden["config"], golden["tensors"], golden["seed"])
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=list(targets), **settings()))


def module_of(name):
    return name.removeprefix("base_model.model.").rsplit(".lora_", 1)[0]


def adapted(golden, seed):
    """The model with an adapter, the modules of the adapter with their shapes, and those that were left out."""
    model = load(golden["config"], golden["tensors"], golden["seed"])
    targets, left_out = linear_modules(model)
    model = with_lora(golden, targets)
    # Where a class has experts in one tensor, PEFT takes names of feed-forward parts for theirs.
    served = {module_of(name) for name in peft.get_peft_model_state_dict(model)} & targets.keys()
    if len(served) < len(targets):
        model = with_lora(golden, served)
    shapes = {name: list(module.weight.shape) for name, module in targets.items() if name in served}
    state = peft.get_peft_model_state_dict(model)
    assert {module_of(name) for name in state} == shapes.keys(), sorted(state)
    family = golden["config"]["model_type"]
    numbers = {
        name: torch.tensor(drawn(seed, name, tuple(tensor.shape), family)).reshape(tensor.shape)
        for name, tensor in state.items()
    }
    peft.set_peft_model_state_dict(model, numbers)
    return model.eval(), shapes, left_out


def next_log_probs(model, tokens):
    with torch.no_grad():
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0].double()
    found = torch.log_softmax(logits, dim=-1)
    return [float(found[place, token]) for place, token in enumerate(tokens[1:])]


def record(path):
    golden = json.loads(path.read_text())
    tokens = golden["token_ids"][: min(TOKENS, golden["config"].get("index_topk", TOKENS))]
    tried = []
    for seed in range(golden["seed"], golden["seed"] + SEEDS):
        model, modules, left_out = adapted(golden, seed)
        with_adapter = next_log_probs(model, tokens)
        # Numbers that another order of sums would move cannot tell a right engine from a wrong one.
        exact = next_log_probs(copy.deepcopy(model).double(), tokens)
        moved = max(abs(one - other) for one, other in zip(with_adapter, exact))
        tried.append((moved, seed, with_adapter))
        if moved < STEADY:
            break
    # Some classes compute a part in single precision in any case: the steadiest counts.
    _, seed, with_adapter = min(tried)
    with model.disable_adapter():
        without = next_log_probs(model, tokens)
    moved = sum(abs(one - other) for one, other in zip(with_adapter, without)) / len(without)
    assert moved > 0.05, f"{path.stem}: the adapter changes log-probs by {moved} only"
    lines = [
        f'  "peft": "{peft.__version__}"',
        f'  "transformers": "{transformers.__version__}"',
        f'  "seed": {seed}',
        f'  "settings": {json.dumps(settings())}',
        '  "modules": {\n' + ",\n".join(f"    {json.dumps(name)}: {shape}" for name, shape in modules.items()) + "\n  }",
        f'  "refused": {json.dumps(left_out)}',
        '  "next_log_probs": [' + ", ".join(f"{value:.7g}" for value in with_adapter) + "]",
    ]
    directory = GOLDEN / "lora"
    directory.mkdir(exist_ok=True)
    (directory / f"{path.parent.name}_{path.stem}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return moved, len(modules), left_out


def main(names):
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for path in chosen():
        if names and path.stem not in names:
            continue
        moved, modules, left_out = record(path)
        print(f"{path.stem}: {modules} modules, log-probs move by {moved:.2f}; refused: {left_out}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
