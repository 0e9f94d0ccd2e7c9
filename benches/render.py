#!/usr/bin/env python3
"""From messages to ids: tito beside vLLM's Rust front-end, by wrk on the same bodies.

    python benches/render.py --tito TITO --vllm-rs BIN --model DIR [--seconds 4] [--rounds 3] [--connections 16 1] [--loads NAME ...]

DIR has a tokenizer; the template is that of Qwen2.5, which writes tools and calls. Both servers run all the time, and answer in turns. A row
of the table is a load and a number of connections: the medians of requests a second and of the processor time of a request (of the server's
process, user and system), and their ratios, each of which is the median of the ratios of all rounds.

Loads are, but for the first, of more different texts than tito remembers (8 MiB, `recent.rs`), so that none is known from before. `turn`
is a turn of an agent after 100 calls of tools, in about 57,000 tokens; in `known`, tito gets the ids of the last answer with it, as a
trainer's client sends them back, and vLLM's front-end the same body without ids, as it knows of none. Before anything is measured, ids of
both servers are compared for some bodies of each load.

It needs wrk, and vLLM's front-end (benches/README.md says where it is).
"""

import argparse
import json
import pathlib
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "tests" / "golden" / "template" / "hermes.jinja"
RENDER = "/v1/chat/completions/render"
SCRIPT = """
local bodies, number = {}, 0
for line in io.lines("%s") do bodies[#bodies + 1] = line end
request = function()
  number = number %% #bodies + 1
  return wrk.format("POST", nil, {["Content-Type"] = "application/json"}, bodies[number])
end
"""
TOOLS = [{
    "type": "function",
    "function": {
        "name": name, "description": f"{name} of the project",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "query": {"type": "string"}}, "required": ["path"]},
    },
} for name in ("read_file", "search", "run_tests")]


class Texts:
    """Words of this project's pages, as often as there."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        pages = sorted(ROOT.glob("docs/**/*.md"))
        self.words = [word for page in pages for word in re.findall(r"[A-Za-z]+", page.read_text())]

    def of(self, count):
        return " ".join(self.random.choices(self.words, k=count))

    def output(self, count):
        """What a tool gives: lines of a file, with numbers and signs."""
        lines = []
        while count > 0:
            words = self.random.randint(3, 9)
            lines.append(f"{len(lines) + 1:4}:    {self.of(words).replace(' ', '_', 1)} = {self.random.randint(0, 9999)};")
            count -= words + 6
        return "\n".join(lines)

    def call(self, number):
        arguments = json.dumps({"path": f"src/{self.of(1)}/{self.of(1)}.py", "query": self.of(3)})
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "search", "arguments": arguments}}
        answer = {"role": "assistant", "content": self.of(25), "tool_calls": [call]}
        return [answer, {"role": "tool", "tool_call_id": call["id"], "content": self.output(250)}]


def user(text):
    return {"role": "user", "content": text}


def turn(texts):
    messages = [user(texts.of(60))]
    for number in range(100):
        messages += texts.call(number)
    return {"messages": messages, "tools": TOOLS}


def conversation(texts):
    roles = ["user", "assistant"] * 40 + ["user"]
    return {"messages": [{"role": role, "content": texts.of(texts.random.randint(30, 46))} for role in roles]}


# For each load how many bodies it has, and what makes one.
LOADS = {
    "short": (1, lambda _texts, _number: {"messages": [user("What is the capital of France?")]}),
    "numbers": (20_000, lambda _texts, number: {"messages": [user(f"What is {number * 7919 % 1000003} times {number}?")]}),
    "words": (1_200, lambda texts, _number: {"messages": [user(texts.of(1500))]}),
    "messages": (500, lambda texts, _number: conversation(texts)),
    "turn": (60, lambda texts, _number: turn(texts)),
    "known": (60, lambda texts, _number: turn(texts)),
}


class Rendering:
    """A server, and how long it computed."""

    def __init__(self, name, command):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.name = name
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stdout=self.log, stderr=self.log)

    def wait(self):
        for _ in range(600):
            if self.process.poll() is not None:
                self.log.seek(0)
                raise SystemExit(f"{self.name} ended: {self.log.read().decode(errors='replace')[-2000:]}")
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health").read()
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{self.name} is not ready after a minute")

    def render(self, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{RENDER}", body, {"Content-Type": "application/json"})
        try:
            return json.load(urllib.request.urlopen(request))
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{self.name}: {error.code} {error.read().decode()[:2000]}") from None

    def ids(self, body):
        return self.render(body)["token_ids"]

    def computed(self):
        """Microseconds of user and system time so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 10_000

    def load(self, script, connections, seconds):
        """Requests a second, and microseconds of a processor for each."""
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s", "-s", str(script), f"http://127.0.0.1:{self.port}{RENDER}"]
        before = self.computed()
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        after = self.computed()
        if "Non-2xx" in output or "Socket errors" in output:
            raise SystemExit(f"{self.name}: {output}")
        requests = int(re.search(r"(\d+) requests in", output)[1])
        return float(re.search(r"Requests/sec: *([0-9.]+)", output)[1]), (after - before) / max(requests, 1)


