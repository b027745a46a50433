"""The paper's experiments: simulated counts follow the protocol's law, cells do not depend on others, runs go on."""

import csv
import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from accounting import InvalidInputError
from accounting.choosing import choose
from accounting.mechanisms import BitsumProtocol, Pure, RandomizedResponse, ThreeNegativeBinomial
from accounting.request import PlanRequest
from benchmarks.paper import simulation, tables
from benchmarks.paper.__main__ import main
from benchmarks.paper.calibration import Calibrations, counted_users, shared
from benchmarks.paper.data import LabeledData, Vocabulary
from benchmarks.paper.measuring import measure
from benchmarks.paper.results import Results, Spread
from benchmarks.paper.running import Study, run
from benchmarks.paper.settings import BITSUMS, Settings, label_name
from benchmarks.paper.simulation import counted, study_generator
from benchmarks.paper.sums import group_sums
from benchmarks.paper.unit import EVERYBODY, Cell, Unit, group_sizes
from privkde.bitsum import Tally, executed
from privkde.display.progress import Tracker
from privkde.draws.randomness import private_randomness
from privkde.draws.sampling import bernoulli
from privkde.learning.baselines import admitted
from verification.statistical.goodness_of_fit import goodness_of_fit
from verification.twins import mechanism_twin

SILENT = Tracker(Progress(console=Console(quiet=True), disable=True))
LEVEL = 1e-9
"""Of each comparison of draws with a law; twelve of them here."""
USERS, HOLDERS = 30, 11
PROTOCOLS: dict[str, BitsumProtocol] = {
    "rr": RandomizedResponse(n_users=25, flip_probability=0.2),
    "3nb": ThreeNegativeBinomial(
        n_users=25, noise_shape=1, continue_probability=0.6, flood_shape=4.0, flood_continue_probability=0.7
    ),
    "pure": Pure.calibrate(2.0, 25, excess_error=0.5),
}


def drawn(protocol: BitsumProtocol) -> Tally:
    """300,000 collections of 30 users of whom 11 hold a one, with noise that counts on 25."""
    return counted(protocol, np.full(300_000, HOLDERS), USERS, study_generator(private_randomness(3)))


@pytest.mark.parametrize("name", BITSUMS)
def test_simulated_counts_have_the_law_of_the_protocol(name: str) -> None:
    """Level 1e-9 each; sees a shift of the distribution function by 1 %."""
    protocol = PROTOCOLS[name]
    tally, laws = drawn(protocol), mechanism_twin(protocol).tally_tables(HOLDERS, USERS)
    counts = {"ones": tally.ones, "zeros": tally.zeros, "ones − zeros": tally.ones - tally.zeros}
    assert set(counts) == set(laws)
    for quantity, law in laws.items():
        fit = goodness_of_fit(counts[quantity], law, level=LEVEL)
        assert not fit.refuted, (quantity, fit.describe())
        assert fit.smallest_defect < 0.01


@pytest.mark.parametrize("name", ["3nb", "pure"])
def test_a_negative_binomial_with_the_wrong_convention_is_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = simulation._negative_binomial
    monkeypatch.setattr(simulation, "_negative_binomial", lambda r, p, size, draws: honest(r, 1.0 - p, size, draws))
    laws = mechanism_twin(PROTOCOLS[name]).tally_tables(HOLDERS, USERS)
    assert goodness_of_fit(drawn(PROTOCOLS[name]).ones, laws["ones"], level=LEVEL).refuted


def test_noise_that_ignores_who_is_present_is_refuted() -> None:
    protocol = replace(PROTOCOLS["3nb"], n_users=USERS)  # 30 users share what 25 should hold
    laws = mechanism_twin(PROTOCOLS["3nb"]).tally_tables(HOLDERS, USERS)
    assert goodness_of_fit(drawn(protocol).ones, laws["ones"], level=LEVEL).refuted


@pytest.mark.parametrize("name", BITSUMS)
def test_the_analyzer_is_unbiased_on_simulated_counts(name: str) -> None:
    """Mean of 300,000 estimates within 6.5 standard errors: level 1e-10 each."""
    protocol = PROTOCOLS[name]
    estimates = executed(protocol).estimate(drawn(protocol), USERS)
    assert abs(estimates.mean() - HOLDERS) < 6.5 * estimates.std() / np.sqrt(len(estimates))


