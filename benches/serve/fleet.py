"""Load from several processes at once: a client of one process would be the wall of a fast server.

Owns the processes and what they send each other. A stream is a list of turns, `(new ids, tokens to answer)`, asked one
after the other; each prompt is the one before, the ids that were returned for it, and the new ones.
"""

import asyncio
import os
import pickle
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from .client import BenchError, Client
from .load import Answer, Prompts, Target

GO = b"go\n"
READY = b"ready\n"
# For collecting what was found after the clock stopped.
GRACE = 20


@dataclass
class Order:
    """What one process has to do."""

    url: str
    model: str
    temperature: float
    seeds: int
    limit: float  # seconds
    streams: list
    min_share: float = 0.5  # the fewest events with text for a token


@dataclass
class Fleet:
    """What all processes found. Times are of `time.perf_counter`, which they share."""

    answers: list = field(default_factory=list)  # a list of answers for each stream, as many as it has whole
    unfinished: list = field(default_factory=list)  # (sent, when each token came) of answers that were cut
    errors: list = field(default_factory=list)
    client_shares: list = field(default_factory=list)  # of a core, for each process
    cut: bool = False

    @property
    def whole(self):
        """All whole answers."""
        return [answer for stream in self.answers for answer in stream]

    @property
    def wall(self):
        """From the first request sent to the last token received, those of answers that were cut, too."""
        sent = [answer.sent for answer in self.whole] + [sent for sent, _ in self.unfinished]
        last = [answer.last for answer in self.whole] + [times[-1] for _, times in self.unfinished if times]
        return max(last) - min(sent) if last else None

    def begun(self, prompt_tokens):
        """Whole answers and what came of those that were cut, to prompts of one length; None if one has no token."""
        if not all(times for _, times in self.unfinished):
            return None
        return self.whole + [partial(sent, times, prompt_tokens) for sent, times in self.unfinished]

    @property
    def tokens(self):
        """All that arrived."""
        return sum(answer.tokens for answer in self.whole) + sum(len(times) for _, times in self.unfinished)


def partial(sent, times, prompt_tokens):
    """What came of an answer, as if that were all."""
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    return Answer(sent, times[0], times[-1], len(times), prompt_tokens, gaps, len(times), None)


def arrivals(answer):
    """When each event with text of an answer came."""
    times = [answer.first]
    for gap in answer.gaps:
        times.append(times[-1] + gap)
    return times


def steady(answers):
    """(seconds, tokens, mean context) of the time in which all answers were being written, or None.

    It begins when the last one has its first token, and ends when the first one has its last.
    """
    if not answers:
        return None
    begin, end = max(answer.first for answer in answers), min(answer.last for answer in answers)
    if end <= begin:
        return None
    tokens, contexts = 0.0, 0.0
    for answer in answers:
        times = arrivals(answer)
        # An event may stand for several tokens.
        each = answer.tokens / len(times)
        before = sum(time <= begin for time in times) * each
        within = sum(begin < time <= end for time in times) * each
        tokens += within
        contexts += answer.prompt_tokens + before + within / 2
    return end - begin, tokens, contexts / len(answers)


async def drive(order, processes):
    """Runs an order's streams in that many processes, from one signal on; they cut themselves after its limit."""
    shares = [order.streams[index::processes] for index in range(min(processes, len(order.streams)))]
    tasks, go = [], asyncio.Event()
    ready = asyncio.Barrier(len(shares) + 1)
    try:
        async with asyncio.timeout(order.limit + 3 * GRACE), asyncio.TaskGroup() as group:
            for index, streams in enumerate(shares):
                fields = vars(order) | {"streams": streams, "seeds": order.seeds + index * 10**6}
                tasks.append(group.create_task(one(Order(**fields), ready, go)))
            await ready.wait()
            go.set()
    except* (BenchError, OSError, TimeoutError) as failures:
        raise BenchError(f"the load could not be made: {first_of(failures)}") from None
    fleet = Fleet()
    for found in (task.result() for task in tasks):
        fleet.answers += found["answers"]
        fleet.unfinished += found["unfinished"]
        fleet.errors += found["errors"]
        fleet.client_shares.append(found["client_share"])
        fleet.cut = fleet.cut or found["cut"]
    return fleet


def first_of(failures):
    """The first failure of a group, in words."""
    while isinstance(failures, BaseExceptionGroup):
        failures = failures.exceptions[0]
    return str(failures) or "it took too long"


async def one(order, ready, go):
    """A process from its start to what it found."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "serve.fleet", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env=environment, limit=1 << 26,
    )  # fmt: skip
    try:
        process.stdin.write(framed(vars(order)))
        await process.stdin.drain()
        async with asyncio.timeout(GRACE):
            if (line := await process.stdout.readline()) != READY:
                raise BenchError(line.decode().strip() or "a process of the load did not start")
            await ready.wait()
        await go.wait()
        process.stdin.write(GO)
        await process.stdin.drain()
        (size,) = struct.unpack("<Q", await process.stdout.readexactly(8))
        return pickle.loads(await process.stdout.readexactly(size))
    except asyncio.IncompleteReadError:
        raise BenchError("a process of the load ended early") from None
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def framed(value):
    """A value as bytes, behind their number."""
    data = pickle.dumps(value)
    return struct.pack("<Q", len(data)) + data


# --- In the process ---------------------------------------------------------------------------------------------------


def said(data):
    """Bytes to whoever started the process, at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


async def work(order):
    """Connects, says so, waits for the signal, asks until all is answered or the time is over."""
    client = Client(order.url, 24 * 3600)
    target = Target(client, Prompts(0, range(1)), order.model, order.temperature, order.min_share, seeds=order.seeds)
    first = [target.request(turns[0][0], turns[0][1], len(turns) > 1) for turns in order.streams]
    try:
        await client.prepare(len(order.streams))
    except OSError as error:
        said(f"{error}\n".encode())
        return None
    said(READY)
    # Nothing else runs yet: the loop may wait with it.
    if sys.stdin.buffer.readline() != GO:
        return None
    wall, processor = time.perf_counter(), time.process_time()
    answers, errors = [[] for _ in order.streams], []
    tasks = [
        asyncio.create_task(stream(target, turns, request, found, errors))
        for turns, request, found in zip(order.streams, first, answers, strict=True)
    ]
    _, late = await asyncio.wait(tasks, timeout=order.limit)
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    for answer in (answer for found in answers for answer in found):
        answer.ids = []
    return {
        "answers": answers,
        "unfinished": [(reply.sent_at, reply.events.times) for reply in client.unfinished],
        "errors": errors,
        "client_share": processor / wall,
        "cut": bool(late),
    }


async def stream(target, turns, request, answers, errors):
    """One stream; what went wrong with it ends it alone."""
    history, carries = [], len(turns) > 1
    try:
        for new, tokens in turns:
            history = history + new
            request = request or target.request(history, tokens, carries)
            answer = await target.send(request, len(history), tokens, carries)
            answers.append(answer)
            history, request = history + answer.ids, None
    except (BenchError, OSError) as error:
        errors.append(str(error) or repr(error))


def main():
    """A process of the load."""
    (size,) = struct.unpack("<Q", sys.stdin.buffer.read(8))
    found = asyncio.run(work(Order(**pickle.loads(sys.stdin.buffer.read(size)))))
    if found is not None:
        said(framed(found))


if __name__ == "__main__":
    main()
