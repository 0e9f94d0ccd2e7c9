"""The server as a process: start, readiness, memory, end."""

import asyncio
import contextlib
import functools
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from .client import BenchError, Client

POLL = 0.010
POLL_TIMEOUT = 1.0
TERMINATE = 10.0
MEMORY = ("VmRSS", "VmHWM", "RssFile")


def free_ports(count):
    """Ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


class Served:
    """A server that was started here, in a process group of its own."""

    def __init__(self, command, log=None):
        port, self.admin_port = free_ports(2)
        self.command = command
        self.url = f"{'https' if '--ssl-certfile' in command else 'http'}://127.0.0.1:{port}"
        self._log = open(log, "w+b") if log else tempfile.TemporaryFile()
        ports = {"{port}": str(port), "{admin_port}": str(self.admin_port)}
        words = shlex.split(functools.reduce(lambda text, name: text.replace(name, ports[name]), ports, command))
        self._started = time.perf_counter()
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            raise BenchError(f"the server cannot be started: {error}") from None

    async def ready(self, path, timeout):
        """Seconds from exec to the first 200 for `path`, looked at every 10 ms."""
        client = Client(self.url, POLL_TIMEOUT)
        request = client.get(path)
        try:
            while True:
                before = time.perf_counter()
                if (code := self._process.poll()) is not None:
                    raise BenchError(f"the server ended with status {code}")
                if await healthy(client, request):
                    return time.perf_counter() - self._started
                if before - self._started > timeout:
                    raise BenchError(f"the server is not ready after {timeout} s")
                await asyncio.sleep(max(0.0, POLL - (time.perf_counter() - before)))
        finally:
            client.close()

    def log_tail(self):
        """The last lines of what the server wrote."""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 2000))
        return self._log.read().decode(errors="replace")

    def memory(self):
        """Bytes by name, summed over the process and its descendants. Shared pages count once for each."""
        return memory(self._process.pid)

    def processor_seconds(self):
        """What it has taken of the cores so far, its descendants too."""
        return processor_seconds(self._process.pid)

    @property
    def pid(self):
        """The number of the process."""
        return self._process.pid

    @property
    def status(self):
        """The exit status, or None while it runs."""
        return self._process.poll()

    def kill(self):
        """Ends the whole process group."""
        for number, patience in ((signal.SIGTERM, TERMINATE), (signal.SIGKILL, None)):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                pass
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                pass
        self._log.close()


async def healthy(client, request):
    """Whether a request is answered with 200 now."""
    try:
        return (await client.send(request)).status == 200
    except (OSError, BenchError):
        return False


def memory(root):
    """Bytes of `MEMORY`, summed over the process `root` and all its descendants."""
    sums = dict.fromkeys(MEMORY, 0)
    for process in descendants(root):
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        for line in status.splitlines():
            name, _, value = line.partition(":")
            if name in sums:
                sums[name] += int(value.split()[0]) * 1024
    return sums


def processor_seconds(root):
    """Of user and kernel, summed over the process `root` and all its descendants."""
    ticks = 0
    for process in descendants(root):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def descendants(root):
    """The process, its children, theirs, and so on."""
    children = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name is in parentheses, and may hold any character.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found
