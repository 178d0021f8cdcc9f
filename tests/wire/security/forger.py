"""Makes forged messages out of good ones: every wrapping, every swap, in every place.

A forger has a good message of the partner and its own key, and knows all certificates; it lacks the
partner's private key. Each forgery says EVIL somewhere a careless reader would look.
"""

import base64
import copy
import hashlib
import hmac
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import serialization
from lxml import etree

from oncewire.wire.security import algorithms, references
from oncewire.wire.security import signature as signing
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice
from tests.wire.security import documents, keys, reference_engine
from tests.wire.security.documents import DS, EB, NEXT, NEXT_MSH, PART, PART_ID, SOAP

EVIL_PART = b"<order><line>EVIL</line></order>"
_ACTOR = f"{{{SOAP}}}actor"
XLINK_HREF = "{http://www.w3.org/1999/xlink}href"


@dataclass(frozen=True)
class Forgery:
    """A message nobody of the partner's signed, and how it was made."""

    how: str
    envelope: bytes
    parts: list[PartDigests] = field(default_factory=lambda: [good_part()])


def good_part(content_id: str = PART_ID, content: bytes = PART) -> PartDigests:
    return PartDigests.of(content_id, content, *algorithms.DIGEST_URIS)


def good_messages() -> dict[str, bytes]:
    """Messages as four partners would sign them."""
    who = keys.alpha()

    def ours(extra: str, canonical: str, description: str = "") -> bytes:
        choice = SigningChoice("ecdsa-sha256", canonicalization=canonical)
        given = documents.envelope(extra, padding=description)
        return signing.sign(given, [good_part()], who.key, who.certificate, choice).envelope

    template = documents.template(
        documents.XPATH,
        documents.INCLUSIVE,
        signature=algorithms.SIGNATURE_URIS["ecdsa-sha256"],
        parts=(f"cid:{PART_ID}",),
        prefix="",
    )
    theirs = reference_engine.sign(
        documents.envelope(template), who.key_pem, {f"cid:{PART_ID}": PART}
    )
    return {
        "plain": ours("", "c14n"),
        "hops": ours(documents.HOP_BLOCKS, "c14n"),
        "exclusive": ours(documents.HOP_BLOCKS, "exc-c14n"),
        "theirs": theirs,
    }


# --- evil blocks ---------------------------------------------------------------------------------

_EVIL_BLOCKS = {
    "MessageHeader": (
        "<eb:MessageHeader SOAP:mustUnderstand='1' eb:version='2.0'><eb:From><eb:PartyId>EVIL"
        "</eb:PartyId></eb:From><eb:MessageData><eb:MessageId>EVIL</eb:MessageId></eb:MessageData>"
        "</eb:MessageHeader>"
    ),
    "Manifest": (
        "<eb:Manifest eb:version='2.0'><eb:Reference xlink:href='cid:EVIL'/></eb:Manifest>"
    ),
    "MessageOrder": (
        "<eb:MessageOrder eb:version='2.0'><eb:SequenceNumber>666</eb:SequenceNumber>"
        "<eb:Description>EVIL</eb:Description></eb:MessageOrder>"
    ),
    "ErrorList": (
        "<eb:ErrorList eb:version='2.0' eb:highestSeverity='Error'><eb:Error eb:errorCode='EVIL' "
        "eb:severity='Error'/></eb:ErrorList>"
    ),
    "StatusRequest": (
        "<eb:StatusRequest eb:version='2.0'><eb:RefToMessageId>EVIL</eb:RefToMessageId>"
        "</eb:StatusRequest>"
    ),
    "Body": "<SOAP:Body><eb:Manifest eb:version='2.0'><eb:Reference xlink:href='cid:EVIL'/>"
    "</eb:Manifest></SOAP:Body>",
}


def _block(name: str, actor: str | None = None) -> etree._Element:
    element = etree.fromstring(
        f"<r xmlns:SOAP='{SOAP}' xmlns:eb='{EB}' xmlns:xlink='http://www.w3.org/1999/xlink'>"
        f"{_EVIL_BLOCKS[name]}</r>"
    )[0]
    if actor:
        element.set(_ACTOR, actor)
    return element


def _find(root: etree._Element, name: str) -> etree._Element:
    found = root.find(f".//{{*}}{name}")
    assert found is not None, name
    return found


def _octets(root: etree._Element) -> bytes:
    return etree.tostring(root.getroottree(), encoding="utf-8", xml_declaration=True)


# --- XSW 1 to 8 ----------------------------------------------------------------------------------


def _object(signature: etree._Element, inner: etree._Element) -> None:
    holder = etree.SubElement(signature, f"{{{DS}}}Object")
    holder.append(inner)


