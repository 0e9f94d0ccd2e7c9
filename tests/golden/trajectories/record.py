#!/usr/bin/env python3
"""Records what NeMo-RL and prime-rl take of a rollout, out of their sources: names and types, nothing else.

    tests/golden/trajectories/record.py NEMO_RL PRIME_RL > tests/golden/trajectories/shapes.json

Both are git directories (`git clone --bare`) of github.com/NVIDIA-NeMo/RL and github.com/PrimeIntellect-ai/prime-rl. The
sources are parsed and not run.
"""

import ast
import json
import subprocess
import sys


def source(repository, path):
    return git(repository, "show", f"HEAD:{path}")


def git(repository, *command):
    return subprocess.run(["git", f"--git-dir={repository}", *command], check=True, capture_output=True, text=True).stdout


def fields_of(tree, name):
    """The fields of a class: their types, and whether they may be left out."""
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)
    fields = [node for node in found.body if isinstance(node, ast.AnnAssign)]
    return {
        field.target.id: {"type": ast.unparse(field.annotation), "has_default": field.value is not None} for field in fields
    }


def messages_of(tree):
    """Names in the dictionaries that stand for messages, by their roles, and those that are set later."""
    messages = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Dict):
            continue
        names = {key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)}
        if "token_ids" in names and isinstance(names.get("role"), ast.Constant):
            messages.setdefault(names["role"].value, set()).update(names)
    return {role: sorted(names) for role, names in sorted(messages.items())}


def trained_by(tree):
    """By which role and field a message is marked as one to learn from."""
    name = "add_grpo_token_loss_masks_and_generation_logprobs"
    function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)
    marks = next(node for node in ast.walk(function) if isinstance(node, ast.If) and isinstance(node.test, ast.BoolOp))
    role, field = marks.test.values
    return {"role": role.comparators[0].value, "field": field.left.value}


def main(nemo_rl, prime_rl):
    gym, grpo = "nemo_rl/environments/nemo_gym.py", "nemo_rl/algorithms/grpo.py"
    sample = "src/prime_rl/transports/rollouts/types.py"
    shapes = {
        "nemo_rl": {
            "commit": git(nemo_rl, "rev-parse", "HEAD").strip(),
            "messages": messages_of(ast.parse(source(nemo_rl, gym))),
            "trained": trained_by(ast.parse(source(nemo_rl, grpo))),
        },
        "prime_rl": {
            "commit": git(prime_rl, "rev-parse", "HEAD").strip(),
            "TrainingSample": fields_of(ast.parse(source(prime_rl, sample)), "TrainingSample"),
        },
    }
    json.dump(shapes, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
