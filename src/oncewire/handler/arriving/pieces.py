"""Pieces: the parts of a document as they are stored, and which of its payloads each is of.

Parts say themselves which of how many they are, and where in a payload they lie; or another message
names them in their order (`mid:`), and says of what file they are.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from oncewire.errors import Inconsistent
from oncewire.handler.delivering.accepted import accepted
from oncewire.handler.delivering.view import read_view
from oncewire.handler.documents.claims import attachment_of
from oncewire.handler.documents.joining import Encoded, Piece, Pieces
from oncewire.handler.documents.parts import RANGE, WHOLE_DIGEST
from oncewire.handler.documents.splitting import FRAGMENT_ENCODING
from oncewire.handler.node import Node
from oncewire.handler.sealing.spooled import slices_of
from oncewire.message.attachment import attachment_in, message_named
from oncewire.message.envelope import Message
from oncewire.message.payload import Payload, Reference, Stretch
from oncewire.protocol.documents import SplitDocument
from oncewire.protocol.states import IncomingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import SpoolSlice, StoredIncoming
from oncewire.wire.mime.transfer import is_identity
from oncewire.wire.resolve import part_of

_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})")
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")
_OURS = frozenset({RANGE.lower(), WHOLE_DIGEST.lower()})


@dataclass(frozen=True, slots=True)
class PartRead:
    """One part: its payload, what is said of it, and where its bytes lie."""

    message: Message
    payload: Payload
    reference: Reference | None
    body: tuple[Piece, ...]
    # It was compressed before it was cut, whatever its reference has no word for.
    encoding: str | None = None

    @property
    def stretch(self) -> Stretch | None:
        """Which bytes of the payload these are. What the header says counts before what is said
        beside the part, which no signature covers."""
        if self.reference is not None and self.reference.stretch is not None:
            return self.reference.stretch
        told = {name.lower(): value for name, value in self.payload.mime_headers}
        found = _RANGE.fullmatch(told.get(RANGE.lower(), "").strip())
        if found is None:
            return None
        digest = _DIGEST.search(told.get(WHOLE_DIGEST.lower(), ""))
        whole = "" if digest is None else base64.b64decode(digest.group(1)).hex()
        return Stretch(int(found.group(1)), int(found.group(2)), whole)


def read_part(node: Node, tx: Transaction, listed: StoredIncoming) -> PartRead:
    """A part that is stored; what may stand beside it in its message is not looked at."""
    found = read_payloads(node, tx, listed)
    return found[attachment_of(found[0].message) or 0]


def read_payloads(node: Node, tx: Transaction, listed: StoredIncoming) -> list[PartRead]:
    """Every payload of a stored message, and where it lies."""
    stored = tx.incoming(listed.incoming.sender, listed.incoming.message_id) or listed
    found: list[PartRead] = []
    if stored.view is not None and stored.parcel is not None:
        view = read_view(stored.view)
        for payload, place in view.parts():
            lies = slices_of(stored.parcel, place.offset, place.length)
            coded = not is_identity(place.encoding)
            body = (Encoded(lies, place.encoding),) if coded else lies
            found.append(PartRead(view.message, payload, _said(view.message, payload), body))
        return found
    message = accepted(node, stored)
    for payload in message.payloads:
        name, length = node.store.spool.put((payload.data or b"",))
        node.spooled.append(name)
        body = (SpoolSlice(name, 0, length),)
        found.append(PartRead(message, payload, _said(message, payload), body))
    return found


def _said(message: Message, payload: Payload) -> Reference | None:
    """What the Manifest says of a payload."""
    for reference in message.manifest:
        name = reference.content_id
        if name is not None and part_of(name, (payload.content_id,)) is not None:
            return reference
    return None


def contents(document: SplitDocument, parts: Sequence[PartRead], terms: Terms) -> Iterator[Pieces]:
    """The payloads that the parts are of. Parts of one payload have its Content-ID, and say where
    in it they lie; where they do not say, all are of one payload (slides)."""
    silent = all(part.stretch is None for part in parts)
    groups: list[list[PartRead]] = []
    for part in parts:
        stretch = part.stretch
        begins = not silent and stretch is not None and stretch.offset == 0
        same = groups and (silent or groups[-1][0].payload.content_id == part.payload.content_id)
        if groups and same and not (begins and part.payload.size):
            groups[-1].append(part)
        else:
            groups.append([part])
    names = [group[0].payload.content_id for group in groups]
    if len(set(names)) < len(names):
        raise _do_not_fit(document, "two of its payloads have one Content-ID")
    for group in groups:
        yield _pieces(document, group, terms.compress_encoding)


def _pieces(document: SplitDocument, group: list[PartRead], agreed: str | None) -> Pieces:
    first, end = group[0], 0
    for part in group:
        stretch = part.stretch
        told = (stretch.size, stretch.digest) if stretch else None
        if stretch is not None and stretch.offset != end:
            raise _do_not_fit(document, "its parts leave gaps, or lie over each other")
        if told != ((first.stretch.size, first.stretch.digest) if first.stretch else None):
            raise _do_not_fit(document, "its parts tell different things of the whole")
        end += part.payload.size
    made = first.reference.compression if first.reference is not None else None
    encoding = made.encoding if made is not None else first.payload.content_encoding
    encoding = first.encoding or encoding
    told_headers = first.payload.mime_headers
    headers = tuple(pair for pair in told_headers if pair[0].lower() not in _OURS)
    # Who says where in the document a part lies means the whole of it; what else is compressed is
    # the application's, unless that was agreed.
    told_so = made is not None or first.encoding is not None
    ours = told_so or first.stretch is not None or encoding == agreed
    undone = encoding if ours else None
    kept = None if undone else first.payload.content_encoding
    payload = replace(first.payload, data=None, content_encoding=kept, mime_headers=headers)
    whole = first.stretch
    return Pieces(
        payload,
        tuple(piece for part in group for piece in part.body),
        undone,
        None if whole is None else whole.size,
        None if whole is None else whole.digest,
        made.original_size if made is not None and undone else None,
    )


def _do_not_fit(document: SplitDocument, problem: str) -> Inconsistent:
    return Inconsistent(
        f"document {document.split_id} cannot be put together: {problem}",
        location="//SplitNumber",
        remedy="send the document again, under a SplitId of its own",
    )


# --- a message names them ------------------------------------------------------------------------


def index_of(node: Node, tx: Transaction, document: SplitDocument) -> Message | None:
    """The message that names the parts of a document; None: they say themselves what they are."""
    stored = tx.incoming(*document.key)
    if stored is None or stored.incoming.state is not IncomingState.GATHERED:
        return None
    return accepted(node, stored) if stored.view is None else read_view(stored.view).message


def contents_named(
    document: SplitDocument,
    index: Message,
    here: Sequence[PartRead],
    fragments: Sequence[PartRead],
) -> Iterator[Pieces]:
    """The payloads of a document whose message names its fragments, in the order of its Manifest:
    what follows each other there under one file name is one payload."""
    # Of each: the file, and whether a fragment is among them.
    groups: list[tuple[str | None, list[PartRead]]] = []
    left, coming = {part.payload.content_id: part for part in here}, iter(fragments)
    for reference in index.manifest:
        part = _referred(reference, left, coming)
        if part is None:
            continue
        said = attachment_in(reference)
        file = None if said is None else said.file_name
        encoding = FRAGMENT_ENCODING if said is not None and said.compressed else None
        part = replace(part, encoding=encoding)
        if groups and file is not None and groups[-1][0] == file:
            groups[-1][1].append(part)
        else:
            groups.append((file, [part]))
    groups += [(None, [part]) for part in left.values()]
    inline = {id(part.message) for part in here}
    names: set[str] = set()
    for _, group in groups:
        whole = all(id(part.message) in inline for part in group)
        # What is not in fragments is the application's as it is.
        bare = [replace(part, encoding=None) for part in group] if whole else group
        pieces = _pieces(document, bare, None)
        yield replace(pieces, payload=_named_once(pieces.payload, names))


def _referred(
    reference: Reference, left: dict[str, PartRead], coming: Iterator[PartRead]
) -> PartRead | None:
    """The payload that a reference is to: of the message itself, or the next fragment."""
    if message_named(reference) is not None:
        return next(coming, None)
    found = None if reference.content_id is None else part_of(reference.content_id, tuple(left))
    return None if found is None else left.pop(found)


def _named_once(payload: Payload, names: set[str]) -> Payload:
    """Fragments of several files may have one Content-ID; the payloads of a document may not."""
    name, count = payload.content_id, 1
    while name in names:
        count += 1
        name = f"{count}.{payload.content_id}"[:255]
    names.add(name)
    return payload if name == payload.content_id else replace(payload, content_id=name)
