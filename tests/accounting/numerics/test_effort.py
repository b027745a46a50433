"""Limits on processor time: they hold for their block and thread, nest, and leave nothing behind."""

import itertools
import threading
from collections.abc import Callable

import pytest

from accounting import InvalidInputError
from accounting.composition.instance_blocks import adaptive_supremum
from accounting.mechanisms import PoissonNoise, Pure, ThreeNegativeBinomial
from accounting.numerics.effort import TooMuchWorkError, at_most, require_time
from accounting.numerics.losses import DominatingLoss, Repeated
from accounting.numerics.pmf import negative_binomial
from accounting.numerics.profile import LossGrid, ProfileTable


@pytest.fixture(autouse=True)
def every_look_takes_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = itertools.count()
    monkeypatch.setattr("accounting.numerics.effort.time.thread_time", lambda: float(next(looks)))


def looks_allowed() -> int:
    """Looks at the clock until the time is up."""
    for count in range(100):
        try:
            require_time()
        except TooMuchWorkError:
            return count
    return 100


def test_without_a_limit_there_is_time() -> None:
    assert looks_allowed() == 100


def test_a_limit_holds_in_its_block_only() -> None:
    with at_most(5):
        assert looks_allowed() == 5
    assert looks_allowed() == 100


def test_the_error_says_what_to_do() -> None:
    with pytest.raises(TooMuchWorkError, match=r"ask for less .* or allow more seconds"), at_most(0.5):
        require_time()


@pytest.mark.parametrize(("outer", "inner", "left"), [(5, 50, 4), (50, 5, 5)])
def test_of_nested_limits_the_earlier_end_holds(outer: float, inner: float, left: int) -> None:
    with at_most(outer), at_most(inner):
        assert looks_allowed() == left


def test_an_error_in_the_block_ends_the_limit() -> None:
    with pytest.raises(KeyError), at_most(5):
        raise KeyError
    assert looks_allowed() == 100


def test_other_threads_have_their_own() -> None:
    found: list[int] = []
    with at_most(1):
        thread = threading.Thread(target=lambda: found.append(looks_allowed()))
        thread.start()
        thread.join()
    assert found == [100]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "3", None])
def test_a_limit_is_a_positive_number(seconds: float) -> None:
    with pytest.raises(InvalidInputError, match="most_seconds"), at_most(seconds):
        pass


def small_table() -> ProfileTable:
    (pair,) = PoissonNoise(n_users=10, total_mean=40.0).pairs()
    return ProfileTable.of_pair(pair, LossGrid.for_pair(pair, n_compositions=24, negligible=1e-9))


def plane(noise_shape: int) -> ThreeNegativeBinomial:
    return ThreeNegativeBinomial(
        n_users=10,
        noise_shape=noise_shape,
        continue_probability=0.5,
        flood_shape=2.0,
        flood_continue_probability=0.5,
    )


def pure() -> Pure:
    return Pure(
        n_users=10,
        epsilon_target=6.0,
        noise_epsilon=4.0,
        silence_probability=0.25,
        base_messages=2,
        flood_shape=1.0,
        flood_continue_probability=3 / 32,
    )


@pytest.mark.parametrize(
    ("made", "work", "looks"),
    [
        (lambda: None, lambda _: negative_binomial(2.0, 0.5), 3),
        (lambda: plane(1), lambda law: law.pairs(), 9),
        (lambda: plane(8), lambda law: law.pairs(), 24),
        (pure, lambda law: law.satisfies_exact_test(), 8),
        (small_table, lambda table: adaptive_supremum([table], 24, tilt=1.0, largest_epsilon=5.0), 48),
        (small_table, lambda table: Repeated([(DominatingLoss.from_table(table), 9)]).chernoff_tilt(1.0), 8),
    ],
    ids=["pmf", "3nb", "3nb-8", "pure", "adaptive", "tilt"],
)
def test_long_steps_look_at_the_clock(made: Callable[[], object], work: Callable[[object], object], looks: int) -> None:
    """The attack: laws whose tables are as long as they may be, where seconds passed between two looks."""
    subject = made()
    with pytest.raises(TooMuchWorkError), at_most(looks - 1):
        work(subject)
