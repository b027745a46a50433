"""The certificate that a charge keeps: part of the charge's row, and so of the ledger's chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accounting import Guarantee, InvalidInputError, Plan
from accounting.checking import Proof, disproved, read_proof, require_proof
from accounting.errors import require_text


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptProof:
    """The document `privkde.certificate/1` as it was when it was charged, and its result in one sentence."""

    headline: str
    document: Mapping[str, Any] = field(hash=False, repr=False)

    @staticmethod
    def of(proof: Proof, plan: Plan | None) -> KeptProof:
        """What is kept of a certificate of this plan; `InvalidInputError` unless every number is proved again, now."""
        if plan is None:
            raise InvalidInputError("a certificate is proved again for its plan, and none is given; give the plan.")
        proof = require_proof(read_proof(proof.to_json()), plan.sha256())
        for sentence in disproved(plan, proof):
            raise InvalidInputError(f"the certificate is false: {sentence}; nothing was charged.")
        return KeptProof(headline=proof.headline, document=proof.to_json())

    def covers(self, promise: Guarantee) -> bool:
        """Whether the promise that is charged is no stronger than the plan's claim that was proved."""
        claim = self.document["claim"]
        return bool(promise.epsilon >= claim["epsilon"] and promise.delta >= claim["delta"])

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"headline": self.headline, "document": dict(self.document)}

    @staticmethod
    def from_json(data: Any) -> KeptProof:
        """Inverse of `to_json`; raises `InvalidInputError` on anything else."""
        if not isinstance(data, Mapping) or data.keys() != {"headline", "document"}:
            raise InvalidInputError("a kept certificate must be a headline and a document; restore the ledger.")
        if not isinstance(data["document"], Mapping):
            raise InvalidInputError("the document of a kept certificate must be an object; restore the ledger.")
        return KeptProof(headline=require_text("headline", data["headline"]), document=dict(data["document"]))
