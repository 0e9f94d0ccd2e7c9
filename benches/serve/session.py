"""One server from its start to its end, and the modes that it is asked."""

import contextlib
import sys

from . import attack, modes, report, score, structured
from .client import BenchError, Client
from .load import Prompts, Target, probe
from .process import Served

BY_DEFAULT = {
    "throughput": modes.throughput,
    "prefill": modes.prefill,
    "multi-turn": modes.multi_turn,
    "groups": modes.groups,
}
# Only where they are named: they want long contexts, chat templates, or candidates, which not every server has.
NAMED = {"agentic": modes.agentic, "structured": structured.structured, "score": score.score}
# All that a client can ask of any server.
ASKED = BY_DEFAULT | NAMED
BANDWIDTH = "bandwidth"
# No server of others is attacked by chance.
ATTACK = "attack"


@contextlib.asynccontextmanager
async def started(options, command, server):
    """A server that is ready, and is killed whatever happens; `server` gets its figures."""
    served = Served(command, options.serve_log)
    server["command"] = served.command
    try:
        server["ready_s"] = await served.ready(options.health, options.ready_timeout)
        server["memory_after_start"] = served.memory()
        yield served
        server["memory_after_load"] = served.memory()
    except (BenchError, OSError):
        print(f"the server wrote:\n{served.log_tail()}", file=sys.stderr)
        raise
    finally:
        served.kill()


@contextlib.asynccontextmanager
async def connected(options, url, figures):
    """A target for modes, which has answered once; `figures` get what it was found to take."""
    client = Client(url, options.timeout, options.api_key)
    try:
        target = await connect(options, client)
        figures["target"] = {"url": url, "model": target.model, "temperature": target.temperature, "seed": options.seed}
        figures["target"] |= {"takes_ids": not target.prompts.as_text, "returns_ids": target.returns_ids}
        # Not measured: what a server does once, for its first long prompt and answer.
        await target.ask(target.prompts.ids(options.tokens_in), options.tokens_out)
        yield target
    finally:
        client.close()


async def drive(options, url, figures, served=None):
    """All modes that need a server."""
    if options.modes == [BANDWIDTH]:
        return
    async with connected(options, url, figures) as target:
        for name, mode in ASKED.items():
            if name in options.modes:
                figures[name] = await mode(target, options)
                sys.stdout.flush()
        if ATTACK in options.modes:
            figures[ATTACK] = await attack.attack(target, options, served)


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
