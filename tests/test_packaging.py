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
PACKAGES = {"accounting", "privkde", "verification"}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed, run without PYTHONPATH."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what git tracks or would track: no stale build folder can leak in."""
    source = tmp_path_factory.mktemp("source")
    listing = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():  # a tracked file may be deleted but not yet committed
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, cwd=source)
    (built,) = out.glob("*.whl")
    return built


def test_wheel_holds_the_three_packages_whole_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names} == PACKAGES | {f"privkde-{VERSION}.dist-info"}
    on_disk = {path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == on_disk
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert f"privkde-{VERSION}.dist-info/licenses/LICENSE" in names


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
