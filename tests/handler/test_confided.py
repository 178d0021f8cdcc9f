"""Payloads that are signed and encrypted: ebMS 2.0 signs first, and either order is read.

The peer of these tests is another handler of ours under other words: what it writes is what
handlers of other makers write, the order and the key transport included.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.x509 import Certificate
from msgspec import structs

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.agreement.toml import read_toml
from oncewire.handler.context import Keys
from oncewire.handler.encryption import whole_parcel
from oncewire.message.envelope import Payload
from oncewire.message.form import Security
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from oncewire.wire.security import smime
from oncewire.wire.security.certificates import der_of
from oncewire.wire.security.encryption import EncryptionChoice, encrypt_part
from oncewire.wire.security.references import parse, read_references
from tests.handler.network import Network, agreement_text, options
from tests.handler.test_signed import pem
from tests.wire.security.keys import Identity, alpha, mallory

RSA_1_5 = "http://www.w3.org/2001/04/xmlenc#rsa-1_5"
OAEP = "http://www.w3.org/2001/04/xmlenc#rsa-oaep-mgf1p"
CBC = "http://www.w3.org/2001/04/xmlenc#aes256-cbc"
DS = "{http://www.w3.org/2000/09/xmldsig#}"


def people() -> dict[str, Identity]:
    return {"alpha": alpha("rsa"), "beta": mallory("rsa")}


def closed_pair(alpha_says: str = "", beta_says: str = "") -> Network:
    """Both sign and encrypt, each in the order and with the methods of its own words."""
    pair = Network.pair("ebms2")
    for own, partner, says in (("alpha", "beta", alpha_says), ("beta", "alpha", beta_says)):
        certificate = pem(people()[partner].certificate).replace("\n", "\\n")
        extra = (
            "[security]\nsign = true\nrequire_signature = true\nencrypt = true\n"
            f'partner_certificates = ["{certificate}"]\n{says}\n'
        )
        node = pair.engines[own].context
        node.agreements = Agreements([read_toml(agreement_text(own, partner, "ebms2", extra))])
        node.keys = Keys(people()[own].certificate, people()[own].key)
    return pair


def on_its_way(pair: Network) -> Parcel:
    """What alpha would send, while the network is down."""
    pair.lose_request = lambda post: True
    sent = pair.send()
    return pair.sent(sent.message_id)


def signed_digest(parcel: Parcel) -> bytes:
    """The digest that the signature has of the payload."""
    root = parse(codec.read(parcel).envelope)
    info = root.find(f".//{DS}SignedInfo")
    assert info is not None
    (found,) = [one.digest for one in read_references(info) if one.uri.startswith("cid:")]
    return found


def refusal(pair: Network, parcel: Parcel) -> tuple[int, str, str, str]:
    """Status, code, location and words of what the sender of a parcel is told on the spot."""
    answer = pair.deliver("beta", parcel)
    assert answer.parcel is not None
    told = codec.read(whole_parcel(pair.beta.context, answer.parcel)).message
    assert told.error_list is not None
    (error,) = told.error_list.errors
    return answer.status, error.code, error.location, error.description


def test_what_is_signed_is_the_document_and_not_its_cipher_text() -> None:
    parcel = on_its_way(closed_pair())
    assert b"order 1" not in parcel.body
    assert signed_digest(parcel) == hashlib.sha256(b"order 1").digest()


def test_the_other_order_is_written_where_it_is_agreed() -> None:
    parcel = on_its_way(closed_pair('order = "encrypt_first"'))
    (payload,) = codec.read(parcel).message.payloads
    assert signed_digest(parcel).hex() == payload.digest


@pytest.mark.parametrize("order", ["sign_first", "encrypt_first"])
@pytest.mark.parametrize("transport", [OAEP, RSA_1_5])
@pytest.mark.parametrize("method", ["http://www.w3.org/2009/xmlenc11#aes256-gcm", CBC])
def test_either_order_and_either_key_transport_is_read(
    order: str, transport: str, method: str
) -> None:
    agreed = f'encryption_algorithm = "{method}"\n'
    theirs = f'{agreed}order = "{order}"\nkey_transport = "{transport}"'
    pair = closed_pair(theirs, f"{agreed}allow_rsa_1_5 = true")
    sent = pair.send()
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.take() == [sent.message_id]
    assert pair.verify().clean


def test_rsa_1_5_is_read_only_where_the_agreement_allows_it() -> None:
    pair = closed_pair(f'key_transport = "{RSA_1_5}"')
    parcel = on_its_way(pair)
    assert refusal(pair, parcel)[1] == "SecurityFailure"
    assert pair.take() == []


def with_part(parcel: Parcel, content: bytes) -> Parcel:
    """The message with another last part; its header and signature as they were."""
    found = re.search(rb"<xenc:EncryptedData.*</xenc:EncryptedData>", parcel.body, re.DOTALL)
    assert found is not None
    body = parcel.body[: found.start()] + content + parcel.body[found.end() :]
    kept = tuple(header for header in parcel.headers if header[0] != "Content-Digest")
    return structs.replace(parcel, body=body, headers=kept)


def closed(content: bytes, key: str = "rsa-1_5") -> bytes:
    choice = EncryptionChoice("aes256-cbc", key)
    return encrypt_part(content, people()["beta"].certificate, "text/plain", choice)


def broken_key(document: bytes) -> bytes:
    """A wrapped key whose padding is wrong."""
    return re.sub(rb"(<xenc:CipherValue>)[A-Za-z0-9+/]{8}", rb"\1AAAAAAAA", document, count=1)


def cut_content(document: bytes) -> bytes:
    """Content of which the last block is missing: its padding is wrong."""
    head, mark, rest = document.rpartition(b"<xenc:CipherValue>")
    text, end, tail = rest.partition(b"</xenc:CipherValue>")
    return head + mark + text[:-64] + end + tail


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(closed(b"order 2"), id="opens, and is another document"),
        pytest.param(broken_key(closed(b"order 1")), id="its key cannot be unwrapped"),
        pytest.param(broken_key(closed(b"order 1", "rsa-oaep-mgf1p")), id="nor this one"),
        pytest.param(cut_content(closed(b"x" * 400)), id="its padding is wrong"),
        pytest.param(b"<xenc:EncryptedData>", id="it is no XML"),
    ],
)
def test_what_cannot_be_opened_is_answered_like_what_was_changed(part: bytes) -> None:
    """Whoever replaces the part of a captured message learns nothing of key or document."""
    said = f'encryption_algorithm = "{CBC}"\nallow_rsa_1_5 = true'
    pair = closed_pair(said, said)
    answer = refusal(pair, with_part(on_its_way(pair), part))
    assert answer == (
        200,
        "SecurityFailure",
        "",
        "the message does not prove who sent it, or is not what was agreed",
    )
    assert pair.take() == []


def test_nothing_is_opened_before_it_is_known_who_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A private key's work is not to be had for the asking."""
    pair = closed_pair()
    parcel = on_its_way(pair)
    opened: list[bytes] = []
    monkeypatch.setattr(
        "oncewire.handler.encryption.decrypt_part", lambda data, *rest: opened.append(data)
    )
    forged = re.sub(rb"(SignatureValue>)[A-Za-z0-9+/]{4}", rb"\1AAAA", parcel.body)
    kept = tuple(header for header in parcel.headers if header[0] != "Content-Digest")
    assert refusal(pair, structs.replace(parcel, body=forged, headers=kept))[1] == "SecurityFailure"
    assert opened == []


