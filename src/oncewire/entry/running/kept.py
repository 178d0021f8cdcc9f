"""Kept: what a party's store has of the documents that a lake asks for, read in Spark's tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing

from oncewire.entry.messages.stored import InflatedContent, contents_of, files_of, why_not_kept
from oncewire.entry.party.settings import Settings
from oncewire.entry.party.store import open_readers
from oncewire.errors import NotAllowed, NotHere, OncewireError, StoreDamaged
from oncewire.handler.content_digest import check_kept
from oncewire.handler.delivering.view import read_view
from oncewire.handler.receiving.joining import CONTENT_TYPE as JOINED
from oncewire.handler.receiving.joining import PartRead, reference_of
from oncewire.handler.sending.outgoing_document import has_parts, is_whole
from oncewire.message.envelope import Payload
from oncewire.message.payload import DistantPayload
from oncewire.pipeline.reports.documents import Asked, Kept
from oncewire.pipeline.tasks import sentence
from oncewire.protocol.documents import DocumentState
from oncewire.store.contract import Reader
from oncewire.store.records import StoredIncoming
from oncewire.wire.parcel import ReadFault


def kept_of(settings: Settings, asked: Iterable[Asked]) -> Iterator[tuple[Asked, list[Kept]]]:
    """Of each message what its party's store has of its documents; no view of the store stays open
    while they are read."""
    with closing(open_readers(settings)) as readers:
        for each in asked:
            with readers.reader() as reader:
                try:
                    found = (_sent if each.sent else _received)(settings, reader, each)
                except NotAllowed as closed:
                    found = [Kept("closed", sentence(closed))]
                except NotHere as gone:
                    unjoined = each.parts[:1] if not each.sent and not each.joined else []
                    removed = any(map(reader.removed, (each.message_id, *unjoined)))
                    found = [Kept("removed" if removed else "missing", sentence(gone))]
                except (OncewireError, ReadFault) as failure:
                    found = [Kept("altered", sentence(failure))]
            yield each, found


def _sent(settings: Settings, reader: Reader, asked: Asked) -> list[Kept]:
    message_id = asked.message_id
    sent, parcel = reader.outgoing(message_id), reader.outgoing_parcel(message_id)
    if sent is None:
        raise why_not_kept(reader, message_id, refused=False)
    if has_parts(sent) and not is_whole(sent):
        return [Kept("closed", "It left in fragments, which have rows of their own.")]
    verdict, problem = "whole", None
    if parcel is not None:
        _check_files(settings, parcel.spooled)
        try:
            check_kept(parcel, message_id)
        except StoreDamaged as failure:
            verdict, problem = "altered", sentence(failure)
    payloads = contents_of(settings, reader, message_id, inflated=True)
    return [_document(each, None, verdict, problem) for each in payloads]


def _received(settings: Settings, reader: Reader, asked: Asked) -> list[Kept]:
    rows = _arrived(reader, asked, asked.message_id)
    if asked.parts or asked.joined:
        rows = [row for row in rows if row.parcel and row.parcel.content_type == JOINED]
        for part in () if rows or asked.joined else asked.parts:
            for row in _arrived(reader, asked, part):
                document = reader.document(row.incoming.sender, asked.message_id)
                if document is not None and document.state is not DocumentState.FAILED:
                    verdict = "waiting" if document.complete else "parts_missing"
                    here = f"{document.count} of its {document.total} parts are here."
                    return [Kept(verdict, here)]
                return [Kept("given_up", "It was given up, and its parts are not kept.")]
    if not rows or rows[0].parcel is None:
        raise why_not_kept(reader, asked.message_id, refused=bool(rows))
    _check_files(settings, rows[0].parcel.spooled)
    payloads = contents_of(settings, reader, asked.message_id, rows[0].incoming.sender)
    travelled = _travelled(reader, asked, payloads)
    return [_document(each, travelled.get(each.content_id)) for each in payloads]


def _document(
    payload: Payload,
    travelled: tuple[str | None, int] | None = None,
    verdict: str = "whole",
    problem: str | None = None,
) -> Kept:
    content = payload.content if isinstance(payload, DistantPayload) else None
    if isinstance(content, InflatedContent):
        travelled = content.encoding, content.travels.size
    return Kept(
        verdict,
        problem,
        payload.media_type,
        payload.file_name or None,
        *(travelled or (None, payload.size)),
        payload.size,
        # A row of ours is its own only witness; a file of the spool is named by its digest.
        (payload.digest or None) if content is not None else None,
        payload.open if content is None else content.open,
    )


def _check_files(settings: Settings, names: Iterable[str]) -> None:
    files = files_of(settings)
    for name in names:
        if not files(name).is_file():
            raise NotHere(f"the spool file {name} is not there", remedy="put it back from a backup")


def _arrived(reader: Reader, asked: Asked, message_id: str) -> list[StoredIncoming]:
    return [row for row in reader.incoming(message_id) if row.facts.from_party == asked.partner]


def _travelled(
    reader: Reader, asked: Asked, payloads: Collection[Payload]
) -> dict[str, tuple[str | None, int]]:
    """How each payload of a joined document was compressed, and how many bytes of it travelled, as
    far as its parts are kept and say so."""
    found: dict[str, tuple[str | None, int]] = {}
    rows = (row for part in asked.parts for row in _arrived(reader, asked, part))
    for view in (row.view for row in rows if row.view is not None):
        message = read_view(view).message
        for payload in message.payloads:
            part = PartRead(message, payload, reference_of(message, payload), ())
            made = part.reference.compression if part.reference is not None else None
            if part.stretch is not None:
                encoding = made.encoding if made is not None else payload.content_encoding
                found[payload.content_id] = encoding, part.stretch.size
        if len(found) == len(payloads):
            break
    return found
