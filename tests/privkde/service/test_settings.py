"""Settings that would protect nothing are refused."""

from __future__ import annotations

from typing import Any

import pytest

from accounting import InvalidInputError
from privkde.service import Settings


@pytest.mark.parametrize(
    "token", ["", "secret", "our-secret", "a" * 64, "12" * 20, "password" * 4, "with blanks " * 4, "1234567890" * 3]
)
def test_weak_tokens_are_refused_and_not_shown(token: str) -> None:
    with pytest.raises(InvalidInputError, match="at least 24, 8 of them different") as refused:
        Settings(token=token)
    assert not token or token not in str(refused.value)


@pytest.mark.parametrize(
    "token",
    [
        "5Jnwcng9dCvIWcSz6ykrjbgGKulA_BZLM6tfM3bTcQM",
        "710d272f84a94282890067ead66ab3c907c141e5844634d839061a4325cfc62d",
        "0123456789abcdef+/=-._~Z",
    ],
)
def test_strong_tokens(token: str) -> None:
    assert Settings(token=token).token == token


def test_proxies_are_addresses() -> None:
    assert Settings(proxies=("127.0.0.1", "2001:DB8::0")).proxies == ("127.0.0.1", "2001:db8::")
    for proxy in ("proxy.example", "*", "10.0.0.0/8"):
        with pytest.raises(InvalidInputError, match="not an IP address"):
            Settings(proxies=(proxy,))


@pytest.mark.parametrize(
    "limit", ["short_limit", "arrival_limit", "connections", "client_connections", "client_requests"]
)
def test_limits_are_above_zero(limit: str) -> None:
    given: dict[str, Any] = {limit: 0}
    with pytest.raises(InvalidInputError, match=limit):
        Settings(**given)


@pytest.mark.parametrize(("workers", "left"), [(1, 0), (2, 1), (16, 1)])
def test_one_worker_is_left_to_others(workers: int, left: int) -> None:
    assert Settings(workers=workers).client_workers == workers - left


def test_by_default_there_is_a_worker_for_others() -> None:
    assert Settings().client_workers < Settings().workers
    assert Settings().client_jobs < Settings().workers + Settings().queue
