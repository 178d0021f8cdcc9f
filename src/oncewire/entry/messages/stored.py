"""The bytes and payloads of a message as the store keeps them, for readers beside its handler."""

from __future__ import annotations

import contextlib
import io
import re
import tarfile
import zipfile
from base64 import b64decode
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace as with_fields

from oncewire.agreement.toml import read_toml
from oncewire.entry.files import PRIVATE_FOLDER, WHOLE_FILE_MAX, make_folder, read_bytes
from oncewire.entry.messages.evidence import Evidence, Held, evidence_of, evidence_of_parts
from oncewire.errors import (
    EbxmlError,
    InvalidValue,
    NotAllowed,
    NotHere,
    OncewireError,
    StoreDamaged,
    StoreProblem,
)
from oncewire.handler.content_digest import (
    changed,
    check_kept,
    is_intact,
    is_of_pieces,
    with_digest,
)
from oncewire.handler.delivering.view import JoinedContent, PartContent, part_data, read_view
from oncewire.handler.encryption import is_closed, slices_of
from oncewire.handler.sending.answer import is_bundle
from oncewire.handler.sending.outgoing_document import CONTENT_TYPE as SPLIT
from oncewire.handler.sending.outgoing_document import OutgoingDocument, is_whole
from oncewire.journal import trace
from oncewire.journal.history import explain
from oncewire.message.envelope import MessageKind, Payload
from oncewire.message.file_name import name_in
from oncewire.message.instant import Instant, format_instant
from oncewire.message.payload import DistantPayload, as_file, distant
from oncewire.protocol import notes
from oncewire.protocol.documents import SplitDocument, part_id
from oncewire.store.bucket_spool import Bucket, bring
from oncewire.store.records import (
    SpoolSlice,
    StoredAnswer,
    StoredIncoming,
    StoredParcel,
    StoredReceipt,
)
from oncewire.store.spool import check_name
from oncewire.wire import codec
from oncewire.wire.limits import Limits
from oncewire.wire.mime.compression import Inflater
from oncewire.wire.mime.multipart import is_identity
from oncewire.wire.parcel import Parcel, PartPlace, ReadFault, Received
from oncewire.wire.security.certificates import from_der, load_certificate, validity

if TYPE_CHECKING:
    from cryptography import x509

    from oncewire.entry.party.settings import Settings
    from oncewire.protocol.states import Outgoing
    from oncewire.store.contract import Reader

_SIGNED_BY = re.compile(rb"<(?:[\w-]+:)?X509Certificate>([^<]+)<")


def intact_parcel(settings: Settings, reader: Reader, message_id: str) -> Parcel:
    """The same as `stored_parcel`, or StoreDamaged if they have another digest by now. Of what
    came without one, each document still has its own."""
    found, view = _found(reader, message_id)
    check_kept(found, message_id)
    parcel = whole(settings, found)
    if not is_intact(parcel) or (
        view is not None
        and not all(
            part_data(payload, place, parcel.body[place.offset : place.offset + place.length])
            is not None
            for payload, place in read_view(view).parts()
        )
    ):
        raise changed(message_id)
    return parcel


def stored_parcel(settings: Settings, reader: Reader, message_id: str) -> Parcel:
    """The bytes that were sent under that id or, if none were, that arrived, as they are now.

    Raises NotHere or NotAllowed, which say why there are none.
    """
    return whole(settings, _found(reader, message_id)[0])


def _found(reader: Reader, message_id: str) -> tuple[StoredParcel, bytes | None]:
    """What is stored, and the view of it if it arrived."""
    found = reader.outgoing_parcel(message_id)
    if found is not None:
        _check_is_message(
            found,
            message_id,
            f"`oncewire outbox --parts` lists its parts; "
            f"`oncewire show --raw 1-of-N.{message_id}` has the first",
        )
        return found, None
    if reader.outgoing(message_id) is not None:
        raise _waits(message_id)
    arrived = reader.incoming(message_id)
    for stored in arrived:
        if stored.parcel is not None:
            remedy = (
                "`oncewire inbox --parts` lists its parts; `oncewire inbox take` gives it whole"
            )
            _check_is_message(stored.parcel, message_id, remedy)
            return stored.parcel, stored.view
    raise why_not_kept(reader, message_id, refused=bool(arrived))


