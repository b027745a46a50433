"""Search for the parameters of Pure with the fewest messages at a stated error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from accounting.errors import InfeasibleError
from accounting.mechanisms.pure_condition import (
    Draft,
    OneDimensionalTest,
    conditions_base,
    exact_base,
    laplace_variance,
    log_odds,
)

MOST_MESSAGES = 1e7
"""`Pure.calibrate` refuses to ask more messages than this of one user in one instance."""
SEARCH_WINDOW = 2_000_000
FEWEST_PAIRS = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Nelder–Mead over (ln −ln p_f, ln of the tilted flood's deviation, what else `frame` takes); s follows.

    `frame` gives (ε, ε', q) and `base` the smallest s. The tilted flood is NB(r, p_f e^{−(ε−ε')}): its
    deviation decides the test, so these coordinates are nearly independent. `wide` starts from the larger
    deviation that conditions (i)–(iii) need.
    """

    n_users: int
    frame: Callable[[Sequence[float]], tuple[float, float, float]]
    base: Callable[[Draft], float]
    wide: bool = False

    def start(self, *rest: float, least_loss: float = 0.02) -> list[float]:
        """Where a normal approximation puts the optimum; docs/proofs/pure.md, "Choosing the parameters"."""
        epsilon, noise_epsilon, silence = self.frame(rest)
        gap = epsilon - noise_epsilon
        draft = Draft(epsilon=epsilon, noise_epsilon=noise_epsilon, silence=silence, shape=1.0, continuing=0.5)
        s = draft.least_base()
        loss = min(max(s * math.sqrt(2.0 * gap * (gap + 1.0 / s) / self.n_users), least_loss), 1.0)
        deviation = 1.1 * s / math.sqrt(2.0 * loss)
        if self.wide:
            deviation = max(deviation, 2.0 * math.sqrt(max(log_odds(epsilon, silence), 1.0)) / max(gap, 1e-12))
        return [math.log(gap + 2.5 / deviation), math.log(deviation), *rest]

    def draft(self, point: Sequence[float]) -> Draft:
        """The parameters at a point, with the smallest s."""
        epsilon, noise_epsilon, silence = self.frame(point[2:])
        fall = min(max(math.exp(min(point[0], 5.0)), 1e-9), 3.0)
        tilted = fall + epsilon - noise_epsilon
        shape = math.exp(min(2.0 * point[1], 80.0)) * math.expm1(-tilted) ** 2 * math.exp(tilted)
        draft = Draft(
            epsilon=epsilon,
            noise_epsilon=noise_epsilon,
            silence=silence,
            shape=min(max(shape, 1.0), 1e15),
            continuing=math.exp(-fall),
        )
        return replace(draft, base=self.base(draft))

    def cost(self, point: Sequence[float]) -> float:
        """Logarithm of the messages per user; a large number if infeasible."""
        return min(1e3, math.log(self.draft(point).messages(self.n_users)))

    def cheapest(self, starts: Sequence[Sequence[float]], evaluations: int) -> Draft:
        """The best whole-numbered draft near the best fractional one; its base is inf if no start works."""
        point = min((self._descended(start, evaluations) for start in starts), key=self.cost)
        best = self.draft(point)
        if not math.isfinite(best.base):
            return best
        whole = {math.ceil(best.base)} if best.base > 1e3 else {math.floor(best.base), math.ceil(best.base)}
        return min((self._least_flood(point, base) for base in whole), key=lambda draft: draft.messages(self.n_users))

    def _descended(self, start: Sequence[float], evaluations: int) -> list[float]:
        origin = np.asarray(start, dtype=np.float64)
        options = {
            "maxfev": evaluations,
            "initial_simplex": np.vstack([origin, origin + 0.25 * np.eye(len(origin))]),
            "xatol": 1e-3,
            "fatol": 1e-6,
        }
        return [float(x) for x in scipy.optimize.minimize(self.cost, origin, method="Nelder-Mead", options=options).x]

    def _least_flood(self, point: Sequence[float], base: int) -> Draft:
        """The draft with that many base messages and the least flood, at the point's p_f and `frame`."""
        log_fall, log_deviation, *rest = point

        def at(shift: float) -> Draft:
            return self.draft([log_fall, log_deviation + shift, *rest])

        low, high = -1.0, next((shift for shift in (0.0, 0.1, 0.3) if at(shift).base <= base), math.inf)
        if math.isinf(high):
            return replace(at(0.0), base=math.inf)
        while low > -8.0 and at(low).base <= base:
            low, high = low - 1.0, low
        while high - low > (5e-4 if base < 1e3 else 5e-3):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if at(middle).base <= base else (middle, high)
        return replace(at(high), base=float(base))


