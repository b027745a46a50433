"""Class decoding: the vocabulary terms that a class's density ranks highest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import InfeasibleError, InvalidInputError
from accounting.errors import require_integer
from privkde.protocol.inputs import Rows
from privkde.protocol.model import FeatureSums, Floats
from privkde.storage.user_blocks import Progress


@dataclass(frozen=True, slots=True)
class Term:
    """A vocabulary term and its score."""

    word: str
    score: float


def decode_classes(
    sums: FeatureSums,
    vocabulary: Rows,
    words: Sequence[str] | NDArray[np.str_],
    *,
    k: int = 3,
    contrast: bool = False,
    progress: Progress | None = None,
) -> list[list[Term]]:
    """The k terms v of largest K̃_c(v) for each group c, best first; equal scores go to the earlier term.

    With `contrast`, terms are ranked by K̃_c(v) minus its mean over the groups: what sets a class apart. The public
    vocabulary is read in blocks, so it may be of any size.
    """
    require_integer("k", k, low=1, high=1000)
    if len(words) != vocabulary.shape[0]:
        raise InvalidInputError(f"{len(words)} words for {vocabulary.shape[0]} vectors; give one word for each vector.")
    n_groups = len(sums.sums)
    if n_groups == 0:
        raise InfeasibleError("no class stands out from its noise, so none has a density; raise epsilon.")
    scores = np.zeros((0, n_groups))
    index: NDArray[np.int64] = np.zeros((0, n_groups), np.int64)
    for start, block in sums.density_blocks(vocabulary, progress=progress):
        ranked = block - block.mean(axis=1, keepdims=True) if contrast else block
        numbers = np.broadcast_to(np.arange(start, start + len(ranked))[:, None], ranked.shape)
        scores, index = _best(np.concatenate([scores, ranked]), np.concatenate([index, numbers]), k)
    return [
        [Term(str(words[i]), float(score)) for i, score in zip(index[:, c], scores[:, c], strict=True)]
        for c in range(n_groups)
    ]


def _best(scores: Floats, index: NDArray[np.int64], k: int) -> tuple[Floats, NDArray[np.int64]]:
    """The k best rows of each column, best first, ties by index."""
    order = np.stack([np.lexsort((index[:, c], -scores[:, c]))[:k] for c in range(scores.shape[1])], axis=1)
    return np.take_along_axis(scores, order, 0), np.take_along_axis(index, order, 0)