def secured(agreement: Agreement, security: Security) -> Agreement:
    """The agreement with that of its security, both ways."""
    ways = {
        name: replace(getattr(agreement, name), security=security)
        for name in ("sending", "receiving")
    }
    return replace(agreement, **ways)


@pytest.mark.parametrize("changed", [False, True])
def test_a_hub_checks_who_signed_what_it_cannot_open(changed: bool) -> None:
    """What is closed for the seller is the seller's to compare; what is open is the hub's too."""
    chain = Network.chain(options("ebms2", hops=2, hop_mode="transparent"), carrying=False)
    buyer, seller = alpha("rsa"), mallory("rsa")
    both = Security(sign=True, require_signature=True, encrypt=not changed)
    words = {
        "buyer": (structs.replace(both, partner_certificates=(der_of(seller.certificate),)),),
        "seller": (structs.replace(both, partner_certificates=(der_of(buyer.certificate),)),),
        "hub1": (
            Security(require_signature=True, partner_certificates=(der_of(buyer.certificate),)),
            Security(),
        ),
    }
    for name, securities in words.items():
        found = chain.agreements[name]
        pairs = zip(found, securities, strict=True)
        node = chain.start(name, Agreements(secured(*pair) for pair in pairs)).context
        person = seller if name == "seller" else buyer
        node.keys = Keys(person.certificate, person.key)
    order = chain.send(0).message_id
    name, post = chain.kept.pop()
    if changed:
        parcel = whole_parcel(chain.engines["buyer"].context, post.parcel)
        chain.deliver("hub1", Parcel(parcel.content_type, parcel.body.replace(b"order 0", b"X")))
        assert [row.kind for row in chain.rows(at="hub1")][-1] == "refused"
        return
    chain.carrying = True
    chain.carry(name, post)
    assert chain.state(order) is OutgoingState.DELIVERED


# --- S/MIME ---------------------------------------------------------------------------------------

SMIME = 'encryption_syntax = "smime"'


def test_an_envelope_is_what_travels_and_the_document_what_was_signed() -> None:
    parcel = on_its_way(closed_pair(SMIME, SMIME))
    (payload,) = codec.read(parcel).message.payloads
    assert payload.media_type.startswith("application/pkcs7-mime")
    assert b"order 1" not in parcel.body
    assert signed_digest(parcel) == hashlib.sha256(b"order 1").digest()


