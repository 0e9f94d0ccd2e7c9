"""HTTP/1.1 responses and server-sent events, from bytes that may be cut anywhere.

Owns no socket and no clock, so that canned bytes test it. Refuses what no server of this kind sends: pipelined
responses, compressed bodies, events of several `data` lines.
"""

import json
import re

# A key with its quotes cannot occur inside a JSON string, where quotes are escaped: searching is as good as parsing.
TEXT = re.compile(rb'"text": ?"[^"]')
FINISH = re.compile(rb'"finish_reason": ?"')
TOKEN_IDS = re.compile(rb'"token_ids": ?\[([^\]]*)\]')


class WireError(Exception):
    """The server sent what is no HTTP response, or no stream of completions."""


class ResponseParser:
    """One response: feed it bytes until `done`; pieces of the body go to `on_body` as they arrive."""

    def __init__(self, on_body):
        self.status = 0
        self.headers = {}
        self.done = False
        self._on_body = on_body
        self._state = self._head
        self._rest = b""
        self._left = 0

    @property
    def keep_alive(self):
        """Whether the connection can be used again."""
        return self._state != self._until_close and self.headers.get("connection", "").lower() != "close"

    def feed(self, data):
        """Takes the next bytes; returns whether the response is complete."""
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        while at < size:
            if self.done:
                raise WireError("bytes after the end of a response")
            then = self._state(data, at)
            if then < 0:
                break
            at = then
        self._rest = data[at:]
        return self.done

    def end(self):
        """The server closed the connection; returns whether the response is complete."""
        if self._state == self._until_close:
            self.done = True
        return self.done

    # States take the bytes and an offset, and return the offset behind what they used, or -1 to wait for more.

    def _head(self, data, at):
        end = data.find(b"\r\n\r\n", at)
        if end < 0:
            return -1
        start, *lines = data[at:end].decode("latin-1").split("\r\n")
        version, _, rest = start.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise WireError(f"no HTTP/1.1 response: {start[:80]!r}")
        self.status = int(rest[:3])
        if self.status >= 200:
            pairs = (line.partition(":") for line in lines)
            self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            self._begin_body()
        return end + 4

    def _begin_body(self):
        headers = self.headers
        if headers.get("content-encoding", "identity") != "identity":
            raise WireError("a compressed body, which was not asked for")
        if self.status in (204, 304):
            self.done = True
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            self._state = self._size
        elif "content-length" in headers:
            self._left = int(headers["content-length"])
            self._state = self._counted
            self.done = self._left == 0
        else:
            self._state = self._until_close

    def _size(self, data, at):
        end = data.find(b"\r\n", at)
        if end < 0:
            return -1
        try:
            self._left = int(data[at:end].partition(b";")[0], 16)
        except ValueError:
            raise WireError(f"no size of a chunk: {data[at:end][:80]!r}") from None
        self._state = self._chunk if self._left else self._trailer
        return end + 2

    def _chunk(self, data, at):
        at = self._body(data, at)
        if self._left == 0:
            self._state = self._chunk_end
        return at

    def _chunk_end(self, data, at):
        if len(data) < at + 2:
            return -1
        if data[at : at + 2] != b"\r\n":
            raise WireError("a chunk longer than its size")
        self._state = self._size
        return at + 2

    def _trailer(self, data, at):
        end = data.find(b"\r\n", at)
        if end < 0:
            return -1
        self.done = end == at
        return end + 2

    def _counted(self, data, at):
        at = self._body(data, at)
        self.done = self._left == 0
        return at

    def _until_close(self, data, at):
        self._on_body(data[at:])
        return len(data)

    def _body(self, data, at):
        piece = data[at : at + self._left]
        self._left -= len(piece)
        self._on_body(piece)
        return at + len(piece)


class TokenEvents:
    """The events of one streamed completion: how many carried text, when, and what the last ones said.

    Only events without text, and those that end a choice, are parsed as JSON.
    """

    def __init__(self, want_ids=False):
        self.times = []  # of every event with text
        self.ended_at = None  # when the event with the finish reason arrived
        self.token_ids = []
        self.finish_reason = None
        self.usage = None
        self.timings = {}  # llama.cpp's
        self.error = None
        self.done = False
        self._want_ids = want_ids
        self._rest = b""

    def feed(self, piece, now):
        """Takes a piece of the body that arrived at `now`, in seconds."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:], now)

    def _event(self, data, now):
        if self._want_ids and (ids := TOKEN_IDS.search(data)):
            self.token_ids.extend(map(int, filter(None, ids[1].split(b","))))
        has_text = TEXT.search(data)
        if has_text:
            self.times.append(now)
        if not has_text or FINISH.search(data):
            self._rare(data.strip(), now)

    def _rare(self, data, now):
        if data == b"[DONE]":
            self.done = True
            return
        try:
            event = json.loads(data)
        except ValueError:
            raise WireError(f"an event that is no JSON: {data[:200]!r}") from None
        choices = event.get("choices")
        if "error" in event or choices is None:
            self.error = event
            return
        self.usage = event.get("usage") or self.usage
        self.timings = event.get("timings") or self.timings
        if choices and choices[0].get("finish_reason"):
            self.finish_reason = choices[0]["finish_reason"]
            self.ended_at = now
