"""Checks of what one user can do: the client's domain, touched instances, shifts; `sensitivity` adds baseline, labels.

Searches can refute a declared bound and never prove it; each says how close to the bound it came. They draw their
candidates from a seed and have no false alarms: a violation is a violation.
"""

from __future__ import annotations

import math

import numpy as np

from privkde.draws.randomness import ByteStream
from privkde.kernels.gaussian import GaussianFamily
from privkde.protocol.inputs import OUTSIDE
from verification.domain.client_view import ClientView, Floats, largest_over_pairs, replaced_pairs
from verification.domain.sensitivity import check_central, check_label
from verification.statistical.execution.stages import private_stream
from verification.verdicts import Effort, Finding, Layer, Subject, check, finding

DOUBLE_PRECISION = 1e-12
"""Relative, for sums of squares. Single precision of features is within what the declared bounds grant to norms."""


@check("client-domain", Layer.STATISTICAL, "the client maps any vector into the declared domain, or refuses it")
def check_client(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Whatever it is given, the client sends features in [−1, 1] and of the declared norm, or refuses."""
    stream = private_stream(seed, "client")
    view = ClientView(subject.plan, stream)
    worst, where, accepted = 0.0, "", 0
    for name, vector in _strange(view, stream):
        for outside in OUTSIDE:
            scaled = view.accepted(vector, outside=outside)
            if scaled is None:
                continue
            accepted += 1
            excess = _excess(view, scaled)
            if not excess <= worst:
                worst, where = excess, f"{name}, outside={outside!r}"
    return finding(
        "Features that reach the rounding lie in [−1, 1] and have the declared norm, whatever the vector.",
        statistic=worst if accepted else math.inf,
        bound=1.0,
        found=f"{where}: features reach {worst:.6g} times what is declared" if accepted else "every vector was refused",
        note=f"A search: its power is unknown. {accepted} of the vectors were accepted."
        + ("" if view.whole else " A smaller kernel of the same kind was searched."),
    )


def _strange(view: ClientView, stream: ByteStream) -> list[tuple[str, Floats]]:
    """Vectors inside and outside of the domain, those that single features see best among them."""
    d = view.facts.dim
    axis, spread = np.eye(1, d)[0], np.full(d, 1.0 / math.sqrt(d))
    drawn = view.random(4, stream.child("strange")).x
    vectors = [("zero", np.zeros(d)), ("axis", axis), ("spread", spread), *_named("strongest", view.strongest())]
    vectors += _named("what a feature sees best", view.directions(8))
    vectors += _named("random", drawn)
    lengths = (1.0 + 5e-4, 5.0, 1e3, 1e17, 1e30, 1e300)
    vectors += [(f"{name} times {r:g}", r * v) for name, v in vectors[1:8] for r in lengths]
    vectors += [(f"an entry {bad}", np.where(axis > 0, bad, spread)) for bad in _NOT_FINITE]
    return vectors + [(f"all {bad}", np.full(d, bad)) for bad in _NOT_FINITE]


def _named(name: str, rows: Floats) -> list[tuple[str, Floats]]:
    return [(f"{name} ({number})", row) for number, row in enumerate(rows)]


_NOT_FINITE = (math.nan, math.inf, -math.inf)


def _excess(view: ClientView, scaled: Floats) -> float:
    """The largest feature, or the norm over what the kernel allows; not a number counts as infinite."""
    if not np.all(np.isfinite(scaled)):
        return math.inf
    facts, excess = view.facts, float(np.max(np.abs(scaled)))
    features = scaled[: facts.n_repetitions * facts.n_coordinates]  # with joint labels, class 0 holds the features
    squares = float(np.sum(features**2))
    if facts.record is not None and facts.squared_shift is not None:
        longest = 4.0 * facts.squared_shift * facts.record.squared_norm / facts.record.squared_distance
        return max(excess, squares / longest)
    if facts.linear:
        allowed = view.announcement.kernel_choice().facts().squared_shift  # x and −x are 2‖f‖ apart
        return max(excess, squares / allowed if allowed is not None else 0.0)
    if isinstance(view.family, GaussianFamily) and view.family.center is not None and facts.squared_shift is not None:
        return max(excess, float(np.sum((features - view.family.center) ** 2)) / facts.squared_shift)
    if facts.bias > 0.0:  # one-hot: S entries of size 1 per repetition
        return max(excess, squares / (facts.sparsity * facts.n_repetitions))
    return excess


@check("touched-instances", Layer.STATISTICAL, "one record changes no more instances than were counted")
def check_touched(subject: Subject, effort: Effort, seed: int) -> Finding:
    """How many instances a replaced record changes, and how far one bit moves, against what was declared."""
    stream = private_stream(seed, "touched")
    view = ClientView(subject.plan, stream)
    declared = view.facts.touched.total
    if view.whole:
        declared = max(1, min(declared, subject.plan.instances_per_user // subject.plan.request.releases))
    x, other = replaced_pairs(view, effort, stream)
    moved = np.abs(view.scaled(x) - view.scaled(other)) / 2.0
    touched = int(np.max(np.sum(moved > 0.0, axis=1)))
    largest = float(np.max(moved)) / view.facts.touched.largest_shift
    return finding(
        f"Replacing one record changes the law of at most {declared} instances.",
        statistic=max(touched / declared, largest),
        bound=1.0,
        found=f"a replaced record changed {touched} instances of {declared} declared; one bit moved {largest:.4g} times"
        " as far as declared",
        numbers={"touched": touched, "declared": declared},
        power=1.0,
        smallest_detectable_defect=max(0.0, 1.0 - touched / declared),
        note=f"Smallest defect: if a share of instances above this were not counted, this search shows it; it reached"
        f" {touched} of"
        f" {declared}." + ("" if view.whole else " A smaller kernel of the same kind was searched."),
    )


@check(
    "squared-shift",
    Layer.STATISTICAL,
    "one record shifts bits no further than declared",
    applies=lambda subject: subject.plan.request.facts().squared_shift is not None,
)
def check_shift(subject: Subject, effort: Effort, seed: int) -> Finding:
    """A search, with ascent, for a replacement that shifts bits by more than the declared Σ t² ≤ Δ²."""
    stream = private_stream(seed, "shift")
    view = ClientView(subject.plan, stream)
    of_maps = view.family.squared_shift() if view.facts.joint_classes is None else None  # labels are not in the maps
    known = [bound for bound in (view.facts.squared_shift, of_maps) if bound is not None]
    assert known, "no shift is declared; the check does not apply"
    declared = min(known)
    largest = largest_over_pairs(view, effort, stream, lambda moved: np.sum((moved / 2.0) ** 2, axis=1))
    return finding(
        f"Replacing one record shifts bits by Σ t² ≤ {declared:.6g}.",
        statistic=largest,
        bound=declared * (1.0 + DOUBLE_PRECISION),
        found=f"a replaced record shifts bits by Σ t² = {largest:.6g} and {declared:.6g} is declared",
        power=1.0,
        smallest_detectable_defect=max(0.0, 1.0 - largest / declared),
        note=f"Smallest defect: if Δ² were understated by more than this share, this search shows it; it reached"
        f" {largest / declared:.4f} of it."
        + ("" if view.whole else " A smaller kernel of the same kind was searched."),
    )


CHECKS = (check_client, check_touched, check_shift, check_central, check_label)
