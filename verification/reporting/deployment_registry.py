"""`registry.yaml`: a draft entry for the public registry of deployments of differential privacy.

Only what the plan and the audit know is filled in; what only the deploying organization can tell is left empty (null).
"""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from typing import Any

import privkde
from accounting.guarantee import View, promised
from verification.reporting import wording
from verification.reporting.deployment import assumptions, parties
from verification.reporting.document import AuditReport
from verification.reporting.pages import render_page

HEADER = (
    "# Draft entry for the public registry of deployments of differential privacy, written by `privkde audit`.\n"
    "# Empty values (null) are for the organization that runs the collection.\n"
)

WHOLE_POWER = re.compile(r'^(\s*(?:"[^"]*": )?-?\d+)(e[-+]\d+,?)$', re.MULTILINE)
"""1e-06 is a number in JSON and a text in YAML 1.1, which wants 1.0e-06."""


def filled(template: str, report: AuditReport, **more: Any) -> str:
    """A template of this package with what all of them say of a report, and more."""
    plan = report.plan
    return render_page(
        "verification.reporting",
        template,
        report=report,
        plan=plan,
        request=plan.request,
        main=promised(plan.guarantees, View.COMMUNICATION),
        local=promised(plan.guarantees, View.LOCAL),
        words=wording,
        deployment=report.deployment,
        assumed=assumptions(report.contract),
        parties=parties(plan),
        version=privkde.__version__,
        **more,
    )


def entry(report: AuditReport) -> dict[str, Any]:
    """The entry as plain values, in the registry's sections; `templates/registry.json` words it."""
    document: dict[str, Any] = json.loads(filled("registry.json", report))
    return document


def dumps(report: AuditReport) -> str:
    """The entry as YAML; without PyYAML (extra `report`) in the part of YAML that is JSON."""
    text = json.dumps(entry(report), indent=2, allow_nan=False, ensure_ascii=False)
    if find_spec("yaml") is None:
        return HEADER + WHOLE_POWER.sub(r"\1.0\2", text) + "\n"
    import yaml

    return HEADER + str(yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True, width=100))