def _evil_copy(element: etree._Element) -> etree._Element:
    """The element as the forger wants it read: every text that is an id or a name says EVIL."""
    clone = copy.deepcopy(element)
    clone.tail = None
    for inner in clone.iter(etree.Element):
        if inner.text and inner.text.strip():
            inner.text = "EVIL"
        if inner.get(XLINK_HREF) is not None:
            inner.set(XLINK_HREF, "cid:EVIL")
    return clone


def _wrap(root: etree._Element, number: int, name: str, actor: str | None) -> None:
    """Rearrange the tree so that the signed block and the read block are two."""
    block, signature = _find(root, name), _find(root, "Signature")
    parent = block.getparent()
    assert parent is not None
    evil = _evil_copy(block)
    if actor:
        evil.set(_ACTOR, actor)
    place = parent.index(block)
    if number == 1:  # the signature keeps the original inside itself
        parent.replace(block, evil)
        _object(signature, block)
    elif number == 2:  # the original stands beside the signature
        parent.replace(block, evil)
        signature.addnext(block)
    elif number == 3:  # the evil one comes first
        parent.insert(place, evil)
    elif number == 4:  # the evil one holds the original
        parent.replace(block, evil)
        evil.append(block)
    elif number == 5:  # the evil one holds the signature, the original goes last
        parent.replace(block, evil)
        evil.append(copy.deepcopy(signature))
        root.append(block)
    elif number == 6:  # the signature inside the evil one holds the original
        parent.replace(block, evil)
        evil.append(signature)
        signature.append(block)
    elif number == 7:  # an unknown header block holds the evil one
        holder = etree.Element("{urn:forger}Extensions")
        if actor:
            holder.set(_ACTOR, actor)
        holder.append(evil)
        parent.insert(place, holder)
    else:  # an object in the signature holds both
        holder = etree.SubElement(signature, f"{{{DS}}}Object")
        holder.append(copy.deepcopy(block))
        parent.insert(place, evil)


def _wrapped(goods: dict[str, bytes]) -> Iterator[Forgery]:
    for good, envelope in goods.items():
        for number in range(1, 9):
            for name in ("MessageHeader", "Manifest", "MessageData", "AckRequested"):
                for actor in (None, NEXT_MSH, NEXT):
                    if name == "AckRequested" and actor is not None:
                        continue  # such a block may stand unsigned by the standard
                    root = etree.fromstring(envelope)
                    _wrap(root, number, name, actor)
                    yield Forgery(f"XSW{number} {name} {actor} on {good}", _octets(root))


# --- one more block somewhere --------------------------------------------------------------------

_PLACES: dict[str, Callable[[etree._Element, etree._Element], None]] = {
    "first in Header": lambda root, new: root[0].insert(0, new),
    "last in Header": lambda root, new: root[0].append(new),
    "first in Body": lambda root, new: root[1].insert(0, new),
    "last in Body": lambda root, new: root[1].append(new),
    "before Header": lambda root, new: root.insert(0, new),
    "after Body": lambda root, new: root.append(new),
    "in MessageHeader": lambda root, new: _find(root, "MessageHeader").append(new),
    "in Manifest": lambda root, new: _find(root, "Manifest").append(new),
    "in AckRequested": lambda root, new: _find(root, "AckRequested").append(new),
    "in KeyInfo": lambda root, new: _find(root, "X509Data").append(new),
    "in Signature": lambda root, new: _find(root, "Signature").append(new),
    "in SignatureValue": lambda root, new: _find(root, "SignatureValue").append(new),
}


def _inserted(goods: dict[str, bytes]) -> Iterator[Forgery]:
    for good, envelope in goods.items():
        for place, insert in _PLACES.items():
            if place == "in KeyInfo" and good == "theirs":
                continue  # that partner sends none
            for name in _EVIL_BLOCKS:
                for actor in (None, NEXT_MSH, NEXT):
                    root = etree.fromstring(envelope)
                    insert(root, _block(name, actor))
                    yield Forgery(f"{name} {actor} {place} of {good}", _octets(root))


def _inside_hop_blocks(goods: dict[str, bytes]) -> Iterator[Forgery]:
    """Evil blocks under a block that may stand unsigned, and unknown blocks that claim to."""
    for name in _EVIL_BLOCKS:
        for holder in ("SyncReply", "HopSequence", "AckRequested[@eb:signed='false']"):
            root = etree.fromstring(goods["hops"])
            (found,) = root.xpath(f"//*[local-name()='{holder.split('[')[0]}'][last()]")[-1:]
            found.append(_block(name))
            yield Forgery(f"{name} inside {holder}", _octets(root))
        for actor in (NEXT_MSH, NEXT):
            root = etree.fromstring(goods["plain"])
            holder_element = etree.SubElement(root[0], "{urn:forger}Hop")
            holder_element.set(_ACTOR, actor)
            holder_element.append(_block(name))
            yield Forgery(f"{name} inside an unknown hop block for {actor}", _octets(root))
            root = etree.fromstring(goods["hops"])
            again = copy.deepcopy(_find(root, "SyncReply"))
            again.set("{urn:forger}note", "EVIL")
            again.tail = None
            root[0].append(again)
            yield Forgery(f"a second SyncReply, {name} {actor}", _octets(root))


