"""What a program holds of its replicas. It may be given to other tasks and actors of Ray."""

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import ray
import ray.exceptions

from .._server import Flag
from ._coordinator import Coordinator
from ._state import Failed, Mode, Options, State, Updated

# What every replica gets one of its own.
OWN = {"port": "a free port", "admin_port": "a free port", "admin_on_main_port": "a control plane that only Ray reaches"}


class StartFailed(RuntimeError):  # noqa: N818 (what became of them)
    """Replicas that did not start: `states` says why."""

    def __init__(self, states: list[State]) -> None:
        failed = [f"replica {state.number}: {state.reason or state.state}" for state in states if state.state != "ready"]
        super().__init__("\n".join(failed))
        self.states = states

    def __reduce__(self) -> tuple[type["StartFailed"], tuple[list[State]]]:
        """For other processes."""
        return StartFailed, (self.states,)


class UpdateFailed(RuntimeError):  # noqa: N818 (what became of it)
    """An update that left the old weights in every replica. `failures` says by replica what went wrong.

    `restarted` are those that could not be put back as they are: they take no request until they have been started again
    and have the old weights.
    """

    def __init__(self, version: str, failures: Mapping[int, str], restarted: Mapping[int, str]) -> None:
        said = [f"replica {number}: {what}" for number, what in sorted(failures.items())]
        said += [f"replica {number} is started again: {what}" for number, what in sorted(restarted.items())]
        super().__init__(f"no replica has the weights {version}:\n" + "\n".join(said))
        self.version, self.failures, self.restarted = version, failures, restarted

    def __reduce__(self) -> tuple[type["UpdateFailed"], tuple[str, Mapping[int, str], Mapping[int, str]]]:
        """For other processes."""
        return UpdateFailed, (self.version, self.failures, self.restarted)


class Replicas:
    """Servers of one model on Ray, each an actor in a place of one placement group.

    A dead one is started again in its place, at another address, with the weights that the others have by then. All are
    stopped by `stop`, at the end of a `with`, or when the program that made this has ended.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        count: int,
        /,
        *,
        cpus: float = 1,
        gpus: float = 0,
        strategy: str = "PACK",
        binary: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        start_seconds: float = 1800,
        update_seconds: float = 1800,
        stop_seconds: float = 120,
        check_seconds: float = 1,
        starts: int = 3,
        **flags: Flag,
    ) -> None:
        """Starts them, and waits until all are ready.

        Args:
            model: A directory or a GGUF file, which every node reads under this name, or a name of the hub.
            count: How many there are.
            cpus: Processors that Ray sets aside for each: the server has as many threads, unless `threads` says how many.
            gpus: GPUs that Ray sets aside for each, and shows to it.
            strategy: How Ray spreads them over nodes: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
            binary: Another program than the installed one.
            environment: What is added to each server's environment, such as keys.
            start_seconds: How long a replica may take to be placed, and then to start.
            update_seconds: How long a replica may take to read weights.
            stop_seconds: How long running requests may take to end before a server is killed.
            check_seconds: Between two looks at the health of each.
            starts: How often in a row a start may fail before a replica is left out.
            flags: Flags of `tito serve`. The host is the address that Ray has for the node.

        Raises:
            StartFailed: If one of them did not start.

        """
        if count < 1:
            raise ValueError(f"count: there has to be a replica: {count}")
        if not cpus and not gpus:
            raise ValueError("cpus, gpus: a replica without either has no place of its own")
        for name in OWN.keys() & flags.keys():
            raise ValueError(f"{name}: each replica has {OWN[name]}")
        path = os.fspath(model)
        options = Options(
            os.path.abspath(path) if os.path.exists(path) else path,
            count,
            cpus,
            gpus,
            strategy,
            os.path.abspath(binary) if binary else None,
            dict(environment or {}),
            start_seconds,
            update_seconds,
            stop_seconds,
            check_seconds,
            starts,
            flags,
        )
        self._count = count
        self._coordinator: Any = ray.remote(Coordinator).options(num_cpus=0, max_concurrency=64).remote(options)
        try:
            self.wait(starts * 2 * start_seconds)
        except BaseException:
            self.stop()
            raise

    def __len__(self) -> int:
        """How many there are, ready or not."""
        return self._count

    def states(self) -> list[State]:
        """Every replica: where it is, which weights it has, and if it is not ready, why."""
        states: list[State] = ray.get(self._coordinator.states.remote())
        return states

    async def states_of_now(self) -> list[State]:
        """Likewise, for who has other things to do meanwhile."""
        states: list[State] = await self._coordinator.states.remote()
        return states

    def urls(self) -> dict[int, str]:
        """The addresses of those that are ready."""
        return {state.number: state.url for state in self.states() if state.url is not None}

    def wait(self, seconds: float) -> list[State]:
        """Waits until all are ready.

        Raises:
            StartFailed: If one is left out, or is not ready in time.

        """
        states: list[State] = ray.get(self._coordinator.settled.remote(seconds))
        if any(state.state != "ready" for state in states):
            raise StartFailed(states)
        return states

    def update_weights(self, weight_dir: str | os.PathLike[str], *, weight_version: str, mode: Mode = "keep") -> Updated:
        """Has all replicas sample with the weights of a directory from now on, or none.

        All are paused while they read it, so that nobody gets tokens of the new weights before all have them. The directory
        has all tensors of the model, and stays as it is until the next update has succeeded: a replica that is started again
        reads it.

        Args:
            weight_dir: The directory, which every node reads under this name.
            weight_version: What the weights are called in answers.
            mode: What becomes of requests that run: `keep`, `wait` or `abort`, as of `tito.Admin.pause`.

        Raises:
            UpdateFailed: If one failed. The old weights are in all of them.

        """
        path = os.path.abspath(weight_dir)
        outcome = ray.get(self._coordinator.update_weights.remote(path, weight_version, mode))
        if isinstance(outcome, Failed):
            raise UpdateFailed(weight_version, outcome.failures, outcome.restarted)
        updated: Updated = outcome
        return updated

    def pause(self, *, mode: Mode = "keep") -> None:
        """Has nothing computed by any of them until `resume`, whatever is updated or started meanwhile.

        Raises:
            RuntimeError: If one refused, which is named. The others are paused.

        """
        _none_of(ray.get(self._coordinator.pause.remote(mode)))

    def resume(self) -> None:
        """Ends a pause.

        Raises:
            RuntimeError: If one refused, which is named. The others go on.

        """
        _none_of(ray.get(self._coordinator.resume.remote()))

    def stop(self) -> None:
        """Stops all, when their running requests have ended."""
        try:
            ray.get(self._coordinator.stop.remote())
        except ray.exceptions.RayActorError:
            # They have ended with it.
            return
        ray.kill(self._coordinator)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def _none_of(failures: Mapping[int, str]) -> None:
    if failures:
        raise RuntimeError("\n".join(f"replica {number}: {what}" for number, what in sorted(failures.items())))
