"""Exchanges recorded from vLLM (tests/golden/vllm), and how an answer of tito is compared with one."""

import http.client
import json
import pathlib
import re
import time
import urllib.parse

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "vllm" / "exchanges.jsonl"
# What tito says in them.
ANSWERS = GOLDEN.parent / "answers.jsonl"
JSON_BODY = {"Content-Type": "application/json"}
# What float32 of another program may differ by.
TOLERANCE = 2e-3
# Other in each answer, or each server's name for itself and for where its model lies.
# `cached_tokens` depends on what was asked before.
VOLATILE = {"created", "created_at", "completed_at", "system_fingerprint", "root", "cached_tokens"}
# Random ids: of answers, tool calls and permissions.
RANDOM_ID = re.compile(r"[0-9a-f]{16,32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Fields of tito's own, which vLLM's clients do not see where they do not look for them.
OWN = {"prompt_token_ids", "generation_token_ids", "generation_log_probs", "token_continuity"}
# Fields that vLLM 0.33 added, and the label of the weights on a model's card, which only tito has there.
LATER = {"weight_versions", "weight_version", "kv_transfer_params", "safety_identifier", "parse_context"}
LATER |= {"prompt_cache_options", "prompt_cache_key", "prompt_cache_retention"}
# Parts of a stream that are put together; the last value of any other field is the one that holds.
JOINED = {"content", "text", "arguments", "token_ids", "tokens", "token_logprobs", "top_logprobs", "text_offset"}
GENERATING = ("/v1/completions", "/v1/messages", "/v1/chat/completions", "/v1/responses", "/inference/v1/generate")
# A response that is not whole yet.
PENDING = ("queued", "in_progress")


class Answer:
    """A status, the media type, and what the body says: JSON, a text, or the frames of a stream."""

    def __init__(self, status, content_type, text):
        self.status = status
        self.content_type = content_type
        self.body = text
        self.events = (content_type or "").startswith("text/event-stream")
        if content_type == "application/json" and text:
            self.body = json.loads(text)
        elif self.events:
            self.body = frames(text)


class Exchange:
    """A request to vLLM and its answer."""

    def __init__(self, line):
        recorded = json.loads(line)
        request, response = recorded["request"], recorded["response"]
        self.name = recorded["name"]
        self.method, self.path = request["method"], request["path"]
        self.headers = request.get("headers", JSON_BODY)
        self.body = request.get("body")
        raw = json.dumps(self.body) if "body" in request else ""
        self.payload = request.get("raw_body", raw).encode()
        text = response.get("sse", response.get("text"))
        if "json" in response:
            text = json.dumps(response["json"])
        self.recorded = Answer(response["status"], response.get("content_type"), text or "")

    @property
    def group(self):
        """How the server was started."""
        return self.name.split("/")[0]

    @property
    def samples(self):
        """Whether random numbers had a part in the answer: every server has its own."""
        generates = self.path in GENERATING and isinstance(self.body, dict) and self.recorded.status == 200
        return generates and self.body.get("temperature") != 0

    def ask(self, url, stored):
        """Sends the request as it was recorded, but for the ids of what was stored before: those are ours in `stored`."""
        answer = self.send(url, stored)
        # vLLM had finished it when it was asked for.
        while self.method == "GET" and isinstance(answer.body, dict) and answer.body.get("status") in PENDING:
            time.sleep(0.05)
            answer = self.send(url, stored)
        theirs, ours = ((body.body if isinstance(body.body, dict) else {}).get("id") for body in (self.recorded, answer))
        if str(theirs).startswith("resp_") and ours:
            stored[theirs] = ours
        return answer

    def send(self, url, stored):
        path, payload = self.path, self.payload.decode(errors="surrogateescape")
        for theirs, ours in stored.items():
            path, payload = path.replace(theirs, ours), payload.replace(theirs, ours)
        payload = payload.encode(errors="surrogateescape")
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=300)
        try:
            connection.request(self.method, path, payload or None, self.headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers.get("Content-Type"), response.read().decode())
        finally:
            connection.close()


def exchanges():
    """Every recorded exchange."""
    return [Exchange(line) for line in GOLDEN.read_text().splitlines()]


