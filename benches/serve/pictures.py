"""Images that cost a server more than they cost who sends them."""

import base64
import json
import random
import struct
import zlib

# What no request may make a server decode: 900 million pixels, in one megabyte.
BOMB = 30_000
# 16 million pixels, which a server decodes with others.
LARGE = 4_096
MANY = 200


def chunk(kind, body):
    """A chunk of a PNG file."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width, height, row, kind):
    """A PNG file whose rows are all alike; `kind` is 0 for grey and 2 for three colours, a byte each."""
    packed = zlib.compressobj(6)
    rows = b"".join(packed.compress(b"\0" + row) for _ in range(height)) + packed.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def one_colour(side):
    return png(side, side, bytes(side), 0)


def noise(side):
    return png(side, side, random.Random(0).randbytes(3 * side), 2)


def body(files):
    """The body of a chat completion for a model's name, whose message has these images."""
    urls = [f"data:image/png;base64,{base64.b64encode(file).decode()}" for file in files]
    part = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    message = {"role": "user", "content": [*part, {"type": "text", "text": "What is it?"}]}
    return lambda model: json.dumps({"model": model, "messages": [message], "max_tokens": 1}).encode()


# By name, what makes the files of each message that is sent in turn. A server that keeps what it prepared of an image does the
# work once; `--mm-processor-cache-gb 0` has it done each time.
PICTURES = {
    "a bomb of 900 million pixels": lambda: [[one_colour(BOMB)]],
    "16 million pixels": lambda: [[noise(LARGE)]],
    "200 in a message": lambda: [[noise(64)] * MANY],
    "files that end early": lambda: [[noise(LARGE)[:-1000]] * 2],
}