@pytest.mark.parametrize("order", ["sign_first", "encrypt_first"])
def test_a_document_in_an_envelope_arrives_as_it_was_meant(order: str) -> None:
    pair = closed_pair(f'{SMIME}\norder = "{order}"', SMIME)
    sent = pair.send()
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.take() == [sent.message_id]
    assert pair.verify().clean


# --- names ----------------------------------------------------------------------------------------


def send_named(pair: Network, name: str) -> str:
    """alpha sends a document that is called so; returns what beta's application calls it."""
    named = Payload.of("order-1", "text/plain", b"order 1", name)
    pair.send(payloads=(named,), message_id="n@alpha", conversation_id=None)
    (offer,) = pair.beta.hand_over(10, 60_000_000)
    (payload,) = offer.payloads
    assert payload.data == b"order 1"
    return payload.file_name


@pytest.mark.parametrize("order", ["sign_first", "encrypt_first"])
@pytest.mark.parametrize("syntax", ["xml", "smime"])
@pytest.mark.parametrize("name", ["order-1.xml", "Größe 7.xml"])
def test_an_encrypted_document_keeps_its_name(name: str, syntax: str, order: str) -> None:
    says = f'encryption_syntax = "{syntax}"\norder = "{order}"'
    assert send_named(closed_pair(says, says), name) == name


def test_the_name_of_encrypted_xml_stands_on_its_part_as_other_handlers_write_it() -> None:
    """XML Encryption has no place for it; a handler that knows no filename* reads the other."""
    pair = closed_pair()
    pair.lose_request = lambda post: True
    named = Payload.of("order-1", "text/plain", b"order 1", "Größe.xml")
    (payload,) = codec.read(pair.order(payloads=(named,))).message.payloads
    assert payload.mime_headers == (
        (
            "Content-Disposition",
            "attachment; filename=\"Gr__e.xml\"; filename*=UTF-8''Gr%C3%B6%C3%9Fe.xml",
        ),
    )


def test_the_name_of_an_envelope_is_inside_and_one_outside_is_read_too() -> None:
    """Inside nobody on the way sees it; older handlers write it outside."""
    owner = people()["beta"]
    inside = smime.envelop(b"x", "text/plain", owner.certificate, "order-1.xml")
    assert smime.open_envelope(inside, owner.certificate, owner.key).file_name == "order-1.xml"
    pair = closed_pair(SMIME, SMIME)
    parcel = on_its_way(pair)
    assert b"Content-Disposition" not in parcel.body
    head = b"smime-type=enveloped-data\r\n"
    named = parcel.body.replace(
        head, head + b'Content-Disposition: attachment; filename="order-1.xml"\r\n'
    )
    kept = tuple(header for header in parcel.headers if header[0] != "Content-Digest")
    pair.deliver("beta", structs.replace(parcel, body=named, headers=kept))
    (offer,) = pair.beta.hand_over(10, 60_000_000)
    assert [payload.file_name for payload in offer.payloads] == ["order-1.xml"]


@pytest.mark.parametrize("harm", ["no envelope", "changed", "for somebody else"])
def test_what_is_not_in_the_agreed_envelope_is_refused(harm: str) -> None:
    pair = closed_pair("" if harm == "no envelope" else SMIME, SMIME)
    parcel = on_its_way(pair)
    (payload,) = codec.read(parcel).message.payloads
    assert payload.data is not None
    other = payload.data
    if harm == "changed":
        other = other[:-5] + bytes((other[-5] ^ 1,)) + other[-4:]
    elif harm == "for somebody else":
        other = smime.envelop(b"order 1", "text/plain", people()["alpha"].certificate)
    kept = tuple(header for header in parcel.headers if header[0] != "Content-Digest")
    parcel = structs.replace(parcel, body=parcel.body.replace(payload.data, other), headers=kept)
    assert refusal(pair, parcel)[1] == "SecurityFailure"
    assert pair.take() == []


@pytest.mark.process
@pytest.mark.parametrize("how", [("-des3", "-stream"), ("-camellia256",)])
@pytest.mark.requirement("TRN-3")
def test_an_envelope_of_an_old_handler_is_read_and_one_of_a_strange_kind_ends_nothing(
    how: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Norway's handlers close it: triple DES, in pieces."""
    pair = closed_pair(SMIME, SMIME)

    def others(content: bytes, media_type: str, recipient: Certificate, _name: str) -> bytes:
        (tmp_path / "crt").write_text(pem(recipient))
        part = f"Content-Type: {media_type}\r\n\r\n".encode() + content
        tool = ["openssl", "cms", "-encrypt", "-binary", *how, "-outform", "DER", "crt"]
        done = subprocess.run(tool, cwd=tmp_path, input=part, capture_output=True, check=True)
        return done.stdout

    monkeypatch.setattr(smime, "envelop", others)
    sent = pair.send()
    known = "-des3" in how
    assert (pair.state(sent.message_id) is OutgoingState.DELIVERED) == known
    assert pair.take() == ([sent.message_id] if known else [])
    monkeypatch.undo()
    after = pair.send(2)
    assert pair.state(after.message_id) is OutgoingState.DELIVERED
    assert pair.take() == [after.message_id]
