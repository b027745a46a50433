"""The planner page in a real browser: what it shows is what the service says, for everybody who comes."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, expect

from accounting import PlanRequest
from accounting.fields import fields_of
from privkde.cli import main

pytestmark = pytest.mark.extras

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 60_000.0
"""Milliseconds before a test gives up; nothing waits that long unless it is broken."""

SMALL = "#users=2000&dim=2&accountant=pld"
SMALL_REQUEST: dict[str, Any] = {
    "users": 2000, "dim": 2, "epsilon": 2, "delta": 1e-6, "kernel": "auto", "bitsum": "rr", "accountant": "pld",
}  # fmt: skip


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service of our own."""
    port, log = free_port(), tmp_path_factory.mktemp("service") / "log"
    command = [sys.executable, "-m", "privkde.cli", "serve", "--port", str(port), "--workers", "2"]
    with (
        log.open("w") as out,
        subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=out, stderr=out) as own,
    ):
        try:
            while not answers(port):
                assert own.poll() is None, log.read_text()
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/"
        finally:
            own.terminate()


@contextmanager
def opened(browser: Browser, service: str, **options: Any) -> Iterator[BrowserContext]:
    """A browser that may use the clipboard; fails on complaints of the console and on requests to anybody else."""
    complaints: list[str] = []
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=service.rstrip("/"))
    context.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    yield context
    context.close()
    refusals = [text for text in complaints if re.search(r"Failed to load resource.* status of (422|504)", text)]
    assert [text for text in complaints if text not in refusals] == []
    assert asked
    assert [url for url in asked if not url.startswith((service, "data:", f"blob:{service}"))] == []


@pytest.fixture
def context(browser: Browser, service: str) -> Iterator[BrowserContext]:
    with opened(browser, service, viewport={"width": 1280, "height": 900}) as found:
        yield found


@pytest.fixture
def page(context: BrowserContext, service: str) -> Page:
    """The page with a small request, when all is drawn."""
    found = context.new_page()
    found.goto(service + SMALL)
    settled(found)
    return found


def settled(page: Page) -> None:
    expect(page.locator("#results")).to_have_attribute("aria-busy", "false", timeout=PATIENCE)


