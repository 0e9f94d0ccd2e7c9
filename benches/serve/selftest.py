"""The parser on canned streams, cut at every place; answers that must be refused; a comparison of canned figures."""

import contextlib
import json
import socket
import threading
import time

from . import attack, http2, options, peers, structured, versus
from .client import BenchError, Reply
from .load import Prompts, cached_tokens, check
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


def visited(server, rate, ttft):
    """What a visit to a server finds, in part."""
    figure = {"streams": 16, "output_tokens_per_s": rate, "ttft_s": {"p50": ttft}}
    starts = [{"ready_s": 2.0, "memory_after_load": {"VmHWM": 3 * 2**20}}, {"ready_s": 9.0}]
    return {"server": server, "throughput": [figure], "starts": starts}


def check_comparison():
    """Medians over the rounds, ratios the right way round, and a gap where a server has no figure."""
    drafts = "tito with flags"
    visits = [visited("tito", 100.0, 0.2), visited(drafts, 150.0, 0.1), visited("vLLM", 40.0, 0.5)]
    visits += [visited("vLLM", 60.0, 0.3), visited(drafts, 170.0, 0.1), visited("tito", 300.0, 0.2)]
    visits[0]["prefill"] = [{"prompt_tokens": 4000, "ttft_s": {"p50": 1.5}}]
    visits.append({"server": "vLLM", "starts": [{}]})
    found = versus.rows(["tito", drafts, "vLLM"], visits)
    assert found[0]["medians"] == {"tito": 200, drafts: 160, "vLLM": 50}, found[0]
    assert found[0]["ratios"] == {drafts: 0.8, "vLLM": 4}, found[0]
    expected = """\
|  | better | tito | tito with flags | tito with flags / tito | vLLM | tito / vLLM |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
| throughput, 16 streams: output, tok/s | more | 200 | 160 | 0.80 | 50.0 | 4.00 |
| throughput, 16 streams: first token, ms | less | 200 | 100 | 0.50 | 400 | 0.50 |
| prefill of 4,000 tokens: first token, ms | less | 1,500 | – | – | – | – |
| ready, s | less | 2.00 | 2.00 | 1.00 | 2.00 | 1.00 |
| most ever resident, MiB | less | 3.00 | 3.00 | 1.00 | 3.00 | 1.00 |"""
    assert versus.table(["tito", drafts, "vLLM"], found) == expected, versus.table(["tito", drafts, "vLLM"], found)


def check_peers():
    """Who is not there is said, and who is there is started as it has to be."""
    chosen = options.parse(["versus", "--tito", "t", "--model", "a dir", "--tito-flags", "-x 1", "--vllm", "/none"])
    found, said = peers.servers(chosen)
    assert [server.name for server in found] == ["tito", "tito with flags"]
    assert [server.starts[0].command for server in found] == [
        "t serve 'a dir' --port {port}",
        "t serve 'a dir' --port {port} -x 1",
    ]
    absent = [line.split(": ")[1] for line in said if line.startswith("NOT MEASURED: ")]
    assert absent == ["vLLM", "llama.cpp", "by vLLM's own client"], said
    assert "/none/bin/vllm is no program" in said[0], said
    (start,) = peers.vllm(chosen)
    assert "--max-num-batched-tokens 8192" in start.command and "VLLM_CPU_KVCACHE_SPACE=2" in start.command
    chosen.llama_server, chosen.gguf = "/x/llama-server", "m.gguf"
    short, long = peers.llama_cpp(chosen)
    assert short.modes == ["throughput", "groups", "structured"] and "-np 64" in short.command
    assert long.modes == ["prefill", "multi-turn", "agentic"] and "-np 8" in long.command


def check_texts():
    """A tool's output repeats itself, and a structured answer is read strictly."""
    prompts = Prompts(1, range(1000, 40000))
    earlier = prompts.ids(600)
    output = prompts.tool_output(2000, earlier)
    assert len(output) == 2000 and len(prompts.tool_output(500, [])) == 500
    threes = [tuple(output[at : at + 3]) for at in range(1998)]
    before = {tuple(earlier[at : at + 3]) for at in range(598)}
    assert len(set(threes)) < 1600 and before & set(threes)
    one = {"file": "a", "line": 1, "severity": "low", "fixed": True}
    assert structured.conforms(json.dumps({"findings": [one] * 3}))
    for wrong in ([one] * 2, [one | {"line": True}] * 3, [one | {"more": 1}] * 3, [one | {"severity": "none"}] * 3, [1, 2, 3], 3):
        assert not structured.conforms(json.dumps({"findings": wrong})), wrong
    assert not structured.conforms('{"findings": [')


