"""URLs that point inwards never become a connection, however they are spelled."""

import asyncio
import ipaddress
import random
import socket
from collections.abc import Iterator

import pytest

from oncewire.errors import InvalidValue
from oncewire.transport.contract import OutcomeKind
from oncewire.transport.http.address import (
    AddressNotAllowed,
    AddressRule,
    AllowedResolver,
    allowed_socket,
    inner,
)
from oncewire.transport.http.client import HttpClient, HttpClientSettings
from tests.transport.exchange import cargo

SEED = 41_018


def spellings(address: str) -> Iterator[str]:
    """The ways in which tools and people write one IPv4 address."""
    a, b, c, d = (int(part) for part in address.split("."))
    number = int(ipaddress.IPv4Address(address))
    yield address
    yield f"{number}"
    yield f"0x{number:x}"
    yield f"0{number:o}"
    yield f"{a}.{(b << 16) + (c << 8) + d}"
    yield f"{a}.{b}.{(c << 8) + d}"
    yield f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"
    yield f"0{a:o}.0{b:o}.0{c:o}.0{d:o}"
    yield f"[::ffff:{address}]"
    yield f"[::ffff:{number >> 16:x}:{number & 0xFFFF:x}]"
    yield f"[::{address}]"
    yield f"[64:ff9b::{address}]"
    yield f"[2002:{number >> 16:x}:{number & 0xFFFF:x}::1]"
    yield f"{address}."


INWARD = ["127.0.0.1", "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "0.0.0.0"]
INWARD += ["100.64.1.1", "127.8.9.10", "255.255.255.255", "224.0.0.1", "240.0.0.1", "198.18.0.1"]
NAMES = ["localhost", "LOCALHOST", "localhost.", "localhost.localdomain", "ip6-localhost"]
SIX = ["::1", "::", "fe80::1", "fc00::1", "fd12:3456::1", "ff02::1", "2001:db8::1", "::ffff:0:0"]
SIX += ["fec0::1", "2001:0:4136:e378:8000:63bf:80ff:fffe"]


def corpus() -> list[str]:
    chance = random.Random(SEED)
    hosts = [spelled for address in INWARD for spelled in spellings(address)]
    hosts += NAMES + [f"[{address}]" for address in SIX]
    while len(hosts) < 220:
        network = ipaddress.ip_network(
            chance.choice(["127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"])
        )
        offset = chance.randrange(network.num_addresses)
        hosts.append(chance.choice(list(spellings(str(network[offset])))))
    return [f"{chance.choice(['http', 'https'])}://{host}:1/msh" for host in hosts]


async def test_no_inward_url_of_the_corpus_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = corpus()
    print(f"seed {SEED}, {len(urls)} URLs")
    assert len(urls) >= 200
    connected: list[object] = []
    made = socket.socket

    class Watched(made):
        def connect(self, where: object) -> None:
            connected.append(where)
            raise ConnectionRefusedError

    monkeypatch.setattr(socket, "socket", Watched)

    loop = asyncio.get_running_loop()

    async def watched(sock: socket.socket, where: object) -> None:
        connected.append(where)
        raise ConnectionRefusedError

    monkeypatch.setattr(loop, "sock_connect", watched)
    client = HttpClient(HttpClientSettings())
    await client.start()
    for url in urls:
        outcome = await client.send(cargo(b"<a/>"), url, timeout=30)
        assert outcome.kind is OutcomeKind.REFUSED, url
        assert outcome.reason, url
    # The watch itself works: an allowed address reaches the connect call.
    outcome = await client.send(cargo(b"<a/>"), "http://1.1.1.1:1/", timeout=30)
    assert outcome.kind is OutcomeKind.REFUSED
    await client.close()
    assert connected == [("1.1.1.1", 1)]


@pytest.mark.parametrize(
    "url",
    ["http://user:secret@1.1.1.1:1/", "ftp://1.1.1.1/", "file:///etc/passwd", "http:///x", "//x/y"],
)
async def test_other_urls_are_refused_without_telling_secrets(url: str) -> None:
    client = HttpClient(HttpClientSettings())
    await client.start()
    outcome = await client.send(cargo(b"<a/>"), url, timeout=30)
    await client.close()
    assert outcome.kind is OutcomeKind.REFUSED
    assert "secret" not in outcome.reason


async def test_a_name_that_changes_its_mind_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # First look-up outwards, second inwards: only what was looked up and allowed is connected to.
    answers = iter(["1.1.1.1", "127.0.0.1", "127.0.0.1"])
    connected: list[object] = []

    loop = asyncio.get_running_loop()

    async def looked_up(host: str, port: int, **_: object) -> list[object]:
        address = host if host[0].isdigit() else next(answers)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async def connect(sock: socket.socket, where: object) -> None:
        connected.append(where)
        raise ConnectionRefusedError

    monkeypatch.setattr(loop, "getaddrinfo", looked_up)
    monkeypatch.setattr(loop, "sock_connect", connect)
    client = HttpClient(HttpClientSettings())
    await client.start()
    first = await client.send(cargo(b"x"), "http://rebind.example:80/", timeout=30)
    # Another port is another look-up, past the short cache of names.
    second = await client.send(cargo(b"x"), "http://rebind.example:81/", timeout=30)
    await client.close()
    assert first.kind is second.kind is OutcomeKind.REFUSED
    assert "127.0.0.1" in second.reason
    assert "rebind.example leads to 127.0.0.1" in second.reason
    assert connected == [("1.1.1.1", 80)]


async def test_a_name_with_good_and_bad_addresses_leads_to_the_good_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()

    async def looked_up(host: str, port: int, **_: object) -> list[object]:
        found = ["127.0.0.1", "8.8.8.8", "10.0.0.1"]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in found]

    monkeypatch.setattr(loop, "getaddrinfo", looked_up)
    found = await AllowedResolver(AddressRule()).resolve("x.example", 80)
    assert [item["host"] for item in found] == ["8.8.8.8"]
    with pytest.raises(AddressNotAllowed, match=r"10\.0\.0\.1"):
        await AllowedResolver(AddressRule.of(["link-local"])).resolve("x.example", 80)


