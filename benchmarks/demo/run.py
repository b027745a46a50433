"""The demonstration from the promise to the page, step by step."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from benchmarks.classifier import LabeledSet
from benchmarks.demo.data import DemoSettings, DigitData, simulate
from benchmarks.demo.figures import accuracy_table, plot_accuracies, plot_confusion, plot_pictures
from benchmarks.demo.page import render
from benchmarks.demo.summary import METHODS, Outcome, summary_text
from privkde.display.figures import plot_profile, require_matplotlib
from privkde.display.tables import terms_table
from privkde.draws.randomness import ByteStream, private_randomness
from privkde.learning.baselines import baseline
from privkde.learning.decoding import decode_classes
from privkde.learning.estimators import PrivateKDEClassifier
from privkde.learning.private_classifier import PrivateClassifier
from privkde.learning.scoring import Accuracy, measured
from privkde.protocol.linear_rule import LinearRule
from privkde.protocol.model import DensityModel
from privkde.storage.datasets import write_arrays
from privkde.storage.files import require_replaceable, whole_folder

TERMS_PER_CLASS = 3
FIRST_SCANS = 12
MOST_MISTAKES = 8
OWN_FILES = ("index.html", "summary.json", "model", "public.npz", "plan*.json", "*.svg")


class Story:
    """Chapters on standard output, each timed."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.timings: dict[str, float] = {}

    @contextmanager
    def chapter(self, name: str) -> Iterator[None]:
        """One stage."""
        started = time.perf_counter()
        self.tell(f"\n[bold]{len(self.timings) + 1}. {name}[/bold]")
        yield
        self.timings[name] = time.perf_counter() - started

    def tell(self, text: str) -> None:
        """One sentence."""
        self.console.print(text, highlight=False)


def run_demo(settings: DemoSettings, output: Path, *, console: Console | None = None) -> Outcome:
    """Run everything and write the folder `output`, whole or not at all."""
    require_matplotlib()
    require_replaceable(output.resolve(), OWN_FILES)
    randomness = private_randomness(settings.insecure_seed)
    story = Story(console or Console())
    with whole_folder(output, OWN_FILES) as folder:
        outcome = _outcome(settings, randomness, folder, story)
        with story.chapter("Figures"):
            _draw_figures(outcome, folder)
        _write_public_files(outcome, folder)
        (folder / "index.html").write_text(render(outcome, folder), encoding="utf-8")
        files = sorted([*(path.name for path in folder.iterdir()), "summary.json"])
        (folder / "summary.json").write_text(summary_text(outcome, files), encoding="utf-8")
    if not outcome.model.private:
        story.tell("[bold]Not private[/bold]: the private draws came from --insecure-seed.")
    story.tell(f"Open [bold]{escape(str(output / 'index.html'))}[/bold] in a browser.")
    return outcome


def _outcome(settings: DemoSettings, randomness: ByteStream, folder: Path, story: Story) -> Outcome:
    """Every stage up to the figures; after the collection only what the saved model holds is used."""
    with story.chapter("Data"):
        data = simulate(settings)
        story.tell(f"{len(data.users):,} simulated users, each with one scan of a handwritten digit.")
        story.tell(f"Held out: {len(data.test)} real scans to test on and {len(data.gallery)} as public pictures.")
    with story.chapter("Collection"):
        story.tell(f"Promised: ({settings.epsilon:g}, {settings.delta:g})-DP for scan and digit together.")
        PrivateClassifier(**_promise(settings)).fit(data.users.vectors(), data.users.labels).save(folder / "model")
        classifier = PrivateClassifier.load(folder / "model")
        model = classifier.model_
        _tell_collection(model, story)
    with story.chapter("Test"):
        predicted = classifier.predict(data.test.vectors())
        story.tell(f"Accuracy on the held-out scans: {measured(predicted, data.test.labels)}.")
    with story.chapter("Comparison"):
        paper = _paper(settings, data)
        accuracies = _compared(data, model, paper, predicted, randomness)
        story.console.print(accuracy_table({method.title: accuracies[method.name] for method in METHODS}))
    with story.chapter("Decoding"):  # by contrast: what all digits have in common drops out
        gallery = data.gallery
        decoded = decode_classes(
            model.feature_sums(), gallery.vectors(), gallery.names(), k=TERMS_PER_CLASS, contrast=True
        )
        story.console.print(terms_table(list(zip(model.classes, decoded, strict=True)), contrast=True))
    return Outcome(
        settings=settings,
        data=data,
        model=model,
        paper=paper.model_,
        predicted=predicted,
        accuracies=accuracies,
        decoded=decoded,
        timings=story.timings,
    )