def _waits(message_id: str) -> NotAllowed:
    return NotAllowed(
        f"message {message_id} waits for its number: its bytes are made when it gets one",
        remedy="wait until the messages before it are acknowledged",
    )


def _check_is_message(stored: StoredParcel, message_id: str, remedy: str) -> None:
    """Refuse the row of a document in parts: no message ever had its bytes."""
    from oncewire.handler.receiving.joining import CONTENT_TYPE as JOINED

    if stored.content_type in (JOINED, SPLIT):
        raise NotAllowed(
            f"message {message_id} is a document that travels in parts: each of them is a message, "
            "it is none",
            remedy=remedy,
        )


def documents_of(reader: Reader, message_id: str) -> list[tuple[str, str, int, str]]:
    """Name, media type, size and SHA-256 of each document of a message, as far as that is written
    down without its bytes; what was sent is read where it is small."""
    with contextlib.suppress(EbxmlError, InvalidValue, ReadFault, StoreProblem):
        stored, parcel = reader.outgoing(message_id), reader.outgoing_parcel(message_id)
        if stored is not None and parcel is not None:
            if is_whole(stored):
                # Of a document that travels in parts; a file that was compressed has another
                # digest.
                original = OutgoingDocument.read(parcel, message_id)
                return [
                    (
                        name_in(content.mime_headers, content.media_type),
                        content.media_type,
                        content.size,
                        content.name if content.encoding is None else "",
                    )
                    for content in original.contents
                ]
            return _sent(parcel, part=stored.facts.split_number is not None)
        for arrived in reader.incoming(message_id):
            if arrived.view is not None:
                return [
                    (payload.file_name, payload.media_type, payload.size, payload.digest)
                    for payload in read_view(arrived.view).message.payloads
                ]
    return []


def _sent(parcel: StoredParcel, *, part: bool) -> list[tuple[str, str, int, str]]:
    """Of a message as it was laid out. No file of the spool is read: its name, which is its
    digest, stands in its place. What is encrypted, and what a part carries, is not the file that
    was handed in."""
    files = {piece.name.encode(): piece for piece in parcel.body if isinstance(piece, SpoolSlice)}
    found = []
    for payload in laid_out(parcel).message.payloads:
        file = files.get(payload.data or b"")
        size, digest = (payload.size, payload.digest) if file is None else (file.length, file.name)
        known = not part and not is_closed(payload)
        found.append((payload.file_name, payload.media_type, size, digest if known else ""))
    return found


def laid_out(parcel: StoredParcel) -> Received:
    """A message of ours with the names of spool files in their places."""
    pieces = (part if isinstance(part, bytes) else part.name.encode() for part in parcel.body)
    return codec.read(Parcel(parcel.content_type, b"".join(pieces), parcel.headers))


def outworn(settings: Settings, reader: Reader, message_id: str, now: Instant) -> str:
    """What may keep a receiver from believing the signature of a message of ours, in words: it is
    sent again as it is, with the certificate of its time. Empty where that is still ours."""
    parcel = reader.outgoing_parcel(message_id)
    try:
        found = None if parcel is None else _SIGNED_BY.search(laid_out(parcel).envelope)
        if found is None:
            return ""
        signer = from_der(b64decode(found[1]))
        own = load_certificate(read_bytes(settings.path(settings.keys.certificate), "certificate"))
    except (OncewireError, ReadFault):
        return ""
    ended = validity(signer)[1]
    if ended < now:
        return f"it is signed with a certificate that ended on {format_instant(ended)[:10]}"
    return "" if signer == own else "it is signed with a certificate that was ours before"


def why_not_kept(reader: Reader, message_id: str, *, refused: bool) -> NotHere:
    """Why no bytes of a message are kept; `refused`: it is known, and was not accepted."""
    story = f"`oncewire why {message_id}` still tells its story"
    if refused:
        return NotHere(f"message {message_id} was refused: its bytes are not kept", remedy=story)
    for gone in reader.removed(message_id):
        when = format_instant(gone.removed_at)
        return NotHere(
            f"the bytes of {message_id} were removed by retention on {when}",
            remedy=f"{story}; `oncewire hold` keeps messages longer, and so does delivery.keep",
        )
    return NotHere(f"no bytes of {message_id} are kept", remedy=story)


