"""Results as pictures, arranged as in the paper: a row for each data set and a column for each protocol, or panels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.paper.results import DataResults, Results, Spread
from benchmarks.paper.settings import BITSUMS, KERNELS
from benchmarks.paper.tables import KERNEL_NAMES, METHOD_NAMES
from benchmarks.paper.unit import EVERYBODY, Cell
from privkde.display.figures import BLUE, GRAY, GREEN, INK, ORANGE, PURPLE, figure_file

KERNEL_STYLES = {"gaussian": {"color": BLUE, "marker": "o"}, "inner-product": {"color": ORANGE, "marker": "s"}}
BITSUM_STYLES = {
    "rr": {"color": BLUE, "marker": "o"},
    "3nb": {"color": ORANGE, "marker": "s"},
    "pure": {"color": GREEN, "marker": "^"},
}
PRESET_STYLES = {"paper": "--", "tight": "-"}
MOST_COLUMNS = 3

Read = Callable[[str, Cell], Spread | None]
"""Kernel and cell to the value that is drawn."""
Line = tuple[str, Cell, dict[str, Any]]
"""Kernel, cell without its ε, style and label."""


def plot_accuracy(results: Results, preset: str, label_epsilon: float | None, path: Path) -> None:
    """Accuracy against ε: protocols solid, central dotted, no privacy dash-dotted; a gray line at guessing."""
    with figure_file(path, 10.0, 0.7 + 2.2 * len(results.data)) as figure:
        grid = figure.subplots(len(results.data), len(BITSUMS), squeeze=False, sharex=True, sharey="row")
        for row, data in zip(grid, results.data, strict=True):
            for axes, bitsum in zip(row, BITSUMS, strict=True):
                for kernel in KERNELS:
                    cell = Cell(method=bitsum, preset=preset, label_epsilon=label_epsilon)
                    _accuracy_lines(axes, results.settings.epsilons, data, kernel, cell)
                axes.axhline(data.guessing, color=GRAY, linewidth=1.0)
                _dress(axes, METHOD_NAMES[bitsum] if data is results.data[0] else "")
            row[0].set_ylabel(f"{data.name}\naccuracy", fontsize=9)
        _legend(figure, grid[0, 0])


def _accuracy_lines(axes: Any, epsilons: Sequence[float], data: DataResults, kernel: str, cell: Cell) -> None:
    style, name = KERNEL_STYLES[kernel], KERNEL_NAMES[kernel]
    central = Cell(method="central", label_epsilon=cell.label_epsilon)
    _draw(axes, data.accuracy, epsilons, (kernel, cell, {**style, "label": f"{name}, shuffled"}))
    _draw(axes, data.accuracy, epsilons, (kernel, central, {"color": style["color"], "linestyle": ":",
                                                            "label": f"{name}, central"}))  # fmt: skip
    exact = data.accuracy(kernel, Cell(method="none", label_epsilon=cell.label_epsilon))
    if exact is not None:
        axes.axhline(exact.mean, color=style["color"], linestyle="-.", linewidth=1.0, label=f"{name}, no privacy")


def plot_local(results: Results, preset: str, label_epsilon: float | None, path: Path) -> None:
    """Randomized response with and without a shuffler."""
    lines: list[Line] = []
    for kernel in KERNELS:
        shuffled = Cell(method="rr", preset=preset, label_epsilon=label_epsilon)
        local = Cell(method="local", label_epsilon=label_epsilon)
        for cell, name, dashes in ((shuffled, "shuffled RR", "-"), (local, "local RR", "--")):
            style = {**KERNEL_STYLES[kernel], "linestyle": dashes, "label": f"{KERNEL_NAMES[kernel]}, {name}"}
            lines.append((kernel, cell, style))
    _panels(results, path, "accuracy", lines, lambda data: data.accuracy, reference=_guessing)


def plot_presets(results: Results, kernel: str, label_epsilon: float | None, path: Path) -> None:
    """The same promise by both calibrations, for every protocol with one kernel."""
    lines = list(_protocols(results, kernel, label_epsilon))
    _panels(
        results,
        path,
        f"accuracy, {KERNEL_NAMES[kernel]}",
        lines,
        lambda data: data.accuracy,
        reference=_guessing,
    )


def plot_communication(results: Results, label_epsilon: float | None, path: Path) -> None:
    """Messages of one user, as counted."""

    def messages(data: DataResults) -> Read:
        def read(kernel: str, cell: Cell) -> Spread | None:
            value = data.value(kernel, cell, "messages")
            return None if value is None else Spread(value, 0.0)

        return read

    lines = list(_protocols(results, KERNELS[0], label_epsilon))
    _panels(results, path, "messages per user", lines, messages, logarithmic=True)


def plot_density_error(results: Results, path: Path) -> None:
    """Error of the Gaussian density of all users, that of the features alone as a gray line."""
    lines = list(_protocols(results, KERNELS[0], EVERYBODY))
    for method, color, dashes in (("central", INK, ":"), ("local", PURPLE, "-.")):
        cell = Cell(method=method, label_epsilon=EVERYBODY)
        lines.append((KERNELS[0], cell, {"color": color, "linestyle": dashes, "label": METHOD_NAMES[method]}))
    _panels(results, path, "RMSE of the density", lines, lambda data: data.error, reference=_features, logarithmic=True)


def _guessing(data: DataResults) -> float:
    return data.guessing


def _features(data: DataResults) -> float:
    """Error that is left without any noise."""
    alone = data.error(KERNELS[0], Cell(method="none", label_epsilon=EVERYBODY))
    return math.nan if alone is None else alone.mean


def _protocols(results: Results, kernel: str, label_epsilon: float | str | None) -> Iterator[Line]:
    """A line for every protocol and calibration."""
    for preset in results.settings.presets:
        for bitsum in BITSUMS:
            cell = Cell(method=bitsum, preset=preset, label_epsilon=label_epsilon)
            label = f"{METHOD_NAMES[bitsum]}, {preset}"
            yield kernel, cell, {**BITSUM_STYLES[bitsum], "linestyle": PRESET_STYLES[preset], "label": label}


def _panels(
    results: Results,
    path: Path,
    quantity: str,
    lines: Sequence[Line],
    reading: Callable[[DataResults], Read],
    *,
    reference: Callable[[DataResults], float] | None = None,
    logarithmic: bool = False,
) -> None:
    """Panels, one for each data set, up to three side by side."""
    columns = min(MOST_COLUMNS, len(results.data))
    rows = math.ceil(len(results.data) / columns)
    with figure_file(path, 0.8 + 2.9 * columns, 0.9 + 2.5 * rows) as figure:
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for spare in panels.flat[len(results.data) :]:
            spare.set_axis_off()
        for axes, data in zip(panels.flat, results.data, strict=False):
            for line in lines:
                _draw(axes, reading(data), results.settings.epsilons, line)
            if reference is not None:
                axes.axhline(reference(data), color=GRAY, linewidth=1.0)
            axes.set_yscale("log" if logarithmic else "linear")
            _dress(axes, data.name)
        for first in panels[:, 0]:
            first.set_ylabel(quantity)
        _legend(figure, panels[0, 0])


def _draw(axes: Any, read: Read, epsilons: Sequence[float], line: Line) -> None:
    """One line with its standard deviations; what a method cannot promise is left out."""
    kernel, cell, style = line
    spreads = {epsilon: read(kernel, replace(cell, epsilon=epsilon)) for epsilon in epsilons}
    known = {epsilon: spread for epsilon, spread in spreads.items() if spread is not None}
    if not known:
        return
    means = [spread.mean for spread in known.values()]
    deviations = [0.0 if math.isnan(spread.deviation) else spread.deviation for spread in known.values()]
    axes.errorbar(list(known), means, yerr=deviations, markersize=3.5, linewidth=1.4, capsize=2.0, **style)


def _dress(axes: Any, title: str) -> None:
    axes.set(xscale="log", xlabel="ε")
    axes.set_title(title, fontsize=9)
    axes.set_xticks([0.25, 1.0, 4.0, 10.0], ["¼", "1", "4", "10"])
    axes.minorticks_off()
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3, linewidth=0.5)


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, framealpha=0.0)
