"""Pure: correlated noise that hides a bit with δ = 0.

With probability q a user sends no input messages, otherwise s + b messages "+1" and s messages "−1"; in any
case Z1 ~ NB(1/n, e^{−ε'}) of "+1", Z2 ~ NB(1/n, e^{−ε'}) of "−1" and F ~ NB(r/n, p_f) pairs (+1, −1).
The pairs of all users together are the *flood*, NB(r, p_f) with law P_F. Source: docs/proofs/pure.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Self

import mpmath
import numpy as np

from accounting.contract import Evidence, EvidenceKind
from accounting.errors import InfeasibleError, InvalidInputError, require_integer, require_real
from accounting.guarantee import Adjacency, Guarantee, View
from accounting.mechanisms.bitsum_protocol import MOST_USERS, BitsumProtocol
from accounting.mechanisms.pure_condition import Draft, OneDimensionalTest, conditions_base, laplace_variance
from accounting.mechanisms.pure_search import FEWEST_PAIRS, MOST_MESSAGES, Search, cheapest_draft, refuse_tiny
from accounting.numerics.effort import require_time
from accounting.numerics.profile import Pair, smallest_epsilon
from accounting.numerics.tails import most_messages, negative_binomial_moment

if TYPE_CHECKING:
    from accounting.composition.target import Target

LARGEST_EPSILON = 50.0

_SOURCE = "docs/proofs/pure.md"
_HYPOTHESIS = "(1−q)[a(u) − e^(ε−ε')·a(u−1)] ≤ (e^ε−1)·q·a(u+s) for all u ≥ 0"
_DIGITS = 50
_GUARD = 1e-35  # decisions at 50 digits are rounded against ourselves by this much
_AFFORDABLE_TERMS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pure(BitsumProtocol):
    """An ε-DP bitsum: an instance exists only if its parameters passed the exact test.

    Source: docs/proofs/pure.md, Theorem 1 and Theorem 2.
    """

    name: ClassVar[str] = "pure"
    summary: ClassVar[str] = (
        "each user is silent with a small probability, else sends its bit among pairs of +1 and −1, with noise and a"
        " flood of pairs on top; the analyzer takes the difference and corrects for silence; δ = 0"
    )
    randomizer: ClassVar[str] = (
        "each user sends nothing with probability silence_probability, else base_messages pairs and its bit,"
        " plus noise and flood; the analyzer computes ((#+1) − (#−1))/(1 − silence_probability)"
    )
    spends_delta: ClassVar[bool] = False
    default_excess: ClassVar[float] = 0.1
    composition_checked: ClassVar[str | None] = (
        "the conditions of Pure hold for these parameters; ε of the touched instances adds up"
    )

    epsilon_target: float
    """ε of the instance."""
    noise_epsilon: float
    """ε of the noise alone, at most that of the instance."""
    silence_probability: float
    """Probability that a user sends no input messages."""
    base_messages: int
    """Messages of either sign that a user sends besides its bit."""
    flood_shape: float
    """Shape of the flood of all users together."""
    flood_continue_probability: float
    """Probability that the flood goes on."""

    def __post_init__(self) -> None:
        BitsumProtocol.__post_init__(self)
        require_real("epsilon_target", self.epsilon_target, low=0.0, high=LARGEST_EPSILON)
        require_real("noise_epsilon", self.noise_epsilon, low=0.0, high=self.epsilon_target)
        require_real("silence_probability", self.silence_probability, low=0.0, high=math.nextafter(1.0, 0.0))
        require_integer("base_messages", self.base_messages, low=0, high=10**9)
        require_real("flood_shape", self.flood_shape, low=1.0, high=1e15, low_open=False)
        require_real(
            "flood_continue_probability",
            self.flood_continue_probability,
            low=FEWEST_PAIRS,
            high=math.nextafter(1.0, 0.0),
            low_open=False,
        )
        if self.flood_shape * self.flood_continue_probability > 1e15 * (1.0 - self.flood_continue_probability):
            raise InvalidInputError(
                f"flood_shape={self.flood_shape!r} with flood_continue_probability="
                f"{self.flood_continue_probability!r} makes more than 1e15 pairs; lower one of them."
            )
        if not _satisfies_hypothesis(self):
            raise InvalidInputError(
                f"epsilon_target={self.epsilon_target!r}: {_HYPOTHESIS} fails for these parameters or is too"
                f" close to call ({_SOURCE}, Theorem 2); raise base_messages, flood_shape or"
                " silence_probability, lower noise_epsilon, or let Pure.calibrate choose."
            )

    def satisfies_conditions(self, threshold: int) -> bool:
        """Whether (i)–(iii) hold with z* = `threshold`: each is one inequality, decided at 50 digits.

        (i) ε' ≤ ε. (ii) P_F(z+1) ≤ e^{ε−ε'} P_F(z) for all z ≥ z*: the ratio p_f (r+z)/(z+1) equals
        p_f (1 + (r−1)/(z+1)) and does not increase in z for r ≥ 1, so z = z* decides.
        (iii) (e^ε−1) q P_F(z+s) ≥ (1−q) P_F(z) for all z ≤ z*: P_F(z+s)/P_F(z) is a product of s such ratios,
        hence does not increase either, and again z = z* decides.
        Source: docs/proofs/pure.md, Theorem 1.
        """
        z = require_integer("threshold", threshold, low=0, high=10**40)
        s = self.base_messages
        with mpmath.workdps(_DIGITS):
            r, p = mpmath.mpf(self.flood_shape), mpmath.mpf(self.flood_continue_probability)
            gap = mpmath.mpf(self.epsilon_target) - mpmath.mpf(self.noise_epsilon)
            if gap < 0 or mpmath.log(p * (r + z) / (z + 1)) > gap - _GUARD:
                return False
            gained = _log_rising(z + r, s) - _log_rising(mpmath.mpf(z + 1), s) + s * mpmath.log(p)
            return bool(gained >= _precise_log_odds(self.epsilon_target, self.silence_probability) + _GUARD)

    def smallest_threshold(self) -> int:
        """The smallest z* that meets (ii); (iii) is easiest there."""
        with mpmath.workdps(_DIGITS):
            r, p = mpmath.mpf(self.flood_shape), mpmath.mpf(self.flood_continue_probability)
            c = mpmath.exp(mpmath.mpf(self.epsilon_target) - mpmath.mpf(self.noise_epsilon)) * (1 - mpmath.mpf(_GUARD))
            return max(0, int(mpmath.ceil((p * r - c) / (c - p))))

    def satisfies_exact_test(self) -> bool:
        """Whether (1−q)[a(u) − e^{ε−ε'} a(u−1)] ≤ (e^ε−1) q a(u+s) for all u, a(u) = Σ_j e^{−2ε'j} P_F(u−j).

        Equivalent to ε-DP if nobody but the target has input messages. Computed in double precision with a
        safety margin, then at the tightest u with 50 digits where affordable. Close calls count as failures.
        Source: docs/proofs/pure.md, Theorem 2.
        """
        test = OneDimensionalTest.of(self._draft(), ahead=self.base_messages)
        slack, tightest = test.slack(self.silence_probability, self.base_messages)
        if slack < 0.0:
            return False
        precise = self.precise_slack(tightest)
        return precise is None or precise > 0.0

    def precise_slack(self, u: int) -> float | None:
        """Logarithm of right over left side of the exact test at `u`, to 50 digits; None if unaffordable."""
        with mpmath.workdps(_DIGITS):
            square = mpmath.exp(-2 * mpmath.mpf(self.noise_epsilon))
            c = mpmath.exp(mpmath.mpf(self.epsilon_target) - mpmath.mpf(self.noise_epsilon))
            here, there = self._earlier(u, square), self._earlier(u + self.base_messages, square)
            if here is None or there is None:
                return None
            left = 1 + here - c * here / square  # over P_F(u), since a(u) = P_F(u) + e^{−2ε'} a(u−1)
            if left <= 0:
                return math.inf
            r, s = mpmath.mpf(self.flood_shape), self.base_messages
            rise = _log_rising(u + r, s) - _log_rising(mpmath.mpf(u + 1), s)
            rise += s * mpmath.log(mpmath.mpf(self.flood_continue_probability)) + mpmath.log((1 + there) / left)
            return float(rise - _precise_log_odds(self.epsilon_target, self.silence_probability))

    def _earlier(self, u: int, square: mpmath.mpf) -> mpmath.mpf | None:
        """e^{−2ε'} a(u−1)/P_F(u) = Σ_{j≥1} e^{−2ε'j} P_F(u−j)/P_F(u), to a relative 1e-47."""
        r, p = mpmath.mpf(self.flood_shape), mpmath.mpf(self.flood_continue_probability)
        require_time()
        total, term = mpmath.mpf(0), mpmath.mpf(1)
        for j in range(_AFFORDABLE_TERMS):
            if j == u or term < total * mpmath.mpf(10) ** (-_DIGITS + 3):
                return total
            k = u - j
            term *= square * k / ((r + k - 1) * p)
            total += term
        return None

    def parameters(self) -> dict[str, float | int]:
        """Every field; each user draws its shares NB(1/n, e^{−ε'}) and NB(r/n, p_f) with n = `n_users`."""
        return dataclasses.asdict(self)

    def pairs(self) -> Sequence[Pair]:
        """Randomized response at ε, which dominates every ε-DP mechanism, whatever the others hold."""
        likely = 1.0 / (1.0 + math.exp(-self.epsilon_target))
        unlikely = 1.0 / (1.0 + math.exp(self.epsilon_target))
        return [Pair(upper=np.array([likely, unlikely]), lower=np.array([unlikely, likely]))]

    def likely_delta(self, epsilon: float) -> float:
        """δ(ε) of randomized response at `epsilon_target`: exactly zero from there on."""
        return 0.0 if epsilon >= self.epsilon_target else BitsumProtocol.likely_delta(self, epsilon)

    def epsilon(self, delta: float) -> float:
        """Smallest ε with δ(ε) ≤ delta, rounded up, never above `epsilon_target`."""
        return min(self.epsilon_target, smallest_epsilon(self.delta, delta))

    def variance(self, n_present: int) -> float:
        """The variance when all bits are one: N q/(1−q) + (N/n)·2e^{−ε'}/[(1−e^{−ε'})² (1−q)²].

        N = `n_present`. The estimate is ((#+1) − (#−1))/(1−q). A user with bit b adds b·Bern(1−q) + Z1 − Z2
        to the difference, of variance b q(1−q) + (2/n) e^{−ε'}/(1−e^{−ε'})²; its pairs cancel.
        """
        q = self.silence_probability
        noise = n_present / self.n_users * laplace_variance(self.noise_epsilon)
        return n_present * q / (1.0 - q) + noise / (1.0 - q) ** 2

    def messages_per_user(self, mean_bit: float = 0.5) -> float:
        """(1−q)(2s + b) + (2/n)[e^{−ε'}/(1−e^{−ε'}) + r p_f/(1−p_f)], exactly."""
        return self._draft().messages(self.n_users, mean_bit)

    def most_messages(self, n_instances: int) -> int:
        """By the moments of Z1 + Z2 + 2F and, unless silent, 2s + 1 more."""
        flood, n, input_messages = self.flood_continue_probability, self.n_users, 2.0 * self.base_messages + 1.0

        def log_moment(rate: float) -> float:
            spoken = rate * input_messages  # ln((1−q)e^{t(2s+1)} + q)
            spoken += math.log1p(self.silence_probability * math.expm1(-spoken))
            noise = negative_binomial_moment(2.0 / n, 1.0 / math.expm1(self.noise_epsilon), rate)
            return spoken + noise + negative_binomial_moment(self.flood_shape / n, flood / (1.0 - flood), 2.0 * rate)

        return most_messages(n_instances, log_moment)

    def local_guarantee(self) -> Guarantee:
        """Pure ln max(n e^{ε'}, C_A, 1 + C_B), whatever the shuffler does.

        C_A = n e^{ε'} p_f max(1, r/n) and C_B = (1−q) P(0)/(q P(s)), P = NB(r/n, p_f) being the user's pairs.
        Source: docs/proofs/pure.md, Proposition 4.
        """
        with mpmath.workdps(_DIGITS):
            n, p = mpmath.mpf(self.n_users), mpmath.mpf(self.flood_continue_probability)
            q, share = mpmath.mpf(self.silence_probability), mpmath.mpf(self.flood_shape) / n
            forward = n * mpmath.exp(mpmath.mpf(self.noise_epsilon))
            flood = _log_rising(share, self.base_messages) - _log_rising(mpmath.mpf(1), self.base_messages)
            silent = 1 + (1 - q) / q * mpmath.exp(-flood - self.base_messages * mpmath.log(p))
            largest = mpmath.log(max(forward, forward * p * max(mpmath.mpf(1), share), silent))
        epsilon = math.nextafter(float(largest), math.inf)
        return Guarantee(epsilon=epsilon, delta=0.0, adjacency=Adjacency.BIT, view=View.LOCAL)

    @property
    def evidence(self) -> Evidence:
        """Proof of pure privacy; its one-dimensional hypothesis is verified for these parameters."""
        return Evidence(
            kind=EvidenceKind.THEOREM,
            method="pure ε-DP follows from a one-dimensional inequality, verified for every count u ≥ 0",
            source=_SOURCE,
        )

    def checked(self) -> tuple[str, ...]:
        """The hypothesis of the theorem, verified when the instance was made."""
        return (
            "parameters are in the domain of the law",
            f"{_HYPOTHESIS}, by conditions (i)–(iii) or by the exact test",
        )

    def _draft(self) -> Draft:
        return Draft(
            epsilon=self.epsilon_target,
            noise_epsilon=self.noise_epsilon,
            silence=self.silence_probability,
            base=self.base_messages,
            shape=self.flood_shape,
            continuing=self.flood_continue_probability,
        )

    @classmethod
    def design(cls, target: Target, n_users: int, *, certified: bool = True) -> Self:
        """An instance for the share of ε that its rung leaves to it; always certified."""
        share = target.rung.share_without_delta(target.touched, target.epsilon)
        return cls.calibrate(share, n_users, target.accepted_excess(cls))

    def published_epsilon(self, delta: float) -> float | None:
        """That of the instance."""
        return self.epsilon_target

    @classmethod
    def calibrate(cls, epsilon: float, n_users: int, excess_error: float = 0.1) -> Self:
        """The cheapest instance found whose RMSE is within a factor 1 + `excess_error` of discrete Laplace.

        Error: `variance(n_users)`, all bits one, is at most (1 + excess)²·2e^{−ε}/(1−e^{−ε})². Cost:
        `messages_per_user()` at mean bit one half. A Nelder–Mead search over the gap ε − ε', p_f and r, each
        time with the smallest s that passes the exact test; where the windows of that test would be too long,
        conditions (i)–(iii) replace it. The instance is always valid; that nothing is cheaper is not proved.

        Raises: `InfeasibleError` if a user would have to send more than `MOST_MESSAGES`.
        Source: docs/proofs/pure.md, "Choosing the parameters".

        >>> protocol = Pure.calibrate(1.0, 10_000, excess_error=0.5)
        >>> protocol.delta(1.0), round(protocol.messages_per_user())
        (0.0, 41)
        """
        epsilon = require_real("epsilon", epsilon, low=0.0, high=LARGEST_EPSILON)
        require_integer("n_users", n_users, low=1, high=MOST_USERS)
        excess_error = require_real("excess_error", excess_error, low=0.0, high=10.0)
        return cls._made(cheapest_draft(epsilon, n_users, excess_error), n_users)

    @classmethod
    def as_published(cls, epsilon: float, delta: float, n_users: int, rho: float = 0.5) -> Self:
        """The published choice: q = 0.2ρ/(e^ε(1−e^{−ε})² n) and ε' = ε − 0.01ρ·min(ε, 1), ρ in (0, 1/2].

        The publication leaves the constants of s and of the flood open; here they are the cheapest found that
        conditions (i)–(iii) allow. Its error is within 1 + ρ of discrete Laplace as long as q is small. No δ is spent.

        Raises: `InvalidInputError` for ρ outside (0, 1/2] or ρ = True; `InfeasibleError` if q would reach 1.
        """
        epsilon = require_real("epsilon", epsilon, low=0.0, high=LARGEST_EPSILON)
        require_integer("n_users", n_users, low=1, high=MOST_USERS)
        rho = require_real("rho", rho, low=0.0, high=0.5)
        refuse_tiny(epsilon)
        silence = 0.2 * rho / (math.exp(epsilon) * math.expm1(-epsilon) ** 2 * n_users)
        if silence >= 1.0:
            raise InfeasibleError(
                f"epsilon={epsilon!r} with n_users={n_users} makes the published q = {silence:.3g}, which is"
                " not a probability; use more users, a larger epsilon or Pure.calibrate."
            )
        noise_epsilon = epsilon - 0.01 * rho * min(epsilon, 1.0)
        search = Search(
            n_users=n_users,
            frame=lambda _: (epsilon, noise_epsilon, silence),
            base=conditions_base,
            wide=True,
        )
        return cls._made(search.cheapest([search.start()], 150), n_users)

    @classmethod
    def _made(cls, draft: Draft, n_users: int) -> Self:
        """The instance of a draft, or `InfeasibleError` if it asks for too many messages."""
        if draft.messages(n_users) > MOST_MESSAGES:
            raise InfeasibleError(
                f"epsilon={draft.epsilon:.6g} with n_users={n_users} takes more than {MOST_MESSAGES:,.0f}"
                " messages of one user in one instance; ask for a larger epsilon (fewer repetitions) or a larger"
                " excess error."
            )
        return cls(
            n_users=n_users,
            epsilon_target=draft.epsilon,
            noise_epsilon=draft.noise_epsilon,
            silence_probability=draft.silence,
            base_messages=math.ceil(draft.base),
            flood_shape=draft.shape,
            flood_continue_probability=draft.continuing,
        )


@lru_cache(maxsize=16)
def _satisfies_hypothesis(law: Pure) -> bool:
    """Tested once: the same law is made again whenever its plan is asked for it, and the exact test takes seconds."""
    return law.satisfies_conditions(law.smallest_threshold()) or law.satisfies_exact_test()


def _precise_log_odds(epsilon: float, silence: float) -> mpmath.mpf:
    q = mpmath.mpf(silence)
    return mpmath.log((1 - q) / q) - mpmath.log(mpmath.expm1(mpmath.mpf(epsilon)))


def _log_rising(x: mpmath.mpf, steps: int) -> mpmath.mpf:
    """Logarithm of Γ(x + steps)/Γ(x)."""
    return mpmath.loggamma(x + steps) - mpmath.loggamma(x)
