"""The label round: the law of a report by enumeration, decisions at chosen bytes, and frequencies of real draws."""

import itertools
from collections import defaultdict
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from accounting.errors import InvalidInputError
from accounting.mechanisms import LabelResponse
from accounting.numerics.pmf import Pmf
from privkde.draws.laws import KeepLabel
from privkde.draws.randomness import ByteStream
from privkde.protocol import label_round as labels
from privkde.protocol.label_round import randomize_labels
from tests.privkde.draws.test_sampling import agreeing
from verification.statistical.goodness_of_fit import GoodnessOfFit, goodness_of_fit

LEVEL = 1e-9
"""Of each comparison; 16 honest ones in this file, 1.6e-8 together."""
SAMPLES = 60_000
RESPONSES = [LabelResponse(n_classes=m, label_epsilon=epsilon) for m, epsilon in ((2, 0.5), (3, 1.0), (10, 2.0))]


class Bytes(ByteStream):
    """A stream of chosen bytes, then of zeros."""

    def __init__(self, data: bytes) -> None:
        super().__init__(bytes(32))
        self.data, self.taken = data, 0

    def take(self, count: int) -> NDArray[np.uint8]:
        part = self.data[self.taken : self.taken + count]
        self.taken += count
        return np.frombuffer(part + bytes(count - len(part)), np.uint8).copy()


def stream(*names: str | int) -> ByteStream:
    return ByteStream(bytes(range(32))).child("test_labels", *names)


@pytest.mark.parametrize("response", RESPONSES, ids=str)
def test_every_report_has_its_exact_probability(response: LabelResponse, monkeypatch: pytest.MonkeyPatch) -> None:
    """All outcomes of both draws: kept with e^ε/(e^ε − 1 + m), every other label with 1/(e^ε − 1 + m)."""
    m = response.n_classes
    outcome: dict[str, int] = {}
    seen: dict[str, Any] = {}

    def kept(law: KeepLabel, shape: tuple[int, ...], _: Any) -> NDArray[np.int64]:
        seen["law"] = law
        return np.full(shape, outcome["kept"])

    def step(bound: int, shape: tuple[int, ...], _: Any) -> NDArray[np.int64]:
        seen["bound"] = bound
        return np.full(shape, outcome["step"])

    monkeypatch.setattr(KeepLabel, "sample", kept)
    monkeypatch.setattr(labels, "integers_below", step)
    with mpmath.workdps(40):
        growth = mpmath.exp(mpmath.mpf(response.label_epsilon))
        keep = growth / (growth - 1 + m)
        for true in range(m):
            law: dict[int, Any] = defaultdict(mpmath.mpf)
            for outcome["kept"], outcome["step"] in itertools.product((0, 1), range(m - 1)):
                (report,) = randomize_labels(np.array([true]), response, stream=stream()).tolist()
                law[report] += (keep if outcome["kept"] else 1 - keep) / (m - 1)
            assert seen == {"law": KeepLabel(n_classes=m, label_epsilon=response.label_epsilon), "bound": m - 1}
            for report in range(m):
                exact = (growth if report == true else 1) / (growth - 1 + m)
                assert abs(law[report] - exact) < 1e-35
            assert set(law) == set(range(m))


@pytest.mark.parametrize("response", RESPONSES, ids=str)
@given(data=st.data())
def test_reports_are_decided_by_their_bytes(response: LabelResponse, data: st.DataObject) -> None:
    """U against 1 − e^ε/(e^ε − 1 + m), at uniforms that agree with it for up to 20 bytes; then a byte for the step."""
    m = response.n_classes
    with mpmath.workdps(80):
        growth = mpmath.exp(mpmath.mpf(response.label_epsilon))
        change = Fraction(int((m - 1) / (growth - 1 + m) * 2**240), 2**240)
    n_bytes = data.draw(st.sampled_from([1, 2, 7, 8, 9, 16, 20]))
    uniform = agreeing(change, n_bytes, data.draw(st.integers(-2, 2)), b"")
    true, byte = data.draw(st.integers(0, m - 1)), data.draw(st.integers(0, 251))
    probe = Bytes(uniform)
    KeepLabel(n_classes=m, label_epsilon=response.label_epsilon).sample((1,), probe)
    padded = uniform + bytes(max(0, probe.taken - len(uniform)))
    source = Bytes(padded[: probe.taken] + bytes([byte]))
    (report,) = randomize_labels(np.array([true]), response, stream=source).tolist()
    kept = Fraction(int.from_bytes(uniform, "big"), 256**n_bytes) >= change
    expected = true if kept else (true + 1 + byte % (m - 1)) % m
    assert report == expected
    assert source.taken == probe.taken + (m > 2)


