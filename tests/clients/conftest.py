"""A release build of tito serving the real model, and ways to talk to it.

TITO_BIN is the binary and TITO_TEST_MODEL the model directory; scripts/test sets both.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

# numpy reads it when it is imported. The matrices here are small: a second thread would wait more than it computes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import openai  # noqa: E402
import pytest  # noqa: E402

from longest_first import pytest_collection_modifyitems  # noqa: E402, F401
from step_gate import StepGate  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "notes"))

from notes import (  # noqa: E402, F401
    note,
    pytest_runtest_logreport,
    pytest_runtest_setup,
    pytest_sessionstart,
    pytest_terminal_summary,
)
TEMPLATES = REPOSITORY / "tests" / "golden" / "template"
# Calls whose bodies name the model.
NAMING_MODEL = ("/v1/", "/tokenize", "/detokenize", "/inference/")
# For what comes in seconds where nothing else runs; with many other processes beside them, servers had 2 % of a processor.
WAIT_SECONDS = 600
# The server's own drain takes 30 s at most, and twice its grace of 5 s.
STOP_SECONDS = 300


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A running `tito serve`."""

    def __init__(self, *flags, model=None, port=0, gated=False):
        """With `gated`, the steps of its engine can be held: `self.gate`. A port of its own is for who needs it again."""
        self.gate = StepGate() if gated else None
        self.log = tempfile.NamedTemporaryFile(prefix="tito-", suffix=".log")  # noqa: SIM115 (`stop` closes it)
        command = [os.environ["TITO_BIN"], "serve", model or os.environ["TITO_TEST_MODEL"], "--host", "127.0.0.1"]
        command += ["--port", str(port), "--served-model-name", "smollm2", *flags]
        command += ["--step-gate", self.gate.path] if gated else []
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=self.log)
        self.url = f"http://127.0.0.1:{port}" if port else None
        self.poll("the server is healthy", self.healthy)

    def healthy(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.logged()}")
        if self.url is None:
            # The banner comes once the server listens; its last part is the address.
            banner = re.search(r"^tito .* \| (https?://\S+)\n", self.logged(), re.MULTILINE)
            if banner is None:
                return False
            self.url = banner[1]
        try:
            return self.get("/health") == ""
        except OSError:
            return False

    def poll(self, what, condition):
        """Waits until `condition()` holds, and fails when that takes longer than on any machine."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {WAIT_SECONDS} s\n{self.logged()}")
            time.sleep(0.01)

    def resident_mib(self):
        """The memory that the server holds, in MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def logged(self):
        return pathlib.Path(self.log.name).read_text()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=300) as response:
            return response.read().decode()

    def post(self, path, **body):
        """The answer to a call, which names the model where its body has a field for it: the control plane's have none."""
        named = {"model": "smollm2"} if path.startswith(NAMING_MODEL) else {}
        status, text = self.exchange(path, named | body)
        assert status == 200, f"{path}: {status} {text}"
        return json.loads(text)

    def exchange(self, path, body):
        """The status and the text of the answer, whatever the status is."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def gauge(self, name):
        """The value of an unsampled metric, over all its labels."""
        values = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", self.get("/metrics"), re.MULTILINE)
        assert values, f"/metrics does not show {name}"
        return sum(map(float, values))

    def idle(self):
        return self.gauge("vllm:num_requests_running") == 0 and self.gauge("vllm:num_requests_waiting") == 0

    def stop(self):
        """Stops the server as an init system would; a clean end is part of every test."""
        if self.gate:
            self.gate.close()
        self.process.terminate()
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the server ignored SIGTERM\n{self.logged()}") from None
        log = self.logged()
        self.log.close()
        assert status == 0, f"the server ended with {status}\n{log}"
        assert "panicked" not in log, log


@pytest.fixture(scope="session")
def server():
    """The model with its own template."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def tool_server():
    """The model with a template that shows tools."""
    parser = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    server = Server("--chat-template", str(TEMPLATES / "hermes.jinja"), *parser)
    yield server
    server.stop()


@pytest.fixture
def trained(tmp_path):
    """A server of a tiny model whose control plane is open, with a trainer's checkpoints."""
    # It needs what stands here.
    from control import Trained

    trained = Trained(tmp_path)
    yield trained
    trained.stop()


def by_node(script, asked):
    """What a script of node/ prints, which is JSON."""
    if "TITO_TEST_NODE_MODULES" not in os.environ:
        note("NOT TRIED: the openai package of npm: TITO_TEST_NODE_MODULES does not say where it is")
        pytest.skip("no node_modules")
    command = ["node", pathlib.Path(__file__).parent / "node" / script, json.dumps(asked)]
    environment = {**os.environ, "NODE_PATH": os.environ["TITO_TEST_NODE_MODULES"]}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def client_of(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300)


@pytest.fixture(scope="session")
def client(server):
    """The official client."""
    return client_of(server)


@pytest.fixture(scope="session")
def tool_client(tool_server):
    """The official client of the server that shows tools."""
    return client_of(tool_server)
