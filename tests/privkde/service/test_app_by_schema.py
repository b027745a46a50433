"""Every route of the OpenAPI document, fed with what its schemas allow and with what they do not (Schemathesis)."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from privkde.service import Settings, create_app

CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
HONEST_REFUSALS = (503, 504)
"""Busy and too slow: documented answers, not failures."""
PATIENCE = 120.0
"""Seconds: a worker that replaces one that was stopped may start slowly on a busy machine."""


def loaded(document: dict[str, Any]) -> BaseSchema:
    schema = schemathesis.openapi.from_dict(document)
    schema.config.phases.coverage.enabled = False  # thousands of cases, most of them the same refusal
    return schema


def with_short_plans(document: dict[str, Any]) -> dict[str, Any]:
    """Plans that are sent have no contracts, whose trees take seconds to make up; answers keep their schemas."""
    short = copy.deepcopy(document)
    schemas = short["components"]["schemas"]
    schemas["ShortPlan"] = copy.deepcopy(schemas["Plan"])
    schemas["ShortPlan"]["properties"]["contracts"]["maxItems"] = 0
    sent = [one["properties"]["plan"] for one in schemas.values() if "plan" in one.get("properties", {})]
    assert len(sent) >= 2
    for plan in sent:
        plan["$ref"] = "#/components/schemas/ShortPlan"
    return short


document = create_app().openapi()
schema, short_schema = loaded(document), loaded(with_short_plans(document))
short_schema.config.phases.examples.enabled = False  # plans that take seconds; test_app.py sends quicker ones


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    ledger = tmp_path_factory.mktemp("fuzz") / "ledger.sqlite"
    app = create_app(Settings(workers=1, ledger=str(ledger), time_limit=1.0))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def require_documented(case: Any, address: str) -> None:
    response = case.call(base_url=address, timeout=PATIENCE)
    failures = [] if response.status_code in HONEST_REFUSALS else [not_a_server_error]
    case.validate_response(response, checks=CHECKS + failures)


def examples(number: int) -> settings:
    """As many requests for each operation, the same on every run."""
    return settings(max_examples=number, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@short_schema.parametrize()
@examples(2)
def test_no_failure_and_nothing_undocumented(case: Any, address: str) -> None:
    require_documented(case, address)


@pytest.mark.slow
@schema.parametrize()
@examples(20)
def test_no_failure_and_nothing_undocumented_in_more_examples(case: Any, address: str) -> None:
    require_documented(case, address)
