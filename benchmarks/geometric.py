"""What geometric accounting buys: noise, predicted against measured error, accuracy on data sets.

python benchmarks/geometric.py                                the noise and the error on synthetic data
python benchmarks/geometric.py --data A.npz B.npz             the same on these data, and the accuracy of classifiers
python benchmarks/geometric.py --data A.npz --output FILE.md  also as Markdown

A data set is an .npz archive with X_train, y_train, X_test and y_test. Runs are seeded, so that a run can be repeated.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from accounting import Plan, PlanRequest, plan_budget
from accounting.composition import Geometric, PrivacyLossComposition, Touched
from accounting.designs import Target, design
from accounting.mechanisms import GaussianMechanism
from privkde.baselines import central_sums, exact_densities
from privkde.engines.local import collect
from privkde.estimators import PrivateKDEClassifier
from privkde.files import write_text
from privkde.prediction import expected_error
from privkde.randomness import private_randomness
from privkde.rounds import Collection, Terms

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0)
DELTA, LABEL_EPSILON = 1e-5, 5.0
SEEDS = range(3)
ERROR_USERS, QUERIES, SAMPLE, RUNS = 20_000, 500, 4_000, 64
KERNELS: tuple[dict[str, Any], ...] = (
    {"kernel": "inner-product", "epsilon": 1.0},
    {"kernel": "inner-product", "epsilon": 1.0, "bound": 1.0},
    {"kernel": "gaussian", "epsilon": 2.0, "repetitions": 256},
)

Floats = NDArray[np.floating]
Lines = list[str]


@dataclass(frozen=True, slots=True)
class DataSet:
    """Users and test items."""

    name: str
    x: Floats
    y: NDArray[Any]
    x_test: Floats
    y_test: NDArray[Any]

    @staticmethod
    def read(path: Path) -> DataSet:
        """From an archive."""
        with np.load(path, allow_pickle=False) as stored:
            return DataSet(path.stem, *(stored[name] for name in ("X_train", "y_train", "X_test", "y_test")))


def row(*cells: object) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def head(*cells: str) -> Lines:
    """The first two lines of a Markdown table."""
    return [row(*cells), row(*("---" for _ in cells))]


def noise() -> Lines:
    """The issue's setting: n = 30,000, d = 768, ε = 2, δ = 1e-6, randomized response."""
    lines = ["## Noise", "", "n = 30,000, d = 768, ε = 2, δ = 1e-6, randomized response.", ""]
    lines += head("accounting", "flip probability p", "RMSE of a bitsum", "R · RMSE")
    target = Target(
        rung=Geometric(), touched=Touched(groups=768, per_group=1, squared_shift=1.0), epsilon=2.0, delta=1e-6
    )
    generic = design("rr", n_users=30_000, target=target)
    lines.append(row("Theorem 1, Δ² = 1", *_noise_cells(generic.parameters(), generic.rmse(), 1.0)))
    asked: dict[str, Any] = {"users": 30_000, "dim": 768, "kernel": "inner-product", "epsilon": 2.0, "delta": 1e-6}
    planned = PlanRequest(**asked, accountant="geometric").rounding_bound
    ways: dict[str, dict[str, Any]] = {
        "published calibration": {"accountant": "paper"},
        "pld, R = 1": {"accountant": "pld"},
        "pld, R planned": {"accountant": "pld", "bound": planned},
        "geometric, R = 1 (Theorem 2)": {"accountant": "geometric", "bound": 1.0},
        "geometric, R planned": {"accountant": "geometric"},
    }
    for name, options in ways.items():
        plan = plan_budget(**asked, **options)
        lines.append(row(name, *_noise_cells(plan.parameters, plan.bitsum_rmse, plan.request.facts().bound)))
    alone = Target(rung=PrivacyLossComposition(), touched=Touched(groups=1, per_group=1), epsilon=2.0, delta=1e-6)
    least = design("rr", n_users=30_000, target=alone)
    lines.append(
        row("one bit that flips: no proof can need less", *_noise_cells(least.parameters(), least.rmse(), 1.0))
    )
    central = GaussianMechanism.calibrate(2.0, 1e-6, 1.0).standard_deviation
    lines.append(row("central Gaussian mechanism", "—", "—", f"{central:.3f}"))
    return lines


def _noise_cells(parameters: Any, rmse: float, bound: float) -> tuple[str, ...]:
    return f"{parameters['flip_probability']:.4g}", f"{rmse:.4g}", f"{bound * rmse:.4g}"


def synthetic() -> Floats:
    """Unit vectors around one direction."""
    x = np.random.default_rng(0).normal(size=(ERROR_USERS + SAMPLE, 64))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[:, 0] += 1.0
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def errors(data: list[DataSet]) -> Lines:
    """Predicted and measured RMSE of a density."""
    lines = [
        "## Predicted and measured error",
        "",
        f"RMSE of the density of {ERROR_USERS:,} users at {QUERIES} of their own vectors, δ = 1e-6, {RUNS} runs with"
        f" fresh public and private randomness. *Sample*: `expected_error` from {SAMPLE:,} other vectors of the same"
        " data. *Plan*: the plan's own number, which knows nothing of the data.",
        "",
        *head("data", "kernel", "measured", "sample", "ratio", "plan", "ratio"),
    ]
    cloud = synthetic()
    sets = {"synthetic (d = 64)": (cloud[:ERROR_USERS], cloud[ERROR_USERS:])}
    for one in data:
        order = np.random.default_rng(1).permutation(len(one.x))
        sets[one.name] = one.x[order[:ERROR_USERS]], one.x[order[ERROR_USERS:][:SAMPLE]]
    for name, (x, sample) in sets.items():
        for asked in KERNELS:
            measured, plan = _measured(x, asked)
            told = expected_error(plan, sample, x[:QUERIES], public_seed="5a" * 16).total
            kernel = f"{asked['kernel']}, R = {plan.request.facts().bound:.3g}, ε = {asked['epsilon']:g}"
            cells = f"{told:.4g}", f"{told / measured:.3f}", f"{plan.error.total:.4g}"
            lines.append(row(name, kernel, f"{measured:.4g}", *cells, f"{plan.error.total / measured:.3f}"))
    return lines


