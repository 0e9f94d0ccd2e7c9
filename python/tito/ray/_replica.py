"""The actor of a replica: a server on the node where Ray places it, and its control plane, which only that node reaches."""

import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TypeVar

import ray.util

from .._admin import Refused
from .._server import Server, StartError
from ._state import Mode, Named, Options, Started

T = TypeVar("T")
HEALTH_SECONDS = 60
# Kills a process when nobody holds the other end of its input any more. The descriptor stays that process's when the
# number is another one's.
WATCH = """
import os, signal, sys
process = os.pidfd_open(int(sys.argv[1]))
sys.stdin.read()
try:
    signal.pidfd_send_signal(process, signal.SIGKILL)
except ProcessLookupError:
    pass
"""


class Denied(RuntimeError):
    """What a server refused, or did in part. It runs, and can say which weights it has."""


class WatchedServer(Server):
    """A server that is killed with the process that started it, as Ray kills actors without a word."""

    def _wait(self, seconds: float) -> None:
        self._watch = subprocess.Popen([sys.executable, "-c", WATCH, str(self.pid)], stdin=subprocess.PIPE)
        super()._wait(seconds)

    def stop(self) -> int:
        """As of any server; who watches it ends as well."""
        status = super().stop()
        if self._watch.stdin is not None:
            self._watch.stdin.close()
        self._watch.wait()
        return status

    @property
    def status(self) -> int | None:
        """How it ended, if it did."""
        return self._process.poll()


class Replica:
    """Starts a server, and asks its control plane for the coordinator."""

    def __init__(self, number: int, options: Options) -> None:
        """It is started by `start`, whose errors say more than those of an actor that could not be made."""
        self._number = number
        self._options = options
        self._server: WatchedServer | None = None

    def start(self) -> Started | str:
        """Starts the server, and says what it is, or why it did not start."""
        options = self._options
        flags = {
            "host": ray.util.get_node_ip_address(),
            "threads": max(round(options.cpus), 1),
            **options.flags,
            "port": 0,
            "admin_port": 0,
        }
        try:
            self._server = WatchedServer(
                options.model,
                binary=options.binary,
                environment=options.environment,
                start_seconds=options.start_seconds,
                stop_seconds=options.stop_seconds,
                **flags,
            )
        except (StartError, OSError) as error:
            return str(error)
        try:
            named = self.named()
        except Denied:
            named = None
        return Started(self._server.url, self._server.pid, named)

    @property
    def _running(self) -> WatchedServer:
        if self._server is None:
            raise RuntimeError("the server was not started")
        return self._server

    def fault(self) -> str | None:
        """What is wrong with the server, if anything is."""
        server = self._running
        if server.status is not None:
            return _ended(server)
        # Its certificate is not made for the address that is asked here, of the own node.
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=ssl._create_unverified_context())]
        try:
            with urllib.request.build_opener(*handlers).open(f"{server.url}/health", timeout=HEALTH_SECONDS):
                return None
        except urllib.error.HTTPError as error:
            return f"/health: {error.code} {error.read().decode(errors='replace')}"
        except OSError as error:
            return _ended(server) if server.status is not None else f"/health: {error}"

    def pause(self, mode: Mode) -> None:
        """Has nothing computed until `resume`."""
        _asked(lambda: self._running.admin.pause(mode=mode))

    def resume(self) -> None:
        """Ends a pause."""
        _asked(self._running.admin.resume)

    def update(self, path: str, version: str) -> None:
        """Replaces all weights by those of a directory."""
        updated = _asked(lambda: self._running.admin.update_weights(weight_dir=path, weight_version=version))
        brought, needed = updated.get("tensors"), updated.get("tensors_of_model")
        if brought is not None and needed is not None and brought < needed:
            what = "a replica that is started again could not get the others from there"
            raise Denied(f"{path} has {brought} of the model's {needed} tensors: {what}")

    def named(self) -> Named:
        """What the weights are, to the bit, and what answers call them."""
        admin = self._running.admin
        checksum = _asked(lambda: admin.weight_checker(action="checksum"))["model"]
        return Named(_asked(admin.weight_info)["weight_version"], checksum)

    def stop(self) -> None:
        """Ends the server when its running requests have ended."""
        if self._server is not None:
            self._server.stop()


def _ended(server: WatchedServer) -> str:
    return f"the server ended with status {server.status}:\n{server.log()}"


def _asked(call: Callable[[], T]) -> T:
    """What a call answers. What it refuses is `Denied`, as are updates that are done in part."""
    try:
        return call()
    except Refused as refused:
        raise Denied(str(refused)) from None
