"""One example for each request body of the OpenAPI document; tests send them all."""

from __future__ import annotations

from typing import Any

PLAN = {"users": 30_000, "dim": 64, "epsilon": 2.0, "delta": 1e-6, "accountant": "pld"}
SMALL: dict[str, Any] = {"users": 2_000, "dim": 8, "epsilon": 2.0, "delta": 1e-6, "accountant": "pld"}
RELEASE = {"name": "weekly counts", "guarantee": {"epsilon": 0.5, "delta": 1e-7}}

EXAMPLES: dict[tuple[str, str], Any] = {
    ("/v1/plan", "post"): PLAN,
    ("/v1/plan/compare", "post"): SMALL,
    ("/v1/plan/estimate", "post"): PLAN,
    ("/v1/plan/solve", "post"): {"unknown": "epsilon", "target_error": 0.3, "users": 30_000, "dim": 16, "delta": 1e-6},
    ("/v1/compose", "post"): {"releases": [{**RELEASE, "times": 10}], "delta": 1e-5, "epsilon": 5.0},
    ("/v1/budgets", "post"): {"name": "telemetry", "epsilon": 4.0, "delta": 1e-6},
    ("/v1/budgets/{name}/quote", "post"): RELEASE,
    ("/v1/budgets/{name}/charges", "post"): RELEASE,
}