def test_only_the_papers_protocols_are_simulated() -> None:
    other, _, _ = choose(PlanRequest(users=100, dim=2, bitsum="poisson", epsilon=2.0, delta=1e-3))
    with pytest.raises(InvalidInputError, match="poisson"):
        drawn(other)


def test_a_study_never_draws_from_secret_randomness() -> None:
    with pytest.raises(InvalidInputError, match="insecure_seed"):
        study_generator(private_randomness())
    first, second = (study_generator(private_randomness(7)).integers(1 << 60) for _ in range(2))
    assert first == second


@given(st.integers(1, 10**9))
def test_noise_counts_on_at_most_a_tenth_fewer_users_than_there_are(size: int) -> None:
    assert 0.9 * size < counted_users(size) <= size
    assert counted_users(counted_users(size)) == counted_users(size)


@pytest.mark.parametrize("accountant", ["paper", "auto"])
def test_3nb_has_the_same_parameters_whatever_the_number_of_users(accountant: str, tmp_path: Path) -> None:
    asked = PlanRequest(
        users=700, dim=3, bitsum="3nb", epsilon=2.0, delta=1e-4, accountant=accountant, allow_useless=True
    )
    few, many = (choose(replace(asked, users=users))[0] for users in (700, 40_000))
    assert replace(few, n_users=40_000).parameters() == pytest.approx(many.parameters(), rel=1e-9)
    assert shared(asked) == shared(replace(asked, users=40_000)) != asked
    remembered = Calibrations(tmp_path)
    remembered.make(asked)
    assert remembered.has(replace(asked, users=40_000))
    found = remembered.of(replace(asked, users=40_000)).protocol
    assert found is not None
    assert found.n_users == 40_000
    assert found.parameters() == pytest.approx(many.parameters(), rel=1e-9)
    rr = replace(asked, bitsum="rr")
    assert shared(rr) == rr


