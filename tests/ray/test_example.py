"""examples/ray, a training loop."""

import re
import subprocess
import sys

from conftest import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "ray" / "grpo_ray.py"


def test_a_loop_over_replicas_learns_while_one_is_killed():
    command = [sys.executable, EXAMPLE, "--steps", "3", "--kill-at", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^0 of \d{4,} tokens", done.stdout, re.MULTILINE), done.stdout
