"""Who counts as one client."""

from __future__ import annotations

import pytest

from privkde.service.clients import Client, network_of

TOKEN = "a-token-that-nobody-guesses-0123"


def client(address: str | None, authorization: str | None = None, token: str | None = TOKEN) -> Client:
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    return Client.of({"type": "http", "client": address and (address, 1), "headers": headers}, token)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_networks(address: str, network: str) -> None:
    assert network_of(address) == network


def test_addresses_of_one_ipv6_network_are_one_client() -> None:
    assert client("2001:db8::1") == client("2001:db8::2") != client("2001:db8:0:1::1")


def test_holders_of_the_token_are_a_client_of_their_own() -> None:
    held = client("203.0.113.7", f"Bearer {TOKEN}")
    assert held.has_token
    assert held == client("203.0.113.7", f"bearer {TOKEN}") != client("203.0.113.7")
    for authorization in (f"Basic {TOKEN}", "Bearer wrong", "Bearer ", "", f"Bearer {TOKEN}é"):
        assert client("203.0.113.7", authorization) == client("203.0.113.7")


def test_without_a_token_nobody_holds_it() -> None:
    assert not client("203.0.113.7", "Bearer None", token=None).has_token
    assert client(None).network == ""
