"""What is asked, whether the answer is whole, and many of them at once."""

import asyncio
import gc
import random
import time
from dataclasses import dataclass, field

from .client import BenchError

COMPLETIONS = "/v1/completions"
# The fewest and the most ids of a piece of a tool's output.
PIECE = (40, 160)
# Common words, a token each in most vocabularies: for servers that take no ids.
WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city community name president team minute idea kid body "
).split()


class Prompts:
    """Random prompts, the same ones for the same seed."""

    def __init__(self, seed, vocabulary, as_text=False):
        self.as_text = as_text
        self._random = random.Random(seed)
        self._vocabulary = vocabulary

    def ids(self, count):
        """`count` ids, drawn from the vocabulary."""
        return self._random.choices(self._vocabulary, k=count)

    def shown(self, ids):
        """What the server is sent for the ids."""
        if not self.as_text:
            return ids
        return " ".join(WORDS[number % len(WORDS)] for number in ids)

    def words(self, count):
        """As many random words."""
        return " ".join(self._random.choices(WORDS, k=count))

    def tool_output(self, count, earlier):
        """`count` ids as a tool returns them, which partly repeat themselves and the ids before them.

        Half of it are records, as in JSON: the same keys each time, other values. A quarter repeats a passage of what is
        there already, as a file does that is read again. The rest is new.
        """
        draw, found = self._random, []
        keys = [self.ids(draw.randint(3, 8)) for _ in range(4)]
        while len(found) < count:
            kind = draw.choices(("records", "passage", "new"), (2, 1, 1))[0]
            length = draw.randint(*PIECE)
            if kind == "passage" and earlier:
                start = draw.randrange(len(earlier))
                found += earlier[start : start + length]
            elif kind == "records":
                end = len(found) + length
                while len(found) < end:
                    found += [token for key in keys for token in (*key, *self.ids(draw.randint(1, 3)))]
            else:
                found += self.ids(length)
        return found[:count]


