"""The matrix saboteur × check: what every check says about every system, as a table and as a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from string import ascii_letters
from typing import Any

from rich import box
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import privkde
from accounting import InvalidInputError
from verification.reporting.document import Outcome, environment

SCHEMA = "privkde.saboteurs/1"


MARKS = {
    Outcome.REFUTED: ("✗", "bold red"),
    Outcome.NOT_REFUTED: ("·", "dim"),
    Outcome.NOT_APPLICABLE: (" ", "dim"),
    Outcome.COULD_NOT_RUN: ("!", "yellow"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One system: the honest one or one with a fault in it, tried on one plan."""

    name: str
    story: str
    plan: str
    honest: bool
    outcomes: dict[str, Outcome]
    errors: dict[str, str]
    """By check: the type of the error, where it could not run."""
    seconds: float

    @property
    def refuted_by(self) -> tuple[str, ...]:
        """Checks that refute it."""
        return tuple(name for name, outcome in self.outcomes.items() if outcome is Outcome.REFUTED)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        outcomes = {name: str(outcome) for name, outcome in self.outcomes.items()}
        seconds = round(self.seconds, 1)
        return asdict(self) | {"outcomes": outcomes, "seconds": seconds, "refuted_by": list(self.refuted_by)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Row:
        """Inverse of `to_json`."""
        return Row(
            name=str(data["name"]),
            story=str(data["story"]),
            plan=str(data["plan"]),
            honest=bool(data["honest"]),
            outcomes={str(name): Outcome(outcome) for name, outcome in data["outcomes"].items()},
            errors={str(name): str(error) for name, error in data["errors"].items()},
            seconds=float(data["seconds"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """What was found, and by which version, when and where. `complete` is what a release needs."""

    checks: tuple[str, ...]
    rows: tuple[Row, ...]
    effort: str
    seconds: float
    seed: int
    """What the checks drew from."""
    version: str = privkde.__version__
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    environment: Mapping[str, Any] = field(default_factory=environment, hash=False)

    @property
    def made(self) -> datetime:
        """The date, to compare."""
        return datetime.fromisoformat(self.date)

    @property
    def n_faults(self) -> int:
        """How many saboteurs were tried."""
        return sum(not row.honest for row in self.rows)

    @property
    def n_refuted(self) -> int:
        """How many of them some check refutes."""
        return self.n_faults - len(self.survivors)

    @property
    def survivors(self) -> tuple[str, ...]:
        """Saboteurs that no check refutes."""
        return tuple(row.name for row in self.rows if not row.honest and not row.refuted_by)

    @property
    def false_alarms(self) -> tuple[str, ...]:
        """Checks that refute the honest system, or cannot run on it."""
        bad = (Outcome.REFUTED, Outcome.COULD_NOT_RUN)
        return tuple(sorted({name for row in self.rows if row.honest for name, o in row.outcomes.items() if o in bad}))

    @property
    def complete(self) -> bool:
        """Every saboteur is refuted by some check; the honest system by none, and every check can run on it."""
        return (
            self.n_faults > 0 and any(row.honest for row in self.rows) and not self.survivors and not self.false_alarms
        )

    def to_json(self) -> dict[str, Any]:
        """The `privkde.saboteurs/1` document."""
        return {
            "schema": SCHEMA,
            "version": self.version,
            "date": self.date,
            "seed": self.seed,
            "environment": dict(self.environment),
            "complete": self.complete,
            "effort": self.effort,
            "seconds": round(self.seconds, 1),
            "survivors": list(self.survivors),
            "false_alarms": list(self.false_alarms),
            "checks": list(self.checks),
            "rows": [row.to_json() for row in self.rows],
        }

    @staticmethod
    def from_json(data: Any) -> Matrix:
        """Inverse of `to_json`; raises `InvalidInputError` on anything else."""
        try:
            matrix = Matrix(
                checks=tuple(str(name) for name in data["checks"]),
                rows=tuple(Row.from_json(row) for row in data["rows"]),
                effort=str(data["effort"]),
                seconds=float(data["seconds"]),
                seed=int(data["seed"]),
                version=str(data["version"]),
                date=str(data["date"]),
                environment=dict(data["environment"]),
            )
            whole = matrix.made.tzinfo is not None and all(
                {*matrix.checks} <= row.outcomes.keys() for row in matrix.rows
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
            raise InvalidInputError(f"matrix is incomplete or malformed near {error}; write it again.") from error
        if not whole or matrix.to_json() != data:
            raise InvalidInputError("matrix holds more, less or other than its rows say; write it again.")
        return matrix

    def table(self) -> RenderableType:
        """For the terminal: one character for each check, lettered above the column and named below."""
        letters = ascii_letters[: len(self.checks)]
        table = Table(title="saboteurs × checks", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("system", no_wrap=True)
        table.add_column(letters, no_wrap=True)
        for row in self.rows:
            marks = Text.assemble(*(MARKS[row.outcomes[name]] for name in self.checks))
            system = Text(f"honest: {row.plan}", "green") if row.honest else Text(row.name)
            table.add_row(system, marks)
        names = Columns([f"{letter} {name}" for letter, name in zip(letters, self.checks, strict=True)], padding=(0, 2))
        legend = "✗ refuted   · not refuted   ! could not run   blank: does not apply"
        return Group(table, names, Text(f"{legend}\n{self.summary()}"))

    def summary(self) -> str:
        """One sentence."""
        text = f"{self.n_refuted} of {self.n_faults} saboteurs refuted"
        if self.survivors:
            text += f" (not: {', '.join(self.survivors)})"
        if self.false_alarms:
            return f"{text}; the honest system fails {', '.join(self.false_alarms)}"
        return f"{text}; the honest system by no check"
