"""Compares tests/golden/native with transformers' own models: shows that reference.py is right.

    pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0 && python check_transformers.py

Also with transformers==4.57.6. Each model in float32, with eager attention, and again in float64, where what is left is what transformers always
computes in float32 (norms, rotary embedding, router). Nothing is downloaded. Exits with 1 where a log-prob is off by
more than TOLERANCE, a greedy token is another, or a tensor of the files is missing or left over.
"""

import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers

import cases

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "native"
TOLERANCE = 5e-5
NEW = int(transformers.__version__.split(".")[0]) >= 5
# transformers 5 multiplies by all experts at once unless told otherwise, which has no float64.
IMPLEMENTATION = {"attn_implementation": "eager", **({"experts_implementation": "eager"} if NEW else {})}


def compare(directory, dtype):
    """The greatest difference of a log-prob, and how many prompts continue otherwise."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        directory, torch_dtype=dtype, output_loading_info=True, **IMPLEMENTATION
    )
    strays = {key: list(names) for key, names in info.items() if names}
    if strays:
        raise ValueError(f"{directory.name}: {strays}")
    greatest, otherwise = 0.0, 0
    for prompt in json.loads((directory / "expected.json").read_text())["prompts"]:
        ids = prompt["token_ids"]
        with torch.no_grad():
            log_probs = model(torch.tensor([ids])).logits[0].double().log_softmax(-1).numpy()
        next_log_probs = [log_probs[i, token] for i, token in enumerate(ids[1:])]
        for mine, theirs in ((prompt["last_log_probs"], log_probs[-1]), (prompt["next_log_probs"], next_log_probs)):
            greatest = max([greatest, *np.abs(np.subtract(mine, theirs))])
        otherwise += greedy(model, ids, len(prompt["greedy"])) != prompt["greedy"]
    return greatest, otherwise


def greedy(model, ids, count):
    """With the model's own cache, one token at a time."""
    cache, new, out = None, torch.tensor([ids]), []
    with torch.no_grad():
        for _ in range(count):
            step = model(new, past_key_values=cache, use_cache=True)
            cache, new = step.past_key_values, step.logits[:, -1:].argmax(-1)
            out.append(int(new))
    return out


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, numpy {np.__version__}")
    failed = False
    for case in cases.CASES:
        if "rope_parameters" in case.config and not NEW:
            print(f"{case.name:20} not read by transformers 4")
            continue
        for dtype in (torch.float32, torch.float64):
            greatest, otherwise = compare(GOLDEN / case.name, dtype)
            bad = not greatest <= TOLERANCE or otherwise > 0
            failed = failed or bad
            print(
                f"{case.name:20} {str(dtype)[6:]}  off by {greatest:.1e}  {otherwise} other continuations"
                + ("  FAILED" if bad else "")
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
