"""How accurate the default classifier is, bit by bit, beside the nearest mean, no privacy, central DP and the paper.

python -m benchmarks.classifier --data A.npz B.npz                the table, for five ε
python -m benchmarks.classifier --data A.npz --output FILE.json   also every number, unrounded, and its origin; a
                                                                  file that is there keeps other data sets and ε
python -m benchmarks.classifier --data A.npz --weak               sets with weak, unequal classes, made from the data

A data set is an .npz archive with X_train, y_train, X_test and y_test; vectors are brought to norm 1. (ε, δ) is the
total for a whole record, δ = 1e-6. Runs are seeded. docs/results/classifier.json is such a file, and
docs/results/classifier.md prints it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.linear_model import LogisticRegression

from accounting import InfeasibleError, PlanRequest
from accounting.classifier_model import DISCRIMINANT, MEAN
from accounting.mechanisms import GaussianMechanism
from accounting.registry import AUTO
from benchmarks.record import about, write
from privkde import PrivateClassifier, PrivateKDEClassifier
from privkde.protocol.linear_rule import LinearRule, Published
from privkde.storage.datasets import read_array
from privkde.storage.files import require_writable

DELTA = 1e-6
NO_NOISE = 1e-9
Floats = NDArray[np.float32]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledSet:
    """Users and test items, of norm 1."""

    name: str
    x: Floats
    y: NDArray[np.int64]
    x_test: Floats
    y_test: NDArray[np.int64]

    @staticmethod
    def read(path: Path) -> LabeledSet:
        """From an archive."""
        x, x_test = (_unit(read_array(path, name)) for name in ("X_train", "X_test"))
        y, y_test = (read_array(path, name).astype(np.int64) for name in ("y_train", "y_test"))
        return LabeledSet(name=path.stem, x=x, y=y, x_test=x_test, y_test=y_test)

    def weak(self, n_classes: int, decay: float, noise: float) -> LabeledSet:
        """A harder set: class sizes fall by `decay` from one to the next, and noise of uneven directions is mixed in.

        The first `n_classes` classes; test items are mixed and thinned as the users are. Seeded.
        """
        random = np.random.default_rng(18)
        largest = int(np.bincount(self.y).max())
        turn, _ = np.linalg.qr(random.normal(size=(self.x.shape[1],) * 2))
        spread = np.sqrt(1.0 / np.arange(1, self.x.shape[1] + 1))
        spread *= noise / np.linalg.norm(spread)
        parts = []
        for x, y, most in (
            (self.x, self.y, largest),
            (self.x_test, self.y_test, largest * len(self.y_test) / len(self.y)),
        ):
            kept = [random.permutation(np.flatnonzero(y == c))[: int(most * decay**c) + 20] for c in range(n_classes)]
            chosen = random.permutation(np.concatenate(kept))
            mixed = x[chosen] + (random.normal(size=(len(chosen), len(turn))) * spread) @ turn.T
            parts.append((_unit(mixed), y[chosen]))
        (x, y), (x_test, y_test) = parts
        return LabeledSet(
            name=f"{self.name}, {n_classes} classes × {decay:g}, noise {noise:g}",
            x=x,
            y=y,
            x_test=x_test,
            y_test=y_test,
        )

    def accuracy(self, predicted: NDArray[Any]) -> float:
        """The share of test items that are right."""
        return float(np.mean(predicted == self.y_test))

    def distance(self) -> float:
        """From a user's class mean to the nearest other one, on average over users."""
        exact = self.published()
        means = exact.sums / exact.sizes[:, None]
        apart = np.linalg.norm(means[:, None] - means, axis=2) + np.diag(np.full(len(means), np.inf))
        return float(exact.sizes @ apart.min(axis=1) / exact.sizes.sum())

    def published(
        self, seed: int = 0, deviation: float = NO_NOISE, weights: tuple[float, float] = (1.0, 1.0)
    ) -> Published:
        """Exact sums, or with normal noise as a trusted analyzer would add it; weights are β² and γ²."""
        random, n_classes, dim = np.random.default_rng(seed), int(self.y.max()) + 1, self.x.shape[1]
        sums = np.zeros((n_classes, dim))
        np.add.at(sums, self.y, self.x)
        of_moments, of_sizes = (deviation / np.sqrt(weight) for weight in weights)
        noise = np.triu(random.normal(0.0, of_moments / np.sqrt(2.0), (dim, dim)), 1)
        noise += noise.T + np.diag(random.normal(0.0, of_moments, dim))
        return Published(
            n_users=len(self.y),
            sizes=np.bincount(self.y, minlength=n_classes) + random.normal(0.0, of_sizes, n_classes),
            size_deviation=float(of_sizes),
            sums=sums + random.normal(0.0, deviation, sums.shape),
            deviation=deviation,
            moments=self.x.astype(np.float64).T @ self.x + noise,
            moment_deviation=float(of_moments),
        )


