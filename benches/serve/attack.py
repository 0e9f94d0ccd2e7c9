"""What a small request waits for while others attack the server.

Owns the attacks and the small requests that are timed. An attack runs in a process of its own, so that what the attacker
computes does not delay the clock; it does share the cores with the server, as a neighbour's load would. Every attack ends
by itself after `--attack-seconds`.
"""

import asyncio
import itertools
import json
import multiprocessing
import resource
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from . import http2, pictures
from .client import BenchError, authorization
from .report import milliseconds, number, percentile, size, table

PROBE_PROMPT = 8
PAUSE = 0.02
CONNECTIONS = 10_000
SLOW_READERS = 300
LONG_TEXT = 60_000_000
# More than a port of the control plane has room for where a process may open 320 files, and twice the handshakes that are
# waited for at most.
SILENT_TO_ADMIN = 330
SILENT_HANDSHAKES = 2_120
REOPENED_EVERY = 0.1
# The longest that an attacker waits for one answer: it may well be computed until the attack ends.
PATIENCE = 5.0


def flood(address, requests, threads, until, counts):
    """Sends requests again and again on as many connections, and counts what comes back by status."""

    def one():
        for request in itertools.cycle(requests):
            if time.monotonic() > until:
                break
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


def unread(address, requests, connections, until, counts):
    """Asks for streams, and reads none of them."""
    opened = []
    for _ in range(connections):
        try:
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(PATIENCE)
            connection.connect(address)
            connection.sendall(requests[0])
            opened.append(connection)
        except OSError as error:
            counts[type(error).__name__] = counts.get(type(error).__name__, 0) + 1
        if time.monotonic() > until:
            break
    counts["unread streams"] = len(opened)
    time.sleep(max(0.0, until - time.monotonic()))
    for connection in opened:
        connection.close()


def silent(address, _requests, connections, until, counts):
    """Opens connections on which nothing is ever sent, and opens each again that the server closes."""
    open_many_files()
    opened, names = {}, ["silent connections", "closed and opened again"]
    counts.update(dict.fromkeys(names, 0))
    closed, poll = [None] * connections, select.poll()
    while time.monotonic() < until:
        for _ in closed:
            try:
                connection = socket.create_connection(address, timeout=PATIENCE)
            except OSError as error:
                counts[type(error).__name__] = counts.get(type(error).__name__, 0) + 1
                continue
            opened[connection.fileno()] = connection
            poll.register(connection, select.POLLIN)
        counts[names[0]] = max(counts[names[0]], len(opened))
        time.sleep(REOPENED_EVERY)
        closed = [number for number, _ in poll.poll(0)]
        for number in closed:
            poll.unregister(number)
            opened.pop(number).close()
        counts[names[1]] += len(closed)
    for connection in opened.values():
        connection.close()


def open_many_files():
    """Lets the attacker have as many connections as the system grants."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def idle(address, _requests, connections, until, counts):
    """Opens connections; every other one sends half a head."""
    open_many_files()
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


async def to_the_first_token(target):
    """The time from a small request to its first token, on a connection that is open already."""
    return (await target.ask(target.prompts.ids(PROBE_PROMPT), 1)).ttft


async def on_a_new_connection(target):
    """The time that a small request takes with its connection."""
    target.client.close()
    started = time.perf_counter()
    await target.ask(target.prompts.ids(PROBE_PROMPT), 1)
    return time.perf_counter() - started


async def health_on_a_new_connection(target):
    """The time that `/health` takes with its connection, and what that takes to be agreed on."""
    target.client.close()
    started = time.perf_counter()
    reply = await target.client.send(target.client.get("/health"))
    if reply.status != 200:
        raise BenchError(f"/health says {reply.status}")
    return time.perf_counter() - started


def asked(attack, model, authority, key):
    """The one request that a client with a key sends."""
    return [post(authority, attack.path, attack.body(model), f"Content-Type: application/json\r\n{authorization(key)}")]


def asked_with(messages):
    """The requests of a client whose messages have these files."""

    def asked(attack, model, authority, key):
        headers = f"Content-Type: application/json\r\n{authorization(key)}"
        return [post(authority, attack.path, pictures.body(files)(model), headers) for files in messages()]

    return asked


def asked_by_pages(_attack, _model, authority, _key):
    """What pages of another origin send to a control plane: as forms do, and by a name that they have point here."""
    _, _, port = authority.rpartition(":")
    bodies = {"/pause": b"{}", "/update_weights_from_disk": b'{"model_path": "/tmp"}'}
    as_forms = "Content-Type: text/plain\r\nOrigin: https://elsewhere.example\r\n"
    for path, body in bodies.items():
        yield post(authority, path, body, as_forms)
        yield post(f"elsewhere.example:{port}", path, body, "Content-Type: application/json\r\n")


def post(authority, path, body, headers):
    """The bytes of a POST request."""
    head = f"POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


class Attack(NamedTuple):
    """Who attacks, where, with which body for a model's name, on how many connections; and what is timed beside it."""

    by: Callable
    path: str
    body: Callable
    connections: int
    requests: Callable = asked
    # What the command must have that starts the server.
    needs: str = ""
    probe: Callable = to_the_first_token
    # Every answer must be one of these.
    answers: frozenset = frozenset()

    def port(self, served):
        """Which port is attacked."""
        return served.admin_port if self.needs == ADMIN_PORT else urlsplit(served.url).port


