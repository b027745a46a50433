"""Who asks: clients told apart by their address and by whether they hold the service's token."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Scope

IPV6_SUBNET = 64
"""Bits of an IPv6 address that name a customer; whoever has one address of such a network has all of them."""


@dataclass(frozen=True, slots=True)
class Client:
    """One of those who share the service; limits that name a client count what is equal to it."""

    network: str
    has_token: bool
    """So that holders of the token have a share of their own, also where many are behind one address."""

    @staticmethod
    def of(scope: Scope, token: str | None) -> Client:
        """The client behind a request; a server that trusts a proxy has put its client's address there."""
        address = scope.get("client")
        return Client(network_of(address[0] if address else ""), _bears(Headers(scope=scope), token))


def network_of(address: str) -> str:
    """An IPv4 address, or the network of an IPv6 address; what is not an address stands for itself."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), IPV6_SUBNET), strict=False))


def _bears(headers: Headers, token: str | None) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if token is None or scheme.lower() != "bearer":
        return False
    return secrets.compare_digest(given.strip().encode(), token.encode())
