"""What is known of replicas, as it goes from actor to actor."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

from .._server import Flag

Mode = Literal["abort", "wait", "keep"]


@dataclasses.dataclass(frozen=True)
class Options:
    """How replicas are started."""

    model: str
    count: int
    cpus: float
    gpus: float
    strategy: str
    binary: str | None
    environment: Mapping[str, str]
    start_seconds: float
    update_seconds: float
    stop_seconds: float
    check_seconds: float
    starts: int
    flags: Mapping[str, Flag]


@dataclasses.dataclass(frozen=True)
class Named:
    """Weights to the bit, and what answers call them."""

    version: str
    checksum: str


@dataclasses.dataclass(frozen=True)
class Weights:
    """Weights that all replicas have."""

    path: str | None
    """The directory that they were read from. None: they are those of the model."""
    named: Named | None
    """None: the engine has no checksums of weights, as it does not replace them either."""


@dataclasses.dataclass(frozen=True)
class Started:
    """A server that has started, and may not be listed before its weights are the current ones."""

    url: str
    pid: int
    named: Named | None


@dataclasses.dataclass(frozen=True)
class State:
    """A replica: whether it takes requests, and if it does not, why."""

    number: int
    state: Literal["starting", "ready", "left out"]
    """`left out` is one whose start failed as often as it may; the next update of weights has it tried again."""
    url: str | None
    """The address of its API. Only one that is ready has one, and after a restart it is another one."""
    pid: int | None
    """The number of the server's process, on its node."""
    weight_version: str | None
    """What answers call its weights. None, if it is not ready or its engine replaces no weights."""
    restarts: int
    """How often it was started again."""
    reason: str | None
    """Why it was started again the last time, or is left out."""


@dataclasses.dataclass(frozen=True)
class Updated:
    """What all replicas that take requests sample with from now on."""

    weight_version: str
    checksum: str
    replicas: list[int]
    """Those that were given the weights by this update."""
    left_out: Mapping[int, str]
    """Those that took no requests, and why. They get the weights before they take one."""


@dataclasses.dataclass(frozen=True)
class Failed:
    """An update that was undone."""

    failures: Mapping[int, str]
    """What failed, by replica."""
    restarted: Mapping[int, str]
    """Replicas that could not be put back as they are, and why: they are started again, with the weights from before."""


Outcome = Updated | Failed
