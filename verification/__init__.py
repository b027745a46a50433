"""Attempts to refute what `accounting` claims and `privkde` does."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verification.auditing import audit
    from verification.reporting.document import AuditReport
    from verification.verdicts import FULL, QUICK

__all__ = ["FULL", "QUICK", "AuditReport", "audit"]
_HOMES = {
    "FULL": "verification.verdicts",
    "QUICK": "verification.verdicts",
    "AuditReport": "verification.reporting.document",
    "audit": "verification.auditing",
}


def __getattr__(name: str) -> Any:
    """Load what is exported when it is first used: the list of commands needs none of it."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'verification' has no attribute {name!r}")
