"""Evidence: one message and the signed word of its receiver, in a file for others to check.

Nobody needs Oncewire for that: it takes openssl, xmlsec1 and xmllint, and the commands are in it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from oncewire.entry.messages.composing import as_file
from oncewire.entry.messages.kept import Kept, taken_apart
from oncewire.errors import SecurityFailure
from oncewire.handler.sealing.confide import is_closed
from oncewire.message import Acknowledgment
from oncewire.message.instant import Instant, format_instant
from oncewire.wire.parcel import Parcel
from oncewire.wire.security import algorithms, certificates, references
from oncewire.wire.security.references import SignedReference

MESSAGE, ACKNOWLEDGEMENT = "message", "acknowledgement"
PAGE, SUMS, SCRIPT = "README.txt", "SHA256SUMS", "verify.sh"
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
                entry.external_attr = (0o755 if name.endswith(SCRIPT) else 0o644) << 16
                archive.writestr(entry, content)
        return whole.getvalue()


def evidence_of(held: Held) -> Evidence:
    """Everything that somebody else needs to check what this party says of a message.

    What it says is checked here first, in the bytes that are kept. Raises StoreDamaged where the
    message or its acknowledgement cannot be read.
    """
    message = taken_apart(MESSAGE, held.message, held.agreed if not held.sent else ())
    answer = None
    if held.acknowledgement is not None:
        agreed = held.agreed if held.sent else ()
        answer = taken_apart(ACKNOWLEDGEMENT, held.acknowledgement, agreed)
    acks = () if answer is None or not answer.signed else answer.acknowledgments()
    named = tuple(ack for ack in acks if ack.ref_to_message_id == held.message_id)
    files = dict(_files(held, message, answer, named))
    proves, signed_for = _proves(held, message, answer, named)
    files[SUMS] = b"".join(
        f"{sha256(content).hexdigest()}  {name}\n".encode() for name, content in files.items()
    )
    files[SCRIPT] = resources.files("oncewire.entry.messages").joinpath(SCRIPT).read_bytes()
    page = _page(held, message, answer, proves, files)
    return Evidence({PAGE: page.encode(), **files}, proves, signed_for)


# --- files ---------------------------------------------------------------------------------------


def _files(
    held: Held, message: Kept, answer: Kept | None, named: Sequence[Acknowledgment]
) -> Iterator[tuple[str, bytes]]:
    yield f"{MESSAGE}.mime", as_file(held.message)
    yield f"{MESSAGE}.xml", message.received.envelope
    yield f"{MESSAGE}.c14n", message.octets
    numbered = message.references
    if not message.signed and named:
        # In the order of the acknowledgement: that is the one which the script can see.
        order = [references.content_id_of(each.uri) for each in named[0].references]
        listed = [each for each in numbered if each.content_id in order]
        numbered = tuple(sorted(listed, key=lambda each: order.index(each.content_id)))
    yield from _documents(message, numbered, "")
    if answer is not None and held.acknowledgement is not None:
        yield f"{ACKNOWLEDGEMENT}.mime", as_file(held.acknowledgement)
        yield f"{ACKNOWLEDGEMENT}.xml", answer.received.envelope
        yield f"{ACKNOWLEDGEMENT}.c14n", answer.octets
        yield from _documents(answer, answer.references, f"{ACKNOWLEDGEMENT}-")
    for each, file in ((message, "sender.pem"), (answer, "receiver.pem")):
        if each is not None and each.certificate is not None:
            yield file, each.certificate.public_bytes(Encoding.PEM)


def _documents(
    kept: Kept, numbered: Sequence[SignedReference], prefix: str
) -> Iterator[tuple[str, bytes]]:
    """The parts, numbered in the order of the references to them; then those without any."""
    others = list(kept.received.message.payloads)
    number = 0
    for reference in numbered:
        part = kept.document(reference.uri)
        number += reference.content_id is not None
        if part not in others:
            continue
        others.remove(part)
        data = part.data or b""
        fits = reference.same_digest(algorithms.digest(reference.digest_name, data))
        # What is signed is the document, not what travelled: who checks it has to put it in.
        kind = "encrypted" if is_closed(part) and not fits else "payload"
        yield f"{prefix}{kind}-{number}", data
    for number, part in enumerate(others, 1):
        yield f"{prefix}unsigned-{number}", part.data or b""


# --- the page ------------------------------------------------------------------------------------


def _proves(
    held: Held, message: Kept, answer: Kept | None, named: Sequence[Acknowledgment]
) -> tuple[str, bool]:
    whose = "the receiver" if held.sent else "we, the receiver,"
    if answer is None:
        return (
            "There is no signed acknowledgement: nothing here proves that it was received.",
            False,
        )
    for each in (message, answer):
        if each.trouble:
            return f"{_NOTHING}: the {each.name} that is kept {each.trouble}.", False
    if answer.certificate is None or not named:
        return f"It was acknowledged, but {whose} did not sign for what was received.", False
    try:
        (only,) = named
        theirs = [
            references.acknowledged(each.uri, each.digest_method, each.digest_value)
            for each in only.references
        ]
        references.check_acknowledged(theirs, message.references)
    except ValueError:
        return f"{_NOTHING}: it is acknowledged more than once in one acknowledgement.", False
    except SecurityFailure as problem:
        return f"{_NOTHING}: {problem.problem}.", False
    proven = (
        f"With its own key {whose} signed that it received exactly this message: the digests in "
        "the acknowledgement are those of the message and of its documents."
    )
    return proven, True


def _page(
    held: Held, message: Kept, answer: Kept | None, proves: str, files: dict[str, bytes]
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
    return "\n".join(lines) + _HOW


def _keys(held: Held, message: Kept, answer: Kept | None) -> list[str]:
    lines = ["Whose signatures they are"]
    for each in (message, answer):
        if each is None:
            continue
        if each.certificate is None:
            lines.append(
                f"  The {each.name} is signed, but nothing says by whom."
                if each.signed
                else f"  The {each.name} is not signed."
            )
            continue
        known = certificates.summary(each.certificate)
        lines.append(f"  The {each.name}: {known.subject}, SHA-256 {known.fingerprint}")
        theirs = (each.name == ACKNOWLEDGEMENT) is held.sent
        if theirs and each.certificate in held.agreed:
            lines.append("    It is the certificate that the agreement names for the other side.")
    return [*lines, ""]


def _contents(files: dict[str, bytes]) -> list[str]:
    words = {
        f"{MESSAGE}.mime": "the message with its MIME headers, to be read: it proves nothing",
        f"{MESSAGE}.xml": "its envelope, with the signature and with what nobody signed",
        f"{MESSAGE}.c14n": "what is signed of its envelope, and what the receiver digested",
        f"{ACKNOWLEDGEMENT}.mime": "the same of the acknowledgement, to be read: it proves nothing",
        f"{ACKNOWLEDGEMENT}.xml": "its envelope, with the signature and with what nobody signed",
        f"{ACKNOWLEDGEMENT}.c14n": "what is signed of its envelope",
        "sender.pem": "the certificate of who signed the message",
        "receiver.pem": "the certificate of who signed the acknowledgement",
        SUMS: "the SHA-256 of each of these files",
        SCRIPT: "the commands that check all this, the same in every evidence",
    }
    kinds = {
        "payload": "a document of the message",
        "encrypted": "a document as it travelled; the digests are of the document itself",
        "unsigned": "came with the message, but no digest covers it: it proves nothing",
        "acknowledgement": "came with the acknowledgement",
    }
    return [f"  {name:<22}{words.get(name) or kinds[name.split('-')[0]]}" for name in files]


_NOTHING = "Nothing here proves that it was received"
_HOW = f"""\
How to check it
  Run `sh {SCRIPT}`. It needs openssl, xmlsec1 and xmllint, and nothing of Oncewire. It ends with 0
  and a line PROVED where the receiver signed for exactly this message; with 2 where nobody signed
  for it; with 1, and a line that says why, where something here is not what it should be. It looks
  - that each file has its sum in {SUMS};
  - that the signatures are good by the certificates here, and which octets they cover: those in
    the .c14n files, known by their signed digests. All that follows is read there;
  - that the one acknowledgement in it is of this message's MessageId;
  - that the digests in the acknowledgement are those of {MESSAGE}.c14n and of each document, and
    that there is none too many and none too few.
  Of a document that travelled encrypted put the document itself there, as payload-1 and so on.

  Whoever gave you this could have changed {SCRIPT} as well: read it, or compare it with the one of
  Oncewire. A certificate is only as good as your reason to believe whose it is: compare its
  fingerprint with what its owner tells you by another way.
"""
