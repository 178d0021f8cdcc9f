"""Evidence: one message and the signed word of its receiver, in a file for others to check.

It needs no Oncewire: it takes openssl, xmlsec1 and xmllint, and the commands are in it.
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

from oncewire.entry.files import WHOLE_FILE_MAX
from oncewire.errors import EbxmlError, NotAllowed, SecurityFailure, StoreDamaged
from oncewire.handler.content_digest import is_intact
from oncewire.handler.encryption import is_closed
from oncewire.message.envelope import Acknowledgment, Payload
from oncewire.message.form import Validation
from oncewire.message.instant import Instant, format_instant
from oncewire.wire import codec, header
from oncewire.wire.limits import DEFAULT_LIMITS
from oncewire.wire.parcel import Parcel, ReadFault, Received, as_file
from oncewire.wire.security import algorithms, certificates, references, signature
from oncewire.wire.security.references import (
    USUAL,
    SignedReference,
    bare_content_id,
    content_id_of,
    signature_parts,
)

# A message as it is kept, taken apart and checked again before anything is said of it.
#
# That it was good when it came says nothing of the bytes that are on the disk today.


@dataclass(frozen=True, slots=True)
class Kept:
    """One of the two messages of evidence: what is in it, and what of it a signature covers."""

    name: str
    received: Received
    # Whose key made the signature; None where there is none, or it is unknown.
    certificate: x509.Certificate | None
    # The octets of its envelope that are digested; the references say of what else.
    octets: bytes
    references: tuple[SignedReference, ...]
    # What of the kept bytes is not as it was signed or stored; empty where all is well.
    trouble: str

    @property
    def signed(self) -> bool:
        """Whether there is a signature, whoever made it."""
        return self.received.signed

    def document(self, uri: str) -> Payload | None:
        """The part that such a URI names."""
        wanted = content_id_of(uri)
        for payload in self.received.message.payloads:
            if wanted is not None and bare_content_id(payload.content_id) == wanted:
                return payload
        return None

    def acknowledgments(self) -> tuple[Acknowledgment, ...]:
        """Those that the signature covers: one for the next hop anybody may have put in."""
        try:
            reading = header.read(
                self.octets, None, DEFAULT_LIMITS, Validation.OFF, self.received.message.payloads
            )
        except ReadFault:
            # Without its unsigned parts it is no acknowledgement any more.
            return ()
        return reading.message.acknowledgments


def taken_apart(name: str, parcel: Parcel, agreed: Sequence[x509.Certificate]) -> Kept:
    """The kept message, checked; StoreDamaged where it cannot even be read."""
    try:
        received = codec.read(parcel)
        if not received.signed:
            return _unsigned(name, parcel, received)
        report = signature.inspect(received.octets, signature_parts(received), agreed)
        references = signature.signed_references(received.octets)
    except (EbxmlError, ReadFault) as problem:
        raise StoreDamaged(
            f"the {name} that is kept cannot be read any more: {problem}",
            remedy="nothing can be proved by it; look for an older copy in a backup",
        ) from problem
    kept = Kept(name, received, report.certificate, report.octets, references, "")
    trouble = _trouble(kept, report) or _stored_otherwise(parcel)
    return Kept(name, received, report.certificate, report.octets, references, trouble)


def _unsigned(name: str, parcel: Parcel, received: Received) -> Kept:
    octets: bytes = b""
    references: tuple[SignedReference, ...] = ()
    try:
        octets = signature.envelope_octets(received.octets)
        parts = signature_parts(received)
        references = signature.computed_references(received.octets, parts, USUAL)
    except SecurityFailure:
        # What could not be signed cannot be signed for.
        pass
    return Kept(name, received, None, octets, references, _stored_otherwise(parcel))


def _stored_otherwise(parcel: Parcel) -> str:
    return "" if is_intact(parcel) else "is not what was stored: its digest is another one"


def _trouble(kept: Kept, report: signature.SignatureReport) -> str:
    if report.certificate is not None and not report.value_good:
        return "has a signature that was not made with the key of its certificate"
    for uri, good in report.references:
        if good:
            continue
        if not uri:
            return "is not what was signed: its envelope was changed"
        part = kept.document(uri)
        # The signature is over the document, and only who can decrypt it can compare.
        if part is None or not is_closed(part):
            return f"is not what was signed: its document {uri} is missing or was changed"
    return ""


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
    # The acknowledgement is of a hub on the way, which took the message over (HOP-8).
    of_hub: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """The files, by name, and in a few words what they prove."""

    files: dict[str, bytes]
    proves: str
    # Whether the receiver has signed for the message.
    signed_for: bool
    # A hub on the way has signed that it took it over, and the receiver has signed nothing.
    taken_over: bool = False

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
    """Everything that another party needs to check what this party says of a message.

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
    proves, signed = _proves(held, message, answer, named)
    files[SUMS] = b"".join(
        f"{sha256(content).hexdigest()}  {name}\n".encode() for name, content in files.items()
    )
    files[SCRIPT] = resources.files("oncewire.entry.messages").joinpath(SCRIPT).read_bytes()
    page = _page(held, message, answer, proves, files)
    of_hub = signed and held.of_hub
    return Evidence({PAGE: page.encode(), **files}, proves, signed and not of_hub, of_hub)