def clusters(seed: int, count: int, dim: int = 6) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Unit vectors around one direction for each of three classes."""
    draws = np.random.default_rng(seed)
    labels = np.arange(count) % 3  # classes of one size: few calibrations
    x = 0.25 * draws.normal(size=(count, dim)) + np.eye(dim)[labels]
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), labels


def archive(path: Path, **changed: Any) -> Path:
    x, y = clusters(0, 600)
    x_test, y_test = clusters(1, 90)
    arrays: dict[str, Any] = {"X_train": x, "y_train": y, "X_test": x_test, "y_test": y_test}
    arrays |= {"class_names": np.array(["red", "green", "blue"])} | changed
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> LabeledData:
    return LabeledData.read(archive(tmp_path_factory.mktemp("data") / "colors.npz"))


SETTINGS = Settings(epsilons=(4.0,), label_epsilons=(None, 50.0), delta=1e-4, seeds=2, queries=20)
"""Labels that are protected so little that nobody reports another: classes keep their one size."""


def unit(data: LabeledData, **changed: Any) -> Unit:
    given = {"kernel": "gaussian", "bound": None, "presets": ("tight",), "seed": 0, "settings": SETTINGS}
    return Unit(data=data.path, sha256=data.sha256, **{**given, **changed})


def test_one_pass_sums_what_every_group_holds(data: LabeledData) -> None:
    """Against a loop over groups, with the same draws; and all groupings see the same bits."""
    family, stream = unit(data).family(data.dim), private_randomness(1)
    other = np.roll(data.numbers, 1)
    found = group_sums(family, data.rows, [data.numbers, other], 3, stream=stream)
    scaled = family.scaled_features(admitted(family, data.rows, np.arange(600)))
    bits = bernoulli(scaled, stream.child("rounding", 0))
    for grouping, sums in zip((data.numbers, other), found, strict=True):
        for group in range(3):
            mine = grouping == group
            assert sums.n_users[group] == mine.sum()
            assert np.array_equal(sums.bit_sums[group], bits[mine].sum(axis=0, dtype=np.int64))
            expected = family.facts.bound * scaled[mine].sum(axis=0, dtype=np.float64)
            assert np.allclose(sums.feature_sums[group], expected, atol=1e-3)
    assert np.array_equal(found[0].bit_sums.sum(axis=0), found[1].bit_sums.sum(axis=0))


def test_labels_are_reported_as_they_are_or_by_randomized_response(data: LabeledData) -> None:
    sizes = group_sizes(unit(data, settings=replace(SETTINGS, label_epsilons=(None, 2.0))), data)
    truth = np.bincount(data.numbers).tolist()
    assert sizes[None].tolist() == truth
    assert sizes[2.0].sum() == sizes[EVERYBODY].sum() == 600
    assert sizes[2.0].tolist() != truth


def test_cells_have_names_of_their_own_and_baselines_only_where_features_are_whole(data: LabeledData) -> None:
    for bound, has in ((1.0, True), (0.3, False)):
        cells = list(unit(data, kernel="inner-product", bound=bound).cells())
        assert len({cell.key for cell in cells}) == len(cells)
        assert ("central" in {cell.method for cell in cells}) is has
    assert EVERYBODY in {cell.label_epsilon for cell in unit(data).cells()}
    assert Cell(method="rr", preset="paper", epsilon=4.5, label_epsilon=None).key == "paper rr 4.5 None"


@pytest.fixture(scope="module")
def finished(data: LabeledData, tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Results]:
    study = Study(data=(data,), vocabulary=None, settings=SETTINGS, folder=tmp_path_factory.mktemp("study") / "cells")
    return study, run(study, SILENT, workers=1)


def test_a_cell_does_not_depend_on_which_others_are_measured(
    data: LabeledData, finished: tuple[Study, Results]
) -> None:
    study, _ = finished
    asked = study.units(data)[0]
    cells = list(asked.cells())
    alone = measure(asked, data, None, Calibrations(study.folder), cells[3:5])
    known = study.cells(asked)
    assert alone == {cell.key: known[cell.key] for cell in cells[3:5]}
    assert set(known) == {cell.key for cell in cells}


@pytest.mark.parametrize(
    "more",
    [
        {"label_epsilons": (None, 50.0, 40.0)},  # the same noise: nothing is calibrated
        pytest.param({"epsilons": (4.0, 20.0)}, marks=pytest.mark.slow),
    ],
    ids=["labels", "features"],
)
def test_a_second_run_measures_nothing_again_and_a_wider_one_only_what_is_new(
    finished: tuple[Study, Results], more: dict[str, Any]
) -> None:
    study, results = finished
    before = {path: path.stat().st_mtime_ns for path in study.folder.iterdir()}
    assert run(study, SILENT, workers=1) == results
    assert {path: path.stat().st_mtime_ns for path in study.folder.iterdir()} == before
    wider = replace(study, settings=replace(SETTINGS, **more))
    found = run(wider, SILENT, workers=1)
    for kernel, cells in results.data[0].kernels.items():
        assert cells.items() <= found.data[0].kernels[kernel].items()
        assert len(found.data[0].kernels[kernel]) > len(cells)
    assert run(study, SILENT, workers=1) == results  # what was asked for, and nothing else


def test_an_interrupted_run_goes_on_and_ends_with_the_same_numbers(
    finished: tuple[Study, Results], tmp_path: Path
) -> None:
    """By two processes what one has begun."""
    study, results = finished
    folder = tmp_path / "cells"
    folder.mkdir()
    kept = [*study.folder.glob("noise-*"), *sorted(study.folder.glob("cells-*"))[::2]]
    for path in kept:
        (folder / path.name).write_bytes(path.read_bytes())
    assert run(replace(study, folder=folder), SILENT, workers=2) == results


def test_the_numbers_tell_what_theory_says(finished: tuple[Study, Results]) -> None:
    """Easy clusters: no privacy is near perfect, local privacy is worse, less noise is less error."""
    _, results = finished
    one = results.data[0]
    none = one.accuracy("inner-product", Cell(method="none", label_epsilon=None))
    assert none is not None
    assert none.mean > 0.9
    assert one.exact_accuracy > 0.9
    for method in ("rr", "local", "central"):
        cell = Cell(method=method, preset="tight" if method == "rr" else "", epsilon=4.0, label_epsilon=EVERYBODY)
        assert one.error("gaussian", cell) is not None
    paper, tight, local = (
        one.value("gaussian", Cell(method=method, preset=preset, epsilon=4.0, label_epsilon=EVERYBODY), "rmse")
        for method, preset in (("rr", "paper"), ("rr", "tight"), ("local", ""))
    )
    assert min(paper, local) > 2.0 * tight
    assert one.value("gaussian", Cell(method="rr", preset="tight", epsilon=4.0, label_epsilon=None), "messages") == 6.0


@pytest.mark.parametrize("text", ['{"cells": {"a"', "[" * 100_000, "9" * 5_000])
def test_truncated_cells_are_named_with_the_remedy(
    data: LabeledData, finished: tuple[Study, Results], tmp_path: Path, text: str
) -> None:
    study = dataclasses.replace(finished[0], folder=tmp_path)
    unit = study.units(data)[0]
    study.place(unit).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"cells-.*\.json' is not JSON .*; delete it, and it is measured again"):
        study.cells(unit)


def test_results_can_be_written_and_read(finished: tuple[Study, Results], tmp_path: Path) -> None:
    _, results = finished
    path = tmp_path / "results.json"
    path.write_text(results.text(), encoding="utf-8")
    assert Results.load(path) == results
    assert json.loads(results.text()) == results.to_json()
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="make reproduce"):
        Results.load(path)


def test_tables_have_the_papers_layout(finished: tuple[Study, Results]) -> None:
    _, results = finished
    one, settings = results.data[0], results.settings
    head, rows = tables.accuracy_by_epsilon(settings, one, None)
    assert head[3:] == ["ε = 4"]
    assert [row[1] for row in rows[:9]] == ["RR", "3NB", "Pure", "RR", "3NB", "Pure", "central", "local", "no privacy"]
    assert re.fullmatch(r"\d+\.\d ± \d+\.\d", rows[3][3])
    head, rows = tables.accuracy_by_label(settings, one, "tight", [4.0])
    assert head[3:] == ["ε_lbl = ∞", "ε_lbl = 50"]
    assert [row[:3] for row in rows] == [[k, b, "4"] for k in ("Gaussian", "IP") for b in ("RR", "3NB")]
    assert tables.percent(Spread(0.5, float("nan"))) == "50.0"
    assert (label_name(None), label_name(3.0)) == ("∞", "3")


def test_the_command_writes_report_tables_and_figures(
    finished: tuple[Study, Results],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Noise that the study of the same data has calibrated is there already; it is measured here, in one process."""
    monkeypatch.setattr("benchmarks.paper.running.os.cpu_count", lambda: 1)
    cells = tmp_path / "out" / "cells"
    cells.mkdir(parents=True)
    for path in finished[0].folder.glob("noise-*"):
        (cells / path.name).write_bytes(path.read_bytes())
    x, _ = clusters(5, 12)
    np.savez(tmp_path / "words.npz", X=x, words=np.array([f"word{i}" for i in range(12)]))
    (x, y), (x_test, y_test) = clusters(2, 600, dim=3), clusters(3, 30, dim=3)
    archive(tmp_path / "others.npz", X_train=x, y_train=y, X_test=x_test, y_test=y_test)
    command = (
        f"--data {archive(tmp_path / 'colors.npz')} {tmp_path / 'others.npz'}"
        f" --vocabulary {tmp_path / 'words.npz'} --seeds 1 --epsilons 4 --preset tight --label-epsilons inf"
        f" --delta 1e-4 --queries 20 -o {tmp_path / 'out'}"
    )
    main(command.split())
    assert "report.md" in capsys.readouterr().out
    out = tmp_path / "out"
    pictures = {path.name for path in out.glob("*.svg")}
    assert {"accuracy-tight-inf.svg", "local-tight.svg", "communication.svg", "density-error.svg"} == pictures
    report = (out / "report.md").read_text(encoding="utf-8")
    assert {name for name in pictures if f"]({name})" in report} == pictures
    assert "NOT PRIVATE" in report
    assert "word" in report
    assert str(tmp_path) not in report
    assert "python -m benchmarks.paper --data colors.npz others.npz" in report
    with (out / "cells.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    results = Results.load(out / "results.json")
    assert len(lines) == sum(len(cells) for one in results.data for cells in one.kernels.values())
    asked = {"data": "colors", "kernel": "inner-product", "preset": "tight", "method": "rr"}
    (line,) = [line for line in lines if asked.items() <= line.items()]
    cell = Cell(method="rr", preset="tight", epsilon=4.0, label_epsilon=None)
    spread = results.data[0].accuracy("inner-product", cell)
    assert spread is not None
    assert float(line["accuracy"]) == pytest.approx(spread.mean, abs=1e-5)
    assert len(results.data[0].value("inner-product", cell, "terms")) == 3
    assert results.data[1].value("inner-product", cell, "terms") is None  # the vocabulary is of another dimension


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y_train": None}, "no array 'y_train'"),
        ({"y_train": np.zeros(3, int)}, "one label for each"),
        ({"y_train": np.zeros(600, int)}, "two are needed"),
        ({"y_test": np.full(90, 7)}, "y_train lacks"),
        ({"class_names": np.array(["red"])}, "one for each"),
        ({"X_test": np.ones((90, 6), np.float32)}, "norm above 1"),
        ({"X_test": np.zeros((90, 5), np.float32)}, "shape"),
    ],
)
def test_bad_data_are_refused_before_anything_runs(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=message):
        LabeledData.read(archive(tmp_path / "bad.npz", **changed))


