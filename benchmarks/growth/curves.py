"""Which costs are measured against which size, and how fast each is expected to grow, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SIZED_CHECKS = (
    "plan-verifies",
    "certified-bound",
    "kernel-means",
    "client-domain",
    "touched-instances",
    "central-sensitivity",
    "label-response",
)
"""Checks of an audit that work on the plan at its own size; all others on a miniature of a fixed size."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The exponent that follows from what is computed, and why."""

    exponent: float
    reason: str

    @property
    def model(self) -> str:
        """What is fitted: a part that does not grow is allowed for wherever growth is expected."""
        return "overhead" if self.exponent > 0 else "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One operation, one size that varies, all else held fixed."""

    operation: str
    against: str
    """What varies, in words."""
    name: str
    """What varies, as a request calls it."""
    values: tuple[int, ...]
    fixed: Mapping[str, Any] = field(hash=False)
    time: Expected
    memory: Expected

    def setting(self, value: int) -> dict[str, Any]:
        """All sizes at one point."""
        return {**self.fixed, self.name: value}


PROMISE = {"epsilon": 2.0, "delta": 1e-6}
PLANNED = {"users": 100_000, "dim": 64, "repetitions": 64, **PROMISE}
LABELED = {"users": 1_000_000, "dim": 64, "repetitions": 64, **PROMISE, "epsilon": 4.0, "label_epsilon": 2.0}
RUN = {"users": 8_192, "dim": 128, "repetitions": 128}
SEPARATE = {"users": 262_144, "dim": 128, "repetitions": 128}
JOINT = {"users": 4_096, "dim": 64, "kernel": "inner-product", "repetitions": None, "labels": "joint", "padded": 0}

USERS, DIM, REPETITIONS = "users n", "dimension d", "repetitions I"
CLASSES, SEPARATE_CLASSES, JOINT_CLASSES = "classes m", "separate classes m", "joint classes m"


def doubling(first: int, count: int, factor: int = 2) -> tuple[int, ...]:
    """A geometric range."""
    return tuple(first * factor**i for i in range(count))


def _planning() -> tuple[Curve, ...]:
    flat = Expected(0, "tables of one plan, whatever is planned")
    return (
        Curve(
            operation="plan", against=USERS, name="users", values=doubling(10_000, 5, 10), fixed=PLANNED,
            time=Expected(0, "the noise does not depend on n, so neither does the window of likely counts, √(np(1−p));"
                             " the supremum over the others' data takes at most 1024 cells"),
            memory=flat,
        ),
        Curve(
            operation="plan", against=DIM, name="dim", values=doubling(32, 5, 4), fixed=PLANNED,
            time=Expected(0, "I is fixed, and d only enters formulas"), memory=flat,
        ),
        Curve(
            operation="plan", against=REPETITIONS, name="repetitions", values=doubling(16, 6, 4),
            fixed={**PLANNED, "users": 1_000_000},
            time=Expected(0.5, "the noise grows as √I, and with it the window of likely counts and the grid of composed"
                               " losses; FFTs add a logarithm"),
            memory=Expected(0.5, "the same tables"),
        ),
        Curve(
            operation="plan", against=SEPARATE_CLASSES, name="classes", values=doubling(2, 4, 4), fixed=LABELED,
            time=Expected(0, "one plan for n/m users serves as forecast for every class"), memory=flat,
        ),
    )  # fmt: skip


def _randomizing() -> tuple[Curve, ...]:
    block = "blocks of at most 2²⁰ entries, whatever the total"
    return (
        Curve(
            operation="randomize", against=USERS, name="users", values=doubling(8_192, 6), fixed=RUN,
            time=Expected(1, "nI(d + const): each user's features, bits and counts"), memory=Expected(0, block),
        ),
        Curve(
            operation="randomize", against=DIM, name="dim", values=doubling(64, 7), fixed=RUN,
            time=Expected(1, "nId for the matrix product, beside nI for cosines and bits"),
            memory=Expected(1, "a block of vectors and Id weights"),
        ),
        Curve(
            operation="randomize", against=REPETITIONS, name="repetitions", values=doubling(512, 5), fixed=RUN,
            time=Expected(1, "nI(d + const)"), memory=Expected(0, f"{block}; beside them Id weights are small here"),
        ),
        Curve(
            operation="randomize", against=SEPARATE_CLASSES, name="classes", values=doubling(2, 4), fixed=SEPARATE,
            time=Expected(0, "every user takes part in one class only"), memory=Expected(0, block),
        ),
        Curve(
            operation="randomize", against=JOINT_CLASSES, name="classes", values=doubling(8, 6), fixed=JOINT,
            time=Expected(1, "every user sends m(d + 1) bits"), memory=Expected(0, block),
        ),
    )  # fmt: skip


