"""examples/ray, and docs/guides/ray.md from its beginning to its end."""

import os
import re
import subprocess
import sys

from conftest import REPOSITORY, held_port

EXAMPLE = REPOSITORY / "examples" / "ray" / "grpo_ray.py"
GUIDE = REPOSITORY / "docs" / "guides" / "ray.md"
ASKED = "HuggingFaceTB/SmolLM2-135M-Instruct"


def test_a_loop_over_replicas_learns_while_one_is_killed():
    command = [sys.executable, EXAMPLE, "--steps", "3", "--kill-at", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^0 of \d{4,} tokens", done.stdout, re.MULTILINE), done.stdout


def test_the_guide_does_what_it_says(tmp_path):
    # The model of the hub is stood in for by one that is small.
    cached = tmp_path / "hub" / f"models--{ASKED.replace('/', '--')}"
    snapshot = cached / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(os.environ["TITO_TEST_MODEL"])
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(snapshot.name)
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL))
    with held_port() as chosen:
        assert program.count("localhost:8000") == 1 and program.count("serve.run(") == 1
        program = program.replace("localhost:8000", f"127.0.0.1:{chosen}")
        options = f'{{"host": "127.0.0.1", "port": {chosen}}}'
        program = program.replace("serve.run(", f"serve.start(http_options={options}); serve.run(")
        environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