def whole(settings: Settings, stored: StoredParcel) -> Parcel:
    """A stored parcel with all its bytes, those in the spool too; NotAllowed where they are more
    than anybody should have in memory, StoreDamaged where the spool has others."""
    if stored.size > WHOLE_FILE_MAX:
        raise NotAllowed(
            f"its {stored.size:,} bytes are too many to be shown whole",
            remedy="have its documents with `oncewire inbox take --output FOLDER`",
        )
    spool = files_of(settings)
    pieces = []
    for part in stored.body:
        if isinstance(part, bytes):
            pieces.append(part)
            continue
        # Only looked at: opening the spool as its owner does would clear away what is half
        # written by the handler that runs.
        content = read_bytes(spool(part.name), "spool file")
        if sha256(content).hexdigest() != part.name:
            raise StoreDamaged(
                f"spool file {part.name} has changed",
                remedy="put it back from a copy of the spool directory",
            )
        pieces.append(content[part.offset : part.offset + part.length])
    parcel = Parcel(stored.content_type, b"".join(pieces), stored.headers)
    return with_digest(parcel) if is_of_pieces(stored) else parcel


# What a party's store holds of one message, as evidence is made of it.


_PAGE = 500
"""How many messages are looked through at a time for the parts of a document."""


def held_of(settings: Settings, reader: Reader, message_id: str) -> Held:
    """The message and its acknowledgement, whichever of them this party sent.

    Raises NotHere or NotAllowed where not even the message is kept.
    """
    message = stored_parcel(settings, reader, message_id)
    story = explain(reader.journal_of(message_id))
    sent = reader.outgoing(message_id)
    if sent is not None:
        receipt = reader.receipt(message_id)
        answer = None if receipt is None else whole(settings, receipt.parcel)
        at = None if receipt is None else receipt.received_at
        agreed = _agreed(reader, sent.agreement_id)
        of_hub = receipt is not None and _is_of_hub(reader, sent.outgoing, receipt)
        return Held(
            message_id, settings.party.name, True, message, answer, at, story, agreed, of_hub
        )
    for arrived in reader.incoming(message_id):
        answer = _acknowledgement(settings, arrived.answer)
        agreed = _agreed(reader, arrived.agreement_id)
        return Held(message_id, settings.party.name, False, message, answer, None, story, agreed)
    return Held(message_id, settings.party.name, False, message, None, None, story)


def _is_of_hub(reader: Reader, outgoing: Outgoing, receipt: StoredReceipt) -> bool:
    """Whether a hub signed the acknowledgement that is kept: its row tells, or else the state."""
    for row in reader.journal_of(outgoing.message_id):
        if row.kind == trace.ACKNOWLEDGED and row.ref_to == receipt.receipt_id:
            return notes.Acknowledged.read(row.detail).hop
    return outgoing.taken_over


def evidence_for(settings: Settings, reader: Reader, message_id: str) -> Evidence:
    """The evidence of a message, or of every part of a document."""
    parts, total = parts_of(reader, message_id)
    if not parts:
        return evidence_of(held_of(settings, reader, message_id))
    kept = [held_of(settings, reader, part) for part in parts]
    return evidence_of_parts(message_id, kept, total)


def parts_of(reader: Reader, message_id: str) -> tuple[tuple[str, ...], int]:
    """The MessageIds of the parts of a document, in their order, and how many it has in all; none
    where it is one message."""
    sent = reader.outgoing(message_id)
    if sent is not None:
        document = reader.document("", message_id)
        if document is None or sent.facts.split_number is not None:
            return (), 0
        numbers = range(1, document.released + 1)
        return tuple(part_id(message_id, each, document.total) for each in numbers), document.total
    for arrived in reader.incoming(message_id):
        document = reader.document(arrived.incoming.sender, message_id)
        if document is not None and arrived.facts.split_number is None:
            return _arrived_parts(reader, arrived.incoming.sender, document), document.total
    return (), 0