def _promise(settings: DemoSettings) -> dict[str, Any]:
    """What both protocols are asked for: one (ε, δ) for scan and digit."""
    return {
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "classes": range(settings.n_classes),
        "insecure_seed": settings.insecure_seed,
        "verbose": sys.stderr.isatty(),
    }


def _paper(settings: DemoSettings, data: DigitData) -> PrivateKDEClassifier:
    """The paper's way. A useless plan is accepted: that so much noise is needed is the point."""
    classifier = PrivateKDEClassifier(
        **_promise(settings),
        accountant="paper",
        repetitions=settings.repetitions,
        bandwidth=settings.bandwidth,
        allow_useless=True,
    )
    return classifier.fit(data.users.vectors(), data.users.labels)


def _tell_collection(model: DensityModel, story: Story) -> None:
    plan, sizes = model.plans[0], model.sizes()
    story.tell(f"Every user sent {plan.messages_per_user:,.0f} one-bit messages through the shuffler.")
    story.tell(f"Bits flip with probability {plan.parameters['flip_probability']:.3f}.")
    counts = ", ".join(f"{label}: {size:,.0f}" for label, size in sizes.items())
    story.tell(f"Estimated users of each digit, ± {model.size_deviation():.0f}: {counts}.")


def _compared(
    data: DigitData,
    model: DensityModel,
    paper: PrivateKDEClassifier,
    predicted: NDArray[np.int64],
    randomness: ByteStream,
) -> dict[str, Accuracy]:
    """The same task by other means, for the same (ε, δ). Noise of `central` and `local` is drawn as normal."""
    queries, plan = data.test.vectors(), model.plans[0]
    users = LabeledSet(name="", x=data.users.vectors(), y=data.users.labels, x_test=queries, y_test=data.test.labels)
    record, alone = plan.request.record, baseline(plan, "local")
    assert record is not None  # scan and digit are one vector
    deviations = {
        "central": float(baseline(plan, "central").contract.parameters["standard_deviation"]),
        "local": record.noise_deviation(plan.request.facts().bound, len(data.users), alone.bitsum_rmse**2),
    }
    seed = int.from_bytes(randomness.child("baselines").take(8).tobytes())
    noisy = {
        name: users.published(seed, deviation, (record.moment_weight, record.size_weight))
        for name, deviation in deviations.items()
    }
    linear = {name: LinearRule.of(sums) for name, sums in {"exact": users.published(), **noisy}.items()}
    found = {name: np.argmax(rule.scores(queries), axis=1) for name, rule in linear.items()}
    found |= {"shuffled": predicted, "paper": paper.predict(queries)}
    return {method.name: measured(found[method.name], data.test.labels) for method in METHODS}


def _draw_figures(outcome: Outcome, folder: Path) -> None:
    labels = [str(label) for label in outcome.model.labels]
    accuracies = {method.title: outcome.accuracies[method.name] for method in METHODS}
    own = next(method.title for method in METHODS if method.name == "shuffled")
    plot_accuracies(accuracies, folder / "accuracy.svg", highlighted=own, chance=1.0 / len(labels))
    plot_confusion(outcome.confusion(), labels, folder / "confusion.svg")
    plot_profile(outcome.model.plans[0], folder / "profile.svg")
    plot_pictures(outcome.gallery(), folder / "gallery.svg")
    plot_pictures(outcome.scans(np.arange(len(outcome.right))[:FIRST_SCANS]), folder / "scans.svg")
    if not outcome.right.all():
        plot_pictures(outcome.scans(np.flatnonzero(~outcome.right)[:MOST_MISTAKES]), folder / "mistakes.svg")


def _write_public_files(outcome: Outcome, folder: Path) -> None:
    """The plan, and the public data that the model can be asked about."""
    (folder / "plan.json").write_text(outcome.model.plans[0].dumps(), encoding="utf-8")
    test, gallery = outcome.data.test, outcome.data.gallery
    public: dict[str, NDArray[Any]] = {
        "X_test": test.vectors(),
        "y_test": test.labels,
        "X": gallery.vectors(),
        "words": np.array(gallery.names()),
    }
    write_arrays(folder / "public.npz", public)
