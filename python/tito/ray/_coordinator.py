"""The actor that knows which replicas there are and which weights they have. It alone changes either.

Its rules, from which it follows that nobody gets tokens of other weights than the answer names:

- Only a replica that is ready is listed, and it is ready only once its weights have the checksum of the current ones.
- An update pauses all that are ready, gives each the weights, compares their checksums, and only then lets them go on.
- What fails before that puts the old weights back. A replica in which they are not to the bit what they were is killed.
- Ray restarts no replica by itself: it would have the weights of the model.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable
from typing import Any

import ray
import ray.exceptions
import ray.util
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ._replica import HEALTH_SECONDS, Denied, Replica
from ._state import Failed, Mode, Named, Options, Outcome, Started, State, Updated, Weights

# What a replica's own calls may take that do not depend on the model.
CALL_SECONDS = 120


@dataclasses.dataclass
class Slot:
    """The place of a replica: the actor in it changes."""

    number: int
    actor: Any = None
    started: Started | None = None
    ready: bool = False
    left_out: bool = False
    restarts: int = 0
    reason: str | None = None


class Coordinator:
    """Places replicas, starts dead ones again, and changes the weights of all of them as one."""

    def __init__(self, options: Options) -> None:
        """Reserves the room for all replicas, and begins to start them."""
        self._options = options
        self._slots = [Slot(number) for number in range(options.count)]
        # Held for short looks at the slots, and told of changes.
        self._changed = threading.Condition()
        # Held while weights change, while a replica gets the current ones, and while all are paused.
        self._weighing = threading.RLock()
        self._weights: Weights | None = None
        self._checksums: dict[str, str] = {}
        self._paused: Mode | None = None
        self._urls: set[str] = set()
        self._stopping = threading.Event()
        bundle = {"CPU": options.cpus, "GPU": options.gpus}
        bundles = [{name: amount for name, amount in bundle.items() if amount} for _ in self._slots]
        self._group = ray.util.placement_group(bundles, strategy=options.strategy)
        for slot in self._slots:
            threading.Thread(target=self._start, args=(slot,), daemon=True).start()

    # --- What is known -----------------------------------------------------------------------------------------------

    def states(self) -> list[State]:
        """Every replica."""
        with self._changed:
            return [self._state(slot) for slot in self._slots]

    def _state(self, slot: Slot) -> State:
        state = "ready" if slot.ready else "left out" if slot.left_out else "starting"
        started = slot.started if slot.ready else None
        version = started.named.version if started and started.named else None
        url, pid = (started.url, started.pid) if started else (None, None)
        return State(slot.number, state, url, pid, version, slot.restarts, slot.reason)  # type: ignore[arg-type]

    def settled(self, seconds: float) -> list[State]:
        """Every replica, once none is starting, or after as many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: all(slot.ready or slot.left_out for slot in self._slots), seconds)
            return self.states()

    # --- Starting ----------------------------------------------------------------------------------------------------

    def _start(self, slot: Slot) -> None:
        """Starts a replica, as often as it may fail, until it is ready."""
        for attempt in range(self._options.starts):
            if attempt == 0 and not self._placed():
                slot.reason = f"Ray had no room for it within {self._options.start_seconds} s"
                break
            reason = self._start_once(slot)
            if reason is None or self._stopping.is_set():
                return
            slot.reason = reason
            self._kill(slot.actor)
        with self._changed:
            slot.left_out = True
            self._changed.notify_all()

    def _placed(self) -> bool:
        try:
            ray.get(self._group.ready(), timeout=self._options.start_seconds)
        except ray.exceptions.GetTimeoutError:
            return False
        return True

    def _start_once(self, slot: Slot) -> str | None:
        """Starts a server with the current weights, or says why there is none."""
        options = self._options
        try:
            place = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=slot.number)
            made = ray.remote(Replica).options(
                num_cpus=options.cpus, num_gpus=options.gpus, max_restarts=0, max_concurrency=8, scheduling_strategy=place
            )
            slot.actor = made.remote(slot.number, options)
            # The server's own limit ends first, and its error says more.
            started = ray.get(slot.actor.start.remote(), timeout=options.start_seconds + CALL_SECONDS)
        except ray.exceptions.GetTimeoutError:
            return f"its actor did not start within {options.start_seconds + CALL_SECONDS} s"
        except ray.exceptions.RayError as error:
            return _said(error)
        if isinstance(started, str):
            return started
        with self._weighing:
            try:
                reason = self._join(slot, started)
            except ray.exceptions.RayError as error:
                reason = _said(error)
        return reason

    def _join(self, slot: Slot, started: Started) -> str | None:
        """Gives a new server the current weights, and lists it; or says why that cannot be."""
        if started.url in self._urls:
            # Who knows the address of the dead one must not reach this one before it is ready.
            return f"{started.url} was another replica's address before"
        self._urls.add(started.url)
        if self._weights is None:
            self._weights = Weights(None, started.named)
            if started.named is not None:
                self._checksums[started.named.version] = started.named.checksum
        path, current = self._weights.path, self._weights.named
        named = started.named
        if path is not None and current is not None:
            self._get(slot.actor.update.remote(path, current.version))
            named = self._get(slot.actor.named.remote())
        if named != current:
            version = current.version if current else "of the engine"
            return f"{path or self._options.model} holds no longer the weights {version} that the other replicas have"
        if self._paused is not None:
            self._get(slot.actor.pause.remote(self._paused))
        with self._changed:
            slot.started, slot.ready, slot.left_out = Started(started.url, started.pid, named), True, False
            self._changed.notify_all()
        threading.Thread(target=self._watch, args=(slot, slot.actor), daemon=True).start()
        return None

    # --- Health ------------------------------------------------------------------------------------------------------

    def _watch(self, slot: Slot, actor: Any) -> None:
        """Looks after a replica that is ready, and has another one started when it is not well."""
        while not self._stopping.wait(self._options.check_seconds):
            if slot.actor is not actor or not slot.ready:
                return
            try:
                fault = self._get(actor.fault.remote(), 2 * HEALTH_SECONDS)
            except ray.exceptions.RayError as error:
                fault = _said(error)
            if fault is not None:
                self._lose(slot, actor, fault)

    def _lose(self, slot: Slot, actor: Any, reason: str) -> None:
        """Takes a replica out, and has another one started in its place."""
        with self._changed:
            if slot.actor is not actor or not slot.ready or self._stopping.is_set():
                return
            slot.ready, slot.started, slot.reason = False, None, reason
            slot.restarts += 1
            self._changed.notify_all()
        self._kill(actor)
        threading.Thread(target=self._start, args=(slot,), daemon=True).start()

    def _kill(self, actor: Any) -> None:
        if actor is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(actor)

    # --- All as one --------------------------------------------------------------------------------------------------

    def pause(self, mode: Mode) -> dict[int, str]:
        """Pauses all, and those that are started later, until `resume`. Says which go on, and why."""
        with self._weighing:
            self._paused = mode
            return self._still_ready(self._each(self._ready(), lambda actor: actor.pause.remote(mode)))

    def resume(self) -> dict[int, str]:
        """Ends a pause of all. Says which do not go on, and why."""
        with self._weighing:
            self._paused = None
            return self._still_ready(self._each(self._ready(), lambda actor: actor.resume.remote(), CALL_SECONDS))

    def _still_ready(self, failures: dict[int, str]) -> dict[int, str]:
        """What others refused: one that was taken out comes back as all are."""
        return {number: what for number, what in failures.items() if self._slots[number].ready}

    def update_weights(self, path: str, version: str, mode: Mode) -> Outcome:
        """Gives all replicas that are ready the weights of a directory, or leaves the old ones in all of them."""
        with self._weighing:
            slots = self._ready()
            if not slots or self._weights is None:
                return Failed({state.number: state.reason or state.state for state in self.states()}, {})
            if self._weights.named is None:
                return Failed({slot.number: "its engine replaces no weights" for slot in slots}, {})
            held = [] if self._paused else slots
            failures = self._each(held, lambda actor: actor.pause.remote(mode))
            checksum = None
            if not failures:
                failures = self._each(slots, lambda actor: actor.update.remote(path, version))
            if not failures:
                checksum, failures = self._compare(slots, version)
            outcome: Outcome
            if checksum is not None:
                outcome = self._take(slots, path, Named(version, checksum))
            else:
                outcome = Failed(failures, self._put_back(slots, self._weights.path, self._weights.named))
            self._each(held, lambda actor: actor.resume.remote(), CALL_SECONDS)
            self._try_again()
            return outcome

    def _compare(self, slots: list[Slot], version: str) -> tuple[str | None, dict[int, str]]:
        """The checksum that all have, or what is wrong with them."""
        found: dict[int, Named] = {}
        failures = self._each(slots, lambda actor: actor.named.remote(), answers=found)
        if failures:
            return None, failures
        known = self._checksums.get(version)
        wanted = known or found[slots[0].number].checksum
        other = "that were called so before" if known else f"that replica {slots[0].number} read"
        failures = {
            number: f"the directory gave it other weights than those {other} as {version}"
            for number, named in found.items()
            if named != Named(version, wanted)
        }
        return (None, failures) if failures else (wanted, {})

    def _take(self, slots: list[Slot], path: str, named: Named) -> Updated:
        """From here on, these are the weights that a new replica gets."""
        self._weights = Weights(path, named)
        self._checksums[named.version] = named.checksum
        with self._changed:
            given = [slot for slot in slots if slot.started is not None]
            for slot in given:
                slot.started = dataclasses.replace(slot.started, named=named)  # type: ignore[type-var]
            left_out = {slot.number: slot.reason or "it is starting" for slot in self._slots if not slot.ready}
        return Updated(named.version, named.checksum, [slot.number for slot in given], left_out)

    def _put_back(self, slots: list[Slot], path: str | None, before: Named) -> dict[int, str]:
        """Leaves each replica with the weights from before, to the bit, or has it started again with them."""
        source = path or self._options.model
        found: dict[int, Named] = {}
        lost = self._each(slots, lambda actor: actor.named.remote(), answers=found)
        changed = [slot for slot in slots if found.get(slot.number, before) != before]
        lost |= self._each(changed, lambda actor: actor.update.remote(source, before.version))
        back = [slot for slot in changed if slot.number not in lost]
        again: dict[int, Named] = {}
        lost |= self._each(back, lambda actor: actor.named.remote(), answers=again)
        for number, named in again.items():
            if named != before:
                lost[number] = f"{source} holds no longer the weights {before.version}"
        for slot in slots:
            if slot.number in lost:
                self._lose(slot, slot.actor, f"it could not be put back: {lost[slot.number]}")
        return lost

    def _ready(self) -> list[Slot]:
        with self._changed:
            return [slot for slot in self._slots if slot.ready]

    def _each(
        self,
        slots: Iterable[Slot],
        ask: Callable[[Any], Any],
        seconds: float | None = None,
        answers: dict[int, Any] | None = None,
    ) -> dict[int, str]:
        """Asks all at once, and says what failed. One that does not answer is taken out: nobody knows what it has."""
        # One that was lost meanwhile is another one by now, which has the current weights once it is ready.
        slots = list(slots)
        failures = {slot.number: slot.reason or "it was lost" for slot in slots if not slot.ready}
        for slot, actor, call in [(slot, slot.actor, ask(slot.actor)) for slot in slots if slot.ready]:
            try:
                answer = self._get(call, seconds)
            except ray.exceptions.RayTaskError as error:
                failures[slot.number] = _said(error)
                if not isinstance(error, Denied):
                    self._lose(slot, actor, failures[slot.number])
            except ray.exceptions.RayError as error:
                failures[slot.number] = _said(error)
                self._lose(slot, actor, failures[slot.number])
            else:
                if answers is not None:
                    answers[slot.number] = answer
        return failures

    def _get(self, call: Any, seconds: float | None = None) -> Any:
        return ray.get(call, timeout=self._options.update_seconds if seconds is None else seconds)

    def _try_again(self) -> None:
        """Starts those that were left out once more."""
        with self._changed:
            slots = [slot for slot in self._slots if slot.left_out]
            for slot in slots:
                slot.left_out = False
                slot.restarts += 1
        for slot in slots:
            threading.Thread(target=self._start, args=(slot,), daemon=True).start()

    def stop(self) -> None:
        """Ends all servers when their running requests have ended, and gives the room back."""
        self._stopping.set()
        actors = [slot.actor for slot in self._slots if slot.actor is not None]
        calls = [actor.stop.remote() for actor in actors]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=self._options.stop_seconds + CALL_SECONDS)
        for actor in actors:
            self._kill(actor)
        ray.util.remove_placement_group(self._group)


def _said(error: Exception) -> str:
    """What went wrong, without the trace of a process that nobody looks at."""
    cause = getattr(error, "cause", None)
    if isinstance(error, ray.exceptions.GetTimeoutError):
        return "it did not answer in time"
    return str(cause) if cause is not None else str(error)
