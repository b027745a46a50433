"""ε of k-fold composition by each accountant, one per process: what it says, how long it took, how much memory.

python -m benchmarks.peers.accountants NAME CASE

prints a line of JSON. CASE is JSON: k shuffled sums {"users", "flip_probability", "times", "delta"} or k Gaussian
mechanisms {"sigma", "times", "delta"}. Peers are handed the two laws of the count with all others at 0, tabulated
beforehand, and answer for the worse of the two directions; the clock starts after all imports.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from accounting.composition import Advanced, PrivacyLossComposition, Touched
from accounting.composition.pld import NEGLIGIBLE_SHARE, composed_loss
from accounting.mechanisms import GaussianMechanism
from accounting.numerics.losses import DominatingLoss, Repeated
from accounting.numerics.pmf import Array
from accounting.numerics.profile import GRID_STEPS_PER_DEVIATION, LossGrid, Pair, ProfileTable, smallest_epsilon
from benchmarks.peers.cases import Answer, Case, concentrated, renyi, worse_renyi

# --- privkde ---------------------------------------------------------------------------------------------------


def ours_any_data(case: Case) -> Answer:
    """`pld`: every data of the others, different in every sum."""
    found = PrivacyLossComposition().achieved_epsilon(case.sums, Touched(groups=case.times, per_group=1), case.delta)
    assert found is not None
    return Answer(high=found)


def ours_ends(case: Case) -> Answer:
    """`pld` with all others at 0, or all at 1, chosen again in every sum."""
    blocks = composed_loss(case.sums, case.times, near_epsilon=None, delta=case.delta, certified=False)
    return Answer(high=blocks.epsilon(case.delta))


def ours_advanced(case: Case) -> Answer:
    """`advanced`: advanced composition of the exact instance."""
    found = Advanced().achieved_epsilon(case.sums, Touched(groups=case.times, per_group=1), case.delta)
    assert found is not None
    return Answer(high=found)


def ours_gaussian(case: Case) -> Answer:
    """Exact: k Gaussian mechanisms are one with sensitivity √k."""
    noise = GaussianMechanism(sensitivity=math.sqrt(case.times), standard_deviation=case.sigma)
    return Answer(high=noise.epsilon(case.delta))


def ours_gaussian_loss(case: Case) -> Answer:
    """By the composition of losses that shuffled sums go through, from one profile on a grid."""
    assert case.gaussian is not None
    mean, deviation = 0.5 / case.sigma**2, 1.0 / case.sigma
    step = deviation / GRID_STEPS_PER_DEVIATION
    end = smallest_epsilon(case.gaussian.delta, NEGLIGIBLE_SHARE * case.delta / case.times) + mean
    grid = LossGrid(step=step, n_steps=math.ceil(end / step))
    profile = np.array([case.gaussian.delta(step * i) for i in range(grid.n_steps + 1)])
    loss = DominatingLoss.from_table(ProfileTable(grid=grid, forward=profile, backward=profile))
    return Answer(high=Repeated([(loss, case.times)]).epsilon(case.delta))


# --- dp-accounting ---------------------------------------------------------------------------------------------


def dp_accounting_pld(case: Case, step: float) -> Answer:
    """Losses rounded up and down to multiples of `step`: a bracket."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    def composed(pair: Pair, upward: bool) -> float:
        laws = [dict(enumerate(np.log(law).tolist())) for law in (pair.lower, pair.upper)]
        one = pld.from_two_probability_mass_functions(
            *laws, pessimistic_estimate=upward, value_discretization_interval=step, symmetric=False
        )
        return float(one.self_compose(case.times).get_epsilon_for_delta(case.delta))

    def worse(upward: bool) -> float:
        return max(composed(pair, upward) for pair in case.directions())

    return Answer(high=worse(True), low=partial(worse, False))


