"""The OpenAPI document: request bodies from the library's own tables, answers by their schemas, problems by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from accounting.kernels import KERNELS, MOST_DIMENSIONS, MOST_REPETITIONS
from accounting.request import (
    ACCOUNTANTS,
    BITSUM_CHOICES,
    DESCRIPTIONS,
    LABELS,
    LARGEST_DELTA,
    LARGEST_EPSILON,
    MOST_USERS,
    PlanRequest,
)
from accounting.solving import MEASURES, QUESTIONS
from privkde.service import problems
from privkde.service.examples import EXAMPLES
from privkde.service.problems import MEDIA_TYPE, Kind

Schema = dict[str, Any]

_CHOICES = {"kernel": KERNELS, "bitsum": BITSUM_CHOICES, "accountant": ACCOUNTANTS, "labels": LABELS}
_RANGES = {
    "users": (2, MOST_USERS), "dim": (1, MOST_DIMENSIONS), "repetitions": (1, MOST_REPETITIONS),
    "delta": (0.0, LARGEST_DELTA), "min_users": (2, MOST_USERS),
}  # fmt: skip
_TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
_EVERYWHERE = (
    problems.MALFORMED,
    problems.TIMEOUT,
    problems.TOO_LARGE,
    problems.MEDIA,
    problems.MISDIRECTED,
    problems.INTERNAL,
)
_WORK = (problems.INVALID, problems.BUSY, problems.TOO_SLOW)
_KEPT = (problems.NOT_FOUND, problems.UNAVAILABLE, problems.INVALID)


def record(
    required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, *, closed: bool = False
) -> Schema:
    """An object with these members."""
    schema: Schema = {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}
    return schema | ({"additionalProperties": False} if closed else {})


def listed(items: Schema) -> Schema:
    """An array."""
    return {"type": "array", "items": items}


def nullable(schema: Schema) -> Schema:
    """A value that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def named(name: str) -> Schema:
    """A schema of the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def tagged(schema: str) -> Schema:
    """The member that names a document's schema."""
    return {"type": "string", "const": schema}


