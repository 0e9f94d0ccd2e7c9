"""What was found so far: kept as JSON and as a page, both written anew after each part, so that an end by force costs
no figure that was there."""

import datetime
import json
import os
import platform
import subprocess
from dataclasses import asdict
from pathlib import Path

from serve.report import commit, processor

from . import tables

# Of a server's log, its end.
LOG_BYTES = 8 * 2**20


class Found:
    """All results, and the directory that they are written to."""

    def __init__(self, directory, options):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.seconds = {}
        self.all = {
            "rehearsal": options.rehearse,
            "machine": machine(options),
            "cut": {},
            "loud": [],
            "checks": [],
            "servers": {},
            "speed": {},
            "generate": {},
            "seconds": self.seconds,
        }

    def path(self, name):
        """Of a file in the directory."""
        return self.directory / name

    def loud(self, text):
        """Something that is missing, said at once and on the page."""
        print(f"!! {text}", flush=True)
        self.all["loud"].append(text)

    def checked(self, model, checks):
        """Results of a part."""
        for check in checks:
            print(f"   {model}: {check.name}: {tables.WORDS[check.ok]}: {check.text}", flush=True)
            self.all["checks"].append({"model": model, **asdict(check)})

    def failed(self):
        """Names of checks that failed."""
        return [f"{check['model']}: {check['name']}" for check in self.all["checks"] if check["ok"] is False]

    def speed(self, model):
        """Figures of a model, to be added to."""
        return self.all["speed"].setdefault(model, {})

    def write(self):
        """Both files."""
        self.path("gpu.json").write_text(json.dumps(self.all, indent=1, default=str) + "\n")
        self.path("gpu.md").write_text(self.page())

    def page(self):
        """As Markdown."""
        return tables.page(self.all)

    def trim_logs(self):
        """To their last lines, where they are long."""
        for log in self.directory.glob("*.log"):
            if (size := log.stat().st_size) > LOG_BYTES:
                with open(log, "rb") as file:
                    file.seek(size - LOG_BYTES)
                    end = file.read()
                log.write_bytes(b"(the beginning was left out)\n" + end)


def machine(options):
    """Names and versions."""
    found = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": options.commit or commit(),
        "device": options.device,
        "processor": f"{processor()}, {len(os.sched_getaffinity(0))} cores",
        "kernel": platform.release(),
    }
    if options.device == "cuda":
        found["GPU"] = nvidia_smi("name,driver_version,memory.total") or "**nvidia-smi says nothing**"
    return found


def nvidia_smi(what):
    """What it says of the first GPU, or nothing."""
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.splitlines()[0].strip() if said.strip() else ""


def device_memory():
    """Bytes of the first GPU that are in use, or None."""
    said = nvidia_smi("memory.used")
    return int(said) * 2**20 if said.isdigit() else None
