"""The reference of tests/reference, for machines without torch: right, slow, and for small models."""

import sys
import time
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "reference"))
import reference as models

# Numbers of a model that float64 in one array each can still hold and multiply.
MOST = 10**9


def rounded(x):
    """To the nearest bf16."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(x.dtype)


class InBf16(models.Model):
    """What each product and norm gives is rounded: about what an engine that computes in bf16 may be off by."""

    def linear(self, x, name, bias=False):
        """Of the same, rounded."""
        return rounded(super().linear(x, name, bias))

    def norm(self, x, name):
        """Of the same, rounded."""
        return rounded(super().norm(x, name))


class CountedDouble(models.Model):
    """Positions are counted double: a mistake that has to show."""

    def cos_sin(self, n):
        """Of every second position."""
        cos, sin = super().cos_sin(2 * n)
        return cos[::2], sin[::2]


def reference(directory, cases):
    """As `with_torch.reference`."""
    exact = models.read_model(directory)
    coarse = InBf16(exact.config, exact.weights)
    mistaken = CountedDouble(exact.config, exact.weights)
    told, errors, mistakes = [], [], []
    for ids in cases:
        of_all = exact.log_probs(ids)[:-1]
        next_ids = np.asarray(ids[1:])[:, None]

        def chosen(log_probs, next_ids=next_ids):
            return np.take_along_axis(log_probs, next_ids, -1)[:, 0]

        errors.append(np.abs(chosen(coarse.log_probs(ids)[:-1]) - chosen(of_all)))
        wrong = chosen(mistaken.log_probs(ids)[:-1])
        mistakes.append(np.abs(wrong - chosen(of_all)))
        told.append({
            "log_probs": chosen(of_all).tolist(),
            "best": of_all.max(-1).tolist(),
            "mistaken": wrong.tolist(),
        })
    return {
        "how": f"tests/reference in float64, numpy {np.__version__}",
        "cases": told,
        "rounded": spread(errors),
        "mistaken": spread(mistakes),
    }


def spread(errors):
    """The largest and the mean of some arrays."""
    joined = np.concatenate(errors)
    return {"max": float(joined.max()), "mean": float(joined.mean())}


def arithmetic(seconds):
    """Float32 operations a second: numpy multiplies no bf16."""
    a = np.random.default_rng(0).standard_normal((1024, 1024), dtype=np.float32)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - started)
    return {"flops": 2 * 1024**3 / best, "flops_how": "numpy, 1024 cubed in float32"}