ADMIN_PORT, TLS, IMAGES = "{admin_port}", "--ssl-certfile", "--limit-mm-per-prompt"
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
ATTACKS = {
    "long text": Attack(flood, COMPLETIONS, lambda m: generation(m, prompt="ab cd " * (LONG_TEXT // 6)), 4),
    "deep JSON": Attack(flood, COMPLETIONS, lambda m: b"[" * 30_000_000, 4),
    "huge n": Attack(flood, COMPLETIONS, lambda m: generation(m, n=16384, temperature=1.0), 2),
    "batch of 100k": Attack(flood, COMPLETIONS, lambda m: generation(m, prompt=[[5]] * 100_000), 2),
    "batch of 1k": Attack(flood, COMPLETIONS, lambda m: generation(m, prompt=[[5]] * 1_000), 2),
    "logit_bias of 40k": Attack(
        flood, COMPLETIONS, lambda m: generation(m, logit_bias={str(i): 1 for i in range(40_000)}), 4),
    "logit_bias of 1M": Attack(
        flood, COMPLETIONS, lambda m: generation(m, logit_bias={str(i): 1 for i in range(10**6)}), 4),
    "slow readers": Attack(
        unread, COMPLETIONS,
        lambda m: generation(m, max_tokens=1900, stream=True, logprobs=20, temperature=1.0), SLOW_READERS),
    "template bomb": Attack(flood, CHAT, lambda m: conversation(m, chat_template=template_bomb()), 8),
    "grammar bomb": Attack(
        flood, CHAT, lambda m: conversation(m, structured_outputs={"grammar": ambiguous_grammar()}), 8),
    "schema bomb": Attack(flood, CHAT, lambda m: conversation(m, response_format=schema_bomb()), 8),
    "idle connections": Attack(idle, "", lambda m: b"", CONNECTIONS),
    "silent to the admin port": Attack(
        silent, "", lambda m: b"", SILENT_TO_ADMIN, needs=ADMIN_PORT, probe=on_a_new_connection),
    "pages to the admin port": Attack(
        flood, "", lambda m: b"", 8, asked_by_pages, ADMIN_PORT, on_a_new_connection, frozenset({"403"})),
    "silent to a TLS port": Attack(
        silent, "", lambda m: b"", SILENT_HANDSHAKES, needs=TLS, probe=health_on_a_new_connection),
}


ATTACKS |= {
    f"HTTP/2: {name}": Attack(http2.endless(frames), "", lambda m: b"", 4, probe=on_a_new_connection)
    for name, frames in {
        "streams reset at once": http2.streams_reset,
        "settings": http2.settings,
        "pings": http2.pings,
        "a head without end": http2.heads_without_end,
        "an empty head without end": http2.empty_heads_without_end,
        "heads of 1 MB": http2.heads_of_a_megabyte,
        "heads that repeat themselves": http2.heads_that_repeat_themselves,
    }.items()
}

ATTACKS |= {
    f"images: {name}": Attack(flood, CHAT, lambda m: b"", 4, asked_with(messages), IMAGES)
    for name, messages in pictures.PICTURES.items()
}


def chosen(names, command):
    """The attacks that are asked for, or else all that the server can be asked; and what is said of the others."""
    missing = [name for name in names or ATTACKS if ATTACKS[name].needs not in command]
    if names and missing:
        raise BenchError(f"{missing[0]}: --serve has no {ATTACKS[missing[0]].needs}")
    said = [f"NOT MEASURED: {name}: --serve has no {ATTACKS[name].needs}" for name in missing]
    return [name for name in names or ATTACKS if name not in missing], said


def run_attack(name, model, address, options, pipe):
    """The body of an attacker's process."""
    attack, counts = ATTACKS[name], {}
    host, port = address
    requests = list(attack.requests(attack, model, f"{host}:{port}", options.attack_key))
    pipe.send("ready")
    attack.by(address, requests, attack.connections, time.monotonic() + options.attack_seconds, counts)
    pipe.send(counts)


async def small_requests(target, seconds, probe):
    """How long small requests took, one after another, in seconds, and why others failed."""
    times, failures, until = [], [], time.monotonic() + seconds
    while time.monotonic() < until or len(times) + len(failures) < 3:
        try:
            times.append(await probe(target))
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
    here, there = multiprocessing.Pipe()
    probe, address = ATTACKS[name].probe, (urlsplit(served.url).hostname, ATTACKS[name].port(served))
    attacker = multiprocessing.get_context("fork").Process(
        target=run_attack, args=(name, target.model, address, options, there))
    quiet, _ = await small_requests(target, options.attack_seconds / 2, probe)
    before = served.memory()["VmRSS"]
    forget_the_peak(served.pid)
    attacker.start()
    try:
        await asyncio.to_thread(here.recv)
        # The attack has begun in earnest when the server has read the first bodies.
        await asyncio.sleep(1.0)
        times, failures = await small_requests(target, options.attack_seconds - 1.0, probe)
        counts = await asyncio.to_thread(here.recv)
        peak = served.memory()["VmHWM"]
    finally:
        attacker.join(PATIENCE)
        attacker.kill()
    check_answers(name, counts)
    await recovered(target)
    return {
        "attack": name, "quiet": quiet, "attacked": times, "failures": failures, "answers": counts,
        "memory_before": before, "memory_peak": peak,
    }


def check_answers(name, counts):
    """Fails where an attacker got what nobody may give it."""
    wrong = {what: count for what, count in counts.items() if what not in ATTACKS[name].answers}
    if ATTACKS[name].answers and wrong:
        raise BenchError(f"{name}: the attacker got {wrong}")


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
    names, said = chosen(options.attacks, served.command)
    print("\n".join(said), file=sys.stderr)
    figures = [await attacked(target, options, served, name) for name in names]
    print("\n## Attacks\n")
    print(f"A small request ({PROBE_PROMPT} tokens in, 1 out), one after another, alone and beside each attack; times to "
          "the first token in ms. Beside connections, and beside pages: whole answers, each on a new connection; at a TLS "
          "port of `/health`.\n")
    columns = ["attack", "p50 alone", "p99 alone", "p50 attacked", "p99 attacked", "p99 / p99", "answered",
               "failed", "memory above", "the attacker got"]
    print(table(columns, [row(figure) for figure in figures]))
    return figures


def row(figure):
    """One line of the table."""
    quiet, times = figure["quiet"], figure["attacked"]
    ratio = percentile(times, 99) / percentile(quiet, 99) if times else None
    answers = ", ".join(f"{count:,.0f} × {what}" for what, count in sorted(figure["answers"].items()))
    above = size(max(0, figure["memory_peak"] - figure["memory_before"]))
    shown = [milliseconds(percentile(all_times, percent)) for all_times in (quiet, times) for percent in (50, 99)]
    counts = [f"{len(times):,}", f"{len(figure['failures']):,}"]
    return [figure["attack"], *shown, number(ratio), *counts, above, answers]
