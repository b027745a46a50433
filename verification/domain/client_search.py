"""Search for the record, and what replaces it, that a client's features tell apart best."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from privkde.randomness import ByteStream
from privkde.sampling import normals
from verification.domain.client_view import ClientView, Floats, Record
from verification.verdicts import Effort

PAIRS, FEWEST_PAIRS = 1_000, 32
MOST_ENTRIES = 1 << 22
"""Features that are held at once, about."""
ASCENT_ROUNDS, ASCENT_WIDTH = 100, 16


def replaced_pairs(view: ClientView, effort: Effort, stream: ByteStream) -> tuple[Record, Record]:
    """Records and what they are replaced by: random, opposite, extreme; with joint labels half change their class."""
    count = min(PAIRS * effort.scale, max(FEWEST_PAIRS, MOST_ENTRIES // view.facts.n_instances))
    x, other = view.random(count, stream.child("first")), view.random(count, stream.child("second"))
    best = np.concatenate([view.strongest(), view.directions(count // 8)])
    x.x[: len(best)] = best
    other.x[: count // 2] = -x.x[: count // 2]
    if x.classes is not None and other.classes is not None:
        other.classes[::2] = x.classes[::2]
    return x, other


def largest_over_pairs(
    view: ClientView, effort: Effort, stream: ByteStream, score: Callable[[Floats], Floats]
) -> float:
    """The largest score of f(x)/R − f(x')/R over pairs, and over random steps from the best of them."""
    x, other = replaced_pairs(view, effort, stream)
    scores = score(view.scaled(x) - view.scaled(other))
    chosen = np.argsort(scores)[-ASCENT_WIDTH:]
    best, x, other, step = scores[chosen], x[chosen], other[chosen], 0.3
    for number in range(ASCENT_ROUNDS):
        moves = normals((2, *x.x.shape), stream.child("move", number)) * step / math.sqrt(view.facts.dim)
        near = (_moved(view, x, moves[0]), _moved(view, other, moves[1]))
        scores = score(view.scaled(near[0]) - view.scaled(near[1]))
        better = scores > best
        best = np.where(better, scores, best)
        for record, tried in zip((x, other), near, strict=True):
            record.x[better] = tried.x[better]
        step *= 1.2 if np.any(better) else 0.8
    return float(np.max(best))


def _moved(view: ClientView, record: Record, move: Floats) -> Record:
    x = record.x + move
    if view.family.needs_unit_norm:
        x = x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    return Record(x=x, classes=record.classes)