def _arrived_parts(reader: Reader, sender: str, document: SplitDocument) -> tuple[str, ...]:
    """Its parts among all that arrived: their ids are their sender's choice."""
    found: dict[int, str] = {}
    before = None
    while len(found) < document.total:
        page = reader.incoming_list(limit=_PAGE, before=before)
        for each in page:
            facts = each.facts
            if facts.split_id == document.split_id and each.incoming.sender == sender:
                found[facts.split_number or 0] = each.incoming.message_id
        found.pop(0, None)
        if len(page) < _PAGE:
            break
        before = page[-1].row
    return tuple(found[number] for number in sorted(found))


def _acknowledgement(settings: Settings, answer: StoredAnswer | None) -> Parcel | None:
    """Of what a message was answered with, the part that acknowledges it."""
    if answer is None or answer.kind is MessageKind.ERROR:
        return None
    parcel = whole(settings, answer.parcel)
    if not is_bundle(answer):
        return parcel
    parts = codec.unbundle(parcel, Limits())
    return next((part for part in parts if codec.read(part).message.acknowledgments), None)


def _agreed(reader: Reader, agreement_id: str | None) -> tuple[x509.Certificate, ...]:
    text = None if agreement_id is None else reader.agreement(agreement_id)
    if text is None:
        return ()
    pinned = read_toml(text).receiving.security.partner_certificates
    return tuple(load_certificate(der) for der in pinned)


# Recorded exchanges: requests and the answers another handler gave, from a folder or an archive.
#
# Two files are one exchange when their names differ only in saying which they are:
# `order-17.request.http` and `order-17.response.http`, or with `-`, `_` and the words req, resp,
# answer, reply. A file that says neither is a request whose answer was not recorded.


FILES_MAX = 200_000
FILE_MAX = 64 * 1024 * 1024

_ROLE = re.compile(
    r"(?P<before>^|[._-])(?P<role>requests?|req|responses?|resp|answers?|reply|replies)"
    r"(?=$|[._-]|\d)",
    re.IGNORECASE,
)
_SKIPPED = re.compile(r"(^|/)(\.|__MACOSX/)|\.(md|txt|json|csv)$", re.IGNORECASE)

Read = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A recorded request and its answer; both are read when they are asked for."""

    name: str
    request: Read
    answer: Read | None = None


def exchanges(place: Path) -> tuple[Exchange, ...]:
    """The exchanges in a folder, a zip, a tar or one file, in the order of their names."""
    if not place.exists():
        raise NotHere(
            f"there is no archive {place}", remedy="name a folder, a .zip, a .tar or a file"
        )
    if place.is_dir():
        return _paired(_in_folder(place))
    if zipfile.is_zipfile(place):
        return _paired(_in_zip(place))
    if tarfile.is_tarfile(place):
        return _paired(_in_tar(place))
    return _paired([(place.name, partial(read_bytes, place, "archive", FILE_MAX))])


def _in_folder(folder: Path) -> Iterable[tuple[str, Read]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(folder).as_posix()
            yield name, partial(read_bytes, path, "recorded message", FILE_MAX)


def _in_zip(place: Path) -> Iterable[tuple[str, Read]]:
    def read(name: str) -> bytes:
        with zipfile.ZipFile(place) as archive, archive.open(name) as member:
            return _bounded(member.read(FILE_MAX + 1), name)

    try:
        with zipfile.ZipFile(place) as archive:
            names = sorted(
                each_member.filename
                for each_member in archive.infolist()
                if not each_member.is_dir()
            )
    except zipfile.BadZipFile as error:
        raise InvalidValue(f"{place} is a damaged zip: {error}", remedy="record it again") from None
    for name in names:
        yield name, partial(read, name)


def _in_tar(place: Path) -> Iterable[tuple[str, Read]]:
    # A tar has no index: everything is read in one pass, which bounds what it may hold.
    found: list[tuple[str, Read]] = []
    try:
        with tarfile.open(place) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                if content is None:
                    continue
                data = _bounded(content.read(FILE_MAX + 1), member.name)
                found.append((member.name, partial(bytes, data)))
                if len(found) > FILES_MAX:
                    break
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InvalidValue(f"{place} is a damaged tar: {error}", remedy="record it again") from None
    return sorted(found, key=lambda pair: pair[0])


def _bounded(data: bytes, name: str) -> bytes:
    if len(data) > FILE_MAX:
        raise InvalidValue(
            f"{name} has more than {FILE_MAX} bytes", remedy="leave it out of the archive"
        )
    return data


def _paired(files: Iterable[tuple[str, Read]]) -> tuple[Exchange, ...]:
    requests: dict[str, tuple[str, Read]] = {}
    answers: dict[str, Read] = {}
    for count, (name, read) in enumerate(files):
        if count >= FILES_MAX:
            raise InvalidValue(
                f"the archive has more than {FILES_MAX} files", remedy="replay it in pieces"
            )
        if _SKIPPED.search(name):
            continue
        key, is_answer = _role(name)
        if is_answer:
            answers[key] = read
        else:
            requests[key] = (name, read)
    return tuple(
        Exchange(name, read, answers.get(key)) for key, (name, read) in sorted(requests.items())
    )


def _role(name: str) -> tuple[str, bool]:
    """What a name has in common with its other half, and whether it is the answer."""
    folder, _, last = name.rpartition("/")
    found = _ROLE.search(last)
    if found is None:
        return name, False
    # The ending may differ between the two halves; what is left of the name may not.
    rest = last[: found.start()] + last[found.end() :]
    stem = rest.rpartition(".")[0] if "." in rest else rest
    is_answer = not found.group("role").lower().startswith("req")
    return f"{folder}/{stem}", is_answer


# Contents: the documents of a stored message, sent or received, read piece by piece from where
# they lie, by a process that does not own the store.

_AT_ONCE = 1024 * 1024

Files = Callable[[str], Path]
"""Where a file of the spool lies on this machine, by its name."""


def files_of(settings: Settings) -> Files:
    """The files of a party's spool; of one in a bucket a copy is made where there is none."""
    folder = settings.path(settings.store.spool)
    if settings.store.bucket:
        make_folder(folder, PRIVATE_FOLDER)
        return partial(bring, Bucket(settings.store.bucket), folder)
    return lambda name: folder / check_name(name)


