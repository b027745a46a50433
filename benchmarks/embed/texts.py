"""Rows of a file of texts, for training or for testing. No error shows what is in a row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from accounting import InvalidInputError
from accounting.errors import require_integer, require_real
from privkde.draws.randomness import public_stream
from privkde.draws.sampling import permutation
from privkde.embedding import cleaned

PARTS = ("train", "test")


class Row(NamedTuple):
    """A cleaned text, its label ("" without labels), and whether it is for train or for test."""

    text: str
    label: str
    part: str


def read_texts(path: Path, *, text: str = "text", label: str | None = None, split: str | None = None) -> list[Row]:
    """Rows of a file in UTF-8: `.csv` with a header, `.jsonl` with an object per line, or `.txt` with a text per line.

    `text`, `label` and `split` name columns. Without a column to split by, all rows are for training.
    """
    rows = []
    for line, fields in _fields(path, text):
        where = f"line {line} of {str(path)!r}"
        part = PARTS[0] if split is None else _filled(fields.get(split), where, split)
        if part not in PARTS:
            raise InvalidInputError(f"{where} is neither for train nor for test; write one of these words there.")
        own_label = "" if label is None else _filled(fields.get(label), where, label)
        rows.append(Row(_filled(fields.get(text), where, text), own_label, part))
    if not rows:
        raise InvalidInputError(f"{str(path)!r} has no rows; give one text for each user.")
    return rows


def _fields(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every row with its line number; no error shows what is in a row, or in a first line that may be no header."""
    readers = {".csv": _csv_fields, ".jsonl": _json_fields, ".ndjson": _json_fields}
    suffix, content = path.suffix.lower(), path.read_bytes()
    try:
        lines = io.StringIO(content.decode("utf-8-sig"), newline="")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidInputError(
            f"line {line} of {path.name!r} is not UTF-8; convert it, for example with iconv."
        ) from None
    if suffix == ".txt":
        return ((number, {text: line}) for number, line in enumerate(lines, 1))
    if suffix not in readers:
        raise InvalidInputError(f"{path.name!r} must end in {', '.join(readers)} or .txt; rename or convert it.")
    return readers[suffix](lines, path.name)


def _csv_fields(lines: io.StringIO, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(lines, skipinitialspace=True, strict=True)
    try:
        columns = reader.fieldnames or ()
        if len(set(columns)) < len(columns):
            raise InvalidInputError(f"the first line of {name!r} names a column twice; rename one of them.")
        for fields in reader:
            if None in fields:
                raise InvalidInputError(
                    f"line {reader.line_num} of {name!r} has more fields than the first line; quote fields with commas."
                )
            yield reader.line_num, fields
    except csv.Error as error:
        line = reader.reader.line_num
        raise InvalidInputError(f"line {line} of {name!r} is not CSV ({error}); repair it.") from None


def _json_fields(lines: io.StringIO, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        try:
            fields = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise InvalidInputError(f"line {number} of {name!r} is not a JSON object; write one object per line.")
        if line.strip():
            yield number, fields


def _filled(value: object, where: str, column: str) -> str:
    """A cleaned field that says something; a whole number will do."""
    kept = cleaned(str(value) if type(value) is int else value)
    if not kept:
        raise InvalidInputError(
            f"{where} has no {column!r}, or one that is empty or not a string; fill it in, leave the row out, or name"
            " another column (--text, --label, --split, --unlabeled)."
        )
    return kept


def draw_test_rows(rows: Sequence[Row], share: float, seed: int) -> list[Row]:
    """The same rows, round(share · rows) of them for testing, drawn from a public seed."""
    count = round(require_real("test_share", share, low=0.0, high=1.0) * len(rows))
    stream = public_stream(f"{require_integer('seed', seed, low=0, high=2**128 - 1):032x}")
    chosen = set(permutation(len(rows), stream.child("test share"))[:count].tolist())
    return [row._replace(part=PARTS[number in chosen]) for number, row in enumerate(rows)]
