#!/usr/bin/env python3
"""Records what NeMo Gym, agent-lightning and verifiers send to their inference server, with their own programs, unchanged.

    python3.13 -m venv venv && venv/bin/pip install nemo-gym==0.7.0 agentlightning==1.0.2 pytest
    TITO_BIN=… TITO_TEST_MODEL=… venv/bin/python tests/golden/frameworks/record.py script nemo_gym agent_lightning

    python3.12 -m venv another && another/bin/pip install verifiers==0.4.0 uv fastapi pytest
    TITO_BIN=… TITO_TEST_MODEL=… another/bin/python tests/golden/frameworks/record.py verifiers

It writes the files that are named beside it. `tests/clients/played.py` replays them, since the packages need a newer Python than the
tests have, or other versions of what they depend on. NeMo Gym's agents and model servers run as in production, over HTTP: the
agent calls the model server and the tool, and the model server calls tito.

The recordings were made by Python 3.13.0 (`--ignore-requires-python`), with stand-ins for wandb and mlflow, which are imported
on the way and not used.
"""

import asyncio
import contextlib
import http.server
import importlib.metadata
import json
import os
import pathlib
import re
import socketserver
import sys
import tempfile
import threading
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "clients"))

import fastapi  # noqa: E402
import httpx  # noqa: E402
import uvicorn  # noqa: E402

from conftest import Server  # noqa: E402
from played import MARKED, RECORDED, SCRIPT, answer_of, ids_of, playing  # noqa: E402

QUESTION = "How warm is it in Oslo and in Bergen?"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "weather", "description": "How warm it is.", "parameters": PARAMETERS}


def call(city):
    return "<tool_call>\n" + json.dumps({"name": "weather", "arguments": {"city": city}}) + "\n</tool_call>"


ANSWERS = [call("Oslo"), call("Bergen"), "It is warm in both."]


# Of the test's vocabulary, tokens that stand for the marks of Qwen3, which the model does not have.
MARKS = {"<repo_name>": "<tool_call>", "<reponame>": "</tool_call>", "<file_sep>": "<tool_response>", "<filename>": "</tool_response>"}
MARKS |= {"<gh_stars>": "<think>", "<issue_start>": "</think>"}


def write_marked_tokenizer(directory):
    """The model's own tokenizer with the marks of Qwen3; all other ids are as they were."""
    source = pathlib.Path(os.environ["TITO_TEST_MODEL"])
    (directory / "config.json").write_text((source / "config.json").read_text())
    # The mark of what is unknown is none of a turn's.
    settings = json.loads((source / "tokenizer_config.json").read_text()) | {"unk_token": "<empty_output>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    for token in tokenizer["added_tokens"]:
        token["content"] = MARKS.get(token["content"], token["content"])
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {MARKS.get(token, token): id for token, id in vocabulary.items()}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))


def write_script():
    """One answer a line, in ids of single letters; of `script_marks.jsonl`, the marks around a call are one id each."""
    server = Server()

    def ids(text):
        return server.post("/tokenize", prompt=text, add_special_tokens=False)["tokens"]

    def spelt(answer):
        return [id for letter in answer for id in ids(letter)]

    lines = [spelt(answer) + ids("<|im_end|>") for answer in ANSWERS]
    standing = {mark: ids(token) for token, mark in MARKS.items()}
    parts = [re.split("(</?tool_call>)", answer) for answer in ANSWERS]
    marked = [[id for part in answer for id in standing.get(part) or spelt(part)] + ids("<|im_end|>") for answer in parts]
    server.stop()
    SCRIPT.write_text("".join(json.dumps(line) + "\n" for line in lines))
    MARKED.write_text("".join(json.dumps(line) + "\n" for line in marked))


