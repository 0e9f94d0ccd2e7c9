"""A running `tito serve`, and ways to ask it; what the binary offers is found out, not presumed."""

import asyncio
import contextlib
import re
import shlex
import subprocess

from serve.client import BenchError, Client
from serve.process import Served

MODEL = "random"
READY_POLL = 0.02


class Binary:
    """The program: its version and its flags."""

    def __init__(self, path):
        self.path = path
        self.version = self._output("--version").strip()
        self._help = self._output("serve", "--help")

    def _output(self, *arguments):
        try:
            done = subprocess.run([self.path, *arguments], capture_output=True, text=True, timeout=300, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BenchError(f"{self.path} cannot be run: {error}") from None
        if done.returncode != 0:
            raise BenchError(f"{self.path} {' '.join(arguments)}: status {done.returncode}: {done.stderr[-500:]}")
        return done.stdout

    def offers(self, flag):
        """Whether `serve` has the flag."""
        return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", self._help) is not None

    def command(self, directory, flags, extra):
        """The words that start it, `{port}` among them. Flags that it lacks are left out unless they are `extra`."""
        words = [self.path, "serve", str(directory), "--host", "127.0.0.1", "--port", "{port}"]
        words += ["--served-model-name", MODEL, "--engine", "native", "--enable-prompt-tokens-details"]
        words += ["--disable-uvicorn-access-log", "--shutdown-timeout", "1"]
        flags = {"--admin-on-main-port": True, "--insecure-admin": True} | flags
        for flag, value in flags.items():
            if self.offers(flag):
                words += [flag] if value is True else [flag, str(value)]
        return shlex.join(words + extra).replace("'{port}'", "{port}")


class Session:
    """A server that runs. Everything that is not status 200 is a `BenchError`."""

    def __init__(self, served, shape, ready_s):
        self.served = served
        self.shape = shape
        self.url = served.url
        self.ready_s = ready_s
        self.client = Client(served.url, 300)

    async def post(self, path, fields, statuses=(200,)):
        """An answer's JSON."""
        reply = await self.client.send(self.client.post(path, fields))
        if reply.status not in statuses:
            said = bytes(reply.body[:500]).decode(errors="replace")
            raise BenchError(f"{path}: status {reply.status}: {said}")
        return reply.json() if reply.body else None

    async def offers(self, path):
        """Whether something is there that takes a POST."""
        return (await self.client.send(self.client.post(path, {}))).status not in (404, 405)

    async def complete(self, prompt, tokens, **fields):
        """A completion of ids, greedy unless said otherwise, which nothing but `tokens` ends."""
        asked = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        asked |= {"logprobs": 2, "return_token_ids": True, "return_tokens_as_token_ids": True}
        return await self.post("/v1/completions", asked | fields)

    async def choice(self, prompt, tokens, **fields):
        """The only choice of a completion."""
        [choice] = (await self.complete(prompt, tokens, **fields))["choices"]
        return choice

    async def gauge(self, name):
        """A metric's value over all its labels, or None where there is none of that name."""
        text = bytes((await self.client.send(self.client.get("/metrics"))).body).decode()
        values = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, values)) if values else None

    async def until(self, holds):
        """Asks again and again whether something holds, until it does."""
        while not await holds():
            await asyncio.sleep(READY_POLL)

    async def is_idle(self):
        """Whether the server has nothing left to do."""
        running = await self.gauge("vllm:num_requests_running")
        return not running and not await self.gauge("vllm:num_requests_waiting")

    async def idle(self, seconds):
        """Whether the server has nothing left to do within so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.until(self.is_idle)
                return True
        return False


@contextlib.asynccontextmanager
async def serving(command, shape, log, limit):
    """A session; its server is ended whatever happens, and has to end well."""
    served = Served(command, str(log))
    try:
        session = Session(served, shape, await served.ready("/health", limit))
        try:
            yield session
        finally:
            session.client.close()
    except (BenchError, OSError) as error:
        raise BenchError(f"{error}\n{log.name} ends with:\n{served.log_tail()}") from None
    finally:
        # Blocks for a moment: nothing else runs.
        served.kill()
