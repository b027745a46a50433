"""The planner over HTTP: the library's own answers, problems, limits, budgets."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from accounting import Adjacency, Guarantee, PlanRequest, Release, View, plan_budget, solve
from accounting.checking import disproved, read_proof
from accounting.fields import fields_of
from accounting.mechanisms import BITSUMS
from accounting.releases.profile_points import Profile
from accounting.releases.release import ROUNDING
from accounting.solving import SolveRequest
from privkde.service import Settings, create_app
from privkde.service.planner_page import FILES
from privkde.service.planning_routes import SMALL
from privkde.service.problems import KINDS, MEDIA_TYPE, TOO_SLOW, Problem
from privkde.service.protection import SECURITY_HEADERS
from privkde.service.requests import RELEASE, BudgetRequest, ComposeRequest, GuaranteeRequest, ReleaseRequest
from privkde.service.workers import Answer, as_text, content_key

HOST = "http://127.0.0.1"
TOKEN = "a-token-that-nobody-guesses-0123"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
POISSON = SMALL | {"bitsum": "poisson", "repetitions": 8}
QUICK = POISSON | {"accountant": "basic"}
RR = pytest.param(SMALL, marks=pytest.mark.slow, id="rr")
SLOW = {"users": 30_000, "dim": 384, "epsilon": 1.0, "delta": 1e-6, "bitsum": "auto"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    settings = Settings(workers=1, ledger=str(folder / "ledger.sqlite"), token=TOKEN, time_limit=120.0)
    with TestClient(create_app(settings), base_url=HOST) as found:
        yield found


def bare(**settings: Any) -> TestClient:
    return TestClient(create_app(Settings(workers=1, **settings)), base_url=HOST, raise_server_exceptions=False)


def problem(response: Response, name: str) -> dict[str, Any]:
    """The problem document of an answer; its kind must be the one that is named."""
    kind = next(one for one in KINDS if one.name == name)
    assert response.status_code == kind.status, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    document: dict[str, Any] = response.json()
    assert (document["type"], document["status"], document["title"]) == (kind.uri, kind.status, kind.title)
    jsonschema.validate(document, schema("Problem"))
    return document


DOCUMENT: dict[str, Any] = create_app().openapi()
OPERATIONS = [(path, method) for path, operations in DOCUMENT["paths"].items() for method in operations]


def schema(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}


def closed(part: Any) -> Any:
    """The same schemas, but an answer with a member that they do not declare is invalid."""
    if isinstance(part, list):
        return [closed(item) for item in part]
    if not isinstance(part, dict):
        return part
    same = {name: closed(value) for name, value in part.items()}
    return {"additionalProperties": False, **same} if isinstance(part.get("properties"), dict) else same


CLOSED = closed(DOCUMENT)


def require_documented(path: str, method: str, response: Response) -> None:
    """The answer has exactly the shape that the document declares for it."""
    content = CLOSED["paths"][path][method]["responses"][str(response.status_code)]["content"]
    declared = content[response.headers["content-type"]]["schema"]
    jsonschema.validate(response.json(), {**declared, "components": CLOSED["components"]})


def example(path: str, method: str) -> Any:
    """The example of a body, or a body where the document has none."""
    body = DOCUMENT["paths"][path][method].get("requestBody")
    if body is None:
        return None
    examples = body["content"]["application/json"].get("examples", {})
    return examples["example"]["value"] if examples else {"plan": json.loads(plan_budget(**POISSON).dumps())}


# --- the same answers as the library's --------------------------------------------------------------


def test_schedules_and_who_is_there_are_declared_and_in_the_form(client: TestClient) -> None:
    declared = DOCUMENT["components"]["schemas"]["PlanRequest"]["properties"]
    form = client.get("/").text
    for name, default in (("releases", 1), ("dropout", 0.0), ("colluders", 0.0)):
        assert declared[name]["default"] == default
        assert declared[name]["description"] == fields_of(PlanRequest)[name].rule.description
    assert 'name="releases"' in form
    assert 'name="colluders"' in form
    assert 'name="share"' in form  # of those who take part: 100 % less the dropout


@pytest.mark.parametrize(
    "changes",
    [
        {"users": 300},
        {"bitsum": "poisson", "kernel": "laplacian", "dim": 2},
        pytest.param({"kernel": "inner-product", "repetitions": None}, marks=pytest.mark.slow),
        {"bitsum": "poisson", "accountant": "basic", "classes": 2, "epsilon": 4.0, "label_epsilon": 2.0},
        {"repetitions": None, "accountant": "geometric", "classes": 2, "max_messages": 100},
        {"bitsum": "poisson", "min_users": 1500},
        {"bitsum": "poisson", "releases": 4, "dropout": 0.2, "colluders": 25},
        *(
            pytest.param({"repetitions": None, **more}, marks=pytest.mark.slow)
            for more in (
                {},
                {"bitsum": "poisson"},
                {"min_users": 1500},
                {"releases": 4, "dropout": 0.2, "colluders": 25},
            )
        ),
    ],
)
def test_a_plan_is_what_plan_budget_says(client: TestClient, changes: dict[str, Any]) -> None:
    asked: dict[str, Any] = SMALL | {"repetitions": 8} | changes
    answer = client.post("/v1/plan", json=asked)
    assert answer.json() == json.loads(plan_budget(**asked).dumps())
    jsonschema.validate(answer.json(), schema("Plan"))


def test_null_means_not_given(client: TestClient) -> None:
    assert client.post("/v1/plan", json=QUICK | {"classes": None}).json() == client.post("/v1/plan", json=QUICK).json()


@pytest.mark.parametrize(
    "more", [{"bitsum": "poisson", "repetitions": 16}, pytest.param({}, marks=pytest.mark.slow)], ids=["poisson", "rr"]
)
def test_solving(client: TestClient, more: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"users": 30_000, "dim": 8, "delta": 1e-6, "accountant": "pld", "target_error": 0.4, **more}
    answer = client.post("/v1/plan/solve", json={"unknown": "epsilon", **asked}).json()
    assert answer == json.loads(solve("epsilon", **asked).dumps())


@pytest.mark.parametrize("asked", [POISSON, RR])
def test_profile_and_risk(client: TestClient, asked: dict[str, Any]) -> None:
    plan = client.post("/v1/plan", json=asked).json()
    found = client.post("/v1/plan/profile", json={"plan": plan}).json()
    jsonschema.validate(found, schema("Profile"))
    assert Profile.from_json(found["promised"]).delta(2.0) <= 1e-6 * ROUNDING
    rates = {one["false_positive_rate"]: one["true_positive_rate"] for one in found["risk"]}
    assert {one["of"] for one in found["risk"]} == {"record"}
    assert 0.01 < rates[0.01] < rates[0.1] < 1.0


@pytest.mark.parametrize("asked", [POISSON, RR])
def test_the_risk_of_a_record_is_more_than_that_of_its_vector_or_its_label(
    client: TestClient, asked: dict[str, Any]
) -> None:
    plan = client.post("/v1/plan", json=asked | {"classes": 2, "epsilon": 4.0, "label_epsilon": 2.0}).json()
    found = client.post("/v1/plan/profile", json={"plan": plan}).json()
    at = {one["of"]: one["true_positive_rate"] for one in found["risk"] if one["false_positive_rate"] == 0.01}
    assert at["label"] == pytest.approx(0.01 * math.exp(2.0), rel=1e-6)
    assert max(at["vector"], at["label"]) < at["record"] <= 0.01 * math.exp(4.0) + 1e-6


@pytest.mark.parametrize("asked", [QUICK, RR])
def test_an_altered_plan_has_no_profile(client: TestClient, asked: dict[str, Any]) -> None:
    plan = client.post("/v1/plan", json=asked).json()
    plan["request"]["epsilon"] = 0.05
    assert "altered" in problem(client.post("/v1/plan/profile", json={"plan": plan}), "invalid-input")["detail"]


def test_a_certificate_is_what_the_checker_says(client: TestClient) -> None:
    plan = client.post("/v1/plan", json=QUICK).json()
    answer = client.post("/v1/certify", json={"plan": plan})
    require_documented("/v1/certify", "post", answer)
    made = plan_budget(**QUICK)
    told, expected = answer.json(), made.certified().to_json()
    assert told | {"made": None} == json.loads(json.dumps(expected)) | {"made": None}
    assert told["proved"]["holds"]
    assert told["plan_sha256"] == made.sha256()
    assert list(disproved(made, read_proof(told))) == []


def test_a_plan_with_too_little_noise_has_a_certificate_that_proves_nothing(client: TestClient) -> None:
    plan = client.post("/v1/plan", json=QUICK).json()
    plan["instance"]["parameters"]["total_mean"] *= 0.01
    told = client.post("/v1/certify", json={"plan": plan})
    require_documented("/v1/certify", "post", told)
    assert not told.json()["proved"]["holds"]


def test_what_is_no_plan_has_no_certificate(client: TestClient) -> None:
    plan = plan_budget(**QUICK).to_json()
    large = plan | {"request": plan["request"] | {"kernel": "laplacian", "repetitions": 1_000_000}}
    for body, word in (({}, "plan is missing"), ({"plan": {}}, "schema"), ({"plan": large}, "command line")):
        assert word in problem(client.post("/v1/certify", json=body), "invalid-input")["detail"]


def test_nobody_waits_for_proofs_and_they_are_stopped() -> None:
    with bare(time_limit=0.2) as client:
        app: Any = client.app
        assert app.state.provers is not app.state.workers
        plan = {"plan": plan_budget(**SMALL | {"accountant": "pld"}).to_json()}
        assert "0.2 s" in problem(client.post("/v1/certify", json=plan), "too-slow")["detail"]
        assert not app.state.provers._at_work
        assert client.get("/healthz").json() == {"status": "ok"}


def answered_as_documented(client: TestClient, path: str, method: str, body: Any) -> None:
    headers = BEARER | {"Idempotency-Key": "example"}
    budget = example("/v1/budgets", "post") | {"name": "example"}
    client.post("/v1/budgets", json=budget, headers=headers)
    client.post("/v1/budgets/example/charges", json=RELEASE, headers=headers)
    answer = client.request(method, path.format(name="example"), json=body, headers=headers)
    assert answer.status_code in (200, 201), answer.text
    require_documented(path, method, answer)


PLANNED = ["/v1/plan", "/v1/plan/compare", "/v1/plan/estimate", "/v1/plan/solve"]
"""Their examples are plans that take seconds."""


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_example_is_answered_as_documented(client: TestClient, path: str, method: str) -> None:
    """Examples of plans with a protocol, an accountant and repetitions that are quick."""
    body = example(path, method)
    if path in PLANNED:
        (SolveRequest if path == "/v1/plan/solve" else PlanRequest)(**body)  # the example itself can be read
        body |= {"bitsum": "poisson", "accountant": "pld", "repetitions": 4}
        body |= {"target_error": 0.6} if path == "/v1/plan/solve" else {}
    answered_as_documented(client, path, method, body)


@pytest.mark.slow
@pytest.mark.parametrize("path", PLANNED)
def test_examples_of_plans_are_answered_as_documented(client: TestClient, path: str) -> None:
    answered_as_documented(client, path, "post", example(path, "post"))


def test_the_document_holds_what_the_library_declares() -> None:
    """Names, ranges, choices, defaults and descriptions of a request; no other names are taken."""
    for record in (PlanRequest, SolveRequest, ComposeRequest, ReleaseRequest, GuaranteeRequest, BudgetRequest):
        described = DOCUMENT["components"]["schemas"][record.__name__]
        assert described["additionalProperties"] is False
        fields = fields_of(record)
        assert list(described["properties"]) == list(fields)
        assert described["required"] == [name for name, field in fields.items() if field.required]
        for name, field in fields.items():
            member = described["properties"][name]
            assert field.rule.json_schema().items() <= member.items()
            assert field.required or field.default == () or member.get("default") == field.default


def test_each_operation_says_what_may_go_wrong() -> None:
    for path, method in OPERATIONS:
        answers = DOCUMENT["paths"][path][method]["responses"]
        problems = {status: answer for status, answer in answers.items() if not status.startswith("2")}
        assert {"400", "408", "413", "415", "421", "429", "500"} <= set(problems)
        for answer in problems.values():
            assert answer["content"] == {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}


@pytest.mark.parametrize("path", ["/v1/kernels", "/v1/bitsums", "/healthz", "/version", "/openapi.json", "/"])
def test_facts(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 200


@pytest.mark.parametrize("path", FILES)
def test_pages_name_nothing_elsewhere(client: TestClient, path: str) -> None:
    if path.startswith("docs/"):
        pytest.importorskip("fastapi_swagger", reason="the extra 'api' is not installed")
    answer = client.get(f"/{path}")
    assert answer.status_code == 200
    if answer.headers["content-type"].startswith("text/html"):
        links = re.findall(r'(?:src|href)="([^"]*)"', answer.text)
        assert links
        assert not [link for link in links if "//" in link or link.startswith("/")]  # relative: works below a path


# --- problems ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"users": 3}, "dim is missing"),
        (SMALL | {"userz": 1}, "Did you mean 'users'"),
        (SMALL | {"users": "many"}, "users='many'"),
        (SMALL | {"users": True}, "users=True"),
        (SMALL | {"dim": "8"}, "dim='8'"),
        (SMALL | {"kernel": "gausian"}, "Did you mean 'gaussian'"),
        (SMALL | {"classes": 2, "label_epsilon": "x"}, "label_epsilon='x'"),
        (SMALL | {"allow_useless": "yes"}, "allow_useless"),
        (SMALL | {"dim": 1_000_000, "kernel": "laplacian"}, "command line"),
    ],
)
def test_bad_values(client: TestClient, body: dict[str, Any], word: str) -> None:
    assert word in problem(client.post("/v1/plan", json=body), "invalid-input")["detail"]


@pytest.mark.parametrize("accountant", ["paper", pytest.param("pld", marks=pytest.mark.slow)])
def test_what_cannot_be_promised(client: TestClient, accountant: str) -> None:
    answer = client.post("/v1/plan", json=SMALL | {"users": 6, "epsilon": 0.1, "accountant": accountant})
    assert "users" in problem(answer, "infeasible")["detail"]


HUGE = (b'{"users": ' + b"9" * 5_000 + b"}", b'{"epsilon": 1e999}')
DEEP = {depth: b'{"users": ' + b"[" * depth + b"]" * depth + b"}" for depth in (30, 100, 480, 500, 900, 3_000)}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"\xff", b'{"users": NaN}', b'{"a": 1, "a": 2}', b'{"a": "\\ud800"}', *HUGE, *DEEP.values()],
    ids=lambda body: str(body[:24]),
)
def test_what_is_not_a_json_object(client: TestClient, body: bytes) -> None:
    problem(client.post("/v1/plan", content=body, headers={"Content-Type": "application/json"}), "malformed")


def test_limits_of_every_request(client: TestClient) -> None:
    problem(client.post("/v1/plan", content=b"{}", headers={"Content-Type": "text/plain"}), "unsupported-media-type")
    problem(client.post("/v1/plan", json={"kernel": "x" * 2**20}), "too-large")
    problem(client.post("/v1/plan", json=SMALL, headers={"Host": "evil.example"}), "misdirected")
    problem(client.get("/nowhere"), "not-found")
    problem(client.get("/v1/plan"), "method-not-allowed")
    problem(client.delete("/v1/budgets"), "method-not-allowed")


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "[::1]"])
def test_names_of_this_machine(client: TestClient, host: str) -> None:
    assert client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "[::1", "", "localhost@evil.example"])
def test_other_names(client: TestClient, host: str) -> None:
    problem(client.get("/healthz", headers={"Host": host}), "misdirected")


def test_a_body_without_a_length_is_limited_too() -> None:
    with bare(largest_body=1024) as client:
        parts = (b" " * 600 for _ in range(3))
        problem(client.post("/v1/plan", content=parts, headers={"Content-Type": "application/json"}), "too-large")


def test_work_that_takes_too_long_is_stopped() -> None:
    with bare(time_limit=0.2) as client:
        assert "0.2 s" in problem(client.post("/v1/plan", json=SLOW), "too-slow")["detail"]
        assert client.get("/healthz").status_code == 200


def test_too_much_at_once_is_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Future[Answer](), Future[Answer]()]  # of the job that warms a worker, and of the first request
    given = iter(answers)
    monkeypatch.setattr("pebble.ProcessPool.schedule", lambda *_, **__: next(given))
    with bare(queue=0) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, "/v1/plan", json=SMALL)
        while not client.app.state.workers._waiting:  # type: ignore[attr-defined]
            time.sleep(0.01)
        answer = client.post("/v1/plan", json=SMALL | {"users": 2_001})
        problem(answer, "busy")
        assert int(answer.headers["Retry-After"]) >= 1
        assert client.get("/healthz").status_code == 200
        answers[1].set_result((None, b"{}"))
        assert waiting.result().json() == {}


# --- what leaves ------------------------------------------------------------------------------------


def test_security_headers_on_every_answer(client: TestClient) -> None:
    for answer in (client.get("/"), client.get("/nowhere"), client.post("/v1/plan", json={})):
        given = {name: answer.headers.get(name) for name in SECURITY_HEADERS}
        assert given | {"Cache-Control": SECURITY_HEADERS["Cache-Control"]} == SECURITY_HEADERS
        assert given["Cache-Control"] in ("no-store", "no-cache")
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_logs_say_what_happened_and_not_what_was_asked(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="privkde.service"):
        client.post("/v1/plan?secret=1", json=QUICK | {"users": 2_345})
        client.get("/v1/budgets/confidential", headers=BEARER)
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "privkde.service"]
    assert [(one["route"], one["status"]) for one in lines] == [("/v1/plan", 200), ("/v1/budgets/{name}", 404)]
    assert "2345" not in caplog.text
    assert "secret" not in caplog.text
    assert "confidential" not in caplog.text


def test_the_same_question_is_computed_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = QUICK | {"users": 2_111}
    first = client.post("/v1/plan", json=asked)
    monkeypatch.setattr("pebble.ProcessPool.schedule", None)  # nothing can be computed any more
    again = client.post("/v1/plan", json=dict(reversed(asked.items())))
    assert again.content == first.content


def test_refusals_are_kept_too(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = SMALL | {"users": 7, "epsilon": 0.1, "accountant": "paper"}
    first = client.post("/v1/plan", json=asked)
    monkeypatch.setattr("pebble.ProcessPool.schedule", None)
    assert client.post("/v1/plan", json=asked).json() == first.json()


def test_a_cache_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: Future[Answer] = Future()
    computed.set_result((None, b"{}"))
    monkeypatch.setattr("pebble.ProcessPool.schedule", lambda *_, **__: computed)
    with bare(cache_bytes=2) as client:
        workers = client.app.state.workers  # type: ignore[attr-defined]
        for users in (2_001, 2_002):  # there is room for one of them
            assert client.post("/v1/plan", json=SMALL | {"users": users}).json() == {}
        assert list(workers._kept) == [content_key("plan", as_text(PlanRequest(**SMALL | {"users": 2_002})))]
        assert workers._kept_bytes == 2
    with bare(cache_bytes=0) as client:
        workers = client.app.state.workers  # type: ignore[attr-defined]
        client.post("/v1/plan", json=SMALL)
        assert not workers._kept
        assert workers._kept_bytes == 0


def test_processes_that_were_lost_are_replaced() -> None:
    with bare() as client:
        workers = client.app.state.workers  # type: ignore[attr-defined]
        workers.stop()
        assert client.get("/healthz").json() == {"status": "restarting"}
        assert client.post("/v1/plan", json=QUICK).status_code == 200
        assert client.get("/healthz").json() == {"status": "ok"}


def test_keys_tell_questions_apart() -> None:
    one, other = (as_text(PlanRequest(**SMALL | {"users": users})) for users in (2_002, 2_003))
    assert as_text({"a": 1, "b": 2}) == as_text({"b": 2, "a": 1})
    assert len({content_key("plan", one), content_key("plan", other), content_key("solve", one)}) == 3


# --- composition and budgets ------------------------------------------------------------------------


def test_composing_beyond_a_budget_says_by_how_much(client: TestClient) -> None:
    asked = {"releases": [{**RELEASE, "times": 3}], "charged": [RELEASE], "delta": 1e-6, "epsilon": 1.0}
    told = problem(client.post("/v1/compose", json=asked), "budget-exceeded")
    assert told["difference"] == pytest.approx(told["requested"] - told["remaining"])
    assert told["difference"] > 0.0
    fits = client.post("/v1/compose", json=asked | {"epsilon": 2.5}).json()
    assert fits["remaining"] == pytest.approx(2.5 - fits["spent_after"]["epsilon"])


@pytest.mark.parametrize("asked", [POISSON, RR])
def test_plans_compose_far_below_their_sum(client: TestClient, asked: dict[str, Any]) -> None:
    plan = client.post("/v1/plan", json=asked).json()
    found = client.post("/v1/compose", json={"releases": [{"name": "a", "plan": plan, "times": 10}], "delta": 1e-5})
    ladder = found.json()["spent_after"]
    assert ladder["pld"] < 0.5 * ladder["basic"]


@pytest.mark.parametrize(
    "release",
    [
        {},
        {"name": "a"},
        {"name": 1, "guarantee": {"epsilon": 1.0}},
        {"name": "a", "guarantee": {}},
        {"name": "a", "guarantee": {"epsilon": 1.0, "view": "x"}},
        {"name": "a", "plan": {}},
        {"name": "a", "guarantee": {"epsilon": 1.0}, "plan": {}},
        {"name": "a", "guarantee": {"epsilon": 1.0}, "release": {}},
        {"name": "a", "release": {}},
        {"name": "a", "guarantee": {"epsilon": 1.0}, "times": 0},
        {"name": "a", "guarantee": {"epsilon": 1.0}, "more": 0},
        {"name": "a", "guarantee": {"epsilon": 1.0}, "view": "model"},
        {"name": "a", "guarantee": {"epsilon": 300.0}},
        {"name": "a\u0000b", "guarantee": {"epsilon": 1.0}},
    ],
)
def test_bad_releases(client: TestClient, release: dict[str, Any]) -> None:
    problem(client.post("/v1/compose", json={"releases": [release], "delta": 1e-6}), "invalid-input")


def test_what_was_charged_beyond_delta(client: TestClient) -> None:
    before = [{"name": "a", "guarantee": {"epsilon": 1.0, "delta": 0.1}, "times": 2}]
    asked = {"releases": [RELEASE], "charged": before, "delta": 0.1, "epsilon": 5.0}
    assert "promises nothing" in problem(client.post("/v1/compose", json=asked), "invalid-input")["detail"]


def test_unlike_releases(client: TestClient) -> None:
    label = {"name": "b", "guarantee": {"epsilon": 1.0, "adjacency": "replace-one-label"}}
    problem(client.post("/v1/compose", json={"releases": [RELEASE, label], "delta": 1e-6}), "unlike-guarantees")


def test_a_budget_from_its_creation_to_its_end(client: TestClient) -> None:
    headers = BEARER
    budget = {"name": "year", "epsilon": 1.0, "delta": 1e-6}
    assert client.post("/v1/budgets", json=budget, headers=headers).status_code == 201
    problem(client.post("/v1/budgets", json=budget, headers=headers), "budget-exists")
    first = client.post("/v1/budgets/year/charges", json=RELEASE, headers=headers | {"Idempotency-Key": "1"})
    again = client.post("/v1/budgets/year/charges", json=RELEASE, headers=headers | {"Idempotency-Key": "1"})
    assert (first.status_code, again.json()) == (201, first.json())
    other = RELEASE | {"name": "other"}
    reused = client.post("/v1/budgets/year/charges", json=other, headers=headers | {"Idempotency-Key": "1"})
    problem(reused, "key-reused")
    large = {"name": "large", "guarantee": {"epsilon": 0.9}}
    quote = client.post("/v1/budgets/year/quote", json=large, headers=headers)
    refused = client.post("/v1/budgets/year/charges", json=large, headers=headers | {"Idempotency-Key": "2"})
    told = problem(refused, "budget-exceeded")
    assert quote.json()["requested"] == pytest.approx(told["requested"])
    standing = client.get("/v1/budgets/year", headers=headers).json()
    assert (standing["n_charges"], standing["spent"]) == (1, first.json()["spent_after"])
    assert [one["key"] for one in client.get("/v1/budgets/year/charges", headers=headers).json()["charges"]] == ["1"]


BUDGET_OPERATIONS = [(path, method) for path, method in OPERATIONS if path.startswith("/v1/budgets")]


@pytest.mark.parametrize(("path", "method"), BUDGET_OPERATIONS)
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}])
def test_everything_about_budgets_needs_the_token(
    client: TestClient, path: str, method: str, headers: dict[str, str]
) -> None:
    keyed = headers | {"Idempotency-Key": "1"}
    refused = client.request(method, path.format(name="x"), json=example(path, method), headers=keyed)
    problem(refused, "unauthorized")
    assert refused.headers["WWW-Authenticate"] == "Bearer"


def test_a_schedule_of_a_release_document_is_used_and_listed(client: TestClient) -> None:
    promise = Guarantee(epsilon=0.1, delta=0.0, adjacency=Adjacency.RECORD, view=View.COMMUNICATION)
    document = json.loads(Release.of_guarantee("elsewhere", promise).dumps())
    headers = BEARER
    client.post("/v1/budgets", json={"name": "weeks", "epsilon": 1.0, "delta": 1e-6}, headers=headers)
    year = {"name": "weeks", "release": document, "times": 2}
    charged = client.post("/v1/budgets/weeks/charges", json=year, headers=headers | {"Idempotency-Key": "y"})
    assert (charged.json()["name"], charged.json()["collections"]) == ("weeks", 2)
    for number in (1, 2):
        key = {"Idempotency-Key": f"w{number}"}
        used = client.post("/v1/budgets/weeks/uses", json={"schedule": "y"}, headers=headers | key)
        assert (used.status_code, used.json()["number"]) == (201, number)
    third = client.post("/v1/budgets/weeks/uses", json={"schedule": "y"}, headers=headers | {"Idempotency-Key": "w3"})
    problem(third, "schedule-used-up")
    assert [use["key"] for use in client.get("/v1/budgets/weeks/uses", headers=headers).json()["uses"]] == ["w1", "w2"]
    standing = client.get("/v1/budgets/weeks", headers=headers).json()
    assert standing["schedules"] == [{"name": "weeks", "key": "y", "used": 2, "times": 2}]
    altered = year | {"release": document | {"schema": "privkde.plan/1"}}
    refused = client.post("/v1/budgets/weeks/quote", json=altered, headers=headers)
    assert "privkde.release/1" in problem(refused, "invalid-input")["detail"]


def test_a_charge_needs_a_key(client: TestClient) -> None:
    refused = client.post("/v1/budgets/x/charges", json=RELEASE, headers=BEARER)
    assert "idempotency-key" in problem(refused, "invalid-input")["detail"]


def test_without_a_ledger_there_are_no_budgets() -> None:
    with bare() as client:
        assert "--ledger" in problem(client.get("/v1/budgets"), "not-found")["detail"]


@pytest.mark.parametrize("asked", [QUICK, RR])
def test_a_plan_can_be_charged(client: TestClient, asked: dict[str, Any]) -> None:
    headers = BEARER | {"Idempotency-Key": "p"}
    budget = {"name": f"plans-{len(asked)}", "epsilon": 3.0, "delta": 1e-6, "composition": "pld"}
    client.post("/v1/budgets", json=budget, headers=headers)
    charges = f"/v1/budgets/{budget['name']}/charges"
    plan = client.post("/v1/plan", json=asked).json()
    charge = client.post(charges, json={"name": "a", "plan": plan}, headers=headers).json()
    assert charge["spent_after"] <= 2.0
    assert len(charge["plan_sha256"]) == 64
    for name in plan["instance"]["parameters"]:
        plan["instance"]["parameters"][name] *= 0.5
    altered = client.post(charges, json={"name": "a", "plan": plan}, headers=headers)
    assert "altered" in problem(altered, "invalid-input")["detail"]


def test_a_comparison_comes_row_by_row(client: TestClient) -> None:
    """Every row is a line of its own, in the order of the document; the certified plan is as good as its row."""
    answer = client.post("/v1/plan/compare", json=SMALL)
    lines = [line.strip().rstrip(",") for line in answer.text.splitlines()]
    rows = [json.loads(line) for line in lines if line.startswith('{"name"')]
    whole = answer.json()
    assert rows == [row for group in ("rungs", "bitsums", "labels") for row in whole[group]]
    assert [row["name"] for row in whole["bitsums"]] == list(BITSUMS)
    assert "content-length" not in answer.headers
    (own,) = (row for row in whole["rungs"] if row["name"] == "basic")
    planned = client.post("/v1/plan", json={**SMALL, "accountant": "basic"}).json()
    assert own["bitsum_rmse"] == pytest.approx(planned["error"]["bitsum_rmse"], rel=2e-3)


def test_a_row_that_takes_too_long_is_listed_with_that_reason(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the attack: a request none of whose first rows can be had is a problem, and nothing else."""
    workers = client.app.state.workers  # type: ignore[attr-defined]
    run, refused = workers.run, "compare bitsums poisson"

    async def slow(job: str, *further: Any, **options: Any) -> bytes:
        if job == refused:
            raise Problem(TOO_SLOW, "it took more than 60 s; ask for less.")
        found: bytes = await run(job, *further, **options)
        return found

    monkeypatch.setattr(workers, "run", slow)
    rows = {row["name"]: row for row in client.post("/v1/plan/compare", json=SMALL).json()["bitsums"]}
    assert rows["poisson"]["refusal"] == "it took more than 60 s; ask for less."
    assert rows["poisson"]["noise"] is None
    assert rows["rr"]["refusal"] is None
    refused = "compare rungs paper"
    assert client.post("/v1/plan/compare", json=SMALL).status_code == 504
