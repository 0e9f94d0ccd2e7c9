"""Replicas of the server on Ray, whose weights are the same ones at every moment.

    with tito.ray.Replicas("Qwen/Qwen3-0.6B", 3, gpus=1, max_model_len=4096) as replicas:
        replicas.update_weights("/checkpoints/step-7", weight_version="step-7")
        serve.run(tito.ray.application(replicas))

Ray places them, watches their nodes and routes sessions; each of them is the program `tito serve`.
"""

try:
    import ray as _ray  # noqa: F401 (said here, what follows would fail with less)
except ModuleNotFoundError as error:
    if error.name != "ray":
        raise
    raise ModuleNotFoundError("tito.ray needs Ray: pip install 'tito-server[ray]'", name="ray") from error

from ._replicas import Replicas, StartFailed, UpdateFailed
from ._serve import application
from ._service import service
from ._state import State, Updated

__all__ = ["Replicas", "StartFailed", "State", "UpdateFailed", "Updated", "application", "service"]
