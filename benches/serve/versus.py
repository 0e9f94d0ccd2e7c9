"""Several servers, one after the other, and one table of them all.

A round starts every server anew and asks each the same prompts. Every other round goes backwards, so that a machine that
becomes slower or faster favours nobody.
"""

import argparse
import contextlib
import sys

from . import peers, report, session, vllm_client
from .client import BenchError
from .report import median, number

# What is better.
BETTER = {"tok/s": "more", "ms": "less", "s": "less", "MiB": "less"}
OWN_CLIENT = "vllm-rs"
HOW_TO_READ = (
    "Medians over the rounds. Where more is better, a ratio above 1 says that the server named first is ahead; where less is "
    "better, a ratio below 1."
)


async def versus(options, figures):
    """Measures every server in every round, and prints the table."""
    options.directory = options.model
    columns, said = peers.servers(options)
    for line in said:
        print(f"\n**{line}**", flush=True)
    figures |= {"said": said, "failed": [], "visits": []}
    for turn in range(options.rounds):
        for server in columns if turn % 2 == 0 else columns[::-1]:
            print(f"--- round {turn + 1} of {options.rounds}: {server.name}", file=sys.stderr, flush=True)
            figures["visits"].append({"server": server.name, "round": turn + 1})
            await visit(options, server, figures["visits"][-1], figures["failed"])
            figures["rows"] = rows([column.name for column in columns], figures["visits"])
            if options.json:
                report.write_json(options.json, figures)
    print_comparison(options, columns, figures)
    if figures["failed"]:
        raise BenchError(f"{len(figures['failed'])} measurements failed, as is said above")


async def visit(options, server, found, failed):
    """One server in one round; what fails is noted, and the rest measured."""
    found["starts"] = []
    for start in server.starts:
        own = argparse.Namespace(**vars(options))
        own.model, own.seed, own.no_burst, own.modes = None, options.seed + found["round"], True, start.modes
        found["starts"].append({})
        try:
            # The tables of each server are for whoever watches; the comparison alone is the result.
            with contextlib.redirect_stdout(sys.stderr):
                async with session.started(own, start.command, found["starts"][-1]) as served:
                    await ask(own, served, found, lambda why: note(failed, server, found, why))
        except (BenchError, OSError) as error:
            note(failed, server, found, error)


def note(failed, server, found, why):
    """Keeps and says what was not measured."""
    failed.append(f"FAILED: {server.name}, round {found['round']}: {why}")
    print(f"**{failed[-1]}**", file=sys.stderr, flush=True)


async def ask(options, served, found, failed):
    """All modes of a server that is ready."""
    async with session.connected(options, served.url, found) as target:
        for name in options.modes:
            try:
                found[name] = await session.ASKED[name](target, options)
            except (BenchError, OSError) as error:
                failed(f"{name}: {error}")
        if options.vllm_rs and "throughput" in options.modes:
            try:
                found[OWN_CLIENT] = await vllm_client.ask(options, served.url, target.model)
            except (BenchError, OSError, ValueError, KeyError) as error:
                failed(f"{OWN_CLIENT}: {error}")


def rows(names, visits):
    """Of each figure: its label, its unit, and for each server its median and its ratio."""
    found = {}
    for visited in visits:
        for label, unit, value in measured(visited):
            if value is not None:
                found.setdefault((label, unit), {}).setdefault(visited["server"], []).append(value)
    return [row(names, label, unit, values) for (label, unit), values in found.items()]


def row(names, label, unit, values):
    """One figure of all servers."""
    medians = {name: median(values.get(name, [])) for name in names}
    base, ratios = medians[names[0]], {}
    for name in names[1:]:
        first, second = (medians[name], base) if further(name) else (base, medians[name])
        ratios[name] = first / second if first is not None and second else None
    return {"figure": label, "unit": unit, "better": BETTER[unit], "values": values, "medians": medians, "ratios": ratios}


def measured(visited):
    """(label, unit, value) of everything that one visit found."""
    for mode, prefix in (("throughput", "throughput"), (OWN_CLIENT, "throughput by vllm-rs")):
        for each in visited.get(mode, []):
            yield from rate_and_ttft(f"{prefix}, {streams(each['streams'])}", each)
    for each in visited.get("prefill", []):
        yield f"prefill of {each['prompt_tokens']:,} tokens: first token", "ms", each["ttft_s"]["p50"] * 1000
    for each in visited.get("multi-turn", []):
        label = f"multi-turn, {each['conversations']} at a time: first token of turn {len(each['turns'])}"
        yield label, "ms", each["turns"][-1]["ttft_s"] * 1000
    if each := visited.get("groups"):
        yield from rate_and_ttft(f"groups, {each['groups']} of {each['samples']}", each)
    for each in visited.get("agentic", []):
        yield from rate_and_ttft(f"agentic, {each['agents']} at a time", each)
    for each in visited.get("structured", []):
        yield f"structured, {streams(each['streams'])}: output", "tok/s", each["output_tokens_per_s"]
    # Of several starts, the first one is the server as it serves most sequences.
    started = visited["starts"][0]
    yield "ready", "s", started.get("ready_s")
    if memory := started.get("memory_after_load"):
        yield "most ever resident", "MiB", memory["VmHWM"] / 2**20


def further(name):
    """Whether a column is another tito, which is compared with the plain one."""
    return name.startswith("tito ")


def streams(count):
    return f"{count} stream" + ("s" if count > 1 else "")


def rate_and_ttft(label, figure):
    """The two figures of a load."""
    yield f"{label}: output", "tok/s", figure["output_tokens_per_s"]
    yield f"{label}: first token", "ms", figure["ttft_s"]["p50"] * 1000


def table(names, found):
    """The comparison as Markdown: behind each server but the first, its ratio."""
    head = ["", "better", names[0]]
    for name in names[1:]:
        head += [name, f"{name} / tito" if further(name) else f"tito / {name}"]
    lines = []
    for each in found:
        cells = [f"{each['figure']}, {each['unit']}", each["better"], number(each["medians"][names[0]])]
        for name in names[1:]:
            cells += [number(each["medians"][name]), number(each["ratios"][name])]
        lines.append(cells)
    return report.table(head, lines)


def print_comparison(options, columns, figures):
    """The table, and all that has to be known with it."""
    rounds = f"{options.rounds} round" + ("s" if options.rounds > 1 else "")
    print(f"\n## Versus: {rounds}, {options.tokens_in} in and {options.tokens_out} out, seed {options.seed}\n")
    print(table([column.name for column in columns], figures["rows"]))
    print(f"\n{HOW_TO_READ}\n")
    for column in columns:
        for start in column.starts:
            print(f"- {column.name}: `{start.command}`")
    unread = [visited["server"] for visited in figures["visits"] if not visited.get("target", {"returns_ids": 1})["returns_ids"]]
    for name in dict.fromkeys(unread):
        print(f"\n**{name} returns no ids: in its conversations, random ones stand in for its answers.**")
    for line in [*figures["said"], *figures["failed"]]:
        print(f"\n**{line}**")
