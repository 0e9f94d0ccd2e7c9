"""What frameworks for newer Pythons send, recorded in tests/golden/frameworks, and the server that they sent it to.

That server plays its answers from a file, spelt letter by letter, so that encoding their texts again gives other ids. It
answers today as it did then: the ids that a recorded request carries are those that the replay has seen, or one is wrong.
"""

import json
import pathlib

from conftest import TEMPLATES, Server
from lines import events_of

RECORDED = pathlib.Path(__file__).resolve().parents[1] / "golden" / "frameworks"
SCRIPT = RECORDED / "script.jsonl"
# The same answers for a client that reads ids: it knows a tool call by the ids of its marks.
MARKED = RECORDED / "script_marks.jsonl"


def playing(script=SCRIPT, *more):
    """A server that plays the answers, for one conversation: it plays them in order."""
    flags = ["--engine", "scripted", "--script", str(script), "--chat-template", str(TEMPLATES / "hermes.jinja")]
    return Server(*flags, *more, "--enable-auto-tool-choice", "--tool-call-parser", "hermes")


def recorded(framework, variant):
    """The requests of a conversation in order; each has `path`, `body`, and `tool_calls`, the ids in its answer."""
    lines = map(json.loads, (RECORDED / f"{framework}.jsonl").read_text().splitlines())
    return [line for line in lines if line["variant"] == variant]


def answer_of(text):
    """An answer, which may have been streamed; of a stream, it has the ids: of the tool calls, the prompt and the answer."""
    if not text.startswith("data: "):
        return json.loads(text)
    calls, token_ids, answer = [], [], {}
    for chunk in events_of(text):
        answer |= {key: chunk[key] for key in ("prompt_token_ids", "token_continuity") if chunk.get(key) is not None}
        for choice in chunk["choices"]:
            calls += [call for call in choice["delta"].get("tool_calls") or [] if call.get("id")]
            token_ids += choice.get("token_ids") or []
    return {**answer, "choices": [{"message": {"tool_calls": calls}, "token_ids": token_ids}]}


def ids_of(answer):
    """The ids of the tool calls in an answer, which are other ones each time."""
    message = (answer.get("choices") or [{}])[0].get("message") or {}
    return [call["id"] for call in message.get("tool_calls") or []]


def replayed(server, framework, variant, **added):
    """Sends the requests as they were, but for the ids of tool calls and what is `added` to those that generate.

    It yields the path, the body and the answer of each.
    """
    ours = {}
    calls = recorded(framework, variant)
    assert calls, f"nothing is recorded of {framework} as {variant}"
    for call in calls:
        text = json.dumps(call["body"])
        for theirs, our in ours.items():
            text = text.replace(theirs, our)
        body = json.loads(text) | ({} if call["path"] == "/tokenize" else added)
        status, text = server.exchange(call["path"], body)
        assert status == 200, f"{call['path']}: {status} {text}"
        answer = answer_of(text)
        ours |= zip(call["tool_calls"], ids_of(answer), strict=True)
        yield call["path"], body, answer
