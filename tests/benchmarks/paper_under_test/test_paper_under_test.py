"""The programs of docs/paper-under-test.md, which runs them: all are on the page, and what the page says is so."""

from __future__ import annotations

import itertools
import os
import re
from fractions import Fraction
from pathlib import Path

import pytest
from guide.execution import COLUMNS
from guide.pages import Block, split

from accounting.mechanisms import GaussianMechanism, LabelResponse
from accounting.numerics.profile import symmetric_delta
from benchmarks.paper_under_test import (
    PROGRAMS,
    central_baseline,
    class_counts,
    debiasing,
    flood_share,
    repeated_rows,
    touched_instances,
)
from benchmarks.paper_under_test.__main__ import main
from verification.exact.rational_twins import ExactPair, response_pairs, symmetric_hockey_stick

PAGE = Path(__file__).parents[3] / "docs" / "paper-under-test.md"
PAPER = os.environ.get("PRIVKDE_PAPER")
"""A file with the paper's LaTeX source, which is not part of the repository."""


def commands_on_the_page() -> list[str]:
    """What the page runs in a shell, as the build of the guide finds it."""
    pieces = split(PAGE.read_text(encoding="utf-8"))
    blocks = [piece for piece in pieces if isinstance(piece, Block) and piece.language == "console"]
    return [line for block in blocks for line in block.code.splitlines()]


def numbers(line: str) -> list[float]:
    """All numbers of a line, in order."""
    return [float(found.replace(",", "")) for found in re.findall(r"\d[\d,]*(?:\.\d+)?(?:e-\d+)?", line)]


def test_the_page_runs_every_program_and_no_other() -> None:
    assert commands_on_the_page() == [f"$ python -m benchmarks.paper_under_test {name}" for name in PROGRAMS]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_as_much_as_fits_on_a_page(name: str) -> None:
    assert 0 < max(len(line) for line in PROGRAMS[name]()) <= COLUMNS


def test_main_prints_the_named_program(capsys: pytest.CaptureFixture[str]) -> None:
    main(["repeated_rows"])
    assert capsys.readouterr().out.splitlines() == ["== repeated_rows", *repeated_rows.lines()]


def test_without_the_correction_another_class_is_the_densest() -> None:
    """Over seeds, the uncorrected means lie 4.6 standard deviations apart: another order has a chance of 2e-6."""
    assert debiasing.lines()[-1] == "class of highest density: A; by 2·count − n: B; corrected: A"


def test_the_flood_of_everybody_is_shared_once() -> None:
    _, shared, whole, thin = flood_share.lines()
    messages, kept = numbers(shared.partition("):")[2])
    most, _ = numbers(whole.partition("):")[2])
    assert kept <= flood_share.DELTA
    assert most > 0.9 * flood_share.USERS * messages
    assert numbers(thin)[-1] > 0.3


@pytest.mark.parametrize("flip", [Fraction(1, 20), Fraction(1, 4), Fraction(2, 5)])
@pytest.mark.parametrize("users", [1, 2, 3])
def test_leaving_and_entering_cost_less_than_one_flip(users: int, flip: Fraction) -> None:
    pairs = response_pairs(users, flip)
    for gamma in (Fraction(1), Fraction(6, 5), Fraction(2), Fraction(5)):
        flips = symmetric_hockey_stick(pairs, gamma)
        assert touched_instances.moved(pairs, gamma, coin=True) <= flips


@pytest.mark.parametrize("gamma", [Fraction(1), Fraction(3, 2), Fraction(2), Fraction(5)])
def test_the_canonical_mechanism_by_enumeration(gamma: Fraction) -> None:
    """H = δ/2 + (1 − δ)(δ/2)·max(1/(1 + e^ε), 2 − e^ε) ≤ δ, as the page says."""
    delta = Fraction(1, 10)
    likely, unlikely = (1 - delta) * gamma / (1 + gamma), (1 - delta) / (1 + gamma)
    zero = Fraction(0)
    canonical = ExactPair(upper=(delta, likely, unlikely, zero), lower=(zero, unlikely, likely, delta))
    assert symmetric_hockey_stick([canonical], gamma) == delta
    found = touched_instances.moved([canonical], gamma, coin=True)
    assert found == delta / 2 + (1 - delta) * delta / 2 * max(1 / (1 + gamma), 2 - gamma)
    assert found <= delta


