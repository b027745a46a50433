"""What geometric accounting buys: noise, predicted against measured error, accuracy on data sets.

python -m benchmarks.geometric                                  the noise and the error on synthetic data
python -m benchmarks.geometric --data A.npz B.npz               the same on these data, and the accuracy of classifiers
python -m benchmarks.geometric --data A.npz --output FILE.json  also every number, unrounded, with what it came from
python -m benchmarks.geometric --data A.npz --tiny              few users and runs: does it work at all?

A data set is an .npz archive with X_train, y_train, X_test and y_test. Runs are seeded, so that a run can be repeated.
docs/results/geometric.json is such a file, and docs/results/geometric.md prints its tables from it.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from accounting import Plan, PlanRequest, plan_budget
from accounting.composition import Geometric, PrivacyLossComposition, Target, Touched
from accounting.mechanisms import GaussianMechanism, RandomizedResponse
from benchmarks.record import about, write
from privkde.draws.randomness import private_randomness
from privkde.engines.local import collect
from privkde.learning.baselines import central_sums, exact_densities
from privkde.learning.estimators import PrivateKDEClassifier
from privkde.learning.labeled_estimator import LabeledEstimator
from privkde.learning.prediction import expected_error
from privkde.learning.private_classifier import PrivateClassifier
from privkde.protocol.rounds import Collection, Terms
from privkde.storage.files import require_writable

NOISE: dict[str, Any] = {"users": 30_000, "dim": 768, "epsilon": 2.0, "delta": 1e-6}
DELTA, LABEL_EPSILON = 1e-5, 5.0
ERROR_DELTA = 1e-6
KERNELS: tuple[dict[str, Any], ...] = (
    {"kernel": "inner-product", "epsilon": 1.0},
    {"kernel": "inner-product", "epsilon": 1.0, "bound": 1.0},
    {"kernel": "gaussian", "epsilon": 2.0, "repetitions": 256},
)
Floats = NDArray[np.floating]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    users: int
    """Users whose density is measured; classifiers learn from everybody."""
    queries: int
    """Vectors of users at which a density is measured."""
    sample: int
    """Vectors, not of these users, from which the error is predicted."""
    runs: int
    """Measurements of a density, each with fresh randomness, seeded 0, 1, …."""
    epsilons: tuple[float, ...]
    """Privacy of classifiers."""
    seeds: int
    """Classifiers for each ε and way, seeded 0, 1, …."""


FULL = Size(users=20_000, queries=500, sample=4_000, runs=64, epsilons=(0.1, 0.25, 0.5, 1.0, 2.0), seeds=3)
TINY = Size(users=2_000, queries=50, sample=500, runs=3, epsilons=(2.0,), seeds=2)


@dataclass(frozen=True, slots=True)
class DataSet:
    """Users and test items."""

    name: str
    sha256: str
    x: Floats
    y: NDArray[Any]
    x_test: Floats
    y_test: NDArray[Any]

    @staticmethod
    def read(path: Path) -> DataSet:
        """From an archive."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        with np.load(path, allow_pickle=False) as stored:
            return DataSet(path.stem, digest, *(stored[name] for name in ("X_train", "y_train", "X_test", "y_test")))


def noise() -> Row:
    """Randomized response for the same promise, accounted for in several ways."""
    users, epsilon, delta = NOISE["users"], NOISE["epsilon"], NOISE["delta"]
    target = Target(
        rung=Geometric(),
        touched=Touched(groups=NOISE["dim"], per_group=1, squared_shift=1.0),
        epsilon=epsilon,
        delta=delta,
    )
    generic = target.design(RandomizedResponse, users)
    rows = [_noise_row("Theorem 1, Δ² = 1", generic.parameters(), generic.rmse(), 1.0)]
    asked: dict[str, Any] = {**NOISE, "kernel": "inner-product"}
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
        rows.append(_noise_row(name, plan.parameters, plan.bitsum_rmse, plan.request.facts().bound))
    alone = Target(rung=PrivacyLossComposition(), touched=Touched(groups=1, per_group=1), epsilon=epsilon, delta=delta)
    least = alone.design(RandomizedResponse, users)
    rows.append(_noise_row("one bit that flips", least.parameters(), least.rmse(), 1.0))
    central = GaussianMechanism.calibrate(epsilon, delta, 1.0).standard_deviation
    rows.append({**dict.fromkeys(rows[0]), "way": "central Gaussian mechanism", "scaled_rmse": central})
    return {"noise": {**NOISE, "rows": rows}}


