"""Texts in files: CSV, JSON lines, or one text per line; read a row at a time, and never shown in an error."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.errors import require_integer, require_real
from privkde.randomness import public_stream
from privkde.sampling import permutation

PARTS = ("train", "test")
"""What a column that splits a file may hold."""


def cleaned(text: str) -> str:
    r"""Backslashes become blanks, runs of white space one blank, and none is left at the ends.

    >>> cleaned("  two\\n\tlines ")
    'two n lines'
    """
    return " ".join(text.replace("\\", " ").split())


class TextRow(NamedTuple):
    """A row as it was found: fields are not yet cleaned, and None where the file has none."""

    where: str
    text: Any
    label: Any
    part: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """A file of texts in UTF-8, and the names of the columns that count.

    Its ending tells the format: `.csv` with a header, `.jsonl` or `.ndjson` with an object per line, `.txt` with a text
    per line.
    """

    path: Path
    text: str = "text"
    label: str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        if self.path.suffix.lower() not in _READERS:
            raise InvalidInputError(
                f"{self.path.name!r} must end in one of {', '.join(_READERS)}; rename or convert it."
            )
        if self._reader() is _read_lines and (self.label is not None or self.split is not None):
            raise InvalidInputError(
                f"{self.path.name!r} has one text per line and no columns; give a .csv or .jsonl file,"
                " or leave labels out (--unlabeled)."
            )

    def _reader(self) -> Callable[[TextFile], Iterator[TextRow]]:
        return _READERS[self.path.suffix.lower()]

    def texts(self) -> Iterator[str]:
        """The cleaned texts in order."""
        for row in self._reader()(self):
            yield _filled(row.text, row.where, "text")

    def survey(self) -> Survey:
        """One pass over the file that checks every row and keeps all but the texts."""
        labels: list[str] = []
        tested: list[bool] = []
        names: dict[str, str] = {}
        for row in self._reader()(self):
            _filled(row.text, row.where, "text")
            tested.append(self.split is not None and _is_test(row))
            if self.label is not None:
                given = str(row.label) if type(row.label) is int else row.label
                label = _filled(given, row.where, "label")
                labels.append(names.setdefault(label, label))  # one object for each class, however many rows
        if not tested:
            raise InvalidInputError(f"{str(self.path)!r} has no rows; give one text for each user.")
        return Survey(
            source=self,
            labels=np.array(labels, dtype=np.str_) if self.label is not None else None,
            tested=np.array(tested, dtype=np.bool_),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a file of texts holds beside them: a label for each row, or None, and which rows are for testing."""

    source: TextFile
    labels: NDArray[np.str_] | None
    tested: NDArray[np.bool_]

    def with_test_share(self, share: float, seed: int) -> Survey:
        """The same rows, of which round(share · rows) are drawn for testing, from a public seed."""
        rows = len(self.tested)
        count = round(require_real("test_share", share, low=0.0, high=1.0) * rows)
        tested = np.zeros(rows, dtype=np.bool_)
        stream = public_stream(f"{require_integer('seed', seed, low=0, high=2**128 - 1):032x}")
        tested[permutation(rows, stream.child("test share"))[:count]] = True
        return replace(self, tested=tested)

    def part(self, name: str) -> TextPart:
        """The rows for `train` or for `test`; there must be some."""
        chosen = self.tested if name == PARTS[1] else ~self.tested
        if not chosen.any():
            raise InvalidInputError(f"no row of {str(self.source.path)!r} is for {name}; choose some.")
        return TextPart(source=self.source, chosen=chosen, labels=None if self.labels is None else self.labels[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """Some rows of a file, and their labels."""

    source: TextFile
    chosen: NDArray[np.bool_]
    labels: NDArray[np.str_] | None

    @property
    def n_rows(self) -> int:
        """How many rows are chosen."""
        return int(np.count_nonzero(self.chosen))

    def texts(self) -> Iterator[str]:
        """The cleaned texts of these rows, read anew."""
        return compress(self.source.texts(), self.chosen)


def known_classes(train: TextPart, test: TextPart | None) -> NDArray[np.str_]:
    """The classes of the training rows, sorted; none without labels.

    Requires: two of them, and test rows of no other (checked).
    """
    if train.labels is None:
        return np.array([], dtype=np.str_)
    known = np.unique(train.labels)
    if len(known) < 2:
        raise InvalidInputError(
            "all training rows are of one class; two are needed to tell apart, or leave labels out (--unlabeled)."
        )
    if test is not None and test.labels is not None:
        strange = np.flatnonzero(~np.isin(test.labels, known))
        if len(strange):
            raise InvalidInputError(
                f"row {int(np.flatnonzero(test.chosen)[strange[0]]) + 1} of {str(test.source.path)!r} is for testing"
                f" and of a class that no training row has ({len(strange)} such rows); leave these rows out, or add"
                " users of that class."
            )
    return known


def _filled(value: Any, where: str, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(f"{where} has no {name}, or one that is not a string; repair or leave out this row.")
    kept = cleaned(value)
    if not kept:
        raise InvalidInputError(f"{where} has an empty {name}; fill in or leave out this row.")
    return kept


def _is_test(row: TextRow) -> bool:
    if row.part not in PARTS:
        raise InvalidInputError(
            f"{row.where} is neither for {' nor for '.join(PARTS)}; write one of these words there."
        )
    return bool(row.part == PARTS[1])


def _decoded(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines; decoded one by one, so that an error can name its line."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise InvalidInputError(
                    f"line {number} of {str(path)!r} is not UTF-8; convert the file, for example with iconv."
                ) from None  # the original error holds the line


def _read_csv(source: TextFile) -> Iterator[TextRow]:
    """Rows by the names in the first line. Errors do not list these: without a header they are somebody's text."""
    reader = csv.reader((line for _, line in _decoded(source.path)), strict=True)
    number = 0
    try:
        header = next(reader, [])
        places = [_place(header, name, source.path) for name in (source.text, source.label, source.split)]
        for fields in reader:
            if not fields:  # a blank line
                continue
            number += 1
            where = f"row {number} (line {reader.line_num}) of {str(source.path)!r}"
            if len(fields) != len(header):
                raise InvalidInputError(
                    f"{where} has {len(fields)} fields and the first line {len(header)}; quote fields that hold commas."
                )
            yield TextRow(where, *(None if place is None else fields[place] for place in places))
    except csv.Error as error:
        raise InvalidInputError(
            f"row {number + 1} (line {reader.line_num}) of {str(source.path)!r} is no CSV ({error}); repair it."
        ) from None


def _place(header: list[str], name: str | None, path: Path) -> int | None:
    if name is None:
        return None
    found = [place for place, one in enumerate(header) if one.strip() == name]
    if len(found) != 1:
        raise InvalidInputError(
            f"the first line of {str(path)!r} must name the columns, one of them {name!r}; it has {len(header)} fields,"
            f" {len(found)} of them {name!r}. Add a header, or choose other columns (--text, --label, --split)."
        )
    return found[0]


def _read_json(source: TextFile) -> Iterator[TextRow]:
    number = 0
    for line, content in _decoded(source.path):
        if not content.strip():
            continue
        number += 1
        where = f"row {number} (line {line}) of {str(source.path)!r}"
        try:
            fields = json.loads(content)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise InvalidInputError(f"{where} is no JSON object; write one object per line.")
        named = (source.text, source.label, source.split)
        yield TextRow(where, *(None if name is None else fields.get(name) for name in named))


def _read_lines(source: TextFile) -> Iterator[TextRow]:
    for line, content in _decoded(source.path):
        yield TextRow(f"line {line} of {str(source.path)!r}", content, None, None)


_READERS: dict[str, Callable[[TextFile], Iterator[TextRow]]] = {
    ".csv": _read_csv,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".txt": _read_lines,
}
