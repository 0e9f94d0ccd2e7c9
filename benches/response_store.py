#!/usr/bin/env python3
"""A long conversation of stored responses: what it takes in the store's file, and how long a turn takes; see README.md.

    benches/response_store.py MODEL TITO...

Asks servers of the scripted engine, so that what is measured is not the model. Each turn continues the one before it by its id, and
adds lines like those of a tool.
"""

import pathlib
import statistics
import sys
import tempfile
import time

from capture_file import URL, ask, made_longer, resident, serving, stop

TURNS, LINES = 60, 40


def lines(turn):
    return "\n".join(f"src/part_{turn}/file_{line}.rs:{17 * line + turn}: the value {line * turn} is new" for line in range(LINES))


def chain(model, file, tito):
    """Rows of figures, by what they say."""
    process = serving(tito, model, "--response-store", str(file))
    seconds, previous = [], {}
    for turn in range(TURNS):
        started = time.monotonic()
        answer = ask(f"{URL}/v1/responses", input=lines(turn), max_output_tokens=8, include=["token_ids"], **previous)
        seconds.append(time.monotonic() - started)
        previous = {"previous_response_id": answer["id"]}
    memory = resident(process, "VmHWM")
    stop(process)
    ids = len(answer["output"][-1]["prompt_token_ids"])
    taken = file.stat().st_blocks * 512 / 1e6
    return {"ids in the end": ids, "file, MB": taken, "last ten turns, ms": 1e3 * statistics.median(seconds[-10:]), "most memory, MB": memory}


def main():
    model, *programs = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        model = made_longer(model, directory / "model")
        for number, tito in enumerate(programs):
            figures = chain(model, directory / f"{number}.redb", tito)
            print(tito, *(f"{name}: {value:.1f}" for name, value in figures.items()), sep="\n  ")


if __name__ == "__main__":
    main()
