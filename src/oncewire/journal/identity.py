"""Identity digest: which arrivals are copies of one message (gap 16, DRV-6).

Two arrivals with one MessageId are the same message exactly when their digests are equal. The
digest covers what the From Party said: the header's values and the decoded payloads. It leaves
out what may rightly differ between two copies: routing and hop blocks, the sequence number
(given after submission), wishes about the exchange itself (receipts, synchronous replies),
Content-IDs and transfer encodings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from oncewire.message.envelope import Message

_PREFIX = "oncewire identity 1;"
"""Names the encoding, so that a later one cannot collide with it."""


def identity_digest(message: Message) -> str:
    """Hex SHA-256 of everything that makes this message itself.

    Each text is written as its length and itself (`row_text`), each list as its count and its
    values. So no two different messages give the same text, whatever their ids contain.
    """
    header = message.header
    service, split = header.service, header.split
    values: list[Value] = []
    for party in (header.from_party, header.to_party):
        values.append(len(party.ids))
        for party_id in party.ids:
            values += (party_id.value, party_id.type)
        values.append(party.role)
    values += (header.cpa_id, header.conversation_id)
    values += (None,) if service is None else (service.value, service.type)
    values += (
        header.action,
        header.message_id,
        str(header.timestamp),
        header.ref_to_message_id,
        None if header.time_to_live is None else str(header.time_to_live),
        header.semantics and header.semantics._value_,
    )
    values += (None,) if split is None else (split.split_id, split.number, split.total)
    text = _PREFIX + row_text(values)
    if header.descriptions:
        text += f"descriptions {len(header.descriptions)};"
        text += row_text([value for pair in header.descriptions for value in pair])
    if header.foreign:
        text += f"foreign {len(header.foreign)};"
        # Latin-1 gives each byte one character: the element's bytes are kept apart exactly.
        text += row_text([element.decode("latin-1") for element in header.foreign])
    if message.error_list is not None:
        # A report's content is its errors; it has no payload that could tell two apart.
        errors = message.error_list.errors
        text += f"errors {len(errors)};"
        text += row_text([value for each in errors for value in (each.code, each.severity.value)])
    values = []
    for payload in message.payloads:
        values += (payload.media_type, payload.digest)
    text += f"payloads {len(message.payloads)};{row_text(values)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def document_digest(digests: Sequence[str]) -> str:
    """What S13 compares of a document: the SHA-256 of its payload; of several payloads the SHA-256
    of all of theirs, in order."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256(";".join(digests).encode()).hexdigest()


# The chain over a node's journal: each head depends on every row before it.
#
# The head behind a row is the SHA-256 of the head before it and of the row's text. So one head
# proves all rows that led to it: none can be altered, added, taken out or moved without another
# head. A node keeps with each row the head before it, so a journal that was trimmed still says
# where its chain goes on.
#
# A head proves nothing by itself, for an editor of a journal can chain it anew. It proves
# something to those who noted it before.


Head = bytes
Value = int | str | None

START: Head = bytes(32)
"""Before the first row that is chained."""


def row_text(row: Sequence[Value]) -> str:
    """A row's columns in order: a text with its length in characters and a colon before it, a
    number with a semicolon behind it, nothing as a hyphen. So no two rows have one text."""
    return "".join(
        [
            f"{len(value)}:{value}"
            if value.__class__ is str
            else "-"
            if value is None
            else f"{value};"
            if value.__class__ is int
            else _plain(value)
            for value in row
        ]
    )


def _plain(value: int | str) -> str:
    """An enumeration's member, or a truth value, as a store gives it back."""
    return row_text((str(value),) if isinstance(value, str) else (int(value),))


def link(head: Head, row: Sequence[Value]) -> Head:
    """The head behind one more row."""
    text = row_text(row).encode("utf-8", "surrogatepass")
    return hashlib.sha256(head + text).digest()


def links(head: Head, rows: Iterable[Sequence[Value]]) -> list[Head]:
    """The head before each row, and at last the one behind all of them."""
    return list(accumulate(rows, link, initial=head))


def unchained(rows: Iterable[Sequence[Value]], heads: Mapping[int, Head]) -> list[int]:
    """Positions of rows that do not lead from the head before them to the one behind, as their node
    kept them; the first column of a row is its position."""
    found = []
    for row in rows:
        seq = int(row[0] or 0)
        before, behind = heads.get(seq), heads.get(seq + 1)
        if before is not None and behind is not None and link(before, row) != behind:
            found.append(seq)
    return found


def last_head(head: Head, rows: Iterable[Sequence[Value]]) -> Head:
    """The head behind some rows, however many they are."""
    for row in rows:
        head = link(head, row)
    return head
