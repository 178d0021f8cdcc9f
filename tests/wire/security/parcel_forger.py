"""Forges whole messages: envelope, signature, frame and parts, as a network could alter them.

Each forgery is made of a good message by one trick. Some tricks leave everything that is signed
as it was (a comment, a part more); then what is read must be what was read before, to the letter.
"""

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from cryptography.hazmat.primitives import serialization
from msgspec.structs import replace

from oncewire.message.envelope import Payload
from oncewire.message.form import Dialect, Form
from oncewire.message.ids import Party, PartyId
from oncewire.wire import codec
from oncewire.wire.codec import Signer
from oncewire.wire.parcel import Parcel
from oncewire.wire.security import signature
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice
from tests.wire import samples
from tests.wire.security import keys

Edit = Callable[[bytes], bytes]

PAYLOADS = (
    Payload.of("one@alpha", "text/plain", b"7 boxes"),
    Payload.of("two@alpha", "application/xml", b"<bill>12</bill>"),
)
EVIL = b"EVIL"


@dataclass(frozen=True)
class Forgery:
    """A message that its sender did not write like this, and how it was made."""

    how: str
    parcel: Parcel


# --- good messages -----------------------------------------------------------------------------


def signer(who: keys.Identity, choice: SigningChoice) -> Signer:
    """Signs as the partner does."""

    def sign(envelope: bytes, payloads: tuple[Payload, ...]) -> bytes:
        parts = [PartDigests.of(one.content_id, one.data or b"", "sha256") for one in payloads]
        return signature.sign(envelope, parts, who.key, who.certificate, choice).envelope

    return sign


def message(dialect: Dialect, who: keys.Identity, choice: SigningChoice) -> Parcel:
    """Two payloads and two ids on each side, signed."""
    plain = samples.order_message(dialect, PAYLOADS)
    ids = (PartyId("urn:alpha"), PartyId("123456789", "urn:duns"))
    header = replace(plain.header, from_party=Party(ids))
    form = Form(dialect=dialect)
    parcel = codec.write(
        replace(plain, header=header), form, boundary="b0", signer=signer(who, choice)
    )
    return replace(parcel, headers=())


@cache
def goods() -> dict[str, Parcel]:
    """What the partner signs, in every dialect and by every canonicalization."""
    made = {
        dialect.value: message(dialect, keys.alpha(), SigningChoice("ecdsa-sha256"))
        for dialect in Dialect
    }
    exclusive = SigningChoice("ecdsa-sha256", canonicalization="exc-c14n")
    return made | {"ebms2 exclusive": message(Dialect.EBMS2, keys.alpha(), exclusive)}


# --- the frame ---------------------------------------------------------------------------------

_MARK, _INNER = b"--b0", b"--b0_in"


def pieces(parcel: Parcel) -> list[bytes]:
    """The parts with their headers; the envelope is the first."""
    if _INNER not in parcel.body:
        return [one.strip(b"\r\n") for one in parcel.body.split(_MARK)[1:-1]]
    # September 2000 has the payloads in a container of their own.
    outer, *inner = parcel.body.split(_INNER)[:-1]
    root = outer.split(_MARK)[1]
    return [one.strip(b"\r\n") for one in (root, *inner)]


def rebuilt(parcel: Parcel, parts: list[bytes]) -> Parcel:
    if _INNER not in parcel.body:
        return replace(parcel, body=_joined(_MARK, parts))
    container = b'Content-Type: multipart/related; boundary="b0_in"\r\n\r\n'
    inner = container + _joined(_INNER, parts[1:])
    return replace(parcel, body=_joined(_MARK, [parts[0], inner]))


def _joined(mark: bytes, parts: list[bytes]) -> bytes:
    return b"".join(mark + b"\r\n" + one + b"\r\n" for one in parts) + mark + b"--\r\n"


def _in_envelope(parcel: Parcel, edit: Edit) -> Parcel:
    root, *rest = pieces(parcel)
    head, gap, envelope = root.partition(b"\r\n\r\n")
    return rebuilt(parcel, [head + gap + edit(envelope), *rest])


def _sub(pattern: bytes, by: bytes, count: int = 1) -> Edit:
    def edit(envelope: bytes) -> bytes:
        return re.sub(pattern, by, envelope, count=count, flags=re.DOTALL)

    return edit


# --- tricks in ids and texts -------------------------------------------------------------------

