"""Checks that take no time, for tests of the machinery around checks; workers find them by this module's name."""

from __future__ import annotations

from accounting import Adjacency, Guarantee, View
from verification.evidence import AttackBound, AttackBounds, CertifiedBounds, MeasuredErrors, QueryError
from verification.verdicts import CHECK_ALPHA, Check, Effort, Finding, Layer, Subject, finding

LOWEST_FLIP = 0.05
"""What the stand-in for an accountant takes for the least private flip probability."""

BOUNDS = CertifiedBounds(
    claimed=1.0,
    delta=1e-6,
    upper=1.1,
    below=((0.5, 1e-3), (0.9, 1e-6)),
    above=((0.6, 1e-3), (1.1, 1e-6)),
)
ATTACK = AttackBound(
    name="draw",
    promise=Guarantee(epsilon=1e9, delta=1e-6, adjacency=Adjacency.FEATURES, view=View.COMMUNICATION),
    epsilon=0.4,
)
ERRORS = MeasuredErrors(
    bound=3.0,
    planned=0.5,
    queries=(QueryError(predicted=0.45, measured=0.46), QueryError(predicted=0.2, measured=0.1)),
)


def _flips(subject: Subject, effort: Effort, seed: int) -> Finding:
    flip = float(subject.plan.parameters["flip_probability"])
    return finding(
        "Bits flip at least as often as they have to.",
        statistic=LOWEST_FLIP,
        bound=flip,
        found=f"bits flip with probability {flip:g}, which is less than {LOWEST_FLIP:g}",
        numbers={"flip_probability": flip},
        smallest_detectable_defect=1e-12,
        note="The defect is a probability.",
        evidence=BOUNDS,
    )


def _drawn(subject: Subject, effort: Effort, seed: int) -> Finding:
    return finding(
        "A number <drawn> from the seed is below the modulus & above zero.",
        statistic=float(seed % 1009) * effort.scale,
        bound=1e9,
        found="it is not",
        alpha=CHECK_ALPHA,
        power=0.9,
        smallest_detectable_defect=0.25,
        evidence=AttackBounds(attacks=(ATTACK,), closest=ATTACK, curve=((0.4, 1e-6),)),
    )


def _endless(subject: Subject, effort: Effort, seed: int) -> Finding:
    return finding(
        "Nothing is infinite.",
        statistic=float("-inf"),
        bound=0.0,
        found="it is",
        evidence=ERRORS,
    )


def _broken(subject: Subject, effort: Effort, seed: int) -> Finding:
    raise ZeroDivisionError("a secret of some user")


FLIPS = Check(name="flips", layer=Layer.CERTIFIED, about="flip probability", run=_flips)
DRAWN = Check(name="distinguisher-drawn", layer=Layer.STATISTICAL, about="draws", run=_drawn)
ENDLESS = Check(name="sup-rmse", layer=Layer.STATISTICAL, about="infinite numbers", run=_endless)
BROKEN = Check(name="broken", layer=Layer.EXACT, about="an error", run=_broken)
LABELS = Check(
    name="labels",
    layer=Layer.EXACT,
    about="labels",
    run=_endless,
    applies=lambda subject: subject.plan.request.classes is not None,
)

CHECKS = (FLIPS, DRAWN, ENDLESS, LABELS)
