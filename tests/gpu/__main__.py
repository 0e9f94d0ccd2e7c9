"""The command line of `scripts/gpu-check`: makes models, checks, measures, writes, within one budget."""

import argparse
import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from serve.client import BenchError

from .found import Found
from .parts import PARTS, Run
from .session import Binary

# For what is not a part: the end of the last server, the last page.
RESERVE = 10
# Parts that are not passed when they are cut.
CORRECTNESS = {"models", "small", "reference", "mixture"}


def main():
    """Runs everything; returns the exit status."""
    options = parse_options()
    try:
        return asyncio.run(run(options))
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("error: interrupted; what was found until then is written", file=sys.stderr)
        return 130


def parse_options():
    """The command line, checked."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__)
    add = parser.add_argument
    add("--tito", required=True, metavar="BINARY", help="the program to check")
    add("--out", default="gpu-check", metavar="DIR", help="for gpu.md, gpu.json and logs")
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--rehearse", action="store_true", help="tiny models and few requests: shows that the command works")
    add("--budget", type=float, metavar="SECONDS", help="for everything; by default 540, or 400 to rehearse")
    add("--commit", help="that the binary was built from; by default this checkout's")
    add("--scratch", metavar="DIR", help="for models; by default /dev/shm where it has room")
    add("--serve-flags", default="", metavar="FLAGS", help="more flags for every server, as one word")
    add("--only", type=lambda text: text.split(","), metavar="PART,PART", help=f"of {', '.join(PARTS)}")
    add("--seed", type=int, default=1, help="of weights and prompts")
    add("--wrong-reference", action="store_true", help="rehearse a failure: compare with a reference that is wrong")
    options = parser.parse_args()
    options.budget = options.budget or (400 if options.rehearse else 540)
    options.serve_flags = shlex.split(options.serve_flags)
    if strays := set(options.only or ()) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(strays))}; there are {', '.join(PARTS)}")
    return options


async def run(options):
    """All parts, each within its share; a part that fails does not hide the others."""
    started = time.monotonic()
    task = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    binary = Binary(options.tito)
    found = Found(options.out, options)
    found.all["machine"] |= {"tito": binary.version, "command": shlex.join(sys.argv)}
    scratch = Path(tempfile.mkdtemp(prefix="gpu-check-", dir=scratch_of(options, found)))
    state = Run(options, binary, found, scratch, options.budget - RESERVE)
    try:
        for name, part in state.parts():
            await attempt(state, name, part)
    finally:
        await state.worker.stop()
        shutil.rmtree(scratch, ignore_errors=True)
        found.seconds["all"] = time.monotonic() - started
        found.trim_logs()
        found.write()
    print(f"\n{found.page()}\nwritten to {found.directory} in {found.seconds['all']:.0f} s", flush=True)
    bad = found.failed() + [f"{name}: {why.splitlines()[0]}" for name, why in found.all["cut"].items()]
    for text in bad:
        print(f"FAILED OR CUT: {text}", file=sys.stderr)
    unchecked = CORRECTNESS & set(found.all["cut"])
    return 1 if found.failed() or state.broken or unchecked else 0


async def attempt(state, name, part):
    """One part, caught and cut."""
    limit = state.budget.take(name)
    if limit < 1:
        state.found.all["cut"][name] = "no time was left for it"
        return
    print(f"== {name}, at most {limit:.0f} s", flush=True)
    started = time.monotonic()
    try:
        async with asyncio.timeout(limit):
            await part(limit)
    except TimeoutError:
        state.found.all["cut"][name] = f"cut after {limit:.0f} s"
    except Exception as error:  # whatever it is, the parts after it are not to be lost
        state.broken = True
        state.found.all["cut"][name] = f"failed: {type(error).__name__}: {error}"
    if name in state.found.all["cut"]:
        print(f"!! {name} {state.found.all['cut'][name]}", flush=True)
    state.found.seconds[name] = time.monotonic() - started
    with contextlib.suppress(OSError):
        state.found.write()


def scratch_of(options, found):
    """Where models go: memory if they fit."""
    if options.scratch:
        return options.scratch
    needed = Run.scratch_bytes(options)
    for place in ("/dev/shm", tempfile.gettempdir()):
        if os.path.isdir(place) and shutil.disk_usage(place).free > needed:
            if place != "/dev/shm":
                found.loud(f"/dev/shm has no room for {needed / 1e9:.0f} GB of models: they lie in {place}")
            return place
    raise BenchError(f"neither /dev/shm nor {tempfile.gettempdir()} has room for {needed / 1e9:.0f} GB of models")


if __name__ == "__main__":
    sys.exit(main())
