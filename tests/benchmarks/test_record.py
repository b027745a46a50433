"""Records of benchmarks: what numbers came from, without what is nobody's business."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.record import about, write


def test_a_command_can_be_repeated_and_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    found = about("python -m benchmarks.x", ["--data", str(tmp_path / "a b.npz"), "--output", "docs/x.json"], 1.6)
    assert found["command"] == "python -m benchmarks.x --data 'a b.npz' --output docs/x.json"
    assert found["seconds"] == 2
    assert {"python", "privkde", "numpy", "scipy"} <= found["versions"].keys()


def test_a_record_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write(path, {"number": 1 / 3, "word": "ε"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"number": 1 / 3, "word": "ε"}
    with pytest.raises(ValueError, match="JSON compliant"):
        write(path, {"number": float("nan")})
    assert json.loads(path.read_text(encoding="utf-8"))["number"] == 1 / 3
    assert list(tmp_path.iterdir()) == [path]
