"""One Hypothesis profile for everyone (the same examples on every run, and no clock in the verdict), and a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import extras

if TYPE_CHECKING:
    from playwright.sync_api import Browser

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported: tests share the cores already

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("ci")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def pytest_configure(config: pytest.Config) -> None:
    """Also for the doctests, which are outside this folder."""
    config.pluginmanager.register(extras, "extras")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser, for tests marked `extras`."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no chromium in PATH to show pages in")
    with sync_playwright() as driver:
        own = driver.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield own
        own.close()