def reports_of(response: LabelResponse, true: int) -> NDArray[np.int64]:
    return randomize_labels(np.full(SAMPLES, true), response, stream=stream(response.n_classes, true))


def verdict(reports: NDArray[np.int64], response: LabelResponse, true: int) -> GoodnessOfFit:
    values = np.full(response.n_classes, response.other_probability)
    values[true] = response.keep_probability
    return goodness_of_fit(reports, Pmf(start=0, values=values, missing=0.0), level=LEVEL)


PAIRS = [(response, true) for response in RESPONSES for true in range(response.n_classes)]


@pytest.mark.parametrize(("response", "true"), PAIRS, ids=str)
def test_frequencies_of_reports_are_not_refuted(response: LabelResponse, true: int) -> None:
    """Each (true, reported) pair is an event. Power: P = 0.06 against P = 0.07 is seen with probability 0.999."""
    found = verdict(reports_of(response, true), response, true)
    assert not found.refuted, found.describe()
    assert found.smallest_defect < 0.03
    assert found.detectable_increase(response.other_probability) < 0.02


def test_broken_label_rounds_are_refuted() -> None:
    """Never changed; uniform over all labels when not kept; always the next label; ε off by 0.1; the wrong labels."""
    response = RESPONSES[2]
    rng = np.random.default_rng(5)
    kept = rng.random(SAMPLES) < response.keep_probability
    sloppy = LabelResponse(n_classes=10, label_epsilon=2.1)
    for broken in (
        np.full(SAMPLES, 4),
        np.where(kept, 4, rng.integers(0, 10, SAMPLES)),
        np.where(kept, 4, 5),
        reports_of(sloppy, 4),
        reports_of(response, 3),
    ):
        assert verdict(broken, response, 4).refuted


def test_each_user_draws_alone() -> None:
    """Mixed labels, independent of each other and of their order: pairs of neighbors follow the product law."""
    response = RESPONSES[0]
    true = np.arange(2 * SAMPLES) // 2 % 2  # 0, 0, 1, 1, …
    kept = (randomize_labels(true, response, stream=stream("mixed")) == true).astype(np.int64)
    keep = response.keep_probability
    law = Pmf(start=0, values=np.array([(1 - keep) ** 2, keep * (1 - keep), keep * (1 - keep), keep**2]), missing=0.0)
    assert not goodness_of_fit(2 * kept[::2] + kept[1::2], law, level=LEVEL).refuted


def test_reports_have_the_shape_and_stay_in_range() -> None:
    response = RESPONSES[1]
    for dtype in (np.int8, np.uint8, np.int64, np.uint64):
        reports = randomize_labels(np.array([0, 1, 2, 2], dtype), response, stream=stream("type"))
        assert reports.shape == (4,)
        assert reports.dtype == np.int64
        assert reports.tolist() == randomize_labels(np.array([0, 1, 2, 2]), response, stream=stream("type")).tolist()
    assert randomize_labels(np.zeros(0, np.int64), response, stream=stream()).shape == (0,)
    many = randomize_labels(np.zeros(1000, np.int64), response, stream=stream("many"))
    assert set(many.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("given_labels", "match"),
    [
        (np.array([0, 1, 3]), "row 2"),
        (np.array([0, -1, 3]), "row 1"),
        (np.array([2**40]), "row 0"),
        (np.array([2**64 - 1], np.uint64), "row 0"),
        (np.array([0.0, 1.0]), "float64"),
        (np.array([0.7]), "float64"),
        (np.array([np.nan]), "float64"),
        (np.array([True]), "bool"),
        (np.array(["a"]), "U1"),
    ],
    ids=str,
)
def test_labels_that_are_no_class_numbers_are_refused_before_anything_is_drawn(
    given_labels: NDArray[Any], match: str
) -> None:
    source = Bytes(b"")
    with pytest.raises(InvalidInputError, match=match):
        randomize_labels(given_labels, RESPONSES[1], stream=source)
    assert source.taken == 0
