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

from privkde.files import write_text

PACKAGES = ("privkde", "numpy", "scipy", "dp-accounting", "scikit-learn", "cryptography")
"""Packages that numbers may depend on."""


def about(command: str, arguments: Sequence[str], seconds: float) -> dict[str, Any]:
    """When, how, in what time and with which versions; of files elsewhere only the names."""
    names = [Path(one).name if Path(one).is_absolute() else one for one in arguments]
    return {
        "command": shlex.join([*shlex.split(command), *names]),
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(seconds),
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record, whole or not at all; a number that JSON does not know is an error."""
    write_text(path, json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