def _analyzing() -> tuple[Curve, ...]:
    held = "all packets are held, one bit for each user and instance"
    return (
        Curve(
            operation="analyze", against=USERS, name="users", values=doubling(2_048, 6), fixed=RUN,
            time=Expected(1, "nI bits"), memory=Expected(1, held),
        ),
        Curve(
            operation="analyze", against=DIM, name="dim", values=doubling(16, 4, 4), fixed=RUN,
            time=Expected(0, "I is fixed: no bit depends on d"), memory=Expected(0, "no bit depends on d"),
        ),
        Curve(
            operation="analyze", against=REPETITIONS, name="repetitions", values=doubling(16, 6), fixed=RUN,
            time=Expected(1, "nI bits"), memory=Expected(1, held),
        ),
        Curve(
            operation="analyze", against=SEPARATE_CLASSES, name="classes", values=doubling(2, 4),
            fixed={**RUN, "users": 32_768},
            time=Expected(0, "every user takes part in one class only"),
            memory=Expected(0, "all packets are held, of whatever class"),
        ),
        Curve(
            operation="analyze", against=JOINT_CLASSES, name="classes", values=doubling(2, 6), fixed=JOINT,
            time=Expected(1, "nm(d + 1) bits"), memory=Expected(1, held),
        ),
    )  # fmt: skip


def _querying() -> tuple[Curve, ...]:
    fixed = {**RUN, "classes": 10}
    return (
        Curve(
            operation="query", against=USERS, name="users", values=doubling(8_192, 4, 8), fixed=fixed,
            time=Expected(0, "sums are published, not users"), memory=Expected(0, "sums are published, not users"),
        ),
        Curve(
            operation="query", against=DIM, name="dim", values=doubling(64, 7), fixed=fixed,
            time=Expected(1, "qI(d + m) for q queries: features of each query, beside cosines and the sums"),
            memory=Expected(1, "a block of vectors and Id weights"),
        ),
        Curve(
            operation="query", against=REPETITIONS, name="repetitions", values=doubling(512, 5), fixed=fixed,
            time=Expected(1, "qI(d + m)"),
            memory=Expected(0, "blocks of at most 2²⁰ entries; beside them I(d + m) weights are small here"),
        ),
        Curve(
            operation="query", against=CLASSES, name="classes", values=doubling(16, 7), fixed=RUN,
            time=Expected(1, "qI(d + m): m is beyond d only at the upper end"),
            memory=Expected(1, "q densities of m classes"),
        ),
    )  # fmt: skip


def _auditing() -> tuple[Curve, ...]:
    flat = Expected(0, "as in planning")
    only = {"only": list(SIZED_CHECKS)}
    return (
        Curve(
            operation="audit", against=USERS, name="users", values=doubling(10_000, 5, 10), fixed={**PLANNED, **only},
            time=Expected(0, "as in planning; the client's checks draw a fixed number of vectors"), memory=flat,
        ),
        Curve(
            operation="audit", against=DIM, name="dim", values=doubling(32, 5, 4), fixed={**PLANNED, **only},
            time=Expected(1, "certified: none; statistical: a fixed number of features of d dimensions"),
            memory=Expected(1, "a fixed number of vectors and Id weights"),
        ),
        Curve(
            operation="audit", against=REPETITIONS, name="repetitions", values=doubling(16, 5, 4),
            fixed={**PLANNED, "users": 1_000_000, **only},
            time=Expected(0.5, "certified: the plan's accountant as in planning; the independent route's grid grows as"
                               " I, but only up to 2²⁰ cells; statistical: a fixed number of vectors, as I"),
            memory=Expected(0.5, "the same tables"),
        ),
        Curve(
            operation="audit", against=SEPARATE_CLASSES, name="classes", values=doubling(2, 4, 4),
            fixed={**LABELED, **only},
            time=Expected(0, "one class stands for all; a fixed number of labels is drawn"), memory=flat,
        ),
    )  # fmt: skip


CURVES = (*_planning(), *_randomizing(), *_analyzing(), *_querying(), *_auditing())
ENDS = {
    "small": {"users": 100_000, "dim": 64, "repetitions": 64, **PROMISE},
    "large": {"users": 10_000_000, "dim": 1024, "repetitions": 1024, **PROMISE},
}
"""Two plans that are audited with every check."""
