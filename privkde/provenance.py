"""What numbers came from: the command, the day, the machine and the packages."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("privkde", "numpy", "scipy", "dp-accounting", "scikit-learn", "cryptography")
"""Packages that numbers may depend on."""


def provenance(command: Sequence[str], seconds: float, packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Of a run that took so many seconds; of files elsewhere on the machine only the names are told.

    >>> provenance(["program", "--data=/home/somebody/x.npz", "../y.npz", "docs/z.json"], 1.0)["command"]
    'program --data=x.npz y.npz docs/z.json'
    """
    return {
        "command": shlex.join(_told(word) for word in command),
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(seconds),
        "cores": os.cpu_count(),
        "machine": f"{platform.system()} {platform.machine()}, {_processor()}, {_memory()}",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
    }


def _told(word: str) -> str:
    """A word of the command line; of a path that leaves the working folder only the name."""
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    path = Path(value)
    return option + equals + (path.name if path.is_absolute() or ".." in path.parts else value)


def _processor() -> str:
    """The processor's name, where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def _memory() -> str:
    """Memory in all."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return "unknown memory"
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"
