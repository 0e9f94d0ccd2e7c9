"""`tito replay` over a capture that a server has written, and the moment from which that is whole."""

import json
import os
import re
import subprocess

ENGINE = ["--engine", "native", "--dtype", "float32"]
LENGTH = ["--max-model-len", "2048"]


def replayed(capture, model, *flags, length=LENGTH):
    """What `tito replay` counted, and its lines: turns that are equal, their tokens, turns that are equal in part, that differ and
    that are not repeatable. Its exit code says the same.
    """
    command = [os.environ["TITO_BIN"], "replay", str(capture), str(model), *ENGINE, *length, *flags]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    pattern = r"(\d+) turns equal to the bit \((\d+) tokens\), (\d+) in part \(\d+ tokens\), (\d+) differ, (\d+) not repeatable"
    counted = re.fullmatch(pattern, lines[-1])
    assert counted, done.stdout + done.stderr
    equal, tokens, partial, differ, unrepeatable = map(int, counted.groups())
    assert done.returncode == (1 if differ + unrepeatable else 3 if partial else 0), done.stderr
    return equal, tokens, partial, differ, unrepeatable, lines[:-1]


def settled(server):
    """Waits until the checksum of the present weights is known: the turns of a server name it in their lines."""
    def known():
        page = json.loads(server.get("/v1/trajectories?order=desc&limit=1"))
        tree = json.loads(server.get(f"/v1/trajectories/{page['data'][0]['id']}"))
        return tree["turns"][-1]["weights"][-1]["checksum"] is not None

    server.poll("the checksum of the weights is kept", known)