def dp_accounting_gaussian(case: Case, step: float) -> Answer:
    """Its own Gaussian mechanism, connect the dots, and an optimistic estimate."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    def composed(upward: bool) -> float:
        one = pld.from_gaussian_mechanism(
            case.sigma, pessimistic_estimate=upward, value_discretization_interval=step, use_connect_dots=upward
        )
        return float(one.self_compose(case.times).get_epsilon_for_delta(case.delta))

    return Answer(high=composed(True), low=partial(composed, False))


def dp_accounting_rdp(case: Case) -> Answer:
    """Rényi accountant: its orders and conversion, divergences of the pair."""
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    orders = np.asarray(rdp.DEFAULT_RDP_ORDERS, dtype=np.float64)
    if case.gaussian is not None:
        values: Array = orders / (2.0 * case.sigma**2)
    else:
        pairs = case.directions()
        values = np.array([worse_renyi(pairs, order) for order in orders])
    return Answer(high=float(rdp.compute_epsilon(orders, case.times * values, case.delta)[0]))


# --- prv-accountant --------------------------------------------------------------------------------------------


class StepLoss:
    """The loss of a pair as prv-accountant asks for it: a distribution function and Rényi divergences."""

    pm_inf = 0.0

    def __init__(self, pair: Pair) -> None:
        order = np.argsort(pair.losses())
        self._pair = pair
        self._losses = pair.losses()[order]
        self._below = np.concatenate([[0.0], np.cumsum(pair.upper[order])])

    def cdf(self, t: Any) -> Any:
        """P(loss ≤ t)."""
        return self._below[np.searchsorted(self._losses, np.asarray(t, dtype=np.float64), side="right")]

    def probability(self, a: Any, b: Any) -> Any:
        """P(a < loss ≤ b)."""
        return self.cdf(b) - self.cdf(a)

    def rdp(self, alpha: float) -> float:
        """Rényi divergence."""
        return renyi(self._pair, alpha)


def prv(case: Case, error: float) -> Answer:
    """Error `error` asked for in ε and δ/1000 in δ; its own bounds on both sides."""
    from prv_accountant import PRVAccountant
    from prv_accountant.privacy_random_variables import GaussianMechanism as GaussianLoss

    losses = [GaussianLoss(case.sigma)] if case.gaussian is not None else [StepLoss(one) for one in case.directions()]
    found = []
    for loss in losses:
        accountant = PRVAccountant(
            prvs=[loss], eps_error=error, delta_error=case.delta / 1000.0, max_self_compositions=[case.times]
        )
        found.append(accountant.compute_epsilon(case.delta, [case.times]))
    low, high = max(low for low, _, _ in found), max(high for _, _, high in found)
    return Answer(high=high, low=lambda: low)


# --- autodp ----------------------------------------------------------------------------------------------------


def autodp_rdp(case: Case) -> Answer:
    """Rényi composition and conversion."""
    from autodp.autodp_core import Mechanism
    from autodp.mechanism_zoo import GaussianMechanism as Gaussian
    from autodp.transformer_zoo import Composition

    if case.gaussian is not None:
        one = Gaussian(case.sigma, approxDP_off=True)
    else:
        one, pairs = Mechanism(), case.directions()
        one.name, one.params = "sum", {}
        one.propagate_updates(partial(worse_renyi, pairs), "RDP")
    return Answer(high=float(Composition()([one], [case.times]).get_approxDP(case.delta)))


def autodp_fourier(case: Case) -> Answer:
    """Its Fourier accountant: δ(ε) from characteristic functions by quadrature, an estimate without an error.

    The root is sought here: with SciPy ≥ 1.11 its own search for ε never leaves ε ≤ 0.
    """
    from autodp.autodp_core import Mechanism
    from autodp.mechanism_zoo import GaussianMechanism as Gaussian
    from autodp.transformer_zoo import ComposeAFA

    if case.gaussian is not None:
        with contextlib.redirect_stdout(io.StringIO()):
            one = Gaussian(case.sigma, approxDP_off=True, RDP_off=True, phi_off=False)
    else:
        one = Mechanism()
        one.name, one.params = "sum", {}
        one.propagate_updates(tuple(partial(_log_characteristic, pair) for pair in case.directions()), "log_phi")
    composed = ComposeAFA()([one], [case.times])
    return Answer(high=smallest_epsilon(lambda epsilon: float(composed.approx_delta(epsilon)), case.delta))


def _log_characteristic(pair: Pair, t: float) -> complex:
    """Ln E[e^{it·loss}]."""
    return complex(np.log(np.dot(pair.upper, np.exp(1j * t * pair.losses()))))


def autodp_gaussian(case: Case) -> Answer:
    """Its composition of Gaussian mechanisms only: exact."""
    from autodp.mechanism_zoo import ExactGaussianMechanism
    from autodp.transformer_zoo import ComposeGaussian

    composed = ComposeGaussian()([ExactGaussianMechanism(case.sigma)], [case.times])
    return Answer(high=float(composed.get_approxDP(case.delta)))


# --- OpenDP ----------------------------------------------------------------------------------------------------


def opendp(case: Case) -> Answer:
    """Its composition of zero-concentrated DP and conversion to (ε, δ)."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    if case.gaussian is not None:
        domain, metric = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
        one, distance = dp.m.make_gaussian(domain, metric, scale=case.sigma), 1.0
    else:
        rho = concentrated(case.directions())
        one, distance = _told_measurement(dp, rho), 1
    composed = dp.c.make_zCDP_to_approxDP(dp.c.make_composition([one] * case.times))
    return Answer(high=float(composed.map(distance).epsilon(delta=case.delta)))


