"""The label round: every user reports its class once, by m-ary randomized response, without a shuffler."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.mechanisms import LabelResponse
from privkde.draws.laws import KeepLabel
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import integers_below


def randomize_labels(labels: NDArray[np.integer], response: LabelResponse, *, stream: ByteStream) -> NDArray[np.int64]:
    """Each label with probability e^ε/(e^ε − 1 + m), otherwise one of the other m − 1, uniformly; exact draws."""
    m = response.n_classes
    numbers = np.asarray(labels)
    if not np.issubdtype(numbers.dtype, np.integer):
        raise InvalidInputError(f"labels of type {numbers.dtype} were given; number the classes 0 to {m - 1}.")
    unknown = np.flatnonzero((numbers < 0) | (numbers >= m))
    if len(unknown):
        raise InvalidInputError(f"the label of row {int(unknown[0])} is not one of the {m} classes, 0 to {m - 1}.")
    numbers = numbers.astype(np.int64)
    kept = KeepLabel(n_classes=m, label_epsilon=response.label_epsilon).sample(numbers.shape, stream)
    step = 1 + integers_below(m - 1, numbers.shape, stream)
    return np.where(kept == 1, numbers, (numbers + step) % m)
