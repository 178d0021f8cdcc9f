"""Evidence: one message and the signed word of its receiver, in a file for others to check.

Nobody needs Oncewire for that: what it takes are openssl and xmlsec1, and the commands are in it.
"""

from __future__ import annotations

import base64
import io
import shlex
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from oncewire.entry.messages.composing import as_file
from oncewire.message.instant import Instant, format_instant
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from oncewire.wire.received import Received
from oncewire.wire.security import algorithms, certificates, signature, signing
from oncewire.wire.security.digests import signature_parts
from oncewire.wire.security.references import content_id_of

MESSAGE, ACKNOWLEDGEMENT = "message", "acknowledgement"
PAGE, SUMS, SCRIPT = "README.txt", "SHA256SUMS", "verify.sh"
CANONICAL = f"{MESSAGE}.c14n"
_XMLSEC = "xmlsec1 --verify --enabled-key-data key-name --pubkey-cert-pem"
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The same for every file, so that the same evidence is the same file."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a party holds of a message: what was sent, what answered it, and what is known of it."""

    message_id: str
    party: str
    # We sent it, and the other side acknowledged it; otherwise the other way round.
    sent: bool
    message: Parcel
    acknowledgement: Parcel | None
    acknowledged_at: Instant | None
    story: str
    # Certificates that the agreement names for the other side.
    agreed: tuple[x509.Certificate, ...] = ()


