"""How fast a server is: bursts, prompts, conversations and what a cached prompt costs.

Every mode returns figures of its own, beside the roofline; a mode that its time cuts says so and counts what had come.
"""

import random
from dataclasses import dataclass

from serve.client import BenchError
from serve.fleet import Order, drive, steady
from serve.report import median, percentile

from . import roofline as wall
from .shapes import text_ids

# Of a core: a process of the load that takes more may be what bounds the figure.
BUSY = 0.85
# Of a burst that has to be steady for its rate to stand for decoding.
STEADY = 0.2


@dataclass
class Sizes:
    """What is asked."""

    concurrency: tuple
    tokens_in: int
    tokens_out: int
    prompt: int  # tokens of a long prompt
    prompts: int  # of them at once
    groups: int
    samples: int
    shared: int  # tokens of a group's prompt
    turns: int
    turn_in: int
    turn_out: int
    processes: int


REAL = Sizes((1, 8, 64, 256, 512), 512, 512, 4096, 8, 8, 8, 1024, 4, 128, 128, 8)
SMALL = Sizes((1, 8, 64), 24, 24, 1024, 4, 2, 8, 64, 4, 16, 16, 2)


class Bench:
    """Drives one server; draws prompts of which no two are alike but where a mode says so."""

    def __init__(self, session, roofline, sizes, seed):
        self.session = session
        self.shape = session.shape
        self.roofline = roofline
        self.sizes = sizes
        self._numbers = random.Random(seed)
        self._seeds = seed % 1000 * 10**6

    def draw(self, count):
        """Fresh ids."""
        return self._numbers.choices(text_ids(self.shape.vocab), k=count)

    async def load(self, streams, limit):
        """A fleet's answers, with what client and server took of the cores meanwhile."""
        self._seeds += len(streams)
        # Random weights may prefer lone bytes, which have no text until they make a character.
        order = Order(self.session.url, "random", 1.0, self._seeds, limit, streams, min_share=0.0)
        before = self.session.served.processor_seconds()
        fleet = await drive(order, self.sizes.processes)
        server = self.session.served.processor_seconds() - before
        return fleet, self._common(fleet, server)

    def _common(self, fleet, server):
        ttfts = [answer.ttft for answer in fleet.whole]
        busiest = max(fleet.client_shares)
        found = {
            "requests": len(fleet.whole),
            "cut": fleet.cut,
            "unfinished": len(fleet.unfinished),
            "errors": fleet.errors[:3],
            "failed": len(fleet.errors),
            "wall_s": fleet.wall,
            "output_tokens": fleet.tokens,
            "output_tokens_per_s": fleet.tokens / fleet.wall if fleet.wall else None,
            "ttft_s": {"p50": median(ttfts), "p99": percentile(ttfts, 99)},
            "client_cpu_shares": fleet.client_shares,
            "client_bound": busiest > BUSY,
            "server_cores": server / fleet.wall if fleet.wall else None,
        }
        if fleet.errors and not fleet.whole and not fleet.unfinished:
            raise BenchError(f"{len(fleet.errors)} requests failed, the first with: {fleet.errors[0]}")
        return found

    async def warm(self, streams, limit):
        """Whatever a server does once for a batch of this size; not measured."""
        await self.load([[(self.draw(16), 8)] for _ in range(streams)], limit)

    async def burst(self, streams, limit):
        """That many requests at once, all of one size."""
        await self.warm(streams, limit / 4)
        sizes = self.sizes
        asked = [[(self.draw(sizes.tokens_in), sizes.tokens_out)] for _ in range(streams)]
        fleet, figure = await self.load(asked, limit * 0.7)
        figure |= {"streams": streams, "tokens_in": sizes.tokens_in, "tokens_out": sizes.tokens_out}
        least = wall.whole_run(self.roofline, self.shape, streams, sizes.tokens_in, sizes.tokens_out)
        figure["whole_share"] = least / fleet.wall if least and fleet.wall and not fleet.cut else None
        figure |= self._decoding(fleet, streams)
        return figure

    def _decoding(self, fleet, streams):
        """The rate while all streams were being written, and what the roofline allows then."""
        found = {"decode_tokens_per_s": None, "decode_bound": None, "decode_hangs_on": None, "decode_share": None}
        begun = fleet.begun(self.sizes.tokens_in)
        window = steady(begun) if begun and len(begun) == streams else None
        if window is None:
            return found
        seconds, tokens, context = window
        found |= {"decode_window_s": seconds, "decode_context": context}
        if seconds < STEADY * fleet.wall:
            return found
        found["decode_tokens_per_s"] = tokens / seconds
        if bound := wall.decode_rate(self.roofline, self.shape, streams, context):
            share = tokens / seconds / bound[0]
            found |= {"decode_bound": bound[0], "decode_hangs_on": bound[1], "decode_share": share}
        return found

    async def prompts(self, count, limit):
        """That many long prompts at once, with one token out."""
        length = self.sizes.prompt
        await self.warm(1, limit / 4)
        fleet, figure = await self.load([[(self.draw(length), 1)] for _ in range(count)], limit * 0.7)
        figure |= {"prompts": count, "tokens_in": length, "prompt_tokens_per_s": None, "share": None}
        if len(fleet.whole) == count:
            rate = count * length / fleet.wall
            figure["prompt_tokens_per_s"] = rate
            if bound := wall.prompt_rate(self.roofline, self.shape, length):
                figure |= {"bound": bound[0], "hangs_on": bound[1], "share": rate / bound[0]}
        return figure

    async def conversations(self, limit):
        """Groups of samples of one prompt, each of which goes on with new ids behind its own answers."""
        sizes, streams = self.sizes, []
        for _ in range(sizes.groups):
            first = self.draw(sizes.shared)
            for _ in range(sizes.samples):
                more = [(self.draw(sizes.turn_in), sizes.turn_out) for _ in range(sizes.turns - 1)]
                streams.append([(first, sizes.turn_out), *more])
        fleet, figure = await self.load(streams, limit)
        turns = [[answers[turn] for answers in fleet.answers if len(answers) > turn] for turn in range(sizes.turns)]
        # All that a perfect cache would have: a group's prompt but once, and every turn's history.
        known = (sizes.samples - 1) * sizes.groups * sizes.shared
        known += sum(answer.prompt_tokens - sizes.turn_in for answers in turns[1:] for answer in answers)
        cached = sum(answer.cached or 0 for answer in fleet.whole)
        later = [answer for answers in turns[1:] for answer in answers]
        history = sum(answer.prompt_tokens - sizes.turn_in for answer in later)
        found = sum(answer.cached or 0 for answer in later)
        return figure | {
            "groups": sizes.groups,
            "samples": sizes.samples,
            "shared": sizes.shared,
            "turns": [turn_of(answers) for answers in turns],
            "turn_in": sizes.turn_in,
            "turn_out": sizes.turn_out,
            "cached_share": cached / known,
            "cached_share_of_history": found / history if history else None,
            "uncached_of_a_turn": (history - found) / len(later) if later else None,
            "prompt_tokens": sum(answer.prompt_tokens for answer in fleet.whole),
        }

    async def reuse(self, limit):
        """Time to the first token of a long prompt cold, of the same with a few ids more, and of those few alone."""
        new = 64
        first = {"cold": [], "continued": [], "few": [], "cached": []}
        for _ in range(3):
            long = self.draw(self.sizes.prompt)
            fleet, _ = await self.load([[(long, 2), (self.draw(new), 2)]], limit / 6)
            alone, _ = await self.load([[(self.draw(new), 2)]], limit / 6)
            if len(fleet.whole) != 2 or len(alone.whole) != 1:
                raise BenchError(f"cut, or failed: {(fleet.errors + alone.errors)[:1]}")
            first["cold"].append(fleet.whole[0].ttft)
            first["continued"].append(fleet.whole[1].ttft)
            first["few"].append(alone.whole[0].ttft)
            first["cached"].append(fleet.whole[1].cached)
        found = {f"{name}_s": median(first[name]) for name in ("cold", "continued", "few")}
        return found | {"tokens_in": self.sizes.prompt, "new": new, "cached": median(first["cached"])}


def turn_of(answers):
    """One turn of all conversations."""
    return {
        "answers": len(answers),
        "prompt_tokens": median([answer.prompt_tokens for answer in answers]),
        "cached_tokens": median([answer.cached or 0 for answer in answers]),
        "ttft_s": {"p50": median([answer.ttft for answer in answers]),
                   "p99": percentile([answer.ttft for answer in answers], 99)},
    }  # fmt: skip
