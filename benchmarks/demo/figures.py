"""Accuracies, confusion and scans of a demonstration, drawn and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from privkde.display.figures import BLUE, GRAY, INK, ORANGE, figure_file
from privkde.learning.scoring import Accuracy

Pictures = Sequence[tuple[str, Sequence[tuple[NDArray[np.float64], bool]]]]
"""Titles, each with gray pictures and whether they are right."""


def accuracy_table(accuracies: Mapping[str, Accuracy]) -> Table:
    """Methods beside each other."""
    table = Table(title="Accuracy on the same test set", title_justify="left")
    table.add_column("method")
    table.add_column("accuracy", justify="right")
    table.add_column("95 % interval", justify="right")
    for name, accuracy in accuracies.items():
        table.add_row(escape(name), f"{accuracy.value:.1%}", f"{accuracy.low:.1%} to {accuracy.high:.1%}")
    return table


def plot_accuracies(accuracies: Mapping[str, Accuracy], path: Path, *, highlighted: str, chance: float) -> None:
    """One bar for each method with its interval, its name above it, and a line at guessing."""
    with figure_file(path, 4.9, 0.6 * len(accuracies) + 0.8) as figure:
        axes = figure.subplots()
        for row, (name, accuracy) in enumerate(accuracies.items()):
            color = BLUE if name == highlighted else GRAY
            axes.barh(row, accuracy.value, height=0.42, color=color)
            spread = [[accuracy.value - accuracy.low], [accuracy.high - accuracy.value]]
            axes.errorbar(accuracy.value, row, xerr=spread, color=INK, capsize=3.5, linewidth=1.3)
            weight = "bold" if name == highlighted else "normal"
            axes.text(0.0, row - 0.3, name, va="bottom", fontsize=10, fontweight=weight)
            axes.text(1.02, row, f"{accuracy.value:.1%}", va="center", fontweight=weight)
            axes.vlines(chance, row - 0.27, row + 0.27, color=ORANGE, linewidth=2.0)
        axes.text(chance, len(accuracies) - 0.7, "↑ guessing", color=ORANGE, va="top", fontsize=10)
        axes.set(xlim=(0.0, 1.17), ylim=(len(accuracies) - 0.15, -0.75), yticks=[], xlabel="accuracy")
        axes.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.spines["left"].set_visible(False)


def plot_confusion(counts: NDArray[np.int64], labels: Sequence[str], path: Path) -> None:
    """How often each class (rows) was taken for each class (columns)."""
    with figure_file(path, 5.0, 4.6) as figure:
        axes = figure.subplots()
        shown = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        axes.pcolormesh(np.arange(len(labels)), np.arange(len(labels)), shown, cmap="cividis", vmin=0.0, vmax=1.0)
        for (row, column), count in np.ndenumerate(counts):
            if count:
                ink = "#000000" if shown[row, column] > 0.55 else "#f8f8f8"
                axes.text(column, row, str(count), ha="center", va="center", color=ink, fontsize=10)
        axes.set_xticks(range(len(labels)), labels)
        axes.set_yticks(range(len(labels)), labels)
        axes.set(xlabel="predicted", ylabel="written", aspect="equal")
        axes.invert_yaxis()


def plot_pictures(columns: Pictures, path: Path) -> None:
    """Columns of gray pictures under their titles; those that are wrong get a frame and a cross."""
    deepest = max(len(pictures) for _, pictures in columns)
    with figure_file(path, 0.72 * len(columns), 0.78 * deepest + 0.3) as figure:
        grid = figure.subplots(deepest, len(columns), squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for column, (title, pictures) in enumerate(columns):
            grid[0, column].set_title(title)
            for row, (picture, right) in enumerate(pictures):
                axes = grid[row, column]
                axes.imshow(picture, cmap="gray")
                if not right:
                    axes.set_axis_on()
                    axes.set(xticks=[], yticks=[])
                    axes.text(0.97, 0.97, "×", color=ORANGE, ha="right", va="top", transform=axes.transAxes)
                    for spine in axes.spines.values():
                        spine.set(visible=True, color=ORANGE, linewidth=2.5)
