"""Keys: made so that TLS and XML signatures take them, and so that nobody else can read them."""

import os
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from oncewire.entry.party.folder import KeyKind, describe_keys, is_private, make_keys
from oncewire.errors import InvalidValue, NotAllowed, NotHere
from oncewire.handler.world import RealWorld
from oncewire.message.instant import DAY
from oncewire.transport.contract import OutcomeKind
from oncewire.transport.http.client import HttpClientSettings
from oncewire.transport.http.tls import ClientCertificates, Identity, PeerTls, ServerTls
from tests.transport.exchange import LOOPBACK, Receiver, cargo, endpoint

NOW = RealWorld().now()


def test_the_private_key_is_ours_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        made = make_keys(tmp_path, "acme", now=NOW, kind=KeyKind.EC)
    finally:
        os.umask(old)
    assert made.key.stat().st_mode & 0o777 == 0o600
    assert made.certificate.stat().st_mode & 0o777 == 0o644
    assert is_private(made.key)
    assert not is_private(made.certificate)
    assert {path.name for path in tmp_path.iterdir()} == {"acme.key", "acme.crt"}


def test_an_existing_key_is_never_overwritten_by_accident(tmp_path: Path) -> None:
    first = make_keys(tmp_path, "acme", now=NOW, kind=KeyKind.EC)
    with pytest.raises(NotAllowed, match="exists already"):
        make_keys(tmp_path, "acme", now=NOW, kind=KeyKind.EC)
    assert describe_keys(first.certificate, first.key) == first
    second = make_keys(tmp_path, "acme", now=NOW, kind=KeyKind.EC, replace=True)
    assert second.fingerprint != first.fingerprint


@pytest.mark.parametrize("kind", KeyKind)
def test_what_the_certificate_says(tmp_path: Path, kind: KeyKind) -> None:
    made = make_keys(tmp_path, "acme", now=NOW, kind=kind, hosts=["a.example", "10.0.0.1"])
    shown = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a.example"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    assert not shown.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    expected = rsa.RSAPublicKey if kind is KeyKind.RSA else ec.EllipticCurvePublicKey
    assert isinstance(shown.public_key(), expected)
    assert made.subject == "CN=acme"
    assert 729 <= (made.not_after - NOW) // DAY <= 730


@pytest.mark.parametrize("kind", KeyKind)
async def test_two_parties_can_talk_over_mutual_tls_with_such_keys(
    tmp_path: Path, kind: KeyKind
) -> None:
    ours = make_keys(tmp_path, "acme", now=NOW, kind=kind)
    theirs = make_keys(tmp_path, "globex", now=NOW, kind=kind)
    server = ServerTls(
        Identity(theirs.certificate, theirs.key),
        ClientCertificates.REQUIRED,
        (ours.certificate.read_text(),),
    )
    pinned = PeerTls(Identity(ours.certificate, ours.key), pinned=(theirs.certificate.read_text(),))
    trusted = PeerTls(
        Identity(ours.certificate, ours.key), trusted=(theirs.certificate.read_text(),)
    )

    for tls in (pinned, trusted):
        receiver = Receiver()
        client = HttpClientSettings(addresses=LOOPBACK, default_tls=tls)
        async with endpoint(receiver, tls=server, client=client) as transport:
            outcome = await transport.send(cargo(b"<a/>"), transport.url, timeout=30)
        assert outcome.kind is OutcomeKind.SENT, outcome
        shown = receiver.taken[0].peer.certificate
        assert shown is not None
        assert x509.load_der_x509_certificate(shown).subject.rfc4514_string() == "CN=acme"


def test_files_that_are_wrong_are_named(tmp_path: Path) -> None:
    one = make_keys(tmp_path, "one", now=NOW, kind=KeyKind.EC)
    two = make_keys(tmp_path, "two", now=NOW, kind=KeyKind.EC)
    with pytest.raises(InvalidValue, match="is not the key of"):
        describe_keys(one.certificate, two.key)
    with pytest.raises(InvalidValue, match="no PEM certificate"):
        describe_keys(one.key, one.key)
    with pytest.raises(InvalidValue, match="no unencrypted PEM private key"):
        describe_keys(one.certificate, one.certificate)
    with pytest.raises(NotHere, match=r"none\.key"):
        describe_keys(one.certificate, tmp_path / "none.key")


def test_a_key_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match="cannot be written"):
        make_keys(tmp_path / "missing", "acme", now=NOW, kind=KeyKind.EC)
    assert list(tmp_path.iterdir()) == []