def _measured(x: Floats, asked: dict[str, Any]) -> tuple[float, Plan]:
    squares, everybody = [], np.arange(len(x))
    plan = plan_budget(users=len(x), dim=x.shape[1], delta=1e-6, **asked)
    for seed in track(range(RUNS), description=f"{asked['kernel']}, {x.shape[1]} dimensions", transient=True):
        randomness = private_randomness(seed)
        collection = Collection(
            Terms(request={**asked, "dim": x.shape[1], "delta": 1e-6}, public_seed=randomness.public_seed())
        )
        collection.enroll(len(x))
        (announcement,) = collection.fix_plan(plan)
        collection.count(0, collect(announcement, x, everybody, stream=randomness.stream, outside="project"))
        model = collection.publish(private=False)
        exact = exact_densities(announcement.family(), x, [everybody], x[:QUERIES])
        squares.append(float(np.mean((model.densities(x[:QUERIES]) - exact) ** 2)))
    return math.sqrt(float(np.mean(squares))), plan


def accuracies(data: DataSet) -> Lines:
    """Classifiers with the inner product, ε by ε."""
    classes, numbers = np.unique(data.y, return_inverse=True)
    lines = [
        f"## Accuracy: {data.name}",
        "",
        f"{len(data.x):,} users, {len(classes)} classes, {len(data.x_test):,} test items; inner product, randomized"
        f" response, δ = {DELTA:g}. Bits are rounded relative to the planner's R after a rotation, except where R = 1"
        f" is said. Labels are separate, with ε_lbl = {LABEL_EPSILON:g} on top of ε; joint labels have nothing on"
        f" top. Central: Gaussian noise on the sums of the true classes, labels unprotected. Mean (standard"
        f" deviation) of {len(SEEDS)} runs.",
        "",
        *head("ε", "published, R = 1", "pld, R = 1", "pld", "geometric", "geometric, joint", "central", "no privacy"),
    ]
    groups = [np.flatnonzero(numbers == c) for c in range(len(classes))]
    ceiling: float | None = None
    planned = PlanRequest(
        users=len(data.x), dim=data.x.shape[1], kernel="inner-product", classes=len(classes),
        label_epsilon=LABEL_EPSILON, epsilon=1.0, delta=DELTA,
    ).rounding_bound  # fmt: skip
    for epsilon in track(EPSILONS, description=data.name, transient=True):
        cells = []
        for options in (
            {"accountant": "paper", "label_epsilon": LABEL_EPSILON},
            {"accountant": "pld", "label_epsilon": LABEL_EPSILON},
            {"accountant": "pld", "bound": planned, "label_epsilon": LABEL_EPSILON},
            {"label_epsilon": LABEL_EPSILON},
            {"labels": "joint"},
        ):
            found = list(_classifiers(data, epsilon, options))
            cells.append(_spread([float(np.mean(one.predict(data.x_test) == data.y_test)) for one in found]))
            if options == {"accountant": "pld", "label_epsilon": LABEL_EPSILON}:
                central = _spread([_central(data, one, groups, classes, seed) for seed, one in enumerate(found)])
                family = found[0].model_.announcements[0].family()
        if ceiling is None:
            exact = exact_densities(family, data.x, groups, data.x_test)
            ceiling = float(np.mean(classes[np.argmax(exact, axis=1)] == data.y_test))
        lines.append(row(f"{epsilon:g}", *cells, central, f"{ceiling:.1%}"))
    return lines


def _classifiers(data: DataSet, epsilon: float, options: dict[str, Any]) -> Iterator[PrivateKDEClassifier]:
    for seed in SEEDS:
        asked = {"kernel": "inner-product", "epsilon": epsilon, "delta": DELTA, **options}
        yield PrivateKDEClassifier(**asked, allow_useless=True, insecure_seed=seed, outside="project").fit(
            data.x, data.y
        )


def _central(data: DataSet, fitted: PrivateKDEClassifier, groups: list[Any], classes: NDArray[Any], seed: int) -> float:
    model = fitted.model_
    stream = private_randomness(seed).stream
    sums = central_sums(model.announcements[0].family(), model.plans, data.x, groups, stream=stream)
    predicted = classes[np.argmax(sums.densities(data.x_test), axis=1)]
    return float(np.mean(predicted == data.y_test))


def _spread(values: list[float]) -> str:
    return f"{np.mean(values):.1%} ({np.std(values, ddof=1):.1%})"


def main() -> None:
    """Print everything as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="*", default=[], metavar="FILE.npz")
    parser.add_argument("--output", type=Path, metavar="FILE.md")
    parsed = parser.parse_args()
    data = [DataSet.read(path) for path in parsed.data]
    console, sections = Console(width=400, soft_wrap=True), []
    measures: list[Callable[[], Lines]] = [noise, partial(errors, data), *(partial(accuracies, one) for one in data)]
    for measure in measures:
        sections.append("\n".join(measure()) + "\n")
        console.print(sections[-1], markup=False, highlight=False)
        if parsed.output is not None:
            write_text(parsed.output, "\n".join(sections))


if __name__ == "__main__":
    main()
