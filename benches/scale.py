#!/usr/bin/env python3
"""How many replicas behave together: a simulation of servers, routers and agents, by service times that were measured.

    python3 benches/scale.py --write docs/scale.md    # its tables, in some minutes
    python3 benches/scale.py --self-test

A replica computes in steps, as tito's scheduler plans them: every sequence that decodes gets a token, then prompts get what is
left of the step's tokens, in pieces; no prompt gets more than a quarter of them while there are others. What is computed stays in
blocks until others need the room, least recently used first. A step takes what `Costs` says. Agents take turns: a prompt, an answer, a
tool's output after the tool's time. Nothing is drawn from the clock: the same seed gives the same table.
"""

import argparse
import bisect
import collections
import datetime
import hashlib
import heapq
import itertools
import math
import pathlib
import random
import re
import sys

# --- What was measured: benches/gpu.md, Llama 3.1 8B in bf16 on an H100 -----------------------------------------------

# "What gpu-check found on an H100", 512 in and 512 out, while all decode: streams, tokens/s.
DECODING = [(1, 133), (8, 1019), (64, 6069), (256, 11964), (512, 14364)]
DECODED_AT = 768
# "A day earlier", c1410be: ms of a prompt of as many tokens, alone.
PROMPTS = [(1024, 30), (4096, 131), (8000, 294)]
# Of the same page, on an H200 of 4.8 TB/s: a step of 48 sequences at 8,000 tokens, and what its bandwidth is to an H100's.
LONG_STEP = (48, 8000, 20.9 * 4.8 / 3.1)
# "An update of 16 GB in place".
UPDATE_GB, UPDATE_SECONDS = 16, 19
# docs/token-continuity.md, turns on two servers: p50 with a healthy store less p50 without one.
STORE_SECONDS = (0.96 - 0.45) / 1000

# --- What is assumed --------------------------------------------------------------------------------------------------

BLOCKS, BLOCK = 12_000, 32  # 50 GB for keys and values, 128 kB for each token
STEP_TOKENS, SEATS, SHARE = 8192, 256, 4
TURNS, GROUP = 8, 8
SYSTEM, TASK, TOOL = 1000, (200, 1000), (500, 2000)
# Median, sigma and most, of a lognormal: tokens of an answer, seconds of a tool.
ANSWERS, WAITS = (150, 0.7, 2048), (2.0, 1.0, 120.0)
POLICIES = ["round robin", "least loaded", "hash of the session", "knows prefixes"]
FORGETFUL = POLICIES[:2]  # a turn may reach a replica that does not know the conversation
# Bytes of a token in JSON: its text, or its id in a list.
TEXT_BYTES, ID_BYTES = 4, 7
# Of /metrics of a server that answered 20 chats.
SCRAPE_SECONDS, SCRAPE_BYTES = 15, 51_000


class Costs:
    """Milliseconds of a step: products by the rows that it has, and attention by what they attend to."""

    def __init__(self):
        # Attention of a prompt grows with its square; from the two ends of what was measured.
        (few, short), *_, (many, long) = PROMPTS
        square = (long / many - short / few) / (many - few)
        self.per_row, self.per_pair = short / few - square * few, 2 * square
        # What a step of long sequences takes more than one of as many short ones, for each token that is attended to.
        rows, length, took = LONG_STEP
        steps = {streams: 1000 * streams / rate for streams, rate in DECODING}
        near = steps[8] + (steps[64] - steps[8]) * (rows - 8) / (64 - 8)
        self.per_token = (took - near) / (rows * (length - DECODED_AT))
        self.points = [(n, took - self.per_token * n * DECODED_AT) for n, took in steps.items()]
        self.points.append((PROMPTS[0][0], self.per_row * PROMPTS[0][0]))

    def products(self, rows):
        """Between two points on a line; beyond the last, as prompts do."""
        at = min(max(bisect.bisect_left(self.points, (rows, 0)), 1), len(self.points) - 1)
        (a, x), (b, y) = self.points[at - 1 : at + 1]
        if rows >= b:
            return y + self.per_row * (rows - b)
        return x + (y - x) * (rows - a) / (b - a)

    def step(self, decoding, attended, pieces=()):
        """Seconds of a step with as many decoding sequences, whose lengths add up to `attended`; `pieces` are (before, tokens)."""
        rows = decoding + sum(tokens for _, tokens in pieces)
        pairs = sum(tokens * before + tokens * tokens / 2 for before, tokens in pieces)
        return (self.products(rows) + self.per_token * attended + self.per_pair * pairs) / 1000