def _unit(x: NDArray[Any]) -> Floats:
    wide = x.astype(np.float64)
    return np.asarray(wide / np.linalg.norm(wide, axis=1, keepdims=True), np.float32)


def without_privacy(data: LabeledSet) -> Row:
    """Accuracy of exact statistics and of logistic regression."""
    exact = data.published()
    means = exact.sums / exact.sizes[:, None]
    nearest = data.x_test @ means.T - 0.5 * np.sum(means**2, axis=1)
    regression = LogisticRegression(C=10.0, max_iter=300).fit(data.x, data.y)
    return {
        "largest class": data.accuracy(np.full(len(data.y_test), np.argmax(exact.sizes))),
        "density": data.accuracy(np.argmax(data.x_test @ means.T, axis=1)),
        "nearest mean": data.accuracy(np.argmax(nearest, axis=1)),
        "discriminant": data.accuracy(np.argmax(LinearRule.of(exact).scores(data.x_test), axis=1)),
        "logistic regression": data.accuracy(regression.predict(data.x_test)),
    }


def private(data: LabeledSet, epsilon: float, seed: int, model: str = AUTO) -> tuple[float, Row]:
    """The first thing that a user types, or another model, run bit by bit."""
    options: Row = {"classes": range(int(data.y.max()) + 1), "insecure_seed": seed, "outside": "project"}
    fitted = PrivateClassifier(epsilon=epsilon, delta=DELTA, model=model, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fitted.fit(data.x, data.y)
    request, linear = fitted.plan_.request, fitted.ranking_.linear
    return data.accuracy(fitted.predict(data.x_test)), {
        "model": request.model,
        "moment_weight": request.moment_weight,
        "messages": fitted.plan_.messages_per_user,
        "bytes": fitted.plan_.bits_per_user / 8.0,
        "noise of a mean": None if linear is None else float(np.sqrt(linear.noise)),
    }


def central(data: LabeledSet, epsilon: float, seed: int) -> float:
    """The same vector with normal noise from an analyzer that sees the data: no rounding, no shuffling."""
    n_classes, dim = int(data.y.max()) + 1, data.x.shape[1]
    asked = PlanRequest(users=len(data.y), dim=dim, classes=n_classes, epsilon=epsilon, delta=DELTA, model=DISCRIMINANT)
    record = asked.record
    assert record is not None
    noise = GaussianMechanism.calibrate(epsilon, DELTA, np.sqrt(record.squared_distance)).standard_deviation
    published = data.published(seed, noise, (record.moment_weight, record.size_weight))
    return data.accuracy(np.argmax(LinearRule.of(published).scores(data.x_test), axis=1))


def paper(data: LabeledSet, epsilon: float, seed: int) -> float | None:
    """The paper's protocol and calibration: Gaussian densities, separate labels; None where it is not possible."""
    classes = np.arange(data.y.max() + 1)
    options: dict[str, Any] = {"kernel": "gaussian", "accountant": "paper", "repetitions": data.x.shape[1]}
    options |= {"classes": classes, "insecure_seed": seed, "allow_useless": True, "small_classes": "exclude"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            fitted = PrivateKDEClassifier(epsilon=epsilon, delta=DELTA, **options).fit(data.x, data.y)
        return data.accuracy(fitted.predict(data.x_test))
    except InfeasibleError:
        return None


def measured(data: LabeledSet, epsilons: list[float], seeds: list[int], n_paper: int) -> Iterator[Row]:
    """A row for each ε."""
    each = seeds * len(epsilons) if len(seeds) == 1 else seeds
    for epsilon, n_runs in zip(epsilons, each, strict=True):
        runs = [private(data, epsilon, seed) for seed in track(range(n_runs), f"{data.name}, ε = {epsilon:g}")]
        means = [private(data, epsilon, seed, MEAN)[0] for seed in range(n_runs)]
        papers = [paper(data, epsilon, seed) for seed in range(n_paper)]
        yield {
            "epsilon": epsilon,
            **runs[0][1],
            "accuracies": [accuracy for accuracy, _ in runs],
            "nearest mean, private": means,
            "central": [central(data, epsilon, seed) for seed in range(5)],
            "paper": [accuracy for accuracy in papers if accuracy is not None],
        }


def _shown(values: list[float]) -> str:
    return f"{100 * np.mean(values):.1f}" if values else "—"


def main() -> None:
    """Measure, print, and write what was found after each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True, metavar="FILE.npz")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.25, 0.5, 1.0, 2.0], metavar="EPSILON")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[5], metavar="N", help="runs, for all ε or one for each"
    )
    parser.add_argument("--paper", type=int, default=1, metavar="N", help="runs of the paper's protocol (default: 1)")
    parser.add_argument("--weak", action="store_true", help="sets with weak and unequal classes, made from the data")
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    parsed = parser.parse_args()
    if parsed.output is not None:
        require_writable(parsed.output)
    console, found = Console(), _known(parsed.output)
    for path in parsed.data:
        start = time.monotonic()
        data = LabeledSet.read(path)
        if parsed.weak:
            data = data.weak(int(data.y.max()) + 1, 0.8, 2.0)
        exact = without_privacy(data)
        rows = list(measured(data, parsed.epsilons, parsed.seeds, parsed.paper))
        facts = {
            "users": len(data.y),
            "tests": len(data.y_test),
            "dim": data.x.shape[1],
            "classes": int(data.y.max()) + 1,
            "distance between means": data.distance(),
        }
        origin = about("python -m benchmarks.classifier", sys.argv[1:], time.monotonic() - start)
        before = found.get(data.name, {"rows": [], "about": []})
        every = {row["epsilon"]: row for row in (*before["rows"], *rows)}
        found[data.name] = {
            "data": data.name,
            **facts,
            "without privacy": exact,
            "rows": [every[epsilon] for epsilon in sorted(every)],
            "about": [*before["about"], origin],
        }
        shown = Table(
            "ε", "model", "bytes", "accuracy, %", "nearest mean, private, %", "central, %", "the paper's, %",
            title=f"{data.name}: {facts}",
            caption="without privacy: " + ", ".join(f"{name} {100 * value:.1f}" for name, value in exact.items()),
        )  # fmt: skip
        for row in rows:
            accuracies = (_shown(row[name]) for name in ("accuracies", "nearest mean, private", "central", "paper"))
            shown.add_row(f"{row['epsilon']:g}", row["model"], f"{row['bytes']:,.0f}", *accuracies)
        console.print(shown)
        if parsed.output is not None:
            write(parsed.output, {"delta": DELTA, "sets": list(found.values())})


def _known(output: Path | None) -> dict[str, Row]:
    """What the file holds already, by the name of the data set."""
    if output is None or not output.exists():
        return {}
    return {one["data"]: one for one in json.loads(output.read_text(encoding="utf-8"))["sets"]}


if __name__ == "__main__":
    main()