_IDS = ("MessageId", "PartyId", "CPAId", "TPAId", "ConversationId", "Action", "Service")

_TEXTS: dict[str, bytes] = {
    "comment before": rb"<!--EVIL-->\2",
    "comment behind": rb"\2<!--EVIL-->",
    "comment cuts": rb"EVIL<!---->\2",
    "processing instruction": rb"<?EVIL?>\2",
    "CDATA before": rb"<![CDATA[EVIL]]>\2",
    "CDATA around": rb"<![CDATA[\2]]>",
    "CDATA empty": rb"<![CDATA[]]>\2",
    "reference": rb"&#69;VIL\2",
    "same by reference": rb"&#x20;\2",
    "entity": rb"&evil;\2",
    "element": rb"<x>EVIL</x>\2",
    "empty element": rb"<x/>\2",
    "space before": rb" \2",
    "line behind": b"\\2\n",
    "no-break space": rb"\2&#160;",
    "zero width": rb"\2&#8203;",
    "wide digit": rb"\2&#65297;",
    "nothing": b"",
    "another": b"EVIL",
}


def _texts() -> Iterator[tuple[str, Edit]]:
    for name in _IDS:
        for how, text in _TEXTS.items():
            pattern = rb"(<(?:\w+:)?%b(?: [^>]*)?>)([^<]*)" % name.encode()
            yield f"{how} in {name}", _sub(pattern, rb"\g<1>" + text)


# --- the XML around ----------------------------------------------------------------------------

_BOMB = b'<!DOCTYPE e [<!ENTITY evil "EVIL">]>'
_AROUND: dict[str, Edit] = {
    "DOCTYPE with entity": lambda envelope: _BOMB + envelope,
    "DOCTYPE external": lambda envelope: b'<!DOCTYPE e SYSTEM "http://x/e.dtd">' + envelope,
    "DOCTYPE with default attribute": lambda envelope: (
        b'<!DOCTYPE e [<!ATTLIST PartyId type CDATA "EVIL">]>' + envelope
    ),
    "comment first": lambda envelope: b"<!--EVIL-->" + envelope,
    "comment last": lambda envelope: envelope + b"<!--EVIL-->",
    "instruction first": lambda envelope: b"<?EVIL EVIL?>" + envelope,
    "second root": lambda envelope: envelope + envelope,
    "text behind": lambda envelope: envelope + b"EVIL",
    "UTF-8 mark": lambda envelope: b"\xef\xbb\xbf" + envelope,
    "declared latin": lambda envelope: _declared(envelope, "iso-8859-1"),
    "declared UTF-7": lambda envelope: _declared(envelope, "utf-7"),
    "declared UTF-16": lambda envelope: _declared(envelope, "utf-16"),
    "declared EBCDIC": lambda envelope: _declared(envelope, "cp037"),
    "recoded UTF-16": lambda envelope: _recoded(envelope, "utf-16"),
    "recoded UTF-16BE": lambda envelope: _recoded(envelope, "utf-16-be"),
    "recoded UTF-32": lambda envelope: _recoded(envelope, "utf-32"),
    "recoded UTF-7": lambda envelope: _recoded(envelope, "utf-7"),
    "recoded latin": lambda envelope: _recoded(envelope, "iso-8859-1"),
    "XML 1.1": lambda envelope: b'<?xml version="1.1"?>' + _bare(envelope),
    "standalone": lambda envelope: b'<?xml version="1.0" standalone="yes"?>' + _bare(envelope),
    "namespace on root": _sub(rb"^((?:<\?[^>]*>\s*)?<[\w:]+)", rb'\1 xmlns:evil="urn:evil"'),
    "xml:base on root": _sub(rb"^((?:<\?[^>]*>\s*)?<[\w:]+)", rb'\1 xml:base="http://evil/"'),
    "xml:id twice": _sub(rb"<((?:\w+:)?(?:Header|Manifest))\b", rb'<\1 xml:id="EVIL"', 0),
    "id twice": _sub(rb"<((?:\w+:)?(?:From|To))\b", rb'<\1 id="EVIL"', 0),
    "attribute twice": _sub(rb"<((?:\w+:)?MessageId)>", rb'<\1 a="1" a="2">'),
    "attribute more": _sub(rb"<((?:\w+:)?MessageId)>", rb'<\1 a="EVIL">'),
    "spaces between": _sub(rb"(</(?:\w+:)?From>)", rb"\1 \n\t"),
    "line ends": lambda envelope: envelope.replace(b"><", b">\r\n<", 1),
    "quotes": lambda envelope: envelope.replace(b'"', b"'"),
    "NUL": lambda envelope: envelope.replace(b"</", b"\x00</", 1),
    "cut": lambda envelope: envelope[:-1],
}  # fmt: skip


