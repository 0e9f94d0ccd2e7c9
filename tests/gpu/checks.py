"""What a server has to get right, asked over HTTP.

Each check returns `Check`s: either judged at once, or with a difference that is judged when the bound is known, which
the reference gives after the server has left the device.
"""

import asyncio
import random
from dataclasses import dataclass, field

from serve.client import BenchError, Client

from .compare import between, prompt_log_probs
from .shapes import text_ids

HANG_UP_SECONDS = 15


@dataclass
class Check:
    """One result. `ok` is None for what is told, not judged."""

    name: str
    ok: bool | None
    text: str
    difference: float | None = None
    figures: dict = field(default_factory=dict)

    def judge(self, bound):
        """With a difference: whether it is within the bound."""
        if self.difference is not None:
            near = self.difference <= bound.most
            self.ok = near if self.ok is None else self.ok and near
            self.text += f"; log-probs at most {self.difference:.2g} apart, {bound.most:.2g} allowed"


@dataclass
class Scale:
    """How long prompts and answers are."""

    prompts: tuple
    output: int
    long: int  # of the prompt that is computed in chunks, and of the one that is cached
    sampled: int  # requests that are asked alone and together
    pressed: tuple  # (requests, tokens in, tokens out) that do not fit the small cache together


REAL = Scale(prompts=(1, 9, 70, 300, 1000), output=32, long=1500, sampled=32, pressed=(16, 200, 200))
LARGE = Scale(prompts=(9, 70, 600), output=24, long=1500, sampled=16, pressed=(16, 200, 200))
SMALL = Scale(prompts=(1, 9, 70, 200), output=16, long=300, sampled=16, pressed=(12, 60, 200))


def draw(shape, seed, count):
    """Random ids."""
    return random.Random(f"gpu-check {seed}").choices(text_ids(shape.vocab), k=count)


async def scored(session, scale):
    """Prompts and the greedy answers to them, which the reference is to score: [(prompt, choice)]."""
    prompts = [draw(session.shape, f"scored {length}", length) for length in scale.prompts]
    choices = [await session.choice(prompt, scale.output, prompt_logprobs=0) for prompt in prompts]
    return list(zip(prompts, choices, strict=True))


async def sampled(session, scale, exact):
    """The same seeds alone, together with others, and so once more; `exact` if the server promises the same bits."""
    prompts = [draw(session.shape, f"sampled {index}", 20 + 7 * index) for index in range(scale.sampled)]

    def ask(index, salt):
        fields = {"temperature": 1.0, "seed": index, "cache_salt": f"{salt} {index}"}
        return session.choice(prompts[index], scale.output, **fields)

    alone = [await ask(index, "alone") for index in range(scale.sampled)]
    again = [await ask(index, "again") for index in range(min(4, scale.sampled))]
    rounds = [await asyncio.gather(*(ask(index, salt) for index in range(scale.sampled))) for salt in ("one", "two")]
    repeated = sum(one["token_ids"] == other["token_ids"] for one, other in zip(alone, again, strict=False))
    company = [same(alone, together) for together in rounds]
    between_rounds = same(*rounds)
    bits = [same_bits(alone, together) for together in rounds]
    text = f"{repeated} of {len(again)} requests have the same ids when asked alone again"
    checks = [Check("same seed, alone and again", repeated == len(again), text)]
    text = f"of {scale.sampled} seeds asked at once {company[0]} and {company[1]} have the ids that they had alone, "
    text += f"{bits[0]} and {bits[1]} each bit of their log-probs; {between_rounds} have the same in both rounds"
    whole = (company + bits) == [scale.sampled] * 4
    found = Check("same seed, alone and in company", whole if exact else None, text)
    found.figures = {"asked": scale.sampled, "as_alone": company, "bits_as_alone": bits, "rounds": between_rounds}
    kinds = len({tuple(choice["token_ids"]) for choice in alone})
    seeds = Check("seeds count", kinds == scale.sampled, f"{kinds} different answers to {scale.sampled} requests")
    return [*checks, found, seeds]


