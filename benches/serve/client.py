"""Requests over connections that are kept open.

Owns sockets and clocks. A protocol takes bytes where they arrive, without a task switch for each token: client and
server share the processor.
"""

import asyncio
import json
import ssl
import time
from urllib.parse import urlsplit

from .wire import ResponseParser, TokenEvents, WireError

BUFFER = 64 * 1024


class BenchError(Exception):
    """Why there is no figure."""


class Reply:
    """One response, with the times of what it carried, in seconds of `time.perf_counter`."""

    def __init__(self, want_ids=False):
        self.sent_at = 0.0
        self.body = bytearray()  # unless it is a stream
        self.events = TokenEvents(want_ids)
        self.parser = ResponseParser(self._on_body)
        self.now = 0.0
        self._streams = None

    @property
    def status(self):
        return self.parser.status

    @property
    def started(self):
        """Whether any byte of it has arrived."""
        return self.now > 0.0

    def feed(self, data):
        self.now = time.perf_counter()
        return self.parser.feed(data)

    def _on_body(self, piece):
        if self._streams is None:
            self._streams = self.parser.headers.get("content-type", "").startswith("text/event-stream")
        if self._streams:
            self.events.feed(piece, self.now)
        else:
            self.body += piece

    def json(self):
        """The body as JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise BenchError(f"no JSON in an answer of status {self.status}: {bytes(self.body[:300])!r}") from None


class Connection(asyncio.BufferedProtocol):
    """One connection; one request at a time. Its own buffer spares an allocation of 256 KiB for each token."""

    def __init__(self):
        self.open = False
        self.uses = 0
        self._transport = None
        self._reply = None
        self._waiter = None
        self._buffer = memoryview(bytearray(BUFFER))

    def connection_made(self, transport):
        self._transport = transport
        self.open = True

    def get_buffer(self, sizehint):
        return self._buffer

    def buffer_updated(self, nbytes):
        if self._waiter is None or self._waiter.done():
            self.close()
            return
        try:
            if self._reply.feed(bytes(self._buffer[:nbytes])):
                self.open = self._reply.parser.keep_alive
                self._waiter.set_result(None)
        except WireError as error:
            self._fail(error)

    def connection_lost(self, exc):
        self.open = False
        if self._waiter is None or self._waiter.done():
            return
        if self._reply.parser.end():
            self._waiter.set_result(None)
        else:
            self._waiter.set_exception(ConnectionError(f"the server closed the connection early: {exc or 'end'}"))

    def _fail(self, error):
        self.close()
        self._waiter.set_exception(error)

    def close(self):
        self.open = False
        self._transport.close()

    async def exchange(self, request, reply):
        """Sends a request, and waits for all of its response."""
        self.uses += 1
        self._reply = reply
        self._waiter = asyncio.get_running_loop().create_future()
        reply.sent_at = time.perf_counter()
        self._transport.write(request)
        try:
            await self._waiter
        except BaseException:
            self.close()
            raise
        if not self.open:
            self.close()


def accepting_any():
    """TLS to whoever is there: a server that is measured shows a certificate of its own making."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def authorization(api_key):
    """The line of a request's head that shows an API key, if there is one."""
    return f"Authorization: Bearer {api_key}\r\n" if api_key else ""


class Client:
    """Sends requests to one server, each over an idle connection if there is one."""

    def __init__(self, url, timeout, api_key=None):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BenchError(f"{url} is no http:// address")
        self._tls = accepting_any() if parts.scheme == "https" else None
        self._host, self._port = parts.hostname, parts.port or (443 if self._tls else 80)
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self._authority = parts.netloc
        self._authorization = authorization(api_key)
        self._timeout = timeout
        self._idle = []
        self.unfinished = []  # replies that whoever asked did not wait for

    def post(self, path, fields):
        """The bytes of a POST request, to be made before the clock starts."""
        body = json.dumps(fields, separators=(",", ":")).encode()
        head = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return self._head("POST", path, head) + body

    def get(self, path):
        """The bytes of a GET request."""
        return self._head("GET", path, "")

    def _head(self, method, path, more):
        head = f"{method} {self._base}{path} HTTP/1.1\r\nHost: {self._authority}\r\n{self._authorization}"
        return f"{head}{more}\r\n".encode()

    async def prepare(self, count):
        """Opens connections, so that `count` requests find one."""
        self._idle = [connection for connection in self._idle if connection.open]
        missing = range(count - len(self._idle))
        self._idle += await asyncio.gather(*(self._connect() for _ in missing))

    async def _connect(self):
        opened = asyncio.get_running_loop().create_connection(Connection, self._host, self._port, ssl=self._tls)
        return (await opened)[1]

    async def _connection(self):
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return await self._connect()

    async def send(self, request, want_ids=False, timeout=None):
        """The reply to a request; sent again if a kept connection turns out to be closed."""
        try:
            async with asyncio.timeout(timeout or self._timeout):
                while True:
                    connection = await self._connection()
                    reply = Reply(want_ids)
                    try:
                        await connection.exchange(request, reply)
                        break
                    except OSError:
                        if connection.uses == 1 or reply.started:
                            raise
                    except asyncio.CancelledError:
                        self.unfinished.append(reply)
                        raise
        except TimeoutError:
            raise BenchError(f"no answer in {timeout or self._timeout} s") from None
        except WireError as error:
            raise BenchError(str(error)) from None
        if connection.open:
            self._idle.append(connection)
        return reply

    def close(self):
        for connection in self._idle:
            connection.close()
        self._idle = []
