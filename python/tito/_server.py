"""Starts and stops the program `tito serve`."""

import atexit
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ._admin import Admin

Flag = str | int | float | bool | None | os.PathLike[str] | Sequence[str | int] | Mapping[str, Any]

# What the server says once it listens, as whole lines: where the control plane is, and last its own address.
ADMIN = re.compile(rb"^the control plane is at (\S+)\n", re.MULTILINE)
BANNER = re.compile(rb"^tito \S+ \| .* \| (\S+)\n", re.MULTILINE)
# Between two looks at the log.
LOOK_SECONDS = 0.05
LINES_OF_AN_ERROR = 50


class StartError(RuntimeError):
    """The server did not start. `log` is the end of what it said, `status` how it ended, if it did by itself."""

    def __init__(self, what: str, log: str, status: int | None) -> None:
        super().__init__(f"{what}:\n{log}")
        self.what = what
        self.log = log
        self.status = status

    def __reduce__(self) -> tuple[type["StartError"], tuple[str, str, int | None]]:
        """For other processes."""
        return StartError, (self.what, self.log, self.status)


def program() -> pathlib.Path:
    """The program that was installed with this module. No other one is looked for, such as an older one in the PATH."""
    distribution = importlib.metadata.distribution("tito-server")
    recorded = [file for file in distribution.files or [] if file.name == "tito" and file.parent.name != "tito"]
    # `pip install --target` has it elsewhere than it records.
    beside = pathlib.Path(__file__).resolve().parents[1] / "bin" / "tito"
    found = [pathlib.Path(str(file.locate())).resolve() for file in recorded] + [beside]
    for path in found:
        if path.is_file():
            return path
    raise FileNotFoundError(f"tito-server is installed without its program: looked for {', '.join(map(str, found))}")


def arguments(flags: Mapping[str, Flag]) -> list[str]:
    """Flags as the command line has them: `max_model_len=4096` is `--max-model-len=4096`."""
    out = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        match value:
            case None:
                pass
            case True:
                out.append(flag)
            case False:
                out.append("--no-" + flag.removeprefix("--"))
            case str() | int() | float() | os.PathLike():
                out.append(f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
            case Mapping():
                out.append(f"{flag}={json.dumps(value)}")
            case Sequence():
                # A flag that is given twice counts once.
                values = [str(one) for one in value]
                if not values or any(one.startswith("-") for one in values):
                    raise ValueError(f"{name}: a list has to have values, and none may begin with `-`: {values}")
                out += [flag, *values]
            case _:
                raise TypeError(f"{name}: the command line has nothing for a {type(value).__name__}")
    return out


def _first_key(flags: Mapping[str, Flag], environment: Mapping[str, str]) -> str:
    """A key that opens the control plane, in the order in which the server looks for them."""
    for flag, variable in (("admin_api_key", "TITO_ADMIN_API_KEY"), ("api_key", "VLLM_API_KEY")):
        keys = flags.get(flag) or environment.get(variable)
        if keys:
            return str(keys[0]) if isinstance(keys, Sequence) and not isinstance(keys, str) else str(keys)
    return ""


class Server:
    """A running `tito serve`: ready when it is made, and stopped by `stop` or at the end of a `with`.

    All other arguments are flags of `tito serve`: `max_model_len=4096`, `True` and `False` for switches, lists for
    flags that take several values, dicts for JSON. The host is 127.0.0.1 and the port a free one, unless they are given.
    """

    url: str
    """The address of the API."""
    log_file: pathlib.Path
    """What the server says. A file, as a pipe that nobody reads would stop it."""

    def __init__(
        self,
        model: str | os.PathLike[str],
        /,
        *,
        binary: str | os.PathLike[str] | None = None,
        log_file: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        start_seconds: float = 1800,
        stop_seconds: float = 120,
        **flags: Flag,
    ) -> None:
        """Starts it.

        Args:
            model: A directory, a GGUF file or a name of the hub.
            binary: Another program than the installed one.
            log_file: Where the log goes, instead of a file that is deleted in the end.
            environment: What is added to this process's environment, such as keys, which flags would show to others.
            start_seconds: How long it may take; a model of the hub is fetched first.
            stop_seconds: How long its running requests may take to end before it is killed.
            flags: Flags of `tito serve`.

        Raises:
            StartError: If it ended, or was not ready in time.

        """
        command = [os.fspath(binary or program()), "serve", os.fspath(model)]
        command += arguments({"host": "127.0.0.1", "port": 0, **flags})
        environment = {**os.environ, **(environment or {})}
        self._admin_key = _first_key(flags, environment)
        self._on_main_port = flags.get("admin_on_main_port") is True
        self._admin: Admin | None = None
        self._stop_seconds = stop_seconds
        self._deletes_log = log_file is None
        if log_file is None:
            handle, name = tempfile.mkstemp(prefix="tito-", suffix=".log")
            os.close(handle)
        else:
            name = os.fspath(log_file)
        self.log_file = pathlib.Path(name)
        try:
            with self.log_file.open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
                )
        except OSError:
            self._delete_log()
            raise
        # However this process ends in order, no server is left.
        atexit.register(self.stop)
        try:
            self._wait(start_seconds)
        except BaseException:
            self._process.kill()
            self.stop()
            raise

    def _wait(self, seconds: float) -> None:
        """Waits until the server says its address."""
        deadline = time.monotonic() + seconds
        while (banner := BANNER.search(self.log_file.read_bytes())) is None:
            try:
                status = self._process.wait(LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    raise StartError(f"the server was not ready within {seconds} s", self.log(), None) from None
            else:
                raise StartError(f"the server ended with status {status}", self.log(), status)
        self.url = banner[1].decode()
        said = ADMIN.search(self.log_file.read_bytes())
        at = said[1].decode() if said else self.url if self._on_main_port else None
        self._admin = Admin(at, self._admin_key) if at else None

    @property
    def pid(self) -> int:
        """The number of the server's process."""
        return self._process.pid

    @property
    def admin(self) -> Admin:
        """The control plane, where a flag opens it."""
        if self._admin is None:
            what = "this server has no control plane: start it with admin_port=0, or with admin_on_main_port=True"
            raise RuntimeError(what)
        return self._admin

    def log(self, lines: int = LINES_OF_AN_ERROR) -> str:
        """The end of what the server has said."""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> int:
        """Asks the server to end, waits until its running requests have ended, and kills it when that takes too long.

        Returns:
            Its status: 0, or the negative number of the signal that killed it.

        """
        atexit.unregister(self.stop)
        self._process.terminate()
        try:
            status = self._process.wait(self._stop_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._delete_log()
        return status

    def _delete_log(self) -> None:
        if self._deletes_log:
            self.log_file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
