"""Writes tests/golden/lora: what PEFT makes of models of tests/golden/families and mistralrs with an adapter.

    pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0 peft==0.21.2
    python record_lora.py [NAME...]

One model of each architecture, and a few variants, with an adapter of all linear layers, the head and the embeddings, but for those that tito
refuses by name; they are written down too. Ranks and factors differ between modules. The adapter's numbers are drawn like the model's, from the names
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
# Models in which one token's experts have nearly the same scores with their own seed, so that rounding decides.
SKIPPED_SEEDS = {"granitemoeshared_plain": 1}
# Variants with modules that the plain ones have not: inputs of each layer, routers, compressed states of experts, a head of its own.
BESIDES = ("gemma4_per_layer_inputs", "gemma4_experts", "nemotron_h_latent_experts", "cohere_untied")
# How far log-probs in single and in double precision may be apart.
STEADY = 3e-5
# Classes of which PEFT refuses these modules, or fails as soon as something is computed.
OF_PEFT = {"falcon_h1": ("out_proj", "conv1d"), "nemotron_h": ("out_proj", "conv1d"), "llama4_text": ("router",)}
# What chooses the tokens to attend to, experts, and what reads images.
REFUSED = re.compile(r"(^|\.)(indexer|experts|visual|vision_tower|multi_modal_projector)\.")
# Modules of which PEFT writes the base weights down as well.
SAVED_WITH_BASE = ".base_layer."


def settings():
    """Ranks, factors and patterns, each of which counts somewhere."""
    return {
        "r": 4,
        "lora_alpha": 6,
        "rank_pattern": {"v_proj": 3, "in_proj": 5, r"layers\.1\..*o_proj": 2},
        "alpha_pattern": {"down_proj": 2.5, "self_attn.q_proj": 9},
    }


def trained_modules(model):
    kinds = (torch.nn.Linear, torch.nn.Embedding)
    linear = {name: module for name, module in model.named_modules() if isinstance(module, kinds)}
    of_peft = OF_PEFT.get(model.config.model_type, ())
    linear = {name: module for name, module in linear.items() if name.split(".")[-1] not in of_peft}
    targets = {name: module for name, module in linear.items() if not REFUSED.search(name)}
    return targets, sorted(linear.keys() - targets.keys())


def with_lora(golden, targets, given):
    model = load(golden["config"], golden["tensors"], golden["seed"])
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=list(targets), **given))


def module_of(name):
    return name.removeprefix("base_model.model.").rsplit(".lora_", 1)[0]


def state_of(model):
    state = peft.get_peft_model_state_dict(model)
    return {name: tensor for name, tensor in state.items() if SAVED_WITH_BASE not in name}


def adapted(golden, seed, given):
    """The model with an adapter of these settings, the modules of the adapter with their shapes, and those that were left out."""
    model = load(golden["config"], golden["tensors"], golden["seed"])
    targets, left_out = trained_modules(model)
    model = with_lora(golden, targets, given)
    # Where a class has experts in one tensor, PEFT takes names of feed-forward parts for theirs.
    served = {module_of(name) for name in state_of(model)} & targets.keys()
    if len(served) < len(targets):
        model = with_lora(golden, served, given)
    shapes = {name: list(module.weight.shape) for name, module in targets.items() if name in served}
    state = state_of(model)
    assert {module_of(name) for name in state} == shapes.keys(), sorted(state)
    family = golden["config"]["model_type"]
    numbers = {
        name: torch.tensor(drawn(seed, name, tuple(tensor.shape), family)).reshape(tensor.shape)
        for name, tensor in state.items()
    }
    peft.set_peft_model_state_dict(model, numbers)
    embeddings = [name for name in shapes if isinstance(targets[name], torch.nn.Embedding)]
    return model.eval(), (shapes, embeddings), left_out


def next_log_probs(model, tokens):
    with torch.no_grad():
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0].double()
    found = torch.log_softmax(logits, dim=-1)
    return [float(found[place, token]) for place, token in enumerate(tokens[1:])]


def record(path):
    golden = json.loads(path.read_text())
    tokens = golden["token_ids"][: min(TOKENS, golden["config"].get("index_topk", TOKENS))]
    tried = []
    first = golden["seed"] + SKIPPED_SEEDS.get(path.stem, 0)
    for seed in range(first, first + SEEDS):
        model, (modules, embeddings), left_out = adapted(golden, seed, settings())
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
        f'  "embeddings": {json.dumps(embeddings)}',
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
    for path in [*chosen(), *(GOLDEN / "families" / f"{name}.json" for name in BESIDES)]:
        if names and path.stem not in names:
            continue
        moved, modules, left_out = record(path)
        print(f"{path.stem}: {modules} modules, log-probs move by {moved:.2f}; refused: {left_out}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
