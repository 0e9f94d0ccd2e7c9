#!/usr/bin/env python3
"""Refreshes src/config/vllm_flags.json: the flags of `vllm serve` that tito does not have.

    python record_vllm_flags.py TITO [--write]

Run by a Python that has vLLM, of which the parser of the command line is asked; TITO is the program, which says by its help what its
own flags are. What follows a flag, its spelling with one dash, and whether vLLM still has it are recorded; what becomes of a flag
here (no effect, or refused, why, and which values change nothing) is decided by a person. So flags that nobody has decided about are
named, and the exit status is 1.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

FILE = pathlib.Path(__file__).resolve().parents[2] / "src" / "config" / "vllm_flags.json"
# The parser's own, and the model, which tito takes as vLLM does: without its name.
OWN = {"help", "model"}
# Refused although vLLM has them no more: an answer would have another form than such a command line asks for.
GONE = {"guided-decoding-disable-additional-properties", "guided-decoding-disable-any-whitespace"}


def takes(action):
    """What follows a flag, in the words of the file."""
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return "nothing"
    return "values" if action.nargs in ("+", "*") else "value"


def flags_of_vllm():
    """What follows each flag by its name, and the spellings with one dash by what they stand for."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    found, short = {}, {}
    for action in parser._actions:
        if "--help" in action.option_strings:
            continue
        long = [name[2:] for name in action.option_strings if name.startswith("--")]
        # A switch has `--no-…` too, and `--disable-…` or `--enable-…`; tito derives them from the name.
        off = getattr(action, "negative_option_strings", ())
        names = [name for name in long if not (name.startswith("no-") and name[3:] in long) and f"--{name}" not in off]
        found |= {name: takes(action) for name in names}
        short |= {name: f"--{names[0]}" for name in action.option_strings if not name.startswith("--") and names}
    return found, short


def flags_of_tito(program):
    """The names of all flags of `tito serve`, aliases among them."""
    text = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return OWN | set(re.findall(r"--([a-z][a-z0-9-]*)", text))


def refreshed(file, found, short):
    """The file as vLLM has its flags now, and what changed."""
    changes = []
    for of, names in list(file["no_effect"].items()):
        for name in list(names):
            now = found.get(name)
            if now == of:
                continue
            names.remove(name)
            (file["removed"] if now is None else file["no_effect"]).setdefault(now or of, []).append(name)
            changes.append(f"--{name}: {'vLLM has it no more' if now is None else f'takes {now}, not {of}'}")
    for group in file["refused"]:
        for flag in group["flags"]:
            now = found.get(flag["name"])
            if now is None and flag["name"] in GONE:
                continue
            if now is None:
                changes.append(f"--{flag['name']}: refused here, and vLLM has it no more")
            elif now != flag["takes"]:
                changes.append(f"--{flag['name']}: takes {now}, not {flag['takes']}")
                flag["takes"] = now
    for name in sorted(name for names in file["removed"].values() for name in names if name in found):
        changes.append(f"--{name}: removed according to the file, and vLLM has it")
    changes += [f"{name}: stands for {short.get(name)}, not {now}" for name, now in file["short"].items() if short.get(name) != now]
    changes += [f"{name}: new, stands for {now}" for name, now in short.items() if name not in file["short"] and now]
    file["short"] = dict(sorted((file["short"] | short).items()))
    for groups in (file["no_effect"], file["removed"]):
        for names in groups.values():
            names.sort()
    return changes


def undecided(file, found, own):
    """Flags that vLLM has, and of which nothing is said here."""
    known = {name for group in (file["no_effect"], file["removed"]) for names in group.values() for name in names}
    known |= {flag["name"] for group in file["refused"] for flag in group["flags"]} | set(file["keys"])
    return sorted(set(found) - known - own)


def written(file):
    """The text of the file, with a line for each flag."""
    flags = [flag for group in file["refused"] for flag in group["flags"]]
    marked = {**file, "refused": [{**group, "flags": [f"flag {flags.index(flag)}" for flag in group["flags"]]} for group in file["refused"]]}
    text = json.dumps(marked, indent=2, ensure_ascii=False)
    return re.sub(r'"flag (\d+)"', lambda found: json.dumps(flags[int(found[1])], ensure_ascii=False), text) + "\n"


def main():
    program, *rest = sys.argv[1:]
    file = json.loads(FILE.read_text())
    found, short = flags_of_vllm()
    changes = refreshed(file, found, short)
    print(*changes, sep="\n")
    missing = undecided(file, found, flags_of_tito(program))
    for name in missing:
        print(f"--{name}: takes {found[name]}; nobody has decided what becomes of it")
    if rest == ["--write"]:
        FILE.write_text(written(file))
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
