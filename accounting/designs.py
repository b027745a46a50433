"""From a final (ε, δ) to the parameters of one bitsum protocol: the least noise that a rung allows.

RR and Poisson have one parameter. The others trade noise for messages: among the designs tried, those
whose noise is within `excess_error` of the least are kept, and the one with the fewest messages wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from accounting.calibration import SEARCH_TOLERANCE, least_noise
from accounting.composition import Basic, Geometric, Paper, Rung, Touched
from accounting.errors import InfeasibleError, InvalidInputError
from accounting.mechanisms import (
    BitsumProtocol,
    NegativeBinomialNoise,
    PoissonNoise,
    Pure,
    RandomizedResponse,
    ThreeNegativeBinomial,
)

NOISE_EXCESS = 0.01
"""Extra noise that 3NB and the negative binomial accept by default in return for fewer messages."""
PURE_EXCESS = 0.1
"""The same for Pure, whose messages grow fast as the excess shrinks."""

CANDIDATE_TOLERANCE = 2e-3
"""How closely candidates are calibrated before one of them is chosen and calibrated properly."""

CONTINUE_PROBABILITIES = (0.25, 0.5, 0.75, 0.875, 0.9375)
FLOOD_SHAPE, OTHER_FLOOD_SHAPES = 16.0, (8.0, 32.0)
LARGEST_FLOOD_RATIO, LARGEST_FLOOD_DEVIATION = 512.0, 4e4

Build = Callable[[float], BitsumProtocol]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the noise must achieve, and by which rung it is proved."""

    rung: Rung
    touched: Touched
    epsilon: float
    delta: float

    def guess(self) -> float:
        """Noise of the Gaussian mechanism for the same task: where the search starts."""
        budget = self.touched.shift_budget if isinstance(self.rung, Geometric) else self.touched.total
        return math.sqrt(2.0 * budget * math.log(1.25 / max(self.delta, 1e-300))) / self.epsilon

    def calibrate(
        self,
        build: Build,
        *,
        certified: bool,
        guess: float | None = None,
        tolerance: float = SEARCH_TOLERANCE,
    ) -> BitsumProtocol:
        """The least noise of a one-parameter family."""

        def excess(protocol: BitsumProtocol, *, certified: bool) -> float:
            return self.rung.excess(protocol, self.touched, self.epsilon, self.delta, certified=certified)

        likely: Callable[[BitsumProtocol], float] = partial(excess, certified=False)
        found: BitsumProtocol = least_noise(
            build,
            likely,
            partial(excess, certified=True) if certified else likely,
            guess=self.guess() if guess is None else guess,
            tolerance=tolerance,
        )
        return found


def design(
    bitsum: str,
    *,
    n_users: int,
    target: Target,
    noise_shape: int = 1,
    excess_error: float | None = None,
    certified: bool = True,
) -> BitsumProtocol:
    """The protocol of the given name that meets `target` with the least noise (and then the fewest messages).

    `certified=False` skips the supremum over the others' data: for searches whose result is designed again.
    """
    if isinstance(target.rung, Paper):
        return target.rung.build(bitsum, n_users, target.touched, target.epsilon, target.delta)
    if bitsum == Pure.name:
        return _pure(n_users, target, PURE_EXCESS if excess_error is None else excess_error)
    if bitsum == RandomizedResponse.name:
        return target.calibrate(partial(RandomizedResponse.with_rmse, n_users=n_users), certified=certified)
    if bitsum == PoissonNoise.name:
        return target.calibrate(partial(PoissonNoise.with_rmse, n_users=n_users), certified=certified)
    if bitsum == NegativeBinomialNoise.name:
        candidates = _negative_binomials(n_users, target)
    elif noise_shape == 1:
        candidates = _floods(n_users, target)
    else:  # the two-dimensional law is dear: the flood that serves k = 1 in most compositions
        candidates = _calibrated([_three(n_users, noise_shape, 8.0, FLOOD_SHAPE)], target)
    chosen, family = _fewest_messages(candidates, NOISE_EXCESS if excess_error is None else excess_error)
    return target.calibrate(family, guess=chosen.rmse(), certified=True) if certified else chosen


Candidate = tuple[BitsumProtocol, Build]


def _calibrated(families: Iterable[Build], target: Target, guess: float | None = None) -> list[Candidate]:
    """Each family at its least noise; families that cannot meet the target are left out."""
    found: list[Candidate] = []
    for family in families:
        try:
            protocol = target.calibrate(family, guess=guess, certified=False, tolerance=CANDIDATE_TOLERANCE)
        except InfeasibleError:
            continue
        found.append((protocol, family))
        guess = protocol.rmse()
    return found


def _fewest_messages(candidates: list[Candidate], excess: float) -> Candidate:
    if not candidates:
        raise InfeasibleError(
            "no design of this protocol meets the request within the limits of its law; ask for a larger epsilon or"
            " delta, fewer repetitions or accountant 'pld', or choose bitsum 'rr' or 'poisson' (3nb: noise_shape 1)."
        )
    least = min(protocol.rmse() for protocol, _ in candidates)
    affordable = [one for one in candidates if one[0].rmse() <= (1.0 + excess) * least]
    return min(affordable, key=lambda one: one[0].messages_per_user())


def _negative_binomials(n_users: int, target: Target) -> list[Candidate]:
    return _calibrated(
        [
            partial(NegativeBinomialNoise.with_rmse, n_users=n_users, continue_probability=p)
            for p in CONTINUE_PROBABILITIES
        ],
        target,
    )


def _three(n_users: int, noise_shape: int, ratio: float, shape: float) -> Build:
    return partial(
        ThreeNegativeBinomial.with_rmse,
        n_users=n_users,
        noise_shape=noise_shape,
        flood_ratio=ratio,
        flood_shape=shape,
    )


def _floods(n_users: int, target: Target) -> list[Candidate]:
    """Double the flood until more of it no longer helps, then try all shapes around that size."""
    found: list[Candidate] = []
    ratio, last = 4.0, math.inf
    while ratio <= LARGEST_FLOOD_RATIO and (not found or ratio * last < LARGEST_FLOOD_DEVIATION):
        wider = _calibrated([_three(n_users, 1, ratio, FLOOD_SHAPE)], target, guess=last if found else None)
        if not wider:
            break
        found += wider
        noise = wider[0][0].rmse()
        if noise > (1.0 - NOISE_EXCESS / 4.0) * last:
            break
        ratio, last = 2.0 * ratio, noise
    families = [_three(n_users, 1, scale * ratio, shape) for scale in (0.5, 1.0) for shape in OTHER_FLOOD_SHAPES]
    return found + _calibrated(families, target, guess=found[-1][0].rmse() if found else None)


def _pure(n_users: int, target: Target, excess_error: float) -> BitsumProtocol:
    if not isinstance(target.rung, Basic):
        raise InvalidInputError(
            f"accountant={target.rung.name!r} with bitsum 'pure': only adding up ε keeps delta = 0;"
            " choose accountant 'basic', 'paper' or 'auto'."
        )
    return Pure.calibrate(target.epsilon / target.touched.total, n_users, excess_error=excess_error)
