"""A contract: which component promises what, on which evidence, under which hypotheses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from accounting.errors import LARGEST_FLOAT, require_real, require_text
from accounting.guarantee import Guarantee, plain_values


class EvidenceKind(StrEnum):
    """How a claim is known."""

    THEOREM = "theorem"
    """A proof, in the paper or in docs/proofs."""
    COMPUTATION = "exact computation"
    """A number computed from the exact law, rounded against ourselves; `method` says how."""
    ASSUMPTION = "assumption"
    """Only the word of those who deploy the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Why a contract's guarantees hold."""

    kind: EvidenceKind
    method: str
    source: str

    def __post_init__(self) -> None:
        require_text("method", self.method)
        require_text("source", self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """component + guarantees + evidence + hypotheses (`checked` by this library, `assumed` of the world)."""

    component: str
    guarantees: tuple[Guarantee, ...]
    evidence: Evidence
    checked: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    parameters: Mapping[str, float | int | str] = field(default_factory=dict, hash=False)
    parts: tuple[Contract, ...] = ()

    def __post_init__(self) -> None:
        for text in (self.component, *self.checked, *self.assumed, *self.parameters):
            require_text("text of a contract", text)
        for name, value in self.parameters.items():
            if isinstance(value, str):
                require_text(name, value)
            else:
                require_real(name, value, low=-LARGEST_FLOAT, high=LARGEST_FLOAT, low_open=False)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, parts included."""
        return plain_values(self)

    def rephrased(self, words: Mapping[str, str]) -> Contract:
        """With other words for the same evidence, parts included."""
        method, source = self.evidence.method, self.evidence.source
        for now, then in words.items():
            method, source = method.replace(now, then), source.replace(now, then)
        evidence = dataclasses.replace(self.evidence, method=method, source=source)
        return dataclasses.replace(self, evidence=evidence, parts=tuple(part.rephrased(words) for part in self.parts))

    @staticmethod
    def from_json(data: dict[str, Any]) -> Contract:
        """Inverse of `to_json`."""
        return Contract(
            component=data["component"],
            guarantees=tuple(Guarantee.from_json(g) for g in data["guarantees"]),
            evidence=Evidence(**{**data["evidence"], "kind": EvidenceKind(data["evidence"]["kind"])}),
            checked=tuple(data["checked"]),
            assumed=tuple(data["assumed"]),
            parameters=dict(data["parameters"]),
            parts=tuple(Contract.from_json(part) for part in data["parts"]),
        )

    def tree(self) -> str:
        """The contract and its parts as an indented tree for people."""
        return "\n".join(self._lines())

    __str__ = tree

    def _lines(self) -> list[str]:
        lines = [self.component]
        body = [f"promises  {g}" for g in self.guarantees]
        body.append(f"because   {self.evidence.kind}: {self.evidence.method} [{self.evidence.source}]")
        if self.parameters:
            ordered = sorted(self.parameters.items())  # as a file has them
            values = (f"{k} = {v:.6g}" if isinstance(v, float) else f"{k} = {v}" for k, v in ordered)
            body.append("with      " + ", ".join(values))
        body += [f"checked   {text}" for text in self.checked]
        body += [f"assumed   {text}" for text in self.assumed]
        bar = "│  " if self.parts else "   "
        lines += [bar + text for text in body]
        for index, part in enumerate(self.parts):
            last = index == len(self.parts) - 1
            head, *rest = part._lines()
            lines.append(("└─ " if last else "├─ ") + head)
            lines += [("   " if last else "│  ") + text for text in rest]
        return lines
