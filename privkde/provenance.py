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
    """Of a run that took so many seconds; of files elsewhere on the machine only the names are told."""
    told = [Path(word).name if Path(word).is_absolute() else word for word in command]
    return {
        "command": shlex.join(told),
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(seconds),
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
    }
