"""The command line: which server, which modes, what is printed."""

import argparse
import asyncio
import json
import signal
import sys
import time

from . import attack, modes, report, score, selftest
from .client import BenchError, Client
from .load import Prompts, Target, probe
from .process import Served

MODES = ("throughput", "prefill", "multi-turn", "groups", "bandwidth")
# Only where they are named: no server of others is attacked by chance, and few score candidates.
ATTACK = "attack"
SCORE = "score"


def main():
    """Runs the bench; returns the exit status."""
    options = parse_options()
    if options.self_test:
        return selftest.run()
    try:
        asyncio.run(bench(options))
    except (BenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("error: interrupted", file=sys.stderr)
        return 130
    return 0


def numbers(text):
    """A list of positive numbers with commas."""
    values = [int(part) for part in text.split(",")]
    if min(values) < 1:
        raise ValueError(text)
    return values


def attack_names(text):
    """Names of attacks with commas."""
    names = text.split(",")
    if unknown := set(names) - set(attack.ATTACKS):
        raise argparse.ArgumentTypeError(f"no attack {', '.join(sorted(unknown))}")
    return names


def id_range(text):
    """FIRST:END, the end not included."""
    first, _, end = text.partition(":")
    ids = range(int(first), int(end))
    if not ids:
        raise ValueError(text)
    return ids


def parse_options():
    """The command line, checked."""
    parser = argparse.ArgumentParser(prog="serve.py", description=__doc__)
    add = parser.add_argument
    add("modes", nargs="*", metavar="MODE", help=f"of {', '.join(MODES)}; all by default; or {SCORE}, or {ATTACK}, with --serve")
    add("--url", help="of a server that runs, for example http://127.0.0.1:8000")
    add("--serve", metavar="COMMAND", help="starts the server; {port} stands for a free port; no shell reads it")
    add("--serve-log", metavar="FILE", help="what the server writes")
    add("--ready-timeout", type=float, default=600, metavar="SECONDS")
    add("--health", default="/health", metavar="PATH")
    add("--api-key", metavar="KEY", help="of all requests but an attacker's")
    add("--model", help="by default the first of /v1/models")
    add("--timeout", type=float, default=1800, metavar="SECONDS", help="for one answer")
    add("--temperature", type=float, default=1.0)
    add("--seed", type=int, default=int(time.time()), help="of prompts, and of samples; by default the time")
    add("--vocab", type=id_range, default=range(1000, 40000), metavar="FIRST:END", help="ids that prompts are made of")
    add("--prompt-text", action="store_true", help="send words instead of ids")
    add("--count-ids", action="store_true", help="ask for ids in every stream and count them, too")
    add("--log-probs", action="store_true", help="ask for the log-prob of each sampled token (`logprobs: 0`)")
    add("--min-share", type=float, default=0.5, help="the fewest events with text for a token")
    add("--json", metavar="FILE", help="also writes every figure, in seconds")
    add("--self-test", action="store_true", help="test the parser, and nothing else")
    for name, value, what in (
        ("tokens-in", 128, "throughput: of a prompt"),
        ("tokens-out", 128, "throughput and groups: of an answer"),
        ("requests", None, "throughput: in a closed loop; by default max(4, 2 * streams)"),
        ("candidates", 8, "score: of a position"),
        ("turns", 8, "multi-turn"),
        ("turn-in", 64, "multi-turn: new tokens a turn"),
        ("turn-out", 64, "multi-turn: tokens of an answer"),
        ("history", 0, "multi-turn: tokens before the first turn"),
        ("groups", 4, "groups: how many"),
        ("samples", 8, "groups: requests in each"),
        ("shared-prompt", 512, "groups: tokens of a prompt"),
        ("bandwidth-mb", 512, "bandwidth: the buffer"),
        ("weights-bytes", None, "bandwidth: what one token of one stream reads"),
    ):
        add(f"--{name}", type=int, default=value, metavar="N", help=what)
    add("--concurrency", type=numbers, default=[1, 4, 16, 64], metavar="N,N", help="throughput: streams")
    add("--prefill", type=numbers, default=[128, 4000], metavar="N,N", help="prefill: tokens of a prompt")
    add("--attacks", type=attack_names, metavar="NAME,NAME", help=f"attack: of {', '.join(attack.ATTACKS)}")
    add("--attack-seconds", type=float, default=20, metavar="SECONDS", help="attack: how long each lasts")
    add("--attack-key", metavar="KEY", help="attack: the attacker's API key")
    add("--conversations", type=numbers, default=[1, 8], metavar="N,N", help="multi-turn: at a time")
    options = parser.parse_args()
    if unknown := set(options.modes) - {*MODES, ATTACK, SCORE}:
        parser.error(f"no mode {', '.join(sorted(unknown))}; there are {', '.join((*MODES, ATTACK, SCORE))}")
    if ATTACK in options.modes and not options.serve:
        parser.error(f"{ATTACK} is for a server that is started with --serve")
    options.modes = options.modes or list(MODES)
    needs_server = options.modes != ["bandwidth"] and not options.self_test
    if needs_server and bool(options.url) == bool(options.serve):
        parser.error("either --url or --serve is needed")
    return options


async def bench(options):
    """Everything, in order."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    figures = {"machine": report.machine()}
    print_machine(figures["machine"])
    if "bandwidth" in options.modes:
        figures["bandwidth"] = modes.bandwidth(options)
    if options.serve:
        await serve(options, figures)
    elif options.url:
        await drive(options, options.url, figures)
    if "bandwidth" in figures:
        modes.print_bandwidth(figures["bandwidth"], options, one_stream(figures))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=2)
            file.write("\n")


async def serve(options, figures):
    """All modes against a server that is started here, and killed whatever happens."""
    served = Served(options.serve, options.serve_log)
    server = figures["server"] = {"command": served.command}
    try:
        server["ready_s"] = await served.ready(options.health, options.ready_timeout)
        server["memory_after_start"] = served.memory()
        await drive(options, served.url, figures, served)
        server["memory_after_load"] = served.memory()
    except (BenchError, OSError):
        print(f"the server wrote:\n{served.log_tail()}", file=sys.stderr)
        raise
    finally:
        served.kill()
    print_server(server)


async def drive(options, url, figures, served=None):
    """All modes that need a server."""
    if options.modes == ["bandwidth"]:
        return
    client = Client(url, options.timeout, options.api_key)
    try:
        target = await connect(options, client)
        figures["target"] = {"url": url, "model": target.model, "temperature": target.temperature, "seed": options.seed}
        figures["target"] |= {"takes_ids": not target.prompts.as_text, "returns_ids": target.returns_ids}
        # Not measured: what a server does once, for its first long prompt and answer.
        await target.ask(target.prompts.ids(options.tokens_in), options.tokens_out)
        for name, mode in (
            ("throughput", modes.throughput),
            ("prefill", modes.prefill),
            ("multi-turn", modes.multi_turn),
            ("groups", modes.groups),
        ):
            if name in options.modes:
                figures[name] = await mode(target, options)
                sys.stdout.flush()
        if SCORE in options.modes:
            figures[SCORE] = await score.score(target, options)
        if ATTACK in options.modes:
            figures[ATTACK] = await attack.attack(target, options, served)
    finally:
        client.close()


async def connect(options, client):
    """The server, and what it was found to take."""
    model = options.model
    if not model:
        models = (await client.send(client.get("/v1/models"))).json()
        try:
            model = models["data"][0]["id"]
        except (KeyError, IndexError, TypeError):
            raise BenchError(f"/v1/models names no model, --model is needed: {models}") from None
    prompts = Prompts(options.seed, options.vocab, options.prompt_text)
    # llama.cpp's have 32 bits.
    seeds = options.seed * 1000 % 2**30
    target = Target(client, prompts, model, options.temperature, options.min_share, options.count_ids, seeds=seeds)
    target.log_probs = options.log_probs
    for line in await probe(target):
        print(f"\n**{line}**")
    kind = "words" if prompts.as_text else "ids"
    print(f"\nModel `{model}`, temperature {options.temperature}, seed {options.seed}, prompts of {kind}.")
    return target


def one_stream(figures):
    """Decode tokens a second of a stream alone, if that was measured."""
    for figure in figures.get("throughput", []):
        if (figure["streams"], figure["shape"]) == (1, "closed loop"):
            return figure["decode_tokens_per_s_p50"]
    return None


def print_machine(machine):
    """Where the figures come from."""
    print(report.table(list(machine), [[str(value) for value in machine.values()]]))


def print_server(server):
    """Readiness and memory of a server that was started here."""
    print("\n## The server\n")
    print(f"`{server['command']}`\n")
    rows = [["ready", f"{server['ready_s'] * 1000:,.0f} ms"]]
    for when in ("after start", "after load"):
        memory = server[f"memory_{when.replace(' ', '_')}"]
        rows += [
            [f"resident {when}", report.size(memory["VmRSS"])],
            [f"of it files {when}", report.size(memory["RssFile"])],
            [f"most ever resident, {when}", report.size(memory["VmHWM"])],
        ]
    print(report.table(["", ""], rows))


if __name__ == "__main__":
    sys.exit(main())
