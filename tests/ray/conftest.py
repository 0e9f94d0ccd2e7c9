"""A cluster of Ray on this machine, and the policy of examples/grpo: its files, and what its weights compute.

TITO_BIN is the program, and TITO_TEST_MODEL the model of the guide; scripts/test sets both.
"""

import contextlib
import os
import pathlib
import socket
import sys
import tempfile
import threading
import time

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER = REPOSITORY / "tests" / "fixtures" / "tiny-model"
# What an installation has: the module, and a record of where the program is. Ray's processes find both by this.
INSTALLED = tempfile.TemporaryDirectory(prefix="tito-installed-")
(RECORD := pathlib.Path(INSTALLED.name) / "tito_server-0.dist-info").mkdir()
(RECORD / "METADATA").write_text("Metadata-Version: 2.1\nName: tito-server\nVersion: 0\n")
(RECORD / "RECORD").write_text("bin/tito,,\n")
(RECORD.parent / "bin").mkdir()
(RECORD.parent / "bin" / "tito").symlink_to(os.environ["TITO_BIN"])
os.environ["PYTHONPATH"] = f"{RECORD.parent}{os.pathsep}{REPOSITORY / 'python'}"
sys.path[:0] = [str(RECORD.parent), str(REPOSITORY / "python"), str(REPOSITORY / "examples" / "grpo"), str(REPOSITORY / "tests" / "notes")]
# No reports to anybody, no log of other processes between the lines of pytest, and a matrix needs one thread.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "OPENBLAS_NUM_THREADS": "1"}
# For a cluster of one machine, whose only user runs the tests.
os.environ["RAY_AUTH_MODE"] = "disabled"

import policy  # noqa: E402
import ray  # noqa: E402

import tito.ray  # noqa: E402
from notes import (  # noqa: E402, F401
    note,
    pytest_runtest_logreport,
    pytest_runtest_setup,
    pytest_sessionstart,
    pytest_terminal_summary,
)

WAIT_SECONDS = 600
FLAGS = {"engine": "native", "dtype": "float32", "max_model_len": 512, "served_model_name": "policy", "kv_cache_memory_bytes": "16M"}


def pytest_configure(config):
    # Of Ray Serve, about pydantic.
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning")


def poll(what, condition):
    """Waits until `condition()` is true, and returns what it gives; fails when that takes longer than on any machine."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {WAIT_SECONDS} s")
        threading.Event().wait(0.02)
    return value


def start(folder):
    """Ray gives its own processes 30 s, which a busy machine exceeds."""
    for attempt in range(5):
        try:
            return ray.init(
                num_cpus=8, include_dashboard=False, log_to_driver=False, object_store_memory=80 << 20, _temp_dir=folder
            )
        except Exception:
            ray.shutdown()
            if attempt == 4:
                raise


@pytest.fixture(scope="session", autouse=True)
def cluster():
    # Paths of sockets have a limit that pytest's own folders may exceed.
    with tempfile.TemporaryDirectory(prefix="tito-ray-") as folder:
        start(folder)
        yield
        ray.shutdown()


@contextlib.contextmanager
def held_port():
    """A port for Ray Serve, which shares its own with who says so, and does not say which it took: nobody else gets this one."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class Policy:
    """A model, checkpoints of it, and the weights in each by the name that answers give them."""

    def __init__(self, root):
        self.root = root
        self.weights = {"default": policy.initial(326, seed=0)}
        self.model = root / "model"
        policy.write_model(self.weights["default"], self.model, TOKENIZER)

    def write(self, version, seed, directory=None):
        """Weights in a directory of the same name."""
        self.weights[version] = policy.initial(326, seed)
        directory = directory or self.root / version
        policy.save(self.weights[version], directory)
        return directory

    def replicas(self, count=3, **options):
        return tito.ray.Replicas(self.model, count, binary=os.environ["TITO_BIN"], **{**FLAGS, "check_seconds": 0.2, **options})


@pytest.fixture
def trainer(tmp_path):
    return Policy(tmp_path)
