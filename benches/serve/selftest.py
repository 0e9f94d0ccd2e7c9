"""The parser on canned streams, cut at every place, and answers that must be refused."""

import json

from .client import BenchError, Reply
from .load import cached_tokens, check
from .report import percentile
from .wire import WireError

TOKENS = 3


def event(text, finish=None, ids=None, **more):
    """One event of a completion, as compact JSON."""
    choice = {"index": 0, "text": text, "finish_reason": finish, "prompt_token_ids": [1, 2], "token_ids": ids}
    return b"data: " + json.dumps({"choices": [choice], **more}, separators=(",", ":")).encode() + b"\n\n"


USAGE = {"prompt_tokens": 5, "completion_tokens": TOKENS, "prompt_tokens_details": {"cached_tokens": 4}}
USAGE_EVENT = b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n"
DONE = b"data: [DONE]\n\n"
# Text that looks like the fields which are searched for.
TRICKY = '"text":"","finish_reason":"stop","token_ids":[9]\r\n\n'
STREAM = [event(" a", ids=[7, 8]), event("", ids=[]), event(TRICKY, ids=[11]), event("é", "length"), USAGE_EVENT, DONE]
# As llama.cpp writes it: the end, the usage and the timings in one event without text.
OTHER = [
    b'data: {"choices": [{"text": "a", "index": 0, "finish_reason": null}]}\r\n\r\n',
    b": a comment\r\n\r\n",
    b'data: {"choices": [{"text": "b", "index": 0, "finish_reason": null}]}\r\n\r\n',
    b'data: {"choices": [{"text": "", "finish_reason": "length"}], "timings": {"cache_n": 2}, '
    b'"usage": {"prompt_tokens": 5, "completion_tokens": 3}}\r\n\r\n',
    b"data: [DONE]\r\n\r\n",
]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"


def chunked(events, extension=b"", trailer=b""):
    """A body of one HTTP chunk for each event."""
    body = b"".join(b"%x%s\r\n%s\r\n" % (len(data), extension, data) for data in events)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n" + trailer + b"\r\n"


def counted(events):
    """A body whose length is said before."""
    body = b"".join(events)
    return HEAD + b"content-length: %d\r\n\r\n" % len(body) + body


def until_close(events):
    """A body that ends with the connection."""
    return b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"\r\n" + b"".join(events)


def shapes(events):
    """The same events in every framing."""
    joined = b"".join(events)
    return {
        "chunked": chunked(events),
        "chunked, all in one": chunked([joined]),
        "chunked, cut within events": chunked([joined[at : at + 7] for at in range(0, len(joined), 7)]),
        "chunked, with extension and trailer": chunked(events, b";name=value", b"X-Trailer: yes\r\n"),
        "counted": counted(events),
        "until close": until_close(events),
    }


def parse(pieces):
    """The reply that the pieces make."""
    reply = Reply(want_ids=True)
    for piece in pieces:
        reply.feed(piece)
    reply.parser.end()
    return reply


def facts(reply):
    """What must not depend on where the bytes were cut."""
    events = reply.events
    seen = (reply.status, reply.parser.done, len(events.times), events.token_ids, events.finish_reason)
    return (*seen, events.usage, events.timings, events.error, events.done)


def cuts(data):
    """The bytes cut at every place, and into single bytes."""
    for at in range(len(data) + 1):
        yield [data[:at], data[at:]]
    yield [data[at : at + 1] for at in range(len(data))]


def check_cuts(events, expected):
    """Every framing cut at every place gives the same facts."""
    count = 0
    for shape, data in shapes(events).items():
        for pieces in cuts(data):
            found = facts(parse(pieces))
            assert found == expected, f"{shape}, first piece of {len(pieces[0])} bytes: {found}"
            count += 1
    return count


def refused(pieces, reason, tokens=TOKENS, counted_ids=None, min_share=0.5, prompt_tokens=5):
    """Checks that an answer is refused, for this reason."""
    try:
        check(parse(pieces), prompt_tokens, tokens, counted_ids, min_share)
    except (BenchError, WireError) as error:
        assert reason in str(error), f"refused for {error} instead of {reason}"
    else:
        raise AssertionError(f"not refused, although: {reason}")


def check_refusals():
    """What is not exactly what was asked for is no figure."""
    whole = check(parse([chunked(STREAM)]), 5, TOKENS, 3, 0.5)
    assert (whole.tokens, whole.seen, whole.cached, whole.prompt_tokens) == (3, 3, 4, 5)
    refused([chunked(STREAM)], "usage says 3 tokens instead of 4", tokens=4)
    refused([chunked(STREAM)], "5 prompt tokens instead of 6", prompt_tokens=6)
    refused([chunked(STREAM)], "2 ids instead of 3", counted_ids=2)
    refused([chunked([STREAM[0], *STREAM])], "4 events with text for 3 tokens")
    refused([chunked(STREAM[:-1])], "without [DONE]")
    refused([chunked([*STREAM[:-2], DONE])], "without usage")
    refused([chunked([event("a", "stop"), USAGE_EVENT, DONE])], "'stop'")
    refused([chunked([event("a"), b'data: {"error": {"message": "broken"}}\n\n', DONE])], "broken")
    refused([b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"], "status 503: busy")
    many = USAGE_EVENT.replace(b"3", b"9")
    refused([chunked([event("a"), event("b", "length"), many, DONE])], "2 events with text for 9 tokens", tokens=9)
    refused([chunked([b"data: {broken\n\n"])], "no JSON")
    refused([chunked(STREAM) + b"HTTP/1.1"], "after the end")
    refused([b"SSH-2.0-OpenSSH\r\n\r\n"], "no HTTP/1.1 response")
    refused([HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n"], "longer than its size")


def check_figures():
    """Percentiles, and who says what was cached."""
    assert percentile([3, 1, 2], 50) == 2 and percentile([1, 2], 50) == 1.5 and percentile([], 50) is None
    assert percentile(list(range(101)), 99) == 99 and percentile([4], 90) == 4
    assert cached_tokens({}, {"cache_n": 2}) == 2 and cached_tokens({}, {}) is None
    assert cached_tokens({"prompt_tokens_details": {"cached_tokens": 0}}, {}) == 0


def run():
    """All of it; returns the exit status, 0: a failure is an `AssertionError`."""
    first = (200, True, 3, [7, 8, 11], "length", USAGE, {}, None, True)
    usage = {"prompt_tokens": 5, "completion_tokens": 3}
    second = (200, True, 2, [], "length", usage, {"cache_n": 2}, None, True)
    count = check_cuts(STREAM, first) + check_cuts(OTHER, second)
    check_refusals()
    check_figures()
    print(f"self-test: {count:,} ways to cut a response, all read the same")
    return 0
