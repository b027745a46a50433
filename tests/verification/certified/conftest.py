"""All tests of this folder compute at one precision, unless they choose another."""

from collections.abc import Iterator

import pytest
from flint import ctx


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    with ctx.workprec(160):
        yield
