"""What a client makes of a vector before anything is drawn; and a search for the records that this tells apart best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import Plan
from accounting.errors import InvalidInputError
from accounting.kernels import KernelFacts
from accounting.request import ALL_THERE, PlanRequest
from privkde.bitsum import Tally
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import integers_below, normals
from privkde.protocol.announcement import Announcement
from privkde.protocol.inputs import OUTSIDE
from privkde.protocol.parties import Randomizer
from verification.client_rows import furthest_cosine, turned
from verification.miniature import WITHOUT_LABELS, smaller_record
from verification.verdicts import Effort

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_NUMBERS = 1 << 22
"""Size (instances times dimensions) up to which a plan's own kernel is searched; beyond it a smaller one."""
POWER_ITERATIONS = 100
FEWER = 64
"""Dimensions, repetitions and joint classes of the smaller one, at most."""
STEP = 0.1
"""Of slopes, in the largest norm of a record."""
AXES = 64
"""Axes that are mapped at once."""
PAIRS, FEWEST_PAIRS = 1_000, 32
MOST_ENTRIES = 1 << 22
"""Features that are held at once, about."""
ASCENT_ROUNDS, ASCENT_WIDTH = 100, 16
UNROUNDED: Any = SimpleNamespace(
    respond=lambda scaled, stream: scaled, inputs=lambda scaled, stream: Tally(scaled, scaled)
)
"""Stands where the client's bitsum protocol does, and sends the features that are about to be rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What users hold: vectors (rows) and, with joint labels, their classes."""

    x: Floats
    classes: Integers | None

    def __getitem__(self, part: Integers | slice) -> Record:
        return Record(x=self.x[part], classes=None if self.classes is None else self.classes[part])


class ClientView:
    """The client of a plan's collection: features as they are about to be rounded, and the facts declared of them.

    The plan's own kernel if it is small enough, else one of the same kind with fewer dimensions and repetitions.
    """

    def __init__(self, plan: Plan, stream: ByteStream) -> None:
        facts = plan.request.facts()
        self.whole = facts.n_instances * facts.dim <= MOST_NUMBERS
        public_seed = stream.child("public").take(16).tobytes().hex()
        self.announcement = Announcement(plan=one_group(plan, whole=self.whole), public_seed=public_seed)
        self.facts: KernelFacts = self.announcement.plan.request.facts()
        self.family = self.announcement.family()
        self._stream = stream
        self._clients: dict[str, Randomizer] = {}
        for outside in OUTSIDE:
            self._clients[outside] = Randomizer(self.announcement, stream=stream, outside=outside)
            self._clients[outside]._bitsum = UNROUNDED

    def scaled(self, record: Record, *, outside: str = "project") -> Floats:
        """f/R of every user in every instance, as it reaches the rounding."""
        sent = self._clients[outside].inputs(record.x, record.classes, stream=self._stream)
        return sent.ones.astype(np.float64)

    def accepted(self, vector: Floats, *, outside: str) -> Floats | None:
        """The features of one user, or None if the client refuses the vector."""
        classes = None if self.facts.joint_classes is None else np.zeros(1, np.int64)
        try:
            with np.errstate(all="ignore"):
                return np.asarray(self.scaled(Record(x=vector[None], classes=classes), outside=outside)[0])
        except InvalidInputError:
            return None

    def directions(self, most: int) -> Floats:
        """Up to `most` unit vectors that single features see best: rows of the maps if they are linear, else axes."""
        if not self.facts.linear:
            return np.eye(min(most, self.facts.dim), self.facts.dim)
        seen = self._maps().T[:most]
        return np.asarray(seen / np.linalg.norm(seen, axis=1, keepdims=True))

    def strongest(self) -> Floats:
        """Vectors of large images: the leading singular vector of linear maps, and what all features see.

        For features in a ball, of their slopes at zero; the vectors are as long as a record may be.
        """
        if not self.facts.linear and self.facts.ball is None:
            return np.eye(1, self.facts.dim)
        maps, longest = self._maps(), self.family.largest_norm or 1.0
        leading = flat = _unit(maps.sum(axis=1))
        for _ in range(POWER_ITERATIONS):
            leading = _unit(maps @ (maps.T @ leading))
        return longest * np.stack([leading, flat])

    def _maps(self) -> Floats:
        """Linear maps as a matrix: the images of the axes, a few at a time, because all axes have d² entries.

        Of other maps, how far their images are from those of the opposite vectors: their slopes, if steps are short.
        """
        d, step = self.facts.dim, 1.0 if self.facts.linear else STEP * (self.family.largest_norm or 1.0)
        parts = []
        for k in range(0, d, AXES):
            axes = step * np.eye(min(AXES, d - k), d, k)
            images = self.family.query_features(axes)
            parts.append(images if self.facts.linear else images - self.family.query_features(-axes))
        return np.concatenate(parts).astype(np.float64)

    def random(self, count: int, stream: ByteStream) -> Record:
        """Random directions of the largest norm (if there is none: up to 8), in random classes."""
        drawn = normals((count, self.facts.dim), stream.child("x"))
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        longest = self.family.largest_norm
        drawn *= np.linspace(0.5, 8.0, count)[:, None] if longest is None else longest
        m = self.facts.joint_classes
        return Record(x=drawn, classes=None if m is None else integers_below(m, count, stream.child("classes")))


