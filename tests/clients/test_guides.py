"""Every command of README.md and of docs/guides does what its page says, as it stands there.

A page is followed from its beginning to its end, in a folder of its own. Three things are others than for a reader: servers
choose their ports, models of the hub are stood in for by the small one, and what `NOT_RUN` lists is left out.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

import pytest

from conftest import REPOSITORY, TEMPLATES, Server, note

README = REPOSITORY / "README.md"
# But for the one that tests/ray follows, with Ray.
GUIDES = sorted(page for page in (REPOSITORY / "docs" / "guides").glob("*.md") if page.name != "ray.md")
# Languages of blocks: with commands after `$`, of commands only, of Python, and of what is only shown.
RUN, SHOWN = {"console", "sh", "python"}, {"json", "text", "toml", "yaml"}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Where pages expect the server, and the page of a capture file.
ADDRESS = re.compile(r"(?:localhost|127\.0\.0\.1):80[01]0\b")
SERVES = re.compile(r"^tito (?:serve|inspect) ")
# What opens a file that a server before it keeps open; the page says to end that server.
OPENS = re.compile(r"^tito replay ")
COMMAND_SECONDS = 300
# Models of the hub that pages name. The template of SmolLM2 shows no tools; the other one's is in the style of Qwen's.
HUB = {"HuggingFaceTB/SmolLM2-135M-Instruct": None, "Qwen/Qwen2.5-1.5B-Instruct": "hermes.jinja"}

INSTALLS = "it installs what a release publishes"
PACKAGES = "the packages are in requirements.txt of these tests"
CLAUDE = "ANTHROPIC_BASE_URL=http://localhost:8000 ANTHROPIC_AUTH_TOKEN=none ANTHROPIC_MODEL=Qwen/Qwen2.5-1.5B-Instruct claude"
# By page and beginning of a command or program, why it is not run.
NOT_RUN = {
    ("README.md", "pip install tito-server"): INSTALLS,
    ("README.md", "scripts/demo"): "it builds; scripts/two_turns.py, which it ends with, is what README's two turns are",
    ("README.md", "scripts/test"): "it runs this test",
    ("docs/guides/claude-code-and-codex.md", CLAUDE): "it talks to a person; test_coding_agents.py replays its requests",
    ("docs/guides/training-loop.md", "pip install -r examples/grpo/requirements.txt"): PACKAGES,
    ("docs/guides/trl.md", "from trl.experimental.async_grpo import"): "it trains on a GPU; test_lora.py makes its calls",
}


def complete(command):
    """Whether the next line is not a part of it: no quote is open, and nothing is to follow."""
    quoted = len(re.findall(r"(?<!\\)'", command)) % 2
    return not quoted and not command.rstrip().endswith(("\\", "|"))


def commands(language, text):
    """The commands of a block, without comments, each with what it prints; in `console`, commands stand behind `$`."""
    found, command = [], None
    for line in text.splitlines():
        if command is not None:
            command += "\n" + line
        elif language == "sh":
            command = line
        elif line.startswith("$ "):
            command = line.removeprefix("$ ")
        else:
            found[-1][1].append(line)
        if command is not None and complete(command):
            found.append((re.sub(r"(^|\s+)# .*$", "", command).strip(), []))
            command = None
    assert command is None, f"the command does not end: {command}"
    return [(command, "\n".join(printed)) for command, printed in found if command]


def steps(page):
    """What a reader does, in order: the language and the text of a program or a command, and what it prints."""
    for language, text in BLOCK.findall(page.read_text()):
        assert language in RUN | SHOWN, f"{page.name}: whether a block in {language or 'no language'} is run is not known"
        if language == "python":
            yield language, text, ""
        elif language in RUN:
            yield from (("sh", command, printed) for command, printed in commands(language, text))


def without_numbers(text):
    """What a sampled answer decides is how much of something there is."""
    return re.sub(r"\d+(\.\d+)?", "N", text.strip())


def name(page):
    return str(page.relative_to(REPOSITORY))


def left_out(page, text):
    return any(name(page) == of and text.startswith(beginning) for of, beginning in NOT_RUN)


class Started(Server):
    """A server that a page starts, by its own command but for the address."""

    def __init__(self, command, folder, environment):
        self.gate, self.url = None, None
        self.log = tempfile.NamedTemporaryFile(prefix="tito-", suffix=".log")  # noqa: SIM115 (`stop` closes it)
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {command} --host 127.0.0.1 --port 0"],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stderr=self.log,
        )
        self.poll(f"{command} is healthy", self.healthy)

    def healthy(self):
        """As of any server; what shows a capture file has no /health, and is there once it says where."""
        return super().healthy() or (self.url is not None and self.url.endswith("/inspect"))


class Reader:
    """Follows a page."""

    def __init__(self, page, folder, environment):
        self.page, self.folder, self.environment = page, folder, environment
        self.server, self.outputs = None, []

    def follow(self):
        for language, text, printed in steps(self.page):
            if left_out(self.page, text):
                continue
            if language == "python":
                self.execute(text)
            elif SERVES.match(text):
                self.stop()
                self.server = Started(text, self.folder, self.environment)
            else:
                if OPENS.match(text):
                    self.stop()
                self.outputs.append(self.shell(text))
                # README shows its long answers abridged; a test of its own looks at them.
                if printed and self.page != README:
                    assert without_numbers(self.outputs[-1]) == without_numbers(printed), text

    def addressed(self, text):
        if self.server is None:
            return text
        return ADDRESS.sub(urllib.parse.urlsplit(self.server.url).netloc, text)

    def execute(self, text):
        os.chdir(self.folder)
        exec(compile(self.addressed(text), f"a block of {name(self.page)}", "exec"), {"__name__": "__main__"})

    def shell(self, command):
        run = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.addressed(command)],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False,
        )
        assert run.returncode == 0, f"{command}\n{run.stdout}\n{run.stderr}\n{self.server.logged() if self.server else ''}"
        return run.stdout

    def stop(self):
        if self.server:
            self.server.stop()
        self.server = None


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """What a reader has: the program, Python, and a cache of the hub with the models that pages name."""
    if shutil.which("jq") is None:
        note("NOT TRIED: the commands of README and the guides, which need jq: on Debian, apt-get install jq")
        pytest.skip("no jq")
    root = tmp_path_factory.mktemp("reader")
    (root / "bin").mkdir()
    (root / "bin" / "tito").symlink_to(os.environ["TITO_BIN"])
    commit = "0" * 40
    for model, template in HUB.items():
        cached = root / "hub" / f"models--{model.replace('/', '--')}"
        snapshot = cached / "snapshots" / commit
        snapshot.mkdir(parents=True)
        for file in pathlib.Path(os.environ["TITO_TEST_MODEL"]).iterdir():
            (snapshot / file.name).symlink_to(file)
        if template:
            (snapshot / "chat_template.jinja").symlink_to(TEMPLATES / template)
        (cached / "refs").mkdir()
        (cached / "refs" / "main").write_text(commit)
    path = f"{root / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HF_HOME": str(root), "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def reader(environment, tmp_path, monkeypatch, request):
    # Back here when the test has ended, wherever programs of the page went.
    monkeypatch.chdir(tmp_path)
    for variable in ["HF_HOME", "HF_HUB_OFFLINE"]:
        monkeypatch.setenv(variable, environment[variable])
    # What a checkout has, and its examples need.
    for folder in ["examples", "tests"]:
        (tmp_path / folder).symlink_to(REPOSITORY / folder)
    reader = Reader(request.param, tmp_path, environment)
    yield reader
    reader.stop()


def by_page(*pages):
    return pytest.mark.parametrize("reader", pages, ids=[name(page) for page in pages], indirect=True)


@by_page(*GUIDES)
def test_a_guide_can_be_followed(reader):
    reader.follow()


@by_page(README)
def test_the_second_turn_of_readme_starts_with_the_ids_of_the_first(reader):
    reader.follow()
    first, second = map(json.loads, reader.outputs)
    known = first["prompt_token_ids"] + first["generation_token_ids"]
    assert len(first["generation_token_ids"]) == len(first["generation_log_probs"]) == 12
    assert second[: len(known)] == known
    assert len(second) > len(known)


def test_what_is_not_run_stands_in_its_page():
    for (page, beginning), reason in NOT_RUN.items():
        assert any(text.startswith(beginning) for _, text, _ in steps(REPOSITORY / page)), f"{page}: {beginning}"
        assert reason


def test_of_every_page_something_is_run():
    for page in [README, *GUIDES]:
        assert not all(left_out(page, text) for _, text, _ in steps(page)), name(page)


def test_commands_are_told_from_what_they_print():
    text = "$ one 'a\n  b' |\n  two   # why\nprinted\n$ three \\\n  four\nprinted\ntwice\n"
    assert commands("console", text) == [("one 'a\n  b' |\n  two", "printed"), ("three \\\n  four", "printed\ntwice")]
    assert commands("sh", "# about it\none    # why\n\ntwo\n") == [("one", ""), ("two", "")]