def _told_measurement(dp: Any, rho: float) -> Any:
    """A measurement of which OpenDP knows only its ρ."""
    return dp.m.make_user_measurement(
        dp.atom_domain(T=bool),
        dp.discrete_distance(),
        dp.zero_concentrated_divergence(),
        lambda value: value,
        lambda distance: rho * distance,
    )


SUMS: dict[str, Callable[[Case], Answer]] = {
    "privkde, pld": ours_any_data,
    "privkde, pld, others all alike": ours_ends,
    "privkde, advanced": ours_advanced,
    "dp-accounting, PLD, step 1e-4": partial(dp_accounting_pld, step=1e-4),
    "dp-accounting, PLD, step 2e-5": partial(dp_accounting_pld, step=2e-5),
    "dp-accounting, PLD, step 5e-6": partial(dp_accounting_pld, step=5e-6),
    "dp-accounting, Rényi": dp_accounting_rdp,
    "prv-accountant, error 0.1": partial(prv, error=0.1),
    "prv-accountant, error 0.01": partial(prv, error=0.01),
    "autodp, Rényi": autodp_rdp,
    "autodp, Fourier": autodp_fourier,
    "OpenDP, zCDP": opendp,
}
GAUSSIANS: dict[str, Callable[[Case], Answer]] = {
    "privkde, exact": ours_gaussian,
    "privkde, losses": ours_gaussian_loss,
    "dp-accounting, PLD, step 1e-4": partial(dp_accounting_gaussian, step=1e-4),
    "dp-accounting, PLD, step 1e-3": partial(dp_accounting_gaussian, step=1e-3),
    "dp-accounting, Rényi": dp_accounting_rdp,
    "prv-accountant, error 0.1": partial(prv, error=0.1),
    "prv-accountant, error 0.01": partial(prv, error=0.01),
    "autodp, exact": autodp_gaussian,
    "autodp, Rényi": autodp_rdp,
    "autodp, Fourier": autodp_fourier,
    "OpenDP, zCDP": opendp,
}


def peak_megabytes() -> float:
    """Largest resident memory of this process so far (a child's `getrusage` would start from its parent's)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024.0


def main() -> None:
    """Answer once; a first call on a small case makes all imports."""
    name, case = sys.argv[1], Case.read(json.loads(sys.argv[2]))
    answer = (GAUSSIANS if case.gaussian is not None else SUMS)[name]
    small = {"sigma": 5.0} if case.gaussian is not None else {"users": 50, "flip_probability": 0.3}
    with warnings.catch_warnings(record=True) as raised, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        answer(Case.read({**small, "times": 2, "delta": 1e-3}))
        if case.protocol is not None:
            case.directions()
        raised.clear()
        before, start = peak_megabytes(), time.perf_counter()
        found = answer(case)
        seconds, after = time.perf_counter() - start, peak_megabytes()
        low = None if found.low is None else found.low()
    warned = sorted({one.category.__name__ for one in raised})
    told = {"epsilon": found.high, "low": low, "seconds": seconds, "megabytes": after, "grew": after - before}
    print(json.dumps({**told, "warnings": warned}))


if __name__ == "__main__":
    main()
