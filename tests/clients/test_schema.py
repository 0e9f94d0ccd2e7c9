"""The OpenAPI document: what schemathesis sends by it is answered as it says, and a client generated from it can chat.

TITO_TEST_EXAMPLES says how many requests schemathesis makes up for each operation (30 by default).
"""

import importlib
import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import REPOSITORY, Server, note

EXAMPLES = os.environ.get("TITO_TEST_EXAMPLES", "30")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
TINY = REPOSITORY / "tests" / "fixtures" / "tiny-model"
FLAGS = ["--engine", "scripted", "--served-model-name", "smollm2", "--max-model-len", "512", "--enable-auto-tool-choice"]
FLAGS += ["--tool-call-parser", "hermes", "--capture", "memory"]
BIN = pathlib.Path(sys.executable).parent


@pytest.fixture(scope="module")
def nonsense():
    server = Server(*FLAGS, model=str(TINY))
    yield server
    server.stop()


def run(command, directory):
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def test_every_answer_is_one_that_the_document_declares(nonsense, tmp_path):
    command = [BIN / "schemathesis", "run", f"{nonsense.url}/openapi.json", "--checks", CHECKS, "--no-color"]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES, "--seed", "1"]
    said = run(command, tmp_path)
    [cases] = [line.strip() for line in said.splitlines() if " generated, " in line]
    note(f"schemathesis: {cases}")
    nonsense.poll("the server is idle", nonsense.idle)


def test_a_client_generated_from_the_document_can_chat(nonsense, tmp_path, monkeypatch):
    document = tmp_path / "openapi.json"
    document.write_text(nonsense.get("/openapi.json"))
    run([BIN / "openapi-python-client", "generate", "--path", document, "--output-path", tmp_path / "made", "--meta", "none"], tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    client = importlib.import_module("made").Client(base_url=nonsense.url)
    models = importlib.import_module("made.models")
    chat = importlib.import_module("made.api.generation.create_chat_completion")
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    request = models.ChatCompletionRequest.from_dict(body)
    answer = chat.sync_detailed(client=client, body=request)
    assert answer.status_code == 200
    said = json.loads(answer.content)
    assert answer.parsed.choices[0].message.content == said["choices"][0]["message"]["content"]