def _actor_added(goods: dict[str, bytes]) -> Iterator[Forgery]:
    """Hide a signed element by its own attribute, with an evil one in its place."""
    for good, envelope in goods.items():
        for name in ("MessageHeader", "From", "MessageId", "Manifest", "Reference", "Action"):
            for actor in (NEXT_MSH, NEXT):
                root = etree.fromstring(envelope)
                signed = _find(root, name)
                signed.addprevious(_evil_copy(signed))
                signed.set(_ACTOR, actor)
                yield Forgery(f"{name} of {good} hidden for {actor}", _octets(root))


# --- keys and algorithms -------------------------------------------------------------------------


def _evil(envelope: bytes) -> bytes:
    return envelope.replace(b"m-1001@alpha.example", b"EVIL@alpha.example")


def _rewritten(envelope: bytes, secret_value: Callable[[bytes], bytes], method: str) -> bytes:
    """Evil content under fresh digests, with a signature value of the forger's making."""
    evil = _evil(envelope)
    root = references.parse(evil)
    signature = _find(root, "Signature")
    octets = references.document_octets(root, [*references.EBMS2.subtrees(root), signature], "c14n")
    digest = base64.b64encode(hashlib.sha256(octets).digest())
    evil = re.sub(rb"(DigestValue>)[^<]*", rb"\g<1>" + digest, evil, count=1)
    evil = re.sub(
        rb'(SignatureMethod Algorithm=")[^"]*', rb"\g<1>" + method.encode(), evil, count=1
    )
    info = _find(references.parse(evil), "SignedInfo")
    signed = references.element_octets(info, references.standing_alone(info), "c14n")
    value = base64.b64encode(secret_value(signed))
    return re.sub(rb"(SignatureValue>)[^<]*", rb"\g<1>" + value, evil, count=1)


def _hmac_confused(goods: dict[str, bytes]) -> Iterator[Forgery]:
    """The partner's public key is known to all: as an HMAC secret it would be no secret."""
    certificate = keys.alpha().certificate
    public = certificate.public_key()
    secrets = {
        "certificate DER": certificate.public_bytes(serialization.Encoding.DER),
        "certificate PEM": certificate.public_bytes(serialization.Encoding.PEM),
        "key DER": public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
        "key PEM": public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
        "nothing": b"",
    }
    methods = {
        f"{DS}hmac-sha1": "sha1",
        documents.HMAC_SHA256: "sha256",
        "http://www.w3.org/2001/04/xmldsig-more#hmac-sha512": "sha512",
        algorithms.SIGNATURE_URIS["ecdsa-sha256"]: "sha256",
        algorithms.SIGNATURE_URIS["rsa-sha256"]: "sha256",
    }
    for kind, secret in secrets.items():
        for method, name in methods.items():

            def mac(octets: bytes, secret: bytes = secret, name: str = name) -> bytes:
                return hmac.digest(secret, octets, name)

            yield Forgery(f"HMAC with {kind} as {method}", _rewritten(goods["plain"], mac, method))
    for length in (0, 1, 8):
        short = f"<ds:HMACOutputLength>{length}</ds:HMACOutputLength></ds:SignatureMethod>"
        yield Forgery(
            f"HMAC cut to {length} bits",
            re.sub(
                rb"(<ds:SignatureMethod [^>]*)/>", rb"\1>" + short.encode(), _evil(goods["plain"])
            ),
        )


def _algorithm_swapped(goods: dict[str, bytes]) -> Iterator[Forgery]:
    for good, envelope in goods.items():
        swaps = {
            rb'(SignatureMethod Algorithm=")[^"]*': [
                *algorithms.SIGNATURE_URIS.values(), f"{DS}dsa-sha1", "", "none",
            ],
            rb'(DigestMethod Algorithm=")[^"]*': [
                *algorithms.DIGEST_URIS.values(), "http://www.w3.org/2001/04/xmldsig-more#md5",
            ],
            rb'(CanonicalizationMethod Algorithm=")[^"]*': [
                *algorithms.CANONICAL_URIS.values(), "http://www.w3.org/2006/12/xml-c14n11",
                f"{documents.INCLUSIVE}#WithComments",
            ],
        }  # fmt: skip
        for pattern, uris in swaps.items():
            for uri in uris:
                swapped = re.sub(pattern, rb"\g<1>" + uri.encode(), _evil(envelope), count=1)
                yield Forgery(f"{uri or 'no algorithm'} in {good}", swapped)


