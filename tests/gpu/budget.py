"""How long each part may take, so that all of them together end in time.

Owns the arithmetic only; whoever asks looks at the clock and cuts.
"""

import time


class Budget:
    """Seconds shared out by weight among parts that follow each other.

    A part may take its share of what is left; what it does not take goes to those after it.
    """

    def __init__(self, seconds, weights, clock=time.monotonic):
        self._clock = clock
        self._end = clock() + seconds
        self._weights = dict(weights)

    def left(self):
        """Seconds until the end, never less than none."""
        return max(0.0, self._end - self._clock())

    def take(self, name):
        """Seconds that the part may take now. Parts are taken once, in any order; those not taken keep their shares."""
        rest = sum(self._weights.values())
        weight = self._weights.pop(name)
        return self.left() * weight / rest

    def within(self, seconds):
        """Those seconds, or what is left."""
        return min(seconds, self.left())