def frames(text):
    """The data of each server-sent event: an object, or the word that ends the stream. Nothing else may be there."""
    assert text.endswith("\n\n"), "a stream ends with a whole frame"
    read = []
    for frame in text.removesuffix("\n\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in frame.split("\n"))
        data = lines.pop("data")
        data = data if data == "[DONE]" else json.loads(data)
        read.append({**lines, "data": data} if lines else data)
    return read


def joined(events):
    """What a stream said once it is over, as one object; a choice has `delta` where an answer has `message`."""
    whole = {}
    for event in events:
        if event != "[DONE]":
            join(whole, event)
    return whole


def join(whole, part):
    """Adds a part of a stream to what came before it."""
    for key, value in part.items():
        if value is None:
            whole.setdefault(key, None)
        elif key in ("choices", "tool_calls"):
            items = whole.setdefault(key, [])
            for item in value:
                join(numbered(items, item["index"]), item)
        elif isinstance(value, dict):
            whole[key] = whole.get(key) or {}
            join(whole[key], value)
        elif key in JOINED and whole.get(key) is not None:
            whole[key] = whole[key] + value
        else:
            whole[key] = value


def numbered(items, index):
    """The item with this index, a new one if it has not been seen."""
    for item in items:
        if item["index"] == index:
            return item
    items.append({"index": index})
    return items[-1]


class Comparison:
    """Finds what differs. Of an answer with random numbers in it, only kinds of values are compared."""

    def __init__(self, exact=True):
        self.exact = exact
        self.found = []

    def differs(self, at, what):
        self.found.append((at, what))

    def answers(self, recorded, answered):
        if recorded.status != answered.status:
            self.differs("status", f"{answered.status} instead of {recorded.status}: {answered.body}"[:600])
        elif recorded.content_type != answered.content_type:
            self.differs("content-type", f"{answered.content_type} instead of {recorded.content_type}")
        elif recorded.events and len(recorded.body) != len(answered.body):
            self.differs("events", f"{len(answered.body)} instead of {len(recorded.body)}")
            self.values("", joined(recorded.body), joined(answered.body))
        else:
            self.values("", recorded.body, answered.body)
        return self.found

    def values(self, at, recorded, answered):
        if isinstance(recorded, dict) and isinstance(answered, dict):
            self.objects(at, recorded, answered)
        elif isinstance(recorded, list) and isinstance(answered, list):
            self.lists(at, recorded, answered)
        elif isinstance(recorded, bool) or isinstance(answered, bool) or recorded is None or answered is None:
            if recorded is not answered:
                self.differs(at, f"{shown(answered)} instead of {shown(recorded)}")
        elif isinstance(recorded, float) and isinstance(answered, (int, float)):
            if self.exact and not abs(recorded - answered) <= TOLERANCE:
                self.differs(at, f"{answered} instead of {recorded}")
        elif type(recorded) is not type(answered):
            self.differs(at, f"{shown(answered)} instead of {shown(recorded)}")
        elif self.exact and masked(recorded) != masked(answered):
            self.differs(at, f"{shown(answered)} instead of {shown(recorded)}")

    def objects(self, at, recorded, answered):
        if not self.exact and at.endswith("top_logprobs[0]"):
            return
        for key in recorded.keys() - answered.keys():
            self.differs(f"{at}.{key}", "is missing")
        for key in answered.keys() - recorded.keys() - OWN - LATER:
            self.differs(f"{at}.{key}", f"is too much: {shown(answered[key])}")
        for key in [key for key in recorded if key in answered and key not in VOLATILE]:
            self.values(f"{at}.{key}", recorded[key], answered[key])

    def lists(self, at, recorded, answered):
        if self.exact and len(recorded) != len(answered):
            self.differs(at, f"{len(answered)} entries instead of {len(recorded)}: {shown(answered)}")
            return
        if not self.exact and not (recorded and answered):
            return
        pairs = zip(recorded, answered, strict=True) if self.exact else [(recorded[0], answered[0])]
        for index, (one, other) in enumerate(pairs):
            self.values(f"{at}[{index}]", one, other)


def masked(value):
    return RANDOM_ID.sub("#", value) if isinstance(value, str) else value


def shown(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 300 else text[:300] + "…"