def _noise_row(way: str, parameters: Mapping[str, float | int], rmse: float, bound: float) -> Row:
    return {
        "way": way,
        "flip_probability": parameters["flip_probability"],
        "bound": bound,
        "rmse": rmse,
        "scaled_rmse": bound * rmse,
    }


def synthetic(count: int) -> Floats:
    """Unit vectors around one direction."""
    x = np.random.default_rng(0).normal(size=(count, 64))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[:, 0] += 1.0
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def errors(data: Sequence[DataSet], size: Size) -> Row:
    """Predicted and measured RMSE of a density."""
    cloud = synthetic(size.users + size.sample)
    sets = {"synthetic": (cloud[: size.users], cloud[size.users :])}
    for one in data:
        order = np.random.default_rng(1).permutation(len(one.x))
        sets[one.name] = one.x[order[: size.users]], one.x[order[size.users :][: size.sample]]
    rows = []
    for name, (x, sample) in sets.items():
        for asked in KERNELS:
            squares, plan = _measured(x, asked, size)
            told = expected_error(plan, sample, x[: size.queries], public_seed="5a" * 16).total
            rows.append(
                {
                    "data": name,
                    "dim": x.shape[1],
                    "kernel": asked["kernel"],
                    "bound": plan.request.facts().bound,
                    "epsilon": asked["epsilon"],
                    "measured": math.sqrt(float(np.mean(squares))),
                    "from_sample": told,
                    "from_plan": plan.error.total,
                    "mean_squared_errors": squares,
                }
            )
    measured = {"users": size.users, "queries": size.queries, "sample": size.sample, "runs": size.runs}
    return {"errors": {**measured, "delta": ERROR_DELTA, "rows": rows}}


def _measured(x: Floats, asked: dict[str, Any], size: Size) -> tuple[list[float], Plan]:
    squares, everybody, queries = [], np.arange(len(x)), x[: size.queries]
    plan = plan_budget(users=len(x), dim=x.shape[1], delta=ERROR_DELTA, **asked)
    for seed in track(range(size.runs), description=f"{asked['kernel']}, {x.shape[1]} dimensions", transient=True):
        randomness = private_randomness(seed)
        collection = Collection(
            Terms(request={**asked, "dim": x.shape[1], "delta": ERROR_DELTA}, public_seed=randomness.public_seed())
        )
        collection.enroll(len(x))
        (announcement,) = collection.fix_plan(plan)
        collection.count(0, collect(announcement, x, everybody, stream=randomness, outside="project"))
        model = collection.publish(private=False)
        exact = exact_densities(announcement.family(), x, [everybody], queries)
        squares.append(float(np.mean((model.densities(queries) - exact) ** 2)))
    return squares, plan


