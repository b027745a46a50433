"""What a benchmark leaves behind: numbers in a JSON file, and beside them what they came from."""

from __future__ import annotations

import json
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from privkde.storage.files import write_text

PACKAGES = ("privkde", "numpy", "scipy", "dp-accounting", "scikit-learn", "cryptography")
"""Packages that numbers may depend on."""


def about(command: str, arguments: Sequence[str], seconds: float, packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """What the numbers of a run came from; of files elsewhere on the machine it says only the names.

    >>> about("program", ["--data=/home/somebody/x.npz", "../y.npz", "docs/z.json"], 1.0)["command"]
    'program --data=x.npz y.npz docs/z.json'
    """
    return {
        "command": shlex.join([*shlex.split(command), *map(_shown, arguments)]),
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(seconds),
        "cores": os.cpu_count(),
        "machine": f"{platform.system()} {platform.machine()}, {_processor()}, {_memory()}",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
    }


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record, whole or not at all; a number that JSON does not know is an error."""
    write_text(path, json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def _shown(word: str) -> str:
    """A word of the command line; of a path that leaves the working folder only the name."""
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    path = Path(value)
    return option + equals + (path.name if path.is_absolute() or ".." in path.parts else value)


def _processor() -> str:
    """The processor's name, where the system names it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def _memory() -> str:
    """Memory in all."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return "unknown memory"
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"