def contents_of(
    settings: Settings,
    reader: Reader,
    message_id: str,
    sender: str | None = None,
    *,
    inflated: bool = False,
) -> list[Payload]:
    """The documents of a message, in order; `sender` says whose it is where two partners used one
    id. NotHere or NotAllowed say why there are none. `inflated`: also what was compressed to be
    sent, whose own digest is not known."""
    spool = files_of(settings)
    sent = None if sender else reader.outgoing(message_id)
    if sent is not None:
        parcel = reader.outgoing_parcel(message_id)
        if parcel is None:
            raise _waits(message_id)
        if is_whole(sent):
            return _payloads_in_parts(spool, parcel, message_id, inflated=inflated)
        # What was closed or written as one lies in one file, header and all.
        one_file = isinstance(parcel.body[0], SpoolSlice)
        read = codec.read(whole(settings, parcel)) if one_file else laid_out(parcel)
        return [_sent_payload(spool, parcel, payload) for payload in read.message.payloads]
    arrived = reader.incoming(message_id)
    for stored in arrived:
        if sender in (None, stored.incoming.sender) and stored.parcel is not None:
            return _received(spool, stored, stored.parcel)
    raise why_not_kept(reader, message_id, refused=bool(arrived))


def nth_content(
    settings: Settings, reader: Reader, message_id: str, number: int, sender: str | None = None
) -> Payload:
    """One document of a message; the first is 1."""
    found = contents_of(settings, reader, message_id, sender)
    if not 1 <= number <= len(found):
        raise NotHere(
            f"message {message_id} has no payload {number}",
            remedy=f"it has {len(found)}; the first is 1",
        )
    return found[number - 1]


def open_at(payload: Payload, start: int) -> BinaryIO:
    """The document as a file, from a byte of it on. Read from its beginning, its digest is
    proved."""
    content = payload.content if isinstance(payload, DistantPayload) else None
    if not start or not isinstance(content, JoinedContent):
        file = payload.open()
        while start and (passed := file.read(min(start, _AT_ONCE))):
            start -= len(passed)
        return file
    pieces = []
    for piece in content.pieces:
        skipped = min(start, piece.length)
        start -= skipped
        pieces.append(replace(piece, offset=piece.offset + skipped, length=piece.length - skipped))
    return JoinedContent(tuple(pieces)).open()


