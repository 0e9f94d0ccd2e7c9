"""The command line, checked: which server or servers, which modes, how much of each."""

import argparse
import time

from . import attack
from .session import ATTACK, BANDWIDTH, BY_DEFAULT, NAMED

VERSUS = "versus"
# What servers are compared by, unless modes are named.
COMPARED = ("throughput", "prefill", "multi-turn", "groups", "agentic", "structured")


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


def parse(arguments=None):
    """The command line's options; ends the program where they make no sense."""
    parser = argparse.ArgumentParser(prog="serve.py", description="Throughput and latency of OpenAI-compatible servers.")
    default, named = ", ".join((*BY_DEFAULT, BANDWIDTH)), ", ".join(NAMED)
    modes = f"of {default}; all of these by default; or {named}; or {ATTACK}, with --serve; or {VERSUS}, with --tito and --model"
    parser.add_argument("modes", nargs="*", metavar="MODE", help=modes)
    add_server(parser.add_argument)
    add_requests(parser.add_argument)
    add_versus(parser.add_argument_group(VERSUS).add_argument)
    parser.set_defaults(versus=False)
    options = parser.parse_args(arguments)
    check(parser, options)
    return options


def add_server(add):
    """Which server, and how it is asked."""
    add("--url", help="of a server that runs, for example http://127.0.0.1:8000")
    add("--serve", metavar="COMMAND", help="starts the server; {port} and {admin_port} stand for free ports; no shell reads it")
    add("--serve-log", metavar="FILE", help="what the server writes")
    add("--ready-timeout", type=float, default=600, metavar="SECONDS")
    add("--health", default="/health", metavar="PATH")
    add("--api-key", metavar="KEY", help="of all requests but an attacker's")
    add("--model", help=f"by default the first of /v1/models; {VERSUS}: the directory that servers load")
    add("--timeout", type=float, default=1800, metavar="SECONDS", help="for one answer")
    add("--temperature", type=float, default=1.0)
    add("--seed", type=int, default=int(time.time()), help="of prompts, and of samples; by default the time")
    add("--vocab", type=id_range, default=range(1000, 40000), metavar="FIRST:END", help="ids that prompts are made of")
    add("--prompt-text", action="store_true", help="send words instead of ids")
    add("--count-ids", action="store_true", help="ask for ids in every stream and count them, too")
    add("--log-probs", action="store_true", help="ask for the log-prob of each sampled token (`logprobs: 0`)")
    add("--min-share", type=float, default=0.5, help="the fewest events with text for a token")
    add("--json", metavar="FILE", help="also writes every figure, in seconds")
    add("--self-test", action="store_true", help="test the bench itself, and nothing else")


def add_requests(add):
    """How many requests, how long, how many at once."""
    for name, value, what in (
        ("tokens-in", 128, "throughput: of a prompt"),
        ("tokens-out", 128, "throughput and groups: of an answer"),
        ("requests", None, "throughput, in a closed loop, score and structured; by default max(4, 2 * streams)"),
        ("candidates", 8, "score: of a position"),
        ("turns", 8, "multi-turn and agentic"),
        ("turn-in", 64, "multi-turn: new tokens a turn"),
        ("turn-out", 64, "multi-turn and agentic: tokens of an answer"),
        ("history", 0, "multi-turn: tokens before the first turn"),
        ("groups", 4, "groups: how many"),
        ("samples", 8, "groups: requests in each"),
        ("shared-prompt", 512, "groups: tokens of a prompt"),
        ("bandwidth-mb", 512, "bandwidth: the buffer"),
        ("weights-bytes", None, "bandwidth: what one token of one stream reads"),
    ):
        add(f"--{name}", type=int, default=value, metavar="N", help=what)
    add("--concurrency", type=numbers, default=[1, 4, 16, 64], metavar="N,N", help="throughput and score: streams")
    add("--no-burst", action="store_true", help="throughput: the closed loop alone")
    add("--prefill", type=numbers, default=[128, 4000], metavar="N,N", help="prefill: tokens of a prompt")
    add("--conversations", type=numbers, default=[1, 8], metavar="N,N", help="multi-turn: at a time")
    # Three new outputs of tools fit what vLLM computes in a step (see peers.py), however long they are.
    add("--agents", type=numbers, default=[1, 3], metavar="N,N", help="agentic: at a time")
    add("--schemas", type=numbers, default=[1, 16], metavar="N,N", help="structured: streams")
    add("--attacks", type=attack_names, metavar="NAME,NAME", help=f"attack: of {', '.join(attack.ATTACKS)}")
    add("--attack-seconds", type=float, default=20, metavar="SECONDS", help="attack: how long each lasts")
    add("--attack-key", metavar="KEY", help="attack: the attacker's API key")


def add_versus(add):
    """Which servers are compared."""
    add("--tito", metavar="BIN", help="the program that the others are compared with")
    add("--tito-flags", action="append", default=[], metavar="FLAGS", help="a further column: tito with flags; repeatable")
    add("--vllm", metavar="VENV", help="a virtual environment with vLLM")
    add("--llama-server", metavar="BIN", help="of llama.cpp, with --gguf")
    add("--gguf", metavar="FILE", help="the same weights for llama.cpp")
    add("--vllm-rs", metavar="BIN", help="vLLM's own client asks every server, too")
    add("--rounds", type=int, default=2, metavar="N", help="each starts every server once")


def check(parser, options):
    """Refuses what cannot be measured, and fills in the modes."""
    known = (*BY_DEFAULT, BANDWIDTH, *NAMED, ATTACK, VERSUS)
    if unknown := set(options.modes) - set(known):
        parser.error(f"no mode {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if VERSUS in options.modes:
        check_versus(parser, options)
        return
    if ATTACK in options.modes and not options.serve:
        parser.error(f"{ATTACK} is for a server that is started with --serve")
    options.modes = options.modes or [*BY_DEFAULT, BANDWIDTH]
    needs_server = options.modes != [BANDWIDTH] and not options.self_test
    if needs_server and bool(options.url) == bool(options.serve):
        parser.error("either --url or --serve is needed")


def check_versus(parser, options):
    """Of a comparison; the modes are then what servers are compared by."""
    options.modes = [name for name in options.modes if name != VERSUS]
    if others := set(options.modes) - set(COMPARED):
        parser.error(f"{VERSUS} does not go with {', '.join(sorted(others))}, only with {', '.join(COMPARED)}")
    options.modes = [name for name in COMPARED if name in options.modes or not options.modes]
    options.versus = True
    if not options.tito or not options.model:
        parser.error(f"{VERSUS} needs --tito and --model")
    if options.url or options.serve:
        parser.error(f"{VERSUS} starts the servers itself, without --url or --serve")
    if bool(options.llama_server) != bool(options.gguf):
        parser.error("--llama-server and --gguf need each other")
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
