"""From a final (ε, δ) to the parameters of one bitsum protocol: the least noise that a rung allows.

Each law searches in its own way (`BitsumProtocol.design`) with what is here. A law with several parameters trades
noise for messages: among the designs tried, those whose noise is within `excess_error` of the least are kept, and the
one with the fewest messages wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from accounting.composition.rung import L, Rung, Touched
from accounting.errors import InfeasibleError
from accounting.mechanisms.bitsum_protocol import BitsumProtocol
from accounting.mechanisms.gaussian_noise import GaussianMechanism
from accounting.numerics.calibration import SEARCH_TOLERANCE, least_noise

CANDIDATE_TOLERANCE = 2e-3
"""How closely candidates are calibrated before one of them is chosen and calibrated properly."""

Build = Callable[[float], L]
"""A family with one parameter: the protocol of a given RMSE."""
Candidate = tuple[L, Build[L]]
"""A calibrated protocol and the family that it is from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the noise must achieve, by which rung it is proved, and what a request wants of the design."""

    rung: Rung
    touched: Touched
    epsilon: float
    delta: float
    noise_shape: int | None = None
    """Shape of the noise, where the law takes one; None: that of least noise."""
    excess_error: float | None = None
    """Extra noise that is accepted for fewer messages; None: as much as the law accepts by itself."""

    def design(self, law: type[L], n_users: int, *, certified: bool = True) -> L:
        """The protocol of this law that meets the target with the least noise (and then the fewest messages).

        `certified=False` skips the supremum over the others' data: for searches whose result is designed again.
        """
        return self.rung.design(law, self, n_users, certified=certified)

    def accepted_excess(self, law: type[BitsumProtocol]) -> float:
        """Extra noise, as a share of the least, that is accepted for fewer messages."""
        return law.default_excess if self.excess_error is None else self.excess_error

    def calibrate(
        self,
        build: Build[L],
        *,
        certified: bool,
        guess: float | None = None,
        tolerance: float = SEARCH_TOLERANCE,
    ) -> L:
        """The least noise of a one-parameter family. The search starts at the Gaussian mechanism for the same task."""

        def excess(proved: bool) -> Callable[[L], float]:
            return lambda law: self.rung.excess(law, self.touched, self.epsilon, self.delta, certified=proved)

        hidden = self.touched.shift_budget if self.rung.uses_shifts else self.touched.total
        delta = min(max(self.delta, 1e-300), 0.5)
        gaussian = GaussianMechanism.calibrate(self.epsilon, delta, math.sqrt(hidden))
        return least_noise(
            build,
            excess(False),
            excess(True) if certified else None,
            guess=gaussian.standard_deviation if guess is None else guess,
            slope=gaussian.slope(self.epsilon),
            margin=lambda protocol: protocol.certified_margin(),
            tolerance=tolerance,
        )

    def candidates(self, families: Iterable[Build[L]], guess: float | None = None) -> list[Candidate[L]]:
        """Each family at its least noise; families that cannot meet the target are left out."""
        candidates: list[Candidate[L]] = []
        for family in families:
            try:
                protocol = self.calibrate(family, guess=guess, certified=False, tolerance=CANDIDATE_TOLERANCE)
            except InfeasibleError:
                continue
            candidates.append((protocol, family))
            guess = protocol.rmse()
        return candidates

    def fewest_messages(self, candidates: list[Candidate[L]], *, certified: bool) -> L:
        """Of the candidates with little more than the least noise, the one with the fewest messages, calibrated."""
        if not candidates:
            raise InfeasibleError(
                "no design of this protocol meets the request within the limits of its law; ask for a larger epsilon"
                " or delta, fewer repetitions or accountant 'pld', or choose bitsum 'rr' or 'poisson'"
                " (3nb: no noise_shape)."
            )
        least = min(protocol.rmse() for protocol, _ in candidates)
        most = (1.0 + self.accepted_excess(type(candidates[0][0]))) * least
        affordable = [candidate for candidate in candidates if candidate[0].rmse() <= most]
        chosen, family = min(affordable, key=lambda candidate: candidate[0].messages_per_user())
        return self.calibrate(family, guess=chosen.rmse(), certified=True) if certified else chosen
