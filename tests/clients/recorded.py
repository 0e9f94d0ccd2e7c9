"""Exchanges recorded from vLLM (tests/golden/vllm), and how an answer of tito is compared with one."""

import json
import pathlib

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "vllm" / "exchanges.jsonl"
# Other in each answer, or another server's name for itself.
VOLATILE = {"id", "created", "system_fingerprint"}
# Parts of a stream that are put together; the last value of any other field is the one that holds.
JOINED = {"content", "text", "arguments", "token_ids", "tokens", "token_logprobs", "top_logprobs", "text_offset"}


def exchanges():
    """Every recorded exchange: `name`, `path`, `body`, and `answer` or, of a stream, `events`."""
    return [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def events_of(text):
    """The data of each server-sent event: an object, or the word that ends the stream."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [word if word == "[DONE]" else json.loads(word) for word in data]


def joined(events):
    """What a stream said once it is over, as one object; a choice has `delta` where an answer has `message`."""
    assert events[-1] == "[DONE]", events[-1]
    whole = {}
    for event in events[:-1]:
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


def differences(recorded, answered, tolerance, at=""):
    """Yields the place of every difference and what differs. Numbers with a fraction may be `tolerance` apart.

    tito may have fields of its own, except among log-probs that are listed by their tokens.
    """
    if isinstance(recorded, dict) and isinstance(answered, dict):
        if by_token(recorded) and recorded.keys() != answered.keys():
            yield at, f"{sorted(answered)} instead of {sorted(recorded)}"
            return
        for key in recorded.keys() - VOLATILE:
            yield from differences(recorded[key], answered.get(key), tolerance, f"{at}.{key}")
    elif isinstance(recorded, list) and isinstance(answered, list) and len(recorded) == len(answered):
        for index, pair in enumerate(zip(recorded, answered, strict=True)):
            yield from differences(*pair, tolerance, f"{at}[{index}]")
    elif isinstance(recorded, float) and isinstance(answered, (int, float)):
        if not abs(recorded - answered) <= tolerance:
            yield at, f"{answered} instead of {recorded}, {abs(recorded - answered):.1e} apart"
    elif recorded != answered:
        yield at, f"{answered!r} instead of {recorded!r}"


def by_token(value):
    """Whether these are log-probs by token: numbers, or the objects of `prompt_logprobs`."""
    listed = (isinstance(item, float) or (isinstance(item, dict) and "rank" in item) for item in value.values())
    return bool(value) and all(listed)