def accuracies(data: DataSet, size: Size) -> Row:
    """Classifiers with the inner product, ε by ε."""
    classes, numbers = np.unique(data.y, return_inverse=True)
    groups = [np.flatnonzero(numbers == c) for c in range(len(classes))]
    planned = PlanRequest(
        users=len(data.x), dim=data.x.shape[1], kernel="inner-product", classes=len(classes),
        label_epsilon=LABEL_EPSILON, epsilon=LABEL_EPSILON + 1.0, delta=DELTA,
    ).rounding_bound  # fmt: skip
    separate = {"label_epsilon": LABEL_EPSILON}
    ways: dict[str, dict[str, Any]] = {
        "published, R = 1": {"accountant": "paper", **separate},
        "pld, R = 1": {"accountant": "pld", **separate},
        "pld": {"accountant": "pld", "bound": planned, **separate},
        "geometric": separate,
        "geometric, joint": {"model": "density"},
    }
    rows: list[Row] = []
    for epsilon in track(size.epsilons, description=data.name, transient=True):
        for way, options in ways.items():
            found = list(_classifiers(data, epsilon, options, size.seeds))
            rows.append({"epsilon": epsilon, "way": way, "accuracies": [_accuracy(one, data) for one in found]})
            if way == "pld, R = 1":
                central = [_central(data, one, groups, classes, seed) for seed, one in enumerate(found)]
                family = found[0].model_.announcements[0].family()
        rows.append({"epsilon": epsilon, "way": "central", "accuracies": central})
    exact = exact_densities(family, data.x, groups, data.x_test)
    return {
        f"accuracy {data.name}": {
            "data": data.name, "sha256": data.sha256, "users": len(data.x), "dim": data.x.shape[1],
            "classes": len(classes), "test_items": len(data.x_test),
            "largest_class": float(np.max(np.unique(data.y_test, return_counts=True)[1]) / len(data.y_test)),
            "kernel": "inner-product", "bound": planned, "delta": DELTA, "label_epsilon": LABEL_EPSILON,
            "without_privacy": float(np.mean(classes[np.argmax(exact, axis=1)] == data.y_test)), "rows": rows,
        }
    }  # fmt: skip


def _classifiers(data: DataSet, epsilon: float, options: dict[str, Any], seeds: int) -> Iterator[LabeledEstimator]:
    """ε is that of features, or of the whole record with joint labels."""
    label = options.get("label_epsilon")
    total = epsilon if label is None else math.fsum([epsilon, label])
    kind = PrivateClassifier if label is None else PrivateKDEClassifier
    for seed in range(seeds):
        asked = {"kernel": "inner-product", "epsilon": total, "delta": DELTA, "classes": np.unique(data.y), **options}
        yield kind(**asked, allow_useless=True, insecure_seed=seed, outside="project").fit(data.x, data.y)


def _accuracy(fitted: LabeledEstimator, data: DataSet) -> float:
    return float(np.mean(fitted.predict(data.x_test) == data.y_test))


def _central(data: DataSet, fitted: LabeledEstimator, groups: list[Any], classes: NDArray[Any], seed: int) -> float:
    model = fitted.model_
    stream = private_randomness(seed)
    sums = central_sums(model.announcements[0].family(), model.plans, data.x, groups, stream=stream)
    predicted = classes[np.argmax(sums.densities(data.x_test), axis=1)]
    return float(np.mean(predicted == data.y_test))


def show(console: Console, found: Row) -> None:
    """Print what a measure found."""
    for title, content in found.items():
        settings = ", ".join(f"{name} {_short(value)}" for name, value in content.items() if name != "rows")
        columns = [name for name in content["rows"][0] if name != "mean_squared_errors"]
        shown = Table(*columns, title=title, caption=settings)
        for row in content["rows"]:
            shown.add_row(*(_short(row[name]) for name in columns))
        console.print(shown)


def _short(value: object) -> str:
    if isinstance(value, list):
        return f"{np.mean(value):.4g} ± {np.std(value, ddof=1):.2g}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "—" if value is None else str(value)


def main() -> None:
    """Measure, print, and write what was found after each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="*", default=[], metavar="FILE.npz")
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    parser.add_argument("--tiny", action="store_true")
    parsed = parser.parse_args()
    if parsed.output is not None:
        require_writable(parsed.output)
    size = TINY if parsed.tiny else FULL
    data = [DataSet.read(path) for path in parsed.data]
    measures: list[Callable[[], Row]] = [noise, partial(errors, data, size)]
    measures += [partial(accuracies, one, size) for one in data]
    console, start, found = Console(), time.monotonic(), Row()
    for measure in measures:
        part = measure()
        show(console, part)
        found |= part
        if parsed.output is not None:
            record = {"about": about("python -m benchmarks.geometric", sys.argv[1:], time.monotonic() - start), **found}
            write(parsed.output, record)


if __name__ == "__main__":
    main()
