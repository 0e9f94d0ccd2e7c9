"""Runs vLLM's server tests against tito and compares what became of each with recorded.json; run_vllm_tests calls it.

recorded.json has
- `not_run`: files, folders and tests that are not applicable as a whole, each with the reason;
- `passed`: the tests that pass, by file;
- `failed`: groups of tests that do not, each with the reason and whose it is (`kind`, see KINDS);
- `skipped`: the tests that skip themselves, by the reason that they give;
- `varies`: tests whose outcome hangs on what a small model happens to sample.

The exit status is 1 where something came out otherwise. With --write, what passes and what is skipped is recorded; a test that fails and is
in no group goes into the group of kind `undecided`, about which somebody has to decide.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import served_model

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE / "recorded.json"
TEMPLATE = HERE.parents[1] / "golden" / "template" / "hermes.jinja"
# Whose a failure is: the model answers otherwise than the one that the test names; tito does not have that, or has it otherwise on
# purpose, as docs/vllm-compatibility.md says; the test looks into vLLM itself; a fault of tito; nobody has decided yet.
KINDS = ("model", "absent", "deviation", "inside", "fault", "undecided")
FOLDERS = ("entrypoints", "tool_use")
LIMIT_SECONDS = 600


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("tito", "version", "source", "weights"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("tests", nargs="*")
    return parser.parse_args()


def run(asked, recorded, work):
    """What became of each test by its name: `outcome`, and `message` unless it passed."""
    model = served_model.write_model(work / "model", asked.weights, TEMPLATE.read_text())
    adapter = served_model.write_adapter(work / "lora", model)
    outcomes = {}
    # Folders apart from each other: each has options of its own in its conftest.py.
    for number, folder in enumerate(FOLDERS):
        chosen = [test for test in asked.tests if test.split("/")[0] == folder] if asked.tests else [folder]
        if not chosen:
            continue
        written = work / f"outcomes-{number}.json"
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(HERE),
            "TITO_BIN": asked.tito,
            "VLLM_TESTS_ADAPTER": str(adapter),
            "VLLM_TESTS_LOGS": str(work / "logs"),
            "VLLM_TESTS_MODEL": str(model),
            "VLLM_TESTS_NOT_RUN": json.dumps(list(recorded["not_run"])),
            "VLLM_TESTS_OUTCOMES": str(written),
            "VLLM_TESTS_SOURCE": asked.source,
            "VLLM_TESTS_VERSION": asked.version,
        }
        command = [sys.executable, "-m", "pytest", "-p", "plugin", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=line", "-q"]
        command += [f"--confcutdir=tests/{folder}", f"--timeout={LIMIT_SECONDS}", "--continue-on-collection-errors"]
        subprocess.run([*command, *(f"tests/{test}" for test in chosen)], cwd=asked.source, env=environment, check=False)
        if written.exists():
            outcomes |= json.loads(written.read_text())
    return outcomes


def expected(recorded):
    """The recorded outcome of each test, and of those that fail the group."""
    found = {f"{file}::{test}": ("passed", None) for file, tests in recorded["passed"].items() for test in tests}
    found |= {test: ("skipped", None) for tests in recorded["skipped"].values() for test in tests}
    return found | {test: ("failed", group) for group in recorded["failed"] for test in group["tests"]}


def within(test, asked):
    return not asked or any(test == one or test.startswith((f"{one}/", f"{one}::", f"{one}[")) for one in asked)


def differences(recorded, outcomes, asked):
    """What came out otherwise than recorded, a line each."""
    known = expected(recorded)
    varies = set(recorded["varies"])
    for test in sorted(known.keys() | outcomes.keys()):
        if test in varies or not within(test, asked):
            continue
        before, group = known.get(test, ("new", None))
        now = outcomes.get(test, {"outcome": "gone"})
        outcome = "failed" if now["outcome"] == "not collected" else now["outcome"]
        if before != outcome:
            reason = f" ({group['kind']}: {group['reason']})" if group else ""
            yield f"{test}: was {before}{reason}, is {outcome}. {now.get('message', '')}"


def refreshed(recorded, outcomes, asked):
    """The list as it is now; what was not asked for stays."""
    groups = {test: group for group in recorded["failed"] for test in group["tests"]}
    kept = {test: outcome for test, (outcome, _) in expected(recorded).items() if not within(test, asked)}
    passed, skipped = collections.defaultdict(list), collections.defaultdict(list)
    failed = collections.defaultdict(list)
    reasons = {test: reason for reason, tests in recorded["skipped"].items() for test in tests}
    for test in sorted(kept.keys() | outcomes.keys()):
        if test in recorded["varies"]:
            continue
        outcome = outcomes[test]["outcome"] if test in outcomes else kept[test]
        if outcome == "passed":
            file, _, name = test.partition("::")
            passed[file].append(name)
        elif outcome == "skipped":
            skipped[outcomes.get(test, {}).get("message") or reasons[test]].append(test)
        else:
            group = groups.get(test)
            # What nobody has read may fail otherwise by now.
            if group and group["kind"] == "undecided" and test in outcomes:
                group = None
            failed[(group["kind"], group["reason"]) if group else ("undecided", outcomes[test]["message"])].append(test)
    listed = [{"kind": kind, "reason": reason, "tests": tests} for (kind, reason), tests in failed.items()]
    listed.sort(key=lambda group: (KINDS.index(group["kind"]), group["reason"]))
    return {**recorded, "passed": dict(passed), "failed": listed, "skipped": dict(sorted(skipped.items()))}


def main():
    asked = arguments()
    recorded = json.loads(RECORDED.read_text())
    work = pathlib.Path(tempfile.mkdtemp(prefix="vllm-tests-"))
    outcomes = run(asked, recorded, work)
    (work / "outcomes.json").write_text(json.dumps(outcomes, indent=1))
    changed = list(differences(recorded, outcomes, asked.tests))
    print(*changed, sep="\n")
    counted = collections.Counter(outcome["outcome"] for outcome in outcomes.values())
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counted.items())) + f"; logs of the servers: {work / 'logs'}")
    if asked.write:
        RECORDED.write_text(json.dumps({**refreshed(recorded, outcomes, asked.tests), "version": asked.version}, indent=1) + "\n")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
