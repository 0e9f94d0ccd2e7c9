"""By how much two answers differ, and what is near enough: the arithmetic of the checks."""

import math
from dataclasses import dataclass

# An engine in bf16 may be off by this many times what the reference in bf16 is off by: other kernels round elsewhere.
MOST = 2.0
MEAN = 1.5
# Where nothing rounds visibly, in nats.
FLOOR = 2e-3
# Without a reference, in nats: what bf16 was seen to do to models of these shapes, generously.
UNKNOWN = 0.5


@dataclass
class Bound:
    """Nats by which log-probs may differ."""

    most: float
    mean: float
    why: str

    @classmethod
    def of(cls, rounded):
        """From what rounding to bf16 did to the reference; None where there is no reference."""
        if rounded is None:
            return cls(UNKNOWN, UNKNOWN, "a guess, since there was no reference")
        most, mean = FLOOR + MOST * rounded["max"], FLOOR + MEAN * rounded["mean"]
        return cls(most, mean, f"{MOST:g} x {rounded['max']:.2g}, which the reference in bf16 is off by")


@dataclass
class Difference:
    """Of two answers to one prompt."""

    most: float = 0.0  # of a log-prob; half of the leads where they part
    compared: int = 0
    parted: int | None = None  # the step

    def add(self, one, other):
        """A log-prob of each."""
        if not (math.isfinite(one) and math.isfinite(other)):
            self.most = math.inf
        self.most = max(self.most, abs(one - other))
        self.compared += 1


def lead(listed):
    """By how much the most probable token is ahead."""
    first, second, *_ = sorted(listed.values(), reverse=True)
    return first - second


def between(one, other):
    """The difference of two greedy choices, step by step until they part.

    They may part where the first two tokens are near each other. To turn the one lead into the other, log-probs have to
    be off by half of the sum of both leads at least: that is how far they are taken to differ.
    """
    found = Difference()
    logs = one["logprobs"], other["logprobs"]
    for step, (mine, theirs) in enumerate(zip(one["token_ids"], other["token_ids"], strict=True)):
        if mine != theirs:
            leads = sum(lead(log["top_logprobs"][step]) for log in logs)
            found.most = max(found.most, leads / 2)
            found.parted = step
            return found
        found.add(*(log["token_logprobs"][step] for log in logs))
    return found


def prompt_log_probs(choice, prompt):
    """Of each token of the prompt but the first."""
    entries = choice["prompt_logprobs"]
    if len(entries) != len(prompt) or entries[0] is not None:
        raise ValueError(f"{len(entries)} prompt_logprobs for {len(prompt)} tokens")
    return [entry[str(token)]["logprob"] for entry, token in zip(entries[1:], prompt[1:], strict=True)]


def with_reference(prompt, choice, told, key="log_probs"):
    """(difference of the largest, sum of all, how many, steps where the reference prefers another token).

    `told` is what the reference says of prompt and answer, which it was given: ties do not matter. Where it prefers
    another token than the greedy one, half of that lead counts, too.
    """
    mine = prompt_log_probs(choice, prompt) + choice["logprobs"]["token_logprobs"]
    theirs = told[key]
    found = Difference()
    total = 0.0
    for one, other in zip(mine, theirs, strict=True):
        found.add(one, other)
        total += abs(one - other)
    others = 0
    for step in range(len(prompt) - 1, len(mine)):
        behind = told["best"][step] - told["log_probs"][step]
        if behind > 0:
            others += 1
            found.most = max(found.most, behind / 2)
    return found, total, others
