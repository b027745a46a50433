"""The label round: every user reports its class once, by m-ary randomized response, without a shuffler."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.mechanisms import LabelResponse
from privkde.laws import KeepLabel
from privkde.randomness import ByteStream
from privkde.sampling import integers_below


def randomize_labels(labels: NDArray[np.integer], response: LabelResponse, *, stream: ByteStream) -> NDArray[np.int64]:
    """Each label kept with probability e^ε/(e^ε − 1 + m), else one of the other m − 1, uniformly; exact draws."""
    m = response.n_classes
    given = np.asarray(labels)
    if not np.issubdtype(given.dtype, np.integer):
        raise InvalidInputError(f"labels of type {given.dtype} were given; number the classes 0 to {m - 1}.")
    out = np.flatnonzero((given < 0) | (given >= m))
    if len(out):
        raise InvalidInputError(f"the label of row {int(out[0])} is not one of the {m} classes, 0 to {m - 1}.")
    given = given.astype(np.int64)
    kept = KeepLabel(n_classes=m, label_epsilon=response.label_epsilon).sample(given.shape, stream)
    step = 1 + integers_below(m - 1, given.shape, stream)
    return np.where(kept == 1, given, (given + step) % m)