async def drafted(session, scale):
    """The same seeds twice: what was sampled the first time is a draft the second time, and changes no bit."""
    prompts = [draw(session.shape, f"drafted {index}", 20 + 7 * index) for index in range(scale.sampled)]

    async def ask(index):
        return await session.choice(prompts[index], scale.output, temperature=1.0, seed=index, cache_salt="drafted")

    async def accepted():
        return await session.gauge("vllm:spec_decode_num_accepted_tokens_total") or 0

    before = await accepted()
    first = [await ask(index) for index in range(scale.sampled)]
    between_them = await accepted()
    again = [await ask(index) for index in range(scale.sampled)]
    right = [between_them - before, await accepted() - between_them]
    text = f"{same_bits(first, again)} of {scale.sampled} seeds have each bit of their log-probs when asked again; "
    text += f"{right[0]:.0f} tokens were drafted rightly the first time, {right[1]:.0f} the second time"
    whole = same(first, again) == same_bits(first, again) == scale.sampled
    return [Check("drafts change no bit", whole and right[1] > right[0], text)]


def same(some, others):
    """How many choices have the same ids."""
    return sum(one["token_ids"] == other["token_ids"] for one, other in zip(some, others, strict=True))


def same_bits(some, others):
    """How many choices have the same log-probs, number for number."""
    return sum(one["logprobs"] == other["logprobs"] for one, other in zip(some, others, strict=True))


async def prefix_cache(session, scale):
    """A prompt with nothing cached, once more, once more with another salt, and continued."""
    prompt = draw(session.shape, "cached", scale.long)
    bodies = [await session.complete(prompt, scale.output, cache_salt=salt) for salt in ("a", "a", "b")]
    cached = [body["usage"]["prompt_tokens_details"]["cached_tokens"] for body in bodies]
    cold, warm, other = (body["choices"][0] for body in bodies)
    found = [between(cold, warm), between(cold, other)]
    ok = cached[0] == 0 and cached[2] == 0 and cached[1] >= 0.9 * len(prompt) - 64
    text = f"a prompt of {len(prompt)} tokens: {cached[0]} cached, then {cached[1]}, with another salt {cached[2]}"
    checks = [Check("prefix cache, warm as cold", ok, text + parted(found), max(one.most for one in found))]

    longer = prompt + cold["token_ids"] + draw(session.shape, "continued", 20)
    bodies = [await session.complete(longer, scale.output, cache_salt=salt) for salt in ("a", "c")]
    cached = [body["usage"]["prompt_tokens_details"]["cached_tokens"] for body in bodies]
    found = [between(*(body["choices"][0] for body in bodies))]
    ok = cached[1] == 0 and cached[0] >= 0.9 * len(prompt) - 64
    text = f"continued to {len(longer)} tokens: {cached[0]} cached"
    return [*checks, Check("prefix cache, a second turn", ok, text + parted(found), found[0].most)]


def parted(found):
    """What is said of answers that part at a near tie."""
    steps = [one.parted for one in found if one.parted is not None]
    return f"; {len(steps)} of {len(found)} answers part at a near tie" if steps else ""


async def many(session, scale):
    """n choices of one prompt."""
    prompt = draw(session.shape, "many", 40)
    body = await session.complete(prompt, scale.output, n=4, temperature=1.0, seed=7)
    choices = body["choices"]
    lengths = [len(choice["token_ids"]) for choice in choices]
    kinds = len({tuple(choice["token_ids"]) for choice in choices})
    whole = [choice["index"] for choice in choices] == [0, 1, 2, 3] and lengths == [scale.output] * 4
    said = body["usage"]["completion_tokens"]
    ok = whole and kinds == 4 and said == 4 * scale.output
    return [Check("n = 4", ok, f"{kinds} different answers of {lengths} tokens, usage says {said}")]


async def stops(session, scale):
    """A stop id and a stop string end an answer where it has them."""
    prompt = draw(session.shape, "stops", 30)
    ids = (await session.choice(prompt, scale.output))["token_ids"]
    # The last step with an id that is new then, and that has a text of its own.
    texts = text_ids(session.shape.vocab)
    at = max(step for step, id in enumerate(ids) if id in texts and id not in ids[:step])
    by_id = await session.choice(prompt, scale.output, stop_token_ids=[ids[at]])
    ok = by_id["token_ids"] == ids[: at + 1] and by_id["finish_reason"] == "stop"
    text = f"{len(by_id['token_ids'])} tokens, {by_id['finish_reason']!r}, instead of {at + 1}"
    checks = [Check("stop_token_ids", ok, text)]
    text = (await session.post("/detokenize", {"model": "random", "tokens": [ids[at]]}))["prompt"]
    by_text = await session.choice(prompt, scale.output, stop=[text])
    ok = by_text["token_ids"] == ids[: at + 1] and by_text["stop_reason"] == text and text not in by_text["text"]
    said = f"{len(by_text['token_ids'])} tokens, stop_reason {by_text['stop_reason']!r} for {text!r}"
    return [*checks, Check("stop", ok, said)]