def test_with_bits_for_zeros_the_count_s_fails() -> None:
    pairs = response_pairs(touched_instances.USERS, touched_instances.FLIP)
    for gamma in touched_instances.GAMMAS:
        assert touched_instances.moved(pairs, gamma, coin=False) > symmetric_hockey_stick(pairs, gamma) > 0


def test_more_than_s_instances_change_and_not_more_than_twice_s() -> None:
    most, repetitions, _ = touched_instances.changed_instances()
    assert repetitions < most <= 2 * repetitions


def test_class_sizes_by_enumeration() -> None:
    response = LabelResponse(n_classes=2, label_epsilon=1.5)
    pair = class_counts.size_pair(4, response)
    keep, other = response.keep_probability, response.other_probability
    for first, law in ((1.0 - keep, pair.upper), (1.0 - other, pair.lower)):
        expected = [0.0] * 5
        for reports in itertools.product((0, 1), repeat=4):
            odds = [first if not reports[0] else 1.0 - first]
            odds += [other if report else 1.0 - other for report in reports[1:]]
            expected[sum(reports)] += odds[0] * odds[1] * odds[2] * odds[3]
        assert law == pytest.approx(expected, rel=1e-12)
    assert symmetric_delta([pair], 1.0) > 0.0


def test_class_sizes_tell_more_than_is_claimed_for_the_features() -> None:
    """The bound holds but with probability 1e-6 over the seed of the label round, which is fixed."""
    *_, runs, shown = class_counts.lines()
    assert numbers(runs)[0] == class_counts.RUNS
    assert 0.5 < numbers(shown)[1] < 0.72  # the exact δ is 0.713


def test_only_two_tables_agree() -> None:
    tables = {name: repeated_rows.cells(rows) for name, rows in repeated_rows.INNER_PRODUCT.items()}
    assert tables["DBPedia-14"] == tables["SST2"]
    assert len(tables["SST2"]) == 30
    agreeing = {
        pair
        for pair in itertools.combinations(tables, 2)
        if any(a == b for a, b in zip(tables[pair[0]], tables[pair[1]], strict=True))
    }
    assert agreeing == {("DBPedia-14", "SST2")}


def test_the_published_noise_is_half_of_what_the_formula_asks_for() -> None:
    half = central_baseline.classical_deviation(0.5, central_baseline.realized_distance() / 2.0)
    assert half == pytest.approx(central_baseline.classical_deviation(0.5, 1.0), rel=1e-9)
    assert GaussianMechanism(sensitivity=2.0, standard_deviation=half).delta(0.5) > 100.0 * central_baseline.DELTA
    full = GaussianMechanism(sensitivity=1.0, standard_deviation=half)
    assert 0.0 < full.delta(0.5) <= central_baseline.DELTA  # the formula itself holds for ε < 1


@pytest.mark.skipif(PAPER is None, reason="PRIVKDE_PAPER does not name the paper's source")
def test_the_rows_are_those_of_the_paper() -> None:
    text = Path(PAPER or "").read_text(encoding="utf-8")
    for name, rows in repeated_rows.INNER_PRODUCT.items():
        table = text[text.index(rf"on accuracy, {name}") :].split(r"\bottomrule")[0].split("{IP}")[1]
        printed = re.findall(r"\$([\d.]+)_\{\\pm([\d.]+)\}\$", table)
        assert [f"{mean}±{spread}" for mean, spread in printed] == repeated_rows.cells(rows)