# --- files ---------------------------------------------------------------------------------------


def _files(
    held: Held, message: Kept, answer: Kept | None, named: Sequence[Acknowledgment]
) -> Iterator[tuple[str, bytes]]:
    yield f"{MESSAGE}.mime", as_file(held.message)
    yield f"{MESSAGE}.xml", message.received.octets
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
        yield f"{ACKNOWLEDGEMENT}.xml", answer.received.octets
        yield f"{ACKNOWLEDGEMENT}.c14n", answer.octets
        yield from _documents(answer, answer.references, f"{ACKNOWLEDGEMENT}-")
    signer = "hub.pem" if held.of_hub else "receiver.pem"
    for each, file in ((message, "sender.pem"), (answer, signer)):
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
    """What is proved, in words, and whether who acknowledged the message signed for it."""
    whose = "the receiver" if held.sent else "we, the receiver,"
    if held.of_hub and answer is not None:
        whose = f"{answer.received.message.header.from_party}, a hub on the way,"
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
    if held.of_hub:
        took = (
            f"With its own key {whose} signed that it took over exactly this message, to carry it "
            "on. The receiver did not sign for it: nothing here proves that it was delivered."
        )
        return took, True
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
        "hub.pem": "the certificate of the hub that signed the acknowledgement",
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
  for it; with 3 where a hub on the way signed that it took it over, and the receiver did not;
  with 1, and a line that says why, where something here is not what it should be. It looks
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


# Evidence of a document that was sent in parts: that of each part, and how they join.


_WHOLE_SCRIPT = "verify_parts.sh"


def evidence_of_parts(document_id: str, parts: Sequence[Held], total: int) -> Evidence:
    """A folder for each part with all that is in the evidence of a message, and a page."""
    if sum(len(held.message.body) for held in parts) > WHOLE_FILE_MAX:
        raise NotAllowed(
            f"the {total} parts of {document_id} are too much for one file",
            remedy=f"make evidence of each part by itself, from `oncewire evidence "
            f"{parts[0].message_id}` on",
        )
    files: dict[str, bytes] = {}
    unproven, by_hubs = [], len(parts) == total
    for number, held in enumerate(parts, 1):
        made = evidence_of(held)
        files |= {f"part-{number}/{name}": content for name, content in made.files.items()}
        if not made.signed_for:
            unproven.append(f"Part {number}, {held.message_id}: {made.proves}")
            by_hubs = by_hubs and made.taken_over
    if len(parts) < total:
        unproven.append(f"Only {len(parts)} of its {total} parts are here.")
    proves = (
        "It was sent in parts, and the receiver has not signed for all of them: "
        "nothing here proves that the document was received."
        if unproven
        else f"The document was sent in {total} parts, and the receiver signed for each of them: "
        "the digests in the acknowledgements are those of the parts."
    )
    whole = resources.files("oncewire.entry.messages").joinpath(_WHOLE_SCRIPT).read_bytes()
    page = _page_of_parts(document_id, parts, proves, unproven)
    whole_files = {PAGE: page.encode(), SCRIPT: whole, **files}
    return Evidence(whole_files, proves, not unproven, bool(unproven) and by_hubs)


def _page_of_parts(
    document_id: str, parts: Sequence[Held], proves: str, unproven: Sequence[str]
) -> str:
    lines = [f"Evidence of the document {document_id}", "", "What this proves", f"  {proves}"]
    lines += [f"  {each}" for each in unproven]
    lines += ["", "Its parts, each a message of its own with an acknowledgement of its own"]
    lines += [f"  part-{number}/  {held.message_id}" for number, held in enumerate(parts, 1)]
    return "\n".join(lines) + _HOW_PARTS


_HOW_PARTS = f"""

How they join
  Each part's message.c14n, which is signed for, says of which document it is a part (SplitId), its
  number and how many there are (SplitNumber), and which bytes it holds (Stretch): their offset, and
  the size and the SHA-256 of all that travelled. The payload-1 of all parts, one after the other,
  are that; if the Stretch names a compression, the document is what it was before it.

How to check it
  Run `sh {SCRIPT}`. It runs the one in each part's folder, which has a page of its own that says
  what is checked, and then looks that all the parts are here, that they are parts of the same
  document, and that they join to what has the announced SHA-256. It ends with 0 and a last line
  PROVED only if all of that is so. It needs openssl, xmlsec1 and xmllint.
"""
