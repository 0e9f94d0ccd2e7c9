"""The unit of deploy/systemd: one that systemd reads whole, that lets a server do little, and that gives it the time to stop."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy" / "systemd"
# Tenths of systemd's own scale: from 0, where nothing can be done, to 100. Most services of Debian have more than 90.
MOST_EXPOSED = 15
# As GRACE of src/server/ports.rs, once for the engine and once for connections.
GRACE_SECONDS = 5


def settings():
    """Each key of the unit with its values."""
    found = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", (UNITS / "tito.service").read_text(), re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


class Systemd(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def said(self, *more, changed=lambda text: text, drop_in=False):
        """What systemd-analyze says of the unit, whose program is another one: tito is not installed here."""
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed; the unit was not read by systemd")
        unit = self.folder / "tito.service"
        unit.write_text(changed((UNITS / "tito.service").read_text().replace("/usr/bin/tito", "/bin/true")))
        if drop_in:
            (self.folder / "tito.service.d").mkdir()
            shutil.copy(UNITS / "gpu.conf", self.folder / "tito.service.d")
        done = subprocess.run(["systemd-analyze", *more, str(unit)], capture_output=True, text=True, check=False)
        about = [line for line in (done.stdout + done.stderr).splitlines() if "tito" in line or "gpu.conf" in line]
        return done.returncode, about

    def test_systemd_reads_all_of_it(self):
        self.assertEqual(self.said("verify", "--man=no"), (0, []))

    def test_systemd_reads_all_of_it_with_gpus(self):
        self.assertEqual(self.said("verify", "--man=no", drop_in=True), (0, []))

    def test_a_wrong_key_is_found(self):
        _, about = self.said("verify", "--man=no", changed=lambda text: text.replace("ProtectHome=", "ProtectHomes="))
        self.assertIn("ProtectHomes", " ".join(about))

    def test_what_it_may_do_is_little(self):
        flags = ["security", "--offline=yes", "--no-pager", f"--threshold={MOST_EXPOSED}"]
        status, about = self.said(*flags)
        self.assertEqual(status, 0, about)
        status, _ = self.said(*flags, changed=lambda text: text.replace("DynamicUser=yes", ""))
        self.assertNotEqual(status, 0)

    def test_it_gets_the_time_that_its_server_takes(self):
        flags = yaml.safe_load((UNITS / "tito.yaml").read_text())
        taken = flags["shutdown-delay"] + flags["shutdown-timeout"] + 2 * GRACE_SECONDS
        [seconds] = settings()["TimeoutStopSec"]
        self.assertGreater(int(seconds), taken)
        self.assertEqual(settings()["KillSignal"], ["SIGTERM"])

    def test_its_flags_are_this_servers(self):
        documented = (ROOT / "docs" / "flags.md").read_text()
        for flag in yaml.safe_load((UNITS / "tito.yaml").read_text()):
            self.assertRegex(documented, rf"`--{flag}\b", flag)


if __name__ == "__main__":
    unittest.main()
