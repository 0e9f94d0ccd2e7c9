"""Structured outputs: chats whose answers a JSON schema binds. What comes is read, and must be as the schema says."""

import json
import time

from .client import BenchError
from .load import gathered
from .report import median, milliseconds, number, table

CHAT = "/v1/chat/completions"
PROMPT_WORDS = 64
# For an answer that the schema lets grow: blanks between values are free.
MAX_TOKENS = 384
FINDINGS = 3
SEVERITIES = ["low", "medium", "high"]
# Every part has an end, so that a model which makes no sense ends its answer, too.
FINDING = {
    "file": {"type": "string", "maxLength": 24},
    "line": {"type": "integer", "minimum": 1, "maximum": 9999},
    "severity": {"type": "string", "enum": SEVERITIES},
    "fixed": {"type": "boolean"},
}


def closed(properties):
    """The schema of an object that has these, all of them, and nothing else."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


LIST = {"type": "array", "items": closed(FINDING), "minItems": FINDINGS, "maxItems": FINDINGS}
SCHEMA = closed({"findings": LIST})
FORMAT = {"type": "json_schema", "json_schema": {"name": "findings", "schema": SCHEMA, "strict": True}}


async def structured(target, options):
    """Output tokens a second of answers that a schema binds, at some concurrencies."""
    figures = []
    # Not measured: what a server does once for a schema.
    await answers(target, [request(target)])
    for streams in options.schemas:
        count = max(options.requests or max(4, 2 * streams), streams)
        requests = [request(target) for _ in range(count)]
        await target.client.prepare(streams)
        wall = time.perf_counter()
        lists = await gathered(answers(target, requests) for _ in range(streams))
        wall = time.perf_counter() - wall
        found = [answer for answers_of_one in lists for answer in answers_of_one]
        figures.append({
            "streams": streams,
            "requests": count,
            "output_tokens_per_s": sum(tokens for _, tokens, _ in found) / wall,
            "answer_s": median([seconds for seconds, _, _ in found]),
            "output_tokens": sum(tokens for _, tokens, _ in found),
            "whole": sum(whole for _, _, whole in found),
        })
    print("\n## Structured outputs: chats bound by a JSON schema\n")
    columns = ["streams", "requests", "whole answers", "output tokens", "out tok/s", "answer p50, ms"]
    print(table(columns, [row(figure) for figure in figures]))
    return figures


def row(figure):
    cells = [figure[name] for name in ("streams", "requests", "whole", "output_tokens", "output_tokens_per_s")]
    return [*map(number, cells), milliseconds(figure["answer_s"])]


def request(target):
    """The bytes of a chat whose answer the schema binds."""
    target.asked += 1
    text = f"List {FINDINGS} findings: {target.prompts.words(PROMPT_WORDS)}"
    fields = {
        "model": target.model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": MAX_TOKENS,
        "temperature": target.temperature,
        "seed": target.seeds + target.asked,
        "response_format": FORMAT,
    }
    return target.client.post(CHAT, fields)


async def answers(target, requests):
    """(seconds, tokens, whether it is whole) of what is left, one answer after the other."""
    found = []
    while requests:
        reply = await target.client.send(requests.pop())
        found.append((reply.now - reply.sent_at, *read(reply.status, reply.json())))
    return found


def read(status, body):
    """(tokens, whether it is whole) of an answer, or `BenchError` unless it is what was asked for."""
    if status != 200:
        raise BenchError(f"status {status}: {json.dumps(body)[:500]}")
    choice = body["choices"][0]
    whole = choice["finish_reason"] == "stop"
    if not whole and choice["finish_reason"] != "length":
        raise BenchError(f"finish_reason is {choice['finish_reason']!r} instead of 'stop' or 'length'")
    if whole and not conforms(choice["message"]["content"]):
        raise BenchError(f"an answer that is not as the schema says: {choice['message']['content'][:500]!r}")
    return body["usage"]["completion_tokens"], whole


def conforms(text):
    """Whether a text is JSON as the schema has it."""
    try:
        value = json.loads(text)
        return value.keys() == {"findings"} and len(value["findings"]) == FINDINGS and all(map(finding, value["findings"]))
    except (ValueError, TypeError, AttributeError):
        return False


def finding(value):
    """Whether one item is as the schema has it."""
    if value.keys() != FINDING.keys():
        return False
    file, line, severity, fixed = (value[name] for name in FINDING)
    whole_number = type(line) is int and 1 <= line <= 9999
    return type(file) is str and len(file) <= 24 and whole_number and severity in SEVERITIES and type(fixed) is bool
