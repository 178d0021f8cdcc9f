"""TLS both ways: right and wrong certificates, over real handshakes."""

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from oncewire.errors import TransportProblem
from oncewire.transport.contract import AttemptOutcome, OutcomeKind
from oncewire.transport.http.client import HttpClient, HttpClientSettings
from oncewire.transport.http.server import HttpLimits, HttpServerSettings
from oncewire.transport.http.tls import (
    ClientCertificates,
    Identity,
    PeerTls,
    ServerTls,
    client_context,
    pins,
    server_context,
)
from oncewire.transport.http.transport import HttpTransport
from tests.transport.exchange import (
    LOOPBACK,
    Certificates,
    Receiver,
    cargo,
    der,
    endpoint,
    once,
    port_of,
    post,
    talk,
)


@pytest.fixture
def world(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


async def exchange(
    server: ServerTls, client: HttpClientSettings
) -> tuple[AttemptOutcome, Receiver]:
    receiver = Receiver()
    async with endpoint(receiver, tls=server) as transport:
        return await once(transport.url, settings=client), receiver


def pem(identity: Identity) -> str:
    return identity.certificate.read_text()


async def test_a_trusted_server_is_talked_to(world: Certificates) -> None:
    outcome, receiver = await exchange(world.server(), world.client())
    assert outcome.kind is OutcomeKind.SENT
    assert receiver.taken[0].peer.certificate is None


async def test_the_client_certificate_is_handed_on(world: Certificates) -> None:
    ours = world.identity("buyer.example")
    server = world.server(clients=ClientCertificates.REQUIRED)
    outcome, receiver = await exchange(server, world.client(identity=ours))
    assert outcome.kind is OutcomeKind.SENT
    assert receiver.taken[0].peer.certificate == der(ours)


async def test_a_certificate_that_is_trusted_no_more_opens_nothing(world: Certificates) -> None:
    """Nor does a connection outlive it that was made while it was trusted."""
    server = world.server(clients=ClientCertificates.REQUIRED)
    both = replace(server, trusted=(world.pem, world.stranger.cert_pem.bytes().decode()))
    kept, gone = world.identity("kept"), world.identity("gone", authority=world.stranger)

    receiver = Receiver()
    async with endpoint(receiver, tls=both) as transport:
        clients = [HttpClient(world.client(identity=one)) for one in (kept, gone)]
        for client in clients:
            await client.start()
        before = [await client.send(cargo(b"a"), transport.url, timeout=30) for client in clients]
        assert [one.kind for one in before] == [OutcomeKind.SENT, OutcomeKind.SENT]
        transport.renew(HttpServerSettings(tls=server), world.client())
        after = [await client.send(cargo(b"b"), transport.url, timeout=30) for client in clients]
        assert [one.kind is OutcomeKind.SENT for one in after] == [True, False]
        assert [one.body for one in receiver.taken] == [b"a", b"a", b"b"]
        for client in clients:
            await client.close()


async def test_an_optional_certificate_may_be_missing(world: Certificates) -> None:
    server = world.server(clients=ClientCertificates.OPTIONAL)
    outcome, receiver = await exchange(server, world.client())
    assert outcome.kind is OutcomeKind.SENT
    assert receiver.taken[0].peer.certificate is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("wrong", ["missing", "stranger", "expired"])
async def test_a_wrong_client_certificate_is_refused(
    world: Certificates, wrong: str, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = {
        "missing": None,
        "stranger": world.identity("buyer.example", authority=world.stranger),
        "expired": world.identity("buyer.example", expired=True),
    }[wrong]
    server = world.server(clients=ClientCertificates.REQUIRED)

    def limited(tls: PeerTls) -> ssl.SSLContext:
        context = client_context(tls)
        context.maximum_version = version
        return context

    monkeypatch.setattr("oncewire.transport.http.client.client_context", limited)
    outcome, receiver = await exchange(server, world.client(identity=identity))
    assert not receiver.taken
    if version is ssl.TLSVersion.TLSv1_2:
        assert outcome.kind is OutcomeKind.REFUSED
    else:
        # In TLS 1.3 the server's refusal may be overtaken by the reset of our own request.
        assert outcome.kind is not OutcomeKind.SENT
    assert outcome.reason


@pytest.mark.parametrize("wrong", ["stranger", "expired", "name"])
async def test_a_wrong_server_certificate_is_refused_before_the_first_byte(
    world: Certificates, wrong: str
) -> None:
    shown = {
        "stranger": world.identity("localhost", authority=world.stranger),
        "expired": world.identity("localhost", expired=True),
        "name": _named_elsewhere(world),
    }[wrong]
    outcome, receiver = await exchange(world.server(identity=shown), world.client())
    assert outcome.kind is OutcomeKind.REFUSED
    assert "certificate" in outcome.reason
    assert not receiver.taken


def _named_elsewhere(world: Certificates) -> Identity:
    made = world.authority.issue_cert("elsewhere.example")
    certificate, key = world.folder / "elsewhere.crt", world.folder / "elsewhere.key"
    certificate.write_bytes(made.cert_chain_pems[0].bytes())
    key.write_bytes(made.private_key_pem.bytes())
    return Identity(certificate, key)


async def test_a_pinned_certificate_is_enough_whatever_its_name(world: Certificates) -> None:
    theirs = _named_elsewhere(world)
    client = HttpClientSettings(addresses=LOOPBACK, default_tls=PeerTls(pinned=(pem(theirs),)))
    outcome, receiver = await exchange(world.server(identity=theirs), client)
    assert outcome.kind is OutcomeKind.SENT
    assert receiver.taken


async def test_during_a_roll_over_two_certificates_are_pinned(world: Certificates) -> None:
    old, new = world.identity("localhost"), world.identity("localhost")
    tls = PeerTls(pinned=(pem(old), pem(new)))
    client = HttpClientSettings(addresses=LOOPBACK, default_tls=tls)
    for shown in (old, new):
        outcome, _ = await exchange(world.server(identity=shown), client)
        assert outcome.kind is OutcomeKind.SENT


async def test_another_certificate_of_the_same_authority_is_not_the_pinned_one(
    world: Certificates,
) -> None:
    pinned, shown = world.identity("localhost"), world.identity("localhost")
    tls = PeerTls(trusted=(world.pem,), pinned=(pem(pinned),))
    client = HttpClientSettings(addresses=LOOPBACK, default_tls=tls)
    outcome, receiver = await exchange(world.server(identity=shown), client)
    assert outcome.kind is OutcomeKind.REFUSED
    assert "pinned" in outcome.reason
    assert not receiver.taken


async def test_an_expired_certificate_is_refused_even_if_pinned(world: Certificates) -> None:
    theirs = world.identity("localhost", expired=True)
    client = HttpClientSettings(addresses=LOOPBACK, default_tls=PeerTls(pinned=(pem(theirs),)))
    outcome, receiver = await exchange(world.server(identity=theirs), client)
    assert outcome.kind is OutcomeKind.REFUSED
    assert not receiver.taken


@pytest.mark.parametrize("by", ["pin", "authority"])
async def test_a_certificate_that_is_withdrawn_gets_nothing_whoever_vouches_for_it(
    world: Certificates, by: str
) -> None:
    theirs = world.identity("localhost")
    tls = PeerTls(pinned=(pem(theirs),)) if by == "pin" else PeerTls(trusted=(world.pem,))
    gone = der(theirs)
    client = HttpClientSettings(
        addresses=LOOPBACK, default_tls=tls, withdrawn=lambda shown: shown == gone
    )
    outcome, receiver = await exchange(world.server(identity=theirs), client)
    assert outcome.kind is OutcomeKind.REFUSED
    assert "revoked" in outcome.reason
    assert not receiver.taken


async def test_trust_is_per_address(world: Certificates) -> None:
    receiver = Receiver()
    async with endpoint(receiver, tls=world.server()) as transport:
        origin = transport.url.removesuffix("/msh")
        client = HttpClient(HttpClientSettings(addresses=LOOPBACK))
        await client.start()
        # The system's authorities do not know our test authority.
        before = await client.send(cargo(b"x"), transport.url, timeout=30)
        client.set_peer(origin, PeerTls(trusted=(world.pem,)))
        after = await client.send(cargo(b"x"), transport.url, timeout=30)
        stranger = world.stranger.cert_pem.bytes().decode()
        client.set_peer(transport.url, PeerTls(trusted=(stranger,)))
        whole_url = await client.send(cargo(b"x"), transport.url, timeout=30)
        await client.close()
    kinds = (before.kind, after.kind, whole_url.kind)
    assert kinds == (OutcomeKind.REFUSED, OutcomeKind.SENT, OutcomeKind.REFUSED)


async def test_plain_http_on_a_tls_port_and_tls_on_a_plain_port(world: Certificates) -> None:
    receiver = Receiver()
    async with endpoint(receiver, tls=world.server()) as transport:
        assert b"204" not in await talk(transport.url, post(b"<a/>"))
        assert not receiver.taken
    async with endpoint(receiver) as transport:
        url = transport.url.replace("http:", "https:")
        outcome = await once(url, settings=world.client())
        assert outcome.kind is OutcomeKind.REFUSED
        assert not receiver.taken


async def test_a_handshake_that_never_ends_is_given_up(world: Certificates) -> None:
    limits = HttpLimits(handshake_wait=0.3)
    async with endpoint(Receiver(), tls=world.server(), limits=limits) as transport:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
        writer.write(b"\x16\x03\x01")
        while not transport.connections:
            await asyncio.sleep(0.01)
        while transport.connections:
            await asyncio.sleep(0.01)
        writer.close()


async def test_failed_handshakes_do_not_take_places(world: Certificates) -> None:
    limits = HttpLimits(connections=5)
    receiver = Receiver()
    async with endpoint(receiver, tls=world.server(), limits=limits) as transport:
        for _ in range(20):
            await talk(transport.url, b"GET / HTTP/1.0\r\n\r\n")
        assert (await once(transport.url, settings=world.client())).kind is OutcomeKind.SENT


# --- files and texts that are wrong ------------------------------------------------------------


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    identity = Identity(tmp_path / "no.crt", tmp_path / "no.key")
    with pytest.raises(TransportProblem, match=r"no\.crt"):
        server_context(ServerTls(identity))


def test_a_key_that_does_not_belong_is_named(world: Certificates) -> None:
    mixed = Identity(world.identity("a.example").certificate, world.identity("b.example").key)
    with pytest.raises(TransportProblem, match="cannot be used") as caught:
        client_context(PeerTls(identity=mixed))
    assert "belong together" in caught.value.remedy


def test_asking_for_certificates_without_trust_is_refused(world: Certificates) -> None:
    tls = ServerTls(world.identity("localhost"), ClientCertificates.REQUIRED)
    with pytest.raises(TransportProblem, match="no certificate is trusted"):
        server_context(tls)


@pytest.mark.parametrize("text", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nxx\n"])
def test_a_text_that_is_no_certificate_is_refused(text: str) -> None:
    with pytest.raises(TransportProblem):
        client_context(PeerTls(trusted=(text,)))
    with pytest.raises(TransportProblem):
        pins(PeerTls(pinned=(text,)))


async def test_a_transport_with_a_bad_certificate_does_not_start(tmp_path: Path) -> None:
    bad = Identity(tmp_path / "no.crt", tmp_path / "no.key")

    transport = HttpTransport(HttpServerSettings(tls=ServerTls(bad)))
    with pytest.raises(TransportProblem):
        await transport.start(Receiver())


async def test_a_server_that_closes_during_the_handshake_is_said_to(world: Certificates) -> None:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.close()

    server = await asyncio.start_server(closing, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        outcome = await once(f"https://127.0.0.1:{port}/msh", settings=world.client())
    assert outcome.kind is OutcomeKind.REFUSED
    assert not outcome.reason.rstrip().endswith(":"), outcome
    assert "closed" in outcome.reason or "reset" in outcome.reason.lower()