def check_attacks():
    """Which attacks a server can be asked for, what they send, and what they may get."""
    names, said = attack.chosen(None, "tito serve m --port {port} --admin-port {admin_port}")
    assert "pages to the admin port" in names and "idle connections" in names
    missing = {line.rpartition("--serve has no ")[2] for line in said}
    assert missing == {"--ssl-certfile", "--limit-mm-per-prompt"} and not any(name.startswith("images") for name in names), said
    assert attack.chosen(["huge n"], "tito") == (["huge n"], [])
    not_possible(lambda: attack.chosen(["huge n", "silent to the admin port"], "tito"), "no {admin_port}")
    for name, one in attack.ATTACKS.items():
        for request in [] if any(slow in name for slow in ("text", "JSON", "million")) else one.requests(one, "m", "127.0.0.1:9", "k"):
            head, _, body = request.partition(b"\r\n\r\n")
            assert f"Content-Length: {len(body)}" in head.decode().split("\r\n"), head
            page = b"elsewhere.example" in head
            assert page == (name == "pages to the admin port") and page != (b"Bearer k" in head), head
            assert page or b"\r\nHost: 127.0.0.1:9\r\n" in head, head
    attack.check_answers("pages to the admin port", {"403": 9})
    attack.check_answers("huge n", {"200": 9})
    not_possible(lambda: attack.check_answers("pages to the admin port", {"403": 9, "200": 1}), "{'200': 1}")


def not_possible(call, reason):
    """Checks that there is no figure, for this reason."""
    try:
        call()
    except BenchError as error:
        assert reason in str(error), f"{error} instead of {reason}"
    else:
        raise AssertionError(f"a figure, although: {reason}")


@contextlib.contextmanager
def refusing():
    """Where a server says 403 to whoever says something, and hangs up on everybody else."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.settimeout(0.05)
                    with connection, contextlib.suppress(TimeoutError):
                        if connection.recv(4096):
                            connection.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)


def check_frames():
    """Frames are as long as they say, a head ends once, and the reason of an end is read."""
    for frames in http2.streams_reset, http2.heads_of_a_megabyte, http2.heads_that_repeat_themselves:
        data, kinds, number = frames(0) + frames(1), [], 0
        while data:
            length, kind, flags = int.from_bytes(data[:3]), data[3], data[4]
            assert length <= http2.LARGEST and len(data) >= 9 + length, (frames, length)
            number, before = int.from_bytes(data[5:9]), number
            assert number % 2 and number >= before, (frames, number)
            kinds.append((kind, flags & http2.END_HEADERS))
            data = data[9 + length :]
        ends = [kind for kind, ends in kinds if ends]
        assert len(ends) == sum(kind == http2.HEADERS for kind, _ in kinds) > 1, (frames, kinds)
    assert http2.text(b"b" * 300) == b"\x7f\xad\x01" + b"b" * 300
    end = http2.frame(http2.GO_AWAY, 0, 0, bytes(7) + b"\x0b")
    assert http2.said(b"") == "closed" and http2.said(b"123" + end) == "GOAWAY 11"


def check_attackers():
    """Attackers ask in turn, count what they get, and come again where they are hung up on."""
    with refusing() as address:
        counts = {}
        attack.flood(address, [b"a", b"b"], 2, time.monotonic() + 0.2, counts)
        assert set(counts) == {"403"}, counts
        counts = {}
        attack.silent(address, [], 3, time.monotonic() + 0.6, counts)
        assert counts["silent connections"] == 3 and counts["closed and opened again"] > 0, counts


def run():
    """All of it; returns the exit status, 0: a failure is an `AssertionError`."""
    first = (200, True, 3, [7, 8, 11], "length", USAGE, {}, None, True)
    usage = {"prompt_tokens": 5, "completion_tokens": 3}
    second = (200, True, 2, [], "length", usage, {"cache_n": 2}, None, True)
    count = check_cuts(STREAM, first) + check_cuts(OTHER, second)
    check_refusals()
    check_figures()
    check_comparison()
    check_peers()
    check_texts()
    check_attacks()
    check_frames()
    check_attackers()
    print(f"self-test: {count:,} ways to cut a response, all read the same")
    return 0
