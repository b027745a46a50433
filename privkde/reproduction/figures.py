"""Results as pictures, arranged as in the paper: a row for each data set, a column for each protocol."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privkde.figures import BLUE, GRAY, GREEN, INK, ORANGE, PURPLE, figure_file
from privkde.reproduction.results import DataResults, Results, Spread
from privkde.reproduction.settings import BITSUMS, KERNELS, Settings
from privkde.reproduction.tables import KERNEL_NAMES, METHOD_NAMES
from privkde.reproduction.unit import EVERYBODY, Cell

COLORS = {"gaussian": BLUE, "inner-product": ORANGE}
MARKS = {"gaussian": "o", "inner-product": "s"}
BITSUM_COLORS = {"rr": BLUE, "3nb": ORANGE, "pure": GREEN}
BITSUM_MARKS = {"rr": "o", "3nb": "s", "pure": "^"}
PRESET_STYLES = {"paper": "--", "tight": "-"}


def plot_accuracy(results: Results, preset: str, path: Path, label_epsilon: float | None) -> None:
    """Accuracy against ε: protocols solid, central dotted, no privacy dash-dotted; a line at guessing."""
    with figure_file(path, 10.0, 0.7 + 2.2 * len(results.data)) as figure:
        grid = figure.subplots(len(results.data), len(BITSUMS), squeeze=False, sharex=True, sharey="row")
        for row, data in zip(grid, results.data, strict=True):
            for axes, bitsum in zip(row, BITSUMS, strict=True):
                for kernel in KERNELS:
                    _accuracy_lines(axes, results.settings, data, kernel, preset, bitsum, label_epsilon)
                axes.axhline(data.guessing, color=GRAY, linewidth=1.0)
                _dress(axes, METHOD_NAMES[bitsum] if data is results.data[0] else "")
            row[0].set_ylabel(f"{data.name}\naccuracy", fontsize=9)
        _legend(figure, grid[0, 0])


def _accuracy_lines(
    axes: Any, settings: Settings, data: DataResults, kernel: str, preset: str, bitsum: str, label: float | None
) -> None:
    color, name = COLORS[kernel], KERNEL_NAMES[kernel]
    spreads = {
        epsilon: data.accuracy(kernel, Cell(method=bitsum, preset=preset, epsilon=epsilon, label_epsilon=label))
        for epsilon in settings.epsilons
    }
    _line(axes, spreads, color=color, marker=MARKS[kernel], label=f"{name}, shuffled")
    spreads = {
        epsilon: data.accuracy(kernel, Cell(method="central", epsilon=epsilon, label_epsilon=label))
        for epsilon in settings.epsilons
    }
    _line(axes, spreads, color=color, linestyle=":", label=f"{name}, central")
    exact = data.accuracy(kernel, Cell(method="none", label_epsilon=label))
    if exact is not None:
        axes.axhline(exact.mean, color=color, linestyle="-.", linewidth=1.0, label=f"{name}, no privacy")


def plot_local(results: Results, preset: str, path: Path, label_epsilon: float | None) -> None:
    """Randomized response with and without a shuffler."""
    with _row(results, path) as (figure, panels):
        for axes, data in zip(panels, results.data, strict=True):
            for kernel in KERNELS:
                for method, style, told in (("rr", "-", "shuffled"), ("local", "--", "local")):
                    cells = {
                        epsilon: Cell(method=method, preset=preset if method == "rr" else "", epsilon=epsilon,
                                      label_epsilon=label_epsilon)
                        for epsilon in results.settings.epsilons
                    }  # fmt: skip
                    spreads = {epsilon: data.accuracy(kernel, cell) for epsilon, cell in cells.items()}
                    _line(axes, spreads, color=COLORS[kernel], linestyle=style, marker=MARKS[kernel],
                          label=f"{KERNEL_NAMES[kernel]}, {told}")  # fmt: skip
            axes.axhline(data.guessing, color=GRAY, linewidth=1.0)
            _dress(axes, data.name)
        panels[0].set_ylabel("accuracy")
        _legend(figure, panels[0])


def plot_presets(results: Results, kernel: str, path: Path, label_epsilon: float | None) -> None:
    """The same promise by both calibrations, for every protocol with one kernel."""
    with _row(results, path) as (figure, panels):
        for axes, data in zip(panels, results.data, strict=True):
            for preset in results.settings.presets:
                for bitsum in BITSUMS:
                    spreads = {
                        epsilon: data.accuracy(
                            kernel, Cell(method=bitsum, preset=preset, epsilon=epsilon, label_epsilon=label_epsilon)
                        )
                        for epsilon in results.settings.epsilons
                    }
                    _line(axes, spreads, color=BITSUM_COLORS[bitsum], linestyle=PRESET_STYLES[preset],
                          marker=BITSUM_MARKS[bitsum], label=f"{METHOD_NAMES[bitsum]}, {preset}")  # fmt: skip
            axes.axhline(data.guessing, color=GRAY, linewidth=1.0)
            _dress(axes, data.name)
        panels[0].set_ylabel(f"accuracy, {KERNEL_NAMES[kernel]}")
        _legend(figure, panels[0])


def plot_communication(results: Results, path: Path, label_epsilon: float | None) -> None:
    """Messages of one user, as counted."""
    with _row(results, path) as (figure, panels):
        for axes, data in zip(panels, results.data, strict=True):
            for preset in results.settings.presets:
                for bitsum in BITSUMS:
                    cells = {
                        epsilon: Cell(method=bitsum, preset=preset, epsilon=epsilon, label_epsilon=label_epsilon)
                        for epsilon in results.settings.epsilons
                    }
                    found = {epsilon: data.value(KERNELS[0], cell, "messages") for epsilon, cell in cells.items()}
                    spreads = {epsilon: None if one is None else Spread(one, 0.0) for epsilon, one in found.items()}
                    _line(axes, spreads, color=BITSUM_COLORS[bitsum], linestyle=PRESET_STYLES[preset],
                          marker=BITSUM_MARKS[bitsum], label=f"{METHOD_NAMES[bitsum]}, {preset}")  # fmt: skip
            axes.set_yscale("log")
            _dress(axes, data.name)
        panels[0].set_ylabel("messages per user")
        _legend(figure, panels[0])


def plot_density_error(results: Results, path: Path) -> None:
    """Error of the Gaussian density of all users."""
    with _row(results, path) as (figure, panels):
        for axes, data in zip(panels, results.data, strict=True):
            for preset in results.settings.presets:
                for bitsum in BITSUMS:
                    _errors(axes, results.settings, data, bitsum, preset, color=BITSUM_COLORS[bitsum],
                            linestyle=PRESET_STYLES[preset], marker=BITSUM_MARKS[bitsum])  # fmt: skip
            _errors(axes, results.settings, data, "central", "", color=INK, linestyle=":")
            _errors(axes, results.settings, data, "local", "", color=PURPLE, linestyle="-.")
            exact = data.error(KERNELS[0], Cell(method="none", label_epsilon=EVERYBODY))
            if exact is not None:
                axes.axhline(exact.mean, color=GRAY, linewidth=1.0, label="features alone")
            axes.set_yscale("log")
            _dress(axes, data.name)
        panels[0].set_ylabel("RMSE of the density")
        _legend(figure, panels[0])


def _errors(axes: Any, settings: Settings, data: DataResults, method: str, preset: str, **style: Any) -> None:
    spreads = {
        epsilon: data.error(KERNELS[0], Cell(method=method, preset=preset, epsilon=epsilon, label_epsilon=EVERYBODY))
        for epsilon in settings.epsilons
    }
    _line(axes, spreads, label=f"{METHOD_NAMES[method]}, {preset}" if preset else METHOD_NAMES[method], **style)


class _row:  # noqa: N801 - a context manager that reads as a function
    """Panels side by side, one for each data set."""

    def __init__(self, results: Results, path: Path) -> None:
        self._count = len(results.data)
        self._file = figure_file(path, 0.8 + 2.6 * self._count, 3.4)

    def __enter__(self) -> tuple[Any, Sequence[Any]]:
        figure = self._file.__enter__()
        return figure, figure.subplots(1, self._count, squeeze=False, sharey=True)[0]

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*error)


def _line(axes: Any, spreads: dict[float, Spread | None], **style: Any) -> None:
    known = {x: spread for x, spread in spreads.items() if spread is not None}
    if not known:
        return
    axes.errorbar(
        list(known), [one.mean for one in known.values()],
        yerr=[0.0 if one.deviation != one.deviation else one.deviation for one in known.values()],
        markersize=3.5, linewidth=1.4, capsize=2.0, **style,
    )  # fmt: skip


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
