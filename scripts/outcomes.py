"""Which tests of a JUnit report failed, and which passed only when they were tried again.

usage: scripts/outcomes.py REPORT [REPORT-OF-A-SECOND-TRY]

Prints a line for each: `failed NAME` or `flaky NAME`; `late COUNT` tells how many came too late. nextest tells of all tries in
one report. pytest is run again for what failed, and writes a second one.
"""

import pathlib
import sys
import xml.etree.ElementTree

FAILED = ("failure", "error")
# What tests/notes/notes.py says of a test that is not begun.
LATE = "the run is late"


def outcomes(report):
    """The names of all tests, of those that failed, and of those that did so at first."""
    names, failed, flaky = [], [], []
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        # nextest's classname is the binary, which its name does not need.
        parts = (case.get("file"), case.get("name")) if case.get("file") else (case.get("name"),)
        name = "::".join(parts)
        names.append(name)
        if any(case.find(kind) is not None for kind in FAILED):
            failed.append(name)
        elif any(case.find(kind) is not None for kind in ("flakyFailure", "flakyError")):
            flaky.append(name)
    return names, list(dict.fromkeys(failed)), flaky


def late_in(report):
    """How many tests were not begun."""
    return sum(LATE in (skipped.get("message") or "") for skipped in xml.etree.ElementTree.parse(report).iter("skipped"))


def main(first, second=None):
    _, failed, flaky = outcomes(first)
    if second is not None and pathlib.Path(second).exists():
        tried, again, _ = outcomes(second)
        flaky = [name for name in failed if name in tried and name not in again]
        failed = [name for name in failed if name not in flaky]
        failed += [name for name in again if name not in failed]
    late = late_in(first)
    if late:
        print("late", late)
    for name in failed:
        print("failed", name)
    for name in flaky:
        print("flaky", name)


if __name__ == "__main__":
    main(*sys.argv[1:])