COSTS = Costs()


class Conversation:
    """An agent's turns. What it draws depends on its number and the seed only, so that every policy has the same load."""

    def __init__(self, number, seed):
        self.number, self.group = number, number // GROUP
        drawn = random.Random(f"{seed} {number}")
        self.shared = SYSTEM + random.Random(f"{seed} group {self.group}").randint(*TASK)
        of = lambda median, sigma, most: [min(drawn.lognormvariate(math.log(median), sigma), most) for _ in range(TURNS)]
        self.answers, self.tools = [max(round(one), 8) for one in of(*ANSWERS)], [drawn.randint(*TOOL) for _ in range(TURNS)]
        self.waits, self.begins = of(*WAITS), drawn.random()
        self.turn, self.prompt, self.home = 0, self.shared, None


class Turn:
    def __init__(self, conversation, arrived):
        self.conversation, self.arrived, self.done, self.cached = conversation, arrived, 0, 0
        self.prompt, self.answer = conversation.prompt, conversation.answers[conversation.turn]


class Cache:
    """Blocks of what was computed: the system prompt, tasks of groups, and what conversations add. Least recently used first out."""

    def __init__(self, blocks):
        self.free = blocks - SYSTEM // BLOCK
        self.kept, self.pinned = collections.OrderedDict(), collections.Counter()

    def known(self, conversation, prompt):
        """How many tokens of a prompt are here; its last one is always computed."""
        task = self.kept.get(("task", conversation.group), 0)
        whole = (conversation.shared - SYSTEM) // BLOCK
        own = self.kept.get(("own", conversation.number), 0) if task >= whole else 0
        return min(SYSTEM // BLOCK * BLOCK + (task + own) * BLOCK, prompt - 1)

    def take(self, turn):
        """Room for a prompt and its answer, by dropping what nobody uses; False if there is not enough."""
        conversation, task = turn.conversation, (turn.conversation.shared - SYSTEM) // BLOCK
        own = -(-(turn.prompt + turn.answer - SYSTEM) // BLOCK) - task
        names = {("task", conversation.group): task, ("own", conversation.number): own}
        needed = sum(max(blocks - self.kept.get(name, 0), 0) for name, blocks in names.items())
        if needed > self.free:
            for name in [name for name in self.kept if name not in names and not self.pinned[name]]:
                dropped = min(self.kept[name], needed - self.free)
                self.free += dropped
                self.kept[name] -= dropped
                if not self.kept[name]:
                    del self.kept[name]
                if needed <= self.free:
                    break
            else:
                return False
        turn.cached = self.known(conversation, turn.prompt)
        for name, blocks in names.items():
            self.kept[name] = max(blocks, self.kept.get(name, 0))
            self.kept.move_to_end(name)
            self.pinned[name] += 1
        self.free -= needed
        return True

    def give(self, turn):
        """What it computed stays, until somebody needs the room."""
        for name in (("task", turn.conversation.group), ("own", turn.conversation.number)):
            self.pinned[name] -= 1
            if not self.pinned[name]:
                del self.pinned[name]
            self.kept.move_to_end(name)


class Replica:
    """A server: what waits, what is being read in, and what decodes; it goes on in steps."""

    def __init__(self, number, blocks=BLOCKS):
        self.number, self.cache = number, Cache(blocks)
        self.waiting, self.reading, self.decoding = collections.deque(), [], []
        self.steps, self.attended, self.begun, self.plan = 0, 0, 0.0, None
        self.held = 0.0

    def after(self, count):
        """Seconds that as many steps take while nothing but tokens are added."""
        each = COSTS.step(len(self.decoding), self.attended)
        return count * each + COSTS.per_token / 1000 * len(self.decoding) * count * (count - 1) / 2

    def planned(self, now):
        """Begins the next steps at `now`, and returns when they end; None if there is nothing to do."""
        while self.waiting and len(self.reading) + len(self.decoding) < SEATS and self.cache.take(self.waiting[0]):
            turn = self.waiting.popleft()
            turn.done = turn.cached
            self.reading.append(turn)
        self.begun = now
        if self.reading:
            left = STEP_TOKENS - len(self.decoding)
            most = STEP_TOKENS // SHARE if len(self.reading) + len(self.decoding) > 1 else STEP_TOKENS
            self.plan = []
            for turn in self.reading:
                tokens = min(turn.prompt - turn.done, most, left)
                left -= tokens
                self.plan += [(turn, tokens)] if tokens else []
            return now + COSTS.step(len(self.decoding), self.attended, [(turn.done, tokens) for turn, tokens in self.plan])
        self.plan = self.decoding[0][0] - self.steps if self.decoding else None
        return now + self.after(self.plan) if self.decoding else None

    def interrupted(self, now):
        """A turn has come while only tokens are added: when the step of this moment ends, as the new end of the plan."""
        if not isinstance(self.plan, int):
            return None
        low, high = 1, self.plan
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.begun + self.after(middle) >= now else (middle + 1, high)
        self.plan = low
        return self.begun + self.after(low)

    def finished(self):
        """Does what was planned, and returns the turns that it ended."""
        count, pieces = (self.plan, ()) if isinstance(self.plan, int) else (1, self.plan)
        self.steps += count
        self.attended += len(self.decoding) * count
        for turn, tokens in pieces:
            turn.done += tokens
            if turn.done == turn.prompt:
                self.reading.remove(turn)
                self.attended += turn.prompt
                # The first token comes of the prompt's last piece.
                heapq.heappush(self.decoding, (self.steps + turn.answer - 1, turn.conversation.number, turn))
        ended = []
        while self.decoding and self.decoding[0][0] <= self.steps:
            turn = heapq.heappop(self.decoding)[2]
            self.attended -= turn.prompt + turn.answer - 1
            self.cache.give(turn)
            ended.append(turn)
        return ended


class Router:
    """Says which replica a turn goes to."""

    def __init__(self, policy, count, seed):
        self.policy, self.loads, self.turns, self.drawn = policy, [0] * count, itertools.count(), random.Random(seed)
        self.ring = sorted((self.point(f"{number} {share}"), number) for number in range(count) for share in range(160))

    @staticmethod
    def point(name):
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")

    def least_loaded(self):
        least = min(self.loads)
        return self.drawn.choice([number for number, load in enumerate(self.loads) if load == least])

    def choose(self, conversation):
        if self.policy == "round robin":
            return next(self.turns) % len(self.loads)
        if self.policy == "hash of the session":
            at = bisect.bisect(self.ring, (self.point(f"session {conversation.number}"), 0))
            return self.ring[at % len(self.ring)][1]
        knows = self.policy == "knows prefixes" and conversation.home is not None
        return conversation.home if knows else self.least_loaded()


def simulate(policy, count, conversations, seconds, warm, seed=1):
    """What `count` replicas do with as many conversations at once, for each replica, from `warm` to `seconds`."""
    replicas = [Replica(number) for number in range(count)]
    router, order, ends = Router(policy, count, seed), itertools.count(), [None] * count
    events, numbers, turns, moved, tokens = [], itertools.count(), [], 0, 0
    for _ in range(count * conversations):
        conversation = Conversation(next(numbers), seed)
        # Not all begin at once, and none of them is at the same turn.
        heapq.heappush(events, (conversation.begins * warm / 2, next(order), conversation, None))

    def plan(replica, at):
        ends[replica.number] = at
        if at is not None:
            heapq.heappush(events, (at, next(order), None, replica))

    while events[0][0] < seconds:
        now, _, conversation, replica = heapq.heappop(events)
        if conversation is not None:
            number = router.choose(conversation)
            moved += conversation.home not in (None, number) and now >= warm
            conversation.home, replica = number, replicas[number]
            router.loads[number] += 1
            replica.waiting.append(Turn(conversation, now))
            if ends[number] is None or (at := replica.interrupted(now)) is not None:
                plan(replica, replica.planned(now) if ends[number] is None else at)
            continue
        if ends[replica.number] != now:
            continue
        for turn in replica.finished():
            router.loads[replica.number] -= 1
            conversation = turn.conversation
            added = STORE_SECONDS if policy in FORGETFUL else 0
            if now >= warm:
                turns.append((now - turn.arrived + added, turn.prompt, turn.cached))
                tokens += turn.answer
                replica.held += now - max(turn.arrived, warm)
            conversation.prompt += turn.answer + conversation.tools[conversation.turn]
            wait = conversation.waits[conversation.turn]
            conversation.turn += 1
            if conversation.turn == TURNS:
                conversation = Conversation(next(numbers), seed)
            heapq.heappush(events, (now + wait, next(order), conversation, None))
        plan(replica, replica.planned(now))
    span = seconds - warm
    latencies = sorted(latency for latency, *_ in turns)
    prompts = sum(prompt for _, prompt, _ in turns)
    held = [replica.held for replica in replicas]
    return {
        "tokens": tokens / span / count,
        "turns": len(turns) / span,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[len(latencies) * 99 // 100],
        "cached": sum(cached for *_, cached in turns) / prompts,
        "busiest": max(held) / (sum(held) / count),
        "moved": moved / len(turns),
        "prompt": prompts / len(turns),
        "running": sum(held) / span,
    }


HEAD = "| replicas | at once, each | the router | output tokens/s, each | a turn, p50 | p99 | cached | busiest | moved |"
RULE = "|---:|---:|---|---:|---:|---:|---:|---:|---:|"


def row(count, load, policy, seen):
    times = [f"{seen['p50']:.1f} s", f"{seen['p99']:.1f} s", f"{seen['cached']:.0%}", f"{seen['busiest']:.2f}", f"{seen['moved']:.0%}"]
    return "| " + " | ".join([f"{count}", f"{load}", policy, f"{seen['tokens']:,.0f}", *times]) + " |"


def front_table(seen):
    yield "| what all of them together ask | " + " | ".join(f"{one['replicas']} replicas" for one in seen) + " |"
    yield "|---|" + "---:|" * len(seen)
    for name, of in {
        "turns that the router passes, a second": lambda one: f"{one['turns']:,.0f}",
        "requests that it holds at once": lambda one: f"{one['running']:,.0f}",
        "texts that it reads, MB/s": lambda one: f"{one['turns'] * one['prompt'] * TEXT_BYTES / 1e6:,.1f}",
        "the same with ids on messages, MB/s": lambda one: f"{one['turns'] * one['prompt'] * (TEXT_BYTES + ID_BYTES) / 1e6:,.1f}",
        "events that it writes where answers are streamed, a second": lambda one: f"{one['tokens'] * one['replicas']:,.0f}",
        "reads and writes of a store, a second": lambda one: f"{2 * one['turns']:,.0f}",
        "what the store is written, MB/s": lambda one: f"{one['turns'] * one['prompt'] * 4 / 1e6:,.1f}",
        "which it holds after `--continuity-ttl`, an hour, GB": lambda one: f"{one['turns'] * one['prompt'] * 4 * 3.6e-6:,.1f}",
        "metrics, every 15 s, MB/s": lambda one: f"{one['replicas'] * SCRAPE_BYTES / SCRAPE_SECONDS / 1e6:,.2f}",
        "weights that an update reads, GB": lambda one: f"{one['replicas'] * UPDATE_GB:,}",
        "so that it takes as long as for one, GB/s": lambda one: f"{one['replicas'] * UPDATE_GB / UPDATE_SECONDS:,.1f}",
        "at 10 GB/s for all, it takes": lambda one: f"{max(one['replicas'] * UPDATE_GB / 10, UPDATE_SECONDS):,.0f} s",
    }.items():
        yield f"| {name} | " + " | ".join(map(of, seen)) + " |"


def self_test():
    """The formula gives what was measured; nothing is lost or counted twice; what must be better is."""
    for streams, rate in DECODING:
        took = COSTS.step(streams, streams * DECODED_AT)
        assert abs(took * rate / streams - 1) < 0.01, (streams, took)
    for tokens, took in PROMPTS:
        assert abs(COSTS.step(0, 0, [(0, tokens)]) * 1000 / took - 1) < 0.05, (tokens, took)
    whole, half = COSTS.step(0, 0, [(0, 8000)]), COSTS.step(0, 0, [(0, 4000)]) + COSTS.step(0, 0, [(4000, 4000)])
    assert abs(half / whole - 1) < 0.05, (half, whole)

    cache, first, second = Cache(100 + SYSTEM // BLOCK), Conversation(0, 1), Conversation(GROUP, 1)
    turns = [Turn(one, 0.0) for one in (first, second)]
    turns[0].answer = turns[1].answer = 1600
    assert cache.take(turns[0]) and turns[0].cached == SYSTEM // BLOCK * BLOCK
    assert not cache.take(turns[1]), "what is used was dropped"
    cache.give(turns[0])
    before = cache.known(first, 10**6)
    assert cache.take(turns[1]) and cache.known(first, 10**6) < before
    assert cache.free + sum(cache.kept.values()) == 100, "blocks are lost"
    # A replica alone: a step for the prompt, and all others at once.
    replica = Replica(0)
    replica.waiting.append(Turn(first, 0.0))
    between = replica.planned(0.0)
    assert not replica.finished() and replica.planned(between) and replica.plan == first.answers[0] - 1
    assert len(replica.finished()) == 1 and replica.steps == first.answers[0] and replica.attended == 0
    seen = {policy: simulate(policy, 4, 16, 40, 10) for policy in POLICIES}
    assert seen == {policy: simulate(policy, 4, 16, 40, 10) for policy in POLICIES}, "another table by the same seed"
    for policy in POLICIES:
        assert (seen[policy]["moved"] > 0.5) == (policy in FORGETFUL), seen
        assert 0 < seen[policy]["cached"] < 1 <= seen[policy]["busiest"], seen
    assert seen["knows prefixes"]["cached"] > seen["round robin"]["cached"], seen
    assert seen["knows prefixes"]["busiest"] <= seen["hash of the session"]["busiest"], seen
    print("ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--replicas", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--conversations", type=int, nargs="+", default=[32, 64], help="at once, for each replica")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--warm", type=float, default=100, help="of these, what is not counted")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=pathlib.Path, help="a page with a place for the tables")
    parser.add_argument("--self-test", action="store_true")
    asked = parser.parse_args()
    if asked.self_test:
        return self_test()
    rows, fronts = [HEAD, RULE], []
    for count, load, policy in itertools.product(asked.replicas, asked.conversations, POLICIES):
        seen = simulate(policy, count, load, asked.seconds, asked.warm, asked.seed)
        rows.append(row(count, load, policy, seen))
        print(rows[-1], file=sys.stderr, flush=True)
        if (load, policy) == (asked.conversations[-1], POLICIES[-1]):
            fronts.append(seen | {"replicas": count})
    said = f"`python3 benches/scale.py{' ' + ' '.join(sys.argv[1:]) if sys.argv[1:] else ''}`, {datetime.date.today():%d %B %Y}:"
    text = "\n".join([said, "", *rows, "", *front_table(fronts), ""])
    print(text)
    if asked.write:
        place = re.compile(r"(?<=<!-- measured -->\n).*(?=<!-- end of measured -->)", re.DOTALL)
        asked.write.write_text(place.sub(lambda _: text, asked.write.read_text()))


if __name__ == "__main__":
    main()