_SPLITS = (-8.0, -4.0, -1.5, 0.0, 1.0, 1.7, 2.5, 4.0)


def cheapest_draft(epsilon: float, n_users: int, excess_error: float) -> Draft:
    """The draft behind `Pure.calibrate`."""
    refuse_tiny(epsilon)
    laplace = laplace_variance(epsilon)
    spare = laplace * excess_error * (2.0 + excess_error)
    widest = epsilon - 2.0 * math.asinh(math.sqrt(0.5 / (laplace + spare)))

    def at_gap(gap: float) -> tuple[float, float, float]:
        noise = laplace_variance(epsilon - gap)
        left = max(laplace + spare - noise, 1e-9 * spare)
        # m = q/(1−q) solves D m² + (n + 2D) m = V − D, with D the noise's variance and V the allowed one.
        linear = n_users + 2.0 * noise
        odds = 2.0 * left / (linear + math.sqrt(linear * linear + 4.0 * noise * left))
        return epsilon, epsilon - gap, (1.0 - 1e-9) * odds / (1.0 + odds)

    def frame(rest: Sequence[float]) -> tuple[float, float, float]:
        return at_gap(widest / (1.0 + math.exp(-min(max(rest[0], -30.0), 20.0))))

    silent = at_gap(0.0)[2]
    if silent >= math.exp(-epsilon) * (1.0 + 1e-6):  # silence alone hides the bit
        return Draft(
            epsilon=epsilon,
            noise_epsilon=epsilon,
            silence=silent,
            shape=1.0,
            continuing=FEWEST_PAIRS,
            base=0.0,
        )
    exact = _searched_exactly(n_users, frame)
    if math.isfinite(exact.base):
        return exact
    search = Search(n_users=n_users, frame=frame, base=conditions_base, wide=True)
    return search.cheapest([search.start(split) for split in _SPLITS[4:7]], 150)


def _searched_exactly(n_users: int, frame: Callable[[Sequence[float]], tuple[float, float, float]]) -> Draft:
    """The cheapest draft by the exact test, with as many evaluations as its windows allow."""
    search = Search(n_users=n_users, frame=frame, base=lambda draft: exact_base(draft, SEARCH_WINDOW))
    for least_loss in (0.02, 0.15, 0.6):  # ever narrower floods, in case the windows are too long
        starts = sorted((search.start(split, least_loss=least_loss) for split in _SPLITS), key=search.cost)
        best = search.draft(starts[0])
        if math.isfinite(best.base):
            break
    else:
        return best
    window = len(OneDimensionalTest.of(best, ahead=math.ceil(best.base)).log_level)
    widest = min(SEARCH_WINDOW, 10 * window + 20_000)
    search = replace(search, base=lambda draft: exact_base(draft, widest))
    return search.cheapest(starts[: 3 if window < 5_000 else 1], min(150, max(20, 10_000_000 // window)))


def refuse_tiny(epsilon: float) -> None:
    """Refuse an ε that takes more messages than a user could send."""
    if epsilon < 1e-7:
        raise InfeasibleError(
            f"epsilon={epsilon!r} takes more than {MOST_MESSAGES:,.0f} messages of one user in one instance;"
            " ask for a larger epsilon (fewer repetitions)."
        )
