"""Labeled vectors for training and testing, and a vocabulary, from `.npz` archives."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.mechanisms import LabelResponse
from privkde.draws.randomness import ByteStream
from privkde.protocol.inputs import Rows, require_all
from privkde.protocol.label_round import randomize_labels
from privkde.storage.datasets import read_array, read_vectors

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledData:
    """Users' vectors and class numbers, and those of test items."""

    path: Path
    sha256: str
    rows: Rows = field(repr=False)
    numbers: Numbers = field(repr=False)
    test_rows: Rows = field(repr=False)
    test_numbers: Numbers = field(repr=False)
    class_names: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @property
    def dim(self) -> int:
        """Entries of a vector."""
        return self.rows.shape[1]

    @property
    def n_classes(self) -> int:
        """Classes, all of which have users."""
        return len(self.class_names)

    def facts(self) -> dict[str, Any]:
        """What a reader of results must know about the data."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "users": len(self.numbers),
            "test_items": len(self.test_numbers),
            "dim": self.dim,
            "class_names": list(self.class_names),
            "class_sizes": np.bincount(self.numbers, minlength=self.n_classes).tolist(),
            "largest_test_class": float(np.bincount(self.test_numbers).max() / len(self.test_numbers)),
        }

    def reported(self, label_epsilon: float | None, stream: ByteStream) -> Numbers:
        """What users report as their class: by randomized response, or the truth if there is no ε."""
        if label_epsilon is None:
            return self.numbers
        response = LabelResponse(n_classes=self.n_classes, label_epsilon=label_epsilon)
        return randomize_labels(self.numbers, response, stream=stream.child("labels", f"{label_epsilon:g}"))

    @staticmethod
    def read(path: Path) -> LabeledData:
        """From an archive with X_train, y_train, X_test, y_test and, if it likes, class_names."""
        rows, test_rows = read_vectors(path, "X_train"), read_vectors(path, "X_test")
        labels, test_labels = read_array(path, "y_train"), read_array(path, "y_test")
        for vectors, given, name in ((rows, labels, "train"), (test_rows, test_labels, "test")):
            if given.shape != (vectors.shape[0],) or len(given) == 0:
                raise InvalidInputError(
                    f"y_{name} of {str(path)!r} has shape {given.shape} for {vectors.shape[0]} vectors;"
                    " give one label for each vector, and at least one."
                )
            require_all(vectors, rows.shape[1], longest=1.0, outside="reject")
        known = np.unique(labels)
        if len(known) < 2:
            raise InvalidInputError(f"y_train of {str(path)!r} holds {len(known)} class; two are needed to tell apart.")
        strange = np.flatnonzero(~np.isin(test_labels, known))
        if len(strange):
            raise InvalidInputError(
                f"y_test of {str(path)!r} holds a class that y_train lacks (row {int(strange[0])}, {len(strange)} such"
                " rows); leave these rows out or add users of that class."
            )
        return LabeledData(
            path=path,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            rows=rows,
            numbers=np.searchsorted(known, labels).astype(np.int64),
            test_rows=test_rows,
            test_numbers=np.searchsorted(known, test_labels).astype(np.int64),
            class_names=_names(path, known),
        )


def _names(path: Path, known: NDArray[Any]) -> tuple[str, ...]:
    """`class_names` of the archive, one for each class in order, or the labels themselves."""
    with np.load(path, allow_pickle=False) as stored:
        if "class_names" not in stored.files:
            return tuple(str(label) for label in known)
    given = read_array(path, "class_names")
    if given.shape != known.shape:
        raise InvalidInputError(
            f"class_names of {str(path)!r} has shape {given.shape} for {len(known)} classes; give one for each."
        )
    return tuple(str(name) for name in given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Public terms and their vectors."""

    path: Path
    sha256: str
    rows: Rows = field(repr=False)
    words: tuple[str, ...] = field(repr=False)

    @staticmethod
    def read(path: Path) -> Vocabulary:
        """From an archive with X and words."""
        words = read_array(path, "words")
        rows = read_vectors(path, "X")
        if words.shape != (rows.shape[0],) or words.dtype.kind != "U":
            raise InvalidInputError(
                f"words of {str(path)!r} has shape {words.shape} and type {words.dtype} for {rows.shape[0]} vectors;"
                " give one text for each."
            )
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return Vocabulary(path=path, sha256=digest, rows=rows, words=tuple(words.tolist()))