@pytest.mark.parametrize(
    ("names", "address", "allowed"),
    [
        (["public"], "8.8.8.8", True),
        (["public"], "2606:4700:4700::1111", True),
        (["public"], "127.0.0.1", False),
        (["public"], "169.254.169.254", False),
        (["public"], "::ffff:8.8.8.8", True),
        (["public"], "fe80::1%lo", False),
        (["public"], "not an address", False),
        (["loopback"], "127.0.0.1", True),
        (["loopback"], "127.255.1.2", True),
        (["loopback"], "::1", True),
        (["loopback"], "::ffff:127.0.0.1", True),
        (["loopback"], "8.8.8.8", False),
        (["private"], "10.2.3.4", True),
        (["private"], "fd00::1", True),
        (["private"], "127.0.0.1", False),
        (["private"], "169.254.1.1", False),
        (["link-local"], "169.254.169.254", True),
        (["link-local"], "fe80::1%eth0", True),
        (["10.1.0.0/16"], "10.1.2.3", True),
        (["10.1.0.0/16"], "10.2.2.3", False),
        (["10.1.0.0/16"], "::ffff:10.1.2.3", True),
        (["0.0.0.0/0"], "224.0.0.1", False),
        (["0.0.0.0/0"], "0.0.0.0", False),
        ([], "8.8.8.8", False),
        ([" Public ", "LOOPBACK"], "127.0.0.1", True),
    ],
)
def test_the_rule_permits(names: list[str], address: str, allowed: bool) -> None:
    assert AddressRule.of(names).permits(address) is allowed


@pytest.mark.parametrize("name", ["", "everything", "10.0.0.1/8", "300.0.0.0/8", "::/200"])
def test_a_range_that_is_none_is_refused_with_the_words_to_use(name: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        AddressRule.of([name])
    assert "loopback" in caught.value.remedy


def test_an_address_inside_an_address_is_what_counts() -> None:
    hidden = ipaddress.IPv4Address("10.0.0.1")
    for text in ("::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:a00:1::5", "::10.0.0.1"):
        assert inner(ipaddress.ip_address(text)) == hidden
    assert inner(hidden) == hidden
    assert inner(ipaddress.ip_address("::1")) == ipaddress.ip_address("::1")


def test_the_last_gate_stands_at_the_socket() -> None:
    with pytest.raises(AddressNotAllowed):
        allowed_socket(
            AddressRule(), (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))
        )