async def hang_up(session, scale):
    """Clients that vanish in the middle leave their seats, and the next one is served."""
    tokens = 900 if scale is SMALL else 4000
    client = Client(session.url, 60)
    target = {"model": "random", "max_tokens": tokens, "ignore_eos": True, "temperature": 1.0, "stream": True}
    jobs = []
    for index in range(8):
        request = client.post("/v1/completions", target | {"prompt": draw(session.shape, f"gone {index}", 30)})
        jobs.append(asyncio.create_task(client.send(request)))
    most = 0

    async def run_at_once():
        nonlocal most
        most = max(most, await session.gauge("vllm:num_requests_running") or 0)
        return most == len(jobs) or all(job.done() for job in jobs)

    await session.until(run_at_once)
    ended = sum(job.done() for job in jobs)
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    client.close()
    idle = await session.idle(HANG_UP_SECONDS)
    used = await session.gauge("vllm:kv_cache_usage_perc")
    served = len((await session.choice(draw(session.shape, "after", 10), 4))["token_ids"]) == 4
    text = f"{most:.0f} of {len(jobs)} ran at once, {ended} had ended when the clients went; "
    text += f"{'idle' if idle else f'NOT idle after {HANG_UP_SECONDS} s'}, cache usage {used}, "
    text += "the next request is served" if served else "the next request is NOT served"
    if most <= ended:
        return [Check("hang up", None if idle and served else False, f"NOTHING WAS SHOWN: {text}")]
    return [Check("hang up", idle and served, text)]


async def long_prompt(session, scale):
    """Log-probs of a long prompt, to be compared with those of a server that computes it in other chunks."""
    prompt = draw(session.shape, "long", scale.long)
    return prompt_log_probs(await session.choice(prompt, 1, prompt_logprobs=0, cache_salt="long"), prompt)


def chunked(whole, parts, how):
    """The check of two `long_prompt`s."""
    most = max(abs(one - other) for one, other in zip(whole, parts, strict=True))
    return Check("prompt in chunks as in one", None, f"{len(whole)} log-probs, {how}", most)


async def crowd(session, scale, together):
    """Greedy answers to prompts of one size, one by one or all at once."""
    count, tokens_in, tokens_out = scale.pressed
    prompts = [draw(session.shape, f"pressed {index}", tokens_in) for index in range(count)]
    if together:
        # They begin at once, however long a busy machine takes to send them.
        await session.post("/pause?mode=keep", {})
        asked = [asyncio.create_task(session.choice(prompt, tokens_out)) for prompt in prompts]

        async def wait_or_ended():
            return await session.gauge("vllm:num_requests_waiting") >= count or any(task.done() for task in asked)

        await session.until(wait_or_ended)
        await session.post("/resume", {})
        return await asyncio.gather(*asked)
    return [await session.choice(prompt, tokens_out) for prompt in prompts]


async def pressure(session, scale, alone, exact):
    """More sequences than the cache holds: some are preempted, and none is the worse for it."""
    before = await session.gauge("vllm:num_preemptions_total")
    if before is None:
        raise BenchError("/metrics has no vllm:num_preemptions_total")
    together = await crowd(session, scale, together=True)
    preempted = await session.gauge("vllm:num_preemptions_total") - before
    found = [between(one, other) for one, other in zip(alone, together, strict=True)]
    text = f"{preempted:.0f} preemptions of {len(alone)} sequences, {same(alone, together)} have the ids as with room"
    ok = preempted > 0 and (not exact or same(alone, together) == len(alone))
    return [Check("too little room for keys and values", ok, text + parted(found), max(one.most for one in found))]
