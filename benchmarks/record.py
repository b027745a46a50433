"""What a benchmark leaves behind: numbers in a JSON file, and beside them what they came from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privkde.files import write_text
from privkde.provenance import PACKAGES, provenance


def about(command: str, arguments: Sequence[str], seconds: float, packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """When, how, in what time and with which versions; of files elsewhere only the names."""
    return provenance([*shlex.split(command), *arguments], seconds, packages)


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record, whole or not at all; a number that JSON does not know is an error."""
    write_text(path, json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