@dataclass(frozen=True, slots=True)
class _Signed:
    """One of the two messages, taken apart for people who check it."""

    name: str
    received: Received
    # Whose key made the signature; None where there is none, or nobody knows.
    certificate: x509.Certificate | None
    # (URI, digest algorithm, digest in base64) of what its signature covers.
    digests: tuple[tuple[str, str, str], ...] = ()

    @property
    def envelope(self) -> str:
        return f"{self.name}.xml"

    @property
    def certificate_file(self) -> str:
        return "sender.pem" if self.name == MESSAGE else "receiver.pem"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The files, by name, and in a few words what they prove."""

    files: dict[str, bytes]
    proves: str
    # Whether the receiver has signed for the message.
    signed_for: bool

    def as_zip(self) -> bytes:
        """All of it in one file."""
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in self.files.items():
                entry = zipfile.ZipInfo(name, _FIRST_DAY)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o755 if name == SCRIPT else 0o644) << 16
                archive.writestr(entry, content)
        return whole.getvalue()


def evidence_of(held: Held) -> Evidence:
    """Everything that somebody else needs to check what this party says of a message."""
    message = _taken_apart(MESSAGE, held.message, held.agreed if not held.sent else ())
    answer = None
    if held.acknowledgement is not None:
        agreed = held.agreed if held.sent else ()
        answer = _taken_apart(ACKNOWLEDGEMENT, held.acknowledgement, agreed)
    named = _acknowledged(answer, held.message_id)
    files = dict(_files(held, message, answer))
    if not message.received.signed and named:
        files |= _canonical(message, named)
    commands = tuple(_commands(message, answer, named, files))
    proves, signed_for = _proves(held, answer, named)
    files[SUMS] = b"".join(
        f"{sha256(content).hexdigest()}  {name}\n".encode() for name, content in files.items()
    )
    files[SCRIPT] = _script(commands).encode()
    page = _page(held, message, answer, proves, commands, files)
    return Evidence({PAGE: page.encode(), **files}, proves, signed_for)


def _taken_apart(name: str, parcel: Parcel, agreed: Sequence[x509.Certificate]) -> _Signed:
    received = codec.read(parcel)
    if not received.signed:
        return _Signed(name, received, None)
    parts = signature_parts(received)
    shown = signature.inspect(received.envelope, parts).certificate
    digests = tuple(
        (each.uri, each.digest_name, base64.b64encode(each.digest).decode())
        for each in signature.signed_references(received.envelope)
    )
    return _Signed(name, received, shown or next(iter(agreed), None), digests)


def _acknowledged(answer: _Signed | None, message_id: str) -> tuple[tuple[str, str, str], ...]:
    """The digests that the receiver repeats, which is how it says what exactly it got."""
    if answer is None:
        return ()
    return tuple(
        (
            each.uri,
            algorithms.digest_name(each.digest_method),
            base64.b64encode(each.digest_value).decode(),
        )
        for ack in answer.received.message.acknowledgments
        if ack.ref_to_message_id == message_id
        for each in ack.references
    )


# --- files ---------------------------------------------------------------------------------------


def _files(held: Held, message: _Signed, answer: _Signed | None) -> Iterator[tuple[str, bytes]]:
    yield f"{MESSAGE}.mime", as_file(held.message)
    yield message.envelope, message.received.envelope
    for number, payload in enumerate(message.received.message.payloads, 1):
        yield f"payload-{number}", payload.data or b""
    if answer is not None and held.acknowledgement is not None:
        yield f"{ACKNOWLEDGEMENT}.mime", as_file(held.acknowledgement)
        yield answer.envelope, answer.received.envelope
    for each in (message, answer):
        if each is not None and each.certificate is not None:
            yield each.certificate_file, each.certificate.public_bytes(Encoding.PEM)


def _canonical(message: _Signed, named: Sequence[tuple[str, str, str]]) -> dict[str, bytes]:
    """Of an unsigned message the octets that the receiver digested: no signature shows them."""
    octets = signing.envelope_octets(message.received.envelope)
    for uri, name, value in named:
        if not uri and base64.b64encode(algorithms.digest(name, octets)).decode() == value:
            return {CANONICAL: octets}
    return {}


# --- how it is checked ---------------------------------------------------------------------------


def _commands(
    message: _Signed,
    answer: _Signed | None,
    named: Sequence[tuple[str, str, str]],
    files: dict[str, bytes],
) -> Iterator[str]:
    """What to run, in the order of the page; each ends with 0 where all is well."""
    for each in (message, answer):
        if each is not None and each.certificate is not None:
            file = each.certificate_file
            yield f"openssl x509 -noout -subject -dates -fingerprint -sha256 -in {file}"
    if answer is not None and answer.certificate is not None:
        yield f"{_XMLSEC} {answer.certificate_file} {answer.envelope}"
    payloads = _payload_files(message)
    if message.certificate is not None:
        maps = [
            f"--url-map:{shlex.quote(uri)} {payloads.get(uri, 'DOCUMENT')}"
            for uri, _, _ in message.digests
            if uri
        ]
        yield " ".join([_XMLSEC, message.certificate_file, *maps, message.envelope])
    for uri, name, value in named:
        if answer is not None:
            yield f"tr -d ' \\t\\r\\n' < {answer.envelope} | grep -qF {shlex.quote(value)}"
        file = payloads.get(uri, "DOCUMENT") if uri else CANONICAL
        if uri or CANONICAL in files:
            digested = f"openssl dgst -{name} -binary {file} | openssl base64 -A"
            yield f'test "$({digested})" = {shlex.quote(value)}'
        else:
            # The envelope's own: its signature, checked above, is over the same one.
            yield f"tr -d ' \\t\\r\\n' < {message.envelope} | grep -qF {shlex.quote(value)}"


def _payload_files(message: _Signed) -> dict[str, str]:
    """The file of each part by the URI that names it, where its bytes are what was signed: of one
    that travelled encrypted the signature covers the document itself."""
    found = {}
    for number, payload in enumerate(message.received.message.payloads, 1):
        file, data = f"payload-{number}", payload.data or b""
        if not message.received.signed:
            found[f"cid:{payload.content_id}"] = file
        for uri, name, value in message.digests:
            if content_id_of(uri) == payload.content_id and _digest(name, data) == value:
                found[uri] = file
    return found


def _digest(name: str, data: bytes) -> str:
    return base64.b64encode(algorithms.digest(name, data)).decode()


def _script(commands: Sequence[str]) -> str:
    lines = [
        "#!/bin/sh",
        "# Checks the evidence beside it; needs openssl and xmlsec1, and nothing of ours.",
        "# Where a line says DOCUMENT, put in the document as it was before it was encrypted.",
        'set -eu; cd "$(dirname "$0")"',
        "while read -r sum name; do",
        '    test "$(openssl dgst -sha256 -r "$name" | cut -d " " -f 1)" = "$sum"',
        f"done < {SUMS}",
        *commands,
        'echo "Everything here is as it says."',
    ]
    return "\n".join(lines) + "\n"


# --- the page ------------------------------------------------------------------------------------


def _proves(held: Held, answer: _Signed | None, named: Sequence[object]) -> tuple[str, bool]:
    whose = "the receiver" if held.sent else "we, the receiver,"
    if answer is None:
        return (
            "There is no signed acknowledgement: nothing here proves that it was received.",
            False,
        )
    if answer.certificate is None or not named:
        return (
            f"It was acknowledged, but {whose} did not sign for what was received.",
            False,
        )
    proven = (
        f"With its own key {whose} signed that it received exactly this message: the digests in "
        "the acknowledgement are those of the message and of its documents."
    )
    return proven, True


def _page(
    held: Held,
    message: _Signed,
    answer: _Signed | None,
    proves: str,
    commands: Sequence[str],
    files: dict[str, bytes],
) -> str:
    header = message.received.message.header
    lines = [
        f"Evidence of the message {held.message_id}",
        "",
        f"From:         {header.from_party}",
        f"To:           {header.to_party}",
        f"Agreement:    {header.cpa_id}",
        f"Written at:   {format_instant(header.timestamp)}",
    ]
    if answer is not None:
        said = answer.received.message.header
        lines.append(f"Acknowledged: {format_instant(said.timestamp)}, by {said.from_party}")
    if held.acknowledged_at is not None:
        lines.append(f"Arrived here: {format_instant(held.acknowledged_at)} (the acknowledgement)")
    side = "sent" if held.sent else "received"
    lines += ["", f"Told by {held.party}, who {side} it:", f"  {held.story}", ""]
    lines += ["What this proves", f"  {proves}", ""]
    lines += _keys(held, message, answer)
    lines += ["What is in it", *_contents(files), ""]
    lines += [
        "How to check it",
        f"  Run `sh {SCRIPT}`, or its lines one by one. They need openssl and xmlsec1 alone.",
        f"  First the sums in {SUMS} are compared, then each signature and each digest.",
        *(f"  $ {command}" for command in commands),
        "  A certificate is only as good as your reason to believe whose it is: compare its",
        "  fingerprint with what its owner tells you by another way.",
    ]
    return "\n".join(lines) + "\n"


def _keys(held: Held, message: _Signed, answer: _Signed | None) -> list[str]:
    lines = ["Whose signatures they are"]
    for each in (message, answer):
        if each is None:
            continue
        if each.certificate is None:
            lines.append(f"  The {each.name} is not signed.")
            continue
        known = certificates.summary(each.certificate)
        lines.append(f"  The {each.name}: {known.subject}, SHA-256 {known.fingerprint}")
        theirs = (each.name == ACKNOWLEDGEMENT) is held.sent
        if theirs and each.certificate in held.agreed:
            lines.append("    It is the certificate that the agreement names for the other side.")
    return [*lines, ""]


def _contents(files: dict[str, bytes]) -> list[str]:
    words = {
        f"{MESSAGE}.mime": "the message as it travelled, every byte of it",
        f"{MESSAGE}.xml": "its envelope alone, which its signature covers",
        CANONICAL: "the octets of the envelope that the receiver digested",
        f"{ACKNOWLEDGEMENT}.mime": "the acknowledgement as it travelled",
        f"{ACKNOWLEDGEMENT}.xml": "its envelope alone, which its signature covers",
        "sender.pem": "the certificate of who signed the message",
        "receiver.pem": "the certificate of who signed the acknowledgement",
        SUMS: "the SHA-256 of each of these files",
        SCRIPT: "the commands that check all this",
    }
    return [f"  {name:<22}{words.get(name, 'a document of the message')}" for name in files]
