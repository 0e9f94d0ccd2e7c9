"""How fast this machine reads memory with all its cores: the wall for decoding one stream."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("bandwidth.c")
PASSES = 10


def read_bandwidth(size):
    """Bytes a second of the best of 10 passes over `size` bytes, and how it was measured; or None and why not."""
    threads = len(os.sched_getaffinity(0))
    if compiler := shutil.which("cc"):
        return compiled(compiler, size, threads), f"C, {threads} threads"
    if importlib.util.find_spec("numpy"):
        return with_numpy(size, threads), f"numpy, {threads} threads"
    return None, "neither cc nor numpy is there"


def compiled(compiler, size, threads):
    """With the C program."""
    with tempfile.TemporaryDirectory() as directory:
        program = str(Path(directory, "bandwidth"))
        options = ["-std=gnu11", "-O3", "-march=native", "-pthread", "-o", program]
        subprocess.run([compiler, *options, str(SOURCE)], check=True)
        done = subprocess.run([program, str(size), str(threads), str(PASSES)], check=True, capture_output=True)
    return float(done.stdout.split()[0])


def with_numpy(size, threads):
    """With numpy, which lets go of the interpreter's lock while it sums."""
    import numpy

    parts = [numpy.arange(size // threads // 8) for _ in range(threads)]
    best = 0.0
    for _ in range(PASSES):
        workers = [threading.Thread(target=part.sum) for part in parts]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = max(best, sum(part.nbytes for part in parts) / (time.perf_counter() - start))
    return best