@dataclass
class Target:
    """A server, what it can do, and how it is asked."""

    client: object
    prompts: Prompts
    model: str
    temperature: float
    min_share: float
    count_ids: bool = False  # every stream carries the ids, which are counted
    log_probs: bool = False  # every stream carries the log-prob of each sampled token
    returns_ids: bool = False
    seeds: int = 0
    asked: int = 0

    def request(self, ids, tokens, want_ids=False):
        """The bytes that ask for exactly `tokens` tokens after `ids`."""
        self.asked += 1
        fields = {
            "model": self.model,
            "prompt": self.prompts.shown(ids),
            "max_tokens": tokens,
            "temperature": self.temperature,
            "seed": self.seeds + self.asked,
            "ignore_eos": True,
            # A special token shows too: an event without text is not counted.
            "skip_special_tokens": False,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if want_ids or self.count_ids:
            fields["return_token_ids"] = True
        if self.log_probs:
            fields["logprobs"] = 0
        return self.client.post(COMPLETIONS, fields)

    async def ask(self, ids, tokens, want_ids=False):
        """One whole answer."""
        return await self.send(self.request(ids, tokens, want_ids), len(ids), tokens, want_ids)

    async def send(self, request, prompt_tokens, tokens, want_ids=False):
        """One whole answer to a request that is made already."""
        want_ids = want_ids or self.count_ids
        reply = await self.client.send(request, want_ids)
        counted = len(reply.events.token_ids) if want_ids else None
        return check(reply, None if self.prompts.as_text else prompt_tokens, tokens, counted, self.min_share)


@dataclass
class Answer:
    """A whole answer. Times are in seconds; `sent`, `first` and `last` on one clock."""

    sent: float
    first: float
    last: float
    tokens: int
    prompt_tokens: int
    gaps: list  # between successive events with text
    seen: int  # events with text
    cached: int | None  # prompt tokens that the server says it had
    ids: list = field(default_factory=list)

    @property
    def ttft(self):
        return self.first - self.sent

    @property
    def decode_rate(self):
        """Tokens a second after the first one, or None where they arrived at once."""
        span = self.last - self.first
        return (self.tokens - 1) / span if span > 0 and self.tokens > 1 else None


def check(reply, prompt_tokens, tokens, counted_ids, min_share):
    """The answer in a reply, or `BenchError` unless it is exactly what was asked for."""
    events = reply.events
    if reply.status != 200:
        raise BenchError(f"status {reply.status}: {bytes(reply.body[:500]).decode(errors='replace')}")
    if events.error is not None:
        raise BenchError(f"an error within a stream: {events.error}")
    if not events.done:
        raise BenchError("a stream without [DONE]")
    if events.finish_reason != "length":
        raise BenchError(f"finish_reason is {events.finish_reason!r} instead of 'length'")
    usage = events.usage
    if usage is None:
        raise BenchError("a stream without usage")
    if usage["completion_tokens"] != tokens:
        raise BenchError(f"usage says {usage['completion_tokens']} tokens instead of {tokens}")
    if prompt_tokens is not None and usage["prompt_tokens"] != prompt_tokens:
        raise BenchError(f"usage says {usage['prompt_tokens']} prompt tokens instead of {prompt_tokens}")
    if counted_ids is not None and counted_ids != tokens:
        raise BenchError(f"{counted_ids} ids instead of {tokens}")
    seen = len(events.times)
    if seen > tokens or (tokens >= 8 and seen < min_share * tokens):
        raise BenchError(f"{seen} events with text for {tokens} tokens (--min-share is {min_share})")
    return Answer(
        sent=reply.sent_at,
        # The only token may be half a character, whose text never comes.
        first=events.times[0] if events.times else events.ended_at,
        last=events.ended_at,
        tokens=tokens,
        prompt_tokens=usage["prompt_tokens"],
        gaps=[after - before for before, after in zip(events.times, events.times[1:])],
        seen=seen,
        cached=cached_tokens(usage, events.timings),
        ids=events.token_ids,
    )


def cached_tokens(usage, timings):
    """How many prompt tokens the server had in a cache, if it says so."""
    details = usage.get("prompt_tokens_details") or {}
    return details.get("cached_tokens", timings.get("cache_n"))


async def probe(target):
    """Finds out what the server takes, with answers of 8 tokens; returns what is to be said loudly."""
    said = []
    while True:
        reply = await target.client.send(target.request(target.prompts.ids(8), 8, want_ids=True), want_ids=True)
        if reply.status != 200 and not target.prompts.as_text:
            # Either the field is unknown, or lists are: without it, we know.
            target.count_ids = False
            reply = await target.client.send(target.request(target.prompts.ids(8), 8))
        if 400 <= reply.status < 500 and not target.prompts.as_text:
            said.append(
                f"the server takes no ids (status {reply.status}: {bytes(reply.body[:200]).decode(errors='replace')}): "
                "prompts are words, and their length in tokens is not checked"
            )
            target.prompts.as_text = True
            continue
        break
    ids = len(reply.events.token_ids)
    check(reply, None if target.prompts.as_text else 8, 8, ids or None, 0.0)
    target.returns_ids = ids > 0 and not target.prompts.as_text
    if target.count_ids and not ids:
        raise BenchError("--count-ids, but the server returns no ids")
    return said


@dataclass
class Run:
    """Answers of one measurement, and what the client itself took of one core meanwhile."""

    answers: list
    client_share: float

    @property
    def wall(self):
        """From the first request sent to the last token received, in seconds."""
        return max(answer.last for answer in self.answers) - min(answer.sent for answer in self.answers)

    @property
    def output_rate(self):
        """Output tokens a second, all streams together."""
        return sum(answer.tokens for answer in self.answers) / self.wall

    @property
    def ttfts(self):
        return [answer.ttft for answer in self.answers]

    @property
    def decode_rates(self):
        return [answer.decode_rate for answer in self.answers if answer.decode_rate is not None]

    @property
    def gaps(self):
        return [gap for answer in self.answers for gap in answer.gaps]

    @property
    def seen_share(self):
        """Events with text per token."""
        return sum(answer.seen for answer in self.answers) / sum(answer.tokens for answer in self.answers)

    @property
    def cached(self):
        """Prompt tokens that were cached, of all, or None where the server does not say."""
        known = [answer.cached for answer in self.answers if answer.cached is not None]
        return sum(known) if known else None


async def gathered(jobs):
    """Runs coroutines together; the first failure cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in jobs]
    except* (BenchError, OSError) as failures:
        first = failures
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
    return [task.result() for task in tasks]


async def measured(jobs):
    """A `Run` of coroutines that each return a list of answers."""
    gc.collect()
    gc.disable()
    wall, processor = time.perf_counter(), time.process_time()
    try:
        lists = await gathered(jobs)
    finally:
        gc.enable()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return Run([answer for answers in lists for answer in answers], processor / wall)


async def closed_loop(target, prompts, tokens, streams):
    """Answers to all prompts, `streams` of them in flight at any time while there are that many left."""
    waiting = [(target.request(ids, tokens), len(ids)) for ids in reversed(prompts)]
    await target.client.prepare(streams)

    async def worker():
        answers = []
        while waiting:
            request, length = waiting.pop()
            answers.append(await target.send(request, length, tokens))
        return answers

    return await measured(worker() for _ in range(streams))


async def burst(target, prompts, tokens):
    """Answers to all prompts, sent at once."""
    return await closed_loop(target, prompts, tokens, len(prompts))
