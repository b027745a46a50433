"""Safe-side root finding: laws of `least_noise` on made-up requests, and the promise it makes on real protocols."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accounting.composition import Advanced, Basic, PrivacyLossComposition, Rung, Target, Touched
from accounting.errors import InfeasibleError, InvalidInputError
from accounting.mechanisms import (
    BITSUMS,
    BitsumProtocol,
    NegativeBinomialNoise,
    PoissonNoise,
    Pure,
    RandomizedResponse,
    ThreeNegativeBinomial,
)
from accounting.numerics.calibration import (
    CERTIFIED_TOLERANCE,
    SEARCH_TOLERANCE,
    TURNING_PRECISION,
    falling_root,
    least_noise,
)
from tests.strategies import searched

PROMISE = 0.999
"""0.1 % less noise fails."""

Excess = Callable[[float], float]
magnitudes = st.floats(-6.0, 9.0).map(lambda x: 10.0**x)


def itself(noise: float) -> float:
    return noise


def found_by(likely: Excess, certified: Excess | None = None, guess: float = 1.0) -> float:
    return least_noise(itself, likely, likely if certified is None else certified, guess=guess)


# --- made-up excesses -----------------------------------------------------------------------------


@given(magnitudes, magnitudes, st.floats(0.05, 200.0))
@example(1.0, 1.0, 1.0)
@example(3.0, 1e-7, 100.0)
@example(3.0, 1e13, 100.0)
def test_a_smooth_excess(root: float, guess: float, slope: float) -> None:
    """excess = slope·ln(root/noise): found from wherever the search starts, from the safe side, to 0.1 %."""

    def excess(noise: float) -> float:
        return slope * math.log(root / noise)

    found = found_by(excess, guess=guess)
    assert excess(found) <= 0.0
    assert found * PROMISE < root <= found


@given(magnitudes, magnitudes, st.floats(1e-12, 1e3), st.floats(1e-12, 1e3))
def test_a_step(root: float, guess: float, above: float, below: float) -> None:
    """No slope to go by: only the sign is right."""

    def excess(noise: float) -> float:
        return above if noise < root else -below

    found = found_by(excess, guess=guess)
    assert found * PROMISE < root <= found


@given(magnitudes, magnitudes, st.floats(0.0, 3.0), st.floats(0.1, 50.0))
def test_the_certificate_moves_the_result_up(root: float, guess: float, gap: float, slope: float) -> None:
    """The cheap excess is too kind by any amount; what is returned passes the certificate, tightly."""

    def likely(noise: float) -> float:
        return slope * math.log(root / noise)

    def certified(noise: float) -> float:
        return slope * math.log(root / noise) + gap

    found = found_by(likely, certified, guess)
    needed = root * math.exp(gap / slope)
    assert certified(found) <= 0.0
    assert found * PROMISE < needed <= found * (1 + 1e-12)


@given(magnitudes, magnitudes, magnitudes, st.floats(0.0, 1.0), st.floats(0.0, 3.0))
def test_guesses_only_save_time(root: float, guess: float, slope: float, margin: float, gap: float) -> None:
    """However wrong the guesses of the slope and of what the certificate needs are, the promise is kept."""

    def likely(noise: float) -> float:
        return 12.0 * math.log(root / noise)

    def certified(noise: float) -> float:
        return likely(noise) + gap

    found = least_noise(itself, likely, certified, guess=guess, slope=slope, margin=lambda _: margin)
    assert certified(found) <= 0.0
    assert found * PROMISE < root * math.exp(gap / 12.0) <= found * (1 + 1e-12)


@given(magnitudes, magnitudes)
def test_without_a_certificate_the_search_decides(root: float, guess: float) -> None:
    """A margin is for certificates only."""

    def excess(noise: float) -> float:
        return 12.0 * math.log(root / noise)

    found = least_noise(itself, excess, None, guess=guess, margin=lambda _: 1.0)
    assert excess(found) <= 0.0
    assert found * (1.0 - 1.01 * SEARCH_TOLERANCE) < root


@searched(given(magnitudes, st.floats(1.0, 100.0), st.floats(-0.1, 50.0)), examples=30, study=100)
def test_a_certificate_with_a_step(root: float, later: float, drop: float) -> None:
    def certified(noise: float) -> float:
        return max(1e-9, drop) if noise < later * root else -1e-9

    found = found_by(lambda noise: math.log(root / noise), certified, guess=root)
    assert found * PROMISE < later * root <= found


@given(st.floats(0.5, 2.0), st.floats(0.1, 10.0))
def test_levels_outside_the_domain_fail(edge: float, guess: float) -> None:
    """A law that exists from some noise on and holds wherever it exists: the edge is the answer."""

    def build(noise: float) -> float:
        if noise < edge:
            raise InvalidInputError("too little noise for this law")
        return noise

    def always_fine(_: float) -> float:
        return -1.0

    found = least_noise(build, always_fine, always_fine, guess=guess)
    assert found * PROMISE < edge <= found


@given(st.floats(0.5, 2.0))
def test_a_number_that_is_none_fails(edge: float) -> None:
    found = found_by(lambda noise: math.nan if noise < edge else -1.0)
    assert found * PROMISE < edge <= found


def test_a_bumpy_excess_is_still_answered_safely() -> None:
    """Wiggles that leave several roots: the result holds, and something within 0.1 % below it fails."""

    def excess(noise: float) -> float:
        return math.log(5.0 / noise) + 0.02 * math.sin(400.0 * math.log(noise))

    for guess in (0.01, 1.0, 5.0, 1e4):
        found = found_by(excess, guess=guess)
        assert excess(found) <= 0.0
        assert any(excess(found * (1 - 1e-3 * i / 50)) > 0.0 for i in range(51))


def test_no_noise_at_all_may_be_enough() -> None:
    assert found_by(lambda _: -1.0) == pytest.approx(1e-7)


def test_if_no_noise_is_enough_it_says_so() -> None:
    with pytest.raises(InfeasibleError, match="ask for a larger epsilon or delta"):
        found_by(lambda _: 1.0)
    with pytest.raises(InfeasibleError, match="passes the certificate"):
        found_by(lambda noise: math.log(3.0 / noise), lambda _: 1.0)


def test_an_infeasible_law_is_not_hidden() -> None:
    def too_large(_: float) -> float:
        raise InfeasibleError("the table would be too large")

    with pytest.raises(InfeasibleError, match="too large"):
        found_by(too_large)


def test_an_answer_below_the_largest_possible_law_is_found() -> None:
    """Seen with 3nb, noise_shape 2, advanced, 768 instances, (2, 1e-6): RMSE 273 is enough, 277 the largest law."""

    def excess(noise: float) -> float:
        if noise > 277.0:
            raise InfeasibleError("the table would be too large")
        return math.log(273.0 / noise)

    assert found_by(excess, guess=73.0) == pytest.approx(273.0, rel=1e-3)


def test_the_certificate_is_asked_for_rarely() -> None:
    """It is what costs time: the search runs on the cheap excess."""
    calls = {"likely": 0, "certified": 0}

    def counted(name: str, gap: float, noise: float) -> float:
        calls[name] += 1
        return 12.0 * math.log(40.0 / noise) + gap

    found = found_by(partial(counted, "likely", 0.0), partial(counted, "certified", 0.01), guess=3.0)
    assert found > 40.0
    assert calls["certified"] <= 4
    assert calls["likely"] <= 25


def test_the_tolerances_stay_inside_the_promise() -> None:
    assert max(SEARCH_TOLERANCE, CERTIFIED_TOLERANCE) < 1 - PROMISE


# --- real protocols -------------------------------------------------------------------------------


def same_family(law: BitsumProtocol) -> Callable[[float], BitsumProtocol]:
    """The one-parameter family that `law` was calibrated in."""
    n = law.n_users
    if isinstance(law, RandomizedResponse):
        return partial(RandomizedResponse.with_rmse, n_users=n)
    if isinstance(law, PoissonNoise):
        return partial(PoissonNoise.with_rmse, n_users=n)
    if isinstance(law, NegativeBinomialNoise):
        return partial(NegativeBinomialNoise.with_rmse, n_users=n, continue_probability=law.continue_probability)
    assert isinstance(law, ThreeNegativeBinomial)
    q = law.flood_continue_probability
    ratio = math.sqrt(2.0 * law.flood_shape * q) / (1.0 - q) / law.rmse()
    return partial(
        ThreeNegativeBinomial.with_rmse,
        n_users=n,
        noise_shape=law.noise_shape,
        flood_shape=law.flood_shape,
        flood_ratio=ratio,
    )


def holds(law: BitsumProtocol, target: Target) -> bool:
    return target.rung.excess(law, target.touched, target.epsilon, target.delta, certified=True) <= 0.0


RUNGS: list[Rung] = [Basic(), Advanced(), PrivacyLossComposition()]
PROTOCOLS = ("rr", "3nb", "poisson", "negative-binomial")
ONE, FEW, FIVE, BLOCKS = (1000, 1, 1.0, 1e-6), (300, 3, 1.5, 1e-5), (300, 5, 1.0, 1e-5), (5000, 40, 2.0, 1e-8)
QUICK = {
    *((rung.name, FEW, bitsum) for rung in RUNGS for bitsum in PROTOCOLS),
    *(("pld", ONE, bitsum) for bitsum in PROTOCOLS),
    *(("pld", BLOCKS, bitsum) for bitsum in ("rr", "poisson")),  # with and without a supremum over the others' data
}
CALIBRATED = [
    pytest.param(*one, id=f"{one[0].name}-{one[1]}-{one[2]}", marks=() if quick else pytest.mark.slow)
    for one in itertools.product(RUNGS, (ONE, FEW, FIVE, BLOCKS), PROTOCOLS)
    for quick in [(one[0].name, *one[1:]) in QUICK]
]


@pytest.mark.parametrize(("rung", "request_", "bitsum"), CALIBRATED)
def test_the_design_holds_and_a_tenth_of_a_percent_less_noise_does_not(
    bitsum: str, rung: Rung, request_: tuple[int, int, float, float]
) -> None:
    n_users, times, epsilon, delta = request_
    target = Target(rung=rung, touched=Touched(groups=times, per_group=1), epsilon=epsilon, delta=delta)
    found = target.design(BITSUMS[bitsum], n_users)
    family = same_family(found)
    assert found.name == bitsum
    assert family(found.rmse()).rmse() == pytest.approx(found.rmse(), rel=1e-9)
    assert holds(found, target)
    assert not holds(family(found.rmse() * PROMISE), target)


def test_the_design_of_a_two_dimensional_law() -> None:
    target = Target(rung=RUNGS[2], touched=Touched(groups=5, per_group=1), epsilon=1.0, delta=1e-5, noise_shape=2)
    found = target.design(ThreeNegativeBinomial, 300)
    assert found.noise_shape == 2
    assert holds(found, target)
    assert not holds(same_family(found)(found.rmse() * PROMISE), target)


@pytest.mark.parametrize("rung", [RUNGS[0], pytest.param(RUNGS[2], marks=pytest.mark.slow)], ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("bitsum", "times", "epsilon"),
    [("3nb", 2, 2.0), pytest.param("3nb", 5, 1.0, marks=pytest.mark.slow), ("negative-binomial", 5, 1.0)],
)
def test_messages_are_saved_only_within_the_excess(bitsum: str, times: int, epsilon: float, rung: Rung) -> None:
    """A larger excess error may only buy fewer messages."""
    target = Target(rung=rung, touched=Touched(groups=times, per_group=1), epsilon=epsilon, delta=1e-5)
    law, targets = BITSUMS[bitsum], [replace(target, excess_error=excess) for excess in (1e-9, None, 0.3)]
    least, default, generous = (wish.design(law, 300) for wish in targets)
    assert default.rmse() <= (1.0 + law.default_excess) * least.rmse() * 1.005
    assert generous.messages_per_user() < 0.95 * least.messages_per_user()
    assert least.rmse() < generous.rmse() <= 1.31 * least.rmse()


def test_uncertified_designs_never_have_more_noise() -> None:
    target = Target(rung=RUNGS[2], touched=Touched(groups=16, per_group=1), epsilon=2.0, delta=1e-6)
    quick = target.design(RandomizedResponse, 3000, certified=False)
    sound = target.design(RandomizedResponse, 3000)
    assert 0.98 * sound.rmse() < quick.rmse() <= sound.rmse()
    assert holds(sound, target)


@pytest.mark.parametrize("rung", RUNGS[1:], ids=lambda rung: rung.name)
def test_pure_is_composed_by_adding_up_only(rung: Rung) -> None:
    target = Target(rung=rung, touched=Touched(groups=2, per_group=1), epsilon=2.0, delta=0.0)
    with pytest.raises(InvalidInputError, match="only adding up losses keeps delta = 0"):
        target.design(Pure, 100)


def test_pure_divides_epsilon() -> None:
    target = Target(rung=Basic(), touched=Touched(groups=2, per_group=2), epsilon=6.0, delta=0.0, excess_error=1.0)
    found = target.design(Pure, 100)
    assert found.epsilon_target == 1.5
    assert holds(found, target)


# --- the smallest value that is enough ----------------------------------------------------------------------------


@given(st.floats(1e-3, 100.0), st.floats(0.3, 3.0), st.floats(1e-3, 100.0))
def test_a_falling_root_is_found_in_few_steps(root: float, slope: float, guess: float) -> None:
    asked: list[float] = []

    def excess(value: float) -> float:
        asked.append(value)
        return slope * math.log(root / value) * (1.0 + 0.2 * math.sin(math.log(value)))

    found = falling_root(excess, 1e-3, 100.0, guess=guess)
    assert found is not None
    assert root * (1.0 - 1e-12) <= found <= root * (1.0 + TURNING_PRECISION) + 1e-12 or found == 1e-3
    assert all(1e-3 * (1.0 - 1e-12) <= value <= 100.0 * (1.0 + 1e-12) for value in asked)
    assert len(asked) <= 25


def test_a_falling_root_beyond_the_ends() -> None:
    assert falling_root(lambda _: 1.0, 1e-3, 100.0, guess=1.0) is None
    assert falling_root(lambda _: math.inf, 1e-3, 100.0, guess=1.0) is None
    assert falling_root(lambda _: -1.0, 1e-3, 100.0, guess=1.0) == pytest.approx(1e-3)
    found = falling_root(lambda value: math.inf if value < 5.0 else -1.0, 1e-3, 100.0, guess=1.0)
    assert found is not None
    assert 5.0 <= found <= 5.0 * (1.0 + TURNING_PRECISION)
