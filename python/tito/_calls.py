"""The calls of the control plane. Written by scripts/python-calls from openapi/control-plane.json."""

from collections.abc import Mapping
from typing import IO, Any, Literal, NotRequired, TypedDict, cast


class Aborted(TypedDict):
    status: str
    aborted: int


class Asleep(TypedDict):
    status: str
    level: int


class Awake(TypedDict):
    status: str
    tags: list[str] | None
    message: NotRequired[str]


class Checked(TypedDict):
    checksums: NotRequired[Mapping[str, str]]
    model: NotRequired[str]
    match: NotRequired[bool]
    mismatches: NotRequired[list[str]]
    status: NotRequired[str]


class Message(TypedDict):
    message: str


class Paused(TypedDict):
    is_paused: bool


class Renamed(TypedDict):
    success: bool
    message: str
    new_version: str


class Sleeping(TypedDict):
    is_sleeping: bool


class Status(TypedDict):
    status: str


class Success(TypedDict):
    success: bool


class Updated(TypedDict):
    status: NotRequired[str]
    message: NotRequired[str]
    weight_version: NotRequired[str]
    tensors: NotRequired[int]
    tensors_of_model: NotRequired[int]
    seconds: NotRequired[float]


class WeightInfo(TypedDict):
    weight_version: str
    updates: int


class Calls:
    """The calls; who inherits them says how they are asked."""

    def _ask(
        self, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | bytes | IO[bytes] | None
    ) -> Any:
        raise NotImplementedError

    def pause(self, *, mode: Literal["abort", "wait", "keep"] | None = None, clear_cache: bool | None = None) -> Status:
        """Has nothing computed until `resume`. `mode` says what becomes of requests that run: they end with what
        they have, are awaited, or stay.
        """
        answer = self._ask("POST", "/pause", {"mode": mode, "clear_cache": clear_cache}, None)
        return cast("Status", answer)

    def resume(self) -> Status:
        """Ends a pause."""
        answer = self._ask("POST", "/resume", {}, None)
        return cast("Status", answer)

    def is_paused(self) -> Paused:
        """Says whether the server is paused."""
        answer = self._ask("GET", "/is_paused", {}, None)
        return cast("Paused", answer)

    def abort_requests(self, *, request_ids: list[str] | None = None) -> Aborted:
        """Ends requests with what they have: these, or all if none is named."""
        answer = self._ask("POST", "/abort_requests", {}, {"request_ids": request_ids})
        return cast("Aborted", answer)

    def sleep(
        self,
        *,
        level: Literal[0, 1, 2] | None = None,
        mode: Literal["abort", "wait", "keep"] | None = None,
    ) -> Asleep:
        """Has nothing computed until `wake_up`; `level` 1 gives the memory of keys and values back, 2 that of the
        weights too.
        """
        answer = self._ask("POST", "/sleep", {"level": level, "mode": mode}, None)
        return cast("Asleep", answer)

    def wake_up(self, *, tags: list[Literal["weights", "kv_cache", "scheduling"]] | None = None) -> Awake:
        """Ends the sleep of all, or of what `tags` name. `message` says how many tensors have to be sent again
        first.
        """
        answer = self._ask("POST", "/wake_up", {"tags": tags}, None)
        return cast("Awake", answer)

    def is_sleeping(self) -> Sleeping:
        """Says whether the server is asleep or paused."""
        answer = self._ask("GET", "/is_sleeping", {}, None)
        return cast("Sleeping", answer)

    def reset_prefix_cache(self, *, reset_running_requests: bool | None = None) -> Success:
        """Forgets keys and values; those of requests that run, only where it is told to."""
        answer = self._ask("POST", "/reset_prefix_cache", {"reset_running_requests": reset_running_requests}, None)
        return cast("Success", answer)

    def start_weight_update(self) -> Message:
        """Begins an update of parts."""
        answer = self._ask("POST", "/start_weight_update", {}, None)
        return cast("Message", answer)

    def update_weights(
        self,
        *,
        weight_dir: str | None = None,
        weight_version: str | None = None,
        update_info: Mapping[str, Any] | None = None,
    ) -> Updated:
        """Replaces weights by those of a directory that the server reads (`weight_dir`), or writes a part of an
        update that was started (`update_info`). With a file of safetensors as the body, by those.
        """
        answer = self._ask(
            "POST",
            "/update_weights",
            {},
            {"weight_dir": weight_dir, "weight_version": weight_version, "update_info": update_info},
        )
        return cast("Updated", answer)

    def update_weights_from_bytes(self, body: bytes | IO[bytes], *, weight_version: str | None = None) -> Updated:
        """Replaces weights by those of a directory that the server reads (`weight_dir`), or writes a part of an
        update that was started (`update_info`). With a file of safetensors as the body, by those.
        """
        answer = self._ask("POST", "/update_weights", {"weight_version": weight_version}, body)
        return cast("Updated", answer)

    def finish_weight_update(self, *, weight_version: str | None = None) -> Message:
        """Ends an update of parts, and says what the weights are called from then on."""
        answer = self._ask("POST", "/finish_weight_update", {}, {"weight_version": weight_version})
        return cast("Message", answer)

    def update_weight_version(self, *, new_version: str, abort_all_requests: bool | None = None) -> Renamed:
        """Gives the weights another name."""
        answer = self._ask(
            "POST",
            "/update_weight_version",
            {},
            {"new_version": new_version, "abort_all_requests": abort_all_requests},
        )
        return cast("Renamed", answer)

    def weight_info(self) -> WeightInfo:
        """Says which weights sample now, and after how many updates."""
        answer = self._ask("GET", "/weight_info", {}, None)
        return cast("WeightInfo", answer)

    def weight_checker(
        self,
        *,
        action: Literal["checksum", "compare", "reset"],
        baseline: Mapping[str, Any] | None = None,
    ) -> Checked:
        """Gives a checksum of every tensor, compares them with others, or has all weights count as lost."""
        answer = self._ask("POST", "/weight_checker", {}, {"action": action, "baseline": baseline})
        return cast("Checked", answer)
