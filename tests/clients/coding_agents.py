"""What Claude Code and Codex send, recorded in tests/golden/coding_agents, and the server that they sent it to.

That server plays its answers from a file, spelt letter by letter, so that encoding their texts again gives other ids.
"""

import json
import os
import pathlib
import urllib.error
import urllib.request

from conftest import TEMPLATES, Server
from lines import events_of

RECORDED = pathlib.Path(__file__).resolve().parents[1] / "golden" / "coding_agents"


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


# What the model answers to the requests that are accepted, in order.
ANSWERS = {
    "codex": [
        call("exec_command", cmd="cat a.txt"),
        "I look again. " + call("exec_command", cmd="ls") + "\n" + call("exec_command", cmd="false"),
        call("multi_agent_v1__close_agent", target="nobody"),
        call("nothing_of_this_name", a=1),
        "It has two lines.",
    ],
    "claude_code": [
        "I look. " + call("Bash", command="cat a.txt", description="Show it"),
        call("Read", file_path="a.txt") + "\n" + call("Bash", command="false"),
        call("Agent", description="look", prompt="say hi", subagent_type="general-purpose", run_in_background=False),
        "hi",
        call("WebSearch", query="tito"),
        # The search is a request of its own.
        "I found nothing.",
        call("NothingOfThisName", a=1),
        "It has two lines.",
    ],
    # With its own search for tools, which it has by default.
    "claude_code_tool_search": [
        call("ToolSearch", query="select:WebFetch", max_results=5),
        call("WebFetch", url="http://127.0.0.1:9/", prompt="Say it"),
        call("ToolSearch", query="select:CronList,TaskStop", max_results=5),
        "I list them. " + call("CronList"),
        "It has two lines.",
    ],
}


def with_long_context(directory):
    """The model, with the context that such agents need; the scripted engine has no weights."""
    model = pathlib.Path(os.environ["TITO_TEST_MODEL"])
    for path in model.iterdir():
        (directory / path.name).symlink_to(path)
    config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": 131072}
    (directory / "config.json").unlink()
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def playing(agent, directory):
    """A server that plays the agent's answers and captures its turns; `directory` is an empty one."""
    model = with_long_context(directory)
    flags = ["--engine", "scripted", "--chat-template", str(TEMPLATES / "hermes.jinja")]
    server = Server(*flags, model=model)

    def ids(text):
        return server.post("/tokenize", prompt=text, add_special_tokens=False)["tokens"]

    lines = [[id for letter in answer for id in ids(letter)] + ids("<|im_end|>") for answer in ANSWERS[agent]]
    server.stop()
    script = directory / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags += ["--script", str(script), "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    return Server(*flags, "--capture", "memory", model=model)


def exchange(url, raw, headers):
    """The status, the headers and the text of the answer."""
    request = urllib.request.Request(url, raw, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def events(text):
    return events_of(text)


def call_ids(text):
    """The ids of the tool calls in an answer, which are other ones each time."""
    blocks = [event.get("content_block") or {} for event in events(text)]
    items = [event["item"] for event in events(text) if event["type"] == "response.output_item.done"]
    return [block["id"] for block in blocks if block.get("type") == "tool_use"] + [
        item["call_id"] for item in items if item.get("call_id")
    ]


def recorded(agent):
    """The requests in order; each has `path`, `headers`, `body`, the `status` of its answer and the `calls` in it."""
    return list(map(json.loads, (RECORDED / f"{agent}.jsonl").read_text().splitlines()))


def replayed(server, agent):
    """Sends the requests as they were, but for the ids of tool calls. It yields each with its status, headers and answer."""
    ours = {}
    for request in recorded(agent):
        raw = json.dumps(request["body"])
        for theirs, our in ours.items():
            raw = raw.replace(theirs, our)
        status, headers, text = exchange(server.url + request["path"], raw.encode(), request["headers"])
        ours |= zip(request["calls"], call_ids(text), strict=True)
        yield request, status, headers, text
