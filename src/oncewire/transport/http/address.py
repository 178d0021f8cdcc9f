"""Which network addresses may be connected to: the answer to URLs that point inwards.

An endpoint's URL comes from an agreement, and agreements come from partners. A URL that
names our own loopback, a neighbour on the private network or a cloud's metadata service must
not become a connection, however it is spelled (`127.1`, `0x7f.1`, `::ffff:127.0.0.1`, a name
that resolves inwards today and outwards tomorrow). So the rule is applied to the numeric
address at the moment a socket is made for it, never to the text of a URL.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

from oncewire.errors import InvalidValue

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

# Words of the configuration for the ranges people mean; anything else is written as a CIDR range.
RANGES: dict[str, tuple[str, ...]] = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
}
PUBLIC = "public"

# IPv6 forms that carry an IPv4 address inside; a gateway would deliver to that address.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_LOW_32_BITS = 0xFFFFFFFF


class AddressNotAllowed(OSError):
    """A name or number leads to an address the configuration does not allow."""


@dataclass(frozen=True, slots=True)
class AddressRule:
    """The addresses that may be connected to; by default every public one and no other."""

    public: bool = True
    networks: tuple[IpNetwork, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> AddressRule:
        """A rule from words (`public`, `loopback`, `private`, `link-local`) and CIDR ranges."""
        public = False
        networks: list[IpNetwork] = []
        for name in names:
            word = name.strip().lower()
            if word == PUBLIC:
                public = True
                continue
            try:
                networks += [ipaddress.ip_network(text) for text in RANGES.get(word, (word,))]
            except ValueError as error:
                known = ", ".join([PUBLIC, *RANGES])
                raise InvalidValue(
                    f"{name!r} is no range of addresses: {error}",
                    remedy=f"use {known}, or a range such as 10.1.0.0/16",
                ) from error
        return cls(public, tuple(networks))

    def permits(self, address: str) -> bool:
        """Whether a connection to this numeric address may be made."""
        try:
            # A zone (`fe80::1%eth0`) says through which card, not to whom.
            ip = inner(ipaddress.ip_address(address.partition("%")[0]))
        except ValueError:
            return False
        if ip.is_multicast or ip.is_unspecified:
            return False
        if any(ip.version == network.version and ip in network for network in self.networks):
            return True
        return self.public and _is_public(ip)


def inner(ip: IpAddress) -> IpAddress:
    """The address that packets end up at: an IPv4 address wrapped in IPv6 is unwrapped."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip.sixtofour is not None:
        return ip.sixtofour
    if ip.teredo is not None:
        return ip.teredo[1]
    embeds = ip in _NAT64 or (ip in _COMPATIBLE and int(ip) > 1)
    return ipaddress.IPv4Address(int(ip) & _LOW_32_BITS) if embeds else ip


def _is_public(ip: IpAddress) -> bool:
    named = (text for texts in RANGES.values() for text in texts)
    if any(ip in ipaddress.ip_network(text) for text in named):
        return False
    # Site-local IPv6 (fec0::/10) was withdrawn, so libraries call it global; networks may not.
    withdrawn = isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local
    return ip.is_global and not ip.is_reserved and not withdrawn


class Found(TypedDict):
    """One address of a name."""

    host: str
    port: int
    family: int
    proto: int


class AllowedResolver:
    """Looks names up and hands back only the addresses that are allowed.

    The addresses it returns are the ones connected to: there is no second look-up between the
    check and the connection, so a name that changes its mind (DNS rebinding) gains nothing.
    """

    def __init__(self, rule: AddressRule) -> None:
        self._rule = rule

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[Found]:
        """Every allowed address of a name; AddressNotAllowed if it has none."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
        )
        allowed = [
            Found(host=str(where[0]), port=int(where[1]), family=kind, proto=proto)
            for kind, _, proto, _, where in found
            if self._rule.permits(str(where[0]))
        ]
        if not allowed:
            raise AddressNotAllowed(_sentence(host, {str(item[4][0]) for item in found}))
        return allowed


def _sentence(host: str, found: set[str]) -> str:
    numbers = ", ".join(sorted(found)) or "no address"
    return f"{host} leads to {numbers}, which the allowed addresses do not include"


SocketAddress = tuple[int | socket.AddressFamily, int, int, str, tuple[object, ...]]


def allowed_socket(rule: AddressRule, info: SocketAddress) -> socket.socket:
    """A socket for one address, if the rule permits it: the last gate, literals included."""
    family, kind, proto, _, where = info
    if not rule.permits(str(where[0])):
        raise AddressNotAllowed(_sentence(str(where[0]), {str(where[0])}))
    made = socket.socket(family, kind, proto)
    made.setblocking(False)
    return made
