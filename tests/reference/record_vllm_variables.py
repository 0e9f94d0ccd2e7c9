#!/usr/bin/env python3
"""Compares src/config/vllm_variables.json with vLLM: the environment variables of vLLM that tito does not read.

    python record_vllm_variables.py ENVS.PY...

ENVS.PY is vllm/envs.py; with several, those of several versions are known. What becomes of a variable here (ignored, and what holds
instead, or without effect) is decided by a person. So variables that nobody has decided about are named, and the exit status is 1.
"""

import json
import pathlib
import re
import sys

CONFIG = pathlib.Path(__file__).resolve().parents[2] / "src" / "config"


def variables_of_vllm(path):
    """The names of vLLM's own variables."""
    table = pathlib.Path(path).read_text().partition("environment_variables: dict")[2]
    return set(re.findall(r'^    "(VLLM_[A-Z0-9_]+)": ', table, re.MULTILINE))


def variables_of_tito():
    """Those that flags of tito read."""
    return {name for path in CONFIG.glob("*.rs") for name in re.findall(r'env = "(VLLM_[A-Z0-9_]+)"', path.read_text())}


def main():
    file = json.loads((CONFIG / "vllm_variables.json").read_text())
    known = set(file["no_effect"]) | {variable["name"] for group in file["ignored"] for variable in group["variables"]}
    found = set().union(*map(variables_of_vllm, sys.argv[1:]))
    for name in sorted(known - found):
        print(f"{name}: vLLM has it no more")
    missing = sorted(found - known - variables_of_tito())
    for name in missing:
        print(f"{name}: nobody has decided what becomes of it")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
