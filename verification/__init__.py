"""Attempts to refute what `accounting` claims and `privkde` does."""

from verification.audit import audit
from verification.reporting.document import AuditReport
from verification.verdicts import FULL, QUICK

__all__ = ["FULL", "QUICK", "AuditReport", "audit"]
