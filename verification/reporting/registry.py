"""`registry.yaml`: a draft entry for the public registry of deployments of differential privacy.

Only what the plan and the audit know is filled in; what only the deploying organization can tell is left empty (null).
"""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from typing import Any

import privkde
from accounting import Plan, View
from verification.reporting.document import AuditReport
from verification.reporting.wording import ADJACENCIES, MECHANISMS, VIEWS, ordered, promised

HEADER = (
    "# Draft entry for the public registry of deployments of differential privacy, written by `privkde audit`.\n"
    "# Empty values (null) are for the organization that runs the collection.\n"
)

WHOLE_POWER = re.compile(r'^(\s*(?:"[^"]*": )?-?\d+)(e[-+]\d+,?)$', re.MULTILINE)
"""1e-06 is a number in JSON and a text in YAML 1.1, which wants 1.0e-06."""


def entry(report: AuditReport) -> dict[str, Any]:
    """The entry as plain values, in the registry's sections."""
    return {
        "status": "Draft",
        "basic": _basic(report),
        "dp_variant": _variant(report.plan),
        "privacy_loss": _loss(report.plan),
        "deployment_model": _deployment(report.plan),
        "accounting": _accounting(report.plan),
        "implementation": _implementation(report),
    }


def dumps(report: AuditReport) -> str:
    """The entry as YAML; without PyYAML (extra `report`) in the part of YAML that is JSON."""
    document = json.loads(json.dumps(entry(report), allow_nan=False))  # plain values only: no enumerations, no tuples
    if find_spec("yaml") is None:
        text = json.dumps(document, indent=2, ensure_ascii=False)
        return HEADER + WHOLE_POWER.sub(r"\1.0\2", text) + "\n"
    import yaml

    text = str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100))
    return HEADER + text


def _basic(report: AuditReport) -> dict[str, Any]:
    request = report.plan.request
    kind = "Machine learning model" if request.classes is not None else "Summary statistics"
    return {
        "name": None,
        "data_curators": None,
        "intended_use": None,
        "data_product_type": kind,
        "data_product_region": None,
        "data_product_sector": None,
        "publication_date": None,
        "description": f"Kernel density ({request.kernel}) of vectors of dimension {request.dim}"
        + (f" for each of {request.classes} classes" if request.classes is not None else "")
        + f" from {request.users} people, collected through a shuffler.",
    }


def _variant(plan: Plan) -> dict[str, Any]:
    main = promised(plan, View.COMMUNICATION)
    return {
        "name": "Pure DP" if main.delta == 0.0 else "Approximate DP",
        "input_metric": f"{main.adjacency}: {ADJACENCIES[main.adjacency]}",
        "bound_on_input_distance": 1,
        "output_measure": "max divergence" if main.delta == 0.0 else "hockey-stick divergence (fixed ε and δ)",
        "bound_on_output_distance": {"epsilon": main.epsilon, "delta": main.delta},
        "data_domain": "vectors of the kernel's domain; a client refuses or projects any other"
        + ("" if plan.request.classes is None else "; any of the public classes"),
        "unprotected_quantities": ["that a person takes part", "the number of people", "the set of classes"],
    }


def _loss(plan: Plan) -> dict[str, Any]:
    main = promised(plan, View.COMMUNICATION)
    return {
        "privacy_unit": "User-level",
        "privacy_unit_description": "one person who takes part once with one record",
        "privacy_parameters": {"epsilon": main.epsilon, "delta": main.delta},
        "all_guarantees": [
            one.to_json() | {"against": VIEWS[one.view], "if": ADJACENCIES[one.adjacency]} for one in ordered(plan)
        ],
    }


def _deployment(plan: Plan) -> dict[str, Any]:
    local = promised(plan, View.LOCAL)
    return {
        "model_name": "Shuffle",
        "model_name_description": "each person randomizes on its own device; a shuffler mixes; an analyzer publishes",
        "actors": ["people's devices", "shuffler", "analyzer", "public"],
        "trusted": "the shuffler not to collude with the analyzer, and enough people to follow the protocol",
        "if_the_shuffler_colludes": local.to_json(),
        "smallest_number_of_people": plan.request.counted_users * plan.request.n_protocols,
        "release_type": "One release",
        "data_source_type": "Static",
        "access_type": "Non-interactive",
    }


def _accounting(plan: Plan) -> dict[str, Any]:
    return {
        "composition": f"{plan.instances_per_user} noisy bits per person, composed by {plan.accountant!r}",
        "epsilon_by_method": dict(plan.ladder),
        "post_processing": "densities, classes and names of classes are computed from the published sums",
    }


def _implementation(report: AuditReport) -> dict[str, Any]:
    plan = report.plan
    return {
        "library": f"privkde {privkde.__version__}",
        "mechanisms": MECHANISMS.get(plan.bitsum, plan.bitsum),
        "parameters": dict(plan.parameters),
        "pre_processing_eda_hyperparameter_tuning": None,
        "justification": list(plan.reasons),
        "plan_sha256": report.plan_sha256,
        "audit": {
            "verdict": report.verdict,
            "effort": report.effort.name,
            "checks": len(report.results),
            "false_alarm_rate": report.false_alarm_rate,
            "started": report.started,
            "seed": report.seed,
        },
    }
