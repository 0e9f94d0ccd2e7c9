"""The parts of gpu-check in their order, and what each does with servers, worker and budget."""

import asyncio
import contextlib
import shutil
import traceback
from dataclasses import replace

from serve.client import BenchError

from . import checks, shapes, speed, verdict
from .budget import Budget
from .checks import Check
from .compare import Bound
from .found import device_memory
from .session import serving
from .updates import FROM_DISK, update
from .worker import Worker

# Weights of the budget, in seconds. What a part does not take goes to those after it, so that the first ones, without which
# there is nothing to check, have room for a slow disk.
PARTS = {
    "models": 80, "roofline": 15, "small": 90, "large": 210, "reference": 30, "mixture": 85, "small speed": 40,
    "generate": 30,
}  # fmt: skip
# Blocks of the cache that a turn may find unfinished: tokens by which the cached history may fall short.
UNCACHED = 48
# Seats and tokens a step of servers whose speed is measured.
FAST = {"--max-num-seqs": 512, "--max-num-batched-tokens": 8192}
MIXTURE_MODES = ("prompts", "bursts")
GENERATED = {False: (64, 512, 64), True: (8, 24, 16)}


def on_device(name, shape, before, after):
    """Whether a server took the device's memory: one that computes elsewhere must not pass for one that does there."""
    if before is None or after is None:
        return Check(f"{name} server: on the device", False, "nvidia-smi tells no memory of a GPU")
    used = after - before
    text = f"{used / 2**30:.1f} GiB of the device are taken, the weights are {shape.file_bytes / 2**30:.1f}"
    return Check(f"{name} server: on the device", used > 0.9 * shape.file_bytes, text)


