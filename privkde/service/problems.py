"""Errors as problem details (RFC 9457): every answer that is not a success has this shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from accounting import InfeasibleError, PrivkdeError, UnlikeGuaranteesError
from accounting.releases.composing import finite
from privkde.ledger.refusals import (
    BudgetExceededError,
    BudgetExistsError,
    KeyReusedError,
    LedgerAlteredError,
    LedgerKeyError,
    LedgerUnavailableError,
    ScheduleUsedUpError,
    UnknownBudgetError,
)
from privkde.service import documents

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem: its status and what it is called."""

    status: int
    name: str
    title: str

    @property
    def uri(self) -> str:
        """Identifies the kind; relative to the service."""
        return f"/problems/{self.name}"


INVALID = Kind(422, "invalid-input", "A value breaks a stated rule")
INFEASIBLE = Kind(422, "infeasible", "No parameters meet the request")
UNLIKE = Kind(422, "unlike-guarantees", "Promises for different adjacencies or views")
MALFORMED = Kind(400, "malformed", "The request is not a JSON object")
UNAUTHORIZED = Kind(401, "unauthorized", "A bearer token is needed")
NOT_FOUND = Kind(404, "not-found", "There is nothing here")
NO_METHOD = Kind(405, "method-not-allowed", "This cannot be done here")
UNKNOWN_BUDGET = Kind(404, "unknown-budget", "No budget has this name")
EXISTS = Kind(409, "budget-exists", "A budget of this name exists")
EXCEEDED = Kind(409, "budget-exceeded", "The budget would be exceeded")
USED_UP = Kind(409, "schedule-used-up", "All times of the schedule are used")
KEY_REUSED = Kind(409, "key-reused", "The idempotency key belongs to another charge")
TIMEOUT = Kind(408, "timeout", "The request took too long to arrive")
NO_LENGTH = Kind(411, "no-length", "The request must say how long it is")
TOO_LARGE = Kind(413, "too-large", "The request is too large")
MEDIA = Kind(415, "unsupported-media-type", "The request must be application/json")
MISDIRECTED = Kind(421, "misdirected", "The service is not known by this name")
TOO_MANY = Kind(429, "too-many", "This client asks for too much at once")
LONG_HEAD = Kind(431, "long-head", "The request has too many headers")
INTERNAL = Kind(500, "internal", "A mistake of the service")
BUSY = Kind(503, "busy", "The service is busy")
UNAVAILABLE = Kind(503, "ledger-unavailable", "The ledger cannot be used now")
ALTERED = Kind(503, "ledger-altered", "The ledger was altered, and nothing is charged")
TOO_SLOW = Kind(504, "too-slow", "The work took too long and was stopped")

KINDS = (
    MALFORMED, UNAUTHORIZED, NOT_FOUND, UNKNOWN_BUDGET, NO_METHOD, EXISTS, EXCEEDED, USED_UP, KEY_REUSED, TIMEOUT,
    NO_LENGTH, TOO_LARGE, MEDIA,
    MISDIRECTED, INVALID, INFEASIBLE, UNLIKE, TOO_MANY, LONG_HEAD, INTERNAL, BUSY, UNAVAILABLE, ALTERED, TOO_SLOW,
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}

_OF_ERRORS: tuple[tuple[type[PrivkdeError], Kind], ...] = (
    (BudgetExceededError, EXCEEDED),
    (BudgetExistsError, EXISTS),
    (UnknownBudgetError, UNKNOWN_BUDGET),
    (KeyReusedError, KEY_REUSED),
    (ScheduleUsedUpError, USED_UP),
    (LedgerUnavailableError, UNAVAILABLE),
    (LedgerAlteredError, ALTERED),
    (LedgerKeyError, ALTERED),
    (InfeasibleError, INFEASIBLE),
    (UnlikeGuaranteesError, UNLIKE),
    (PrivkdeError, INVALID),
)


class Problem(HTTPException):
    """A problem on its way to the client."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        extra: Mapping[str, float | None] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(kind.status, detail, headers)
        self.kind = kind
        self.extra: Mapping[str, float | None] = extra or {}

    @staticmethod
    def of(error: PrivkdeError) -> Problem:
        """What an error of the library becomes; an exceeded budget says by how much."""
        kind = next(kind for known, kind in _OF_ERRORS if isinstance(error, known))
        named = ("requested", "remaining", "difference") if isinstance(error, BudgetExceededError) else ()
        return Problem(kind, str(error), {name: finite(getattr(error, name)) for name in named})

    def response(self) -> Response:
        """The answer: the members of RFC 9457 and the problem's own."""
        kind = self.kind
        document = {"type": kind.uri, "title": kind.title, "status": kind.status, "detail": self.detail, **self.extra}
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        return Response(text, self.kind.status, self.headers, MEDIA_TYPE)


EVERYWHERE = (MALFORMED, TIMEOUT, TOO_LARGE, MEDIA, MISDIRECTED, TOO_MANY, INTERNAL)
"""What any request may be answered with."""
WORK = (INVALID, BUSY, TOO_SLOW)
"""What a request that is computed may be answered with."""


def described(*kinds: Kind) -> dict[int | str, dict[str, Any]]:
    """Problems of a route by their status, for its `responses`; kinds that share a status are listed together."""
    titles: dict[int, list[str]] = {}
    for kind in kinds:
        titles.setdefault(kind.status, []).append(f"{kind.title} ({kind.uri})")
    return {status: {"model": documents.Problem, "description": "; ".join(titles[status])} for status in sorted(titles)}