def ask(service: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the service answers to somebody else; also its problems."""
    sent = HttpRequest(service + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(sent) as answer:
            found: dict[str, Any] = json.load(answer)
    except HTTPError as problem:
        with problem:
            found = json.load(problem)
    return found


def values(page: Page, place: str) -> list[float]:
    """The numbers behind the texts in a place."""
    return [float(one.get_attribute("value") or "nan") for one in page.locator(f"{place} data").all()]


def read(text: str) -> float:
    """A number as people read it: 3,017, 0.125, 10⁻⁶, 2.5 × 10⁻⁷."""
    plain = text.replace(",", "").translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-"))
    found = re.fullmatch(r"(?:([\d.]+) × )?10(-?\d+)", plain)
    if found and not re.fullmatch(r"[\d.]+", text.replace(",", "")):
        return float(found[1] or 1) * 10.0 ** int(found[2])
    return float(plain)


def clipboard(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_numbers_after_a_slider_are_those_of_the_service(page: Page, service: str) -> None:
    slider = page.locator("#epsilon-slider")
    slider.focus()
    slider.press("ArrowLeft")
    slider.press("ArrowLeft")
    assert page.locator("#results").get_attribute("aria-busy") == "true"
    expect(page.locator(".promise")).to_have_class(re.compile("stale"))
    settled(page)
    expect(page.locator(".stale")).to_have_count(0)
    assert page.locator("#epsilon").input_value() == "1.2"
    assert slider.get_attribute("aria-valuetext") == "1.2"
    plan = ask(service, "v1/plan", SMALL_REQUEST | {"epsilon": 1.2})
    error, communication = plan["error"], plan["communication"]
    assert values(page, "#promise") == [pytest.approx(math.exp(1.2)), 1.2, 1e-6]
    assert values(page, "#tiles") == [
        error["predicted_rmse"],
        error["bitsum_rmse"],
        plan["instance"]["parameters"]["flip_probability"],
        communication["messages_per_user"],
        communication["bits_per_user"],
    ]
    assert values(page, "#ladder") == [one for one in plan["composition"]["ladder"].values() if one is not None]
    assert values(page, "#parts") == list(error["parts"].values())
    central, local = plan["baselines"]
    shown = [central, error, local]
    assert values(page, "#baselines") == [one[name] for one in shown for name in ("bitsum_rmse", "predicted_rmse")]
    profile = ask(service, "v1/plan/profile", {"plan": plan})
    assert {one["of"] for one in profile["risk"]} == {"record"}
    assert values(page, "#risk") == [one["true_positive_rate"] for one in profile["risk"]]
    expect(page.locator("#risk table")).to_have_count(0)
    drawn = [point for curve in (profile["promised"], *profile["curves"].values()) for point in curve if min(point) > 0]
    assert values(page, "#profile") == [x for point in drawn for x in point]
    for reason in plan["reasons"]:
        expect(page.locator("#reasons")).to_contain_text(reason)


def guaranteed(plan: dict[str, Any], adjacency: str) -> float:
    """ε of an observer of all shuffled messages."""
    chosen = {"adjacency": adjacency, "view": "communication"}
    (found,) = (one["epsilon"] for one in plan["guarantees"] if one | chosen == one)
    return float(found)


def test_with_separate_labels_the_whole_record_leads(context: BrowserContext, service: str) -> None:
    page = context.new_page()
    page.goto(service + SMALL + "&labels=separate&classes=2&label_epsilon=0.5")
    settled(page)
    plan = ask(service, "v1/plan", SMALL_REQUEST | {"labels": "separate", "classes": 2, "label_epsilon": 0.5})
    record, vector, label = (guaranteed(plan, f"replace-one{part}") for part in ("", "-features", "-label"))
    assert (record, vector, label) == (2, 1.5, 0.5)
    assert values(page, "#promise") == [pytest.approx(math.exp(record)), record, 1e-6, vector, label]
    expect(page.locator("#promise")).to_contain_text("Whatever vector and label")
    expect(page.locator("#promise")).to_contain_text("Of this ε: vector 1.5, label 0.5.")
    local = next(one for one in plan["guarantees"] if (one["adjacency"], one["view"]) == ("replace-one", "local"))
    assert values(page, "#unpromised") == [local["epsilon"]]
    assert values(page, "#observers tr.main") == [record, 1e-6]
    risk = ask(service, "v1/plan/profile", {"plan": plan})["risk"]
    told = [[one["true_positive_rate"] for one in risk if one["of"] == of] for of in ("record", "vector", "label")]
    assert values(page, "#risk .risk") == told[0]
    assert values(page, "#risk table") == told[1] + told[2]
    assert page.locator("#risk tbody th").all_inner_texts() == ["vector", "label"]
    assert all(whole > max(parts) for whole, *parts in zip(*told, strict=True))
    expect(page.locator("#risk")).to_contain_text("suspects that a person’s record (vector and label) is a certain one")
    drawn = page.locator("#risk .risk svg").first.locator(".guess, .found")
    expect(drawn).to_have_count(math.ceil(100 * told[0][0]))
    vectors_only = page.locator("[data-separate]")
    expect(vectors_only.first).to_be_visible()
    page.locator("input[name=labels][value=joint]").check()
    settled(page)
    assert values(page, "#promise") == [pytest.approx(math.exp(2)), 2, 1e-6]
    expect(page.locator("#promise")).to_contain_text("Whatever vector and label")
    expect(page.locator("#risk table")).to_have_count(0)
    expect(vectors_only.filter(visible=True)).to_have_count(0)


def test_texts_round_the_numbers_they_stand_for(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = page.locator("#results :not(#risk *) > data").evaluate_all(
        "all => all.map(one => [one.value, one.innerText])"
    )
    assert len(found) > 50
    for value, text in found:
        assert read(text) == pytest.approx(float(value), rel=6e-3), text


def ceiling(text: str, value: float) -> None:
    """A bound as people read it is the bound, or a little more."""
    assert value <= read(text) <= value * (1.0 + 1e-4)


@pytest.mark.parametrize("width", [1280, 390, 340])
def test_a_plan_that_stays_is_proved(context: BrowserContext, service: str, width: int) -> None:
    page, held = context.new_page(), list[Route]()

    def hold(route: Route) -> None:
        held.append(route)

    page.set_viewport_size({"width": width, "height": 900})
    page.route("**/v1/certify", hold)
    page.goto(service + SMALL)
    settled(page)
    badge = page.locator("#proof")
    expect(badge).to_have_text("being proved…")
    expect(page.locator("#download-proof")).to_be_disabled()
    while not held:
        page.wait_for_timeout(50)
    before = page.locator("#tiles").bounding_box()
    held[0].continue_()
    expect(badge).to_have_text(re.compile(r"^proved: ε ≤ [\d.]+ in ball arithmetic$"), timeout=PATIENCE)
    assert page.locator("#tiles").bounding_box() == before, "nothing moved"
    assert badge.get_attribute("role") == "status"
    plan = ask(service, "v1/plan", SMALL_REQUEST)
    certificate = ask(service, "v1/certify", {"plan": plan})
    (bound,) = values(page, "#proof")
    assert bound == certificate["proved"]["epsilon"] <= 2.0
    ceiling(badge.locator("data").inner_text(), bound)
    expect(page.locator("#proof-note")).to_contain_text(certificate["versions"]["FLINT"])
    with page.expect_download() as download:
        page.locator("#download-proof").click()
    assert download.value.suggested_filename == "certificate.json"
    assert json.loads(download.value.path().read_text(encoding="utf-8")) == certificate
    page.locator("#epsilon").fill("-1")
    expect(page.locator("#download-proof")).to_be_disabled()


@pytest.mark.parametrize(
    ("answer", "told", "note"),
    [
        ({"type": "/problems/too-slow", "status": 504, "detail": "it took more than 60 s."},
         "proof took too long", "it took more than 60 s."),
        ({"type": "/problems/invalid-input", "status": 422, "detail": "it is too large."},
         "not proved", "it is too large."),
        ({"proved": {"holds": False, "epsilon": 2.0000004}, "notes": ["a note"], "versions": {}},
         "not proved", "only ε ≤ 2.0001 is; a note."),
    ],
)  # fmt: skip
def test_a_plan_that_is_not_proved_says_so(
    context: BrowserContext, service: str, answer: dict[str, Any], told: str, note: str
) -> None:
    page = context.new_page()
    page.route("**/v1/certify", lambda route: route.fulfill(status=answer.get("status", 200), json=answer))
    page.goto(service + SMALL)
    expect(page.locator("#proof")).to_have_text(told, timeout=PATIENCE)
    expect(page.locator("#proof-note")).to_contain_text(note)
    expect(page.locator("#problem")).to_be_hidden()


def test_error_against_users_and_epsilon_with_two_requests_at_a_time(context: BrowserContext, service: str) -> None:
    page, flying, most = context.new_page(), set[Request](), 0
    bodies: list[dict[str, Any]] = []

    def left(request: Request) -> None:
        nonlocal most
        if request.url.endswith(("/estimate", "/profile")):
            flying.add(request)
            most = max(most, len(flying))
            bodies.append(json.loads(request.post_data or "{}"))

    def back(request: Request) -> None:
        flying.discard(request)

    page.on("request", left)
    page.on("requestfinished", back)
    page.on("requestfailed", back)
    page.goto(service + SMALL + "&epsilon=1")
    settled(page)
    assert most == 2
    first, *estimates = [one for one in bodies if "plan" not in one]
    assert (first["users"], first["epsilon"]) == (SMALL_REQUEST["users"], 1)
    assert len(estimates) == 12
    plan = ask(service, "v1/plan", SMALL_REQUEST | {"epsilon": 1})
    for name in ("users", "epsilon"):
        for measure in ("predicted_rmse", "bitsum_rmse"):
            page.locator(f"input[name=measure][value={measure}]").check()
            outcomes = {plan["request"][name]: plan["error"]} | {
                body[name]: ask(service, "v1/plan/estimate", body)
                for body in estimates
                if body[name] != plan["request"][name]
            }
            expected = [value for x, outcome in sorted(outcomes.items()) for value in (x, outcome[measure])]
            if measure == "predicted_rmse":
                expected += [y for x, one in sorted(outcomes.items()) for y in (x, one["parts"]["privacy"])]
            assert len(outcomes) == 7
            assert values(page, f"#against-{name}") == expected
            expect(page.locator(f"#against-{name} .legend li")).to_have_count(2 if measure == "predicted_rmse" else 0)


def test_what_is_copied_gives_the_same_plan(
    context: BrowserContext, service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = context.new_page()
    page.goto(
        f"{service}#users=2500&dim=2&repetitions=6&epsilon=2.5&delta=1e-5&bitsum=poisson&accountant=pld&share=90"
        "&colluders=50&releases=4"
    )
    settled(page)
    copied = {}
    for form in ("python", "cli", "json", "curl"):
        page.locator(f"input[name=form][value={form}]").check()
        page.locator("#copied").evaluate("one => { one.textContent = ''; }")
        page.locator("#copy").click()
        expect(page.locator("#copied")).to_have_text("Copied.")
        copied[form] = clipboard(page)
    request = json.loads(copied["json"])
    assert request == {
        "users": 2500, "dim": 2, "repetitions": 6, "epsilon": 2.5, "delta": 1e-5, "kernel": "auto",
        "bitsum": "poisson", "accountant": "pld", "dropout": 0.1, "colluders": 50,
        "releases": 4,
    }  # fmt: skip
    expect(page.locator("#share-note")).to_have_text("Noise counts on 2,200 users.")
    plan = ask(service, "v1/plan", request)
    assert (plan["request"]["releases"], plan["composition"]["instances_per_user"]) == (4, 24)
    command = shlex.split(copied["cli"])
    assert command[:2] == ["privkde", "plan"]
    assert "--kernel" not in command  # it is the default
    assert main([*command[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == plan
    names: dict[str, Any] = {}
    exec(copied["python"], names)
    assert names["plan"].to_json() == plan
    curl = shlex.split(copied["curl"].replace("\\\n", " "))
    assert (curl[0], f"{service}v1/plan" in curl) == ("curl", True)
    assert json.loads(curl[-1]) == request
    with page.expect_download() as download:
        page.locator("#download").click()
    assert download.value.suggested_filename == "plan.json"
    assert json.loads(download.value.path().read_text(encoding="utf-8")) == plan


def test_a_shared_link_restores_everything(page: Page, context: BrowserContext) -> None:
    page.locator("#users").fill("3000")
    page.locator("#kernel").select_option("inner-product-signs")
    page.locator("input[name=labels][value=separate]").check()
    page.locator("#classes").fill("3")
    page.locator("#label_epsilon").fill("1.5")
    page.locator("#share").fill("75")
    page.locator("#advanced summary").click()
    page.locator("#allow_useless").check()
    settled(page)
    page.locator("#share-link").click()
    expect(page.locator("#copied")).to_have_text("Link copied.")
    other = context.new_page()
    other.goto(clipboard(page))
    settled(other)
    state = "Object.fromEntries(new FormData(document.getElementById('form')))"
    assert other.evaluate(state) == page.evaluate(state)
    assert other.evaluate(state)["users"] == "3000"
    for each in (page, other):
        each.locator("input[name=form][value=json]").check()
    sent = json.loads(other.locator("#snippet").inner_text())
    assert sent == json.loads(page.locator("#snippet").inner_text())
    assert (sent["dropout"], sent["classes"], sent["allow_useless"]) == (0.25, 3, True)
    assert values(other, "#tiles") == values(page, "#tiles") != []
    other.locator("#reset").click()
    assert "#" not in other.url
    other.evaluate("location.hash = 'kernel=nonsense&dim=2&users=2000&accountant=pld&unknown=1'")
    expect(other.locator("#kernel")).to_have_value("auto")
    expect(other.locator("#dim")).to_have_value("2")
    settled(other)


def test_a_refusal_is_told_beside_the_form(page: Page, service: str) -> None:
    before = values(page, "#tiles")
    for field, value in (("epsilon", "-1"), ("dim", "2.5"), ("repetitions", "0")):
        page.locator(f"#{field}").fill(value)
        problem = ask(service, "v1/plan", SMALL_REQUEST | {field: json.loads(value)})
        assert problem["status"] == 422
        expect(page.locator("#problem")).to_have_text(problem["detail"])
        expect(page.locator("#status")).to_contain_text("earlier values")
        expect(page.locator(".promise")).to_have_class(re.compile("stale"))
        expect(page.locator("#download")).to_be_disabled()
        expect(page.locator(f"#{field}")).to_have_attribute("aria-invalid", "true")
        page.locator(f"#{field}").fill(str(SMALL_REQUEST.get(field, "")))
        settled(page)
        expect(page.locator("#problem")).to_be_hidden()
        expect(page.locator("[aria-invalid]")).to_have_count(0)
        assert values(page, "#tiles") == before


def test_a_missing_number_is_told_without_asking(page: Page) -> None:
    page.locator("#users").fill("")
    expect(page.locator("#problem")).to_contain_text("users is missing")
    expect(page.locator("#copy")).to_be_disabled()


def test_fields_that_a_choice_does_not_take_are_gone(page: Page) -> None:
    expect(page.locator("#repetitions")).to_be_visible()
    page.locator("#kernel").select_option("inner-product")
    expect(page.locator("#repetitions")).to_be_hidden()
    page.locator("#advanced summary").click()
    expect(page.locator("#bound")).to_be_visible()
    page.locator("#kernel").select_option("laplacian")
    expect(page.locator("#bound")).to_be_hidden()
    expect(page.locator("#bias")).to_be_visible()
    page.locator("input[name=labels][value=joint]").check()
    expect(page.locator("#classes")).to_be_visible()
    expect(page.locator("#model")).to_be_visible()
    expect(page.locator("#max_messages")).to_be_visible()
    expect(page.locator("#label_epsilon")).to_be_hidden()
    page.locator("input[name=labels][value=separate]").check()
    expect(page.locator("#label_epsilon")).to_be_visible()
    expect(page.locator("#model")).to_be_hidden()
    expect(page.locator("#max_messages")).to_be_hidden()


def test_joint_labels_rotate_whole_records_unless_another_kernel_is_named(page: Page, service: str) -> None:
    page.locator("input[name=labels][value=joint]").check()
    page.locator("#classes").fill("2")
    page.locator("#accountant").select_option("auto")
    page.locator("#max_messages").fill("40")
    expect(page.locator("#kernel-note")).to_contain_text("inner-product: ")
    expect(page.locator("#repetitions")).to_be_hidden()
    expect(page.locator("#status")).to_contain_text(", 40 messages per user.", timeout=PATIENCE)
    asked = SMALL_REQUEST | {"labels": "joint", "classes": 2, "accountant": "auto", "max_messages": 40}
    plan = ask(service, "v1/plan", asked)
    assert plan["request"]["model"] == "discriminant"
    assert plan["request"]["padded"] == 40
    assert plan["communication"]["messages_per_user"] in values(page, "#tiles")
    page.locator("#model").select_option("mean")
    page.locator("input[name=form][value=json]").check()
    assert json.loads(page.locator("#snippet").inner_text())["model"] == "mean"


def test_limits_choices_and_help_are_those_of_the_declaration(page: Page) -> None:
    shown = 0
    for name, field in fields_of(PlanRequest).items():
        control = page.locator(f"#{name}")
        if control.count() == 0:  # the page has no such field, or radio buttons
            continue
        shown += 1
        assert control.get_attribute("title") == field.rule.description
        if field.rule.choices:
            assert tuple(control.locator("option").all_text_contents()) == tuple(field.rule.choices)
            assert name == "accountant" or control.input_value() == field.default
        elif field.kind is not bool:
            limits = [float(control.get_attribute(end) or "nan") for end in ("min", "max")]
            assert limits == [field.rule.low, field.rule.high]
            assert control.get_attribute("step") == ("1" if field.kind is int else "any")
            assert control.evaluate("input => input.required") == field.required
    assert shown == 17
    for name in ("repetitions", "bound", "bias", "label_epsilon", "max_messages"):
        words = fields_of(PlanRequest)[name].rule.unset
        assert page.locator(f"[data-unset={name}]").text_content() == f"blank: {words}"


def test_the_api_can_be_tried_without_anything_from_elsewhere(context: BrowserContext, service: str) -> None:
    pytest.importorskip("fastapi_swagger", reason="the extra 'api' is not installed")
    page = context.new_page()
    declared = page.request.get(service + "openapi.json").json()["paths"]
    operations = sum(len(methods) for methods in declared.values())
    assert operations > 10
    page.goto(service + "docs")
    expect(page.locator(".opblock")).to_have_count(operations, timeout=PATIENCE)
    operation = page.locator(".opblock", has_text="/v1/plan/estimate")
    operation.locator(".opblock-summary-control").click()
    operation.locator(".execute").click()
    expect(operation.locator(".live-responses-table .response-col_status").last).to_contain_text(
        "200", timeout=PATIENCE
    )
    expect(operation.locator(".live-responses-table")).to_contain_text("privkde.estimate/1")


def test_comparison(page: Page, service: str) -> None:
    page.locator("#compare").click()
    expect(page.locator("#compare-status")).to_have_text("Compared.", timeout=PATIENCE)
    compared = ask(service, "v1/plan/compare", SMALL_REQUEST)
    told = [one for name in ("rungs", "bitsums", "labels") for one in compared[name]]
    expected = [one[n] for one in told for n in ("noise", "predicted_rmse", "messages_per_user") if not one["refusal"]]
    assert len(expected) > 20
    assert values(page, "#comparison") == expected
    for refusal in (one["refusal"] for one in told if one["refusal"]):
        expect(page.locator("#comparison")).to_contain_text(refusal)
    page.locator("#epsilon").fill("3")
    expect(page.locator("#compare-status")).to_contain_text("compare again")
    expect(page.locator("#comparison")).to_have_class(re.compile("stale"))


def test_a_comparison_that_takes_too_long_says_so_and_can_be_stopped(page: Page) -> None:
    detail = "it took more than 60 s; ask for less."
    problem = {"type": "/problems/too-slow", "title": "…", "status": 504, "detail": detail}
    page.route("**/v1/plan/compare", lambda route: route.fulfill(status=504, json=problem))
    page.locator("#compare").click()
    expect(page.locator("#compare-problem")).to_have_text(detail)
    page.unroute("**/v1/plan/compare")

    def hold(route: Route) -> None:
        """Leave the question open."""

    page.route("**/v1/plan/compare", hold)
    page.locator("#compare").click()
    expect(page.locator("#compare")).to_have_text("Stop")
    expect(page.locator("#compare-spinner")).to_be_visible()
    page.locator("#compare").click()
    expect(page.locator("#compare")).to_have_text("Compare")
    expect(page.locator("#compare-spinner")).to_be_hidden()
    expect(page.locator("#compare-problem")).to_be_hidden()


OUTLINED = """() => {
  const one = document.activeElement, style = getComputedStyle(one.type === 'radio' ? one.nextElementSibling : one);
  return style.outlineStyle !== 'none' && style.outlineWidth !== '0px';
}"""


def test_keyboard_alone_is_enough(page: Page) -> None:
    def tab_to(selector: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                assert page.evaluate(OUTLINED), f"{selector} has the focus and does not show it"
                return
        raise AssertionError(f"{selector} cannot be reached with Tab")

    tab_to(".skip")
    tab_to("#epsilon")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("1.5")
    tab_to("#epsilon-slider")
    page.keyboard.press("ArrowRight")
    assert page.locator("#epsilon").input_value() == "2"
    tab_to("#bitsum")
    page.keyboard.type("poisson")
    tab_to("input[name=labels]")
    page.keyboard.press("ArrowLeft")  # around to the last
    assert page.locator("input[name=labels]:checked").input_value() == "separate"
    page.keyboard.press("ArrowRight")
    assert page.locator("input[name=labels]:checked").input_value() == "none"
    settled(page)
    tab_to("#ladder summary")
    page.keyboard.press("Enter")
    expect(page.locator("#ladder table")).to_be_visible()
    tab_to("input[name=form]")
    page.keyboard.press("ArrowRight")
    tab_to("#copy")
    page.keyboard.press("Enter")
    expect(page.locator("#copied")).to_have_text("Copied.")
    told = "privkde plan --users 2000 --dim 2 --epsilon 2 --delta 1e-6 --bitsum poisson --accountant pld"
    assert clipboard(page) == told


def test_skipping_to_the_results_keeps_what_was_entered(page: Page) -> None:
    page.locator("#users").fill("3000")
    page.locator("#epsilon").fill("1.5")
    settled(page)
    address, focused = page.url, "document.getElementById('results').contains(document.activeElement)"
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "results"
    assert page.url == address
    assert "users=3000" in address
    page.keyboard.press("Tab")
    assert page.evaluate(focused)
    for nothing in ("results", "constructor=1"):  # from a bookmark, or typed
        page.evaluate("hash => { location.hash = hash; }", nothing)
        page.wait_for_url(address)
    settled(page)
    assert [page.locator(f"#{name}").input_value() for name in ("users", "epsilon", "dim")] == ["3000", "1.5", "2"]
    assert values(page, "#promise")[1] == 1.5


UNNAMED = """() => [...document.querySelectorAll('input, select, textarea, button, [role=region], [role=radiogroup]')]
    .filter((one) => !(one.labels?.length && [...one.labels].some((label) => label.textContent.trim()))
        && !one.getAttribute('aria-label')?.trim() && !document.getElementById(one.getAttribute('aria-labelledby'))
        && !(one.tagName === 'BUTTON' && one.textContent.trim()))
    .map((one) => one.outerHTML)"""
REPEATED = """() => { const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
    return ids.filter((id, i) => ids.indexOf(id) !== i); }"""
UNTOLD = """() => [...document.querySelectorAll('svg')].filter((one) => one.getAttribute('aria-hidden') !== 'true'
    && !(one.querySelector('title')?.textContent && one.querySelector('desc')?.textContent)).length"""
CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [[r, 0.2126], [g, 0.7152], [b, 0.0722]]
    .reduce((sum, [x, w]) => sum + w * (x / 255 <= 0.04045 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4), 0);
  const behind = (one) => { for (; one; one = one.parentElement) {
    const color = rgb(getComputedStyle(one).backgroundColor); if (color.length < 4 || color[3] > 0) return color; } };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = {};
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !one.checkVisibility()) continue;
    if (one.closest(':disabled, .skip, noscript, option')) continue;
    const style = getComputedStyle(one);
    const [a, b] = [rgb(one instanceof SVGElement ? style.fill : style.color), behind(one)].map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found[walker.currentNode.data.trim()] = ratio;
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everybody_can_read_it(browser: Browser, service: str, width: int, scheme: str) -> None:
    with opened(browser, service, viewport={"width": width, "height": 844}, color_scheme=scheme) as context:
        page = context.new_page()
        page.goto(service + SMALL + "&labels=separate&classes=2")
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate(UNNAMED) == []
        assert page.evaluate(REPEATED) == []
        assert page.locator("svg[role=img]").count() == 8
        assert page.evaluate(UNTOLD) == 0
        assert page.evaluate(CONTRAST) == {}
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((x) => x < 64)")
        assert dark == (scheme == "dark")
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.locator("h1").count() == page.locator("main").count() == 1
        assert page.locator("#status").get_attribute("role") == "status"
        assert page.locator("#problem").get_attribute("role") == "alert"
        expect(page.locator("footer")).to_contain_text("nothing you enter here is stored")
        expect(page.locator("#version")).to_have_text(re.compile(r"^privkde \d+\.\d+"))
        for link in page.locator("footer a").all():
            assert page.request.get(f"{service}{link.get_attribute('href')}").ok
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