def test_classes_without_names_are_named_by_their_labels(tmp_path: Path) -> None:
    x, y = clusters(0, 600)
    named = LabeledData.read(
        archive(tmp_path / "plain.npz", class_names=None, y_train=y + 5, y_test=clusters(1, 90)[1] + 5)
    )
    assert named.class_names == ("5", "6", "7")
    np.savez(tmp_path / "words.npz", X=x, words=np.arange(600))
    with pytest.raises(InvalidInputError, match="one text for each"):
        Vocabulary.read(tmp_path / "words.npz")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epsilons": ()}, "at least one"),
        ({"epsilons": (1.0, 1.0)}, "none twice"),
        ({"epsilons": (2.0, 2.0000001)}, "none twice"),
        ({"epsilons": (-1.0,)}, "epsilon=-1.0"),
        ({"presets": ("tighter",)}, "tighter"),
        ({"delta": 0.0}, "delta"),
        ({"seeds": 0}, "seeds=0"),
        ({"label_epsilons": (0.0,)}, "label_epsilon"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Settings(**changed)


def test_a_vocabulary_decodes_data_of_its_own_dimension_only(data: LabeledData, tmp_path: Path) -> None:
    np.savez(tmp_path / "words.npz", X=np.eye(4, dtype=np.float32), words=np.array(list("abcd")))
    words = Vocabulary.read(tmp_path / "words.npz")
    with pytest.raises(InvalidInputError, match="one model"):
        Study(data=(data,), vocabulary=words, settings=SETTINGS, folder=tmp_path)
    vectors = {name: np.eye(4, dtype=np.float32) for name in ("X_train", "X_test")}
    labels = {name: np.array([0, 1, 2, 0]) for name in ("y_train", "y_test")}
    other = LabeledData.read(archive(tmp_path / "other.npz", **vectors, **labels))
    study = Study(data=(data, other), vocabulary=words, settings=SETTINGS, folder=tmp_path)
    assert [study.vocabulary_of(study.units(one)[0]) for one in (data, other)] == [None, words]


def test_a_vocabulary_matters_to_the_decoded_seed_only(data: LabeledData, tmp_path: Path) -> None:
    np.savez(tmp_path / "words.npz", X=np.eye(6, dtype=np.float32), words=np.array(list("abcdef")))
    with_words, without = (
        Study(data=(data,), vocabulary=words, settings=SETTINGS, folder=tmp_path)
        for words in (Vocabulary.read(tmp_path / "words.npz"), None)
    )
    for one in with_words.units(data):
        assert (with_words.place(one) == without.place(one)) is (one.seed > 0)


def test_a_class_that_nobody_reports_is_named(tmp_path: Path) -> None:
    x, y = clusters(0, 600)
    y[y == 2] = 1
    y[0] = 2
    lonely = LabeledData.read(archive(tmp_path / "lonely.npz", X_train=x, y_train=y))
    study = Study(data=(lonely,), vocabulary=None, settings=SETTINGS, folder=tmp_path / "cells")
    with pytest.raises(InvalidInputError, match="'blue' of 'lonely' is reported by 1 users"):
        run(study, SILENT, workers=1)


def test_bars_in_names_do_not_break_tables() -> None:
    assert tables.markdown((["a"], [["x|y"]])).splitlines()[-1] == "| x\\|y |"


def test_two_files_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    first, second = archive(tmp_path / "x.npz"), archive(tmp_path / "a" / "x.npz")
    with pytest.raises(SystemExit):
        main(["--data", str(first), str(second), "-o", str(tmp_path / "out")])
    assert "rename one" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
