#!/usr/bin/env python3
"""Records what Claude Code and Codex send to their server, with their own programs, unchanged and without a network.

    npm install --ignore-scripts @openai/codex@0.171.0 @anthropic-ai/claude-code@2.1.332
    TITO_BIN=… TITO_TEST_MODEL=… python tests/golden/coding_agents/record.py node_modules

It needs the packages of tests/clients, Linux on x86-64, and `unshare` and `ip`: the programs run where there is only a
loopback. It writes the files beside it, which `tests/clients/test_coding_agents.py` replays. Nothing of the programs is kept
but the shape of their requests: each field, each tool with its schema, and each item is there, but of prompts and descriptions
only the first words.
"""

import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "clients"))

from coding_agents import ANSWERS, call_ids, exchange, playing  # noqa: E402

QUESTION = "What is in a.txt?"
# Of longer texts, only the beginning is kept.
LONG, KEPT = 80, 30
TEXTS = {"text", "description", "content", "output", "title", "x-codex-turn-metadata"}
HEADERS = {"anthropic-beta", "anthropic-version", "x-codex-beta-features", "session-id", "user-agent"}


def cut(value, key=None):
    """The value with short texts; what the model itself said is whole."""
    if isinstance(value, list):
        return [cut(item, key) for item in value]
    if isinstance(value, dict):
        said = value.get("role") == "assistant" or value.get("type") in ("function_call", "custom_tool_call")
        return value if said else {name: cut(item, name) for name, item in value.items()}
    if isinstance(value, str) and key in TEXTS and len(value) > LONG:
        return value[:KEPT].rpartition(" ")[0] + " …"
    return value


class Between(http.server.ThreadingHTTPServer):
    """Stands between an agent and tito, and keeps what goes through."""

    def __init__(self, target):
        super().__init__(("127.0.0.1", 0), Handler)
        self.target, self.calls = target, []
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() in HEADERS}
        status, answered, text = exchange(self.server.target + self.path, raw, headers)
        kept = {"path": self.path, "headers": headers, "body": cut(json.loads(raw)), "status": status}
        self.server.calls.append(kept | {"calls": call_ids(text)})
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", answered["Content-Type"])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """It prints nothing."""


def codex(packages, home, url):
    (home / ".codex").mkdir()
    provider = f'name = "tito"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
    config = f'model = "smollm2"\nmodel_provider = "tito"\n[model_providers.tito]\n{provider}'
    (home / ".codex" / "config.toml").write_text(config)
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return [str(packages / ".bin" / "codex"), "exec", *flags, QUESTION], {}


def claude_code(packages, home, url, **more):
    environment = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": "smollm2"}
    environment |= {"DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}
    program = packages / "@anthropic-ai" / "claude-code-linux-x64" / "claude"
    return [str(program), "-p", "--dangerously-skip-permissions", QUESTION], environment | more


AGENTS = {
    "codex": codex,
    "claude_code": lambda *places: claude_code(*places, ENABLE_TOOL_SEARCH="false"),
    "claude_code_tool_search": claude_code,
}


def record(agent, packages):
    with tempfile.TemporaryDirectory(prefix="agent-") as directory:
        home, model = pathlib.Path(directory) / "home", pathlib.Path(directory) / "model"
        project = home / "project"
        project.mkdir(parents=True)
        model.mkdir()
        (project / "a.txt").write_text("one\ntwo\n")
        server = playing(agent, model)
        between = Between(server.url)
        command, more = AGENTS[agent](packages, home, between.url)
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), **more}
        done = subprocess.run(
            command, cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
        )
        between.shutdown()
        server.stop()
    accepted = [call for call in between.calls if call["status"] == 200]
    assert done.stdout.strip() == ANSWERS[agent][-1], (agent, done)
    assert len(accepted) == len(ANSWERS[agent]), (agent, [call["status"] for call in between.calls])
    (HERE / f"{agent}.jsonl").write_text("".join(json.dumps(call, ensure_ascii=False) + "\n" for call in between.calls))


if __name__ == "__main__":
    if "--alone" not in sys.argv:
        alone = ["bash", "-c", 'ip link set lo up && exec "$@"', "record", sys.executable, *sys.argv, "--alone"]
        os.execvp("unshare", ["unshare", "--map-root-user", "--net", *alone])
    for name in AGENTS:
        record(name, pathlib.Path(sys.argv[1]).resolve())
