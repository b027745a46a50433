"""The wheel, built from a copy of the source and used where the checkout cannot be seen."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import httpx2
import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "accounting": "what a law guarantees: guarantees, contracts, requests, plans",
    "accounting/accuracy": "predicted errors of a plan, and of what it is compared with",
    "accounting/composition": "one rung of the ladder per file",
    "accounting/mechanisms": "one law per file",
    "accounting/numerics": "probabilities, profiles and losses",
    "accounting/releases": "many releases about the same people",
    "privkde": "the protocol that runs a plan",
    "privkde/bitsum": "bits to messages, counts to sums",
    "privkde/cli": "the command `privkde`",
    "privkde/display": "tables, figures and progress of every command",
    "privkde/draws": "randomness, and exact draws from it",
    "privkde/engines": "collections in this process or by Apache Beam",
    "privkde/kernels": "random features of each kernel",
    "privkde/learning": "estimators, and what they are compared with",
    "privkde/ledger": "budgets in a file or on a server",
    "privkde/protocol": "announcement, parties, rounds, model",
    "privkde/service": "the planner over HTTP",
    "privkde/service/page": "its page, scripts and styles",
    "privkde/storage": "files of vectors, packets and models",
    "verification": "who tries to refute the above: `privkde audit`",
    "verification/certified": "plans recomputed with rigorous rounding",
    "verification/domain": "what inputs may do",
    "verification/exact": "small systems, enumerated",
    "verification/reporting": "the report of an audit, and the saboteurs it was tried on",
    "verification/reporting/templates": "the page of the report, and the registry's entry",
    "verification/sabotage": "planted faults, which the checks must find",
    "verification/statistical": "draws against their laws",
    "verification/statistical/densities": "densities of a whole collection",
    "verification/statistical/distinguishers": "attacks",
    "verification/statistical/execution": "counts of real runs",
    "verification/twins": "each mechanism and kernel defined a second time, independently",
}
"""Every folder of the wheel, and why users of the library need it: no experiments, no tests, no guide."""
PACKAGES = {"accounting", "privkde", "verification"}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed, run without PYTHONPATH."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def files() -> set[str]:
    """What git tracks or would track."""
    listing = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    return {name for name in listing.split("\0") if (ROOT / name).is_file()}  # tracked ones may be deleted


@pytest.fixture(scope="module")
def wheel(files: set[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: no stale build folder can leak in."""
    source = tmp_path_factory.mktemp("source")
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", out, cwd=source)
    (built,) = out.glob("*.whl")
    return built


def test_wheel_holds_the_three_packages_whole_and_nothing_else(wheel: Path, files: set[str]) -> None:
    """Modules and data: whatever git has in the packages, and beside it only what the format asks for."""
    about = f"privkde-{VERSION}.dist-info"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if name.partition("/")[0] != about} == {
        name for name in files if name.partition("/")[0] in PACKAGES
    }
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert f"{about}/licenses/LICENSE" in names


def test_every_folder_of_the_wheel_has_a_reason(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.rpartition("/")[0] for name in names if name.partition("/")[0] in PACKAGES}
    assert folders == FOLDERS.keys()
    assert len(set(FOLDERS.values())) == len(FOLDERS)


@pytest.mark.extras
def test_installed_wheel_plans_a_budget_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Installs with the core dependencies only: the command line must not need an extra.

    Nothing is compiled that is not imported, and this environment's pip installs: both only save time.
    """
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    install = (sys.executable, "-m", "pip", "--python", scripts / "python", "install", "--quiet", "--no-compile")
    run(*install, wheel, cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    assert VERSION in run(scripts / "privkde", "--version", cwd=elsewhere)

    request = "--users 1000 --dim 16 --kernel gaussian --repetitions 16 --bitsum rr --epsilon 1 --delta 1e-6"
    plan = json.loads(
        run(scripts / "privkde", "plan", *request.split(), "--accountant", "pld", "--json", cwd=elsewhere)
    )
    assert plan["schema"] == "privkde.plan/1"
    assert 0 < plan["instance"]["parameters"]["flip_probability"] < 0.5

    refused = subprocess.run([scripts / "privkde", "serve"], cwd=elsewhere, capture_output=True, text=True, check=False)
    assert (refused.returncode, "privkde[api]" in refused.stderr) == (2, True)
    run(*install, f"{wheel}[api]", cwd=tmp_path)
    assert plan == served_plan(scripts / "privkde", plan["request"], elsewhere)


def served_plan(command: Path, request: dict[str, Any], folder: Path) -> Any:
    """What the service answers to the same request; its page must be there, too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([command, "serve", "--port", str(port)], cwd=folder, stderr=subprocess.DEVNULL)
    try:
        while True:
            assert process.poll() is None, "the service ended"
            with contextlib.suppress(httpx2.TransportError):
                assert "privkde planner" in httpx2.get(address).text
                break
            time.sleep(0.1)
        return httpx2.post(f"{address}/v1/plan", json=request, timeout=120.0).json()
    finally:
        process.terminate()
        process.wait()
