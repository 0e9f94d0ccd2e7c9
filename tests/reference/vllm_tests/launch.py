"""Starts tito where vLLM's tests start vLLM."""

import itertools
import os
import pathlib
import socket
import subprocess
import sys
import time

import anthropic
import httpx
import openai

# A server of the small model is there in seconds; beside other work, in a minute.
START_SECONDS = 600
LAST_LINES = 12
# As vLLM's own class gives a server.
END_SECONDS = 15
# Flags that tito refuses, left out with their values: tests of keys and headers take a model of embeddings because it is small.
LEFT_OUT = ("--runner",)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def value_of(arguments, *names):
    """The last value of a flag, in either spelling."""
    found = None
    for argument, following in itertools.zip_longest(arguments, arguments[1:]):
        name, equals, value = argument.partition("=")
        if name in names:
            found = value if equals else following
    return found


class Launcher:
    """How a command line of vLLM becomes one of tito."""

    def __init__(self, program, model, logs):
        self.program, self.model, self.logs = program, pathlib.Path(model), pathlib.Path(logs)
        self.count = itertools.count()

    def command(self, model, arguments):
        """`tito serve` with the flags of the test; the model is served under the name that the test gives."""
        names = [] if value_of(arguments, "--served-model-name") else ["--served-model-name", model]
        directory = model if pathlib.Path(model, "model.safetensors").exists() else str(self.model)
        left_out = [at for at, argument in enumerate(arguments) if argument in LEFT_OUT]
        kept = [argument for at, argument in enumerate(arguments) if at not in left_out and at - 1 not in left_out]
        if "--tokenizer" in kept:
            kept[kept.index("--tokenizer") + 1] = str(self.model)
        host = [] if value_of(kept, "--host", "--uds") else ["--host", "127.0.0.1"]
        return [self.program, "serve", directory, *names, *host, *map(str, kept)]

    def translated(self, command):
        """The command line that stands for one of vLLM's, or None where it is of something else."""
        words = list(map(str, command))
        if words[:2] == ["vllm", "serve"]:
            return self.command(words[2], words[3:])
        if words[:3] == ["vllm", "launch", "render"]:
            return self.command(words[3], [*words[4:], "--enable-scale-out"])
        if words[:2] == [sys.executable, "-m"] and words[2].startswith("vllm.entrypoints"):
            arguments = words[4:] if words[3:4] == ["serve"] else words[3:]
            if "--model" not in arguments:
                return self.command(arguments[0], arguments[1:])
            at = arguments.index("--model")
            return self.command(arguments[at + 1], arguments[:at] + arguments[at + 2 :])
        return None

    def log(self):
        self.logs.mkdir(parents=True, exist_ok=True)
        return self.logs / f"server-{next(self.count)}.log"


def patch_processes(launcher):
    """Has tests that start vLLM by themselves start tito."""
    original = subprocess.Popen.__init__

    def start(self, args, *more, **named):
        translated = launcher.translated(args) if isinstance(args, list | tuple) else None
        original(self, translated or args, *more, **named)

    subprocess.Popen.__init__ = start


def server_classes(launcher):
    """The classes of vLLM's tests/utils.py by their names."""

    class RemoteVLLMServer:
        DUMMY_API_KEY = "token-abc123"
        start = ("vllm", "serve")

        def __init__(
            self, model, vllm_serve_args, *, env_dict=None, seed=0, auto_port=True, max_wait_seconds=None, override_hf_configs=None
        ):
            arguments = list(map(str, vllm_serve_args))
            self.uds = value_of(arguments, "--uds")
            if auto_port and not self.uds:
                arguments += ["--port", str(free_port())]
            if seed is not None:
                arguments += ["--seed", str(seed)]
            if override_hf_configs is not None:
                import json

                arguments += ["--hf-overrides", json.dumps(override_hf_configs)]
            self.host = None if self.uds else value_of(arguments, "--host") or "127.0.0.1"
            self.port = None if self.uds else int(value_of(arguments, "--port", "-p") or 8000)
            self.show_hidden_metrics = value_of(arguments, "--show-hidden-metrics-for-version") is not None
            self.log = launcher.log()
            with self.log.open("w") as log:
                command = [*self.start, model, *arguments]
                self.proc = subprocess.Popen(command, env={**os.environ, **(env_dict or {})}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                self.wait_until_healthy()
            except BaseException:
                self._shutdown()
                raise

        def wait_until_healthy(self):
            client = httpx.Client(transport=httpx.HTTPTransport(uds=self.uds), timeout=10)
            deadline = time.monotonic() + START_SECONDS
            while time.monotonic() < deadline:
                if self.proc.poll() is not None:
                    lines = self.log.read_text().strip().splitlines()[-LAST_LINES:]
                    raise RuntimeError("tito ended at its start: " + " / ".join(lines))
                try:
                    if client.get(self.url_for("health")).status_code == 200:
                        return
                except httpx.HTTPError:
                    time.sleep(0.1)
            raise RuntimeError("tito did not start in time")

        def __enter__(self):
            return self

        def __exit__(self, *raised):
            self._shutdown()

        def _get_process_termination_timeout(self):
            return END_SECONDS

        def _shutdown(self):
            if self.proc.poll() is None:
                self.proc.terminate()
                try:
                    self.proc.wait(60)
                except subprocess.TimeoutExpired:
                    self.proc.kill()
                    self.proc.wait()

        _terminate_process_tree = _shutdown

        @property
        def url_root(self):
            return f"http://{pathlib.Path(self.uds).name}" if self.uds else f"http://{self.host}:{self.port}"

        def url_for(self, *parts):
            return f"{self.url_root}/" + "/".join(part.strip("/") for part in parts if part)

        def client(self, kind, path, named):
            return kind(base_url=self.url_for(*path), api_key=self.DUMMY_API_KEY, max_retries=0, **{"timeout": 600, **named})

        def get_client(self, **named):
            return self.client(openai.OpenAI, ["v1"], named)

        def get_async_client(self, **named):
            return self.client(openai.AsyncOpenAI, ["v1"], named)

        def get_client_anthropic(self, **named):
            return self.client(anthropic.Anthropic, [], named)

        def get_async_client_anthropic(self, **named):
            return self.client(anthropic.AsyncAnthropic, [], named)

    class RemoteOpenAIServer(RemoteVLLMServer):
        pass

    class RemoteLaunchRenderServer(RemoteVLLMServer):
        start = ("vllm", "launch", "render")

    return {kind.__name__: kind for kind in (RemoteVLLMServer, RemoteOpenAIServer, RemoteLaunchRenderServer)}