NUMBER, TEXT, WHOLE, TRUTH = ({"type": name} for name in ("number", "string", "integer", "boolean"))
NUMBERS = {"type": "object", "additionalProperties": NUMBER}
POINTS = listed({"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2})


def request_fields() -> dict[str, Schema]:
    """The names of a request, from `PlanRequest` itself."""
    fields = {}
    for field in dataclasses.fields(PlanRequest):
        kind, _, optional = str(field.type).partition(" | ")
        schema: Schema = {"type": _TYPES[kind]}
        if field.name in _CHOICES:
            schema["enum"] = list(_CHOICES[field.name])
        if field.name in ("epsilon", "label_epsilon"):
            schema |= {"exclusiveMinimum": 0.0, "maximum": LARGEST_EPSILON}
        if field.name in _RANGES:
            schema |= dict(zip(("minimum", "maximum"), _RANGES[field.name], strict=True))
        schema = nullable(schema) if optional else schema
        if field.default is not dataclasses.MISSING:
            schema = schema | {"default": field.default}
        fields[field.name] = schema | {"description": DESCRIPTIONS[field.name]}
    return fields


def components() -> dict[str, Schema]:
    """Every schema that routes refer to."""
    fields = request_fields()
    needed = {name: fields[name] for name in ("users", "dim", "epsilon", "delta")}
    others = {name: schema for name, schema in fields.items() if name not in needed}
    ladder = record({name: nullable(NUMBER) for name in ("basic", "advanced", "pld", "epsilon")})
    return {
        "PlanRequest": record(needed, others, closed=True),
        "SolveRequest": record(
            {
                "unknown": {"type": "string", "enum": list(QUESTIONS)},
                **{name: fields[name] for name in ("dim", "delta")},
            },
            {
                **{n: s for n, s in fields.items() if n not in ("dim", "delta", "allow_useless")},
                "target_error": nullable(NUMBER),
                "max_messages": nullable(NUMBER),
                "measure": {"type": "string", "enum": list(MEASURES)},
            },
            closed=True,
        ),
        "PlanReference": record({"plan": named("Plan")}, closed=True),
        "Release": record(
            {"name": TEXT},
            {"plan": named("Plan"), "guarantee": named("GuaranteeRequest"), "times": WHOLE, "view": TEXT},
            closed=True,
        ),
        "GuaranteeRequest": record(
            {"epsilon": NUMBER}, {"delta": NUMBER, "adjacency": TEXT, "view": TEXT}, closed=True
        ),
        "ComposeRequest": record(
            {"releases": listed(named("Release")), "delta": NUMBER},
            {"charged": listed(named("Release")), "epsilon": nullable(NUMBER), "composition": TEXT},
            closed=True,
        ),
        "BudgetRequest": record(
            {"name": TEXT, "epsilon": NUMBER, "delta": NUMBER}, {"view": TEXT, "composition": TEXT}, closed=True
        ),
        "Guarantee": record({"epsilon": NUMBER, "delta": NUMBER, "adjacency": TEXT, "view": TEXT}),
        "Contract": record(
            {
                "component": TEXT,
                "guarantees": listed(named("Guarantee")),
                "evidence": record({"kind": TEXT, "method": TEXT, "source": TEXT}),
                "checked": listed(TEXT),
                "assumed": listed(TEXT),
                "parameters": {"type": "object"},
                "parts": listed(named("Contract")),
            }
        ),
        "Plan": record(
            {
                "schema": tagged("privkde.plan/1"),
                "request": {"type": "object"},
                "accountant": TEXT,
                "bitsum": TEXT,
                "guarantees": listed(named("Guarantee")),
                "instance": record({"epsilon_0": NUMBER, "delta_0": NUMBER, "parameters": NUMBERS}),
                "composition": record(
                    {
                        "instances_per_user": WHOLE,
                        "ladder": {"type": "object", "additionalProperties": nullable(NUMBER)},
                    }
                ),
                "error": record(
                    {
                        "bitsum_rmse": NUMBER,
                        "sup_rmse_bound": nullable(NUMBER),
                        "predicted_rmse": NUMBER,
                        "parts": NUMBERS,
                    }
                ),
                "communication": record({"messages_per_user": NUMBER, "bits_per_user": NUMBER}),
                "baselines": listed(
                    record(
                        {"name": TEXT, "bitsum_rmse": NUMBER, "predicted_rmse": NUMBER, "contract": named("Contract")}
                    )
                ),
                "contracts": listed(named("Contract")),
                "reasons": listed(TEXT),
            }
        ),
        "Outcome": record(
            {
                "name": TEXT,
                "request": {"type": "object"},
                "bitsum": nullable(TEXT),
                "parameters": nullable(NUMBERS),
                "bound": NUMBER,
                "parts": nullable(NUMBERS),
                "refusal": nullable(TEXT),
                **{n: nullable(NUMBER) for n in ("bitsum_rmse", "noise", "predicted_rmse", "messages_per_user")},
            }
        ),
        "Comparison": record(
            {
                "schema": tagged("privkde.comparison/1"),
                **{n: listed(named("Outcome")) for n in ("rungs", "bitsums", "labels")},
            }
        ),
        "Profile": record(
            {
                "schema": tagged("privkde.profile/1"),
                "curves": {"type": "object", "additionalProperties": POINTS},
                "promised": POINTS,
                "risk": listed(record({"of": TEXT, "false_positive_rate": NUMBER, "true_positive_rate": NUMBER})),
            }
        ),
        "Composition": record(
            {
                "schema": tagged("privkde.composition/1"),
                "composition": TEXT,
                "delta": NUMBER,
                "spent_before": ladder,
                "spent_after": ladder,
                "requested": nullable(NUMBER),
            },
            {"epsilon": NUMBER, "remaining": NUMBER},
        ),
        "Budget": record(
            {
                "schema": tagged("privkde.budget/1"),
                "name": TEXT,
                "epsilon": NUMBER,
                "delta": NUMBER,
                "composition": TEXT,
            }
        ),
        "Budgets": record({"schema": tagged("privkde.budgets/1"), "budgets": listed(named("Budget"))}),
        "Standing": record({"budget": named("Budget"), "spent": NUMBER, "remaining": NUMBER, "n_charges": WHOLE}),
        "Charge": record(
            {"schema": tagged("privkde.charge/1"), "key": TEXT, "name": TEXT, "spent_after": nullable(NUMBER)}
        ),
        "Charges": record({"schema": tagged("privkde.charges/1"), "charges": listed(named("Charge"))}),
        "Quote": record(
            {
                "fits": TRUTH,
                "ladder": ladder,
                **{name: nullable(NUMBER) for name in ("requested", "remaining", "difference", "spent_after")},
            }
        ),
        "Kernels": record(
            {
                "schema": tagged("privkde.kernels/1"),
                "kernels": listed(
                    record(
                        {
                            "name": TEXT,
                            "description": TEXT,
                            **{f"takes_{name}": TRUTH for name in ("repetitions", "bias", "bound")},
                        }
                    )
                ),
            }
        ),
        "Bitsums": record(
            {
                "schema": tagged("privkde.bitsums/1"),
                "bitsums": listed(record({"name": TEXT, "description": TEXT})),
                "accountants": listed(TEXT),
                "labels": listed(TEXT),
            }
        ),
        "Health": record({"status": TEXT}),
        "Version": record({"name": TEXT, "version": TEXT}),
        "Problem": record(
            {"type": TEXT, "title": TEXT, "status": WHOLE, "detail": TEXT},
            {n: nullable(NUMBER) for n in ("requested", "remaining", "difference")},
        ),
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """What the document says of one route."""

    body: str | None
    answer: str
    problems: tuple[Kind, ...]


_PLANNED = (*_WORK, problems.INFEASIBLE)
ROUTES: dict[tuple[str, str], Route] = {
    ("/v1/plan", "post"): Route("PlanRequest", "Plan", _PLANNED),
    ("/v1/plan/compare", "post"): Route("PlanRequest", "Comparison", _PLANNED),
    ("/v1/plan/solve", "post"): Route("SolveRequest", "Plan", _PLANNED),
    ("/v1/plan/estimate", "post"): Route("PlanRequest", "Outcome", _PLANNED),
    ("/v1/plan/profile", "post"): Route("PlanReference", "Profile", _PLANNED),
    ("/v1/compose", "post"): Route("ComposeRequest", "Composition", (*_PLANNED, problems.UNLIKE, problems.EXCEEDED)),
    ("/v1/kernels", "get"): Route(None, "Kernels", ()),
    ("/v1/bitsums", "get"): Route(None, "Bitsums", ()),
    ("/healthz", "get"): Route(None, "Health", ()),
    ("/version", "get"): Route(None, "Version", ()),
    ("/v1/budgets", "get"): Route(None, "Budgets", _KEPT),
    ("/v1/budgets", "post"): Route("BudgetRequest", "Budget", (*_KEPT, problems.UNAUTHORIZED, problems.EXISTS)),
    ("/v1/budgets/{name}", "get"): Route(None, "Standing", (*_KEPT, problems.UNKNOWN_BUDGET)),
    ("/v1/budgets/{name}/charges", "get"): Route(None, "Charges", (*_KEPT, problems.UNKNOWN_BUDGET)),
    ("/v1/budgets/{name}/quote", "post"): Route("Release", "Quote", (*_KEPT, *_WORK, problems.UNKNOWN_BUDGET)),
    ("/v1/budgets/{name}/charges", "post"): Route(
        "Release",
        "Charge",
        (*_KEPT, *_WORK, problems.UNAUTHORIZED, problems.UNKNOWN_BUDGET, problems.EXCEEDED, problems.KEY_REUSED),
    ),
}


def _answers(kinds: Iterable[Kind]) -> dict[str, Any]:
    """Problems by status; kinds that share one are listed together."""
    by_status: dict[int, list[str]] = {}
    for kind in dict.fromkeys(kinds):
        by_status.setdefault(kind.status, []).append(f"{kind.title} ({kind.uri})")
    schema = {"content": {MEDIA_TYPE: {"schema": named("Problem")}}}
    return {str(status): {"description": "; ".join(told), **schema} for status, told in sorted(by_status.items())}


def documented(app: FastAPI) -> None:
    """Let the app answer /openapi.json with this document."""

    def build() -> dict[str, Any]:
        if app.openapi_schema:
            return app.openapi_schema
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        document["components"] = {"schemas": components()}
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                _describe(operation, ROUTES[path, method], EXAMPLES.get((path, method)))
        app.openapi_schema = document
        return document

    app.openapi = build  # type: ignore[method-assign]


def _describe(operation: dict[str, Any], route: Route, example: Any) -> None:
    success = next(status for status in operation["responses"] if status.startswith("2"))
    content = {"application/json": {"schema": named(route.answer)}}
    operation["responses"] = {
        success: {"description": "Success", "content": content},
        **_answers((*route.problems, *_EVERYWHERE)),
    }
    if route.body is not None:
        body: Schema = {"schema": named(route.body)}
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": body if example is None else body | {"example": example}},
        }