def _key_substituted(goods: dict[str, bytes]) -> Iterator[Forgery]:
    """The forger signs properly, with its own key, and shows this or that certificate."""
    for kind in ("p256", "p384", "rsa"):
        who = keys.mallory(kind)
        name = {"p256": "ecdsa-sha256", "p384": "ecdsa-sha384", "rsa": "rsa-sha256"}[kind]
        unsigned = _evil(documents.envelope(documents.HOP_BLOCKS))
        signed = signing.sign(
            unsigned, [good_part()], who.key, who.certificate, SigningChoice(name)
        ).envelope
        der = keys.alpha().certificate.public_bytes(serialization.Encoding.DER)
        theirs = b"<ds:X509Certificate>" + base64.b64encode(der) + b"</ds:X509Certificate>"
        own = re.search(rb"<ds:X509Certificate>.*?</ds:X509Certificate>", signed)
        assert own
        shown = {
            "its own": own[0],
            "the partner's": theirs,
            "its own, then the partner's": own[0] + theirs,
            "the partner's, then its own": theirs + own[0],
            "none": b"",
            "a name": b"<ds:X509SubjectName>CN=alpha</ds:X509SubjectName>",
        }
        for what, replacement in shown.items():
            yield Forgery(
                f"signed with {kind} of the forger, showing {what}",
                signed.replace(own[0], replacement),
            )
    yield Forgery("no KeyInfo", re.sub(rb"<ds:KeyInfo>.*</ds:KeyInfo>", b"", _evil(goods["plain"])))


# --- signatures that are gone, moved or borrowed -------------------------------------------------


def _displaced(goods: dict[str, bytes]) -> Iterator[Forgery]:
    for good, envelope in goods.items():
        stripped = etree.fromstring(_evil(envelope))
        signature = _find(stripped, "Signature")
        parent = signature.getparent()
        assert parent is not None
        parent.remove(signature)
        yield Forgery(f"signature of {good} stripped", _octets(stripped))
        for place, insert in _PLACES.items():
            if "Signature" in place or place == "in KeyInfo":
                continue
            moved = copy.deepcopy(stripped)
            insert(moved, copy.deepcopy(signature))
            yield Forgery(f"signature of {good} moved {place}", _octets(moved))
        for other, donor in goods.items():
            borrowed = copy.deepcopy(stripped)
            borrowed[0].append(_find(etree.fromstring(donor), "Signature"))
            yield Forgery(f"signature of {other} on {good}", _octets(borrowed))
        twice = etree.fromstring(_evil(envelope))
        twice[0].insert(0, copy.deepcopy(signature))
        yield Forgery(f"signature of {good} twice", _octets(twice))


def _in_another_envelope(goods: dict[str, bytes]) -> Iterator[Forgery]:
    """The whole good message inside an evil one."""
    for good, envelope in goods.items():
        for place, insert in _PLACES.items():
            if place in ("in KeyInfo", "in Signature", "in SignatureValue"):
                continue
            for actor in (None, NEXT_MSH):
                outer = etree.fromstring(_evil(documents.envelope()))
                inner = etree.fromstring(envelope)
                if actor:
                    inner.set(_ACTOR, actor)
                outer[0].append(copy.deepcopy(_find(inner, "Signature")))
                insert(outer, inner)
                yield Forgery(f"{good} inside an evil envelope, {place}, {actor}", _octets(outer))


# --- parts ---------------------------------------------------------------------------------------


def _parts_swapped(goods: dict[str, bytes]) -> Iterator[Forgery]:
    evil = good_part(content=EVIL_PART)
    spellings = [PART_ID, f"<{PART_ID}>", f" <{PART_ID}> "]
    for good, envelope in goods.items():
        yield Forgery(f"part of {good} replaced", envelope, [evil])
        yield Forgery(f"part of {good} dropped", envelope, [])
        for spelling in spellings:
            second = good_part(spelling, EVIL_PART)
            yield Forgery(f"{spelling!r} twice in {good}", envelope, [good_part(), second])
            yield Forgery(f"{spelling!r} twice in {good}", envelope, [second, good_part()])
        renamed = envelope.replace(f'href="cid:{PART_ID}"'.encode(), b'href="cid:EVIL"')
        yield Forgery(
            f"Manifest of {good} names another part",
            renamed,
            [good_part(), good_part("EVIL", EVIL_PART)],
        )


def forgeries(seed: int) -> list[Forgery]:
    """Every forgery there is, in an order the seed decides."""
    goods = good_messages()
    makers = (
        _wrapped, _inserted, _inside_hop_blocks, _actor_added, _hmac_confused,
        _algorithm_swapped, _key_substituted, _displaced, _in_another_envelope, _parts_swapped,
    )  # fmt: skip
    made = [forgery for make in makers for forgery in make(goods)]
    random.Random(seed).shuffle(made)
    return made