def _received(spool: Files, stored: StoredIncoming, parcel: StoredParcel) -> list[Payload]:
    """The payloads of a message that arrived."""
    if stored.view is None:
        raise NotAllowed(
            f"message {stored.incoming.message_id} is kept encrypted",
            remedy="take it: what is handed over is decrypted",
        )
    return [
        distant(payload, _placed(spool, slices_of(parcel, place.offset, place.length), place))
        for payload, place in read_view(stored.view).parts()
    ]


def _placed(
    spool: Files, slices: Sequence[bytes | SpoolSlice], place: PartPlace
) -> PartContent | JoinedContent:
    """A part of a message, of the pieces that it lies in."""
    if is_identity(place.encoding):
        return JoinedContent(tuple(_piece(spool, each) for each in slices))
    if len(slices) == 1:
        return replace(_piece(spool, slices[0]), encoding=place.encoding)
    # An encoded part is decoded as one; it is as small as what is parsed in memory.
    data = b"".join(_bytes(_piece(spool, each)) for each in slices)
    return PartContent(partial(io.BytesIO, data), 0, len(data), place.encoding)


def _bytes(piece: PartContent) -> bytes:
    with piece.open() as file:
        return file.read()


def _piece(spool: Files, lies: bytes | SpoolSlice) -> PartContent:
    """One piece, in memory or in a file of the spool."""
    if isinstance(lies, bytes):
        return PartContent(partial(io.BytesIO, lies), 0, len(lies))
    return PartContent(partial(_opened, spool, lies.name), lies.offset, lies.length)


def _opened(spool: Files, name: str) -> BinaryIO:
    try:
        return spool(name).open("rb")
    except OSError as error:
        raise StoreDamaged(
            f"the spool file {name} cannot be opened: {error.strerror}",
            remedy="put it back from a copy of the spool directory",
        ) from None


def _sent_payload(spool: Files, parcel: StoredParcel, payload: Payload) -> Payload:
    """A payload of ours; the name of its file of the spool stands in its place."""
    if is_closed(payload):
        raise NotAllowed(
            f"payload {payload.content_id} left encrypted, and is kept so",
            remedy="read it where it was handed in",
        )
    for piece in parcel.body:
        if isinstance(piece, SpoolSlice) and piece.name.encode() == payload.data:
            found = Payload(
                payload.content_id,
                payload.media_type,
                piece.length,
                piece.name,
                mime_headers=payload.mime_headers,
            )
            return distant(found, JoinedContent((_piece(spool, piece),)))
    return payload


def _payloads_in_parts(
    spool: Files, parcel: StoredParcel, message_id: str, *, inflated: bool
) -> list[Payload]:
    """The payloads of a document that travels in parts."""
    found: list[Payload] = []
    for number, content in enumerate(OutgoingDocument.read(parcel, message_id).contents, 1):
        if content.encoding is not None and not inflated:
            raise NotAllowed(
                f"payload {number} of {message_id} was compressed to be sent",
                remedy="read it where it was handed in",
            )
        lies = _piece(spool, SpoolSlice(content.name, 0, content.length))
        payload = Payload(
            content.content_id,
            content.media_type,
            content.length,
            content.name,
            mime_headers=content.mime_headers,
        )
        travels = distant(payload, JoinedContent((lies,)))
        if content.encoding is not None:
            undone = InflatedContent(travels, content.encoding, content.size)
            travels = distant(with_fields(payload, size=content.size, digest=""), undone)
        found.append(travels)
    return found


@dataclass(frozen=True, slots=True)
class InflatedContent:
    """See `message.payload.Content`. A payload that lies compressed; what is read of it is proved
    by the digest of what travels."""

    travels: Payload
    encoding: str
    size: int

    def open(self) -> BinaryIO:
        """See `message.payload.Content`."""
        pieces = self._pieces()
        return as_file(pieces, pieces.close)

    def _pieces(self) -> Generator[bytes]:
        # It is ours, and its size is known: that bounds it.
        limits = Limits(compression_ratio=self.size)
        inflater = Inflater(self.encoding, limits, size_max=self.size)
        with self.travels.open() as file:
            while piece := file.read(_AT_ONCE):
                yield from inflater.feed(piece)
        yield from inflater.finish()