def with_ids(body, tito):
    """The body with the ids of its last answer, as a client has them that keeps what a server answered."""
    *history, answer, last = body["messages"]
    asked = {"model": "m", "messages": history, "tools": body["tools"]}
    whole = {"model": "m", "messages": [*history, answer], "tools": body["tools"], "add_generation_prompt": False}
    prompt, all_ids = (tito.ids(json.dumps(fields).encode()) for fields in (asked, whole))
    # The answer ends with the token that ends a turn, which a line break of the template follows.
    generated = all_ids[len(prompt):-1]
    ids = {"prompt_token_ids": prompt, "generation_token_ids": generated, "generation_log_probs": [-0.5] * len(generated)}
    return body | {"messages": [*history, answer | ids, last]}


def with_long_context(model, folder):
    """The same model, but for how long it says that prompts may be: neither server computes with it."""
    copy = folder / "model"
    copy.mkdir()
    for file in pathlib.Path(model).resolve().iterdir():
        if file.name != "config.json":
            (copy / file.name).symlink_to(file)
    config = json.loads(pathlib.Path(model, "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1 << 20}))
    return str(copy)


def prepare(name, servers, folder):
    """Writes the bodies of a load, and returns the scripts that send them to tito and to its peer."""
    count, make = LOADS[name]
    texts = Texts(name)
    bodies = [{"model": "m"} | make(texts, number) for number in range(count)]
    sent = [[with_ids(body, servers[0]) for body in bodies] if name == "known" else bodies, bodies]
    scripts = []
    for server, own in zip(servers, sent, strict=True):
        lines, script = folder / f"{name}-{server.name}.jsonl", folder / f"{name}-{server.name}.lua"
        lines.write_text("".join(json.dumps(body) + "\n" for body in own))
        script.write_text(SCRIPT % lines)
        scripts.append(script)
    for number in range(0, count, max(count // 5, 1)):
        found, expected = (server.ids(json.dumps(own[number]).encode()) for server, own in zip(servers, sent, strict=True))
        if found != expected:
            raise SystemExit(f"{name}, body {number}: {len(found)} ids of tito's and {len(expected)} of vLLM's are not the same")
    print(f"{name}: {len(found)} ids in the last body that was compared", file=sys.stderr)
    return scripts


def measure(name, servers, scripts, connections, chosen):
    rounds = [[server.load(script, connections, chosen.seconds) for server, script in zip(servers, scripts, strict=True)] for _ in range(chosen.rounds)]
    own, peer = zip(*rounds, strict=True)
    ratio = statistics.median(tito[0] / other[0] for tito, other in rounds)
    time_ratio = statistics.median(tito[1] / other[1] for tito, other in rounds)
    figures = [statistics.median(one[place] for one in side) for side in (own, peer) for place in (0, 1)]
    print(f"| {name} | {connections} | {figures[0]:,.0f} | {figures[2]:,.0f} | {ratio:.2f} | {figures[1]:,.0f} | {figures[3]:,.0f} | {time_ratio:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tito", required=True)
    parser.add_argument("--vllm-rs", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, nargs="+", default=[16, 1])
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench(chosen, pathlib.Path(folder))


def bench(chosen, folder):
    model = with_long_context(chosen.model, folder)
    both = ["--served-model-name", "m", "--chat-template", str(TEMPLATE), "--tool-call-parser", "hermes"]
    commands = {
        "tito": [chosen.tito, "serve", model, "--engine", "scripted", "--disable-uvicorn-access-log", "--enable-auto-tool-choice", *both],
        "vllm-rs": [chosen.vllm_rs, "render", model, *both],
    }
    servers = [Rendering(name, command) for name, command in commands.items()]
    try:
        for server in servers:
            server.wait()
        scripts = {name: prepare(name, servers, folder) for name in chosen.loads}
        print("| load | connections | tito, requests/s | vllm-rs | ratio | tito, µs of a processor | vllm-rs | ratio |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        for name, connections in ((name, connections) for name in chosen.loads for connections in chosen.connections):
            measure(name, servers, scripts[name], connections, chosen)
    finally:
        for server in servers:
            server.process.kill()


if __name__ == "__main__":
    main()