def _bare(envelope: bytes) -> bytes:
    return re.sub(rb"^<\?xml[^>]*>\s*", b"", envelope)


def _declared(envelope: bytes, name: str) -> bytes:
    return f'<?xml version="1.0" encoding="{name}"?>'.encode() + _bare(envelope)


def _recoded(envelope: bytes, name: str) -> bytes:
    return _declared(envelope, name).decode().encode(name)


# --- parties -----------------------------------------------------------------------------------


def _parties() -> Iterator[tuple[str, Edit]]:
    one = rb"(<(?:\w+:)?PartyId[^>]*>[^<]*</(?:\w+:)?PartyId>)"
    evil = rb"<PartyId>urn:evil</PartyId>"
    yield "two ids exchanged", _sub(one + rb"(\s*)" + one, rb"\3\2\1")
    yield "first id twice", _sub(one, rb"\1\1")
    yield "first id gone", _sub(one + rb"(\s*)" + one, rb"\3")
    yield "second id gone", _sub(one + rb"(\s*)" + one, rb"\1")
    for place, by in (("before", evil + rb"\1"), ("behind", rb"\1" + evil)):
        yield f"an id {place}", _sub(one, by)
        own = by.replace(b"PartyId", b"eb:PartyId")
        yield f"an id of the same namespace {place}", _sub(one, own)
        typed = by.replace(b"<PartyId>", b'<PartyId type="urn:duns">')
        yield f"a typed id {place}", _sub(one, typed)
    yield (
        "parties exchanged",
        _sub(
            rb"<((?:\w+:)?)From>(.*?)</\1From>(\s*)<\1To>(.*?)</\1To>",
            rb"<\1From>\4</\1From>\3<\1To>\2</\1To>",
        ),
    )
    yield (
        "a second From",
        _sub(rb"(<((?:\w+:)?)From>.*?</\2From>)", rb"<\2From>" + evil + rb"</\2From>\1"),
    )
    yield "type changed", _sub(rb"urn:duns", rb"urn:EVIL")
    yield "type gone", _sub(rb' (?:\w+:)?type="urn:duns"', b"")


# --- the signature -----------------------------------------------------------------------------


def _value(element: str, by: str) -> Edit:
    return _sub(rb"(<ds:%b[^>]*>)[^<]*" % element.encode(), rb"\g<1>" + by.encode())


