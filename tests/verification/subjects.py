"""Small plans of every kind, to be attacked by the checks."""

from typing import Any

from accounting.mechanisms import BITSUMS
from tests.plans import plan_for
from verification.verdicts import Subject

SMALL: dict[str, Any] = {
    "users": 2_000,
    "dim": 8,
    "repetitions": 8,
    "epsilon": 4.0,
    "delta": 1e-5,
    "accountant": "pld",
    "bitsum": "poisson",
    "allow_useless": True,
}
"""Poisson noise is planned soonest."""
RECORD: dict[str, Any] = {
    "kernel": "inner-product", "dim": 4, "repetitions": None, "accountant": "geometric", "bitsum": "rr",
    "model": "discriminant", "padded": 256,
}  # fmt: skip
"""Records that are rotated as one vector."""
KINDS: dict[str, dict[str, Any]] = {
    **{bitsum: {"bitsum": bitsum} for bitsum in BITSUMS},
    "pure": {"bitsum": "pure", "delta": 0.0, "accountant": "basic"},
    "identity": {"kernel": "inner-product", "dim": 64, "repetitions": None, "bound": 0.4},
    "whole": {"kernel": "inner-product", "repetitions": None, "bound": 1.0},
    "signs": {"kernel": "inner-product-signs", "dim": 4, "repetitions": 16},
    "laplacian": {"kernel": "laplacian"},
    "labels": {"classes": 4, "label_epsilon": 2.0, "epsilon": 6.0},
    "joint": {"kernel": "inner-product", "repetitions": None, "labels": "joint", "classes": 3},
    "joint-gaussian": {"kernel": "gaussian", "labels": "joint", "classes": 3},
    "record": {**RECORD, "classes": 3, "moment_weight": 0.5},
    "joint-exponential": {"kernel": "exponential", "labels": "joint", "classes": 3},
}
WEIGHTS: dict[str, dict[str, Any]] = {
    "record-weighty": {**RECORD, "classes": 2, "moment_weight": 1.0},
    "record-mean": {**RECORD, "classes": 2, "model": "mean", "moment_weight": 0.0},
}
"""Other weights of second moments, where they matter."""
RESPONSES = {f"{kind}-rr": {**asked, "bitsum": "rr"} for kind, asked in KINDS.items() if kind not in BITSUMS}
"""Kernels and labels with randomized response, for slow tests."""


def subject(kind: str) -> Subject:
    """The subject of this kind."""
    return Subject(plan=plan_for(**{**SMALL, **(KINDS | WEIGHTS | RESPONSES)[kind]}))
