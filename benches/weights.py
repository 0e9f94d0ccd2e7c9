"""How long new weights take: from the call to the first new token, in full, as a stream and as a delta.

    python3 benches/weights.py --tito target/release/tito --model DIR [--rounds 5]

DIR is a model in bf16 or f32 with one file of safetensors; it needs numpy and zstandard. Every row is the median of the rounds. What reading
the same files takes alone, by the same number of threads, stands beside it, and so does a restart of the server. Beside the time
stands what the server's threads took of the processor in a round: on a machine that does other things too, it says more.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "clients"))

from deltas import publish_slime  # noqa: E402

PORT = 18_431
URL = f"http://127.0.0.1:{PORT}"
PART = 1 << 22


def call(path, body=None, kind="application/json"):
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data=data, headers={"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.loads(response.read() or b"null")


def first_token():
    call("/inference/v1/generate", {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 1}})


def serve(arguments):
    command = [arguments.tito, "serve", arguments.model, "--port", str(PORT), "--host", "127.0.0.1"]
    command += ["--admin-on-main-port", "--insecure-admin", "--disable-uvicorn-access-log"]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            urllib.request.urlopen(URL + "/health", timeout=1)
            return server
        except OSError:
            time.sleep(0.01)


def read_alone(path):
    """Reads a file in parts on as many threads as there are cores, and throws them away."""
    size, handle = path.stat().st_size, os.open(path, os.O_RDONLY)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda start: len(os.pread(handle, PART, start)), range(0, size, PART)):
            pass
    os.close(handle)


def tensors_of(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = np.frombuffer(data, "u1", offset=8 + length)
    return {name: body[slice(*entry["data_offsets"])] for name, entry in header.items()}


def one_in(tensors, share, random):
    """The same tensors with another lowest bit in one number of `share`."""
    changed = {}
    for name, old in tensors.items():
        new = old.copy()
        numbers = len(new) // 2
        picks = random.choice(numbers, max(1, numbers // share), replace=False)
        new[2 * picks] ^= 1
        changed[name] = new
    return changed


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def processor_seconds(server):
    """What all threads of a process took until now, in programs and in the system."""
    fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rounds(arguments, server, work):
    """The median of the time, and the mean of the processor's."""
    times, before = [], processor_seconds(server)
    for number in range(arguments.rounds):
        times.append(timed(lambda number=number: (work(number), first_token())))
    return statistics.median(times), (processor_seconds(server) - before) / arguments.rounds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tito", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    source = pathlib.Path(arguments.model) / "model.safetensors"
    megabytes = source.stat().st_size / 1e6
    root = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
    server = serve(arguments)
    try:
        shutil.copy(source, root / "model.safetensors")
        file = root / "model.safetensors"
        alone = statistics.median(timed(lambda: read_alone(file)) for _ in range(arguments.rounds))
        full = rounds(arguments, server, lambda n: call("/update_weights", {"weight_dir": str(root)}))
        body = file.read_bytes()
        stream = rounds(
            arguments, server, lambda n: call("/update_weights", body, "application/octet-stream")
        )
        old, random, versions, sizes = tensors_of(file), np.random.default_rng(0), [], []
        call("/update_weights", {"weight_dir": str(root), "weight_version": "0"})
        for number in range(arguments.rounds):
            new = one_in(old, 100, random)
            publish_slime(root / "deltas", number + 1, old, new)
            versions.append(root / "deltas" / f"weight_v{number + 1:06d}")
            sizes.append(sum(part.stat().st_size for part in versions[-1].iterdir()))
            old = new
        delta = rounds(arguments, server, lambda n: call("/update_weights", {"weight_dir": str(versions[n])}))
        token = statistics.median(timed(first_token) for _ in range(arguments.rounds))
        server.kill()
        server.wait()
        restarts = []
        for _ in range(arguments.rounds):
            start = time.perf_counter()
            server = serve(arguments)
            first_token()
            restarts.append(time.perf_counter() - start)
            server.kill()
            server.wait()
        print(f"{megabytes:.0f} MB of weights; a token alone takes {token * 1e3:.0f} ms")
        print("| | ms | MB/s | of reading alone | processor, ms |\n|---|---:|---:|---:|---:|")
        rows = [("reading the file alone", (alone, None)), ("a directory", full), ("a stream", stream)]
        rows += [(f"a delta, 1 number in 100 ({statistics.median(sizes) / 1e6:.0f} MB)", delta)]
        rows += [("a restart", (statistics.median(restarts), None))]
        for name, (seconds, processor) in rows:
            took = "" if processor is None else f"{processor * 1e3:.0f}"
            speed, share = f"{megabytes / seconds:.0f}", f"{alone / seconds * 100:.0f} %"
            print(f"| {name} | {seconds * 1e3:.0f} | {speed} | {share} | {took} |")
    finally:
        server.kill()
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
