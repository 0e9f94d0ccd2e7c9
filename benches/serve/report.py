"""Figures as Markdown, and where they were taken."""

import datetime
import json
import os
import subprocess


def median(values):
    """The median, or None of nothing."""
    return percentile(values, 50)


def percentile(values, percent):
    """The percentile, between the two nearest values in proportion; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def milliseconds(seconds):
    """Seconds as milliseconds, with three digits that count."""
    return number(None if seconds is None else seconds * 1000)


def number(value):
    """Three digits that count, or all before the point."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def share(value):
    """A fraction as percent."""
    return "–" if value is None else f"{value:.0%}"


def size(count):
    """Bytes as MiB."""
    return f"{count / 2**20:,.0f} MiB"


def table(columns, rows):
    """A Markdown table; every column but the first is of numbers."""
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_json(path, figures):
    """All figures as a file."""
    with open(path, "w") as file:
        json.dump(figures, file, indent=2)
        file.write("\n")


def machine():
    """The processor, its cores, the date and the commit, by name."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def processor():
    """The model's name and numbers, as lscpu has them."""
    fields = {}
    for line in output("lscpu").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    name = fields.get("Model name", "unknown")
    return f"{name} (family {fields.get('CPU family', '?')}, model {fields.get('Model', '?')})"


def commit():
    """The commit of the checkout that the bench lies in, and whether files differ from it."""
    here = os.path.dirname(os.path.abspath(__file__))
    name = output("git", "-C", here, "rev-parse", "--short", "HEAD").strip()
    if not name:
        return "none"
    changed = output("git", "-C", here, "status", "--porcelain", "--untracked-files=no")
    return name + (" and changes" if changed else "")


def output(*command):
    """What a command prints, or nothing where it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