def _unit(vector: Floats) -> Floats:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-9))


def one_group(plan: Plan, *, whole: bool) -> Plan:
    """The collection of one group of the plan, if not `whole` with fewer dimensions, repetitions and classes."""
    request = plan.request
    most = MOST_NUMBERS if whole else FEWER
    smaller = dataclasses.replace(
        request,
        users=max(request.users_per_protocol, 2 * (request.classes or 1)),
        releases=1,
        **{**ALL_THERE, "min_users": request.counted_users},
        epsilon=request.kde_epsilon,
        dim=min(request.dim, most),
        repetitions=min(request.facts().n_repetitions, most),
        **{"bound": request.rounding_bound, **_labels(request, whole=whole)},
    )
    return dataclasses.replace(plan, request=smaller)


def _labels(request: PlanRequest, *, whole: bool) -> dict[str, Any]:
    """What a request for one group says of labels, and of a record's vector."""
    if not request.joint or whole:
        return {} if request.joint else dict(WITHOUT_LABELS)
    classes, record = min(request.classes or 2, FEWER), request.record
    if record is None:
        return {"classes": classes}
    dim, bound = min(request.dim, FEWER), request.facts().bound
    return {"classes": classes, **smaller_record(record, bound, dim=dim, n_classes=classes, padded=FEWER)}


def replaced_pairs(view: ClientView, effort: Effort, stream: ByteStream) -> tuple[Record, Record]:
    """Records and what they are replaced by: random, opposite, extreme; with joint labels half change their class."""
    count = min(PAIRS * effort.scale, max(FEWEST_PAIRS, MOST_ENTRIES // view.facts.n_instances))
    x, other = view.random(count, stream.child("first")), view.random(count, stream.child("second"))
    best = np.concatenate([view.strongest(), view.directions(count // 8)])
    x.x[: len(best)] = best
    other.x[: count // 2] = -x.x[: count // 2]
    if view.facts.record is not None:  # as many at the angle that is worst if nothing is clipped, as many orthogonal
        parts = (slice(0, count // 3), furthest_cosine(view.facts.record.moment_weight)), (slice(count // 3, None), 0.0)
        for part, cosine in parts:
            other.x[part] = turned(x.x[part], other.x[part] + x.x[::-1][part], cosine)
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
    if (longest := view.family.largest_norm) is not None:
        x = x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True) / longest)
    return Record(x=x, classes=record.classes)
