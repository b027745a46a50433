"""What clients make of records before anything is drawn, and the records of joint labels that are furthest apart."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privkde.protocol.announcement import Announcement
from privkde.protocol.record_vectors import RecordLayout

Floats = NDArray[np.float64]
Float32 = NDArray[np.float32]


def client_rows(announcement: Announcement, x: NDArray[np.floating], classes: NDArray[np.int64] | None) -> Float32:
    """The scaled features of every user (rows) in every instance, as they reach the rounding."""
    family, layout = announcement.family(), announcement.layout()
    if isinstance(layout, RecordLayout):
        return layout.scaled(x.astype(np.float32), classes)
    features = family.scaled_features(x)
    return features if layout is None else layout.scaled(features, classes)


def furthest_cosine(moment_weight: float) -> float:
    """The cosine s of two unit vectors of one class whose v(x, c) are furthest apart: the largest 2 − 2s + β²(2 − 2s²).

    >>> furthest_cosine(0.5), furthest_cosine(1.0)
    (-1.0, -0.5)
    """
    return -1.0 if moment_weight <= 0.5 else -0.5 / moment_weight


def turned(x: Floats, across: Floats, cosine: float) -> Floats:
    """Unit vectors at this cosine to unit vectors x (rows), in the planes of x and `across`; −x in one dimension."""
    if x.shape[-1] == 1:
        return -x
    across = across - np.sum(across * x, axis=-1, keepdims=True) * x
    across /= np.maximum(np.linalg.norm(across, axis=-1, keepdims=True), 1e-9)
    return np.asarray(cosine * x + math.sqrt(1.0 - cosine**2) * across)