class Between(http.server.ThreadingHTTPServer):
    """Stands between a framework and tito, and keeps what goes through."""

    def __init__(self, target):
        super().__init__(("127.0.0.1", 0), Handler)
        self.target, self.calls = target, []
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        """What the server is asked for without a body is not kept."""
        with urllib.request.urlopen(self.server.target + self.path, timeout=300) as response:
            self.answer(response.status, response.headers["Content-Type"], response.read())

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        request = urllib.request.Request(self.server.target + self.path, raw, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                status, text, kind = response.status, response.read(), response.headers["Content-Type"]
        except urllib.error.HTTPError as error:
            status, text, kind = error.code, error.read(), "application/json"
        assert status == 200, f"{self.path}: {status} {text.decode()}\n{raw.decode()}"
        kept = {"path": self.path, "body": json.loads(raw), "tool_calls": ids_of(answer_of(text.decode()))}
        self.server.calls.append(kept)
        self.answer(status, kind, text)

    def answer(self, status, kind, text):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """It prints nothing."""


@contextlib.contextmanager
def between(script):
    """A new tito that plays the answers, and what stands in front of it."""
    server = playing(script)
    recorder = Between(server.url)
    try:
        yield recorder
    finally:
        recorder.shutdown()
        server.stop()


@contextlib.asynccontextmanager
async def served(app):
    """The port of an application that runs."""
    # It listens from now on: whoever comes before the application has started waits.
    with socketserver.TCPServer(("127.0.0.1", 0), None) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        task = asyncio.create_task(server.serve(sockets=[listening.socket]))
        try:
            yield listening.server_address[1]
        finally:
            server.should_exit = True
            await task


def tool():
    """The resources server, which has one tool."""
    app = fastapi.FastAPI()

    @app.post("/weather")
    async def weather(body: dict):
        return fastapi.Response(f"{len(body['city'])} degrees in {body['city']}", media_type="text/plain")

    return app


async def gym(variant, upstream, directory):
    """An agent of NeMo Gym asks the question."""
    from nemo_gym.config_types import BaseServerConfig, ModelServerRef, ResourcesServerRef
    from nemo_gym.server_utils import ServerClient
    from omegaconf import OmegaConf
    from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig
    from responses_api_agents.simple_agent_with_compaction import app as compacting
    from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig
    from responses_api_models.vllm_model_with_compaction.app import VLLMModelWithCompaction

    compaction, supply = variant == "compaction", variant == "supply_prefix"
    capture = {"enabled": True, "all_agents": True, "dir": directory} if supply else {"enabled": False}
    here = {"host": "127.0.0.1", "port": 0}
    settings = OmegaConf.create(
        {
            "token_id_capture": capture,
            "policy_model": {"responses_api_models": {"vllm_model": dict(here)}},
            "tools": {"resources_servers": {"tools": dict(here)}},
        }
    )
    client = ServerClient(head_server_config=BaseServerConfig(**here), global_config_dict=settings)
    # As in the yaml files of the package: vllm_model, _for_training, _supply_prefix and _for_compaction.
    model = (VLLMModelWithCompaction if compaction else VLLMModel)(
        config=VLLMModelConfig(
            **here,
            entrypoint="app.py",
            name="policy_model",
            base_url=f"{upstream}/v1",
            api_key="none",
            model="smollm2",
            return_token_id_information=variant != "plain",
            request_prompt_and_generation_token_ids=compaction,
            supply_prefix_token_ids=supply,
            uses_reasoning_parser=True,
        ),
        server_client=client,
    )
    refs = {
        "model_server": ModelServerRef(type="responses_api_models", name="policy_model"),
        "resources_server": ResourcesServerRef(type="resources_servers", name="tools"),
    }
    named = {**here, "entrypoint": "app.py", "name": "agent"}
    if compaction:
        history = {"enabled": True, "guards": {"max_total_tokens": 2048}}
        config = compacting.SimpleAgentWithCompactionConfig(**named, **refs, context_history=history)
        agent = compacting.SimpleAgentWithCompaction(config=config, server_client=client)
    else:
        agent = SimpleAgent(config=SimpleAgentConfig(**named, **refs), server_client=client)
    async with served(model.setup_webserver()) as at_model, served(tool()) as at_tool, served(agent.setup_webserver()) as at:
        settings.policy_model.responses_api_models.vllm_model.port = at_model
        settings.tools.resources_servers.tools.port = at_tool
        prefix = "/ng-rollout/one/training-token-capture" if supply else ""
        question = {"input": [{"role": "user", "content": QUESTION}], "tools": [{"type": "function", "strict": True, **WEATHER}]}
        async with httpx.AsyncClient(timeout=300) as http:
            answer = await http.post(f"http://127.0.0.1:{at}{prefix}/v1/responses", json=question)
        assert answer.status_code == 200, answer.text
        assert answer.json()["output"][-1]["content"][0]["text"] == ANSWERS[-1], answer.text


async def agent_lightning(variant, upstream, _directory):
    """An agent asks the question through the proxy of agent-lightning; as `completions`, with a prompt that it wrote itself."""
    from agentlightning.server.app import create_app

    temperatures = {"train": {"temperature": 1}, "val": {"temperature": 0.7}}
    proxy = {"model_name": "smollm2", "include_log_probs": True, "include_routed_experts": False, **temperatures}
    async with served(create_app({"key": "", "default_proxy": proxy})) as port, httpx.AsyncClient(timeout=300) as http:
        at = f"http://127.0.0.1:{port}"
        # Its store is one for the process.
        (await http.delete(f"{at}/api/models")).raise_for_status()
        (await http.post(f"{at}/api/models", json=[{"model": "smollm2", "endpoint": f"{upstream}/v1"}])).raise_for_status()
        rollout = await http.post(f"{at}/api/rollouts", json=[{"input": QUESTION, "rollout_id": "one"}])
        rollout.raise_for_status()
        mode = "val" if variant == "val" else "train"
        base = f"{at}/proxy/rollout/one/attempt/0/mode/{mode}/openai/v1"
        streamed = await http.post(f"{base}/chat/completions", json={"messages": [], "stream": True})
        assert (streamed.status_code, streamed.json()["detail"]) == (400, "Streaming responses are not supported")
        if variant == "completions":
            answer = await http.post(f"{base}/completions", json={"prompt": QUESTION, "max_tokens": 128})
            assert answer.json()["choices"][0]["text"] == ANSWERS[0], answer.text
            return
        assert await ask(http, base) == ANSWERS[-1]


async def ask(http, base):
    """A loop with tools, over OpenAI's API."""
    messages = [{"role": "user", "content": QUESTION}]
    while True:
        body = {"model": "any", "messages": messages, "tools": [{"type": "function", "function": WEATHER}]}
        answer = await http.post(f"{base}/chat/completions", json=body)
        answer.raise_for_status()
        message = answer.json()["choices"][0]["message"]
        if not message.get("tool_calls"):
            return message["content"]
        messages.append({key: message[key] for key in ("role", "content", "tool_calls")})
        for called in message["tool_calls"]:
            city = json.loads(called["function"]["arguments"])["city"]
            messages.append({"role": "tool", "tool_call_id": called["id"], "content": f"{len(city)} degrees in {city}"})


async def verifiers(variant, upstream, directory):
    """vf-eval of verifiers rolls out the environment beside this file, with its harness `null`, which has the tool and nothing else.

    As `train`, it renders every prompt to ids by itself, as in prime-rl, with its package `renderers`.
    """
    command = [pathlib.Path(sys.executable).parent / "vf-eval", "verifiers-weather", "--env.agent.harness.id", "null", "--env.agent.runtime.type", "subprocess"]
    command += ["--model", "smollm2", "--client.base-url", f"{upstream}/v1", "--client.api-key-var", "TITO_KEY"]
    command += ["--output-dir", directory, "--run.name", "one", "--no-push", "--no-rich"]
    if variant == "train":
        tokenizer = pathlib.Path(directory) / "tokenizer"
        tokenizer.mkdir()
        write_marked_tokenizer(tokenizer)
        command += ["--client.type", "train", "--client.renderer.name", "qwen3", "--client.renderer-model-name", str(tokenizer)]
        command += ["--sampling.max-tokens", "256"]
    # Its harness is installed by uv, which this Python has, and its cache is the home's.
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(HERE), "HOME": directory}
    process = await asyncio.create_subprocess_exec(*command, env=environment, cwd=directory)
    assert await process.wait() == 0
    [trace] = (json.loads(line) for line in (pathlib.Path(directory) / "one" / "traces.jsonl").read_text().splitlines())
    assert ANSWERS[-1] in json.dumps(trace), trace


async def record(name, package, converse, variants):
    """`variants` say for each variant which script is played."""
    lines = []
    for variant, script in variants.items():
        with between(script) as recorder, tempfile.TemporaryDirectory() as directory:
            await converse(variant, recorder.url, directory)
            lines += [{"variant": variant, **call} for call in recorder.calls]
    version = f"{package} {importlib.metadata.version(package)}"
    (RECORDED / f"{name}.jsonl").write_text("".join(json.dumps({"by": version, **line}) + "\n" for line in lines))


async def main(names):
    if not names or "script" in names:
        write_script()
    if not names or "agent_lightning" in names:
        await record("agent_lightning", "agentlightning", agent_lightning, dict.fromkeys(["train", "val", "completions"], SCRIPT))
    if not names or "verifiers" in names:
        await record("verifiers", "verifiers", verifiers, {"eval": SCRIPT, "train": MARKED})
    if not names or "nemo_gym" in names:
        from nemo_gym.server_utils import GlobalAIOHTTPAsyncClientConfig, set_global_aiohttp_client

        set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
        await record("nemo_gym", "nemo-gym", gym, dict.fromkeys(["plain", "token_ids", "supply_prefix", "compaction"], SCRIPT))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
