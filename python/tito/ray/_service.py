"""An application for files of Ray Serve, as `serve deploy` and KubeRay read them: it starts its replicas itself."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ._replicas import Replicas
from ._serve import deployed
from ._state import Mode, State, Updated

DEPLOYMENT = "replicas"
# As of `Replicas`, and what Ray needs besides.
STOP_SECONDS = 120
GRACE_SECONDS = 30
# What the file has to say, beside flags of the server and options of `Replicas`.
ARGUMENTS = ("model", "count")


def service(arguments: Mapping[str, Any]) -> Any:
    """What `import_path: tito.ray:service` of such a file names.

    Args:
        arguments: `args` of the file: `model`, `count`, and what else `Replicas` takes, flags included.

    Raises:
        ValueError: If one of the two is not there.

    """
    from ray import serve

    missing = [name for name in ARGUMENTS if name not in arguments]
    if missing:
        raise ValueError(f"args of tito.ray:service need {' and '.join(missing)}")
    options = {name: value for name, value in arguments.items() if name not in ARGUMENTS}
    # Requests that run are finished first, as long as `stop_seconds` says.
    grace = float(options.get("stop_seconds", STOP_SECONDS)) + GRACE_SECONDS
    owner = serve.deployment(
        name=DEPLOYMENT, num_replicas=1, ray_actor_options={"num_cpus": 0}, graceful_shutdown_timeout_s=grace
    )(Owner)
    count = int(arguments["count"])
    return deployed(count).bind(owner.bind(arguments["model"], count, options))


class Owner:
    """The replicas of a service. They end with this deployment, and are started anew with it.

    Programs of the same cluster find it by `serve.get_deployment_handle("replicas", "APPLICATION")`.
    """

    def __init__(self, model: str, count: int, options: Mapping[str, Any]) -> None:
        """Starts them, and waits until all are ready. Ray Serve says why they are not, and tries again."""
        self._replicas = Replicas(model, count, **options)

    def __del__(self) -> None:
        """Ray Serve calls it before it ends the deployment."""
        if hasattr(self, "_replicas"):
            self._replicas.stop()

    async def states_of_now(self) -> list[State]:
        """As of `Replicas`."""
        return await self._replicas.states_of_now()

    async def update_weights(self, weight_dir: str, weight_version: str, mode: Mode = "keep") -> Updated:
        """As of `Replicas`: all have the new weights, or none."""
        return await asyncio.to_thread(self._replicas.update_weights, weight_dir, weight_version=weight_version, mode=mode)

    async def pause(self, mode: Mode = "keep") -> None:
        """As of `Replicas`."""
        await asyncio.to_thread(self._replicas.pause, mode=mode)

    async def resume(self) -> None:
        """As of `Replicas`."""
        await asyncio.to_thread(self._replicas.resume)
