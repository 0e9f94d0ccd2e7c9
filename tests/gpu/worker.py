"""The process that has torch: started when it is first needed, and again after it had to be killed."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from serve.client import BenchError

ROOT = Path(__file__).resolve().parents[2]
# `gpu` is in the one folder, and `serve`, which it uses, in the other.
FOLDERS = os.pathsep.join(str(ROOT / folder) for folder in ("tests", "benches"))


class Worker:
    """One process of `gpu.jobs`; one job at a time."""

    def __init__(self, log):
        self._log = log
        self._process = None

    async def call(self, job, limit, **fields):
        """What the job returns; `BenchError` where it fails, or takes longer than `limit` seconds."""
        if self._process is None:
            await self._start()
        line = json.dumps({"job": job, **fields}).encode() + b"\n"
        done = False
        try:
            async with asyncio.timeout(limit):
                self._process.stdin.write(line)
                await self._process.stdin.drain()
                answer = await self._process.stdout.readline()
            done = True
        except TimeoutError:
            raise BenchError(f"the job {job!r} was cut after {limit:.0f} s") from None
        finally:
            if not done:
                await self.stop()
        if not answer:
            await self.stop()
            raise BenchError(f"the process of the job {job!r} ended; see worker.log")
        told = json.loads(answer)
        if "error" in told:
            raise BenchError(f"the job {job!r}: {told['error']}")
        return told["result"] | {"seconds": told["seconds"]}

    async def _start(self):
        environment = os.environ | {"PYTHONPATH": FOLDERS, "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"}
        with open(self._log, "ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gpu.jobs", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=log, env=environment, limit=1 << 30, start_new_session=True,
            )  # fmt: skip

    async def stop(self):
        """Ends it, which gives back the device's memory."""
        if self._process is None:
            return
        process, self._process = self._process, None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
