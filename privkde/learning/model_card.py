"""What was promised and published, on a card of about ten lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from accounting import Adjacency, View
from accounting.classifier_model import DENSITY, DISCRIMINANT
from accounting.errors import printable
from privkde.protocol.linear_rule import LinearRule
from privkde.protocol.model import DensityModel

SHOWN_CLASSES = 8
"""Classes that are listed with their sizes; of more, the rest are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A sentence on what was promised, and lines of a name and a text."""

    promise: str
    lines: tuple[tuple[str, str], ...]

    @staticmethod
    def of(model: DensityModel, rule: str = DENSITY, linear: LinearRule | None = None) -> ModelCard:
        """The card of a published model whose classes, if it has any, are ranked by this rule."""
        plan, facts = model.plans[0], model.plans[0].request.facts()
        kernel = f"{facts.name}, d = {facts.dim}"
        if model.basis is not None:
            kernel += f", projected from {model.dim} by a public basis"
        byte = plan.bits_per_user / 8.0
        lines = [("kernel", kernel), ("users", f"{sum(model.n_users):,}")]
        if model.labels:
            lines = [("model", _why(rule, plan.reasons, linear)), *lines, ("classes", _classes(model))]
        if linear is not None:
            lines.append(("class means", _means(linear)))
        lines.append(("sent by a user", f"{plan.messages_per_user:,.0f} messages, about {_size(byte)}"))
        lines.append(("noise", f"{plan.bitsum}, accounted for by {plan.accountant}"))
        if not model.classes_declared:
            lines.append(("caution", "the set of classes was read off the labels, which the promise does not cover"))
        if not model.private:
            lines.append(("NOT PRIVATE", "the private draws came from a seed: there is no protection"))
        return ModelCard(promise=promise(model), lines=tuple((name, printable(text)) for name, text in lines))

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.lines)
        return "\n".join([f"{self.promise}.", *(f"  {name:<{width}}  {text}" for name, text in self.lines)])

    def html(self) -> str:
        """As a table, all text escaped."""
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self.lines)
        return f"<table><caption>{escape(self.promise)}</caption>{rows}</table>"


def promise(model: DensityModel) -> str:
    """What the contract promises whoever takes part, in the view of all messages, in one sentence.

    It promises nothing if draws were seeded; the sentence then begins with that.
    """
    contract = model.contract if model.private else model.contract.parts[0]
    seen = {g.adjacency: g for g in contract.guarantees if g.view is View.COMMUNICATION}
    whole = seen.get(Adjacency.RECORD) or seen[Adjacency.FEATURES]
    of_what = "record: features and label" if whole.adjacency is Adjacency.RECORD else "vector"
    releases, users = model.plans[0].request.releases, f"{sum(model.n_users):,} users"
    where = f"one collection of {users}"
    if model.label_response() is not None:
        where = f"a report of the label and a collection for each of {len(model.labels)} classes, {users} together"
    text = f"({_short(whole.epsilon)}, {_short(whole.delta)})-differential privacy for a whole {of_what}, in {where}"
    text += "" if releases == 1 else f", one of {releases:,} releases that it is for"
    return text if model.private else f"NOT PRIVATE, because draws were seeded; otherwise {text}"


def _why(rule: str, reasons: Sequence[str], linear: LinearRule | None) -> str:
    """The rule and, where the planner chose it, the reason."""
    if rule == DISCRIMINANT and linear is not None and not linear.uses_moments:
        return "discriminant, which predicts by the nearest mean here: class means may be nothing but noise"
    said = next((reason for reason in reasons if reason.startswith(f"model {rule}: ")), f"model {rule}")
    return said.removeprefix("model ")


def _classes(model: DensityModel) -> str:
    error = model.size_deviation()
    within = f" ± {error:,.0f}" if error else ""
    sizes = [f"{label} ({max(0.0, size):,.0f}{within})" for label, size in model.sizes().items()]
    further = "" if len(sizes) <= SHOWN_CLASSES else f" and {len(sizes) - SHOWN_CLASSES} more"
    return f"{', '.join(sizes[:SHOWN_CLASSES])}{further}"


def _means(linear: LinearRule) -> str:
    return f"{math.sqrt(linear.signal):.3g} from their center, with noise of {math.sqrt(linear.noise):.3g}"


def _size(n_bytes: float) -> str:
    return f"{n_bytes:,.0f} bytes" if n_bytes < 1e4 else f"{n_bytes / 1e3:,.0f} kB"


def _short(value: float) -> str:
    """A number without zeros that say nothing: 1e-6 for 1e-06."""
    return f"{value:g}".replace("e-0", "e-")
