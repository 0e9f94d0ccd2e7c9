"""What a small request waits for while others attack the server.

Owns the attacks and the small request that is timed. An attack runs in a process of its own, so that what the attacker
computes does not delay the clock; it does share the cores with the server, as a neighbour's load would. Every attack ends
by itself after `--attack-seconds`.
"""

import asyncio
import json
import multiprocessing
import resource
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from .client import BenchError, authorization
from .report import milliseconds, number, percentile, size, table

PROBE_PROMPT = 8
PAUSE = 0.02
CONNECTIONS = 10_000
SLOW_READERS = 300
LONG_TEXT = 60_000_000
# The longest that an attacker waits for one answer: it may well be computed until the attack ends.
PATIENCE = 5.0


def flood(address, request, threads, until, counts):
    """Sends the same request again and again on as many connections, and counts what comes back by status."""

    def one():
        while time.monotonic() < until:
            outcome = "no answer in time"
            try:
                with socket.create_connection(address, timeout=PATIENCE) as connection:
                    connection.sendall(request)
                    status = connection.recv(12)[9:12].decode()
                    outcome = status or "closed"
            except TimeoutError:
                pass
            except OSError as error:
                outcome = type(error).__name__
            counts[outcome] = counts.get(outcome, 0) + 1

    workers = [threading.Thread(target=one) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def unread(address, request, connections, until, counts):
    """Asks for streams, and reads none of them."""
    opened = []
    for _ in range(connections):
        try:
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(PATIENCE)
            connection.connect(address)
            connection.sendall(request)
            opened.append(connection)
        except OSError as error:
            counts[type(error).__name__] = counts.get(type(error).__name__, 0) + 1
        if time.monotonic() > until:
            break
    counts["unread streams"] = len(opened)
    time.sleep(max(0.0, until - time.monotonic()))
    for connection in opened:
        connection.close()


def idle(address, _request, connections, until, counts):
    """Opens connections; every other one sends half a head."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    opened = []
    for index in range(connections):
        try:
            connection = socket.create_connection(address, timeout=PATIENCE)
            if index % 2:
                connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: ")
            opened.append(connection)
        except OSError as error:
            counts[type(error).__name__] = counts.get(type(error).__name__, 0) + 1
        if time.monotonic() > until:
            break
    counts["open connections"] = len(opened)
    time.sleep(max(0.0, until - time.monotonic()))
    for connection in opened:
        connection.close()


def generation(model, **fields):
    """The body of a text completion."""
    return json.dumps({"model": model, "prompt": [5, 6, 7, 8], "max_tokens": 64, "ignore_eos": True} | fields).encode()


def conversation(model, **fields):
    """The body of a chat completion."""
    messages = [{"role": "user", "content": "Name a river."}]
    return json.dumps({"model": model, "messages": messages, "max_tokens": 64} | fields).encode()


def ambiguous_grammar():
    """Every text of `a` has as many readings as there are trees."""
    return 'root ::= s\ns ::= s s s | s s | "a" s "a" | "a" | "aa" | "aaa" | "b"\n'


def template_bomb():
    """Doubles a text in nested loops, and shows nothing."""
    return "{% set n = namespace(x='ab') %}{% for i in range(9999) %}{% for j in range(9999) %}" \
        "{% set n.x = (n.x ~ n.x)|replace('a', 'bb') %}{% endfor %}{% endfor %}"


def schema_bomb():
    """Many large regular expressions in one schema."""
    properties = {f"k{index}": {"type": "string", "pattern": "(a|aa)*b{0,900}"} for index in range(400)}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
# By name: who attacks, where, with which body for a model's name, on how many connections.
ATTACKS = {
    "long text": (flood, COMPLETIONS, lambda m: generation(m, prompt="ab cd " * (LONG_TEXT // 6)), 4),
    "deep JSON": (flood, COMPLETIONS, lambda m: b"[" * 30_000_000, 4),
    "huge n": (flood, COMPLETIONS, lambda m: generation(m, n=16384, temperature=1.0), 2),
    "batch of 100k": (flood, COMPLETIONS, lambda m: generation(m, prompt=[[5]] * 100_000), 2),
    "batch of 1k": (flood, COMPLETIONS, lambda m: generation(m, prompt=[[5]] * 1_000), 2),
    "logit_bias of 40k": (
        flood, COMPLETIONS, lambda m: generation(m, logit_bias={str(i): 1 for i in range(40_000)}), 4),
    "logit_bias of 1M": (
        flood, COMPLETIONS, lambda m: generation(m, logit_bias={str(i): 1 for i in range(10**6)}), 4),
    "slow readers": (
        unread, COMPLETIONS,
        lambda m: generation(m, max_tokens=1900, stream=True, logprobs=20, temperature=1.0), SLOW_READERS),
    "template bomb": (flood, CHAT, lambda m: conversation(m, chat_template=template_bomb()), 8),
    "grammar bomb": (flood, CHAT, lambda m: conversation(m, structured_outputs={"grammar": ambiguous_grammar()}), 8),
    "schema bomb": (flood, CHAT, lambda m: conversation(m, response_format=schema_bomb()), 8),
    "idle connections": (idle, "", lambda m: b"", CONNECTIONS),
}


def run_attack(name, model, address, options, pipe):
    """The body of an attacker's process."""
    attack, path, make, connections = ATTACKS[name]
    body, counts = make(model), {}
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    request = f"{head}{authorization(options.attack_key)}\r\n".encode() + body
    pipe.send("ready")
    attack(address, request, connections, time.monotonic() + options.attack_seconds, counts)
    pipe.send(counts)


async def small_requests(target, seconds):
    """Times to the first token of small requests, one after another, in seconds, and why others failed."""
    times, failures, until = [], [], time.monotonic() + seconds
    while time.monotonic() < until or len(times) + len(failures) < 3:
        try:
            answer = await target.ask(target.prompts.ids(PROBE_PROMPT), 1)
            times.append(answer.ttft)
        except (BenchError, OSError) as failure:
            failures.append(str(failure) or type(failure).__name__)
        await asyncio.sleep(PAUSE)
    return times, failures


def forget_the_peak(process):
    """Has the kernel measure the most memory anew."""
    try:
        Path(f"/proc/{process}/clear_refs").write_text("5")
    except OSError as error:
        raise BenchError(f"the peak of memory cannot be measured anew: {error}") from None


async def attacked(target, options, served, name):
    """One attack, and what it did."""
    parts = urlsplit(served.url)
    here, there = multiprocessing.Pipe()
    attacker = multiprocessing.get_context("fork").Process(
        target=run_attack, args=(name, target.model, (parts.hostname, parts.port), options, there))
    quiet, _ = await small_requests(target, options.attack_seconds / 2)
    before = served.memory()["VmRSS"]
    forget_the_peak(served.pid)
    attacker.start()
    try:
        await asyncio.to_thread(here.recv)
        # The attack has begun in earnest when the server has read the first bodies.
        await asyncio.sleep(1.0)
        times, failures = await small_requests(target, options.attack_seconds - 1.0)
        counts = await asyncio.to_thread(here.recv)
        peak = served.memory()["VmHWM"]
    finally:
        attacker.join(PATIENCE)
        attacker.kill()
    await recovered(target)
    return {
        "attack": name, "quiet": quiet, "attacked": times, "failures": failures, "answers": counts,
        "memory_before": before, "memory_peak": peak,
    }


async def recovered(target):
    """Waits until the server answers again; an attack that ends it ends the bench."""
    for _ in range(60):
        try:
            return await target.ask(target.prompts.ids(PROBE_PROMPT), 1)
        except (BenchError, OSError) as failure:
            last = failure
            await asyncio.sleep(1.0)
    raise BenchError(f"the server did not recover: {last}")


async def attack(target, options, served):
    """All attacks that were asked for, one after another."""
    figures = [await attacked(target, options, served, name) for name in options.attacks or ATTACKS]
    print("\n## Attacks\n")
    print(f"A small request ({PROBE_PROMPT} tokens in, 1 out), one after another, alone and beside each attack; times to "
          "the first token in ms.\n")
    columns = ["attack", "p50 alone", "p99 alone", "p50 attacked", "p99 attacked", "p99 / p99", "answered",
               "failed", "memory above", "the attacker got"]
    print(table(columns, [row(figure) for figure in figures]))
    return figures


def row(figure):
    """One line of the table."""
    quiet, times = figure["quiet"], figure["attacked"]
    ratio = percentile(times, 99) / percentile(quiet, 99) if times else None
    answers = ", ".join(f"{count:,} × {what}" for what, count in sorted(figure["answers"].items()))
    above = size(max(0, figure["memory_peak"] - figure["memory_before"]))
    shown = [milliseconds(percentile(all_times, percent)) for all_times in (quiet, times) for percent in (50, 99)]
    counts = [f"{len(times):,}", f"{len(figure['failures']):,}"]
    return [figure["attack"], *shown, number(ratio), *counts, above, answers]
