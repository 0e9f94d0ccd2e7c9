"""Writes tests/golden/states: states of each layer of models of tests/golden/families and mistralrs, by transformers.

    pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0
    python record_states.py [NAME...]

One model of each architecture. After each layer, the residual stream at some positions: the norm of the row, and some of
its numbers. In float32 on the CPU, with eager attention, the sequence computed whole, without a cache.
"""

import json
import pathlib
import sys

import torch
import transformers

from recording import load

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
POSITIONS = (0, 16, 40, 71, 129)
# Of each eight numbers one, and not always the same.
COLUMNS = (0, 5, 10, 15, 16, 21, 26, 31)
# What the native engine does not compute.
OTHERS = ("PhiForCausalLM", "PhiMoEForCausalLM", "Starcoder2ForCausalLM")


def chosen():
    """For each architecture the plain variant; else the first one by name."""
    by_architecture = {}
    for folder in ("families", "mistralrs"):
        for path in sorted((GOLDEN / folder).glob("*.json")):
            if path.stem == "measured":
                continue
            golden = json.loads(path.read_text())
            by_architecture.setdefault(golden["config"]["architectures"][0], []).append(path)
    for architecture, paths in by_architecture.items():
        if architecture not in OTHERS:
            yield next((path for path in paths if path.stem.endswith("_plain")), paths[0])


def layers_of(model):
    """The list of layers, which every class calls one of these."""
    lists = [module for name, module in model.named_modules() if name.split(".")[-1] in ("layers", "h", "blocks")]
    return next(module for module in lists if isinstance(module, torch.nn.ModuleList))


def states(golden):
    """What is there after each layer, position by position."""
    model = load(golden["config"], golden["tensors"], golden["seed"])
    # Sparse attention is computed as long as it is dense.
    tokens = golden["token_ids"][: golden["config"].get("index_topk")]
    found = []

    def keep(_module, _inputs, output):
        output = output[0] if isinstance(output, tuple) else output
        found.append(output.reshape(-1, output.shape[-1]).clone())

    for layer in layers_of(model):
        layer.register_forward_hook(keep)
    with torch.no_grad():
        model(torch.tensor([tokens]), use_cache=False)
    return found, [position for position in POSITIONS if position < len(tokens)]


def record(path):
    found, positions = states(json.loads(path.read_text()))
    rows = [[layer[position] for position in positions] for layer in found]

    def numbers(values):
        return "[" + ", ".join(f"{value:.7g}" for value in values) + "]"

    lines = [
        f'  "transformers": "{transformers.__version__}"',
        f'  "positions": {list(positions)}',
        f'  "columns": {list(COLUMNS)}',
    ]
    layers = [
        f'    {{"norms": {numbers([float(row.double().norm()) for row in layer])},\n     "numbers": ['
        + ",\n                 ".join(numbers([float(row[column]) for column in COLUMNS]) for row in layer)
        + "]}"
        for layer in rows
    ]
    lines.append('  "layers": [\n' + ",\n".join(layers) + "\n  ]")
    directory = GOLDEN / "states"
    directory.mkdir(exist_ok=True)
    (directory / f"{path.parent.name}_{path.stem}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main(names):
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for path in chosen():
        if names and path.stem not in names:
            continue
        record(path)
        print(path.stem, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