def _text_of(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def _signatures() -> Iterator[tuple[str, Edit]]:
    # r and s of nothing, of the order, of more than it: no key makes them.
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    numbers = {"0": 0, "1": 1, "n": order, "n + 1": order + 1}
    for r_name, r in numbers.items():
        for s_name, s in numbers.items():
            value = r.to_bytes(32, "big") + s.to_bytes(32, "big")
            yield f"SignatureValue {r_name}, {s_name}", _value("SignatureValue", _text_of(value))
    for name in ("SignatureValue", "DigestValue"):
        for how, by in (
            ("empty", ""), ("space", " \n"), ("a bit", "AA=="), ("no base64", "!!!!"),
            ("zeroes", _text_of(bytes(32))), ("long", _text_of(bytes(4096))),
        ):  # fmt: skip
            yield f"{name}: {how}", _value(name, by)
        yield f"{name} twice", _sub(rb"(<ds:%b>.*?</ds:%b>)" % ((name.encode(),) * 2), rb"\1\1")
        yield f"{name} gone", _sub(rb"<ds:%b>.*?</ds:%b>" % ((name.encode(),) * 2), b"")
        yield f"{name} with a comment", _sub(rb"(<ds:%b>)" % name.encode(), rb"\1<!--EVIL-->")
        yield f"{name} url-safe", _sub(rb"(<ds:%b>)([^<]*)" % name.encode(), rb"\g<1>-_\g<2>")
    yield from _references()
    yield from _transforms()
    yield from _key_infos()


def _references() -> Iterator[tuple[str, Edit]]:
    for uri in (
        "#EVIL", "#xpointer(/)", "#xpointer(id('EVIL'))", "http://evil/x", "cid:EVIL",
        "CID:one@alpha", "cid:two@alpha", "cid:%6Fne@alpha", "cid:one@alpha#x",
        "file:///etc/passwd", "/", " ",
    ):  # fmt: skip
        named = uri.encode()
        yield f"part by {uri!r}", _sub(rb'URI="cid:one@alpha"', b'URI="' + named + b'"')
        yield (
            f"envelope by {uri!r}",
            _sub(rb'<ds:Reference URI=""', b'<ds:Reference URI="' + named + b'"'),
        )
    reference = rb"(<ds:Reference .*?</ds:Reference>)"
    yield "first reference gone", _sub(reference, b"")
    yield "first reference twice", _sub(reference, rb"\1\1")
    yield "last reference gone", _sub(rb'<ds:Reference URI="cid:two.*?</ds:Reference>', b"")
    yield "references exchanged", _sub(reference + reference, rb"\2\1")
    yield (
        "reference typed",
        _sub(rb'URI=""', b'URI="" Type="http://www.w3.org/2000/09/xmldsig#Manifest"'),
    )
    yield "reference without URI", _sub(rb' URI=""', b"")


def _transforms() -> Iterator[tuple[str, Edit]]:
    step = rb'(<ds:Transform Algorithm="[^"]*"(?:/>|>.*?</ds:Transform>))'
    yield "transform gone", _sub(step, b"")
    yield "transforms exchanged", _sub(step + step, rb"\2\1")
    for name in (
        "http://www.w3.org/TR/1999/REC-xslt-19991116", "http://www.w3.org/2002/06/xmldsig-filter2",
        "http://www.w3.org/2000/09/xmldsig#base64", "http://www.w3.org/2002/07/decrypt#XML",
        "http://www.w3.org/2001/10/xml-exc-c14n#WithComments", "http://www.w3.org/2006/12/xml-c14n11",
    ):  # fmt: skip
        more = b'<ds:Transform Algorithm="' + name.encode() + b'"/>'
        yield f"one more transform {name}", _sub(step, rb"\1" + more)
        yield (
            f"a part transformed by {name}",
            _sub(rb'(URI="cid:one@alpha">)', rb"\1<ds:Transforms>" + more + b"</ds:Transforms>"),
        )
    for path in (
        b"not(//x)", b"false()", b"true()", b"not(ancestor-or-self::*)", b"ancestor::x",
        b'not(ancestor-or-self::node()[@SOAP:actor="urn:evil"])', b"", b"here()", b"id('EVIL')",
    ):  # fmt: skip
        yield f"XPath {path!r}", _sub(rb"(<ds:XPath[^>]*>)[^<]*", rb"\g<1>" + path)
    yield (
        "exclusive with prefixes",
        _sub(
            rb'(<ds:CanonicalizationMethod Algorithm=")[^"]*"/>',
            b'\\1http://www.w3.org/2001/10/xml-exc-c14n#"><ec:InclusiveNamespaces '
            b'xmlns:ec="http://www.w3.org/2001/10/xml-exc-c14n#" PrefixList="#default"/>'
            b"</ds:CanonicalizationMethod>",
        ),
    )


def _key_infos() -> Iterator[tuple[str, Edit]]:
    der = keys.mallory().certificate.public_bytes(serialization.Encoding.DER)
    evil = b"<ds:X509Certificate>" + base64.b64encode(der) + b"</ds:X509Certificate>"
    info = rb"<ds:KeyInfo>.*?</ds:KeyInfo>"
    for how, inner in {
        "another certificate": b"<ds:X509Data>" + evil + b"</ds:X509Data>",
        "a name": b"<ds:KeyName>alpha</ds:KeyName>",
        "a key": b"<ds:KeyValue><ds:RSAKeyValue><ds:Modulus>AQAB</ds:Modulus>"
        b"<ds:Exponent>Aw==</ds:Exponent></ds:RSAKeyValue></ds:KeyValue>",
        "a place": b'<ds:RetrievalMethod URI="http://evil/key"/>',
        "a subject": b"<ds:X509Data><ds:X509SubjectName>CN=alpha</ds:X509SubjectName>"
        b"</ds:X509Data>",
        "nothing": b"",
        "no certificate": b"<ds:X509Data><ds:X509Certificate>EVIL</ds:X509Certificate>"
        b"</ds:X509Data>",
    }.items():
        yield f"KeyInfo: {how}", _sub(info, b"<ds:KeyInfo>" + inner + b"</ds:KeyInfo>")
    yield "KeyInfo twice", _sub(rb"(%b)" % info, rb"\1\1")
    yield "KeyInfo first", _sub(rb"(<ds:SignedInfo>.*?)(%b)" % info, rb"\2\1")
    yield "one more certificate first", _sub(rb"(<ds:X509Data>)", rb"\1" + evil)
    yield "one more certificate last", _sub(rb"(</ds:X509Data>)", evil + rb"\1")


# --- the Manifest ------------------------------------------------------------------------------


def _manifests() -> Iterator[tuple[str, Edit]]:
    for to in ("cid:EVIL", "cid:two@alpha", "CID:one@alpha", "cid:%6fne@alpha", "http://evil/"):
        yield (
            f"Manifest names {to}",
            _sub(rb'(href=")cid:one@alpha"', rb"\g<1>" + to.encode() + b'"'),
        )
    for name in ("Reference", "Manifest"):
        block = rb"(<((?:\w+:)?)%b\b[^>]*?(?:/>|>.*?</\2%b>))" % ((name.encode(),) * 2)
        yield f"{name} gone", _sub(block, b"")
        yield f"{name} twice", _sub(block, rb"\1\1")


# --- parts -------------------------------------------------------------------------------------

_SECOND = b"Content-ID: <one@alpha>\r\nContent-Type: text/plain\r\n\r\nEVIL"
_PART_HEADERS: dict[str, bytes] = {
    "named": b"Content-ID: <EVIL>\r\nContent-Type: text/plain",
    "unnamed": b"Content-Type: text/plain",
    "empty name": b"Content-ID: <>\r\nContent-Type: text/plain",
    "same name": b"Content-ID: <one@alpha>\r\nContent-Type: text/plain",
    "same name without brackets": b"Content-ID: one@alpha\r\nContent-Type: text/plain",
    "same name in spaces": b"Content-ID:   < one@alpha >\r\nContent-Type: text/plain",
    "same name folded": b"Content-ID:\r\n <one@alpha>\r\nContent-Type: text/plain",
    "same name escaped": b"Content-ID: <%6Fne@alpha>\r\nContent-Type: text/plain",
    "same name in capitals": b"CONTENT-ID: <ONE@ALPHA>\r\nContent-Type: text/plain",
    "two names": b"Content-ID: <EVIL>\r\nContent-ID: <one@alpha>\r\nContent-Type: text/plain",
    "called part-1": b"Content-ID: <part-1>\r\nContent-Type: text/plain",
    "an envelope": b"Content-ID: <EVIL>\r\nContent-Type: text/xml",
    "a container": b"Content-ID: <EVIL>\r\nContent-Type: multipart/mixed; boundary=c",
    "a place": b"Content-Location: cid:one@alpha\r\nContent-Type: text/plain",
    "attached": b"Content-Disposition: attachment; filename=EVIL\r\nContent-Type: text/plain",
}  # fmt: skip

_REWRITTEN: dict[str, Edit] = {
    "base64": _sub(rb"^", b"Content-Transfer-Encoding: base64\r\n"),
    "quoted": _sub(rb"^", b"Content-Transfer-Encoding: quoted-printable\r\n"),
    "unknown encoding": _sub(rb"^", b"Content-Transfer-Encoding: EVIL\r\n"),
    "gzip": _sub(rb"^", b"Content-Encoding: gzip\r\n"),
    "header more": _sub(rb"^", b"X-Evil: EVIL\r\n"),
    "description": _sub(rb"^", b"Content-Description: EVIL\r\n"),
    "length": _sub(rb"^", b"Content-Length: 3\r\n"),
    "one byte more": lambda part: part + b"!",
    "one byte less": lambda part: part[:-1],
    "line end more": lambda part: part + b"\r\n",
    "other content": _sub(rb"(\r\n\r\n).*", rb"\1EVIL"),
    "name gone": _sub(rb"Content-ID: [^\r]*\r\n", b""),
    "name without brackets": _sub(rb"<one@alpha>", b"one@alpha"),
    "name in capitals": _sub(rb"one@alpha", b"ONE@ALPHA"),
    "name of the other": _sub(rb"one@alpha", b"two@alpha"),
    "type changed": _sub(rb"text/plain", b"text/html"),
    "type gone": _sub(rb"Content-Type: [^\r]*", b"X-None: 1"),
    "type of a container": _sub(rb"text/plain", b"multipart/mixed; boundary=c"),
    "bare line ends": lambda part: part.replace(b"\r\n", b"\n"),
}


def _framed() -> Iterator[tuple[str, Callable[[Parcel], Parcel]]]:
    for place in (0, 1, 2, 3):
        for how, head in _PART_HEADERS.items():

            def insert(parcel: Parcel, place: int = place, head: bytes = head) -> Parcel:
                parts = pieces(parcel)
                return rebuilt(parcel, [*parts[:place], head + b"\r\n\r\nEVIL", *parts[place:]])

            yield f"a part more ({how}) at {place}", insert
    for how, edit in _REWRITTEN.items():

        def rewrite(parcel: Parcel, edit: Edit = edit) -> Parcel:
            root, first, *rest = pieces(parcel)
            return rebuilt(parcel, [root, edit(first), *rest])

        yield f"first part: {how}", rewrite
    yield "parts exchanged", lambda parcel: rebuilt(parcel, [pieces(parcel)[n] for n in (0, 2, 1)])
    yield "envelope last", lambda parcel: rebuilt(parcel, [pieces(parcel)[n] for n in (1, 2, 0)])
    yield "first part gone", lambda parcel: rebuilt(parcel, [pieces(parcel)[n] for n in (0, 2)])
    yield (
        "first part twice",
        lambda parcel: rebuilt(parcel, [pieces(parcel)[n] for n in (0, 1, 1, 2)]),
    )
    yield "preamble", lambda parcel: replace(parcel, body=_SECOND + b"\r\n" + parcel.body)
    yield "epilogue", lambda parcel: replace(parcel, body=parcel.body + _MARK + b"\r\n" + _SECOND)
    yield "no end", lambda parcel: replace(parcel, body=parcel.body[:-6])
    for charset in ("utf-7", "utf-16", "iso-8859-1", "us-ascii", "cp037", "EVIL"):

        def named(parcel: Parcel, charset: str = charset) -> Parcel:
            root, *rest = pieces(parcel)
            said = re.sub(
                rb"(Content-Type: [^\r;]*)[^\r]*",
                rb"\1; charset=" + charset.encode(),
                root,
                count=1,
            )
            return rebuilt(parcel, [said, *rest])

        yield f"envelope said to be {charset}", named
    yield (
        "another start",
        lambda parcel: replace(
            parcel,
            content_type=re.sub(r'; start="[^"]*"', "", parcel.content_type)
            + '; start="<one@alpha>"',
        ),
    )


# --- other people's signatures -----------------------------------------------------------------


def _strangers() -> Iterator[Forgery]:
    for dialect in Dialect:
        for kind, name in (
            ("p256", "ecdsa-sha256"),
            ("p384", "ecdsa-sha384"),
            ("rsa", "rsa-sha256"),
        ):
            choice = SigningChoice(name)
            yield Forgery(
                f"{dialect.value} signed by a stranger with {kind}",
                message(dialect, keys.mallory(kind), choice),
            )
            yield Forgery(
                f"{dialect.value} signed by a stranger of that name with {kind}",
                message(dialect, _namesake(kind), choice),
            )


@cache
def _namesake(kind: str) -> keys.Identity:
    """Somebody who calls himself alpha."""
    return keys.issue("alpha", kind)


@cache
def expired() -> keys.Identity:
    """A certificate of alpha's that ended before the messages came."""
    return keys.issue("alpha", start=datetime(2025, 1, 1, tzinfo=UTC), days=30)


# --- all of them -------------------------------------------------------------------------------


def forgeries() -> Iterator[Forgery]:
    """Every trick on every good message; where it changes nothing there is no forgery."""
    edits = [
        *_texts(), *_AROUND.items(), *_parties(), *_signatures(), *_manifests(),
    ]  # fmt: skip
    tricks: list[tuple[str, Callable[[Parcel], Parcel]]] = [
        (how, lambda parcel, edit=edit: _in_envelope(parcel, edit)) for how, edit in edits
    ]
    for name, good in goods().items():
        seen = {good}
        for how, trick in (*tricks, *_framed()):
            forged = trick(good)
            if forged not in seen:
                seen.add(forged)
                yield Forgery(f"{how}, {name}", forged)
    yield from _strangers()
