"""What needs torch or numpy, in a process of its own: `python -m gpu.jobs`, a JSON line in and one out for each job.

One process for all jobs, since importing torch takes many seconds. Answers go to the descriptor that was standard
output; what libraries print goes to standard error.
"""

import gc
import importlib
import importlib.util
import json
import os
import sys
import time
import traceback

from . import shapes, writing

SHAPES = {shape.name: shape for shape in vars(shapes).values() if isinstance(shape, shapes.Shape)}


def main():
    """Until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        job = json.loads(line)
        started = time.monotonic()
        try:
            answer = {"result": JOBS[job.pop("job")](**job)}
        except Exception as error:  # whoever asked is told
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        give_back()
        answers.write(json.dumps(answer | {"seconds": time.monotonic() - started}) + "\n")


def give_back():
    """Memory of the device that a job no longer needs: a server is to have it."""
    gc.collect()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()


def there(name):
    """Whether a package can be imported."""
    return importlib.util.find_spec(name) is not None


def hello(device):
    """Which packages are there; takes as long as importing them does."""
    versions = {"python": sys.version.split()[0]}
    for name in ("torch", "transformers", "safetensors", "numpy"):
        versions[name] = __import__(name).__version__ if there(name) else None
    if versions["transformers"] and versions["torch"]:
        # Now rather than within a job that has little time.
        for family in ("llama", "qwen3", "qwen3_moe"):
            importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    if versions["torch"] and device == "cuda":
        import torch

        versions["device"] = torch.cuda.get_device_name()
        versions["capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
    return versions


def model(directory, shape, seed, device):
    """Writes a model."""
    shape = SHAPES[shape]
    how = writing.write_model(directory, shape, seed, device)
    return {"how": how, "bytes": shape.file_bytes, "parameters": shape.parameters}


def roofline(device, seconds):
    """Bytes and operations a second, and how they were measured."""
    if there("torch"):
        from . import with_torch

        return with_torch.roofline(device, seconds)
    from serve.bandwidth import read_bandwidth

    rate, how = read_bandwidth(256 * 10**6)
    found = {"bytes_per_s": rate, "bytes_how": f"reading, {how}", "flops": None, "flops_how": "no torch"}
    if there("numpy"):
        from . import with_numpy

        found |= with_numpy.arithmetic(seconds)
    return found


def reference(directory, shape, device, cases):
    """Log-probs of the cases' ids on the same weights; see `with_torch` and `with_numpy`."""
    if there("torch") and there("transformers") and there("safetensors"):
        from . import with_torch

        return with_torch.reference(directory, device, cases)
    if not there("numpy"):
        raise RuntimeError("neither torch with transformers nor numpy is there")
    from . import with_numpy

    if SHAPES[shape].parameters > with_numpy.MOST:
        raise RuntimeError(f"{shape} is too large for numpy, and torch, transformers or safetensors is not there")
    return with_numpy.reference(directory, cases)


def generate(directory, device, streams, tokens_in, tokens_out):
    """transformers' own generation."""
    if not (there("torch") and there("transformers") and there("safetensors")):
        raise RuntimeError("torch, transformers or safetensors is not there")
    from . import with_torch

    return with_torch.generate(directory, device, streams, tokens_in, tokens_out)


JOBS = {"hello": hello, "model": model, "roofline": roofline, "reference": reference, "generate": generate}

if __name__ == "__main__":
    main()