class Run:
    """What the parts share."""

    def __init__(self, options, binary, found, scratch, seconds):
        self.options = options
        self.binary = binary
        self.found = found
        self.scratch = scratch
        self.broken = False  # whether something failed that is no check
        self.names = [name for name in PARTS if name in (options.only or PARTS)]
        self.budget = Budget(seconds, {name: PARTS[name] for name in self.names})
        self.worker = Worker(found.path("worker.log"))
        self.small, self.large = (
            (shapes.TINY_QWEN3, shapes.TINY_LLAMA) if options.rehearse else (shapes.QWEN3_06B, shapes.LLAMA_8B)
        )
        self.sparse = shapes.TINY_MIXTURE if options.rehearse else shapes.QWEN3_30B_A3B
        self.sizes = speed.SMALL if options.rehearse else speed.REAL
        self._scored = None  # what the large model said, for the reference
        self._packages = {}

    @staticmethod
    def scratch_bytes(options):
        """Of all models: the large one twice, for the update, in whose place the mixture comes later."""
        return 10**8 if options.rehearse else shapes.QWEN3_06B.file_bytes + 2 * shapes.LLAMA_8B.file_bytes + 10**9

    def parts(self):
        """Names and functions, in order; each function takes its seconds."""
        run = {
            "models": self.make_models,
            "roofline": self.measure_roofline,
            "small": self.check_small,
            "large": self.run_large,
            "reference": self.refer_large,
            "mixture": self.run_mixture,
            "small speed": self.speed_small,
            "generate": self.generate,
        }
        return [(name, run[name]) for name in self.names]

    def directory(self, shape, kind="a"):
        """Where a model lies."""
        return self.scratch / f"{shape.name.replace(' ', '-')}-{kind}"

    # --- Models and machine -------------------------------------------------------------------------------------------

    async def make_models(self, limit):
        """The small one first: with it alone something can be shown."""
        try:
            self._packages = await self.worker.call("hello", limit * 0.7, device=self.options.device)
        except BenchError as error:
            self.found.loud(f"torch does not work: {error}")
        there = {name: text for name, text in self._packages.items() if name != "seconds"}
        self.found.all["machine"]["packages"] = ", ".join(f"{name} {text}" for name, text in there.items())
        if missing := [name for name in ("torch", "transformers", "numpy") if not self._packages.get(name)]:
            self.found.loud(f"this Python has no {' and no '.join(missing)}: some things are not compared or measured")
        for shape in (self.small, self.large):
            await self._make(shape, "a", limit)

    async def _make(self, shape, kind, limit):
        seed = self.options.seed + (kind != "a")
        fields = {"directory": str(self.directory(shape, kind)), "shape": shape.name, "seed": seed}
        told = await self.worker.call("model", limit, device=self.options.device, **fields)
        self.found.all.setdefault("models", {})[f"{shape.name} {kind}"] = told

    async def measure_roofline(self, limit):
        """While no server runs."""
        seconds = min(limit / 6, 2)
        told = await self.worker.call("roofline", limit, device=self.options.device, seconds=seconds)
        self.found.all["roofline"] = told
        if not told["flops"] or not told["bytes_per_s"]:
            self.found.loud("the roofline was not measured whole: no shares of it")

    @property
    def roofline(self):
        """As far as it was measured."""
        told = self.found.all.get("roofline") or {}
        return speed.wall.Roofline(told.get("bytes_per_s"), told.get("flops"))

    # --- Servers ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def serve(self, name, shape, flags, limit):
        """A session of the model with a log of its own; where it runs and how it ends are checks, too."""
        options = self.options
        rehearsal = {"--kv-cache-memory": 64 * 2**20} if options.rehearse else {}
        flags = {"--device": options.device} | rehearsal | flags
        command = self.binary.command(self.directory(shape), flags, options.serve_flags)
        log = self.found.path(f"{name.replace(' ', '-')}.log")
        before = device_memory() if options.device == "cuda" else None
        async with serving(command, shape, log, limit) as session:
            self.found.all["servers"][name] = {"command": command, "ready_s": session.ready_s}
            if options.device == "cuda":
                self.found.checked(shape.name, [on_device(name, shape, before, device_memory())])
            yield session
        told = log.read_text(errors="replace")
        if session.served.status != 0 or "panicked" in told:
            end = "\n".join(told.splitlines()[-5:])
            text = f"status {session.served.status} after SIGTERM; {log.name} ends:\n{end}"
            self.found.checked(shape.name, [Check(f"{name} server: ends well", False, text)])

    async def check(self, into, name, limit, asked):
        """One check: what it raises is its result, and what takes too long is cut."""
        try:
            async with asyncio.timeout(limit) as timeout:
                into += await asked
        except Exception as error:  # the checks after it are not to be lost
            why = f"cut after {limit:.0f} s" if timeout.expired() else "".join(traceback.format_exception_only(error))
            into.append(Check(name, False, why.strip()))

    # --- Correctness --------------------------------------------------------------------------------------------------

    async def check_small(self, limit):
        """All checks with the small model: with room, in chunks and with little room, and deterministic."""
        budget = Budget(limit, {"room": 6, "reference": 2, "pressure": 2, "deterministic": 3})
        scale = checks.SMALL if self.options.rehearse else checks.REAL
        exact = self.options.device == "cpu"
        done, kept, bound = [], {}, Bound.of(None)
        try:
            await self._with_room(done, kept, scale, exact, budget.take("room"))
            told, bound = await self._refer(self.small, kept.get("scored"), budget.take("reference"))
            done += told
            await self._with_little_room(done, kept, scale, exact, budget.take("pressure"))
            await self._deterministic(done, scale, budget.take("deterministic"))
        finally:
            for check in done:
                check.judge(bound)
            self.found.checked(self.small.name, done)

    async def _with_room(self, done, kept, scale, exact, limit):
        """What needs no other server; keeps what the others are compared with."""
        # The first start of all waits for the driver, which translates kernels.
        budget = Budget(limit, {"start": 8, "scored": 2, "keep": 5, "rest": 6})
        flags = {"--max-model-len": self._longest, "--max-num-seqs": 64, "--max-num-batched-tokens": 8192}

        async def keep(session):
            kept["long"] = await checks.long_prompt(session, scale)
            kept["crowd"] = await checks.crowd(session, scale, together=False)
            return []

        async def score(session):
            kept["scored"] = await checks.scored(session, scale)
            return []

        async with self.serve("small", self.small, flags, budget.take("start")) as session:
            await self.check(done, "greedy answers", budget.take("scored"), score(session))
            await self.check(done, "long prompt and answers one by one", budget.take("keep"), keep(session))
            rest = {"sampled": 3, "prefix_cache": 1, "many": 1, "stops": 1, "hang_up": 2}
            inner = Budget(budget.take("rest"), rest)
            for name in rest:
                fields = (exact,) if name == "sampled" else ()
                await self.check(done, name, inner.take(name), getattr(checks, name)(session, scale, *fields))

    @property
    def _longest(self):
        return 1024 if self.options.rehearse else 4096

    @property
    def _measured(self):
        """What a server has room for whose speed is measured: a prompt of `_longest`, and answers after it."""
        return 2 * self._longest

    async def _with_little_room(self, done, kept, scale, exact, limit):
        """A cache that does not hold what is asked, and prompts in chunks."""
        longest = self._longest // 2
        room = (longest + 512 if not self.options.rehearse else longest + 64) * self.small.kv_bytes
        chunk = 64 if self.options.rehearse else 256
        flags = {"--kv-cache-memory": room, "--max-model-len": longest, "--max-num-seqs": 32}
        flags |= {"--max-num-batched-tokens": chunk}
        async with self.serve("pressure", self.small, flags, limit * 0.6) as session:
            if "long" in kept:
                asked = self._in_chunks(session, scale, kept, chunk)
                await self.check(done, "prompt in chunks as in one", limit / 3, asked)
            if "crowd" in kept:
                asked = checks.pressure(session, scale, kept["crowd"], exact)
                await self.check(done, "too little room for keys and values", limit / 2, asked)

    @staticmethod
    async def _in_chunks(session, scale, kept, chunk):
        """The check of a long prompt in chunks."""
        parts = await checks.long_prompt(session, scale)
        return [checks.chunked(kept["long"], parts, f"{chunk} tokens a step against 8192")]

    async def _deterministic(self, done, scale, limit):
        """Where that is promised: the same ids, and the same bits, alone and in company."""
        if not self.binary.offers("--deterministic"):
            done.append(Check("--deterministic", None, "not offered: this binary has no such flag"))
            return
        flags = {"--deterministic": True, "--max-model-len": self._longest, "--max-num-seqs": 64}
        flags |= {"--max-num-batched-tokens": 8192}
        async with self.serve("deterministic", self.small, flags, limit * 0.6) as session:
            told = []
            await self.check(told, "seeds", limit / 2, checks.sampled(session, scale, exact=True))
            await self.check(told, "drafts", limit / 4, checks.drafted(session, scale))
            done += [replace(check, name=f"--deterministic: {check.name}") for check in told]

    async def _refer(self, shape, answers, limit):
        """(checks, bound) from the reference."""
        if not answers:
            return verdict.without_reference("there are no answers to compare")
        cases = [prompt + choice["token_ids"] for prompt, choice in answers]
        fields = {"directory": str(self.directory(shape)), "shape": shape.name, "device": self.options.device}
        try:
            told = await self.worker.call("reference", limit, cases=cases, **fields)
        except BenchError as error:
            # Where nothing is there to compare with, that is no failure.
            self.broken = self.broken or self._can_refer
            self.found.loud(f"{shape.name} was NOT compared with a reference: {error}")
            return verdict.without_reference(error)
        return verdict.by_reference(answers, told, self.options.wrong_reference)

    @property
    def _can_refer(self):
        """Whether there is anything to compute a reference with."""
        return bool(self._packages.get("transformers") or self._packages.get("numpy"))

    # --- Speed --------------------------------------------------------------------------------------------------------

    async def run_large(self, limit):
        """One server of the large model: its answers for the reference, all figures, new weights."""
        weights = {"start": 15, "scored": 5, "speed": 110, "update": 70}
        budget = Budget(limit, weights)
        flags = FAST | {"--max-model-len": self._measured}
        async with self.serve("large", self.large, flags, budget.take("start")) as session:
            done = []
            self._scored = await self._answers(done, session, budget.take("scored"))
            self.found.checked(self.large.name, done)
            await self._measure(session, budget.take("speed"))
            await self._update(session, budget.take("update"))

    async def _answers(self, done, session, limit):
        """A larger model's answers for the reference; None where they are not whole, which is a check that failed."""
        answers = []

        async def score():
            answers.extend(await checks.scored(session, checks.SMALL if self.options.rehearse else checks.LARGE))
            return []

        await self.check(done, "greedy answers", limit, score())
        return answers or None

    async def refer_large(self, limit):
        """When the server has left the device."""
        done, bound = await self._refer(self.large, self._scored, limit)
        for check in done:
            check.judge(bound)
        self.found.checked(self.large.name, done)

    async def run_mixture(self, limit):
        """A mixture of experts: made when the other models are no longer needed, checked like them, and measured."""
        budget = Budget(limit, {"model": 20, "start": 15, "scored": 15, "speed": 30, "reference": 15})
        shutil.rmtree(self.directory(self.large, "b"), ignore_errors=True)
        await self._make(self.sparse, "a", budget.take("model"))
        flags, done = FAST | {"--max-model-len": self._measured}, []
        async with self.serve("mixture", self.sparse, flags, budget.take("start")) as session:
            scored = await self._answers(done, session, budget.take("scored"))
            await self._measure(session, budget.take("speed"), MIXTURE_MODES)
        told, bound = await self._refer(self.sparse, scored, budget.take("reference"))
        for check in (done := done + told):
            check.judge(bound)
        self.found.checked(self.sparse.name, done)

    async def speed_small(self, limit):
        """All figures of the small model."""
        flags = FAST | {"--max-model-len": self._measured}
        budget = Budget(limit, {"start": 1, "speed": 8})
        async with self.serve("small speed", self.small, flags, budget.take("start")) as session:
            await self._measure(session, budget.take("speed"))

    async def _measure(self, session, limit, wanted=("prompts", "bursts", "conversations", "reuse")):
        """Every mode that is wanted within its share; each is written as soon as it is there."""
        bench = speed.Bench(session, self.roofline, self.sizes, self.options.seed)
        figures = self.found.speed(session.shape.name)
        modes = {("prompts", count): 6 for count in (1, self.sizes.prompts)}
        modes |= {("bursts", streams): 8 + streams / 16 for streams in self.sizes.concurrency}
        modes |= {("conversations", None): 20, ("reuse", None): 8}
        modes = {mode: weight for mode, weight in modes.items() if mode[0] in wanted}
        budget = Budget(limit, modes)
        for mode, count in modes:
            share, name = budget.take((mode, count)), f"{session.shape.name}, {mode}" + (f" {count}" if count else "")
            try:
                async with asyncio.timeout(share):
                    figure = await self._mode(bench, mode, count, share * 0.95)
            except (BenchError, OSError, TimeoutError) as error:
                late = type(error) is TimeoutError
                self.broken = self.broken or not late
                why = f"no figure: {f'cut after {share:.1f} s' if late else error}"
                self.found.all["cut"][name] = why
                print(f"!! {name}: {why}", flush=True)
            else:
                if count:
                    figures.setdefault(mode, []).append(figure)
                else:
                    figures[mode] = figure
                self._under_load(session.shape, name, mode, figure)
            await self._settle(session, name)
            self.found.write()

    async def _settle(self, session, name):
        """Waits for what a cut left behind; a server that is gone is told with the next figure."""
        try:
            if not await session.idle(10):
                self.found.loud(f"{name}: the server was not idle 10 s later, which the next figure may show")
        except (BenchError, OSError):
            pass

    @staticmethod
    async def _mode(bench, mode, count, limit):
        """One figure."""
        if mode == "bursts":
            return await bench.burst(count, limit)
        if mode == "prompts":
            return await bench.prompts(count, limit)
        return await getattr(bench, mode)(limit)

    def _under_load(self, shape, name, mode, figure):
        """What a figure says of correctness: no request may fail, and later turns find their history cached."""
        if figure.get("cut"):
            self.found.all["cut"][name] = f"cut: {figure['requests']} requests were whole"
        if figure.get("failed"):
            text = f"{figure['failed']} requests failed, the first with: {figure['errors'][0]}"
            self.found.checked(shape.name, [Check(f"answers under load, {mode}", False, text)])
        if mode == "conversations" and figure["uncached_of_a_turn"] is not None:
            again = figure["uncached_of_a_turn"]
            text = f"{again:.0f} tokens of a later turn's history were computed again, on average"
            ok = again <= UNCACHED
            self.found.checked(shape.name, [Check("turns pay for new tokens only", ok, text)])

    async def _update(self, session, limit):
        """New weights, from memory; the same way for either model."""
        done = []
        if await session.offers(FROM_DISK):
            await self._make(session.shape, "b", limit / 2)

        async def updated():
            here, there = (self.directory(session.shape, kind) for kind in "ab")
            told, figures = await update(session, here, there)
            self.found.all["update"] = figures
            return told

        await self.check(done, "weights updated in place", limit / 2, updated())
        for check in done:
            check.judge(Bound.of(None))
        self.found.checked(session.shape.name, done)

    async def generate(self, limit):
        """transformers on the same weights, the large model first."""
        if not self._packages.get("torch") or not self._packages.get("transformers"):
            self.found.loud("transformers' generate was not measured: torch or transformers is not there")
            return
        streams, tokens_in, tokens_out = GENERATED[self.options.rehearse]
        sizes = {"streams": streams, "tokens_in": tokens_in, "tokens_out": tokens_out}
        fields = {"directory": str(self.directory(self.large)), "device": self.options.device}
        self.found.all["generate"][self.large.name] = await self.worker.call("generate", limit, **fields, **sizes)
